/* norm.h - y[n,c] = x[n,c] * rstd[n] * (gain[c] + gain_offset),
 *          rstd[n] = 1/sqrt(mean_c x[n,c]^2 + eps)
 *
 *   y     (N,C) out  rows ldy apart; may be x
 *   x     (N,C)      rows ldx apart
 *   gain  (C)        gain_offset 1 is Gemma's (1+w) form, 0 everybody else's
 * Per-head norms of q and k are the same call with N = T*H, C = D.
 * Accumulation: f32 in lanes, joined in f64.
 * Cost:   O(N C), no allocation.  Accuracy: 2e-6 relative, tests/kernel/test_norm.c
 * Source: Zhang & Sennrich 2019, "Root Mean Square Layer Normalization"
 */
#ifndef EVENKEEL_KERNEL_NORM_H
#define EVENKEEL_KERNEL_NORM_H

#include <stdint.h>

typedef void ek_rmsnorm_fn(float *y, int64_t ldy, const float *x, int64_t ldx,
                           const float *gain, float gain_offset, float eps, int64_t N,
                           int64_t C);

#endif
