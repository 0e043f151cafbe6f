/* The loop: resume to the bit, stopping, faults, early stopping, the log. */
#include "base/file.h"
#include "trainkit.h"

#include <math.h>
#include <unistd.h>

static void read_file(struct ek_buf *out, const char *run, const char *name)
{
    char path[256];
    struct ek_err err = EK_ERR_INIT;
    snprintf(path, sizeof path, "%s/%s/%s", kit_folder, run, name);
    ek_buf_init(out, 1 << 24);
    if (ek_file_read(out, path, &err))
        fail_msg("%s", err.text);
}

static void assert_same_file(const char *a, const char *b, const char *name)
{
    struct ek_buf x, y;
    read_file(&x, a, name);
    read_file(&y, b, name);
    assert_int_equal(x.len, y.len);
    assert_memory_equal(x.data, y.data, x.len);
    ek_buf_release(&x);
    ek_buf_release(&y);
}

static void expect_run(struct kit *k, int status)
{
    int rc = ek_train_run(k->t, &k->err);
    if (rc != status)
        fail_msg("%d: %s", rc, k->err.text);
}

static int64_t count(const char *text, const char *word)
{
    int64_t n = 0;
    for (const char *p = strstr(text, word); p; p = strstr(p + 1, word))
        n++;
    return n;
}

static const char *const runs[] = {
    "model.kind: sasrec\nmodel.dropout: 0.3\ntrain: {batch: 16, max_steps: 20}\n"
    "eval: {every: 1, patience: 9}\n",
    "model.kind: hstu\nmodel.times: true\ntrain: {batch: 8, micro_batches: 3, "
    "max_steps: 20, items: rowwise_adagrad, clip_norm: 0.5, warmup_steps: 8, "
    "dtype: bf16}\n"
    "eval: {every: 7, unit: steps}\n",
    "model: {kind: gem, similarity: cosine, temperature: 0.1}\ntrain: {max_tokens: 90, "
    "max_steps: 20, ahead: 3, schedule: cosine}\neval.every: 0\n",
};

static void a_resumed_run_ends_with_the_same_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        struct kit a, b, c;
        char whole[16], broken[16];
        snprintf(whole, sizeof whole, "whole%zu", i);
        snprintf(broken, sizeof broken, "broken%zu", i);
        kit_open(&a, whole, runs[i]);
        expect_run(&a, 0);
        assert_int_equal(ek_train_steps(a.t), 20);
        kit_open(&b, broken, runs[i]);
        b.stop_at = 10 - (int64_t)i;
        expect_run(&b, EK_ECANCELED);
        kit_open(&c, broken, runs[i]);
        if (ek_train_resume(c.t, &c.err))
            fail_msg("%s", c.err.text);
        expect_run(&c, 0);
        assert_same_file(whole, broken, "checkpoints/last/model.safetensors");
        assert_same_file(whole, broken, "checkpoints/last/optimizer.safetensors");
        assert_same_file(whole, broken, "checkpoints/best/model.safetensors");
        assert_int_equal(a.t->progress.best_step, c.t->progress.best_step);
        assert_int_equal(a.t->progress.tokens, c.t->progress.tokens);
        assert_int_equal(a.t->progress.evals_since_best,
                         c.t->progress.evals_since_best);
        assert_true(a.t->test.filtered.ndcg[1] == c.t->test.filtered.ndcg[1]);
        kit_close(&a);
        kit_close(&b);
        kit_close(&c);
    }
}

