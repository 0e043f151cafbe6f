/* test_events_pack.c - the mapped file: what goes in comes out, and nothing else does. */
#include "base/file.h"
#include "data/events_pack.h"
#include "eventskit.h"
#include "testkit.h"

#include <unistd.h>

static const char text[] = "user_id:token\titem_id:token\trating:float\t"
                           "timestamp:float\tgenre:token\n"
                           "b\t10\t3\t20\tx\na\t11\t4.5\t7\ty\nb\t12\t-1\t10\tx\n";

static void make(struct ek_events *e)
{
    static const struct ek_events_options plain;
    assert_int_equal(
        ek_events_parse(e, NULL, "t.inter", text, sizeof text - 1, &plain, NULL), 0);
}

static void temporary(char path[64])
{
    snprintf(path, 64, "/tmp/ek_pack_%ld.pack", (long)getpid());
}

/* The log's file in memory; free() it. */
static char *packed(size_t *n)
{
    char path[64];
    struct ek_events e;
    struct ek_file f = {0};
    uint64_t bytes = 0;
    temporary(path);
    make(&e);
    assert_int_equal(ek_events_pack_write(&e, path, &bytes, NULL), 0);
    ek_events_release(&e);
    assert_int_equal(ek_file_open(&f, path, NULL), 0);
    assert_true(f.size == bytes);
    char *copy = ek_exact_copy(f.data, f.size);
    *n = f.size;
    ek_file_close(&f);
    unlink(path);
    return copy;
}

static void what_goes_in_comes_out(void **state)
{
    (void)state;
    char path[64], before[600], after[600];
    struct ek_events e;
    temporary(path);
    make(&e);
    show_events(before, sizeof before, &e);
    assert_int_equal(ek_events_pack_write(&e, path, NULL, NULL), 0);
    ek_events_release(&e);
    assert_int_equal(ek_events_pack_open(&e, path, NULL), 0);
    check_events(&e);
    show_events(after, sizeof after, &e);
    assert_string_equal(after, before);
    assert_string_equal(e.source, "t.inter (recbole)");
    assert_string_equal(e.columns[1].name, "genre");
    assert_ptr_equal(ek_events_column(&e, "rating"), &e.columns[0]);
    assert_null(ek_events_column(&e, "ratin"));
    ek_events_release(&e);
    unlink(path);
}

static void cut(void *arg, const char *p, size_t n)
{
    struct ek_events e = {0};
    struct ek_err err = EK_ERR_INIT;
    int rc = ek_events_pack_parse(&e, "p", p, n, &err);
    assert_int_equal(rc, n == *(size_t *)arg ? 0 : EK_EFORMAT);
    assert_true(rc == 0 || !strncmp(err.text, "p: ", 3));
    ek_events_release(&e);
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    size_t n;
    char *p = packed(&n);
    ek_each_prefix(p, n, cut, &n);
    free(p);
}

static void every_flipped_bit_that_means_something_is_found(void **state)
{
    (void)state;
    size_t n;
    char *p = packed(&n);
    size_t n_unseen = 0;
    for (size_t i = 0; i < n; i++) {
        struct ek_events e = {0};
        p[i] = (char)(p[i] ^ 1 << i % 8);
        int rc = ek_events_pack_parse(&e, "p", p, n, NULL);
        assert_true(rc == 0 || rc == EK_EFORMAT || rc == EK_EUNSUP);
        n_unseen += rc == 0;
        if (!rc)
            check_events(&e);
        ek_events_release(&e);
        p[i] = (char)(p[i] ^ 1 << i % 8);
    }
    /* The gaps between sections hold nothing: up to 63 bytes before each. */
    assert_true(n_unseen < n / 2);
    free(p);
}

static void a_newer_file_is_named_as_such(void **state)
{
    (void)state;
    size_t n;
    char *p = packed(&n);
    struct ek_events e = {0};
    struct ek_err err = EK_ERR_INIT;
    p[8] = EK_EVENTS_PACK_VERSION + 1;
    assert_int_equal(ek_events_pack_parse(&e, "p", p, n, &err), EK_EUNSUP);
    assert_non_null(strstr(err.text, "format 2: this keel reads up to 1"));
    free(p);
}

static void another_file_is_no_pack(void **state)
{
    (void)state;
    struct ek_events e = {0};
    struct ek_err err = EK_ERR_INIT;
    char *p = ek_exact_copy(text, sizeof text);
    assert_int_equal(ek_events_pack_parse(&e, "p", p, sizeof text, &err), EK_EFORMAT);
    assert_non_null(strstr(err.text, "is no packed log"));
    assert_int_equal(ek_events_pack_parse(&e, "p", "", 0, &err), EK_EFORMAT);
    assert_int_equal(ek_events_pack_open(&e, "/nonexistent/x", &err), EK_ENOENT);
    free(p);
}

static void a_pack_that_cannot_be_written_leaves_nothing(void **state)
{
    (void)state;
    struct ek_events e;
    struct ek_err err = EK_ERR_INIT;
    make(&e);
    assert_int_equal(ek_events_pack_write(&e, "/nonexistent/x.pack", NULL, &err),
                     EK_ENOENT);
    assert_non_null(strstr(err.text, "/nonexistent/x.pack"));
    ek_events_release(&e);
}

static void any_failed_allocation_is_only_that(void **state)
{
    (void)state;
    size_t n;
    char *p = packed(&n);
    EK_EACH_FAILURE (k) {
        struct ek_events e = {0};
        ek_assert_rc(ek_events_pack_parse(&e, "p", p, n, NULL));
        ek_events_release(&e);
    }
    free(p);
}

/* Of a log that no reader made: the names are the caller's. */
static void expect_refusal(const struct ek_events *e, const char *why)
{
    char path[64];
    struct ek_events got = {0};
    struct ek_err err = EK_ERR_INIT;
    temporary(path);
    assert_int_equal(ek_events_pack_write(e, path, NULL, NULL), 0);
    assert_int_equal(ek_events_pack_open(&got, path, &err), EK_EFORMAT);
    if (!strstr(err.text, why))
        fail_msg("%s", err.text);
    unlink(path);
}

static void names_are_each_there_once_and_of_a_reader_s_length(void **state)
{
    (void)state;
    static char bytes[EK_EVENTS_NAME_MAX + 8];
    int64_t offsets[] = {0, 2, 4, 6};
    struct ek_events e;
    make(&e);
    struct ek_names items = e.item_names;
    memset(bytes, 'x', sizeof bytes);
    memcpy(bytes, "1011", 4);
    e.item_names.bytes = bytes;
    e.item_names.offsets = offsets;
    offsets[3] = 6 + EK_EVENTS_NAME_MAX - 2 + 1;
    expect_refusal(&e, "name 2 is over 4096 bytes");
    memcpy(bytes, "101110", 6);
    offsets[3] = 6;
    expect_refusal(&e, "name 2 is there before: '10'");
    e.item_names = items;

    struct ek_column columns[2] = {e.columns[0], e.columns[1]};
    columns[1].name = columns[0].name;
    e.columns = columns;
    expect_refusal(&e, "column 'rating': its name is too long or there before");
    ek_events_release(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_goes_in_comes_out),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(every_flipped_bit_that_means_something_is_found),
        cmocka_unit_test(a_newer_file_is_named_as_such),
        cmocka_unit_test(another_file_is_no_pack),
        cmocka_unit_test(a_pack_that_cannot_be_written_leaves_nothing),
        cmocka_unit_test(names_are_each_there_once_and_of_a_reader_s_length),
        cmocka_unit_test(any_failed_allocation_is_only_that),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
