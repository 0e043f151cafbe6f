#include "base/json.h"
#include "base/utf8.h"
#include "testkit.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

static int parse(json_t **out, const char *text, size_t n,
                 const struct ek_json_limits *limits, struct ek_err *err)
{
    char *exact = ek_exact_copy(text, n); /* no NUL behind it */
    int rc = ek_json_parse(out, exact, n, limits, err);
    free(exact);
    return rc;
}

static void check_bad(const char *text, size_t n, const char *word)
{
    json_t *root = NULL;
    struct ek_err err = EK_ERR_INIT;
    int rc = parse(&root, text, n, NULL, &err);
    if (rc != EK_EFORMAT || root)
        fail_msg("%s: status %d", text, rc);
    if (!strstr(err.text, "line") || !strstr(err.text, word))
        fail_msg("%s: message '%s' lacks '%s'", text, err.text, word);
}

static void malformed_text_is_refused_with_its_place(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"", "expected"},
        {"{", "column"},
        {"[1,]", "column 4"},
        {"{\"a\":1,}", "column"},
        {"{a:1}", "column"},
        {"'a'", "column"},
        {"[1 2]", "column"},
        {"01", "column"},
        {"+1", "column"},
        {".5", "column"},
        {"1.", "column"},
        {"NaN", "column"},
        {"Infinity", "column"},
        {"nul", "column"},
        {"[1]\n x", "line 2"},
        {"\"a\nb\"", "line 1 column 3: control character"},
        {"\"a\x01\"", "control character"},
        {"\"\\x\"", "escape"},
        {"\"open", "column"},
        {"// c\n1", "column"},
        {"\"\xff\"", "unable to decode byte"},
        {"\"\xc0\x80\"", "unable to decode byte"},
        {"\"\xed\xa0\x80\"", "unable to decode byte"},
        {"{\"a\":1,\"b\":2,\"a\":3}", "duplicate"},
        {"\"\\ud800\"", "Unicode"},
        {"\"\\ud800x\"", "Unicode"},
        {"\"\\udc00\"", "Unicode"},
        {"\"\\ud800\\ud800\"", "Unicode"},
        {"9223372036854775808", "big"},
        {"-9223372036854775809", "big"},
        {"1e999", "overflow"},
        {"-1e999", "overflow"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        check_bad(bad[i][0], strlen(bad[i][0]), bad[i][1]);
    check_bad("[1]\0", 4, "column");
    check_bad("\0", 1, "column");
    check_bad("\"a\0b\"", 5, "column");
}

static void good_values_are_kept_exactly(void **state)
{
    (void)state;
    static const char text[] =
        "[9223372036854775807, -9223372036854775808, 1.5e300, \"a\\u0000b\","
        " \"\\ud83d\\ude00\", true, null, {\"\": {}}]";
    json_t *root = NULL;
    assert_int_equal(parse(&root, text, sizeof text - 1, NULL, NULL), 0);
    assert_true(json_integer_value(json_array_get(root, 0)) == INT64_MAX);
    assert_true(json_integer_value(json_array_get(root, 1)) == INT64_MIN);
    assert_true(json_real_value(json_array_get(root, 2)) == 1.5e300);
    assert_int_equal(json_string_length(json_array_get(root, 3)), 3);
    assert_memory_equal(json_string_value(json_array_get(root, 3)), "a\0b", 3);
    assert_string_equal(json_string_value(json_array_get(root, 4)), "\xf0\x9f\x98\x80");
    json_decref(root);
    root = NULL;
    assert_int_equal(parse(&root, " 7 ", 3, NULL, NULL),
                     0); /* any value may be whole */
    assert_true(json_is_integer(root));
    json_decref(root);
}

static void check_prefix(void *arg, const char *text, size_t n)
{
    const size_t *whole = arg;
    json_t *root = NULL;
    int rc = ek_json_parse(&root, text, n, NULL, NULL);
    assert_int_equal(rc, n == *whole ? 0 : EK_EFORMAT);
    json_decref(root);
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    static const char text[] = "{\"a\": [1, -2.5e3, \"\\u00e9\\n\xe2\x82\xac\", true, "
                               "false, null], \"b\": {\"c\": []}}";
    size_t whole = sizeof text - 1;
    ek_each_prefix(text, whole, check_prefix, &whole);
}

static void check_limit(const char *text, struct ek_json_limits limits,
                        const char *word)
{
    json_t *root = NULL;
    struct ek_err err = EK_ERR_INIT;
    int rc = parse(&root, text, strlen(text), &limits, &err);
    if (!word) {
        assert_int_equal(rc, 0);
        json_decref(root);
        return;
    }
    assert_int_equal(rc, EK_ELIMIT);
    assert_null(root);
    assert_non_null(strstr(err.text, word));
}

