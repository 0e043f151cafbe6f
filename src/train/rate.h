/* rate.h - the share of the learning rates that holds at a step.
 *
 *   steps    0 ........ warmup ................ total
 *   share    rises      1, or the cosine from 1 to `end`
 *            linearly
 */
#ifndef EVENKEEL_TRAIN_RATE_H
#define EVENKEEL_TRAIN_RATE_H

#include <stdbool.h>
#include <stdint.h>

struct ek_rate {
    int64_t warmup, total; /* steps; the last of warmup has the full rate */
    bool is_cosine;
    double end;
};

/* step counts from 0; behind total it stays at the end. In [0,1]. */
double ek_rate_at(const struct ek_rate *r, int64_t step);

#endif
