/* attn.h - attention of a mixed batch of prefill chunks and decode tokens over paged
 * keys and values (written by kernel/kv_write.h).
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
 * Positions are cut, at fixed places, into blocks of 64 and spans of 256. An online
 * softmax in f32 takes the blocks of a span in ascending order, and the sums of the
 * spans, each begun anew, are merged in ascending order. That is the same for prefill
 * and decode, however spans are shared among threads: the same bits for the same
 * position.
 *
 * Accuracy (tests/kernel/test_attn.c), for |q|, |k|, |v| <= 1:
 *   f32, bf16  keys and values are widened exactly; 2e-5 of the formula
 *   e4m3       q is rounded to bf16 first, in every variant: a 32nd of the rounding
 *              that its keys have been through. AVX-512 also rounds the weights
 *              exp(s - max) to bf16; 2e-3 of the formula with that q.
 * Source: Dao 2023, "FlashAttention-2"; Kwon et al. 2023, "PagedAttention"; Dao et al.
 * 2023, "Flash-Decoding" (spans).
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
    int64_t item0;    /* set by ek_attn_cut: its first item */
    int64_t part0;    /* set by ek_attn_cut: its first row of parts, -1: not split */
    int32_t n_heads;  /* set by ek_attn_cut: kv heads of an item, 1 or all */
};

#define EK_HEAD_DIM_MAX 256

struct ek_attn_dims {
    int32_t H, K, D;        /* query heads, kv heads (K divides H), head dim */
    int32_t page_tokens;    /* a multiple of 16 */
    enum ek_dtype kv_dtype; /* F32, BF16 or E4M3 */
    float scale;            /* of q.k: 1/sqrt(D) mostly */
    int32_t window;         /* 0: none */
    float softcap;          /* 0: none */
    const float *k_scale;   /* (K) E4M3: stored = value/scale; NULL: 1 */
    const float *v_scale;   /* (K) */
};

#define EK_ATTN_TILE  16  /* queries of one item at most */
#define EK_ATTN_BLOCK 64  /* positions of one softmax step */
#define EK_ATTN_SPAN  256 /* positions whose sums begin anew */

/* Cuts the batch into items, and returns how many. In prefill an item is a tile of up
 * to EK_ATTN_TILE queries of one sequence and one kv head. In decode it is a sequence
 * with all kv heads, whose pages are then read from end to end. Where that makes fewer
 * than `want` items, sequences of one tile whose sums fit into what is left of
 * n_part_rows are cut into items of one span each: their sums go to the parts, and
 * ek_attn_merge_fn joins them. And where it still makes fewer, into kv heads.
 * Both cost a little, so `want` is a few items a thread.
 *   seqs (n_seqs) in out   item0, part0 and n_heads are set */
int64_t ek_attn_cut(struct ek_attn_seq *seqs, int64_t n_seqs,
                    const struct ek_attn_dims *d, int64_t want, int64_t n_part_rows);

/* Bytes of one row of parts; the parts are 64-byte aligned. A split sequence takes
 * spans * n_tokens * H rows. */
size_t ek_attn_part_bytes(const struct ek_attn_dims *d);

/* Bytes of scratch one thread needs, a multiple of 64; 64-byte aligned. */
size_t ek_attn_scratch_bytes(const struct ek_attn_dims *d);

struct ek_attn_args {
    float *out;     /* (rows,H*D) out, rows ldo apart */
    const float *q; /* (rows,H*D), rows ldq apart */
    const void *k_pool, *v_pool;
    const struct ek_attn_dims *d;
    const struct ek_attn_seq *seqs; /* (n_seqs) as ek_attn_cut left them */
    int64_t ldo, ldq, n_seqs;
    float *parts; /* out: sums of spans; may be NULL when no sequence is split */
};

/* Items i0, i0 + step, ... below i1 of the batch.
 * Threads: disjoint items at once, each thread its own scratch. */
typedef void ek_attn_fn(const struct ek_attn_args *a, int64_t i0, int64_t i1,
                        int64_t step, void *scratch);

/* Rows [t0,t1) of out that belong to split sequences, from their parts; when all items
 * of those sequences are done. Other rows are left alone.
 * Threads: any rows at once, each thread its own scratch and, for the same rows, its
 * own out. */
typedef void ek_attn_merge_fn(const struct ek_attn_args *a, int64_t t0, int64_t t1,
                              void *scratch);

#endif
