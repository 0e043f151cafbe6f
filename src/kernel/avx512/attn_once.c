/* attn_once.c - the block of a decode query: keys and values go from the page through
 * registers into the products, without a form in memory. Each sum takes its terms in
 * the order of attn.c. */
#include "kernel/avx512/attn_simd.h"
#include "kernel/avx512/attn_softmax.h"
#include "kernel/avx512/avx512.h"

/* sum[r][0,2) = q . k of eight tokens, two groups of four at a time: the sums of one
 * group alone would wait for each other. */
EK_INLINE void two_groups(__m512 sum[][2], const float *q, const unsigned char *k,
                          const unsigned char *next, int64_t D, const struct table *e,
                          const enum ek_dtype t, const int R)
{
    const int64_t bytes = D * size_of(t), n = vectors_of(t);
    const int64_t Dp = (D + EK_ATTN_COLS - 1) / EK_ATTN_COLS * EK_ATTN_COLS;
    __m512 a[EK_ATTN_GROUP], b[EK_ATTN_GROUP];
    for (int r = 0; r < R; r++)
        a[r] = b[r] = _mm512_setzero_ps();
    for (int64_t unit = 0; unit < units_of(D, t); unit++) {
        uint64_t seen = bytes_of_unit(unit, D, t);
        __m512i x[8], y[8];
        prefetch_rows(next + unit * 512, 64, 8);
        form_keys(x, k + 64 * unit, bytes, seen, t, e);
        form_keys(y, k + 64 * unit + 4 * bytes, bytes, seen, t, e);
        for (int c = 0; c < n; c++)
            for (int r = 0; r < R; r++) {
                const float *at = q + r * EK_ATTN_Q * Dp + (unit * n + c) * 16;
                a[r] = add_key(a[r], at, 2 * Dp, _mm512_castsi512_ps(x[c]), t);
                b[r] = add_key(b[r], at, 2 * Dp, _mm512_castsi512_ps(y[c]), t);
            }
    }
    for (int r = 0; r < R; r++) {
        sum[r][0] = a[r];
        sum[r][1] = b[r];
    }
}

/* Scores of a strip of 16 tokens. */
EK_INLINE void score_strip(__m512 s[][EK_ATTN_STRIPS], const struct ek_attn_block *b,
                           int64_t r0, int strip, const struct table *e,
                           const enum ek_dtype t, const int R)
{
    const int64_t half = 8 * b->D * size_of(t);
    const unsigned char *k = b->k[strip], *next = b->next_k[strip];
    const float *q = b->q + r0 * EK_ATTN_Q * b->Dp;
    __m512 low[EK_ATTN_GROUP][2], high[EK_ATTN_GROUP][2];
    two_groups(low, q, k, next, b->D, e, t, R);
    two_groups(high, q, k + half, next + half, b->D, e, t, R);
    for (int r = 0; r < R; r++)
        s[r][strip] = sum_columns(low[r][0], low[r][1], high[r][0], high[r][1]);
}

EK_INLINE void score_as(const struct ek_attn_block *b, const struct ek_attn_rows *g,
                        const enum ek_dtype t, const int R)
{
    const struct table e = table_of(t);
    __m512 s[EK_ATTN_GROUP][EK_ATTN_STRIPS];
    for (int i = 0; i < EK_ATTN_STRIPS; i++) {
        if (is_seen(g, i))
            score_strip(s, b, g->r, i, &e, t, R);
        else
            for (int r = 0; r < R; r++)
                s[r][i] = _mm512_setzero_ps();
    }
    softmax(b, g, s, t, R);
}

/* a += p v of tokens j and j+1; of those that cols0 and cols1 leave. */
EK_INLINE void add_pair(__m512 a[][4], const struct ek_attn_block *b, int64_t r0,
                        int64_t j, int64_t c, uint64_t cols0, uint64_t cols1,
                        const struct table *e, const enum ek_dtype t, const int R)
{
    const int64_t bytes = b->D * size_of(t);
    const int64_t at = j % EK_ATTN_STRIP * bytes + c * size_of(t);
    const unsigned char *v = b->v[j / EK_ATTN_STRIP] + at;
    const unsigned char *next = b->next_v[j / EK_ATTN_STRIP] + at;
    const float *p = b->p + r0 * EK_ATTN_BLOCK + j / 2;
    __m512i x[4];
    prefetch_rows(next, bytes, 2);
    if (t == EK_DTYPE_BF16)
        prefetch_rows(next + 64, bytes, 2);
    form_values(x, v, v + bytes, cols0, cols1, t, e);
    for (int r = 0; r < R; r++)
        for (int i = 0; i < 4; i++)
            a[r][i] =
                add_value(a[r][i], p + r * EK_ATTN_BLOCK, _mm512_castsi512_ps(x[i]), t);
}

EK_INLINE void value_as(const struct ek_attn_block *b, const struct ek_attn_rows *g,
                        const enum ek_dtype t, const int R)
{
    const struct table e = table_of(t);
    for (int64_t c = 0; c < b->D; c += EK_ATTN_COLS) {
        const uint64_t cols = first_columns(b->D - c);
        int64_t j = b->j0;
        __m512 a[EK_ATTN_GROUP][4];
        begin_sums(a, b, g->r, c, R);
        if (j % 2)
            add_pair(a, b, g->r, j - 1, c, 0, cols, &e, t, R);
        for (j += j % 2; j + 1 < b->j1; j += 2)
            add_pair(a, b, g->r, j, c, cols, cols, &e, t, R);
        if (j < b->j1)
            add_pair(a, b, g->r, j, c, cols, 0, &e, t, R);
        end_sums(b, a, g->r, c, R);
    }
}

/* f32 values lie in form already. */
EK_INLINE void value_f32(const struct ek_attn_block *b, const struct ek_attn_rows *g,
                         const int R)
{
    for (int64_t c = 0; c < b->D; c += EK_ATTN_COLS) {
        __m512 a[EK_ATTN_GROUP][4];
        begin_sums(a, b, g->r, c, R);
        for (int64_t j = b->j0; j < b->j1; j++) {
            const float *p = b->p + g->r * EK_ATTN_BLOCK + j;
            int64_t at = (j % EK_ATTN_STRIP * b->D + c) * 4;
            const unsigned char *v = b->v[j / EK_ATTN_STRIP] + at;
            prefetch_rows(b->next_v[j / EK_ATTN_STRIP] + at, 64, 4);
            for (int i = 0; i < 4; i++) {
                __m512 x =
                    _mm512_maskz_loadu_ps(first_lanes(b->D - c - 16 * i), v + 64 * i);
                for (int r = 0; r < R; r++)
                    a[r][i] =
                        add_value(a[r][i], p + r * EK_ATTN_BLOCK, x, EK_DTYPE_F32);
            }
        }
        end_sums(b, a, g->r, c, R);
    }
}

void ek_avx512_attn_score_once(const struct ek_attn_block *b,
                               const struct ek_attn_rows *g)
{
    BY_TYPE_AND_ROWS(score_as);
}

#define VALUE(b, g, t, R)                                                              \
    ((t) == EK_DTYPE_F32 ? value_f32(b, g, R) : value_as(b, g, t, R))

void ek_avx512_attn_value_once(const struct ek_attn_block *b,
                               const struct ek_attn_rows *g)
{
    BY_TYPE_AND_ROWS(VALUE);
}
