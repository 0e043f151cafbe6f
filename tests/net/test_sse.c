/* Server-sent events as bytes. */
#include "net/sse.h"
#include "testkit.h"

static void check(const char *data, size_t n, const char *want)
{
    struct ek_buf b;
    ek_buf_init(&b, 1000);
    assert_int_equal(ek_sse_add(&b, data, n), 0);
    assert_string_equal(b.data, want);
    ek_buf_release(&b);
}

static void each_line_of_the_data_is_marked(void **state)
{
    (void)state;
    check("{\"a\":1}", 7, "data: {\"a\":1}\n\n");
    check("", 0, "data: \n\n");
    check("a\nb\r\nc\rd", 8, "data: a\ndata: b\ndata: c\ndata: d\n\n");
    check("a\n", 2, "data: a\ndata: \n\n");
    check("a\r", 2, "data: a\ndata: \n\n");
    check("\r\r\n", 3, "data: \ndata: \ndata: \n\n");
}

static void a_comment_is_a_line_with_a_colon(void **state)
{
    struct ek_buf b;
    (void)state;
    ek_buf_init(&b, 1000);
    assert_int_equal(ek_sse_add_comment(&b, "wait"), 0);
    assert_string_equal(b.data, ": wait\n\n");
    ek_buf_release(&b);
}

static void an_event_over_the_ceiling_changes_nothing(void **state)
{
    (void)state;
    for (size_t max = 4; max < 25; max++) {
        struct ek_buf b;
        ek_buf_init(&b, max);
        assert_int_equal(ek_buf_add_str(&b, "keep"), 0);
        int rc = ek_sse_add(&b, "one\ntwo", 7);
        assert_int_equal(rc, max < 4 + 21 ? EK_ELIMIT : 0);
        assert_string_equal(b.data, "keep");
        ek_buf_release(&b);
    }
}

static void a_failed_allocation_changes_nothing(void **state)
{
    (void)state;
    EK_EACH_FAILURE (k) {
        struct ek_buf b;
        static char line[500];
        ek_buf_init(&b, 10000);
        int rc = ek_sse_add(&b, line, sizeof line);
        ek_assert_rc(rc);
        assert_true(rc == 0 || b.len == 0);
        ek_buf_release(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_line_of_the_data_is_marked),
        cmocka_unit_test(a_comment_is_a_line_with_a_colon),
        cmocka_unit_test(an_event_over_the_ceiling_changes_nothing),
        cmocka_unit_test(a_failed_allocation_changes_nothing),
    };
    return cmocka_run_group_tests_name("net/sse", tests, NULL, NULL);
}
