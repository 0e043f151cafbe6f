/* Stopping and going on: the same bytes, the same log, the same decisions. */
#include "trainkit.h"

#include <math.h>
#include <unistd.h>

static const char *const runs[] = {
    "model.kind: sasrec\nmodel.dropout: 0.3\ntrain: {batch: 16, max_steps: 20}\n"
    "eval: {every: 1, patience: 9}\n",
    "model.kind: hstu\nmodel.times: true\ntrain: {batch: 8, micro_batches: 3, "
    "max_steps: 20, items: rowwise_adagrad, clip_norm: 0.5, warmup_steps: 8, "
    "dtype: bf16}\n"
    "eval: {every: 7, unit: steps}\n",
    "model: {kind: gem, similarity: cosine, temperature: 0.1}\ntrain: {max_tokens: 90, "
    "max_steps: 20, ahead: 3, schedule: cosine}\neval.every: 0\n",
    "model: {kind: gem, column_rows: 3, column_dim: 5}\ntrain: {batch: 16, "
    "max_steps: 20, items: rowwise_adagrad}\n",
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
        kit_run(&a, 0);
        assert_int_equal(ek_train_steps(a.t), 20);
        kit_open(&b, broken, runs[i]);
        b.stop_at = 10 - (int64_t)i;
        kit_run(&b, EK_ECANCELED);
        kit_open(&c, broken, runs[i]);
        if (ek_train_resume(c.t, &c.err))
            fail_msg("%s", c.err.text);
        kit_run(&c, 0);
        kit_same_file(whole, broken, "checkpoints/last/model.safetensors");
        kit_same_file(whole, broken, "checkpoints/last/optimizer.safetensors");
        kit_same_file(whole, broken, "checkpoints/best/model.safetensors");
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
    kit_run(&k, EK_ECANCELED);
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
    kit_run(&k, 0);
    kit_close(&k);
    kit_read(&log, "log", "log.jsonl");
    for (int step = 1; step <= 12; step++) {
        char want[64];
        snprintf(want, sizeof want, "{\"kind\": \"train\", \"step\": %d,", step);
        assert_int_equal(kit_count(log.data, want), 1);
    }
    assert_int_equal(kit_count(log.data, "\"kind\": \"end\""), 1);
    ek_buf_release(&log);
}

/* The number behind `key` in the line of that kind and step. */
static double number_at(const char *log, const char *kind, int step, const char *key)
{
    char head[64];
    snprintf(head, sizeof head, "{\"kind\": \"%s\", \"step\": %d,", kind, step);
    const char *line = strstr(log, head), *at = line ? strstr(line, key) : NULL;
    if (!at)
        fail_msg("no %s in a line %s", key, head);
    return at ? strtod(at + strlen(key), NULL) : (double)NAN;
}

/* Lines, their order and their losses, wherever it stopped: behind a step that has a
 * line, between two, at an end that is none. */
static void a_resumed_runs_log_reads_as_that_of_one_that_never_stopped(void **state)
{
    static const char form[] =
        "train: {batch: 30, max_steps: %d}\ncheckpoint.every: %d\n"
        "eval: {every: 6, unit: steps}\n";
    static const struct {
        int stop, end, every; /* stop: told to, else at its end; every: checkpoints */
    } cases[] = {{5, 23, 0}, {7, 23, 0}, {0, 13, 0},
                 {0, 10, 0}, {0, 12, 4}, {9, 23, 4}};
    (void)state;
    struct kit whole, k;
    struct ek_buf want, got;
    char text[160], name[16];
    snprintf(text, sizeof text, form, 23, 0);
    kit_open(&whole, "wholelog", text);
    kit_run(&whole, 0);
    kit_close(&whole);
    kit_read(&want, "wholelog", "log.jsonl");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(name, sizeof name, "brokenlog%zu", i);
        snprintf(text, sizeof text, form, cases[i].end, cases[i].every);
        kit_open(&k, name, text);
        k.stop_at = cases[i].stop;
        kit_run(&k, cases[i].stop ? EK_ECANCELED : 0);
        kit_close(&k);
        snprintf(text, sizeof text, form, 23, cases[i].every);
        kit_open(&k, name, text);
        assert_int_equal(ek_train_resume(k.t, &k.err), 0);
        kit_run(&k, 0);
        kit_close(&k);
        kit_read(&got, name, "log.jsonl");
        assert_int_equal(kit_count(got.data, "\n"), kit_count(want.data, "\n"));
        const int steps[] = {5, 10, 15, 20, 23};
        for (int s = 0; s < 5; s++) {
            assert_true(number_at(got.data, "train", steps[s], "\"loss\": ") ==
                        number_at(want.data, "train", steps[s], "\"loss\": "));
            assert_true(number_at(got.data, "train", steps[s], "\"lr\": ") ==
                        number_at(want.data, "train", steps[s], "\"lr\": "));
        }
        for (int step = 6; step <= 18; step += 6)
            assert_true(number_at(got.data, "valid", step, "\"value\": ") ==
                        number_at(want.data, "valid", step, "\"value\": "));
        ek_buf_release(&got);
    }
    ek_buf_release(&want);
}

/* Told to stop while it ranks: the validation is the first thing of the resume, and what
 * it decides is what it would have. */
