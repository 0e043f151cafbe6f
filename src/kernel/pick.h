/* pick.h - over one row of logits: softmax, argmax, top-k.
 *
 *   (softmax and argmax: n >= 1)
 *   softmax  p[v] = exp((x[v]-max)/T) / sum;  p may be x; returns log sum exp of x/T
 *   argmax   index of the largest, the lowest index at a tie; NaN is never larger
 *   top_k    the k largest in descending order, ties by index; k <= n
 */
#ifndef EVENKEEL_KERNEL_PICK_H
#define EVENKEEL_KERNEL_PICK_H

#include <stdint.h>

typedef double ek_softmax_fn(float *p, const float *x, int64_t n, float temperature);
typedef int64_t ek_argmax_fn(const float *x, int64_t n);

/* ids[k] and x[ids[k]] in values[k] (may be NULL). Cost: O(n log k), no allocation. */
void ek_top_k(int32_t *ids, float *values, int64_t k, const float *x, int64_t n);

#endif
