/* grace.h - what threads may be looking at is freed once all have looked away: after a
 * grace period, as in read-copy-update.
 *
 * The main thread takes a thing away (others can no longer get at it), raises the
 * router's generation and wakes the reactors. Each of them writes down the generation
 * it saw at a moment when it has nothing in hand, between two callbacks of its loop;
 * when all have written down one as high, nobody looks any more. No reader waits or
 * counts.
 *
 * Owner thread: the main thread's.
 */
#ifndef EVENKEEL_ROUTE_GRACE_H
#define EVENKEEL_ROUTE_GRACE_H

#include "base/link.h"

#include <stdbool.h>
#include <stdint.h>

struct ek_router;

/* First member of what is freed so: nothing is allocated to free it. */
struct ek_graced {
    struct ek_link link; /* of router->graced */
    int64_t generation;
    void (*drop)(struct ek_graced *g);
};

/* Something was changed: every reactor looks at it soon. The generation to wait for. */
int64_t ek_grace_begin(struct ek_router *r);
/* Has every reactor seen it, with nothing older in hand? */
bool ek_grace_is_over(const struct ek_router *r, int64_t generation);

/* Nobody can get at g any more: it is freed after a grace period that begins now. */
void ek_grace_put(struct ek_router *r, struct ek_graced *g,
                  void (*drop)(struct ek_graced *g));
/* Frees those whose grace period is over; all: every one, the threads have ended. */
void ek_grace_work(struct ek_router *r, bool all);

#endif
