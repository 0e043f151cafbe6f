/* jagged_rows.h - what the courses with products in bf16 share whose scores lie
 * [query][key]: jagged_block.c and jagged_short.c. Four rows at a time; sums of 4 by 64
 * stay in registers while k runs, and results leave as rows.
 *
 *   scores [query][key], a lane a key:  q rows as they lie, k turned
 *   o, dq  [query][column]              P, dx rows            with v, k pairs
 *   dv, dk [key][column]                P, dx pairs (turned in place: a stride)
 *                                                             with do, q pairs
 *
 * Forms as in jagged_tile.h. Rows of queries in bf16 are read where they lie.
 */
#ifndef EVENKEEL_KERNEL_AVX512_JAGGED_ROWS_H
#define EVENKEEL_KERNEL_AVX512_JAGGED_ROWS_H

#include "kernel/avx512/jagged_tile.h"

#include <string.h>

#define GROUP    4         /* rows at a time: 4 by 4 registers of sums */
#define AHEAD    16        /* rows from asking to use */
#define STREAMED (1 << 20) /* bytes of a tensor */

/* Up to 64 queries of one sequence and head in hand. */
struct block {
    const struct ek_jagged_args *a;
    struct ek_jagged_seq s;
    int64_t end;           /* of the tile, in rows of the sequence */
    int64_t i;             /* first row of the block in the sequence */
    int64_t q0, o0, k0, h; /* its first rows in q, in o, in k; the head */
    int n, D;
    enum ek_dtype dtype;
    bool is_backward;
    bool is_streaming; /* outputs, of bf16, leave past the caches */
    __mmask16 last;    /* keys of the last vector */
    float *k_turned, *v_turned, *k_pairs, *v_pairs, *q_pairs, *d_pairs;
    float *q_packed, *d_packed; /* rows in bf16, where theirs are f32 */
    float *p, *dx;              /* [64/2][ld] pairs of queries */
    /* jagged_block.c: log2 of LSE, o.do; or the largest score and the sum of weights */
    _Alignas(64) float lse[LANES], delta[LANES], top[LANES], sum[LANES];
    float log2_alpha;
    struct {
        struct ek_jagged_seq s;
        int64_t h, lo, hi;
    } next; /* tile, of no rows if there is none */
    /* jagged_short.c */
    int n_keys, ld; /* keys; keys up to 64 or 128: floats of a row of p and dx */
    float *dk_sum, *dv_sum; /* [keys][D] */
    float scale;
    enum ek_phi phi;
};

/* Rows row.. of a tensor, head h. */
static inline struct ek_jagged_rows rows_of(const struct block *b, const void *x,
                                            int64_t ld, int64_t row, int64_t h)
{
    const int64_t size = (int64_t)ek_dtype_block_bytes(b->dtype);
    return (struct ek_jagged_rows){.x = (const char *)x + (row * ld + h * b->D) * size,
                                   .dtype = b->dtype,
                                   .ld = ld,
                                   .D = b->D,
                                   .Dp = b->D,
                                   .n = b->n,
                                   .padded = (b->n + 15) / 16 * 16};
}

/* True when outputs are whole lines and more than a second-level cache holds, so that
 * whoever reads them finds them elsewhere anyway: then they need not be read before
 * they are written, and leave what is there alone. */
static inline bool is_streamed(const struct ek_jagged_args *a)
{
    const struct ek_jagged_batch *x = a->batch;
    const int64_t rows = x->q_offsets[x->B] - x->q_offsets[0];
    const int64_t bytes = rows * a->d->H * a->d->D * 2;
    const int64_t ld = a->ldq | a->ldk | a->ldv | a->ldo;
    const uintptr_t at =
        (uintptr_t)a->o | (uintptr_t)a->dq | (uintptr_t)a->dk | (uintptr_t)a->dv;
    return a->d->dtype == EK_DTYPE_BF16 && bytes > STREAMED && ld % 32 == 0 &&
           at % 64 == 0;
}

/* The end of a tile. Stores past the caches are ordered by nothing that C's atomics
 * need be: without this, whoever is told of the tile by a plain store might read what
 * was there before. */
