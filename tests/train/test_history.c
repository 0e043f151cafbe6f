/* test_history.c - a run's log as curves: what is a point, what is dropped, what is an
 * error. */
#include "testkit.h"
#include "train/history.h"

#include <stdio.h>

static const char log_text[] =
    "{\"kind\": \"train\", \"step\": 10, \"epoch\": 0, \"loss\": 6.5, \"mfu\": null}\n"
    "{\"kind\": \"train\", \"step\": 20, \"epoch\": 0, \"loss\": 5, \"word\": \"x\"}\n"
    "{\"kind\": \"valid\", \"step\": 20, \"filtered\": {\"ndcg@10\": 0.25}, "
    "\"unfiltered\": {\"ndcg@10\": 0.125}, \"is_best\": true, \"value\": 0.25}\n"
    "{\"step\": 20, \"valid\": {\"auc\": 0.5}}\n"
    "\n"
    "{\"kind\": \"train\", \"step\": 30, \"epoch\": 1, \"loss\": 4.5}\n"
    "{\"kind\": \"end\", \"step\": 30, \"test\": {\"ndcg@10\": 0.3, \"of\": {}}, "
    "\"valid\": {\"ndcg@10\": 0.2}}\n";

static int parse(struct ek_history *h, const char *text, struct ek_err *err)
{
    return ek_history_parse(h, text, strlen(text), "log.jsonl", err);
}

static void expect(const struct ek_history *h, const char *name, size_t n, int64_t last,
                   double value)
{
    const struct ek_history_curve *c = ek_history_find(h, name);
    if (!c)
        fail_msg("no curve %s", name);
    assert_int_equal(c->n, n);
    assert_int_equal(c->points[n - 1].step, last);
    assert_true(c->points[n - 1].value == value);
}

static void each_number_of_a_line_is_a_point_by_its_path(void **state)
{
    (void)state;
    struct ek_err err = EK_ERR_INIT;
    struct ek_history h;
    assert_int_equal(parse(&h, log_text, &err), 0);
    expect(&h, "loss", 3, 30, 4.5);
    expect(&h, "epoch", 3, 30, 1);
    expect(&h, "valid/ndcg@10", 1, 20, 0.25);
    expect(&h, "valid/unfiltered/ndcg@10", 1, 20, 0.125);
    expect(&h, "valid/auc", 1, 20, 0.5);
    assert_null(ek_history_find(&h, "mfu"));
    assert_null(ek_history_find(&h, "word"));
    assert_null(ek_history_find(&h, "step"));
    assert_int_equal(h.n_finals, 1);
    assert_string_equal(h.finals[0].name, "ndcg@10");
    assert_true(h.finals[0].value == 0.3);
    ek_history_release(&h);
}

static void steps_that_were_trained_again_replace_those_before(void **state)
{
    (void)state;
    struct ek_history h;
    assert_int_equal(parse(&h,
                           "{\"step\": 1, \"loss\": 4}\n{\"step\": 2, \"loss\": 3}\n"
                           "{\"step\": 3, \"loss\": 2}\n{\"step\": 2, \"loss\": 9}\n",
                           NULL),
                     0);
    expect(&h, "loss", 2, 2, 9);
    assert_int_equal(h.curves[0].points[0].step, 1);
    ek_history_release(&h);
}

static void a_line_that_is_being_written_is_passed_over(void **state)
{
    (void)state;
    struct ek_err err = EK_ERR_INIT;
    size_t end = sizeof log_text - 1;
    for (size_t n = 0; n < end; n++) {
        struct ek_history h;
        char *text = ek_exact_copy(log_text, n);
        assert_int_equal(ek_history_parse(&h, text, n, "log.jsonl", &err), 0);
        const struct ek_history_curve *c = ek_history_find(&h, "loss");
        size_t want = 0; /* the third ends the line before the last */
        for (size_t i = 0; i < n; i++)
            want += log_text[i] == '\n';
        want = want < 3 ? want : want < 6 ? 2 : 3;
        assert_int_equal(c ? c->n : 0, want);
        ek_history_release(&h);
        free(text);
    }
}

static void what_is_no_log_names_its_line(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{\"step\": 1}\n[1]\n", "{\"step\": 1}\n{\"a\n", "{\"step\": 1}\n7\n",
        "\n\x80\n", "{}\n{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{}}}}}}\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct ek_err err = EK_ERR_INIT;
        struct ek_history h;
        int rc = parse(&h, bad[i], &err);
        assert_true(rc == EK_EFORMAT || rc == EK_ELIMIT);
        assert_non_null(strstr(err.text, "log.jsonl:2: "));
        assert_int_equal(h.n_curves, 0);
    }
}

static void curves_and_names_have_a_ceiling(void **state)
{
    (void)state;
    struct ek_history h;
    char line[20000];
    int n = snprintf(line, sizeof line, "{\"step\": 1");
    for (int i = 0; i < EK_HISTORY_CURVES + 9; i++)
        n += snprintf(line + n, sizeof line - (size_t)n, ", \"c%d\": %d", i, i);
    n += snprintf(line + n, sizeof line - (size_t)n, ", \"%070d\": 1}\n", 0);
    assert_int_equal(ek_history_parse(&h, line, (size_t)n, "log", NULL), 0);
    assert_int_equal(h.n_curves, EK_HISTORY_CURVES);
    ek_history_release(&h);
}

static void any_failed_allocation_releases_everything(void **state)
{
    (void)state;
    EK_EACH_FAILURE (k) {
        struct ek_history h;
        int rc = parse(&h, log_text, NULL);
        ek_assert_rc(rc);
        ek_history_release(&h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_number_of_a_line_is_a_point_by_its_path),
        cmocka_unit_test(steps_that_were_trained_again_replace_those_before),
        cmocka_unit_test(a_line_that_is_being_written_is_passed_over),
        cmocka_unit_test(what_is_no_log_names_its_line),
        cmocka_unit_test(curves_and_names_have_a_ceiling),
        cmocka_unit_test(any_failed_allocation_releases_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