static void a_validation_that_is_stopped_is_done_by_the_resume(void **state)
{
    static const char text[] = "train: {batch: 30, max_steps: 20}\n"
                               "eval: {every: 6, unit: steps, patience: 9}\n";
    (void)state;
    struct kit whole, k;
    kit_open(&whole, "ranked", text);
    kit_run(&whole, 0);
    kit_open(&k, "stopped", text);
    k.stop_at = 12; /* where one is due */
    kit_run(&k, EK_ECANCELED);
    assert_int_equal(kit_count(k.lines, "{\"kind\": \"valid\""), 1);
    assert_int_equal(k.t->progress.eval_due, 1);
    kit_close(&k);
    kit_open(&k, "stopped", text);
    assert_int_equal(ek_train_resume(k.t, &k.err), 0);
    assert_int_equal(k.t->progress.eval_due, 1);
    kit_run(&k, 0);
    assert_int_equal(k.t->progress.eval_due, 0);
    assert_non_null(strstr(k.lines, "{\"kind\": \"valid\", \"step\": 12,"));
    assert_int_equal(k.t->progress.best_step, whole.t->progress.best_step);
    assert_int_equal(k.t->progress.evals_since_best,
                     whole.t->progress.evals_since_best);
    kit_close(&k);
    kit_close(&whole);
    kit_same_file("ranked", "stopped", "checkpoints/best/model.safetensors");
    kit_same_file("ranked", "stopped", "checkpoints/last/model.safetensors");
    /* the ranking of the end, too: nothing of it is kept but what was before */
    kit_open(&k, "stopped", text);
    assert_int_equal(ek_train_resume(k.t, &k.err), 0);
    k.stop_at = 20;
    kit_run(&k, EK_ECANCELED);
    assert_non_null(strstr(k.err.text, "stopped behind step 20"));
    kit_close(&k);
    kit_same_file("ranked", "stopped", "checkpoints/last/model.safetensors");
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
        kit_run(&k, 0);
        int64_t since = k.t->progress.evals_since_best;
        int64_t n_valid = kit_count(k.lines, "{\"kind\": \"valid\"");
        assert_true(since > 0);
        kit_close(&k);
        for (int again = 0; again < 2; again++) {
            kit_open(&k, name, text);
            assert_int_equal(ek_train_resume(k.t, &k.err), 0);
            kit_run(&k, 0);
            assert_int_equal(k.t->progress.evals_since_best, since);
            kit_close(&k);
        }
        kit_read(&log, name, "log.jsonl");
        assert_int_equal(kit_count(log.data, "{\"kind\": \"valid\""), n_valid);
        assert_int_equal(kit_count(log.data, "{\"kind\": \"end\""), 1);
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
        kit_run(&whole, 0);
        assert_true(whole.t->is_stopped_early);
        kit_open(&first, name, text[0]);
        kit_run(&first, 0);
        kit_close(&first);
        for (int again = 0; again < 2;
             again++) { /* goes on; and at its end once more */
            kit_open(&k, name, text[1]);
            assert_int_equal(ek_train_resume(k.t, &k.err), 0);
            kit_run(&k, 0);
            assert_int_equal(k.t->progress.steps, whole.t->progress.steps);
            assert_int_equal(k.t->progress.best_step, whole.t->progress.best_step);
            kit_close(&k);
        }
        kit_read(&log, name, "log.jsonl");
        assert_int_equal(kit_count(log.data, "{\"kind\": \"end\""), 1);
        assert_int_equal(kit_count(log.data, "{\"kind\": \"valid\""),
                         kit_count(whole.lines, "{\"kind\": \"valid\""));
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
    kit_run(&k, 0);
    kit_close(&k);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "best%d", ends[i]);
        for (int turn = 0; turn < 2; turn++) {
            snprintf(text, sizeof text, form, turn ? 30 : ends[i]);
            kit_open(&k, name, text);
            if (turn)
                assert_int_equal(ek_train_resume(k.t, &k.err), 0);
            kit_run(&k, 0);
            int64_t at = k.t->progress.best_step;
            assert_true(turn || ends[i] < 8 ? at > 0 : at % 8 == 0);
            kit_close(&k);
        }
        kit_same_file("unbroken", name, "checkpoints/last/model.safetensors");
        kit_same_file("unbroken", name, "checkpoints/best/model.safetensors");
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
    kit_run(&k, 0);
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
    kit_run(&k, 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_resumed_run_ends_with_the_same_bytes),
        cmocka_unit_test(the_log_has_each_step_once_after_a_resume),
        cmocka_unit_test(a_resumed_runs_log_reads_as_that_of_one_that_never_stopped),
        cmocka_unit_test(a_validation_that_is_stopped_is_done_by_the_resume),
        cmocka_unit_test(a_resume_of_a_run_at_its_end_costs_no_patience),
        cmocka_unit_test(a_validation_that_only_the_end_asks_for_costs_no_patience),
        cmocka_unit_test(
            a_run_that_ended_and_goes_on_has_the_best_of_one_that_never_did),
        cmocka_unit_test(a_run_that_begins_anew_has_nothing_of_the_one_before),
        cmocka_unit_test(a_resume_of_another_run_is_refused),
    };
    return cmocka_run_group_tests_name("train_resume", tests, kit_make, kit_remove);
}
