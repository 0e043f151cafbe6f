/* The loop: faults, early stopping, what is best, the test part, MFU. */
#include "trainkit.h"

#include <math.h>
#include <unistd.h>

static void a_loss_that_is_not_finite_stops_and_names_the_sample(void **state)
{
    (void)state;
    struct kit k;
    kit_open(&k, "nan",
             "train: {batch: 16}\nmodel.loss: full\n"
             "checkpoint.every: 1\neval.every: 0\n");
    kit_steps(&k, 2);
    struct ek_params *p = ek_train_params(k.t);
    ek_params_get(p, ek_params_find(p, "items"))->value[16 * 9 + 3] = NAN; /* item 9 */
    kit_run(&k, EK_EINVAL);
    if (!strstr(k.err.text, "the loss is nan: operation 'lookup', value "))
        fail_msg("%s", k.err.text);
    assert_non_null(strstr(k.err.text, "column 3 is nan; user '"));
    assert_non_null(strstr(k.err.text, "event "));
    size_t n;
    const char *name = ek_names_get(&k.data.events.item_names, 9, &n);
    char want[32];
    snprintf(want, sizeof want, ", item '%.*s'", (int)n, name);
    assert_non_null(strstr(k.err.text, want));
    kit_close(&k);
}

/* A loss is looked at before a step and parameters are behind it: of both, the first that
 * is not finite ends the run, and what is on disk is. */
static void a_run_that_blows_up_keeps_its_last_checkpoint(void **state)
{
    static const char text[] = "train: {batch: 16, lr: 1e3, weight_decay: 900}\n"
                               "checkpoint.every: 1\neval.every: 0\n";
    (void)state;
    struct kit k;
    kit_open(&k, "blows", text);
    kit_run(&k, EK_EINVAL);
    assert_non_null(strstr(k.err.text, "step "));
    int64_t steps = ek_train_steps(k.t);
    kit_close(&k);
    kit_open(&k, "blows", text);
    assert_int_equal(ek_train_resume(k.t, &k.err), 0);
    assert_in_range(k.t->progress.steps, steps - 1, steps);
    assert_int_equal(ek_train_check_params(k.t, &k.err), 0);
    kit_close(&k);
}

static void a_parameter_that_is_not_finite_replaces_no_checkpoint(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static const char text[] =
        "train: {batch: 16, max_steps: 3}\ncheckpoint.every: 1\neval.every: 0\n";
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct kit k;
        struct ek_buf before, after;
        kit_open(&k, "unseen", text);
        k.stop_at = 2;
        kit_run(&k, EK_ECANCELED);
        kit_close(&k);
        kit_read(&before, "unseen", "checkpoints/last/model.safetensors");
        kit_open(&k, "unseen", text);
        assert_int_equal(ek_train_resume(k.t, &k.err), 0);
        struct ek_params *p = ek_train_params(k.t);
        ek_params_get(p, ek_params_find(p, "positions"))->value[16 * 11 + 15] = bad[i];
        k.stop_at = 2; /* behind a step, or told to before one: the checkpoint stays */
        kit_run(&k, EK_EINVAL);
        assert_int_equal(ek_train_check_params(k.t, &k.err), EK_EINVAL);
        assert_non_null(strstr(k.err.text, ": parameter '"));
        kit_close(&k);
        kit_read(&after, "unseen", "checkpoints/last/model.safetensors");
        assert_int_equal(before.len, after.len);
        assert_memory_equal(before.data, after.data, before.len);
        ek_buf_release(&before);
        ek_buf_release(&after);
    }
}

static void patience_ends_a_run_that_gets_no_better(void **state)
{
    (void)state;
    struct kit k;
    kit_open(&k, "patience",
             "train: {batch: 16, lr: 0, items_lr: 0, epochs: 50}\n"
             "eval: {every: 3, unit: steps, patience: 2}\n");
    kit_run(&k, 0);
    assert_int_equal(ek_train_steps(k.t), 9); /* one best and two that are no better */
    assert_int_equal(k.t->progress.best_step, 3);
    assert_int_equal(kit_count(k.lines, "\"stopped_early\": true"), 1);
    assert_int_equal(kit_count(k.lines, "\"is_best\": true"), 1);
    kit_close(&k);
}

