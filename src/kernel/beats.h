/* beats.h - how many scores come before one score in a ranking, best first; at equal
 * scores the item of the lower index comes first. Nothing is sorted or kept.
 *
 *   n = #{i in [0,split): x[i] >= s} + #{i in [split,n): x[i] > s}
 *
 *   x      (n) n >= 0
 *   split  0..n: items from here on have a higher index than that of s (or are it)
 * NaN, in x or as s, counts as before s: a model that went wrong ranks nothing well.
 * Threads: any. Cost: one pass, no allocation. Exact.
 */
#ifndef EVENKEEL_KERNEL_BEATS_H
#define EVENKEEL_KERNEL_BEATS_H

#include <stdint.h>

typedef int64_t ek_beats_fn(const float *x, int64_t n, int64_t split, float s);

#endif
