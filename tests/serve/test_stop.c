/* Stop strings against the naive definition: search the whole text after each byte. */
#include "base/rng.h"
#include "serve/stop.h"
#include "testkit.h"

static void init(struct ek_stop *s, struct ek_arena *a, const char *const *strings)
{
    ek_arena_init(a, 1 << 16);
    ek_stop_init(s);
    for (; *strings; strings++)
        assert_int_equal(ek_stop_add(s, a, *strings, strlen(*strings)), 0);
}

/* Feeds `text` in pieces of `piece` bytes; the answer lies in out->data. */
static void run(struct ek_stop *s, struct ek_buf *out, const char *text, size_t piece,
                bool keeps_match)
{
    size_t n = strlen(text);
    ek_buf_init(out, 1 << 16);
    assert_int_equal(ek_buf_add(out, "", 0), 0);
    for (size_t i = 0; i < n; i += piece) {
        size_t k = n - i < piece ? n - i : piece;
        assert_int_equal(ek_stop_feed(s, out, text + i, k, false, keeps_match), 0);
    }
}

static void expect(const char *const *strings, const char *text, const char *answer,
                   int32_t hit)
{
    for (size_t piece = 1; piece <= strlen(text); piece++) {
        struct ek_stop s;
        struct ek_arena a;
        struct ek_buf out;
        init(&s, &a, strings);
        run(&s, &out, text, piece, false);
        assert_int_equal(ek_stop_finish(&s, &out), 0);
        assert_string_equal(out.data, answer);
        assert_int_equal(s.hit, hit);
        ek_buf_release(&out);
        ek_arena_release(&a);
    }
}

static void a_stop_string_is_cut_across_any_boundary(void **state)
{
    (void)state;
    expect((const char *[]){"STOP", NULL}, "one STOP two", "one ", 0);
    expect((const char *[]){"\n\n", NULL}, "a\nb\n\nc", "a\nb", 0);
    expect((const char *[]){"aab", NULL}, "aaab", "a", 0);
}

static void a_partial_match_comes_out_at_the_end(void **state)
{
    (void)state;
    expect((const char *[]){"STOP", NULL}, "one STO", "one STO", -1);
    expect((const char *[]){"abcabd", NULL}, "abcabcab", "abcabcab", -1);
}

static void the_string_that_completes_first_wins(void **state)
{
    (void)state;
    expect((const char *[]){"bcd", "c", NULL}, "abcd", "ab", 1);
    expect((const char *[]){"abcdef", "cd", NULL}, "abcdef", "ab", 1);
}

static void of_two_that_complete_together_the_longer_is_cut(void **state)
{
    (void)state;
    expect((const char *[]){"c", "abc", "bc", NULL}, "xabc", "x", 1);
}

static void nothing_of_a_stop_string_leaks_while_it_is_undecided(void **state)
{
    (void)state;
    struct ek_stop s;
    struct ek_arena a;
    struct ek_buf out;
    init(&s, &a, (const char *[]){"END", "ENDLESS", NULL});
    run(&s, &out, "the EN", 1, false);
    assert_string_equal(out.data, "the ");
    assert_int_equal(ek_stop_held(&s), 2);
    assert_int_equal(ek_stop_feed(&s, &out, "T", 1, false, false), 0);
    assert_string_equal(out.data, "the ENT");
    ek_buf_release(&out);
    ek_arena_release(&a);
}

static void the_match_is_kept_when_asked(void **state)
{
    (void)state;
    struct ek_stop s;
    struct ek_arena a;
    struct ek_buf out;
    init(&s, &a, (const char *[]){"STOP", NULL});
    run(&s, &out, "one STOP two", 5, true);
    assert_string_equal(out.data, "one STOP");
    ek_buf_release(&out);
    ek_arena_release(&a);
}