static void limits_are_exact_and_named(void **state)
{
    (void)state;
    check_limit("[1]", (struct ek_json_limits){.max_bytes = 3}, NULL);
    check_limit("[12]", (struct ek_json_limits){.max_bytes = 3}, "4 bytes");
    check_limit("[[]]", (struct ek_json_limits){.max_depth = 2}, NULL);
    check_limit("[[[]]]", (struct ek_json_limits){.max_depth = 2}, "2 levels");
    check_limit("[{},{},{\"a\":[]}]", (struct ek_json_limits){.max_depth = 3}, NULL);
    check_limit("[1,\"a\",null]", (struct ek_json_limits){.max_values = 4}, NULL);
    check_limit("[1,\"a\",null,2]", (struct ek_json_limits){.max_values = 4},
                "4 values");
    /* Brackets, quotes and escapes inside strings count for nothing. */
    check_limit("\"[[[[{{{\\\"[[\\\\\"", (struct ek_json_limits){1000, 1, 1}, NULL);
    char deep[2 * EK_JSON_DEPTH_DEFAULT + 3];
    for (size_t extra = 0; extra < 2; extra++) {
        size_t n = EK_JSON_DEPTH_DEFAULT + extra;
        memset(deep, '[', n);
        memset(deep + n, ']', n);
        deep[2 * n] = 0;
        check_limit(deep, (struct ek_json_limits){0}, extra ? "64 levels" : NULL);
    }
}

static void hostile_nesting_costs_no_memory(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    char *text = malloc(N);
    assert_non_null(text);
    memset(text, '[', N);
    json_t *root = NULL;
    ek_mem_fail_at(1);
    assert_int_equal(ek_json_parse(&root, text, N, NULL, NULL), EK_ELIMIT);
    assert_false(ek_mem_failed()); /* nothing was asked for */
    ek_mem_fail_at(0);
    free(text);
}

static void a_failed_allocation_is_never_a_wrong_value(void **state)
{
    (void)state;
    static const char text[] =
        "{\"a key that is longer than the buffer\": \"a value that is longer than it\","
        " \"n\": 1234567890123456789, \"x\": [1.25, \"\\u20ac\", {\"d\": []}]}";
    EK_EACH_FAILURE (k) {
        json_t *root = NULL;
        ek_assert_rc(ek_json_parse(&root, text, sizeof text - 1, NULL, NULL));
        if (root) {
            assert_true(json_integer_value(json_object_get(root, "n")) ==
                        1234567890123456789);
        }
        json_decref(root);
    }
}

static void check_string(const char *s, size_t n, const char *want)
{
    struct ek_buf b;
    json_t *root = NULL;
    ek_buf_init(&b, 1000);
    assert_int_equal(ek_json_add_str(&b, s, n), 0);
    if (want)
        assert_string_equal(b.data, want);
    assert_int_equal(parse(&root, b.data, b.len, NULL, NULL), 0);
    if (ek_utf8_is_valid(s, n)) {
        assert_int_equal(json_string_length(root), n);
        assert_memory_equal(json_string_value(root), s, n);
    }
    json_decref(root);
    ek_buf_release(&b);
}

static void written_strings_read_back(void **state)
{
    (void)state;
    check_string("", 0, "\"\"");
    check_string("a\"b\\c/d\n\r\t\b\f", 12, "\"a\\\"b\\\\c/d\\n\\r\\t\\u0008\\u000c\"");
    check_string("a\0b", 3, "\"a\\u0000b\"");
    check_string("\xe2\x82\xac\x7f", 4, "\"\xe2\x82\xac\\u007f\"");
    check_string("\xff\xc3(\xe2\x82", 5, "\"\xef\xbf\xbd\xef\xbf\xbd(\xef\xbf\xbd\"");
    for (unsigned c = 0; c < 256; c++)
        check_string((char[2]){(char)c, 'x'}, 2, NULL);
}

static void a_string_over_the_ceiling_changes_nothing(void **state)
{
    (void)state;
    for (size_t max = 2; max < 24; max++) {
        struct ek_buf b;
        ek_buf_init(&b, max);
        assert_int_equal(ek_buf_add_str(&b, "ab"), 0);
        int rc = ek_json_add_str(&b, "x\n\xff\"\1", 5);
        assert_int_equal(rc, max < 2 + 16 ? EK_ELIMIT : 0);
        if (rc)
            assert_string_equal(b.data, "ab");
        ek_buf_release(&b);
    }
}

static void check_double(double v, const char *want)
{
    struct ek_buf b;
    ek_buf_init(&b, 100);
    assert_int_equal(ek_json_add_double(&b, v), 0);
    if (want)
        assert_string_equal(b.data, want);
    else
        assert_true(strtod(b.data, NULL) == v);
    json_t *root = NULL;
    assert_int_equal(parse(&root, b.data, b.len, NULL, NULL), 0);
    json_decref(root);
    ek_buf_release(&b);
}

static void doubles_are_short_and_read_back(void **state)
{
    (void)state;
    check_double(0.0, "0");
    check_double(-0.0, "-0.0");
    check_double(0.1, "0.1");
    check_double(-1.5, "-1.5");
    check_double(100.0, "100");
    check_double(1e22, "1e+22");
    check_double(strtod("nan", NULL), "-9999.0");
    check_double(HUGE_VAL, "-9999.0");
    check_double(-HUGE_VAL, "-9999.0");
    check_double(1.0 / 3.0, NULL);
    check_double(DBL_MAX, NULL);
    check_double(DBL_MIN, NULL);
    check_double(5e-324, NULL);
    check_double(-0.000123456789012345678, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(malformed_text_is_refused_with_its_place),
        cmocka_unit_test(good_values_are_kept_exactly),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(limits_are_exact_and_named),
        cmocka_unit_test(hostile_nesting_costs_no_memory),
        cmocka_unit_test(a_failed_allocation_is_never_a_wrong_value),
        cmocka_unit_test(written_strings_read_back),
        cmocka_unit_test(a_string_over_the_ceiling_changes_nothing),
        cmocka_unit_test(doubles_are_short_and_read_back),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
