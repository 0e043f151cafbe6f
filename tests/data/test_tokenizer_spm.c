/* SentencePiece-style vocabularies, and the streaming detokenizer over both kinds. */
#include "base/mem.h"
#include "tokenizer_make.h"

struct spm {
    char bytes[256][8];
    const char *tokens[300];
    float scores[300];
    int32_t types[300];
    size_t n;
};

static void add(struct spm *v, const char *text, float score, int32_t type)
{
    v->tokens[v->n] = text;
    v->scores[v->n] = score;
    v->types[v->n++] = type;
}

/* 0 <unk>, 1 <s>, 2 </s>, 3.. the bytes, 259.. pieces */
static struct ek_tokenizer *load(bool adds_prefix)
{
    static const char *const pieces[] = {"\xe2\x96\x81",
                                         "h",
                                         "e",
                                         "l",
                                         "o",
                                         "he",
                                         "ll",
                                         "llo",
                                         "hello",
                                         "\xe2\x96\x81hello",
                                         "\xe2\x96\x81h",
                                         "\xe2\x96\x81\xe2\x96\x81",
                                         "\xc3\xa9"};
    static const float scores[] = {-1,    -2,    -3,     -4, -5,    -0.5f, -0.6f,
                                   -0.4f, -0.1f, -0.05f, -9, -0.7f, -6};
    static struct spm v;
    struct make m;
    struct ek_tokenizer *t = NULL;
    struct ek_err err = EK_ERR_INIT;
    v.n = 0;
    add(&v, "<unk>", 0, EK_TOK_UNKNOWN);
    add(&v, "<s>", 0, EK_TOK_CONTROL);
    add(&v, "</s>", 0, EK_TOK_CONTROL);
    for (unsigned b = 0; b < 256; b++) {
        snprintf(v.bytes[b], sizeof v.bytes[b], "<0x%02X>", b);
        add(&v, v.bytes[b], 0, EK_TOK_BYTE);
    }
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++)
        add(&v, pieces[i], scores[i], EK_TOK_NORMAL);
    add(&v, "<table>", 0, EK_TOK_USER);
    add(&v, "<start_of_turn>", 0, EK_TOK_USER);
    make_init(&m);
    make_str(&m, "tokenizer.ggml.model", "llama");
    make_strs(&m, "tokenizer.ggml.tokens", v.tokens, v.n);
    make_f32s(&m, "tokenizer.ggml.scores", v.scores, v.n);
    make_i32s(&m, "tokenizer.ggml.token_type", v.types, v.n);
    make_u32(&m, "tokenizer.ggml.bos_token_id", 1);
    make_u32(&m, "tokenizer.ggml.eos_token_id", 2);
    make_u32(&m, "tokenizer.ggml.unknown_token_id", 0);
    make_bool(&m, "tokenizer.ggml.add_space_prefix", adds_prefix);
    if (make_load(&m, &t, &err))
        fail_msg("%s", err.text);
    return t;
}

static void best_score_merges_first_and_bos_leads(void **state)
{
    (void)state;
    struct ek_tokenizer *t = load(true);
    assert_encodes(t, "hello", 5, EK_SPECIALS_PLAIN, "1 268");
    assert_encodes(t, "hell", 4, EK_SPECIALS_PLAIN, "1 259 264 265");
    assert_encodes(t, "", 0, EK_SPECIALS_PLAIN, "1");
    assert_string_equal(ek_tokenizer_kind(t), "spm");
    assert_true(ek_tokenizer_adds_bos(t));
    assert_true(ek_tokenizer_is_end(t, 2));
    ek_tokenizer_free(t);
}

static void without_the_prefix_no_space_is_put_or_taken(void **state)
{
    (void)state;
    struct ek_tokenizer *t = load(false);
    assert_encodes(t, "hello", 5, EK_SPECIALS_PLAIN, "1 267");
    assert_encodes(t, " hello", 6, EK_SPECIALS_PLAIN, "1 268");
    assert_round_trip(t, " hello", 6);
    assert_round_trip(t, "hello  \n", 8);
    ek_tokenizer_free(t);
}

static void what_is_no_piece_falls_back_to_bytes(void **state)
{
    (void)state;
    struct ek_tokenizer *t = load(false);
    assert_encodes(t, "\xe4\xbd\xa0", 3, EK_SPECIALS_PLAIN, "1 231 192 163");
    assert_encodes(t, "\xff\n", 2, EK_SPECIALS_PLAIN, "1 258 13");
    assert_encodes(t, "\xc3\xa9\xc3", 3, EK_SPECIALS_PLAIN, "1 271 198");
    char all[256];
    for (int i = 0; i < 256; i++)
        all[i] = (char)i;
    assert_round_trip(t, all, 256);
    ek_tokenizer_free(t);
}

static void markup_is_read_where_it_stands_and_turn_marks_only_when_parsed(void **state)
{
    (void)state;
    struct ek_tokenizer *t = load(false);
    assert_encodes(t, "<table>", 7, EK_SPECIALS_PLAIN, "1 272");
    assert_encodes(t, "<start_of_turn>", 15, EK_SPECIALS_PARSE, "1 273");
    struct ek_ids ids;
    ek_ids_init(&ids, 100);
    assert_int_equal(ek_tokenizer_encode(t, &ids, "<start_of_turn></s>", 19, NULL,
                                         EK_SPECIALS_PLAIN, false),
                     0);
    assert_true(ids.n > 10);
    ek_ids_release(&ids);
    ek_tokenizer_free(t);
}

