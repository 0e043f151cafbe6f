/* test_trace.c - traces: what is read, what is refused and how it is told. */
#include "load/trace.h"
#include "testkit.h"

#include <stdio.h>

static const char mooncake[] =
    "{\"timestamp\": 1000, \"input_length\": 1300, \"output_length\": 52, "
    "\"hash_ids\": [0, 7, 9]}\n"
    "\n"
    "{\"timestamp\": 1000.5, \"input_length\": 5, \"output_length\": 1, \"x\": {}}\r\n"
    "{\"timestamp\": 4000, \"input_length\": 600, \"output_length\": 2, "
    "\"hash_ids\": [0, -3]}";

static const char azure[] = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                            "2023-11-16 18:15:46.6805900,374,44\r\n"
                            "2023-11-16T18:15:50.9951690Z,396,109\r\n"
                            "2023-11-17 00:00:00+00:00,1,2";

static int parse(struct ek_trace *t, const char *text, struct ek_err *err)
{
    char *copy = ek_exact_copy(text, strlen(text));
    *t = (struct ek_trace){0};
    int rc = ek_trace_parse(t, "t.jsonl", copy, strlen(text), err);
    free(copy);
    return rc;
}

static void mooncake_lines_become_rows_with_their_blocks(void **state)
{
    (void)state;
    struct ek_trace t;
    assert_int_equal(parse(&t, mooncake, NULL), 0);
    assert_int_equal(t.n, 3);
    assert_int_equal(t.rows[0].at_us, 0);
    assert_int_equal(t.rows[1].at_us, 500);
    assert_int_equal(t.rows[2].at_us, 3000000);
    assert_int_equal(t.rows[0].n_in, 1300);
    assert_int_equal(t.rows[0].n_out, 52);
    assert_int_equal(t.rows[0].n_hashes, 3);
    assert_int_equal(t.hashes[t.rows[0].first_hash + 1], 7);
    assert_int_equal(t.rows[1].n_hashes, 0);
    assert_int_equal(t.hashes[t.rows[2].first_hash + 1], -3);
    ek_trace_release(&t);
}

static void azure_lines_become_rows_at_their_times(void **state)
{
    (void)state;
    struct ek_trace t;
    assert_int_equal(parse(&t, azure, NULL), 0);
    assert_int_equal(t.n, 3);
    assert_int_equal(t.rows[0].at_us, 0);
    assert_int_equal(t.rows[1].at_us, 4314579);
    /* from 18:15:46.680590 to midnight */
    assert_int_equal(t.rows[2].at_us, INT64_C(20653319410));
    assert_int_equal(t.rows[1].n_in, 396);
    assert_int_equal(t.rows[1].n_out, 109);
    ek_trace_release(&t);
}

static void leap_days_count(void **state)
{
    (void)state;
    struct ek_trace t;
    assert_int_equal(parse(&t,
                           "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                           "2024-02-28 00:00:00,1,1\n2024-03-01 00:00:00,1,1\n"
                           "2100-02-28 00:00:00,1,1\n2100-03-01 00:00:00,1,1\n",
                           NULL),
                     0);
    int64_t day = INT64_C(86400) * 1000000;
    assert_true(t.rows[1].at_us - t.rows[0].at_us == 2 * day);
    assert_true(t.rows[3].at_us - t.rows[2].at_us == day);
    ek_trace_release(&t);
}

static void rows_out_of_order_are_sorted_and_equal_times_keep_their_order(void **state)
{
    (void)state;
    struct ek_trace t;
    assert_int_equal(parse(&t,
                           "{\"timestamp\":9,\"input_length\":1,\"output_length\":1}\n"
                           "{\"timestamp\":2,\"input_length\":2,\"output_length\":1}\n"
                           "{\"timestamp\":9,\"input_length\":3,\"output_length\":1}\n"
                           "{\"timestamp\":2,\"input_length\":4,\"output_length\":1}\n",
                           NULL),
                     0);
    static const int32_t want[] = {2, 4, 1, 3};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(t.rows[i].n_in, want[i]);
    assert_int_equal(t.rows[3].at_us, 7000);
    ek_trace_release(&t);
}

