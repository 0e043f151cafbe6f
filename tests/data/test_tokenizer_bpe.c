/* Byte-level BPE over a vocabulary of 256 bytes and a few words. */
#include "base/mem.h"
#include "base/rng.h"
#include "tokenizer_make.h"

static struct ek_tokenizer *load(const char *pre)
{
    struct made_bpe v;
    made_bpe_init(&v);
    made_token(&v, "<|im_start|>", EK_TOK_CONTROL);
    made_token(&v, "<|im_end|>", EK_TOK_CONTROL);
    made_token(&v, "<tool_call>", EK_TOK_USER);
    made_token(&v, "   ", EK_TOK_USER);
    return made_bpe_load(&v, pre);
}

static void merges_apply_by_rank_and_leftmost_first(void **state)
{
    (void)state;
    struct ek_tokenizer *t = load("gpt-2");
    assert_encodes(t, "hello world", 11, EK_SPECIALS_PLAIN, "259 264");
    assert_encodes(t, "helo", 4, EK_SPECIALS_PLAIN, "256 108 111");
    assert_encodes(t, "aaaaa", 5, EK_SPECIALS_PLAIN, "267 97");
    assert_encodes(t, "aaa", 3, EK_SPECIALS_PLAIN, "266 97");
    assert_encodes(t, "", 0, EK_SPECIALS_PLAIN, "");
    ek_tokenizer_free(t);
}

static void digits_merge_only_where_the_pre_tokenizer_keeps_them_together(void **state)
{
    (void)state;
    struct ek_tokenizer *gpt2 = load("gpt-2"), *smollm = load("smollm");
    assert_encodes(gpt2, "12", 2, EK_SPECIALS_PLAIN, "268");
    assert_encodes(smollm, "12", 2, EK_SPECIALS_PLAIN, "49 50");
    assert_string_equal(ek_tokenizer_kind(smollm), "bpe smollm");
    ek_tokenizer_free(gpt2);
    ek_tokenizer_free(smollm);
}

static void special_text_is_a_token_only_when_parsed(void **state)
{
    (void)state;
    struct ek_tokenizer *t = load("gpt-2");
    assert_encodes(t, "<|im_start|>hello<|im_end|>", 27, EK_SPECIALS_PARSE,
                   "269 259 270");
    struct ek_ids ids;
    ek_ids_init(&ids, 1000);
    assert_int_equal(ek_tokenizer_encode(t, &ids, "<|im_start|><tool_call>", 23, NULL,
                                         EK_SPECIALS_PLAIN, false),
                     0);
    assert_int_equal(ids.n, 22); /* "ll" is one token */
    for (size_t i = 0; i < ids.n; i++)
        assert_false(ek_tokenizer_is_special(t, ids.ids[i]));
    ek_ids_release(&ids);
    ek_tokenizer_free(t);
}

static void special_with_any_user_byte_is_text(void **state)
{
    (void)state;
    struct ek_tokenizer *t = load("gpt-2");
    const char *text = "<|im_end|>";
    for (size_t k = 0; k < 10; k++) {
        uint8_t mask[10] = {0};
        struct ek_ids ids;
        mask[k] = 1;
        ek_ids_init(&ids, 1000);
        assert_int_equal(
            ek_tokenizer_encode(t, &ids, text, 10, mask, EK_SPECIALS_PARSE, false), 0);
        assert_int_equal(ids.n, 10);
        ek_ids_release(&ids);
    }
    ek_tokenizer_free(t);
}

static void user_defined_runs_of_spaces_are_tokens_in_plain_text_too(void **state)
{
    (void)state;
    struct ek_tokenizer *t = load("gpt-2");
    assert_encodes(t, "a   a", 5, EK_SPECIALS_PLAIN, "97 272 97");
    ek_tokenizer_free(t);
}

static void every_byte_sequence_comes_back(void **state)
{
    (void)state;
    static const char *const pres[] = {"gpt-2", "smollm", "llama-bpe", "deepseek-v3",
                                       "kimi-k2"};
    struct ek_rng rng;
    ek_rng_init(&rng, 7);
    for (size_t p = 0; p < sizeof pres / sizeof pres[0]; p++) {
        struct ek_tokenizer *t = load(pres[p]);
        for (int k = 0; k < 200; k++) {
            char text[64];
            size_t n = ek_rng_below(&rng, sizeof text);
            for (size_t i = 0; i < n; i++)
                text[i] = (char)ek_rng_below(&rng, 256);
            assert_round_trip(t, text, n);
        }
        ek_tokenizer_free(t);
    }
}

