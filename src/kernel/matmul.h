/* matmul.h - y[t,n] = sum_k x[t,k] w[n,k], (+)= by mode, w packed by kernel/weight.h.
 *
 * In two parts, so that activations are converted once for all weights that share them
 * (q, k, v; gate, up):
 *
 *   prepare   x (T,K) f32, rows ldx apart -> `act`, in the form the weight needs:
 *               F32 -> f32;  BF16, E4M3 -> bf16;  integers -> groups of 32 with an f32
 *               scale: i8, and 12 bits and a sign for the two quads of columns that are
 *               largest (i8 alone would cost 0.3 % of perplexity, this 0.01:
 *               docs/design/kernel.md)
 *   matmul    rows n0..n1 of y from the prepared rows 0..T
 *
 *   y     (T,N) out  rows ldy >= N apart; only columns [n0,n1) are touched
 *   act   ek_matmul_act_bytes(format, T, K) bytes, 64-byte aligned
 *   n0,n1 multiples of EK_PANEL, or n1 == N
 * Accumulation: f32, groups in ascending k, in an order that does not depend on T, n0
 *           or n1: a row's result is the same bits alone and in a batch. (Across ISAs
 *           results differ by rounding; bounds in tests/kernel/test_matmul.c.)
 * Threads:  disjoint [n0,n1) at once; prepare: disjoint [t0,t1) at once
 * Cost:     2 T (n1-n0) K FLOP; one pass over the weight rows for each block of T
 */
#ifndef EVENKEEL_KERNEL_MATMUL_H
#define EVENKEEL_KERNEL_MATMUL_H

#include "kernel/weight.h"

enum ek_matmul_mode { EK_MATMUL_SET, EK_MATMUL_ADD };

/* 0 on overflow. */
size_t ek_matmul_act_bytes(enum ek_weight_format f, int64_t T, int64_t K);

typedef void ek_matmul_prepare_fn(void *act, enum ek_weight_format f, const float *x,
                                  int64_t ldx, int64_t T, int64_t K, int64_t t0,
                                  int64_t t1);
typedef void ek_matmul_fn(float *y, int64_t ldy, const void *act,
                          const struct ek_weight *w, int64_t T, int64_t n0, int64_t n1,
                          enum ek_matmul_mode mode);

#endif
