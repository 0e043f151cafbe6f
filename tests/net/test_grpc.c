/* gRPC's framing and words; its streams are tried in check_orca.py and check_grpc.py. */
#include "net/grpc.h"
#include "testkit.h"

#include <stdio.h>

static struct ek_text text(const char *s)
{
    return ek_text_of(s, strlen(s));
}

static const char two[] = "\0\0\0\0\3abc\0\0\0\0\0\0\0\0\0\1z";

/* Everything in pieces of k bytes: "abc", "", "z". */
static void messages_are_the_same_however_they_are_cut(void **state)
{
    (void)state;
    for (size_t k = 1; k < sizeof two; k++) {
        struct ek_grpc_reader r;
        struct ek_text m;
        char said[64] = "";
        ek_grpc_reader_init(&r, 3);
        for (size_t at = 0; at < sizeof two - 1; at += k) {
            size_t n = k < sizeof two - 1 - at ? k : sizeof two - 1 - at;
            int rc = ek_grpc_reader_add(&r, two + at, n);
            assert_int_equal(rc, 0);
            while ((rc = ek_grpc_reader_next(&r, &m)) == 0)
                snprintf(said + strlen(said), 16, "<%.*s>", (int)m.n, m.p);
            assert_int_equal(rc, EK_EAGAIN);
        }
        assert_string_equal(said, "<abc><><z>");
        assert_null(r.buf.data); /* nothing is held between messages */
        ek_grpc_reader_release(&r);
    }
}

static void long_and_compressed_messages_are_refused(void **state)
{
    (void)state;
    struct ek_grpc_reader r;
    struct ek_text m;
    ek_grpc_reader_init(&r, 3);
    assert_int_equal(ek_grpc_reader_add(&r, "\0\0\0\0\4", 5), 0);
    assert_int_equal(ek_grpc_reader_next(&r, &m), EK_ELIMIT);
    ek_grpc_reader_release(&r);
    ek_grpc_reader_init(&r, 3);
    assert_int_equal(ek_grpc_reader_add(&r, "\1", 1), 0);
    assert_int_equal(ek_grpc_reader_next(&r, &m), EK_EUNSUP);
    ek_grpc_reader_release(&r);
    /* A peer's byte 2 is not what the reader itself marks with. */
    ek_grpc_reader_init(&r, 3);
    assert_int_equal(ek_grpc_reader_add(&r, "\2\0\0\0\1z", 6), 0);
    assert_int_equal(ek_grpc_reader_next(&r, &m), EK_EUNSUP);
    ek_grpc_reader_release(&r);
}

static void a_failed_allocation_keeps_what_was_there(void **state)
{
    (void)state;
    EK_EACH_FAILURE (k) {
        struct ek_grpc_reader r;
        ek_grpc_reader_init(&r, 3);
        ek_assert_rc(ek_grpc_reader_add(&r, two, sizeof two - 1));
        ek_grpc_reader_release(&r);
    }
}

static void timeouts_have_units_and_limits(void **state)
{
    (void)state;
    static const struct {
        const char *said;
        int64_t us;
    } cases[] = {{"1H", 3600000000},
                 {"2M", 120000000},
                 {"3S", 3000000},
                 {"4m", 4000},
                 {"5u", 5},
                 {"6000n", 6},
                 {"99999999S", 99999999000000},
                 {"123456789S", INT64_MAX},
                 {"S", INT64_MAX},
                 {"", INT64_MAX},
                 {"1x", INT64_MAX},
                 {"-1S", INT64_MAX}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ek_field f = {text("Grpc-Timeout"), text(cases[i].said)};
        struct ek_head h = {.fields = &f, .n_fields = 1};
        assert_int_equal(ek_grpc_timeout_us(&h), cases[i].us);
    }
}

static void a_call_is_a_post_of_grpc(void **state)
{
    (void)state;
    static const struct {
        const char *method, *type;
        bool is_call;
    } cases[] = {
        {"POST", "application/grpc", true},   {"POST", "application/grpc+proto", true},
        {"POST", "Application/gRPC;x", true}, {"POST", "application/grpc-web", false},
        {"POST", "application/json", false},  {"GET", "application/grpc", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ek_field f = {text("content-type"), text(cases[i].type)};
        struct ek_head h = {
            .method = text(cases[i].method), .fields = &f, .n_fields = 1};
        assert_int_equal(ek_grpc_is_call(&h), cases[i].is_call);
    }
}

static void status_words_are_read_and_messages_escaped(void **state)
{
    (void)state;
    static const struct {
        const char *said;
        int status;
    } cases[] = {{"0", 0}, {"14", 14}, {"", 2}, {"1x", 2}, {"123", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ek_field f[2] = {{text("x"), text("1")},
                                {text("grpc-status"), text(cases[i].said)}};
        assert_int_equal(ek_grpc_status_in(f, 2), cases[i].status);
        assert_int_equal(ek_grpc_status_in(f, 1), -1);
    }
    assert_int_equal(ek_grpc_status_of_http(503), EK_GRPC_UNAVAILABLE);
    assert_int_equal(ek_grpc_status_of_reset(8), EK_GRPC_CANCELLED);
    char out[16];
    ek_grpc_escape(out, sizeof out, "a 100%\n\xc3");
    assert_string_equal(out, "a 100%25%0A%C3");
    ek_grpc_escape(out, 6, "abc%d");
    assert_string_equal(out, "abc");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_the_same_however_they_are_cut),
        cmocka_unit_test(long_and_compressed_messages_are_refused),
        cmocka_unit_test(a_failed_allocation_keeps_what_was_there),
        cmocka_unit_test(timeouts_have_units_and_limits),
        cmocka_unit_test(a_call_is_a_post_of_grpc),
        cmocka_unit_test(status_words_are_read_and_messages_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