static void an_early_match_is_text_and_may_begin_another(void **state)
{
    (void)state;
    struct ek_stop s;
    struct ek_arena a;
    struct ek_buf out;
    init(&s, &a, (const char *[]){"abab", NULL});
    ek_buf_init(&out, 100);
    assert_int_equal(ek_stop_feed(&s, &out, "abab", 4, true, false), 0);
    assert_int_equal(s.hit, -1);
    assert_string_equal(out.data, "ab");
    assert_int_equal(ek_stop_feed(&s, &out, "abx", 3, false, false), 0);
    assert_int_equal(s.hit, 0);
    assert_string_equal(out.data, "ab");
    ek_buf_release(&out);
    ek_arena_release(&a);
}

static void impossible_strings_are_refused(void **state)
{
    (void)state;
    static char large[EK_STOP_BYTES_MAX + 1];
    struct ek_stop s;
    struct ek_arena a;
    ek_arena_init(&a, 1 << 16);
    ek_stop_init(&s);
    memset(large, 'x', sizeof large);
    assert_int_equal(ek_stop_add(&s, &a, "", 0), EK_EINVAL);
    assert_int_equal(ek_stop_add(&s, &a, large, sizeof large), EK_ELIMIT);
    for (int i = 0; i < EK_STOP_STRINGS_MAX; i++)
        assert_int_equal(ek_stop_add(&s, &a, "x", 1), 0);
    assert_int_equal(ek_stop_add(&s, &a, "x", 1), EK_ELIMIT);
    ek_arena_release(&a);
}

/* The definition: the first end at which a string lies; the longest that ends there. */
static int32_t naive(const char *text, const char *const *strings, size_t *cut)
{
    size_t n = strlen(text);
    for (size_t end = 1; end <= n; end++) {
        int32_t hit = -1;
        size_t longest = 0;
        for (int32_t i = 0; strings[i]; i++) {
            size_t len = strlen(strings[i]);
            if (len <= end && len > longest &&
                !memcmp(text + end - len, strings[i], len)) {
                hit = i;
                longest = len;
            }
        }
        if (hit >= 0) {
            *cut = end - longest;
            return hit;
        }
    }
    *cut = n;
    return -1;
}

static void random_texts_agree_with_the_definition(void **state)
{
    (void)state;
    struct ek_rng rng;
    ek_rng_init(&rng, 3);
    for (int round = 0; round < 5000; round++) {
        char store[3][8], text[41];
        const char *strings[4] = {0};
        uint64_t n_strings = 1 + ek_rng_below(&rng, 3), n = ek_rng_below(&rng, 40);
        for (uint64_t i = 0; i < n_strings; i++) {
            uint64_t len = 1 + ek_rng_below(&rng, 6);
            for (uint64_t k = 0; k < len; k++)
                store[i][k] = (char)('a' + ek_rng_below(&rng, 2));
            store[i][len] = 0;
            strings[i] = store[i];
        }
        for (uint64_t k = 0; k < n; k++)
            text[k] = (char)('a' + ek_rng_below(&rng, 2));
        text[n] = 0;
        size_t cut;
        int32_t hit = naive(text, strings, &cut);
        struct ek_stop s;
        struct ek_arena a;
        struct ek_buf out;
        init(&s, &a, strings);
        run(&s, &out, text, 1 + ek_rng_below(&rng, 5), false);
        assert_int_equal(ek_stop_finish(&s, &out), 0);
        if (hit < 0)
            assert_int_equal(s.hit, -1);
        else
            assert_string_equal(strings[s.hit], strings[hit]);
        assert_int_equal(out.len, cut);
        assert_memory_equal(out.data, text, cut);
        ek_buf_release(&out);
        ek_arena_release(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stop_string_is_cut_across_any_boundary),
        cmocka_unit_test(a_partial_match_comes_out_at_the_end),
        cmocka_unit_test(the_string_that_completes_first_wins),
        cmocka_unit_test(of_two_that_complete_together_the_longer_is_cut),
        cmocka_unit_test(nothing_of_a_stop_string_leaks_while_it_is_undecided),
        cmocka_unit_test(the_match_is_kept_when_asked),
        cmocka_unit_test(an_early_match_is_text_and_may_begin_another),
        cmocka_unit_test(impossible_strings_are_refused),
        cmocka_unit_test(random_texts_agree_with_the_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
