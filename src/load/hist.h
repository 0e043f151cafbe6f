/* hist.h - a distribution of durations in fixed memory: what millions of gaps between
 * tokens cost is one counter each.
 *
 * Values are nanoseconds. Below 256 each has its own bucket, above it every power of
 * two is cut into 256 buckets:
 *
 *   0 1 2 ... 255 | 256 257 ... 511 | 512 514 ... 1022 | 1024 1028 ... | ... 2^45
 *
 * Invariant: the sum of counts is n; min and max are exact, and so is the sum.
 * Accuracy: a quantile is within 0.2 % of a value that was recorded (test_hist.c).
 */
#ifndef EVENKEEL_LOAD_HIST_H
#define EVENKEEL_LOAD_HIST_H

#include <stddef.h>
#include <stdint.h>

#define EK_HIST_BUCKETS (38 * 256) /* the last takes everything from 2^45 ns (9.8 h) */

struct ek_hist {
    uint64_t counts[EK_HIST_BUCKETS];
    uint64_t n;
    double sum;       /* ns */
    int64_t min, max; /* ns; 0 while n is 0 */
};

/* A zeroed struct is an empty one. ns below 0 counts as 0. */
void ek_hist_add(struct ek_hist *h, int64_t ns);

/* All of `from` into h. */
void ek_hist_merge(struct ek_hist *h, const struct ek_hist *from);

/* The nearest-rank quantile, 0 <= q <= 1, in ns: the middle of the bucket that holds
 * the value of rank ceil(q n), within [min, max]. 0 when nothing was recorded. */
double ek_hist_quantile(const struct ek_hist *h, double q);
double ek_hist_mean(const struct ek_hist *h); /* ns; 0 when nothing was recorded */

/* How many values lie in [from_ns, to_ns), by the middles of their buckets. */
uint64_t ek_hist_between(const struct ek_hist *h, double from_ns, double to_ns);

#endif
