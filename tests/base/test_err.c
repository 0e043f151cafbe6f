#include "base/err.h"
#include "base/utf8.h"
#include "testkit.h"

#include <stdio.h>

static void check_sane(const struct ek_err *err)
{
    size_t n = strnlen(err->text, sizeof err->text);
    assert_true(n < sizeof err->text);
    assert_true(ek_utf8_is_valid(err->text, n));
    for (size_t i = 0; i < n; i++)
        assert_true((unsigned char)err->text[i] >= 0x20 && err->text[i] != 0x7f);
}

static void set_returns_the_status_and_keeps_the_sentence(void **state)
{
    (void)state;
    struct ek_err err = EK_ERR_INIT;
    assert_int_equal(err.status, 0);
    assert_string_equal(err.text, "");
    assert_int_equal(ek_err_set(&err, EK_EFORMAT, "%s: key '%s'", "a.gguf", "n"),
                     EK_EFORMAT);
    assert_int_equal(err.status, EK_EFORMAT);
    assert_string_equal(err.text, "a.gguf: key 'n'");
    assert_int_equal(ek_err_set(&err, EK_EIO, "other"), EK_EIO);
    assert_string_equal(err.text, "other");
}

static void a_null_err_is_fine_everywhere(void **state)
{
    (void)state;
    assert_int_equal(ek_err_set(NULL, EK_EINVAL, "x %d", 1), EK_EINVAL);
    assert_int_equal(ek_err_prefix(NULL, "x"), 0);
}

static void unprintable_bytes_are_written_as_hex(void **state)
{
    (void)state;
    struct ek_err err = EK_ERR_INIT;
    ek_err_set(&err, EK_EINVAL, "a\nb\x1b[31m\x7f\xff\xc3(\xc3\xa9\xed\xa0\x80");
    assert_string_equal(err.text, "a\\x0ab\\x1b[31m\\x7f\\xff\\xc3(\xc3\xa9"
                                  "\\xed\\xa0\\x80");
    /* C1 controls are two bytes in UTF-8 and still steer a terminal. */
    ek_err_set(&err, EK_EINVAL,
               "\xc2\x9b"
               "31m|\xc2\xa0");
    assert_string_equal(err.text, "\\xc2\\x9b31m|\xc2\xa0");
}

static void prefix_stands_before_the_sentence(void **state)
{
    (void)state;
    struct ek_err err = EK_ERR_INIT;
    ek_err_set(&err, EK_EFORMAT, "bad \x01");
    assert_int_equal(ek_err_prefix(&err, "%s: line %d", "f.yaml", 3), EK_EFORMAT);
    assert_string_equal(err.text, "f.yaml: line 3: bad \\x01");
    assert_int_equal(err.status, EK_EFORMAT);
}

/* Every length around the ceiling, with each width of the last characters. */
static void a_long_sentence_is_cut_at_a_character_with_dots(void **state)
{
    (void)state;
    static const char *const tails[] = {
        "x", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\x01", "\xff"};
    for (size_t t = 0; t < sizeof tails / sizeof tails[0]; t++) {
        for (size_t n = EK_ERR_CAP - 20; n < EK_ERR_CAP + 8; n++) {
            char text[2 * EK_ERR_CAP];
            size_t at = 0;
            for (; at < n - 8; at++)
                text[at] = 'a';
            while (at < n)
                at += (size_t)snprintf(text + at, 8, "%s", tails[t]);
            struct ek_err err = EK_ERR_INIT;
            ek_err_set(&err, EK_EINVAL, "%s", text);
            check_sane(&err);
            size_t len = strlen(err.text);
            bool is_cut = strcmp(err.text + len - 3, "...") == 0;
            bool is_whole = t < 4 && strcmp(err.text, text) == 0;
            if (t < 4)
                assert_int_equal(is_cut, at > EK_ERR_CAP - 1);
            if (t < 4)
                assert_int_equal(is_whole, !is_cut);
            if (is_cut)
                assert_in_range(len, EK_ERR_CAP - 8, EK_ERR_CAP - 1);
        }
    }
}

static void a_huge_sentence_and_prefix_are_cut(void **state)
{
    (void)state;
    static char huge[10 * EK_ERR_CAP];
    memset(huge, 0xff, sizeof huge - 1);
    struct ek_err err = EK_ERR_INIT;
    ek_err_set(&err, EK_EINVAL, "%s", huge);
    check_sane(&err);
    ek_err_prefix(&err, "%s", huge);
    check_sane(&err);
    assert_string_equal(err.text + strlen(err.text) - 3, "...");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_returns_the_status_and_keeps_the_sentence),
        cmocka_unit_test(a_null_err_is_fine_everywhere),
        cmocka_unit_test(unprintable_bytes_are_written_as_hex),
        cmocka_unit_test(prefix_stands_before_the_sentence),
        cmocka_unit_test(a_long_sentence_is_cut_at_a_character_with_dots),
        cmocka_unit_test(a_huge_sentence_and_prefix_are_cut),
    };
    return cmocka_run_group_tests_name("err", tests, NULL, NULL);
}
