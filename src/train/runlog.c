/* runlog.c - run.dir/log.jsonl: one object a line, the same that --json prints.
 *
 *   {"kind": "train", "step": 200, "epoch": 1, "loss": ..., ...}    each log.every steps
 *   {"kind": "valid", "step": 341, "filtered": {...}, "unfiltered": {...}, ...}
 *   {"kind": "end", "test": {"recall@10": ..., ...}, "test_unfiltered": {...}, ...}
 *
 * The same figures go to run.dir/tensorboard: train/..., valid/..., test/....
 * A resumed run drops the lines behind the checkpoint it goes on from, and those that
 * only an end asked for, and appends. */
#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"
#include "train/run_int.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_BYTES ((size_t)256 << 20) /* of a log that is read again */

static const char *log_path(char out[EK_TRAIN_PATH], const struct ek_train *t)
{
    snprintf(out, EK_TRAIN_PATH, "%.4000s/log.jsonl", t->c->run.dir);
    return out;
}

/* mkdir -p */
static int make_folder(const char *path, struct ek_err *err)
{
    char part[EK_TRAIN_PATH];
    size_t n = strlen(path);
    if (n >= sizeof part)
        return ek_err_set(err, EK_EINVAL, "run.dir: %zu bytes are too long", n);
    memcpy(part, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (part[i] != '/' && part[i] != 0)
            continue;
        char end = part[i];
        part[i] = 0;
        if (mkdir(part, 0755) && errno != EEXIST)
            return ek_err_set(err, EK_EIO, "run.dir: %s: %s", part, strerror(errno));
        part[i] = end;
    }
    return 0;
}

/* Two runs in one folder would write each other's log and checkpoints. The lock ends with
 * the process, however that ends; a file system without locks is taken as it is. */
