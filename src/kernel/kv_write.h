/* kv_write.h - new keys and values into their pages, and the rotation before it.
 *
 * f32 and bf16 take every number to the nearest of its kind. e4m3 has 3 bits behind the
 * point, and what a key loses there moves every later score, so there are two helps:
 *
 *   rotate   x <- H x / sqrt(n) on queries, keys and values, H the Hadamard matrix, and
 *            once more on what attention gives: q . k stays, and sum p v comes back; a
 *            few large coordinates become many of middling size, whose errors average
 *            out
 *   write    the coordinates of a key are rounded in ascending order; what is left of
 *            the error in q . k is spread over those that follow, by least squares:
 *              r_i = sum_{j<i} q_j (k_j - k^_j)
 *              k^_i = e4m3(k_i + r_i q_i / (lambda + sum_{j>=i} q_j^2))
 *            with q the sum of the row's own queries that read this kv head, for later
 *            queries of a head mostly point where this one does; lambda keeps
 *            |k - k^| small too.
 * Rotated values are rounded to the nearest: their errors average out over the tokens.
 * SmolLM2-135M, KL divergence of the predictions: docs/design/lm.md.
 * Source: rotation as in Ashkboos et al. 2024, "QuaRot"; the rounding is the sequential
 * one of Chee et al. 2023, "QuIP" (LDLQ) for a matrix lambda I + q q^T.
 */
#ifndef EVENKEEL_KERNEL_KV_WRITE_H
#define EVENKEEL_KERNEL_KV_WRITE_H

#include "kernel/attn.h"

#define EK_KV_LAMBDA 1.0f   /* lambda = this * |q|^2 / D + EK_KV_TINY */
#define EK_KV_TINY   1e-30f /* keeps it above 0 */

/* x (T,heads,D) in place, rows ldx apart: each head, in blocks of the largest power of
 * two that divides D, is transformed. Its own inverse. Every variant gives the same
 * bits. */
typedef void ek_rotate_fn(float *x, int64_t ldx, int64_t T, int64_t heads, int64_t D);

struct ek_kv_rows {
    const float *q; /* (rows,H*D) as attention will read them; NULL: keys to nearest */
    const float *k, *v; /* (rows,K*D) */
    int64_t ldq, ldk, ldv;
    const int64_t *slot; /* (rows) page*page_tokens + token */
};

/* Stores rows [t0,t1) in their slots. Returns how many e4m3 values would have left the
 * range (0 for other types). Every variant writes the same bits. */
typedef int64_t ek_kv_write_fn(void *k_pool, void *v_pool, const struct ek_kv_rows *r,
                               int64_t t0, int64_t t1, const struct ek_attn_dims *d);

#endif
