/* run.c - the loop. Order of things behind a step: log, evaluation, checkpoint, then
 * the question whether to stop; so a checkpoint never stands between a step and the
 * evaluation that belongs to it, and a resumed run decides what an unbroken one did. */
#include "train/run.h"

#include "base/clock.h"
#include "base/mem.h"
#include "train/run_int.h"
#include "train/vocab.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define LINE_BYTES   (1 << 16)
#define CONFIG_BYTES (1 << 20)

int ek_train_new(struct ek_train **out, const struct ek_train_config *c,
                 const struct ek_train_data *data, const struct ek_train_hooks *hooks,
                 struct ek_err *err)
{
    struct ek_train *t = ek_calloc(1, sizeof *t);
    if (!t)
        return ek_err_set(err, EK_ENOMEM, "train: out of memory");
    t->c = c;
    t->data = data;
    if (hooks)
        t->hooks = *hooks;
    t->progress =
        (struct ek_train_progress){.seed = (uint64_t)c->run.seed, .best = (double)NAN};
    t->last_norm = t->interval_mfu = (double)NAN;
    t->last_eval_step = t->folder = -1;
    ek_buf_init(&t->line, LINE_BYTES);
    int rc = ek_train_setup(t, err);
    if (rc) {
        ek_train_free(t);
        return rc;
    }
    *out = t;
    return 0;
}

void ek_train_free(struct ek_train *t)
{
    if (!t)
        return;
    ek_tables_free(t->tables);
    ek_adagrad_free(t->adagrad);
    ek_adamw_free(t->adamw);
    ek_rec_free(t->model);
    ek_rec_free(t->forward);
    ek_params_free(t->params);
    ek_loader_free(t->loader);
    ek_team_free(t->team);
    ek_free(t->negatives);
    ek_free(t->extra.next_times);
    ek_free(t->extra.clicks);
    ek_buf_release(&t->line);
    ek_free(t);
}

/* --- checkpoints ------------------------------------------------------------------ */

static const char *folder_of(char out[EK_TRAIN_PATH], const struct ek_train *t,
                             const char *name)
{
    snprintf(out, EK_TRAIN_PATH, "%.4000s/checkpoints/%s", t->c->run.dir, name);
    return out;
}

/* best holds what ranks; last what goes on, too. What nothing could go on from, or rank
 * with, replaces neither. */
static int save(const struct ek_train *t, const char *name, bool has_optimizer,
                struct ek_err *err)
{
    char folder[EK_TRAIN_PATH], data[EK_TRAIN_DATA_TEXT];
    struct ek_buf config;
    ek_buf_init(&config, CONFIG_BYTES);
    int rc = ek_train_check_params(t, err);
    if (rc)
        goto out;
    rc = ek_train_config_json(&config, t->c);
    if (rc) {
        rc = ek_err_set(err, rc, "configuration: %s", ek_status_text(rc));
        goto out;
    }
    struct ek_checkpoint c = {.params = t->params,
                              .adamw = has_optimizer ? t->adamw : NULL,
                              .adagrad = has_optimizer ? t->adagrad : NULL,
                              .progress = t->progress,
                              .config = config.data,
                              .data = ek_train_data_text(data, t->data)};
    rc = ek_checkpoint_save(folder_of(folder, t, name), &c, err);
out:
    ek_buf_release(&config);
    return rc;
}

static int refuse_other(const struct ek_train *t, const struct ek_opt *key,
                        const struct ek_train_config *old, const char *folder,
                        struct ek_err *err)
{
    struct ek_buf now, then;
    ek_buf_init(&now, CONFIG_BYTES);
    ek_buf_init(&then, CONFIG_BYTES);
    int rc = ek_opt_value_json(&now, key, t->c);
    if (!rc)
        rc = ek_opt_value_json(&then, key, old);
    if (!rc)
        rc = ek_err_set(err, EK_EINVAL, "%s: %s is %.200s there and %.200s here",
                        folder, key->name, then.data, now.data);
    ek_buf_release(&now);
    ek_buf_release(&then);
    return rc;
}

/* Whether the checkpoint is of this run: same configuration, same sequences. */
static int check_origin(const struct ek_train *t, const char *folder,
                        const char *config, const char *data, struct ek_err *err)
{
    struct ek_train_config old;
    struct ek_arena arena;
    char ours[EK_TRAIN_DATA_TEXT];
    ek_arena_init(&arena, CONFIG_BYTES);
    int rc = ek_train_config_read(&old, folder, config, strlen(config), &arena, err);
    const struct ek_opt *key = rc ? NULL : ek_train_config_differ(t->c, &old);
    if (key)
        rc = refuse_other(t, key, &old, folder, err);
    ek_arena_release(&arena);
    if (rc)
        return rc;
    ek_train_data_text(ours, t->data);
    size_t n = strcspn(ours, ";"); /* what follows is the file's name */
    if (strncmp(ours, data, n + 1) != 0)
        return ek_err_set(err, EK_EINVAL,
                          "%s: was trained on %.300s; data.path is %.300s", folder,
                          data, ours);
    return 0;
}