static inline void end_stores(const struct block *b)
{
    if (b->is_streaming)
        _mm_sfence();
}

/* Asks for rows [i, i+n) of the sequence, below b->end, head h, into the second-level
 * cache. Compiled in place: gcc drops calls of a function that does nothing but ask. */
EK_INLINE void fetch_head(const struct block *b, const void *x, int64_t ld,
                          int64_t row0, int64_t i, int64_t n, int64_t h)
{
    const int64_t size = (int64_t)ek_dtype_block_bytes(b->dtype);
    const char *row = (const char *)x + ((row0 + i) * ld + h * b->D) * size;
    const int64_t bytes = b->D * size;
    for (int64_t r = i; r < i + n && r < b->end; r++, row += ld * size)
        for (int64_t at = 0; at < bytes; at += 64)
            _mm_prefetch(row + at, _MM_HINT_T1);
}

EK_INLINE void fetch(const struct block *b, const void *x, int64_t ld, int64_t row0,
                     int64_t i, int64_t n)
{
    fetch_head(b, x, ld, row0, i, n, b->h);
}

static inline struct ek_jagged_rows out_of(const struct block *b, void *x, int64_t ld,
                                           int64_t row, int64_t h)
{
    struct ek_jagged_rows r = rows_of(b, x, ld, row, h);
    r.to = (char *)x + ((const char *)r.x - (const char *)x);
    return r;
}

static inline float *carve(float **at, int64_t n)
{
    float *p = *at;
    *at += n;
    return p;
}

/* Four of them from r on. */
static inline struct ek_jagged_rows some_of(const struct ek_jagged_rows *rows, int r)
{
    struct ek_jagged_rows x = *rows;
    const int64_t size = (int64_t)ek_dtype_block_bytes(x.dtype), left = x.n - r;
    x.x = (const char *)x.x + r * x.ld * size;
    x.n = left < GROUP ? left : GROUP;
    x.padded = GROUP;
    return x;
}

/* Where four rows from r on lie in bf16; those past the end are zeros. */
static inline void lines_of(const char *line[GROUP], const struct block *b,
                            const struct ek_jagged_rows *x, const float *packed, int r)
{
    static const uint16_t zeros[EK_JAGGED_DIM_MAX];
    EK_UNROLL
    for (int i = 0; i < GROUP; i++) {
        if (r + i >= b->n)
            line[i] = (const char *)zeros;
        else if (b->dtype == EK_DTYPE_BF16)
            line[i] = (const char *)x->x + (r + i) * x->ld * 2;
        else
            line[i] = (const char *)(packed + (r + i) * b->D / 2);
    }
}

/* Four rows of words, `step` bytes apart, and n rows of B. */
struct terms {
    const char *line[GROUP];
    int64_t step;
    const float *B;
    int64_t ldb, n;
};

EK_INLINE void clear(__m512 sum[GROUP][4], const int NV)
{
    EK_UNROLL
    for (int i = 0; i < GROUP; i++)
        EK_UNROLL
    for (int v = 0; v < NV; v++)
        sum[i][v] = _mm512_setzero_ps();
}

/* sum[i][v] += word k of line[i] times row k of B. */
EK_INLINE void add_word(__m512 sum[GROUP][4], const struct terms *t, int64_t k,
                        const int NV)
{
    const float *B = t->B + k * t->ldb;
    __m512bh x[4];
    EK_UNROLL
    for (int v = 0; v < NV; v++)
        x[v] = (__m512bh)_mm512_loadu_ps(B + 16 * v);
    EK_UNROLL
    for (int i = 0; i < GROUP; i++) {
        int32_t word;
        memcpy(&word, t->line[i] + k * t->step, sizeof word);
        const __m512bh y = (__m512bh)_mm512_set1_epi32(word);
        EK_UNROLL
        for (int v = 0; v < NV; v++)
            sum[i][v] = _mm512_dpbf16_ps(sum[i][v], y, x[v]);
    }
}

/* sum[i][v] = sum over n words of line[i], step bytes apart, times rows of B. */
EK_INLINE void multiply(__m512 sum[GROUP][4], const char *const line[GROUP],
                        int64_t step, const float *B, int64_t ldb, int64_t n,
                        const int NV)
{
    const struct terms t = {{line[0], line[1], line[2], line[3]}, step, B, ldb, n};
    clear(sum, NV);
    for (int64_t k = 0; k < n; k++)
        add_word(sum, &t, k, NV);
}

