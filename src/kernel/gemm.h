/* gemm.h - c[m,n] = [c[m,n] +] sum_k a[m,k] b[k,n]  for training: forward, dX and dW of
 * a linear layer are three settings of a's strides.
 *
 *   a     (M,K)      element (m,k) at a[m*am + k*ak]
 *   b     (K,N)      packed: row k at b[k*ldb], or, bf16, pairs of rows (below)
 *   c     (M,N) out  rows ldc apart; no alias
 *   is_added         c's old value is the start of the sum
 *   start (N)        else of each row's sum; NULL: zero
 *
 *   y  = x w      a = x  (am = ldx, ak = 1)    b = w
 *   dx = dy w^T   a = dy (am = ld,  ak = 1)    b = w^T, by pack
 *   dw = x^T dy   a = x  (am = 1,  ak = ldx)   b = dy
 *
 * pack writes the b of the call from a matrix in f32 of any strides; f32 with rows that
 * are contiguous needs none. bf16 rounds a on the way and sums in f32:
 *
 *   bf16 b: uint32 b[k/2][n] = bf16(k, n) | bf16(k+1, n) << 16; an odd K ends in zeros
 *
 * Bits of a row depend on K and that row alone, not on M, N or the place of the row.
 * Threads: any; work is given in ranges by pointer. Cost: 2 M N K, no allocation.
 * Accuracy: tests/kernel/test_gemm.c: K eps relative to sum |a b|; bf16 2^-8 a term.
 */
#ifndef EVENKEEL_KERNEL_GEMM_H
#define EVENKEEL_KERNEL_GEMM_H

#include "num/cpu.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ek_gemm {
    int64_t M, N, K;
    const float *a;
    int64_t am, ak;
    const void *b;
    int64_t ldb; /* in floats or pairs */
    float *c;
    int64_t ldc;
    bool is_added;
    const float *start;
};

typedef void ek_gemm_fn(const struct ek_gemm *g);

/* dst (K,N) with rows ldd apart, or (ceil(K/2),N) pairs; src element (k,n) at
 * src[k*sk + n*sn]. */
typedef void ek_gemm_pack_fn(void *dst, int64_t ldd, const float *src, int64_t sk,
                             int64_t sn, int64_t K, int64_t N);

struct ek_gemm_ops {
    ek_gemm_fn *f32, *bf16;
    ek_gemm_pack_fn *pack_f32, *pack_bf16;
};

/* The variant for `isa`, as ek_ops_get. */
const struct ek_gemm_ops *ek_gemm_ops_get(enum ek_isa isa);

/* Bytes of a packed b. */
static inline size_t ek_gemm_pack_bytes(int64_t K, int64_t N, bool is_bf16)
{
    return (size_t)(is_bf16 ? (K + 1) / 2 : K) * (size_t)N * 4;
}

#endif
