/* GGUF vocabularies that lie: each is refused by one sentence that names file, key,
 * value and expectation. */
#include "base/mem.h"
#include "tokenizer_make.h"

static void assert_refused(struct make *m, int status, const char *const *words)
{
    struct ek_tokenizer *t = NULL;
    struct ek_err err = EK_ERR_INIT;
    assert_int_equal(make_load(m, &t, &err), status);
    assert_null(t);
    assert_int_equal(err.status, status);
    assert_null(strchr(err.text, '\n'));
    for (; *words; words++)
        if (!strstr(err.text, *words))
            fail_msg("'%s' does not say '%s'", err.text, *words);
}
#define REFUSED(m, status, ...)                                                        \
    assert_refused(m, status, (const char *const[]){"made.gguf", __VA_ARGS__, NULL})

static void start(struct make *m, const char *pre)
{
    struct made_bpe v;
    made_bpe_init(&v);
    made_bpe_fill(&v, m, pre);
}

static void unknown_kinds_are_refused_by_name_with_what_is_known(void **state)
{
    (void)state;
    struct make m;
    start(&m, "no-such-pre");
    REFUSED(&m, EK_EUNSUP, "tokenizer.ggml.pre", "'no-such-pre'", "known:", "smollm",
            "tekken");
    make_init(&m);
    make_str(&m, "tokenizer.ggml.model", "rwkv");
    REFUSED(&m, EK_EUNSUP, "tokenizer.ggml.model", "'rwkv'", "gpt2, llama, gemma4");
    make_init(&m);
    REFUSED(&m, EK_EFORMAT, "tokenizer.ggml.model", "missing");
    make_init(&m);
    make_str(&m, "tokenizer.ggml.model", "gpt2");
    REFUSED(&m, EK_EUNSUP, "tokenizer.ggml.pre", "''", "known:");
    make_init(&m);
    make_u32(&m, "tokenizer.ggml.model", 7);
    REFUSED(&m, EK_EFORMAT, "tokenizer.ggml.model");
}

static void ids_out_of_range_are_refused(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.eot_token_id",
        "tokenizer.ggml.eom_token_id"};
    for (size_t i = 0; i < 5; i++) {
        struct make m;
        start(&m, "gpt-2");
        make_u32(&m, keys[i], 269);
        REFUSED(&m, EK_EFORMAT, keys[i], "269", "below 269");
    }
    struct make m;
    start(&m, "gpt-2");
    make_str(&m, keys[0], "one");
    REFUSED(&m, EK_EFORMAT, keys[0]);
    start(&m, "gpt-2");
    make_u32(&m, "tokenizer.ggml.add_bos_token", 3);
    REFUSED(&m, EK_EFORMAT, "tokenizer.ggml.add_bos_token");
}

static void start_with_tokens(struct make *m, const char *const *tokens, size_t n)
{
    make_init(m);
    make_str(m, "tokenizer.ggml.model", "gpt2");
    make_str(m, "tokenizer.ggml.pre", "gpt-2");
    make_strs(m, "tokenizer.ggml.tokens", tokens, n);
}

static void bad_token_lists_are_refused(void **state)
{
    (void)state;
    struct make m;
    static const char *const twice[] = {"a", "b", "a"};
    start_with_tokens(&m, twice, 3);
    REFUSED(&m, EK_EFORMAT, "tokenizer.ggml.tokens", "token 2 'a'", "twice");
    static const char *const bad[] = {"a", "\xff\xfe"};
    start_with_tokens(&m, bad, 2);
    REFUSED(&m, EK_EFORMAT, "tokenizer.ggml.tokens", "not UTF-8");
    start_with_tokens(&m, twice, 0);
    REFUSED(&m, EK_EFORMAT, "tokenizer.ggml.tokens has 0 elements", "expected 1 to");
    make_init(&m);
    make_str(&m, "tokenizer.ggml.model", "gpt2");
    make_str(&m, "tokenizer.ggml.pre", "gpt-2");
    REFUSED(&m, EK_EFORMAT, "tokenizer.ggml.tokens", "missing");
    make_init(&m);
    make_str(&m, "tokenizer.ggml.model", "gpt2");
    make_str(&m, "tokenizer.ggml.pre", "gpt-2");
    make_u32(&m, "tokenizer.ggml.tokens", 5);
    REFUSED(&m, EK_EFORMAT, "tokenizer.ggml.tokens", "array of strings");
    char *long_text = malloc(70001);
    memset(long_text, 'a', 70000);
    long_text[70000] = 0;
    const char *const too_long[] = {long_text};
    start_with_tokens(&m, too_long, 1);
    REFUSED(&m, EK_EFORMAT, "token 0", "70000 bytes");
    free(long_text);
}

