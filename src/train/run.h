/* run.h - training from a configuration to a tested model: the loop of `keel train`.
 *
 *   new ── resume? ── run ──────────────────────────────────────────> done
 *                      │ step: micro-batches, gradients, optimizers (step.c)
 *                      │ each log.every steps        a line of the log
 *                      │ each eval.every             validation; best? checkpoints/best
 *                      │ patience is over, or the end of the schedule
 *                      └ checkpoints/last; the best one on the test part, once
 *
 * Nothing is chosen on the test part: it is ranked behind the last decision.
 *
 * Everything lies in run.dir: checkpoints/{best,last}, log.jsonl, scalars for
 * TensorBoard. The numbers depend on configuration, data and ISA alone: not on threads,
 * and not on where a run was stopped and resumed.
 * Threads: one owner; team and loader have threads of their own inside.
 */
#ifndef EVENKEEL_TRAIN_RUN_H
#define EVENKEEL_TRAIN_RUN_H

#include "base/buf.h"
#include "train/config.h"
#include "train/data.h"

/* Where a run stands, for a progress line. Rates are of the latest interval. */
struct ek_train_status {
    int64_t step, steps; /* done, and those of the schedule */
    int64_t epoch;
    double loss; /* mean of the interval */
    double sequences_s, tokens_s;
    double mfu;       /* end to end, of the interval; NAN before the first */
    const char *what; /* "training", "validating", "testing" */
};

/* Any may be NULL or 0. */
struct ek_train_hooks {
    void (*on_step)(void *arg, const struct ek_train_status *s);
    /* A line of the log, an object without its newline; the last one has "test". */
    void (*on_line)(void *arg, const char *line, size_t n);
    bool (*should_stop)(void *arg); /* asked behind each step and batch of a ranking */
    void *arg;
    /* What the run may hold; 0: what the machine has for this process
     * (ek_memory_available). For tests. */
    int64_t available_bytes;
};

struct ek_train;

/* Builds models, optimizers and loader; reads and writes no file of the run. Borrows
 * all three until free. First everything is declared and its memory summed (need.h):
 * what would not fit is refused before any of it is taken.
 * Errors: what loader, model and optimizers refuse (key and value); EK_ELIMIT over
 * train.max_bytes, or more than is there ("memory: ..."); EK_ENOMEM. */
int ek_train_new(struct ek_train **t, const struct ek_train_config *c,
                 const struct ek_train_data *data, const struct ek_train_hooks *hooks,
                 struct ek_err *err) EK_MUST_USE;
void ek_train_free(struct ek_train *t); /* NULL is fine */

/* Goes on where run.dir/checkpoints/last stands: the same bits as a run that was never
 * stopped. Errors: those of ek_checkpoint_load; EK_EINVAL another configuration (the
 * key, both values) or other data. */
int ek_train_resume(struct ek_train *t, struct ek_err *err) EK_MUST_USE;

/* To the end. EK_EBUSY: another run writes to run.dir; EK_EINVAL: a loss that is not
 * finite (operation, value, user and item; no checkpoint is written from it);
 * EK_ECANCELED: should_stop said so, and checkpoints/last is where it stopped; EK_EIO
 * and others of checkpoints. */
int ek_train_run(struct ek_train *t, struct ek_err *err) EK_MUST_USE;

/* What came out, as lines for a person: best validation, test, MFU. */
int ek_train_report(struct ek_buf *out, const struct ek_train *t) EK_MUST_USE;

/* Some steps, timed by operation, as a table: FLOPs, bytes, milliseconds, local MFU,
 * saved bytes. The parameters move: the run is of no other use then. */
int ek_train_explain(struct ek_buf *out, struct ek_train *t,
                     struct ek_err *err) EK_MUST_USE;

/* Parameters, for tests; borrowed. Steps done. */
struct ek_params *ek_train_params(const struct ek_train *t);
int64_t ek_train_steps(const struct ek_train *t);

#endif
