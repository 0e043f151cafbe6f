/* need.h - what a run will hold, part by part: summed before any of it is taken, and
 * held against what the machine has for the process. Linux gives memory before it has
 * it and kills who touches what is not there; a run that cannot fit is told instead.
 *
 *   parts    sizes from the functions that take them (ek_param_bytes, ek_rec_bytes,
 *            ek_loader_measure, ek_evaluate_measure, ...): no formula is there twice
 *   refusal  the sum, the largest parts with their keys, what there is, what to lower
 *
 * Threads: values only.
 */
#ifndef EVENKEEL_TRAIN_NEED_H
#define EVENKEEL_TRAIN_NEED_H

#include "base/buf.h"
#include "train/config.h"

enum ek_need_part {
    EK_NEED_ITEMS,     /* the items: values, gradient, what the optimizer keeps */
    EK_NEED_POSITIONS, /* the same of positions */
    EK_NEED_COLUMNS,   /* of categories' tables */
    EK_NEED_LAYERS,    /* of every other parameter */
    EK_NEED_STEP,      /* arena and inputs of the graph that trains */
    EK_NEED_ROWS,      /* gradient rows of tables, of all micro-batches of a step */
    EK_NEED_BATCHES,   /* batches made ahead, and the list of samples */
    EK_NEED_RANKING,   /* the graph that ranks, and what an evaluation takes */
    EK_NEED_PARTS
};

struct ek_need {
    size_t bytes[EK_NEED_PARTS];
};

/* Which part a parameter belongs to, by its name. */
enum ek_need_part ek_need_of_param(const char *name);

/* Errors: EK_ELIMIT the parts sum to more than `available` bytes, or to more than a
 * number can tell: "memory: ...", with the values that the keys have in c. */
int ek_need_check(const struct ek_need *n, int64_t available,
                  const struct ek_train_config *c, struct ek_err *err) EK_MUST_USE;

/* The same refusal for a part whose own size overflows. */
int ek_need_overflow(enum ek_need_part part, const struct ek_train_config *c,
                     struct ek_err *err);

/* "1.2 GiB: layers 1.0 GiB, a step 0.2 GiB", largest first, empty parts left out, all
 * of them. Errors: EK_ELIMIT, EK_ENOMEM, those of out. */
int ek_need_text(struct ek_buf *out, const struct ek_need *n) EK_MUST_USE;

#endif