static void the_log_has_each_step_once_after_a_resume(void **state)
{
    (void)state;
    static const char text[] = "train: {batch: 16, max_steps: 12}\n"
                               "checkpoint.every: 4\neval.every: 0\n";
    struct kit k;
    struct ek_buf log;
    kit_open(&k, "log", text);
    k.c.log.every = 1;
    k.stop_at = 10;
    expect_run(&k, EK_ECANCELED);
    kit_close(&k);
    /* what a kill leaves behind a checkpoint: a step more, and half of a line */
    char from[160], command[400];
    snprintf(from, sizeof from, "%s/log", kit_folder);
    kit_open(&k, "log", text);
    k.c.log.every = 1;
    assert_int_equal(ek_train_resume(k.t, &k.err), 0);
    snprintf(command, sizeof command,
             "printf '{\"kind\": \"train\", \"step\": 11}\\n{\"kind\": \"tr' >> "
             "%s/log.jsonl",
             from);
    assert_int_equal(system(command), 0); /* NOLINT: our own folder */
    expect_run(&k, 0);
    kit_close(&k);
    read_file(&log, "log", "log.jsonl");
    for (int step = 1; step <= 12; step++) {
        char want[64];
        snprintf(want, sizeof want, "{\"kind\": \"train\", \"step\": %d,", step);
        assert_int_equal(count(log.data, want), 1);
    }
    assert_int_equal(count(log.data, "\"kind\": \"end\""), 1);
    ek_buf_release(&log);
}

static void a_resume_of_a_run_at_its_end_costs_no_patience(void **state)
{
    static const char *const evals[] = {"eval: {every: 1, patience: 9}\n",
                                        "eval: {every: 2, unit: steps, patience: 9}\n"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct kit k;
        struct ek_buf log;
        char text[128], name[16];
        snprintf(name, sizeof name, "end%d", i);
        snprintf(text, sizeof text, "train: {batch: 30, epochs: 3, lr: 0}\n%s",
                 evals[i]);
        kit_open(&k, name, text);
        expect_run(&k, 0);
        int64_t since = k.t->progress.evals_since_best;
        int64_t n_valid = count(k.lines, "{\"kind\": \"valid\"");
        assert_true(since > 0);
        kit_close(&k);
        for (int again = 0; again < 2; again++) {
            kit_open(&k, name, text);
            assert_int_equal(ek_train_resume(k.t, &k.err), 0);
            expect_run(&k, 0);
            assert_int_equal(k.t->progress.evals_since_best, since);
            kit_close(&k);
        }
        read_file(&log, name, "log.jsonl");
        assert_int_equal(count(log.data, "{\"kind\": \"valid\""), n_valid);
        assert_int_equal(count(log.data, "{\"kind\": \"end\""), 1);
        ek_buf_release(&log);
    }
}

/* 120 users by 30: 4 steps an epoch, so that neither end is one where eval.every asks. */
static void a_validation_that_only_the_end_asks_for_costs_no_patience(void **state)
{
    static const char *const ends[][2] = {{"max_steps: 7", "max_steps: 31"},
                                          {"epochs: 1", "epochs: 7"},
                                          {"max_steps: 8", "max_steps: 30"}};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct kit whole, first, k;
        struct ek_buf log;
        char text[2][160], name[16];
        for (int j = 0; j < 2; j++)
            snprintf(text[j], sizeof text[j],
                     "train: {batch: 30, %s, lr: 0}\n"
                     "eval: {every: 2, patience: 2}\n",
                     ends[i][j]);
        snprintf(name, sizeof name, "more%d", i);
        kit_open(&whole, "whole", text[1]);
        expect_run(&whole, 0);
        assert_true(whole.t->is_stopped_early);
        kit_open(&first, name, text[0]);
        expect_run(&first, 0);
        kit_close(&first);
        for (int again = 0; again < 2;
             again++) { /* goes on; and at its end once more */
            kit_open(&k, name, text[1]);
            assert_int_equal(ek_train_resume(k.t, &k.err), 0);
            expect_run(&k, 0);
            assert_int_equal(k.t->progress.steps, whole.t->progress.steps);
            assert_int_equal(k.t->progress.best_step, whole.t->progress.best_step);
            kit_close(&k);
        }
        read_file(&log, name, "log.jsonl");
        assert_int_equal(count(log.data, "{\"kind\": \"end\""), 1);
        assert_int_equal(count(log.data, "{\"kind\": \"valid\""),
                         count(whole.lines, "{\"kind\": \"valid\""));
        ek_buf_release(&log);
        kit_close(&whole);
    }
}

