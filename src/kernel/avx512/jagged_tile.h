/* jagged_tile.h - what the AVX-512 steps of jagged attention share.
 *
 * Scores lie transposed: a row is a key, a lane is a query. So softmax's largest and
 * sum run down rows, without a sum across lanes, and P and dx come out in the order
 * that the next product wants.
 *
 * A word is 32 bits: an f32, or two bf16 that one product takes together. `fold` is the
 * number of terms in a word (1, 2), Dp is D up to a multiple of 16. Forms of a block of
 * 64 rows:
 *   rows   [r][Dp/fold]     word: neighbouring columns of a row
 *   pairs  [r/fold][Dp]     word: a column of neighbouring rows
 *   turned [Dp/fold][64]    rows, turned: a lane a row
 * With F32 rows and pairs are one. What lies outside is zero in every form.
 *
 * All products are C[r][lane] (+)= sum over k of A[r][k] B[k][lane], a word of A in all
 * lanes, B's words in their lanes:
 *   S'  [key][query]  = K rows,  Q turned
 *   dP' [key][query]  = V rows,  do turned
 *   dv  [key][col]   += P' rows, do pairs
 *   dk  [key][col]   += dx' rows, Q pairs
 *   o'  [col][query] += V pairs (turned in place: a stride), P' pairs
 *   dq' [col][query] += K pairs (the same),                  dx' pairs
 */
#ifndef EVENKEEL_KERNEL_AVX512_JAGGED_TILE_H
#define EVENKEEL_KERNEL_AVX512_JAGGED_TILE_H

#include "kernel/avx512/simd.h"
#include "kernel/jagged_int.h"

#define LANES 64 /* EK_JAGGED_BLOCK: queries of a block, floats of a row of scores */

/* Keys [r0,r1) of a key block, multiples of 4, which queries of vectors [v0,v1) see;
 * is_cut: not all of them see all. */
struct ek_jagged_run {
    int r0, r1, v0, v1;
    bool is_cut;
};

/* Up to 64 queries of one head, and their sums. */
struct ek_jagged_queries {
    _Alignas(64) int32_t lo[LANES], hi[LANES], self[LANES]; /* spans; lanes past n: 0 */
    _Alignas(64) float m[LANES], l[LANES];       /* forward: largest (log2), sum */
    _Alignas(64) float lse[LANES], delta[LANES]; /* backward: LSE (log2), o.do */
    int32_t first[4], end[4]; /* of each vector: least lo, largest hi (or self) */
    int64_t i0;
    int n, nv;       /* queries, vectors */
    bool is_begun;   /* the sums (and l) hold something */
    float *turned;   /* q  [Dp/fold][64] */
    float *d_turned; /* do [Dp/fold][64] */
    float *pairs;    /* q  [64/fold][Dp] */
    float *d_pairs;  /* do [64/fold][Dp] */
    float *sums;     /* o' or dq' [Dp][64] */
};

/* A tile in hand, and its scratch. */
struct ek_jagged_work {
    const struct ek_jagged_args *a;
    const struct ek_jagged_tile *t;
    struct ek_jagged_seq s;
    int64_t h, kv; /* heads */
    int64_t Dp;
    int fold;
    bool is_bf16;      /* products */
    float scale;       /* phi */
    enum ek_phi phi;   /* of head h */
    float *score, *dp; /* [64][64] of a key block by a query block */
    float *p, *dx;     /* [64][64/fold] rows */
    float *x_pairs;    /* [64/fold][64]: of P', forward, or dx', backward */
    struct ek_jagged_queries *q;
    struct ek_jagged_run run[LANES / 4];
    int n_runs;
    int64_t j0;       /* first key of the block in hand */
    float *bias_sums; /* backward with learned bias: the tile's stage; or NULL */
};

struct ek_jagged_product {
    float *C;
    const float *A, *B;
    int64_t ldc, rs, ks, ldb; /* A's strides by row and by k */
    int64_t rows, n;          /* rows: a multiple of 4; n: words of k */
    int nv;                   /* vectors of lanes */
    bool is_adding;
};

/* jagged_product.c */
void ek_avx512_jagged_product(const struct ek_jagged_product *g, bool is_bf16);

/* jagged_pack.c: n rows of x, ld elements apart; rows up to `padded` become zero. */
struct ek_jagged_rows {
    const void *x; /* first row */
    void *to;      /* the same, to be written */
    enum ek_dtype dtype;
    int64_t ld, D, Dp;
    int64_t n, padded;
};
/* Asks for the rows: those of one head are too short for the hardware to foresee. */
void ek_avx512_jagged_fetch(const struct ek_jagged_rows *r);
void ek_avx512_jagged_pack_rows(float *to, const struct ek_jagged_rows *r,
                                bool is_bf16);
