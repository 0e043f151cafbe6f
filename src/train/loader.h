/* loader.h - batches from a log: what is in them, in which order, made ahead of time.
 *
 * Samples.  Training: a user's part of the split, or its latest max_length + 1 rows;
 * every row but the last is an input, the row behind it its target. Validation and
 * test: each row of that part is one sample, with the max_length rows before it as
 * inputs and one target, at the last of them. A user without an input gives none.
 *
 * Order.  Training shuffles the samples anew in each epoch. A step takes the next
 * batch * n_micro of them as sub-batches of sub_batch; these are sorted by the sum of
 * their lengths and dealt, heaviest first, each to the micro-batch that has the fewest
 * rows and still room: the heaviest meet the lightest, and the step's micro-batches
 * (one a rank, or one after the other) get about as many rows (base batch shuffling, as
 * published for GEM). With max_tokens a micro-batch takes
 * samples while their rows fit. Everything follows from (seed, epoch, step): a loader
 * that is sought to a step gives the batches that one gives which came there.
 *
 * Threads: one owner. With n_ahead a thread of its own prepares that many batches.
 */
#ifndef EVENKEEL_TRAIN_LOADER_H
#define EVENKEEL_TRAIN_LOADER_H

#include "data/events_split.h"
#include "train/batch.h"

#include <stdbool.h>

#define EK_LOADER_AHEAD_MAX 16
#define EK_LOADER_MICRO_MAX 4096

enum ek_part { EK_PART_TRAIN, EK_PART_VALID, EK_PART_TEST };

struct ek_loader_options {
    enum ek_part part;
    uint64_t seed;
    int64_t max_length; /* inputs of a sequence, >= 1 */
    int64_t batch;      /* sequences of a micro-batch, >= 1; with max_tokens at most */
    int n_micro;        /* of a step, 1 to EK_LOADER_MICRO_MAX; 0: 1 */
    int64_t sub_batch;  /* divides batch; 0: the largest divisor up to 128; over batch:
                           batch */
    int64_t
        max_tokens; /* rows of a micro-batch; 0: by sequences. A longer sequence is a
                           batch of its own */
    bool
        cuts_windows; /* training: rows before the latest max_length, too, in samples of
                           max_length counted from the end */
    int n_ahead;      /* 0: prepared when asked for, in the caller's thread */
};

struct ek_loader;

/* Borrows events and split until free. Errors: EK_EINVAL options out of range, or no
 * sample (which, and what would be right); EK_ENOMEM (for a thread, too). */
int ek_loader_new(struct ek_loader **loader, const struct ek_events *events,
                  const struct ek_split *split, const struct ek_loader_options *o,
                  struct ek_err *err) EK_MUST_USE;
void ek_loader_free(struct ek_loader *l); /* NULL is fine */

/* What ek_loader_new would make of the same, without its batches and its thread. */
struct ek_loader_size {
    int64_t max_sequences, max_rows; /* ek_loader_ceiling */
    int64_t n_samples;               /* ek_loader_samples */
    int n_micro;  /* of a step, at most: what the options say, or fewer samples make */
    size_t bytes; /* that it would hold */
};

/* Errors: those of ek_loader_new; EK_ELIMIT a sum overflows.
 * Cost: a list of the samples, freed again. */
int ek_loader_measure(struct ek_loader_size *size, const struct ek_events *events,
                      const struct ek_split *split, const struct ek_loader_options *o,
                      struct ek_err *err) EK_MUST_USE;

/* The next batch; its arrays are good until the next call of any function here. False:
 * the epoch is over; the call after that begins the next one. Cannot fail. */
bool ek_loader_next(struct ek_loader *l, struct ek_batch *batch);

/* What comes next is step `step` of `epoch`, at its first micro-batch; a step behind
 * the epoch's last one: its end. To go on where a checkpoint was taken behind a step,
 * seek to that batch's epoch and step + 1. Errors: EK_ENOMEM no thread. */
int ek_loader_seek(struct ek_loader *l, int64_t epoch, int64_t step,
                   struct ek_err *err) EK_MUST_USE;

int64_t ek_loader_samples(const struct ek_loader *l); /* of an epoch; >= 1 */
int64_t ek_loader_targets(const struct ek_loader *l); /* of an epoch */

/* Steps of an epoch; with max_tokens those of epoch 0, others may differ a little. */
int64_t ek_loader_steps(const struct ek_loader *l);

/* Ceilings of every batch there can be: for arenas. */
void ek_loader_ceiling(const struct ek_loader *l, int64_t *sequences, int64_t *rows);

#endif