/* The best on disk, too: an end between two evaluations that are due leaves it alone. */
static void
a_run_that_ended_and_goes_on_has_the_best_of_one_that_never_did(void **state)
{
    static const char form[] = "train: {batch: 30, max_steps: %d, lr: 0.02}\n"
                               "eval: {every: 8, unit: steps, patience: 9}\n";
    static const int ends[] = {5, 11, 21};
    (void)state;
    struct kit k;
    char text[160], name[16];
    snprintf(text, sizeof text, form, 30);
    kit_open(&k, "unbroken", text);
    expect_run(&k, 0);
    kit_close(&k);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "best%d", ends[i]);
        for (int turn = 0; turn < 2; turn++) {
            snprintf(text, sizeof text, form, turn ? 30 : ends[i]);
            kit_open(&k, name, text);
            if (turn)
                assert_int_equal(ek_train_resume(k.t, &k.err), 0);
            expect_run(&k, 0);
            int64_t at = k.t->progress.best_step;
            assert_true(turn || ends[i] < 8 ? at > 0 : at % 8 == 0);
            kit_close(&k);
        }
        assert_same_file("unbroken", name, "checkpoints/last/model.safetensors");
        assert_same_file("unbroken", name, "checkpoints/best/model.safetensors");
    }
}

static void a_run_that_begins_anew_has_nothing_of_the_one_before(void **state)
{
    static const char text[] = "train: {batch: 30, max_steps: 4}\n";
    static const char *const names[] = {"last", "best"};
    (void)state;
    struct kit k;
    char path[256];
    kit_open(&k, "anew", text);
    expect_run(&k, 0);
    kit_close(&k);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < 2; i++) {
            snprintf(path, sizeof path, "%s/anew/checkpoints/%s", kit_folder, names[i]);
            assert_int_equal(access(path, F_OK), turn ? -1 : 0);
        }
        if (turn)
            break;
        kit_open(&k, "anew", text);
        assert_int_equal(ek_train_log_open(k.t, &k.err), 0);
        assert_int_equal(ek_train_log_close(k.t, &k.err), 0);
        kit_close(&k);
    }
}

static void a_resume_of_another_run_is_refused(void **state)
{
    (void)state;
    struct kit k;
    kit_open(&k, "other", "train: {max_steps: 3}\neval.every: 0\n");
    expect_run(&k, 0);
    kit_close(&k);
    kit_open(&k, "other", "train: {max_steps: 3, lr: 0.5}\neval.every: 0\n");
    assert_int_equal(ek_train_resume(k.t, &k.err), EK_EINVAL);
    assert_non_null(strstr(k.err.text, "train.lr is 0.001 there and 0.5 here"));
    kit_close(&k);
    kit_open(&k, "other", "train: {max_steps: 3}\neval.every: 0\n");
    k.data.split.train_end[0]--; /* other data */
    assert_int_equal(ek_train_resume(k.t, &k.err), EK_EINVAL);
    assert_non_null(strstr(k.err.text, "was trained on 120 users"));
    kit_close(&k);
    kit_open(&k, "nothing", "");
    assert_int_equal(ek_train_resume(k.t, &k.err), EK_ENOENT);
    kit_close(&k);
}

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
    expect_run(&k, EK_EINVAL);
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

static void a_run_that_blows_up_keeps_its_last_checkpoint(void **state)
{
    (void)state;
    struct kit k;
    char *config, *data, folder[160];
    struct ek_train_progress progress;
    kit_open(&k, "blows",
             "train: {batch: 16, lr: 1e3, weight_decay: 900}\n"
             "checkpoint.every: 1\neval.every: 0\n");
    expect_run(&k, EK_EINVAL);
    assert_non_null(strstr(k.err.text, "step "));
    int64_t steps = ek_train_steps(k.t);
    kit_close(&k);
    snprintf(folder, sizeof folder, "%s/blows/checkpoints/last", kit_folder);
    assert_int_equal(ek_checkpoint_peek(folder, &config, &data, &progress, NULL), 0);
    assert_int_equal(progress.steps, steps);
    ek_free(config);
    ek_free(data);
}

