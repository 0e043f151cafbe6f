/* pick.h - over one row of logits, in blocks: what one pass learns about each block
 * lets the search for the largest, for candidates or for a drawn token skip the others.
 *
 *   peaks   max[b] = the largest of x in block b; NaN is passed over (-inf: nothing but
 *           NaN). True when all of x is finite.
 *   weigh   e[v] = exp((x[v]-top)/T), exp(0) exactly 1;  max[b], sum[b] of e's block.
 *           With top the largest of x, e lies in [0,1]. x finite; e may be x.
 *
 *   x, e      (n) n >= 1; block b is [b*EK_PICK_BLOCK, ...), the last one shorter
 *   max, sum  (ek_pick_blocks(n)); sum in f64, in an order that depends on n only
 * Accuracy: exp within 4e-7 of its value, sums within 1e-12 of those of e
 *           (tests/kernel/test_pick.c). Cost: one pass each.
 */
#ifndef EVENKEEL_KERNEL_PICK_H
#define EVENKEEL_KERNEL_PICK_H

#include <stdbool.h>
#include <stdint.h>

#define EK_PICK_BLOCK 128

static inline int64_t ek_pick_blocks(int64_t n)
{
    return (n + EK_PICK_BLOCK - 1) / EK_PICK_BLOCK;
}

typedef bool ek_peaks_fn(float *max, const float *x, int64_t n);
typedef void ek_weigh_fn(float *e, float *max, double *sum, const float *x, int64_t n,
                         float top, float temperature);

/* Index of the largest of x, the lowest at a tie, by the max of peaks. 0 when there is
 * nothing but NaN. */
int64_t ek_peaks_argmax(const float *x, int64_t n, const float *max);

#endif
