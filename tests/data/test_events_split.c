/* test_events_split.c - which rows train, validate and test. */
#include "data/events_split.h"
#include "eventskit.h"
#include "testkit.h"

static void make(struct ek_events *e, const char *name, const char *text)
{
    static const struct ek_events_options plain;
    assert_int_equal(ek_events_parse(e, NULL, name, text, strlen(text), &plain, NULL),
                     0);
}

static void check_parts(const struct ek_split *s, const struct ek_events *e)
{
    for (int64_t u = 0; u < e->n_users; u++) {
        assert_true(e->offsets[u] <= s->train_end[u]);
        assert_true(s->train_end[u] <= s->valid_end[u]);
        assert_true(s->valid_end[u] <= e->offsets[u + 1]);
    }
    assert_true(s->n_train + s->n_valid + s->n_test == e->n);
}

static void the_last_row_tests_and_the_one_before_validates(void **state)
{
    (void)state;
    struct ek_events e;
    struct ek_split s;
    char text[400];
    make(&e, "t.txt", "1 1 2 3 4 5\n2 1\n3 1 2\n4 1 2 3\n");
    assert_int_equal(ek_split_leave_one_out(&s, &e, NULL), 0);
    check_parts(&s, &e);
    assert_true(s.train_end[0] == 3 && s.valid_end[0] == 4);
    assert_true(s.train_end[1] == 6 && s.valid_end[1] == 6);
    assert_true(s.train_end[2] == 8 && s.valid_end[2] == 8);
    assert_true(s.train_end[3] == 9 && s.valid_end[3] == 10);
    assert_true(s.n_train == 7 && s.n_valid == 2 && s.n_test == 2 && s.n_short == 2);
    assert_non_null(
        strstr(ek_split_text(text, &s), "2 users under 3 events only train"));
    assert_non_null(strstr(text, "one time keep the order of the file"));
    ek_split_release(&s);
    ek_events_release(&e);
}

static const char timed[] = "user_id,item_id,timestamp\n"
                            "u,a,1\nu,b,2\nu,c,6\nu,d,9\nv,a,6\nv,b,7\nw,a,1\nw,b,3\n"
                            "w,c,4\nx,a,9\n";

static void one_moment_cuts_all_users_and_ties_stay_together(void **state)
{
    (void)state;
    struct ek_events e;
    struct ek_split s;
    char text[400];
    make(&e, "t.csv", timed);
    /* The latest 2 of 10 rows test: those at 9. The 2 before them validate: one at 7,
     * and at 6, where there are two. */
    assert_int_equal(ek_split_by_time(&s, &e, 0.2, 0.2, NULL), 0);
    check_parts(&s, &e);
    assert_true(s.test_from == 9000000 && s.valid_from == 6000000);
    assert_true(s.n_train == 5 && s.n_valid == 3 && s.n_test == 2);
    assert_true(s.train_end[0] == 2 && s.valid_end[0] == 3); /* u */
    assert_true(s.train_end[1] == 4 && s.valid_end[1] == 6); /* v: nothing trains */
    assert_true(s.train_end[2] == 9 && s.valid_end[2] == 9); /* w: all trains */
    assert_true(s.train_end[3] == 9 && s.valid_end[3] == 9); /* x: all tests */
    assert_non_null(
        strstr(ek_split_text(text, &s), "by time: validation from 6000000"));
    ek_split_release(&s);
    assert_int_equal(ek_split_by_time(&s, &e, 0.0, 0.0, NULL), 0);
    assert_true(s.n_train == 10);
    ek_split_release(&s);
    ek_events_release(&e);
}

static void what_cannot_be_split_is_told(void **state)
{
    (void)state;
    struct ek_events e;
    struct ek_split s = {0};
    struct ek_err err = EK_ERR_INIT;
    make(&e, "t.txt", "1 2 3\n");
    assert_int_equal(ek_split_by_time(&s, &e, 0.1, 0.1, &err), EK_EINVAL);
    assert_non_null(strstr(err.text, "t.txt (s3rec): has no times"));
    ek_events_release(&e);
    make(&e, "t.csv", timed);
    assert_int_equal(ek_split_by_time(&s, &e, 0.6, 0.4, &err), EK_EINVAL);
    assert_int_equal(ek_split_by_time(&s, &e, -0.1, 0.4, &err), EK_EINVAL);
    EK_EACH_FAILURE (k) {
        ek_assert_rc(ek_split_by_time(&s, &e, 0.1, 0.1, NULL));
        ek_split_release(&s);
    }
    ek_events_release(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_row_tests_and_the_one_before_validates),
        cmocka_unit_test(one_moment_cuts_all_users_and_ties_stay_together),
        cmocka_unit_test(what_cannot_be_split_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