static void first_space_goes_once_in_decode_and_stream(void **state)
{
    (void)state;
    struct ek_tokenizer *t = load(true);
    struct ek_buf out;
    struct ek_detok d;
    static const int32_t ids[] = {1, 268, 268, 2};
    ek_buf_init(&out, 100);
    assert_int_equal(ek_tokenizer_decode(t, &out, ids, 4, false), 0);
    assert_string_equal(out.data, "hello hello");
    ek_buf_reset(&out);
    assert_int_equal(ek_tokenizer_decode(t, &out, ids, 4, true), 0);
    assert_string_equal(out.data, "<s> hello hello</s>");
    ek_buf_reset(&out);
    ek_detok_init(&d, t, true, false);
    for (int i = 0; i < 4; i++)
        assert_int_equal(ek_detok_feed(&d, &out, ids[i]), 0);
    assert_int_equal(ek_detok_finish(&d, &out), 0);
    assert_string_equal(out.data, "hello hello");
    ek_buf_reset(&out);
    ek_detok_init(&d, t, false, false);
    assert_int_equal(ek_detok_feed(&d, &out, 268), 0);
    assert_string_equal(out.data, " hello");
    ek_buf_release(&out);
    ek_tokenizer_free(t);
}

/* Feeds bytes one token each and returns what the stream showed, NUL-terminated. */
static void stream_bytes(const struct ek_tokenizer *t, struct ek_buf *out,
                         const char *bytes, size_t n)
{
    struct ek_detok d;
    ek_detok_init(&d, t, false, false);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(ek_detok_feed(&d, out, 3 + (unsigned char)bytes[i]), 0);
        assert_true(ek_utf8_is_valid(out->data, out->len));
        assert_true(d.n_held < 4);
    }
    assert_int_equal(ek_detok_finish(&d, out), 0);
}

static void stream_never_shows_half_a_character(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *shown;
    } cases[] = {
        {"\xf0\x9f\x98\x80!", "\xf0\x9f\x98\x80!"},
        {"a\xc3\xa9", "a\xc3\xa9"},
        {"\xff"
         "a",
         "\xef\xbf\xbd"
         "a"},
        {"\xe4\xbd", "\xef\xbf\xbd"},
        {"\xe4\xbdx", "\xef\xbf\xbdx"},
        {"\xf0\x9f\xf0\x9f\x98\x80", "\xef\xbf\xbd\xf0\x9f\x98\x80"},
        {"\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},
    };
    struct ek_tokenizer *t = load(false);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ek_buf out;
        ek_buf_init(&out, 100);
        stream_bytes(t, &out, cases[i].bytes, strlen(cases[i].bytes));
        assert_string_equal(out.data, cases[i].shown);
        ek_buf_release(&out);
    }
    ek_tokenizer_free(t);
}

static void ids_out_of_range_say_nothing(void **state)
{
    (void)state;
    struct ek_tokenizer *t = load(true);
    static const int32_t ids[] = {-1, 274, INT32_MAX, INT32_MIN};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ek_tokenizer_piece(t, ids[i], true).n, 0);
        assert_false(ek_tokenizer_is_special(t, ids[i]));
        assert_false(ek_tokenizer_is_end(t, ids[i]));
    }
    assert_int_equal(ek_tokenizer_size(t), 274);
    assert_int_equal(ek_tokenizer_find(t, "</s>", 4), 2);
    assert_int_equal(ek_tokenizer_find(t, "<0x0A>", 6), 13);
    assert_int_equal(ek_tokenizer_find(t, "hello", 5), 267);
    assert_int_equal(ek_tokenizer_find(t, "nothing", 7), -1);
    ek_tokenizer_free(t);
}

static void failed_detok_feed_can_be_fed_again(void **state)
{
    (void)state;
    struct ek_tokenizer *t = load(true);
    EK_EACH_FAILURE (k) {
        struct ek_buf out;
        struct ek_detok d;
        ek_buf_init(&out, 100);
        ek_detok_init(&d, t, true, false);
        int rc = ek_detok_feed(&d, &out, 268);
        ek_assert_rc(rc);
        if (rc)
            assert_int_equal(ek_detok_feed(&d, &out, 268), 0);
        assert_string_equal(out.data, "hello");
        ek_buf_release(&out);
    }
    ek_tokenizer_free(t);
}

static void long_piece_takes_time_in_proportion(void **state)
{
    (void)state;
    struct ek_tokenizer *t = load(false);
    size_t n = 200000;
    char *text = malloc(2 * n);
    for (size_t i = 0; i < 2 * n; i++)
        text[i] = "hello "[i % 6];
    uint64_t once = 0, twice = 0;
    struct ek_ids ids;
    ek_ids_init(&ids, SIZE_MAX / 8);
    assert_int_equal(
        ek_tok_encode_counted(t, &ids, text, n, NULL, EK_SPECIALS_PARSE, false, &once),
        0);
    assert_int_equal(ek_tok_encode_counted(t, &ids, text, 2 * n, NULL,
                                           EK_SPECIALS_PARSE, false, &twice),
                     0);
    assert_true(twice < 3 * once);
    ek_ids_release(&ids);
    free(text);
    ek_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(best_score_merges_first_and_bos_leads),
        cmocka_unit_test(without_the_prefix_no_space_is_put_or_taken),
        cmocka_unit_test(what_is_no_piece_falls_back_to_bytes),
        cmocka_unit_test(
            markup_is_read_where_it_stands_and_turn_marks_only_when_parsed),
        cmocka_unit_test(first_space_goes_once_in_decode_and_stream),
        cmocka_unit_test(stream_never_shows_half_a_character),
        cmocka_unit_test(ids_out_of_range_say_nothing),
        cmocka_unit_test(failed_detok_feed_can_be_fed_again),
        cmocka_unit_test(long_piece_takes_time_in_proportion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