static int lock_folder(struct ek_train *t, struct ek_err *err)
{
    t->folder = open(t->c->run.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (t->folder < 0)
        return ek_err_set(err, EK_EIO, "run.dir: %s: %s", t->c->run.dir,
                          strerror(errno));
    if (flock(t->folder, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return ek_err_set(err, EK_EBUSY,
                          "run.dir: another run writes to %s; expected a folder of its "
                          "own (run.name, run.dir), or to wait for that run's end",
                          t->c->run.dir);
    return 0;
}

/* The step a line is of; INT64_MAX: none. */
static int64_t step_of(const char *line, size_t n)
{
    static const char key[] = "\"step\": ";
    const char *at = memmem(line, n, key, sizeof key - 1);
    return at ? strtoll(at + sizeof key - 1, NULL, 10) : INT64_MAX;
}

static bool is_kind(const char *line, size_t n, const char *kind)
{
    char head[32];
    int len = snprintf(head, sizeof head, "{\"kind\": \"%s\"", kind);
    return n >= (size_t)len && !memcmp(line, head, (size_t)len);
}

/* Whether a run that goes on where t stands would have written the line before. */
static bool is_kept(const struct ek_train *t, const char *line, size_t n)
{
    int64_t step = step_of(line, n), here = t->progress.steps;
    bool is_of_the_end =
        is_kind(line, n, "end") ||
        (step == here && is_kind(line, n, "valid") && t->last_eval_step != here) ||
        (step == here && is_kind(line, n, "train") && t->progress.interval.steps > 0);
    return step <= here && !is_of_the_end;
}

/* Leaves the lines up to the step that the run goes on from. */
static int cut_log(const struct ek_train *t, const char *path, struct ek_err *err)
{
    struct ek_buf old, kept;
    struct ek_err none = EK_ERR_INIT;
    ek_buf_init(&old, LOG_BYTES);
    ek_buf_init(&kept, LOG_BYTES);
    int rc = ek_file_read(&old, path, &none);
    size_t at = 0;
    while (!rc && at < old.len) {
        const char *line = old.data + at, *end = memchr(line, '\n', old.len - at);
        size_t n = end ? (size_t)(end - line) + 1 : 0; /* a line cut off is dropped */
        if (n == 0)
            break;
        if (is_kept(t, line, n))
            rc = ek_buf_add(&kept, line, n);
        at += n;
    }
    if (rc == EK_ENOENT)
        rc = 0;
    else if (rc)
        *err = none;
    else
        rc = ek_file_write(path, kept.data, kept.len, err);
    ek_buf_release(&old);
    ek_buf_release(&kept);
    return rc;
}

int ek_train_log_open(struct ek_train *t, struct ek_err *err)
{
    char path[EK_TRAIN_PATH];
    int rc = make_folder(t->c->run.dir, err);
    if (!rc)
        rc = lock_folder(t, err);
    log_path(path, t);
    if (!rc && t->is_resumed)
        rc = cut_log(t, path, err);
    if (rc)
        return rc;
    t->log = fopen(path, t->is_resumed ? "ae" : "we");
    if (!t->log)
        return ek_err_set(err, EK_EIO, "%s: %s", path, strerror(errno));
    for (int i = 0; i < 2 && !t->is_resumed;
         i++) { /* those of the run before are over */
        snprintf(path, sizeof path, "%.4000s/checkpoints/%s", t->c->run.dir,
                 i ? "best" : "last");
        ek_folder_remove(path);
    }
    snprintf(path, sizeof path, "%.4000s/tensorboard", t->c->run.dir);
    int64_t first = t->is_resumed ? t->progress.steps + 1 : 0; /* that has points */
    return ek_scalars_open(&t->scalars, path, first, err);
}

int ek_train_log_close(struct ek_train *t, struct ek_err *err)
{
    int rc = ek_scalars_close(t->scalars, err);
    if (t->log)
        fclose(t->log);
    if (t->folder >= 0)
        close(t->folder);
    t->folder = -1;
    t->log = NULL;
    t->scalars = NULL;
    return rc;
}

/* One point for TensorBoard; what is not finite is left out. */
static int add_point(struct ek_train *t, const char *tag, double v, struct ek_err *err)
{
    if (!isfinite(v))
        return 0;
    return ek_scalars_add(t->scalars, tag, t->progress.steps, v, err);
}

/* "valid/ndcg@10" and the others at 10 and 50; the log has all of them. */
static int add_points(struct ek_train *t, const char *part,
                      const struct ek_evaluation *e, struct ek_err *err)
{
    static const int cuts[] = {1, 3};
    char tag[64];
    int rc = 0;
    for (int i = 0; i < 2 && !rc; i++) {
        int k = cuts[i];
        snprintf(tag, sizeof tag, "%s/recall@%d", part, ek_eval_cuts[k]);
        rc = add_point(t, tag, e->filtered.recall[k], err);
        snprintf(tag, sizeof tag, "%s/ndcg@%d", part, ek_eval_cuts[k]);
        if (!rc)
            rc = add_point(t, tag, e->filtered.ndcg[k], err);
    }
    snprintf(tag, sizeof tag, "%s/normalised_entropy", part);
    if (!rc)
        rc = add_point(t, tag, e->normalised_entropy, err);
    return rc ? rc : ek_scalars_flush(t->scalars, err);
}

/* ", "name": value"; JSON has no word for what is not finite. */
static int add_number(struct ek_buf *b, const char *name, double v)
{
    int rc = ek_buf_addf(b, ", \"%s\": ", name);
    if (!rc)
        rc = isfinite(v) ? ek_json_add_double(b, v) : ek_buf_add_str(b, "null");
    return rc;
}

static int add_whole(struct ek_buf *b, const char *name, int64_t v)
{
    return ek_buf_addf(b, ", \"%s\": %" PRId64, name, v);
}

static int add_ranking(struct ek_buf *b, const char *name, const struct ek_ranking *r)
{
    int rc = ek_buf_addf(b, ", \"%s\": ", name);
    return rc ? rc : ek_ranking_json(b, r);
}

static int begin(struct ek_train *t, const char *kind)
{
    ek_buf_reset(&t->line);
    return ek_buf_addf(&t->line,
                       "{\"kind\": \"%s\", \"step\": %" PRId64 ", \"epoch\": %" PRId64,
                       kind, t->progress.steps, t->progress.epoch);
}

/* rc: of what was added. */
static int finish(struct ek_train *t, int rc, struct ek_err *err)
{
    char path[EK_TRAIN_PATH];
    if (!rc)
        rc = ek_buf_add_char(&t->line, '}');
    if (rc)
        return ek_err_set(err, rc, "log: %s", ek_status_text(rc));
    if (t->hooks.on_line)
        t->hooks.on_line(t->hooks.arg, t->line.data, t->line.len);
    bool is_written = fwrite(t->line.data, 1, t->line.len, t->log) == t->line.len &&
                      fputc('\n', t->log) != EOF && fflush(t->log) == 0;
    return is_written
               ? 0
               : ek_err_set(err, EK_EIO, "%s: %s", log_path(path, t), strerror(errno));
}

int ek_train_log_steps(struct ek_train *t, struct ek_err *err)
{
    const struct ek_train_sums *s = &t->progress.interval;
    struct ek_buf *b = &t->line;
    double seconds = s->seconds > 1e-9 ? s->seconds : 1e-9;
    double loss = s->loss / (double)s->steps, events_s = (double)s->tokens / seconds;
    t->interval_mfu = (double)s->flops / (seconds * t->peak);
    int rc = begin(t, "train");
    if (!rc)
        rc = add_number(b, "loss", loss);
    if (!rc)
        rc = add_number(b, "lr", t->last_rate * t->c->train.lr);
    if (!rc && isfinite(t->last_norm))
        rc = add_number(b, "grad_norm", t->last_norm);
    if (!rc)
        rc = add_number(b, "sequences_per_s", (double)s->sequences / seconds);
    if (!rc)
        rc = add_number(b, "tokens_per_s", events_s);
    if (!rc)
        rc = add_number(b, "mfu", t->interval_mfu);
    if (!rc)
        rc = add_number(b, "seconds", t->progress.seconds);
    ek_train_close_interval(t);
    rc = finish(t, rc, err);
    if (!rc)
        rc = add_point(t, "train/loss", loss, err);
    if (!rc)
        rc = add_point(t, "train/lr", t->last_rate * t->c->train.lr, err);
    if (!rc)
        rc = add_point(t, "train/events_per_s", events_s, err);
    return rc ? rc : add_point(t, "train/mfu", t->interval_mfu, err);
}

static int add_click(struct ek_buf *b, const char *prefix,
                     const struct ek_evaluation *e)
{
    char name[40];
    if (!isfinite(e->normalised_entropy))
        return 0;
    snprintf(name, sizeof name, "%snormalised_entropy", prefix);
    int rc = add_number(b, name, e->normalised_entropy);
    snprintf(name, sizeof name, "%sauc", prefix);
    return rc ? rc : add_number(b, name, e->auc);
}

int ek_train_log_valid(struct ek_train *t, const struct ek_evaluation *e, bool is_best,
                       struct ek_err *err)
{
    struct ek_buf *b = &t->line;
    char metric[24];
    int rc = begin(t, "valid");
    if (!rc)
        rc = add_ranking(b, "filtered", &e->filtered);
    if (!rc)
        rc = add_ranking(b, "unfiltered", &e->unfiltered);
    if (!rc)
        rc = add_click(b, "", e);
    if (!rc)
        rc = ek_buf_addf(b, ", \"metric\": \"%s\"", ek_train_metric_name(metric, t->c));
    if (!rc)
        rc = add_number(b, "value", ek_train_metric(e, t->c));
    if (!rc)
        rc = ek_buf_addf(b, ", \"is_best\": %s", is_best ? "true" : "false");
    if (!rc)
        rc = add_number(b, "eval_seconds", e->seconds);
    if (!rc)
        rc = add_number(b, "seconds", t->progress.seconds);
    rc = finish(t, rc, err);
    return rc ? rc : add_points(t, "valid", e, err);
}

static int add_result(struct ek_train *t)
{
    struct ek_buf *b = &t->line;
    int rc = 0;
    if (t->has_test) {
        rc = add_ranking(b, "test", &t->test.filtered);
        if (!rc)
            rc = add_ranking(b, "test_unfiltered", &t->test.unfiltered);
        if (!rc)
            rc = add_click(b, "test_", &t->test);
    }
    if (!rc)
        rc = add_ranking(b, "valid", &t->valid.filtered);
    if (!rc)
        rc = add_ranking(b, "valid_unfiltered", &t->valid.unfiltered);
    return rc ? rc : add_click(b, "valid_", &t->valid);
}

int ek_train_log_end(struct ek_train *t, struct ek_err *err)
{
    const struct ek_train_sums *s = &t->all;
    struct ek_buf *b = &t->line;
    struct ek_train_mfu m;
    double seconds = s->seconds > 1e-9 ? s->seconds : 1e-9;
    ek_train_mfu(&m, t);
    int rc = begin(t, "end");
    if (!rc)
        rc = add_result(t);
    if (!rc)
        rc = add_whole(b, "best_step", t->progress.best_step);
    if (!rc)
        rc = add_number(b, "best", t->progress.best);
    if (!rc)
        rc = ek_buf_addf(b, ", \"stopped_early\": %s",
                         t->is_stopped_early ? "true" : "false");
    if (!rc)
        rc = add_whole(b, "sequences", t->progress.sequences);
    if (!rc)
        rc = add_whole(b, "tokens", t->progress.tokens);
    if (!rc)
        rc = add_number(b, "tokens_per_s", (double)s->tokens / seconds);
    if (!rc)
        rc = add_number(b, "peak_gflop_per_s", t->peak / 1e9);
    if (!rc)
        rc = add_number(b, "local_mfu", m.local);
    if (!rc)
        rc = add_number(b, "end_to_end_mfu", m.end_to_end);
    if (!rc)
        rc = add_number(b, "mfu_ratio", m.ratio);
    if (!rc)
        rc = add_number(b, "seconds", t->progress.seconds);
    rc = finish(t, rc, err);
    return rc || !t->has_test ? rc : add_points(t, "test", &t->test, err);
}
