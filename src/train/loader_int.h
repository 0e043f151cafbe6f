/* loader_int.h - samples, their order and the storage of batches; private to train/. */
#ifndef EVENKEEL_TRAIN_LOADER_INT_H
#define EVENKEEL_TRAIN_LOADER_INT_H

#include "train/loader.h"

#include <pthread.h>

/* Rows [begin, begin + length) are inputs. */
struct ek_sample {
    int64_t begin;
    int32_t user, length;
};

struct ek_sub_batch {
    int64_t first, n; /* samples of the order */
    int64_t rows;     /* weight */
    int micro;        /* whose it is */
};

/* A batch's arrays, at the ceiling. */
struct ek_batch_room {
    int64_t *offsets, *times, *events, *users;
    int32_t *items, *targets;
    void *columns[EK_EVENTS_COLUMNS_MAX];
    struct ek_batch batch; /* views of the above */
    bool is_end;           /* not a batch but the epoch's end */
};

/* What makes batches, in whichever thread. */
struct ek_maker {
    const struct ek_events *e;
    const struct ek_split *split;
    struct ek_loader_options o;
    struct ek_sample *samples; /* owned */
    int64_t n_samples, n_targets;
    int64_t *order; /* (n_samples) owned: of `epoch` */
    int64_t max_rows, max_sequences;

    int64_t epoch, step;
    int64_t at;                /* samples of the order that are behind */
    int micro, n_micro;        /* of the step under way; n_micro 0: none */
    struct ek_sub_batch *subs; /* of the step, as dealt; owned */
    int64_t *cuts;             /* (n_micro+1) owned, with the next two: micro m has subs
                                  [cuts[m], cuts[m+1]) */
    int64_t *micro_rows, *micro_subs; /* (n_micro) while a step is dealt */
    int64_t step_targets, step_sequences;
    size_t bytes; /* of what it owns */
};

int ek_maker_init(struct ek_maker *m, const struct ek_events *e,
                  const struct ek_split *split, const struct ek_loader_options *o,
                  struct ek_err *err) EK_MUST_USE;
void ek_maker_release(struct ek_maker *m); /* may be zeroed */
void ek_maker_seek(struct ek_maker *m, int64_t epoch, int64_t step);

/* Fills room with the next batch or the epoch's end. */
void ek_maker_next(struct ek_maker *m, struct ek_batch_room *room);
int64_t ek_maker_steps(struct ek_maker *m);

/* Adds what a room holds to *sum. False: it overflows. */
bool ek_batch_room_bytes(size_t *sum, const struct ek_maker *m) EK_MUST_USE;
int ek_batch_room_init(struct ek_batch_room *r, const struct ek_maker *m) EK_MUST_USE;
void ek_batch_room_release(struct ek_batch_room *r); /* may be zeroed */

/* Copies the subs' samples into room. */
void ek_batch_fill(struct ek_batch_room *r, const struct ek_maker *m,
                   const struct ek_sub_batch *subs, int64_t n_subs);

#endif