static void the_test_part_is_ranked_once_with_the_best(void **state)
{
    (void)state;
    struct kit k;
    kit_open(&k, "learns",
             "train: {batch: 16, lr: 0.01, epochs: 12}\n"
             "eval: {every: 2}\nmodel.dropout: 0.1\n");
    kit_run(&k, 0);
    assert_int_equal(kit_count(k.lines, "\"test\": {\"recall@5\""), 1);
    assert_int_equal(kit_count(k.lines, "\"test_unfiltered\": {"), 1);
    const char *last = strstr(k.lines, "{\"kind\": \"end\"");
    assert_non_null(last);
    assert_null(strchr(strchr(last, '\n') + 1, '{')); /* the last line */
    assert_int_equal(kit_count(k.lines, "{\"kind\": \"valid\""), 6);
    /* 10 of 50 items by chance: the planted successors were learnt */
    assert_true(k.t->test.filtered.recall[1] > 0.5);
    assert_true(k.t->valid.filtered.ndcg[1] == k.t->progress.best);
    struct ek_train_mfu m;
    ek_train_mfu(&m, k.t);
    assert_true(m.local > 0 && m.end_to_end > 0 && m.ratio < 1.01);
    struct ek_buf report;
    ek_buf_init(&report, 1 << 16);
    assert_int_equal(ek_train_report(&report, k.t), 0);
    assert_non_null(strstr(report.data, "MFU "));
    ek_buf_release(&report);
    kit_close(&k);
}

static void a_click_head_is_trained_and_measured(void **state)
{
    (void)state;
    struct kit k;
    kit_open(&k, "click",
             "model: {kind: gem, click_weight: 1}\ndata.click: click\n"
             "train: {batch: 32, epochs: 3, lr: 0.01}\n");
    kit_run(&k, 0);
    assert_true(isfinite(k.t->test.normalised_entropy));
    assert_int_equal(kit_count(k.lines, "\"test_normalised_entropy\": "), 1);
    kit_close(&k);
}

static const char *value_of(const char *line, const char *key, double *v)
{
    const char *at = strstr(line, key);
    if (at)
        *v = strtod(at + strlen(key), NULL);
    return at;
}

/* The run's best step is the one whose line has the least entropy, or the largest area. */
static void clicks_can_say_what_is_best(void **state)
{
    static const struct {
        const char *metric, *key;
        double sign;
    } cases[] = {{"normalised_entropy", "\"normalised_entropy\": ", -1},
                 {"auc", "\"auc\": ", 1}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kit k;
        char text[256];
        snprintf(text, sizeof text,
                 "model: {kind: gem, click_weight: 1}\ndata.click: click\n"
                 "train: {batch: 32, epochs: 6, lr: 0.01}\n"
                 "eval: {every: 1, metric: %s}\n",
                 cases[i].metric);
        kit_open(&k, cases[i].metric, text);
        kit_run(&k, 0);
        double best = (double)NAN, step = 0, best_step = 0, value = 0;
        int n = 0;
        for (const char *line = strstr(k.lines, "{\"kind\": \"valid\""); line;
             line = strstr(line + 1, "{\"kind\": \"valid\""), n++) {
            assert_non_null(value_of(line, "\"step\": ", &step));
            assert_non_null(value_of(line, cases[i].key, &value));
            if (n == 0 || cases[i].sign * value > cases[i].sign * best) {
                best = value;
                best_step = step;
            }
        }
        assert_int_equal(n, 6);
        assert_int_equal(k.t->progress.best_step, (int64_t)best_step);
        assert_true(fabs(k.t->progress.best - best) < 1e-6);
        assert_int_equal(kit_count(k.lines, "\"metric\": \"auc\""), i == 1 ? 6 : 0);
        double tested = i ? k.t->valid.auc : k.t->valid.normalised_entropy;
        assert_true(tested == k.t->progress.best);
        kit_close(&k);
    }
}