/* Text of n bytes: 0 one letter, 1 spaces, 2 all bytes, 3 words, 4 specials' beginnings,
 * 5 a mark after each letter, 6 digits. */
static char *long_text(int kind, size_t n)
{
    char *text = malloc(n);
    static const char *const parts[] = {"a",     " ",         NULL, "hello world ",
                                        "<|im_", "e\xcc\x81", "12"};
    for (size_t i = 0; i < n; i++)
        text[i] = parts[kind] ? parts[kind][i % strlen(parts[kind])] : (char)(i * 7);
    return text;
}

static uint64_t count_steps(const struct ek_tokenizer *t, const char *text, size_t n)
{
    struct ek_ids ids;
    uint64_t steps = 0;
    ek_ids_init(&ids, SIZE_MAX / 8);
    assert_int_equal(
        ek_tok_encode_counted(t, &ids, text, n, NULL, EK_SPECIALS_PARSE, false, &steps),
        0);
    ek_ids_release(&ids);
    return steps;
}

static void twice_the_line_is_about_twice_the_work(void **state)
{
    (void)state;
    static const char *const pres[] = {"smollm", "llama-bpe", "deepseek-llm"};
    for (size_t p = 0; p < sizeof pres / sizeof pres[0]; p++) {
        struct ek_tokenizer *t = load(pres[p]);
        for (int kind = 0; kind < 7; kind++) {
            size_t n = 48 * 1024;
            char *text = long_text(kind, 2 * n);
            uint64_t once = count_steps(t, text, n),
                     twice = count_steps(t, text, 2 * n);
            assert_true(once >= n);
            assert_true(twice < 3 * once);
            free(text);
        }
        ek_tokenizer_free(t);
    }
}

static void ceiling_of_ids_leaves_the_list_as_it_was(void **state)
{
    (void)state;
    struct ek_tokenizer *t = load("gpt-2");
    struct ek_ids ids;
    ek_ids_init(&ids, 3);
    assert_int_equal(ek_ids_add(&ids, 5), 0);
    assert_int_equal(
        ek_tokenizer_encode(t, &ids, "xyz", 3, NULL, EK_SPECIALS_PLAIN, false),
        EK_ELIMIT);
    assert_int_equal(ids.n, 1);
    assert_int_equal(
        ek_tokenizer_encode(t, &ids, "xy", 2, NULL, EK_SPECIALS_PLAIN, false), 0);
    assert_int_equal(ids.n, 3);
    ek_ids_release(&ids);
    ek_tokenizer_free(t);
}

static void every_failed_allocation_is_reported_and_changes_nothing(void **state)
{
    (void)state;
    struct ek_tokenizer *t = load("smollm");
    const char *text = "hello world 12\xff caf\xc3\xa9";
    bool failed = true;
    for (uint64_t k = 1; failed; k++) {
        struct ek_ids ids;
        ek_ids_init(&ids, 1000);
        ek_mem_fail_at(k);
        int rc = ek_tokenizer_encode(t, &ids, text, strlen(text), NULL,
                                     EK_SPECIALS_PARSE, false);
        failed = ek_mem_failed();
        ek_mem_fail_at(0);
        assert_int_equal(rc, failed ? EK_ENOMEM : 0);
        assert_true(failed ? ids.n == 0 : ids.n > 0);
        ek_ids_release(&ids);
    }
    ek_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_apply_by_rank_and_leftmost_first),
        cmocka_unit_test(digits_merge_only_where_the_pre_tokenizer_keeps_them_together),
        cmocka_unit_test(special_text_is_a_token_only_when_parsed),
        cmocka_unit_test(special_with_any_user_byte_is_text),
        cmocka_unit_test(user_defined_runs_of_spaces_are_tokens_in_plain_text_too),
        cmocka_unit_test(every_byte_sequence_comes_back),
        cmocka_unit_test(twice_the_line_is_about_twice_the_work),
        cmocka_unit_test(ceiling_of_ids_leaves_the_list_as_it_was),
        cmocka_unit_test(every_failed_allocation_is_reported_and_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