void ek_avx512_jagged_pack_pairs(float *to, const struct ek_jagged_rows *r,
                                 bool is_bf16);
void ek_avx512_jagged_pack_turned(float *to, const struct ek_jagged_rows *r,
                                  bool is_bf16);
/* delta[i] = sum over columns of x y, x rounded as it is multiplied. */
void ek_avx512_jagged_delta(float *delta, const struct ek_jagged_rows *x, const void *y,
                            bool is_bf16);
/* n rows of `to` from sums [Dp][64], each times its factor; is_adding: f32, added
 * to. */
void ek_avx512_jagged_unturn(const struct ek_jagged_rows *to, const float *sums,
                             const float *factor, bool is_adding);
/* n rows of `to` from rows [n][Dp], times factor. */
void ek_avx512_jagged_unpack(const struct ek_jagged_rows *to, const float *sums,
                             float factor);

/* jagged_score.c: over all runs of the block.
 *   softmax  score -> x_pairs, m, l, sums
 *   phi      score -> x_pairs
 *   grad     score, dp -> p, dx, x_pairs; with bias dx also in dp */
void ek_avx512_jagged_softmax(struct ek_jagged_work *w);
void ek_avx512_jagged_phi(struct ek_jagged_work *w);
void ek_avx512_jagged_grad(struct ek_jagged_work *w);

/* jagged_block.c: the whole tile, where the mask is of blocks of 64 alone and products
 * are bf16. It depends on the dims and this sequence only. */
bool ek_avx512_jagged_is_block(const struct ek_jagged_args *a,
                               const struct ek_jagged_seq *s);
void ek_avx512_jagged_blocks(const struct ek_jagged_args *a,
                             const struct ek_jagged_tile *t, void *scratch,
                             bool is_backward);

/* jagged_short.c: the same for activations without a mask over up to 128 keys. */
bool ek_avx512_jagged_is_short(const struct ek_jagged_args *a,
                               const struct ek_jagged_seq *s);
void ek_avx512_jagged_short(const struct ek_jagged_args *a,
                            const struct ek_jagged_tile *t, void *scratch,
                            bool is_backward);

/* jagged_causal.c: the same for silu under a causal mask over up to 512 keys. */
bool ek_avx512_jagged_is_causal(const struct ek_jagged_args *a,
                                const struct ek_jagged_seq *s);
void ek_avx512_jagged_causal(const struct ek_jagged_args *a,
                             const struct ek_jagged_tile *t, void *scratch,
                             bool is_backward);

/* jagged_bias.c: score = alpha score + bias; and what dx (f32, in w->dp) adds to the
 * gradients of bias. */
void ek_avx512_jagged_add_bias(const struct ek_jagged_work *w);
void ek_avx512_jagged_bias_grad(const struct ek_jagged_work *w, float factor);

/* Queries of vector v that see key j. */
EK_INLINE __mmask16 seen_of(const struct ek_jagged_queries *q, int v, int64_t j)
{
    const __m512i key = _mm512_set1_epi32((int)j);
    __mmask16 m =
        _mm512_cmp_epi32_mask(key, _mm512_load_si512(q->lo + 16 * v), _MM_CMPINT_NLT);
    m = _mm512_mask_cmp_epi32_mask(m, key, _mm512_load_si512(q->hi + 16 * v),
                                   _MM_CMPINT_LT);
    return m | _mm512_cmpeq_epi32_mask(key, _mm512_load_si512(q->self + 16 * v));
}

/* Two vectors, lane by lane side by side, as bf16. */
EK_INLINE __m512i pair_words(__m512i both)
{
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,
                         23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, both);
}

/* The pairs of columns 0 to 15 of two rows of 32 bf16, and of the others. */
EK_INLINE __m512i pairs_low(__m512i even, __m512i odd)
{
    const __m512i order =
        _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8,
                         39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    return _mm512_permutex2var_epi16(even, order, odd);
}

EK_INLINE __m512i pairs_high(__m512i even, __m512i odd)
{
    const __m512i order = _mm512_set_epi16(63, 31, 62, 30, 61, 29, 60, 28, 59, 27, 58,
                                           26, 57, 25, 56, 24, 55, 23, 54, 22, 53, 21,
                                           52, 20, 51, 19, 50, 18, 49, 17, 48, 16);
    return _mm512_permutex2var_epi16(even, order, odd);
}

EK_INLINE void pair_32(float *to, __m512i even, __m512i odd)
{
    _mm512_storeu_si512(to, pairs_low(even, odd));
    _mm512_storeu_si512(to + 16, pairs_high(even, odd));
}

#endif
