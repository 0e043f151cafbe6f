/* checkpoint.h - a state of training on disk: parameters, optimizers, where it stands.
 *
 *   RUN/checkpoints/last/            written as last.new-PID/, fsynced, renamed: a kill
 *       model.safetensors            at any moment leaves one that loads
 *       optimizer.safetensors        "adamw.m.NAME" "adamw.v.NAME" "adagrad.NAME"
 *       manifest.json                format, configuration, data, step, best, digests
 *
 * The manifest is the last file written and names the others with size and CRC32: what
 * it does not describe is not a checkpoint. Loading trusts nothing: names, shapes and
 * sizes are checked before a number is read, and the set is unchanged on failure.
 *
 * Threads: one owner. Errors name the file and what would be right.
 */
#ifndef EVENKEEL_TRAIN_CHECKPOINT_H
#define EVENKEEL_TRAIN_CHECKPOINT_H

#include "base/err.h"
#include "graph/params.h"
#include "train/adagrad.h"
#include "train/adamw.h"

#include <stdint.h>

#define EK_CHECKPOINT_FORMAT 1

/* Where training stands: everything a bitwise resume needs beside the numbers. */
struct ek_progress {
    int64_t epoch, step;       /* of the loader: the step that comes next */
    int64_t steps;             /* optimizer steps done, all epochs */
    int64_t sequences, tokens; /* seen, all epochs */
    uint64_t seed;
    double best; /* of the metric that early stopping watches; NAN: none */
    int64_t best_step;
    int64_t evals_since_best;
    double seconds; /* of training, resumed parts together */
};

struct ek_checkpoint {
    struct ek_params *params;     /* borrowed */
    struct ek_adamw_state *adamw; /* NULL: no optimizer state is written or read */
    struct ek_adagrad_state *adagrad;
    struct ek_progress progress;
    const char *config; /* the resolved configuration as JSON text; borrowed */
    const char *data;   /* what it was trained on, for a person and for a check */
};

/* folder: ".../last". Errors: EK_EIO (disk full included: the old one stays), ENOMEM. */
int ek_checkpoint_save(const char *folder, const struct ek_checkpoint *c,
                       struct ek_err *err) EK_MUST_USE;

/* The configuration and progress alone; *config is owned by the caller (ek_mem). folder
 * may be a run's folder: then checkpoints/best in it, or last. Errors: EK_EIO, EK_EFORMAT
 * (truncated, other sizes), EK_EUNSUP a newer format, EK_ENOMEM. */
int ek_checkpoint_peek(const char *folder, char **config, char **data,
                       struct ek_progress *progress, struct ek_err *err) EK_MUST_USE;

/* Fills c->params, which the model has added its parameters to, the optimizers and the
 * progress. Errors: as above; EK_EFORMAT of another model: the parameter and shapes. */
int ek_checkpoint_load(const char *folder, struct ek_checkpoint *c,
                       struct ek_err *err) EK_MUST_USE;

#endif