static void bad_types_are_refused(void **state)
{
    (void)state;
    static const char *const tokens[] = {"a", "b"};
    static const int32_t few[] = {1}, wrong[] = {1, 9};
    static const float floats[] = {1, 2};
    struct make m;
    start_with_tokens(&m, tokens, 2);
    make_i32s(&m, "tokenizer.ggml.token_type", few, 1);
    REFUSED(&m, EK_EFORMAT, "tokenizer.ggml.token_type has 1", "expected 2");
    start_with_tokens(&m, tokens, 2);
    make_i32s(&m, "tokenizer.ggml.token_type", wrong, 2);
    REFUSED(&m, EK_EFORMAT, "tokenizer.ggml.token_type[1] is 9", "0 to 6");
    start_with_tokens(&m, tokens, 2);
    make_f32s(&m, "tokenizer.ggml.token_type", floats, 2);
    REFUSED(&m, EK_EFORMAT, "tokenizer.ggml.token_type", "array of integers");
}

static void bad_merges_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"ab",  "a",  "",   " ",  "a b",
                                      "q  ", " a", "a ", "z a"};
    static const char *const tokens[] = {"a", "b", "z"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct make m;
        start_with_tokens(&m, tokens, 3);
        make_strs(&m, "tokenizer.ggml.merges", bad + i, 1);
        REFUSED(&m, EK_EFORMAT, "tokenizer.ggml.merges");
    }
    struct make m;
    start_with_tokens(&m, tokens, 3);
    REFUSED(&m, EK_EFORMAT, "tokenizer.ggml.merges", "missing");
}

static void bad_scores_are_refused(void **state)
{
    (void)state;
    static const char *const tokens[] = {"<unk>", "a"};
    const float nan_score[] = {0, __builtin_nanf("")}, few[] = {0};
    struct make m;
    for (int k = 0; k < 3; k++) {
        make_init(&m);
        make_str(&m, "tokenizer.ggml.model", "llama");
        make_strs(&m, "tokenizer.ggml.tokens", tokens, 2);
        if (k)
            make_f32s(&m, "tokenizer.ggml.scores", k == 1 ? nan_score : few,
                      k == 1 ? 2 : 1);
        REFUSED(&m, EK_EFORMAT, "tokenizer.ggml.scores",
                k == 0   ? "missing"
                : k == 1 ? "NaN"
                         : "expected 2");
    }
}

static void merge_never_yields_a_special_token(void **state)
{
    (void)state;
    struct made_bpe v;
    made_bpe_init(&v);
    int32_t evil = made_token(&v, "<s>", EK_TOK_CONTROL);
    made_token(&v, "<s", EK_TOK_NORMAL);
    v.merges[v.n_merges++] = "< s";
    v.merges[v.n_merges++] = "<s >";
    struct ek_tokenizer *t = made_bpe_load(&v, "falcon");
    struct ek_ids ids;
    ek_ids_init(&ids, 100);
    assert_int_equal(
        ek_tokenizer_encode(t, &ids, "<s>", 3, NULL, EK_SPECIALS_PLAIN, false), 0);
    for (size_t i = 0; i < ids.n; i++)
        assert_int_not_equal(ids.ids[i], evil);
    ek_ids_release(&ids);
    ek_tokenizer_free(t);
}

