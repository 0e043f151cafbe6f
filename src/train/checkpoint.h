/* checkpoint.h - a state of training on disk: parameters, optimizers, where it stands.
 *
 *   RUN/checkpoints/last/            written beside it, fsynced, then exchanged with it
 *       config.json                  the resolved configuration, as it was given
 *       model.safetensors            a tensor (rows, cols) a parameter, f32
 *       optimizer.safetensors        "adamw.m.NAME" "adamw.v.NAME" "adagrad.NAME"
 *       manifest.json                format, progress, data, digests
 *
 * A kill at any moment leaves one that loads (base/folder.h). The manifest is the last
 * file written, names the others with size and CRC32 and ends with its own: what it
 * does not describe is not a checkpoint. Loading trusts nothing: digests, names and
 * shapes are checked before a number is taken; on failure everything is unchanged.
 *
 * Threads: one owner; one writer of a folder. A reader in another process may come at
 * any moment. Errors name the file and what would be right.
 */
#ifndef EVENKEEL_TRAIN_CHECKPOINT_H
#define EVENKEEL_TRAIN_CHECKPOINT_H

#include "base/err.h"
#include "graph/params.h"
#include "train/adagrad.h"
#include "train/adamw.h"

#include <stdint.h>

#define EK_CHECKPOINT_FORMAT 1

/* Sums over steps: of an interval of the log, or of a run. */
struct ek_train_sums {
    double loss; /* of the steps, to be divided by steps */
    int64_t steps, sequences, tokens, flops;
    double seconds; /* of training alone: neither evaluation nor checkpoints */
};

/* Where training stands: everything a bitwise resume needs beside the numbers. */
struct ek_train_progress {
    int64_t epoch, step;       /* of the loader: the step that comes next */
    int64_t steps;             /* optimizer steps done, all epochs */
    int64_t sequences, tokens; /* seen, all epochs */
    uint64_t seed;
    double best; /* of the metric that early stopping watches; NAN: none */
    int64_t best_step;
    int64_t evals_since_best;
    double seconds;   /* of training, resumed parts together */
    int64_t eval_due; /* 1: stopped within a validation, with which a resume begins */
    struct ek_train_sums interval; /* behind the log's latest line; steps 0: none */
};

struct ek_checkpoint {
    struct ek_params *params;         /* borrowed */
    struct ek_adamw_state *adamw;     /* NULL: no optimizer state is written or read */
    struct ek_adagrad_state *adagrad; /* the same */
    struct ek_train_progress progress;
    const char *config; /* the resolved configuration as JSON text; borrowed */
    const char *data; /* what it was trained on, for a person and for a check; UTF-8 */
};

/* folder: ".../last"; the one it lies in is made when it is not there. Streams: no copy
 * of a parameter is made. Errors: EK_EIO (disk full included), EK_EPERM, EK_ENOENT,
 * EK_EINVAL a folder is there that is no checkpoint, EK_ENOMEM: the old one stays. */
int ek_checkpoint_save(const char *folder, const struct ek_checkpoint *c,
                       struct ek_err *err) EK_MUST_USE;

/* Which checkpoint `folder` means, as peek and load take it: itself, or, of a run's
 * folder, checkpoints/best in it, or checkpoints/last. Errors: EK_ENOENT none is. */
int ek_checkpoint_find(char out[4096], const char *folder,
                       struct ek_err *err) EK_MUST_USE;

/* The configuration and progress alone; *config and *data are owned by the caller
 * (ek_free). Errors: EK_ENOENT there is none; EK_EIO; EK_EFORMAT truncated, other
 * sizes, flipped bytes; EK_EUNSUP a newer format; EK_ENOMEM. */
int ek_checkpoint_peek(const char *folder, char **config, char **data,
                       struct ek_train_progress *progress,
                       struct ek_err *err) EK_MUST_USE;

/* Fills c->params, which the model has added its parameters to, the optimizers that are
 * not NULL, and the progress; config and data are not touched. Errors: as above;
 * EK_EFORMAT of another model: the parameter and both shapes. */
int ek_checkpoint_load(const char *folder, struct ek_checkpoint *c,
                       struct ek_err *err) EK_MUST_USE;

#endif