static void bad_lines_are_refused_with_file_and_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "holds no request"},
        {"\n\n", "holds no request"},
        {"hello", "t.jsonl:1: expected a JSON object"},
        {"\n[1]", "t.jsonl:2: expected a JSON object"},
        {"{\"timestamp\":1,\"input_length\":1,\"output_length\":1}\n{", "t.jsonl:2:"},
        {"{\"timestamp\":1,\"input_length\":1,\"output_length\":1}\nx", "t.jsonl:2:"},
        {"{\"input_length\":1,\"output_length\":1}", "'timestamp'"},
        {"{\"timestamp\":-1,\"input_length\":1,\"output_length\":1}", "'timestamp'"},
        {"{\"timestamp\":1e300,\"input_length\":1,\"output_length\":1}", "'timestamp'"},
        {"{\"timestamp\":\"1\",\"input_length\":1,\"output_length\":1}", "'timestamp'"},
        {"{\"timestamp\":1,\"input_length\":0,\"output_length\":1}", "'input_length'"},
        {"{\"timestamp\":1,\"input_length\":1.5,\"output_length\":1}",
         "'input_length'"},
        {"{\"timestamp\":1,\"input_length\":99999999999,\"output_length\":1}",
         "1 to 10000000"},
        {"{\"timestamp\":1,\"input_length\":1}", "'output_length'"},
        {"{\"timestamp\":1,\"input_length\":1,\"output_length\":1,\"hash_ids\":3}",
         "'hash_ids'"},
        {"{\"timestamp\":1,\"input_length\":1,\"output_length\":1,\"hash_ids\":[\"\"]}",
         "'hash_ids'"},
        {"TIMESTAMP,ContextTokens,GeneratedTokens", "holds no request"},
        {"TIMESTAMP,ContextTokens\n1,2", "t.jsonl:1:"},
        {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-13-01 00:00:00,1,1",
         "t.jsonl:2: TIMESTAMP"},
        {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-01 00:00:00.,1,1",
         "TIMESTAMP"},
        {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-01 00:00:00,0,1",
         "ContextTokens"},
        {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-01 00:00:00,-1,1",
         "ContextTokens"},
        {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-01 00:00:00,1,1,1",
         "GeneratedTokens"},
        {"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-01 00:00:00,1,"
         "99999999999999999999999",
         "GeneratedTokens"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct ek_trace t;
        struct ek_err err = EK_ERR_INIT;
        assert_int_equal(parse(&t, bad[i].text, &err), EK_EFORMAT);
        if (!strstr(err.text, bad[i].says))
            fail_msg("%s: says '%s', not '%s'", bad[i].text, err.text, bad[i].says);
        assert_null(t.rows);
    }
}

static void depth_is_limited(void **state)
{
    (void)state;
    struct ek_trace t;
    assert_int_equal(parse(&t, "{\"a\":[[[[[[[[[[1]]]]]]]]]]}", NULL), EK_ELIMIT);
}

static void try_prefix(void *arg, const char *text, size_t n)
{
    struct ek_trace t = {0};
    struct ek_err err = EK_ERR_INIT;
    int rc = ek_trace_parse(&t, "t", text, n, &err);
    (void)arg;
    assert_true(rc == 0 || rc == EK_EFORMAT);
    assert_true(rc == 0 ? t.n > 0 : err.text[0] != 0);
    ek_trace_release(&t);
}

static void every_truncation_is_read_or_refused(void **state)
{
    (void)state;
    ek_each_prefix(mooncake, strlen(mooncake), try_prefix, NULL);
    ek_each_prefix(azure, strlen(azure), try_prefix, NULL);
}

static void parse_survives_any_failed_allocation(void **state)
{
    (void)state;
    static const char *const texts[] = {
        mooncake, azure,
        "{\"timestamp\":9,\"input_length\":1,\"output_length\":1}\n"
        "{\"timestamp\":2,\"input_length\":2,\"output_length\":1}\n"};
    for (size_t i = 0; i < 3; i++) {
        EK_EACH_FAILURE (k) {
            struct ek_trace t = {0};
            int rc = ek_trace_parse(&t, "t", texts[i], strlen(texts[i]), NULL);
            ek_assert_rc(rc);
            ek_trace_release(&t);
        }
    }
}

static void a_missing_file_is_named(void **state)
{
    (void)state;
    struct ek_trace t = {0};
    struct ek_err err = EK_ERR_INIT;
    assert_int_equal(ek_trace_read(&t, "/nowhere/t.csv", &err), EK_ENOENT);
    assert_non_null(strstr(err.text, "/nowhere/t.csv"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mooncake_lines_become_rows_with_their_blocks),
        cmocka_unit_test(azure_lines_become_rows_at_their_times),
        cmocka_unit_test(leap_days_count),
        cmocka_unit_test(rows_out_of_order_are_sorted_and_equal_times_keep_their_order),
        cmocka_unit_test(bad_lines_are_refused_with_file_and_line),
        cmocka_unit_test(depth_is_limited),
        cmocka_unit_test(every_truncation_is_read_or_refused),
        cmocka_unit_test(parse_survives_any_failed_allocation),
        cmocka_unit_test(a_missing_file_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
