/* run_int.h - what the files of the loop share.
 *
 *   run.c      the loop: when to evaluate, save, stop
 *   setup.c    models, optimizers, loader from a configuration
 *   step.c     one optimizer step
 *   fault.c    which operation and whose sample made a loss that is not finite
 *   runlog.c   lines of the log
 *   report.c   MFU and what came out, for a person
 *   explain.c  the table of operations
 *   peak.c     what this machine multiplies at most
 */
#ifndef EVENKEEL_TRAIN_RUN_INT_H
#define EVENKEEL_TRAIN_RUN_INT_H

#include "train/checkpoint.h"
#include "train/evaluate.h"
#include "train/need.h"
#include "train/rate.h"
#include "train/run.h"
#include "train/scalars.h"
#include "train/tables.h"

#include <stdio.h>

#define EK_TRAIN_PATH 4096

struct ek_train {
    const struct ek_train_config *c; /* borrowed, with the next two */
    const struct ek_train_data *data;
    struct ek_train_hooks hooks;

    struct ek_rec_config rec;
    enum ek_isa isa;
    struct ek_team *team;
    struct ek_params *params;
    struct ek_rec *model;   /* trains */
    struct ek_rec *forward; /* ranks; the same parameters */
    struct ek_loader *loader;
    struct ek_adamw_state *adamw;
    struct ek_adagrad_state *adagrad; /* NULL: the model has no table */
    struct ek_tables *tables;
    struct ek_rate rate;
    int64_t steps_planned; /* at which the schedule ends */

    int32_t *negatives; /* (negatives) of a micro-batch; owned */
    struct ek_train_extra extra;
    int64_t max_rows, max_sequences;
    int n_micro;            /* micro-batches of a step, at most */
    int64_t resident_bytes; /* of the process, before anything of the model was there */
    struct ek_need need;    /* what the run holds, as it was summed then */
    int64_t available_bytes; /* that it was held against */

    bool is_resumed;
    struct ek_train_progress progress;
    struct ek_batch batch; /* the micro-batch under way, for faults */

    /* log */
    int folder;                 /* run.dir, locked while run goes; -1: not */
    FILE *log;                  /* run.dir/log.jsonl while run goes */
    struct ek_scalars *scalars; /* run.dir/tensorboard, the same */
    struct ek_buf line;
    struct ek_train_sums all;    /* of this process, intervals that are closed */
    struct ek_train_sums before; /* of progress.interval: what a resume brought along */
    double last_loss, last_norm, last_rate; /* norm: NAN where nothing is clipped */
    double interval_mfu;                    /* of the interval before; NAN: none */
    double peak;                            /* FLOP/s of this machine */
    int64_t n_micro_done;                   /* micro-batches that the graph has timed */
    struct ek_evaluation valid, test;       /* of the best step, behind the end */
    bool has_test;
    int64_t last_eval_step; /* of what a resume goes on from, -1: none was due there */
    bool is_stopped_early;
};

/* setup.c; t is zeroed. On failure t is only freeable. */
int ek_train_setup(struct ek_train *t, struct ek_err *err) EK_MUST_USE;

/* step.c: the step that begins with micro-batch `first`; the loader gives the rest.
 * *loss: mean over the step's targets. Errors: as ek_train_run says. */
int ek_train_step(struct ek_train *t, const struct ek_batch *first, double *loss,
                  struct ek_err *err) EK_MUST_USE;

/* Negatives of micro-batch `micro` of optimizer step `step`: uniform over [0, n_items)
 * with repetition; they depend on nothing else. */
void ek_train_draw(int32_t *out, int64_t n, int64_t n_items, uint64_t seed,
                   int64_t step, int micro);

/* explain.c: the plan of a step's memory: the arena at its ceiling, parameters, dense
 * gradients, what optimizers keep. */
int64_t ek_train_planned_bytes(const struct ek_train *t);

/* Sums of the interval move to those of the run. */
void ek_train_close_interval(struct ek_train *t);

/* Binds a loader's batch with the negatives of t->progress.steps. */
int ek_train_bind(struct ek_train *t, const struct ek_batch *batch,
                  struct ek_err *err) EK_MUST_USE;

/* The step that a graph's dropout is drawn from. */
uint64_t ek_train_graph_step(const struct ek_train *t, int micro);

/* fault.c: the sentence about a loss that is not finite, for the batch that is
 * bound. */
int ek_train_fault(struct ek_train *t, double loss, struct ek_err *err);

/* EK_EINVAL with its name, row and step when a parameter is not finite. */
int ek_train_check_params(const struct ek_train *t, struct ek_err *err) EK_MUST_USE;

/* runlog.c; each ends with on_line and the file. */
int ek_train_log_open(struct ek_train *t, struct ek_err *err) EK_MUST_USE;
int ek_train_log_close(struct ek_train *t, struct ek_err *err) EK_MUST_USE;
int ek_train_log_steps(struct ek_train *t, struct ek_err *err) EK_MUST_USE;
int ek_train_log_valid(struct ek_train *t, const struct ek_evaluation *e, bool is_best,
                       struct ek_err *err) EK_MUST_USE;
int ek_train_log_end(struct ek_train *t, struct ek_err *err) EK_MUST_USE;

struct ek_train_mfu {
    double local, end_to_end, ratio; /* NAN: nothing measured */
};
void ek_train_mfu(struct ek_train_mfu *m, const struct ek_train *t);

/* "ndcg@10": the watched metric's name, its value, and whether that beats another. NAN
 * beats nothing and is beaten by everything. */
const char *ek_train_metric_name(char out[24], const struct ek_train_config *c);
double ek_train_metric(const struct ek_evaluation *e, const struct ek_train_config *c);
bool ek_train_is_better(double value, double best, const struct ek_train_config *c);

/* peak.c: FLOP/s of multiply-adds on registers, all members of the team at once. */
double ek_train_peak(struct ek_team *team, enum ek_isa isa, bool is_bf16);

#endif
