/* batch.h - what a step of training is given: sequences side by side, without padding.
 *
 *   offsets  0      3    5          9        B + 1 of them; offsets[B] = T
 *   items    a b c  d e  f g h i             sequence b is [offsets[b], offsets[b + 1])
 *   targets  b c x  e y  g h i z             the item that follows each position
 *
 * Only views: the loader owns what they point at, until its next batch. Rows of a
 * sequence are in the order of time. A sequence has at least one row.
 */
#ifndef EVENKEEL_TRAIN_BATCH_H
#define EVENKEEL_TRAIN_BATCH_H

#include "data/events.h"

#include <stdint.h>

#define EK_BATCH_NO_TARGET (-1)

struct ek_batch {
    int64_t B, T;           /* sequences; rows of all of them together */
    const int64_t *offsets; /* (B+1) from 0, rising, to T */
    const int32_t *items;   /* (T) in [0, n_items) of the log */
    const int64_t *times;   /* (T) microseconds, never falling within a sequence; NULL:
                               the log has none */
    const int32_t *targets; /* (T) the next item, or EK_BATCH_NO_TARGET: no loss here */
    const int64_t *events;  /* (T) rows of the log that the items are */
    const int64_t *users;   /* (B) rows of the log's users; one user may come twice */

    /* The log's columns, in its order; gathered for this batch. */
    int n_columns;
    struct ek_batch_column {
        const struct ek_column *of; /* borrowed from the log: name, kind, levels */
        const float *numbers;       /* (T), or (B) for a column of users; or NULL */
        const int32_t *levels;      /* the same for categories; or NULL */
    } columns[EK_EVENTS_COLUMNS_MAX];

    /* Where it belongs. Gradients of a step's micro-batches are summed, and divided by
     * step_targets: then any number of them gives the loss of one. */
    int64_t epoch, step;  /* from 0; steps count anew in each epoch */
    int micro, n_micro;   /* this one of the step's */
    int64_t n_targets;    /* of this micro-batch */
    int64_t step_targets; /* of all n_micro */
    int64_t step_sequences;
};

#endif