static bool is_due(const struct ek_train *t, bool is_epoch_end)
{
    int64_t every = t->c->eval.every;
    if (every == 0)
        return false;
    if (t->c->eval.unit == EK_TRAIN_EPOCHS)
        return is_epoch_end && t->progress.epoch % every == 0;
    return !is_epoch_end && t->progress.steps % every == 0;
}

/* Whether the validation that is due where the run stands was before its checkpoint:
 * then a run that was at its end is not ranked again, which would cost it patience. */
static bool was_ranked(const struct ek_train *t)
{
    const struct ek_train_progress *p = &t->progress;
    bool is_epoch_end = p->step == 0 && p->steps > 0;
    return !isnan(p->best) && !p->eval_due &&
           (is_due(t, false) || (is_epoch_end && is_due(t, true)));
}

int ek_train_resume(struct ek_train *t, struct ek_err *err)
{
    char folder[EK_TRAIN_PATH], *config = NULL, *data = NULL;
    struct ek_train_progress progress;
    folder_of(folder, t, "last");
    int rc = ek_checkpoint_peek(folder, &config, &data, &progress, err);
    if (!rc)
        rc = check_origin(t, folder, config, data, err);
    if (!rc) {
        struct ek_checkpoint c = {
            .params = t->params, .adamw = t->adamw, .adagrad = t->adagrad};
        rc = ek_checkpoint_load(folder, &c, err);
        progress = c.progress;
    }
    if (!rc)
        rc = ek_loader_seek(t->loader, progress.epoch, progress.step, err);
    if (!rc) {
        t->progress = progress;
        t->before = progress.interval;
        t->last_rate = ek_rate_at(&t->rate, progress.steps - 1);
        t->is_resumed = true;
        t->last_eval_step = was_ranked(t) ? progress.steps : -1;
    }
    ek_free(config);
    ek_free(data);
    return rc;
}

/* --- evaluation ------------------------------------------------------------------- */

static void show(const struct ek_train *t, const char *what)
{
    const struct ek_train_sums *s =
        t->progress.interval.steps >= 10 ? &t->progress.interval : &t->all;
    double seconds = s->seconds > 1e-9 ? s->seconds : 1e-9;
    struct ek_train_status status = {.step = t->progress.steps,
                                     .steps = t->steps_planned,
                                     .epoch = t->progress.epoch,
                                     .loss = t->last_loss,
                                     .sequences_s = (double)s->sequences / seconds,
                                     .tokens_s = (double)s->tokens / seconds,
                                     .mfu = t->interval_mfu,
                                     .what = what};
    if (t->hooks.on_step)
        t->hooks.on_step(t->hooks.arg, &status);
}

static int rank(const struct ek_train *t, enum ek_part part, struct ek_evaluation *out,
                struct ek_err *err)
{
    struct ek_evaluate o = {.model = t->forward,
                            .config = &t->rec,
                            .params = t->params,
                            .data = t->data,
                            .part = part,
                            .batch = t->c->eval.batch,
                            .team = t->team,
                            .isa = t->isa,
                            .should_stop = t->hooks.should_stop,
                            .arg = t->hooks.arg};
    show(t, part == EK_PART_VALID ? "validating" : "testing");
    return ek_evaluate_run(&o, out, err);
}

static int validate(struct ek_train *t, struct ek_err *err)
{
    struct ek_evaluation e;
    struct ek_train_progress *p = &t->progress;
    int rc = rank(t, EK_PART_VALID, &e, err);
    if (rc)
        return rc;
    double value = ek_train_metric(&e, t->c);
    char metric[24];
    if (isnan(value))
        return ek_err_set(err, EK_EINVAL,
                          "eval.metric: %s of the validation part is no number: the "
                          "click head gives none",
                          ek_train_metric_name(metric, t->c));
    bool is_best = ek_train_is_better(value, p->best, t->c);
    if (is_best) {
        p->best = value;
        p->best_step = p->steps;
        p->evals_since_best = 0;
        rc = save(t, "best", false, err);
    } else {
        p->evals_since_best++;
    }
    return rc ? rc : ek_train_log_valid(t, &e, is_best, err);
}

/* One that is stopped stays due, in the checkpoint too. */
static int validate_due(struct ek_train *t, struct ek_err *err)
{
    int rc = validate(t, err);
    t->progress.eval_due = rc == EK_ECANCELED;
    return rc;
}