static void clicks_of_one_kind_are_refused_before_training(void **state)
{
    (void)state;
    struct kit k;
    struct ek_train *t = NULL;
    kit_open(&k, "onekind",
             "model: {kind: sasrec, click_weight: 1}\ndata.click: click\n"
             "train: {batch: 32, epochs: 2}\neval: {every: 1, metric: auc}\n");
    struct ek_events *e = &k.data.events;
    const struct ek_column *old = e->columns;
    struct ek_column columns[8];
    float clicks[4000];
    assert_true(e->n <= 4000 && e->n_columns <= 8);
    memcpy(clicks, old[k.data.click].numbers, (size_t)e->n * sizeof *clicks);
    memcpy(columns, old, (size_t)e->n_columns * sizeof *old);
    columns[k.data.click].numbers = clicks;
    e->columns = columns;
    for (int kind = 0; kind < 2; kind++) { /* the other rows have both */
        for (int64_t u = 0; u < e->n_users; u++)
            for (int64_t i = k.data.split.train_end[u]; i < k.data.split.valid_end[u];
                 i++)
                clicks[i] = (float)kind;
        k.err = (struct ek_err)EK_ERR_INIT;
        assert_int_equal(ek_train_new(&t, &k.c, &k.data, NULL, &k.err), EK_EINVAL);
        assert_null(t);
        assert_non_null(strstr(k.err.text, "eval.metric: auc needs clicks and others"));
        assert_non_null(strstr(k.err.text, kind ? "are 1 in" : "are 0 in"));
        k.c.eval.metric = EK_TRAIN_ENTROPY;
        assert_int_equal(ek_train_new(&t, &k.c, &k.data, NULL, &k.err), EK_EINVAL);
        k.c.eval.metric = 0; /* a ranking needs no kinds */
        assert_int_equal(ek_train_new(&t, &k.c, &k.data, NULL, &k.err), 0);
        ek_train_free(t);
        t = NULL;
        k.c.eval.metric = EK_TRAIN_AUC;
    }
    e->columns = old;
    kit_close(&k);
}

static void explain_lists_every_operation(void **state)
{
    (void)state;
    struct kit k;
    struct ek_buf out;
    ek_buf_init(&out, 1 << 18);
    kit_open(&k, "explain", "model.blocks: 2\ntrain.batch: 64\n");
    assert_int_equal(ek_train_explain(&out, k.t, &k.err), 0);
    assert_non_null(strstr(out.data, "block1"));
    assert_non_null(strstr(out.data, "attention"));
    assert_non_null(strstr(out.data, "backward"));
    assert_non_null(strstr(out.data, "memory "));
    assert_non_null(strstr(out.data, " planned with "));
    /* at least parameters, gradients and moments beside the arena */
    int64_t plan = ek_train_planned_bytes(k.t), least = 0;
    for (int i = 0; i < ek_params_count(k.t->params); i++)
        least += ek_params_get(k.t->params, i)->rows;
    assert_true(plan > (int64_t)ek_graph_arena_bytes(ek_rec_graph(k.t->model)) + least);
    ek_buf_release(&out);
    kit_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loss_that_is_not_finite_stops_and_names_the_sample),
        cmocka_unit_test(a_run_that_blows_up_keeps_its_last_checkpoint),
        cmocka_unit_test(a_parameter_that_is_not_finite_replaces_no_checkpoint),
        cmocka_unit_test(patience_ends_a_run_that_gets_no_better),
        cmocka_unit_test(the_test_part_is_ranked_once_with_the_best),
        cmocka_unit_test(a_click_head_is_trained_and_measured),
        cmocka_unit_test(clicks_can_say_what_is_best),
        cmocka_unit_test(clicks_of_one_kind_are_refused_before_training),
        cmocka_unit_test(explain_lists_every_operation),
    };
    return cmocka_run_group_tests_name("train_run", tests, kit_make, kit_remove);
}
