/* attn_int.h - the course of attention over pages, written once for all variants.
 *
 * ek_attn_run walks items, pages and rows; a variant brings the inner steps. So
 * every variant masks, clips the window and orders its blocks in the same way, and what
 * one query sees never depends on the queries beside it.
 *
 * A variant either widens a page to f32 once and takes it row by row (load, score,
 * update), or takes up to EK_ATTN_GROUP rows at once over a page as it lies (group).
 *
 * Scratch of one thread, f32, parts at multiples of 64 bytes (R = EK_ATTN_TILE * H/K
 * rows, Dp: D up to a multiple of steps->pad, Pp: page_tokens up to one of 16):
 *   q (R,Dp) | acc (R,Dp) | k (Pp,Dp) | v (Pp,Dp) | s (EK_ATTN_GROUP,Pp)
 *   | m (R) | l (R)
 * Columns behind D and tokens behind the page hold zeros.
 */
#ifndef EVENKEEL_KERNEL_ATTN_INT_H
#define EVENKEEL_KERNEL_ATTN_INT_H

#include "kernel/attn.h"

/* One row's online softmax. */
struct ek_attn_row {
    float *acc; /* (Dp) sum of p v, relative to m */
    float *m;   /* largest score so far, -inf at first */
    float *l;   /* sum of p, relative to m */
};

#define EK_ATTN_GROUP 4
#define EK_ATTN_PAD   64 /* the largest pad of a variant */

/* Up to EK_ATTN_GROUP rows that see the same tokens [j0,j1) of a page. */
struct ek_attn_group {
    const unsigned char *k, *v;           /* the page's first token */
    const unsigned char *next_k, *next_v; /* the next page's, to prefetch */
    enum ek_dtype t;                      /* of what lies there */
    int64_t D;                            /* values a token has there */
    const float *q;                       /* rows Dp apart */
    float *acc, *m, *l; /* rows Dp, 1 and 1 apart, as in ek_attn_row */
    float *s;           /* rows Pp apart */
    int64_t Dp, Pp, j0, j1;
    float scale, softcap;
    int R; /* rows, at least one */
};

struct ek_attn_steps {
    int64_t pad;
    /* dst (n,Dp) = src (n,D) as f32; columns behind D are left alone. */
    void (*load)(float *dst, const void *src, enum ek_dtype t, int64_t n, int64_t D,
                 int64_t Dp);
    /* s[j] = q . k[j] for j < Pp */
    void (*score)(float *s, const float *q, const float *k, int64_t Pp, int64_t Dp);
    /* Takes tokens [j0,j1) (at least one) of the block into the row: scores times
     * scale, soft cap, then the online softmax. s is overwritten. Values of tokens
     * outside [j0,j1) are not touched. */
    void (*update)(struct ek_attn_row *row, float *s, const float *v, int64_t j0,
                   int64_t j1, int64_t Pp, int64_t Dp, float scale, float softcap);
    /* Instead of score and update; NULL: use those. */
    void (*group)(const struct ek_attn_group *g);
};

/* The arguments of ek_attn_fn in one place. */
struct ek_attn_args {
    float *out;
    const float *q;
    const void *k_pool, *v_pool;
    const struct ek_attn_dims *d;
    const struct ek_attn_seq *seqs;
    int64_t ldo, ldq, n_seqs;
};

void ek_attn_run(const struct ek_attn_args *a, int64_t i0, int64_t i1, void *scratch,
                 const struct ek_attn_steps *steps);

#endif
