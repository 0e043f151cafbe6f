/* test_events_s3rec.c - logs of one user a line. */
#include "eventskit.h"
#include "testkit.h"

static const struct ek_events_options defaults;

static int read_it(char out[512], const char *text)
{
    return read_text(out, 512, "t.txt", text, strlen(text), &defaults);
}

static void lines_become_users_with_their_names(void **state)
{
    (void)state;
    char got[512];
    assert_int_equal(read_it(got, "1 5 4 5\n\n17 4\r\n2147483647 \t2147483647 1 "), 0);
    assert_string_equal(got, "1: 5 4 5; 17: 4; 2147483647: 2147483647 1; ");
}

static void bad_lines_are_refused_at_their_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "t.txt: holds no event: expected lines of USER ITEM ITEM ..."},
        {" \n\t\n", "t.txt: holds no event"},
        {"1 2\n3\n", "t.txt:2:2: the user has no item: expected USER ITEM ITEM ..."},
        {"1 2\n0 3", "t.txt:2:1: user '0': expected a whole number, 1 to 2147483647"},
        {"1 2 0", "t.txt:1:5: item '0': expected a whole number, 1 to 2147483647"},
        {"1 2 -3", "t.txt:1:5: item '-3': expected a whole number, 1 to 2147483647"},
        {"1 2147483648", "t.txt:1:3: item '2147483648': expected a whole number"},
        {"1 99999999999999999999999", "t.txt:1:3: item '99999999999999999999999'"},
        {"ann 1", "t.txt:1:1: user 'ann': expected a whole number"},
        {"1 2,3", "t.txt:1:3: item '2,3'"},
        {"1 02", "t.txt:1:3: item '02'"},
        {"1 2.0", "t.txt:1:3: item '2.0'"},
        {"1 nan", "t.txt:1:3: item 'nan'"},
        {"1 2\n5 6\n1 3\n", "t.txt:3:1: user '1' had a line before: expected one line "
                            "a user, with all items"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char got[512];
        assert_int_equal(read_it(got, bad[i].text), EK_EFORMAT);
        assert_memory_equal(got, bad[i].says, strlen(bad[i].says));
    }
}

static void a_name_that_tells_no_format_is_refused(void **state)
{
    (void)state;
    char got[512];
    assert_int_equal(read_text(got, sizeof got, "t.dat", "1 2", 3, &defaults),
                     EK_EINVAL);
    assert_non_null(strstr(got, "expected .txt, .inter, .csv or .tsv"));
    assert_int_equal(read_text(got, sizeof got, "t.txt.gz", "1 2", 3, &defaults), 0);
    assert_int_equal(read_text(got, sizeof got, ".txt", "1 2", 3, &defaults),
                     EK_EINVAL);
}

static void a_user_of_a_million_items_is_read(void **state)
{
    (void)state;
    size_t n = 8 << 20, at = 0;
    char *text = malloc(n);
    assert_non_null(text);
    at += (size_t)snprintf(text, n, "1");
    for (int i = 1; i <= 1000000; i++)
        at += (size_t)snprintf(text + at, n - at, " %d", i % 1000 + 1);
    at += (size_t)snprintf(text + at, n - at, "\n2 7\n");
    struct ek_events e;
    struct ek_events_told told;
    assert_int_equal(ek_events_parse(&e, &told, "t.txt", text, at, &defaults, NULL), 0);
    check_events(&e);
    assert_true(e.n == 1000001 && e.n_users == 2 && e.n_items == 1000);
    assert_true(e.offsets[1] == 1000000 && told.n_lines == 2 && told.n_bytes == at);
    ek_events_release(&e);
    free(text);
}

static void every_beginning_is_read_or_refused(void *arg, const char *text, size_t n)
{
    (void)arg;
    char got[512];
    int rc = read_text(got, sizeof got, "t.txt", text, n, &defaults);
    assert_true(rc == 0 || rc == EK_EFORMAT);
}

static void truncations_are_read_or_refused(void **state)
{
    (void)state;
    static const char text[] = "1 5 4 5\n17 4\r\n2147483647 \t2147483647 1 \n9 9";
    ek_each_prefix(text, sizeof text - 1, every_beginning_is_read_or_refused, NULL);
}

static void any_failed_allocation_is_only_that(void **state)
{
    (void)state;
    static const char text[] = "1 5 4 5\n17 4\n";
    EK_EACH_FAILURE (k) {
        struct ek_events e = {0};
        ek_assert_rc(
            ek_events_parse(&e, NULL, "t.txt", text, sizeof text - 1, &defaults, NULL));
        ek_events_release(&e);
    }
}

static bool stop(void *arg, int64_t done, int64_t total)
{
    (void)done;
    (void)total;
    ++*(int *)arg;
    return false;
}

static void reading_ends_when_it_is_told_to(void **state)
{
    (void)state;
    int n_calls = 0;
    struct ek_events_options o = {.on_progress = stop, .arg = &n_calls};
    char got[512];
    assert_int_equal(read_text(got, sizeof got, "t.txt", "1 2\n3 4\n", 8, &o),
                     EK_ECANCELED);
    assert_int_equal(n_calls, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_become_users_with_their_names),
        cmocka_unit_test(bad_lines_are_refused_at_their_place),
        cmocka_unit_test(a_name_that_tells_no_format_is_refused),
        cmocka_unit_test(a_user_of_a_million_items_is_read),
        cmocka_unit_test(truncations_are_read_or_refused),
        cmocka_unit_test(any_failed_allocation_is_only_that),
        cmocka_unit_test(reading_ends_when_it_is_told_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