/* Columns [c, c+16 NV) of four rows from r on, times their factors, if there are
 * any. */
EK_INLINE void put(const struct block *b, void *to, int64_t ld, int64_t c,
                   __m512 x[GROUP][4], const float *factor, int n_rows, const int NV)
{
    EK_UNROLL
    for (int i = 0; i < GROUP; i++) {
        if (i >= n_rows)
            break;
        const int64_t at = i * ld + c;
        EK_UNROLL
        for (int v = 0; v < NV; v += 2) {
            __m512 low = x[i][v], high = x[i][v + 1];
            if (factor) {
                low = _mm512_mul_ps(_mm512_set1_ps(factor[i]), low);
                high = _mm512_mul_ps(_mm512_set1_ps(factor[i]), high);
            }
            if (b->is_streaming) {
                _mm512_stream_si512((void *)((uint16_t *)to + at + 16 * v),
                                    (__m512i)_mm512_cvtne2ps_pbh(high, low));
            } else if (b->dtype == EK_DTYPE_BF16) {
                _mm512_storeu_si512((uint16_t *)to + at + 16 * v,
                                    (__m512i)_mm512_cvtne2ps_pbh(high, low));
            } else {
                _mm512_storeu_ps((float *)to + at + 16 * v, low);
                _mm512_storeu_ps((float *)to + at + 16 * v + 16, high);
            }
        }
    }
}

/* Columns c.. of four rows of `to` from row r on = factor (lines . B), B (n, D). */
EK_INLINE void product_from(const struct block *b, const struct ek_jagged_rows *to,
                            int r, const struct terms *t, const float *factor,
                            int64_t c)
{
    __m512 sum[GROUP][4];
    const int64_t size = b->dtype == EK_DTYPE_BF16 ? 2 : 4;
    char *at = (char *)to->to + r * to->ld * size;
    for (; c + 64 <= b->D; c += 64) {
        multiply(sum, t->line, t->step, t->B + c, b->D, t->n, 4);
        put(b, at, to->ld, c, sum, factor, b->n - r, 4);
    }
    if (c < b->D) {
        multiply(sum, t->line, t->step, t->B + c, b->D, t->n, 2);
        put(b, at, to->ld, c, sum, factor, b->n - r, 2);
    }
}

static inline void product(const struct block *b, const struct ek_jagged_rows *to,
                           int r, const char *const line[GROUP], int64_t step,
                           const float *B, int64_t n, const float *factor)
{
    const struct terms t = {{line[0], line[1], line[2], line[3]}, step, B, b->D, n};
    product_from(b, to, r, &t, factor, 0);
}

/* Weights of four queries as rows of pairs of keys, lane by lane as they come, rows
 * `ld` apart; and the same numbers as pairs of queries, theirs `pairs_ld` apart. */
EK_INLINE void keep_both(float *to, int64_t ld, float *pairs, int64_t pairs_ld,
                         __m512 x[GROUP][4], const int NV)
{
    EK_UNROLL
    for (int i = 0; i < GROUP; i += 2)
        EK_UNROLL
    for (int v = 0; v < NV; v += 2) {
        const __m512 none = _mm512_setzero_ps();
        const bool is_even = v + 1 < NV;
        const __m512i y0 =
            (__m512i)_mm512_cvtne2ps_pbh(is_even ? x[i][v + 1] : none, x[i][v]);
        const __m512i y1 =
            (__m512i)_mm512_cvtne2ps_pbh(is_even ? x[i + 1][v + 1] : none, x[i + 1][v]);
        float *const pair = pairs + i / 2 * pairs_ld + 16 * v;
        _mm512_store_si512(to + i * ld + 8 * v, y0);
        _mm512_store_si512(to + (i + 1) * ld + 8 * v, y1);
        _mm512_store_si512(pair, pairs_low(y0, y1));
        if (is_even)
            _mm512_store_si512(pair + 16, pairs_high(y0, y1));
    }
}

#endif