static void missing_byte_is_dropped_and_never_ends_the_text(void **state)
{
    (void)state;
    static const char *const tokens[] = {"<|endoftext|>", "a", "b", "ab"};
    static const char *const merges[] = {"a b"};
    static const int32_t types[] = {EK_TOK_CONTROL, 1, 1, 1};
    struct make m;
    struct ek_tokenizer *t = NULL;
    start_with_tokens(&m, tokens, 4);
    make_i32s(&m, "tokenizer.ggml.token_type", types, 4);
    make_strs(&m, "tokenizer.ggml.merges", merges, 1);
    make_u32(&m, "tokenizer.ggml.unknown_token_id", 0);
    assert_int_equal(make_load(&m, &t, NULL), 0);
    assert_encodes(t,
                   "a\xff"
                   "ab",
                   4, EK_SPECIALS_PARSE, "1 3");
    ek_tokenizer_free(t);
}

static void every_truncation_and_failed_allocation_is_survived(void **state)
{
    (void)state;
    struct make m;
    struct ek_buf file;
    struct ek_gguf *g = NULL;
    start(&m, "smollm");
    make_u32(&m, "tokenizer.ggml.bos_token_id", 1);
    make_file(&m, &file);
    for (size_t n = 0; n < file.len; n += 7) {
        char *copy = ek_exact_copy(file.data, n);
        struct ek_tokenizer *t = NULL;
        g = NULL;
        int rc = ek_gguf_parse(&g, copy, n, "made.gguf", NULL);
        if (!rc)
            rc = ek_tokenizer_from_gguf(&t, g, NULL);
        assert_int_not_equal(rc, 0);
        assert_null(t);
        ek_gguf_free(g);
        free(copy);
    }
    g = NULL;
    assert_int_equal(ek_gguf_parse(&g, file.data, file.len, "made.gguf", NULL), 0);
    EK_EACH_FAILURE (k) {
        struct ek_tokenizer *t = NULL;
        int rc = ek_tokenizer_from_gguf(&t, g, NULL);
        bool failed = ek_mem_failed();
        /* Without memory for its compiler, PCRE2 interprets: that is no failure. */
        assert_true(rc == 0 || (failed && rc == EK_ENOMEM));
        assert_true(failed || rc == 0);
        ek_tokenizer_free(t);
    }
    ek_gguf_free(g);
    ek_buf_release(&file);
}

static void every_named_pre_tokenizer_compiles(void **state)
{
    (void)state;
    char list[1024];
    char *at = NULL;
    ek_tok_pre_list(list, sizeof list);
    int n = 0;
    for (char *name = strtok_r(list, ", ", &at); name;
         name = strtok_r(NULL, ", ", &at)) {
        struct made_bpe v;
        made_bpe_init(&v);
        struct ek_tokenizer *t = made_bpe_load(&v, name);
        assert_round_trip(t, "It's 2024: \xe4\xbd\xa0 h\xc3\xa9!\r\n  x \xff", 25);
        ek_tokenizer_free(t);
        n++;
    }
    assert_true(n >= 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_kinds_are_refused_by_name_with_what_is_known),
        cmocka_unit_test(ids_out_of_range_are_refused),
        cmocka_unit_test(bad_token_lists_are_refused),
        cmocka_unit_test(bad_types_are_refused),
        cmocka_unit_test(bad_merges_are_refused),
        cmocka_unit_test(bad_scores_are_refused),
        cmocka_unit_test(merge_never_yields_a_special_token),
        cmocka_unit_test(missing_byte_is_dropped_and_never_ends_the_text),
        cmocka_unit_test(every_truncation_and_failed_allocation_is_survived),
        cmocka_unit_test(every_named_pre_tokenizer_compiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