static void patience_ends_a_run_that_gets_no_better(void **state)
{
    (void)state;
    struct kit k;
    kit_open(&k, "patience",
             "train: {batch: 16, lr: 0, items_lr: 0, epochs: 50}\n"
             "eval: {every: 3, unit: steps, patience: 2}\n");
    expect_run(&k, 0);
    assert_int_equal(ek_train_steps(k.t), 9); /* one best and two that are no better */
    assert_int_equal(k.t->progress.best_step, 3);
    assert_int_equal(count(k.lines, "\"stopped_early\": true"), 1);
    assert_int_equal(count(k.lines, "\"is_best\": true"), 1);
    kit_close(&k);
}

static void the_test_part_is_ranked_once_with_the_best(void **state)
{
    (void)state;
    struct kit k;
    kit_open(&k, "learns",
             "train: {batch: 16, lr: 0.01, epochs: 12}\n"
             "eval: {every: 2}\nmodel.dropout: 0.1\n");
    expect_run(&k, 0);
    assert_int_equal(count(k.lines, "\"test\": {\"recall@5\""), 1);
    assert_int_equal(count(k.lines, "\"test_unfiltered\": {"), 1);
    const char *last = strstr(k.lines, "{\"kind\": \"end\"");
    assert_non_null(last);
    assert_null(strchr(strchr(last, '\n') + 1, '{')); /* the last line */
    assert_int_equal(count(k.lines, "{\"kind\": \"valid\""), 6);
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
    expect_run(&k, 0);
    assert_true(isfinite(k.t->test.normalised_entropy));
    assert_int_equal(count(k.lines, "\"test_normalised_entropy\": "), 1);
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
        expect_run(&k, 0);
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
        assert_int_equal(count(k.lines, "\"metric\": \"auc\""), i == 1 ? 6 : 0);
        double tested = i ? k.t->valid.auc : k.t->valid.normalised_entropy;
        assert_true(tested == k.t->progress.best);
        kit_close(&k);
    }
}

static void clicks_of_one_kind_cannot_say_what_is_best(void **state)
{
    (void)state;
    struct kit k;
    kit_open(&k, "onekind",
             "model: {kind: sasrec, click_weight: 1}\ndata.click: click\n"
             "train: {batch: 32, epochs: 2}\neval: {every: 1, metric: auc}\n");
    struct ek_events *e = &k.data.events;
    const struct ek_column *old = e->columns;
    struct ek_column columns[8];
    float ones[4000];
    assert_true(e->n <= 4000 && e->n_columns <= 8);
    for (int i = 0; i < 4000; i++)
        ones[i] = 1;
    memcpy(columns, old, (size_t)e->n_columns * sizeof *old);
    columns[k.data.click].numbers = ones;
    e->columns = columns;
    expect_run(&k, EK_EINVAL);
    assert_non_null(strstr(k.err.text, "auc of the validation part is no number"));
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
        cmocka_unit_test(a_resumed_run_ends_with_the_same_bytes),
        cmocka_unit_test(the_log_has_each_step_once_after_a_resume),
        cmocka_unit_test(a_resume_of_a_run_at_its_end_costs_no_patience),
        cmocka_unit_test(a_validation_that_only_the_end_asks_for_costs_no_patience),
        cmocka_unit_test(
            a_run_that_ended_and_goes_on_has_the_best_of_one_that_never_did),
        cmocka_unit_test(a_run_that_begins_anew_has_nothing_of_the_one_before),
        cmocka_unit_test(a_resume_of_another_run_is_refused),
        cmocka_unit_test(a_loss_that_is_not_finite_stops_and_names_the_sample),
        cmocka_unit_test(a_run_that_blows_up_keeps_its_last_checkpoint),
        cmocka_unit_test(patience_ends_a_run_that_gets_no_better),
        cmocka_unit_test(the_test_part_is_ranked_once_with_the_best),
        cmocka_unit_test(a_click_head_is_trained_and_measured),
        cmocka_unit_test(clicks_can_say_what_is_best),
        cmocka_unit_test(clicks_of_one_kind_cannot_say_what_is_best),
        cmocka_unit_test(explain_lists_every_operation),
    };
    return cmocka_run_group_tests_name("train_run", tests, kit_make, kit_remove);
}