/* Behind a step or an epoch: what is due, in the order that the file's head says. */
static int settle(struct ek_train *t, bool is_epoch_end, struct ek_err *err)
{
    int64_t steps = t->progress.steps, every = t->c->checkpoint.every;
    bool is_eval = is_due(t, is_epoch_end);
    bool is_save = every ? !is_epoch_end && steps % every == 0 : is_eval;
    int rc = 0;
    if (!is_epoch_end && steps % t->c->log.every == 0)
        rc = ek_train_log_steps(t, err);
    if (!rc && is_eval)
        rc = validate_due(t, err);
    if (!rc && is_save)
        rc = save(t, "last", true, err);
    return rc;
}

/* --- the loop --------------------------------------------------------------------- */

static bool is_at_end(struct ek_train *t)
{
    const struct ek_train_progress *p = &t->progress;
    int64_t patience = t->c->eval.patience, max = t->c->train.max_steps;
    t->is_stopped_early = patience > 0 && p->evals_since_best >= patience;
    return t->is_stopped_early || p->epoch >= t->c->train.epochs ||
           (max > 0 && p->steps >= max);
}

/* The next step, or the end of an epoch. */
static int advance(struct ek_train *t, struct ek_err *err)
{
    struct ek_batch first;
    double loss;
    int64_t start = ek_clock_us();
    if (!ek_loader_next(t->loader, &first)) {
        t->progress.epoch++;
        t->progress.step = 0;
        return settle(t, true, err);
    }
    int rc = ek_train_step(t, &first, &loss, err);
    double seconds = (double)(ek_clock_us() - start) / 1e6;
    t->progress.interval.seconds += seconds;
    t->progress.seconds += seconds;
    if (rc)
        return rc;
    show(t, "training");
    return settle(t, false, err);
}

/* To the end of the schedule, or of patience; EK_ECANCELED, with last saved, when told
 * to stop. */
static int take_steps(struct ek_train *t, struct ek_err *err)
{
    int rc = t->progress.eval_due ? validate_due(t, err) : 0;
    while (!rc && !is_at_end(t)) {
        rc = advance(t, err);
        if (!rc && t->hooks.should_stop && t->hooks.should_stop(t->hooks.arg))
            rc = EK_ECANCELED;
    }
    if (rc != EK_ECANCELED)
        return rc;
    rc = save(t, "last", true, err);
    return rc ? rc : EK_ECANCELED;
}

/* The best parameters on both parts; the test for the first and last time. What the end
 * alone asks for comes behind the checkpoint: the line of an interval that is not full,
 * a validation where none was due before. A run that goes on from there has not seen
 * it, as one that never ended, and finds a best that it would have found. */
static int finish(struct ek_train *t, struct ek_err *err)
{
    char folder[EK_TRAIN_PATH];
    struct ek_checkpoint best = {.params = t->params};
    int rc = save(t, "last", true, err);
    if (!rc && t->progress.interval.steps > 0)
        rc = ek_train_log_steps(t, err);
    if (!rc && isnan(t->progress.best))
        rc = validate(t, err);
    if (!rc)
        rc = ek_checkpoint_load(folder_of(folder, t, "best"), &best, err);
    if (!rc)
        rc = rank(t, EK_PART_VALID, &t->valid, err);
    if (!rc && t->data->split.n_test > 0) {
        rc = rank(t, EK_PART_TEST, &t->test, err);
        t->has_test = !rc;
    }
    if (rc)
        return rc;
    /* a busy machine shows less than its peak: the higher of two looks */
    double peak = ek_train_peak(t->team, t->isa, t->c->train.dtype == 1);
    t->peak = peak > t->peak ? peak : t->peak;
    return ek_train_log_end(t, err);
}

static int write_vocabulary(const struct ek_train *t, struct ek_err *err)
{
    char path[EK_TRAIN_PATH];
    snprintf(path, sizeof path, "%.4000s/" EK_VOCAB_FILE, t->c->run.dir);
    return ek_vocab_write(path, &t->data->events.item_names, t->data->columns,
                          t->data->n_columns, err);
}

int ek_train_run(struct ek_train *t, struct ek_err *err)
{
    int closed, rc = ek_train_log_open(t, err);
    if (!rc)
        rc = write_vocabulary(t, err);
    if (rc)
        goto out;
    t->peak = ek_train_peak(t->team, t->isa, t->c->train.dtype == 1);
    ek_graph_profile(ek_rec_graph(t->model), true);
    rc = take_steps(t, err);
    if (!rc)
        rc = finish(t, err);
    if (rc == EK_ECANCELED)
        rc = ek_err_set(err, rc,
                        "stopped behind step %" PRId64
                        ": --resume goes on from %s/checkpoints/last",
                        t->progress.steps, t->c->run.dir);
out:
    closed = ek_train_log_close(t, rc ? NULL : err);
    return rc ? rc : closed;
}

struct ek_params *ek_train_params(const struct ek_train *t)
{
    return t->params;
}

int64_t ek_train_steps(const struct ek_train *t)
{
    return t->progress.steps;
}
