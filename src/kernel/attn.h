/* attn.h - attention of a mixed batch of prefill chunks and decode tokens over paged
 * keys and values, and the write of new keys and values into their pages.
 *
 *   s[j] = scale * q . k[j];  s = cap*tanh(s/cap) if cap > 0;  out = softmax(s) V
 *   over keys j in (pos - window, pos] (window > 0), else [0, pos]
 *
 * One layer's pool: K and V apart, a (page, kv head) contiguous so that one decode head
 * streams it:
 *   k_pool  [page][kv head][token in page][D]    of kv dtype: f32, bf16 or e4m3
 *   v_pool  the same
 * Token `pos` of a sequence lies in page pages[pos / page_tokens], in slot
 * pos % page_tokens of it.
 *
 * Keys are taken in ascending blocks of page_tokens with an online softmax in f32, the
 * same for prefill and decode, so both give the same bits for the same position. Keys
 * and values are widened exactly and all sums are f32: every variant stays within
 * 2e-5 of the formula for |q|,|k|,|v| <= 1 (tests/kernel/test_attn.c).
 * Source: Dao 2023, "FlashAttention-2"; Kwon et al. 2023, "PagedAttention".
 */
#ifndef EVENKEEL_KERNEL_ATTN_H
#define EVENKEEL_KERNEL_ATTN_H

#include "num/dtype.h"

#include <stdint.h>

struct ek_attn_seq {
    const int32_t
        *pages;       /* page of each logical page, ceil((pos0+n_tokens)/page_tokens) */
    int32_t pos0;     /* position of the first query */
    int32_t n_tokens; /* queries: 1 in decode, a chunk in prefill */
    int64_t row0;     /* row of the first query in q and out */
};

struct ek_attn_dims {
    int32_t H, K, D;        /* query heads, kv heads (K divides H), head dim <= 256 */
    int32_t page_tokens;    /* 16 */
    enum ek_dtype kv_dtype; /* F32, BF16 or E4M3 */
    float scale;            /* of q.k: 1/sqrt(D) mostly */
    int32_t window;         /* 0: none */
    float softcap;          /* 0: none */
    const float *k_scale;   /* (K) E4M3: stored = value/scale; NULL: 1 */
    const float *v_scale;   /* (K) */
};

/* Work is cut into items: a tile of up to EK_ATTN_TILE queries of one sequence and one
 * kv head. Items of a batch are numbered; a caller runs any range of them. */
#define EK_ATTN_TILE 16
int64_t ek_attn_items(const struct ek_attn_dims *d, const struct ek_attn_seq *seqs,
                      int64_t n_seqs);

/* Bytes of scratch one thread needs; 64-byte aligned. */
size_t ek_attn_scratch_bytes(const struct ek_attn_dims *d);

/* Items [i0,i1) of the batch.
 *   out (rows,H*D) out, rows ldo apart    q (rows,H*D), rows ldq apart
 * Threads: disjoint items at once, each thread its own scratch. */
typedef void ek_attn_fn(float *out, int64_t ldo, const float *q, int64_t ldq,
                        const void *k_pool, const void *v_pool,
                        const struct ek_attn_dims *d, const struct ek_attn_seq *seqs,
                        int64_t n_seqs, int64_t i0, int64_t i1, void *scratch);

/* Rounds rows [t0,t1) of k and v (rows,K*D; ldk, ldv apart) to kv dtype (nearest even,
 * e4m3 saturating) and stores them: row t goes to slot[t] = page*page_tokens + token.
 * Returns how many e4m3 values would have left the range (0 for other types). */
typedef int64_t ek_kv_write_fn(void *k_pool, void *v_pool, const float *k, int64_t ldk,
                               const float *v, int64_t ldv, const int64_t *slot,
                               int64_t t0, int64_t t1, const struct ek_attn_dims *d);

#endif
