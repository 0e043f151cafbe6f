/* attn_simd.h - the pieces of attention's steps that see registers only: keys and
 * values brought into form, weights from scores. attn_form.c and attn.c put memory
 * between them, attn_once.c does not; so both give the same bits. The forms:
 * attn_form.c. A row's form of q and p: attn.c. */
#ifndef EVENKEEL_KERNEL_AVX512_ATTN_SIMD_H
#define EVENKEEL_KERNEL_AVX512_ATTN_SIMD_H

#include "kernel/attn_int.h"
#include "kernel/avx512/simd.h"
#include "kernel/e4m3_table.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define LOG2E 1.44269504f

EK_INLINE int64_t size_of(const enum ek_dtype t)
{
    return t == EK_DTYPE_F32 ? 4 : t == EK_DTYPE_BF16 ? 2 : 1;
}

struct table {
    __m512i hi0, hi1, lo0, lo1;
};

EK_INLINE struct table table_of(const enum ek_dtype t)
{
    struct table e = {0};
    if (t == EK_DTYPE_E4M3)
        e = (struct table){
            _mm512_loadu_si512(ek_e4m3_hi), _mm512_loadu_si512(ek_e4m3_hi + 64),
            _mm512_loadu_si512(ek_e4m3_lo), _mm512_loadu_si512(ek_e4m3_lo + 64)};
    return e;
}

/* In each 128 bits of codes: the first eight as bf16 in x[0], the others in x[1]. */
EK_INLINE void widen(__m512i x[2], __m512i codes, const struct table *e)
{
    __m512i lo = _mm512_permutex2var_epi8(e->lo0, codes, e->lo1);
    __m512i hi = _mm512_permutex2var_epi8(e->hi0, codes, e->hi1);
    /* hi | (codes & 0x80) */
    hi = _mm512_ternarylogic_epi32(hi, codes, _mm512_set1_epi8((char)0x80), 0xf8);
    x[0] = _mm512_unpacklo_epi8(lo, hi);
    x[1] = _mm512_unpackhi_epi8(lo, hi);
}

EK_INLINE void prefetch_rows(const unsigned char *p, int64_t stride, const int n)
{
    for (int i = 0; i < n; i++)
        _mm_prefetch((const char *)p + i * stride, _MM_HINT_T1);
}

/* Two bf16 or one f32 in every lane. */
EK_INLINE __m512 spread(const float *x)
{
    return _mm512_castsi512_ps(_mm512_set1_epi32(*(const int *)(const void *)x));
}

EK_INLINE __m512 dot_pairs(__m512 sum, __m512 a, __m512 b)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

/* Vectors that 64 bytes of four tokens become. */
EK_INLINE int vectors_of(const enum ek_dtype t)
{
    return t == EK_DTYPE_E4M3 ? 8 : 4;
}

/* Columns of 64 bytes. */
EK_INLINE int64_t unit_of(const enum ek_dtype t)
{
    return 64 / size_of(t);
}

EK_INLINE int64_t units_of(int64_t D, const enum ek_dtype t)
{
    return (D + unit_of(t) - 1) / unit_of(t);
}

/* Bytes of a token's unit that are there, as a mask. */
EK_INLINE uint64_t bytes_of_unit(int64_t unit, int64_t D, const enum ek_dtype t)
{
    int64_t n = D * size_of(t) - 64 * unit;
    return n >= 64 ? ~0ull : (1ull << n) - 1;
}

/* The same 64 bytes of four tokens in form, those not in `bytes` zero. */
EK_INLINE void form_keys(__m512i x[8], const unsigned char *k, int64_t stride,
                         uint64_t bytes, const enum ek_dtype t, const struct table *e)
{
    __m512i a[4];
    for (int i = 0; i < 4; i++)
        a[i] = _mm512_maskz_loadu_epi8(bytes, k + i * stride);
    if (t == EK_DTYPE_E4M3) {
        __m512i u0 = _mm512_unpacklo_epi16(a[0], a[1]);
        __m512i u1 = _mm512_unpackhi_epi16(a[0], a[1]);
        __m512i v0 = _mm512_unpacklo_epi16(a[2], a[3]);
        __m512i v1 = _mm512_unpackhi_epi16(a[2], a[3]);
        widen(x, _mm512_unpacklo_epi32(u0, v0), e);
        widen(x + 2, _mm512_unpackhi_epi32(u0, v0), e);
        widen(x + 4, _mm512_unpacklo_epi32(u1, v1), e);
        widen(x + 6, _mm512_unpackhi_epi32(u1, v1), e);
    } else {
        __m512i u0 = _mm512_unpacklo_epi32(a[0], a[1]);
        __m512i u1 = _mm512_unpackhi_epi32(a[0], a[1]);
        __m512i v0 = _mm512_unpacklo_epi32(a[2], a[3]);
        __m512i v1 = _mm512_unpackhi_epi32(a[2], a[3]);
        x[0] = _mm512_unpacklo_epi64(u0, v0);
        x[1] = _mm512_unpackhi_epi64(u0, v0);
        x[2] = _mm512_unpacklo_epi64(u1, v1);
        x[3] = _mm512_unpackhi_epi64(u1, v1);
    }
}

/* sum + q k of every lane; `low` floats behind q is its second term. */
EK_INLINE __m512 add_key(__m512 sum, const float *q, int64_t low, __m512 k,
                         const enum ek_dtype t)
{
    if (t == EK_DTYPE_F32)
        return _mm512_fmadd_ps(_mm512_load_ps(q), k, sum);
    sum = dot_pairs(sum, _mm512_load_ps(q), k);
    return t == EK_DTYPE_BF16 ? dot_pairs(sum, _mm512_load_ps(q + low), k) : sum;
}

/* Lane 4 i + j = token j of c[i], summed over its lanes of 128 bits. */
EK_INLINE __m512 sum_columns(__m512 c0, __m512 c1, __m512 c2, __m512 c3)
{
    __m512 a = _mm512_add_ps(_mm512_shuffle_f32x4(c0, c1, 0x88),
                             _mm512_shuffle_f32x4(c0, c1, 0xdd));
    __m512 b = _mm512_add_ps(_mm512_shuffle_f32x4(c2, c3, 0x88),
                             _mm512_shuffle_f32x4(c2, c3, 0xdd));
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88),
                         _mm512_shuffle_f32x4(a, b, 0xdd));
}

/* 64 columns of two tokens in form, 16 of both to a vector; those not in cols zero. */
EK_INLINE void form_values(__m512i x[4], const unsigned char *even,
                           const unsigned char *odd, uint64_t cols0, uint64_t cols1,
                           const enum ek_dtype t, const struct table *e)
{
    if (t == EK_DTYPE_BF16) {
        for (int h = 0; h < 2; h++) {
            __m512i a =
                _mm512_maskz_loadu_epi16((__mmask32)(cols0 >> 32 * h), even + 64 * h);
            __m512i b =
                _mm512_maskz_loadu_epi16((__mmask32)(cols1 >> 32 * h), odd + 64 * h);
            x[2 * h] = _mm512_unpacklo_epi16(a, b);
            x[2 * h + 1] = _mm512_unpackhi_epi16(a, b);
        }
    } else {
        __m512i a = _mm512_maskz_loadu_epi8(cols0, even);
        __m512i b = _mm512_maskz_loadu_epi8(cols1, odd);
        widen(x, _mm512_unpacklo_epi8(a, b), e);
        widen(x + 2, _mm512_unpackhi_epi8(a, b), e);
    }
}

/* The first n of 64 columns, n at least 1. */
EK_INLINE uint64_t first_columns(int64_t n)
{
    return n >= 64 ? ~0ull : (1ull << n) - 1;
}

/* 2^x, n_terms 4 or 6: relative error below 3e-6 or 2e-8 and the rounding of the sum.
 * 2^0 is exactly 1, 2^-inf 0; NaN stays. Coefficients: least largest error on [-1/2,
 * 1/2] with the first term held at 1. */
EK_INLINE __m512 exp2_ps(__m512 x, const int n_terms)
{
    static const float c4[] = {0.6931242f, 0.24024099f, 0.055906426f, 0.009582853f};
    static const float c6[] = {0.6931472f,   0.24022648f,   0.055503324f,
                               0.009618437f, 0.0013398875f, 0.00015353362f};
    const float *c = n_terms == 4 ? c4 : c6;
    x = _mm512_max_ps(_mm512_set1_ps(-160.0f), x);
    __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_sub_ps(x, n);
    __m512 p = _mm512_set1_ps(c[n_terms - 1]);
    for (int i = n_terms - 2; i >= 0; i--)
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c[i]));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

/* v and what it leaves of x, as bf16. */
EK_INLINE __m256i split_bf16(__m256i *low, __m512 x)
{
    __m256i high = bf16_of_ps(x);
    *low = bf16_of_ps(_mm512_sub_ps(x, ps_of_bf16(high)));
    return high;
}

/* sum + p v of a token (f32) or of a pair of them, its weights at p. */
EK_INLINE __m512 add_value(__m512 sum, const float *p, __m512 v, const enum ek_dtype t)
{
    if (t == EK_DTYPE_F32)
        return _mm512_fmadd_ps(spread(p), v, sum);
    sum = dot_pairs(sum, spread(p), v);
    return t == EK_DTYPE_BF16 ? dot_pairs(sum, spread(p + EK_ATTN_BLOCK / 2), v) : sum;
}

/* The largest lane in every lane. */
EK_INLINE __m512 max_of_lanes(__m512 x)
{
    x = _mm512_max_ps(x, _mm512_shuffle_f32x4(x, x, 0x4e));
    x = _mm512_max_ps(x, _mm512_shuffle_f32x4(x, x, 0xb1));
    x = _mm512_max_ps(x, _mm512_permute_ps(x, 0x4e));
    return _mm512_max_ps(x, _mm512_permute_ps(x, 0xb1));
}

EK_INLINE void store_bf16(uint16_t *p, __m512i a, __m512i b)
{
    _mm512_store_si512(p, a);
    _mm512_store_si512(p + 32, b);
}

EK_INLINE __m512i pack_bf16(__m512 a, __m512 b)
{
    return (__m512i)_mm512_cvtne2ps_pbh(b, a);
}

/* Stores the weights of a row, and returns sum plus them, lane by lane: what was stored
 * is what counts. */
EK_INLINE __m512 keep_weights(float *to, __m512 sum, const __m512 p[EK_ATTN_STRIPS],
                              const enum ek_dtype t)
{
    uint16_t *high = (uint16_t *)(void *)to;
    if (t == EK_DTYPE_E4M3) {
        __m512i a = pack_bf16(p[0], p[1]), b = pack_bf16(p[2], p[3]);
        store_bf16(high, a, b);
        const __m512 ones = _mm512_castsi512_ps(_mm512_set1_epi32(0x3f803f80));
        sum = dot_pairs(sum, _mm512_castsi512_ps(a), ones);
        return dot_pairs(sum, _mm512_castsi512_ps(b), ones);
    }
    if (t == EK_DTYPE_F32) {
        for (int i = 0; i < EK_ATTN_STRIPS; i++)
            _mm512_store_ps(to + 16 * i, p[i]);
    } else {
        for (int i = 0; i < EK_ATTN_STRIPS; i++) {
            __m256i lo, hi = split_bf16(&lo, p[i]);
            _mm256_store_si256((void *)(high + 16 * i), hi);
            _mm256_store_si256((void *)(high + EK_ATTN_BLOCK + 16 * i), lo);
        }
    }
    __m512 all = _mm512_add_ps(_mm512_add_ps(p[0], p[1]), _mm512_add_ps(p[2], p[3]));
    return _mm512_add_ps(sum, all);
}

/* Dot products to scores in units of log2; -inf where nothing is seen. */
EK_INLINE void scale_scores(__m512 s[EK_ATTN_STRIPS], const struct ek_attn_block *b,
                            uint64_t seen)
{
    const __m512 none = _mm512_set1_ps(-INFINITY);
    if (b->softcap > 0) {
        const __m512 cap = _mm512_set1_ps(b->softcap * LOG2E);
        const __m512 scale = _mm512_set1_ps(b->scale / b->softcap);
        for (int i = 0; i < EK_ATTN_STRIPS; i++)
            s[i] = _mm512_mul_ps(cap, tanh_ps(_mm512_mul_ps(s[i], scale)));
    } else {
        const __m512 scale = _mm512_set1_ps(b->scale * LOG2E);
        for (int i = 0; i < EK_ATTN_STRIPS; i++)
            s[i] = _mm512_mul_ps(s[i], scale);
    }
    for (int i = 0; i < EK_ATTN_STRIPS; i++)
        s[i] = _mm512_mask_mov_ps(none, (__mmask16)(seen >> 16 * i), s[i]);
}

/* The weights of R rows from their dot products. First all rows' largest scores, then
 * all weights: the steps of one row would wait for each other. */
EK_INLINE void softmax(const struct ek_attn_block *b, const struct ek_attn_rows *g,
                       __m512 s[][EK_ATTN_STRIPS], const enum ek_dtype t, const int R)
{
    const int n_terms = t == EK_DTYPE_E4M3 ? 4 : 6;
    const uint64_t seen = first_columns(g->j1) & (~0ull << g->j0);
    const __mmask16 rows = first_lanes(R);
    const __m512 before = _mm512_maskz_loadu_ps(rows, b->m + g->r);
    __m512 m[EK_ATTN_GROUP], now = before;
    for (int r = 0; r < R; r++) {
        scale_scores(s[r], b, seen);
        __m512 top = _mm512_max_ps(_mm512_max_ps(s[r][0], s[r][1]),
                                   _mm512_max_ps(s[r][2], s[r][3]));
        m[r] = _mm512_max_ps(max_of_lanes(top), _mm512_set1_ps(b->m[g->r + r]));
        now = _mm512_mask_mov_ps(now, (__mmask16)(1 << r), m[r]);
    }
    const __m512 old = exp2_ps(_mm512_sub_ps(before, now), n_terms);
    _mm512_mask_storeu_ps(b->m + g->r, rows, now);
    _mm512_mask_storeu_ps(b->old + g->r, rows, old);
    for (int r = 0; r < R; r++) {
        float *l = b->l + (g->r + r) * EK_ATTN_LANES;
        for (int i = 0; i < EK_ATTN_STRIPS; i++)
            s[r][i] =
                _mm512_maskz_mov_ps((__mmask16)(seen >> 16 * i),
                                    exp2_ps(_mm512_sub_ps(s[r][i], m[r]), n_terms));
        __m512 sum = _mm512_mul_ps(_mm512_load_ps(l),
                                   _mm512_permutexvar_ps(_mm512_set1_epi32(r), old));
        _mm512_store_ps(l,
                        keep_weights(b->p + (g->r + r) * EK_ATTN_BLOCK, sum, s[r], t));
    }
}

/* Whether the rows see any token of a strip. */
EK_INLINE bool is_seen(const struct ek_attn_rows *g, int64_t strip)
{
    return g->j0 < EK_ATTN_STRIP * (strip + 1) && g->j1 > EK_ATTN_STRIP * strip;
}

/* The sums of columns [c,c+64) of R rows, times old. */
EK_INLINE void begin_sums(__m512 a[][4], const struct ek_attn_block *b, int64_t r0,
                          int64_t c, const int R)
{
    for (int r = 0; r < R; r++)
        for (int i = 0; i < 4; i++)
            a[r][i] =
                _mm512_mul_ps(_mm512_load_ps(b->acc + (r0 + r) * b->Dp + c + 16 * i),
                              _mm512_set1_ps(b->old[r0 + r]));
}

EK_INLINE void end_sums(const struct ek_attn_block *b, __m512 a[][4], int64_t r0,
                        int64_t c, const int R)
{
    for (int r = 0; r < R; r++)
        for (int i = 0; i < 4; i++)
            _mm512_store_ps(b->acc + (r0 + r) * b->Dp + c + 16 * i, a[r][i]);
}

/* f(b, g, type, rows) with both known where it is compiled. */
#define BY_ROWS(f, t)                                                                  \
    do {                                                                               \
        switch (g->R) {                                                                \
        case 1:                                                                        \
            f(b, g, t, 1);                                                             \
            break;                                                                     \
        case 2:                                                                        \
            f(b, g, t, 2);                                                             \
            break;                                                                     \
        case 3:                                                                        \
            f(b, g, t, 3);                                                             \
            break;                                                                     \
        default:                                                                       \
            f(b, g, t, 4);                                                             \
            break;                                                                     \
        }                                                                              \
    } while (0)
#define BY_TYPE_AND_ROWS(f)                                                            \
    do {                                                                               \
        if (b->t == EK_DTYPE_F32)                                                      \
            BY_ROWS(f, EK_DTYPE_F32);                                                  \
        else if (b->t == EK_DTYPE_BF16)                                                \
            BY_ROWS(f, EK_DTYPE_BF16);                                                 \
        else                                                                           \
            BY_ROWS(f, EK_DTYPE_E4M3);                                                 \
    } while (0)

#endif
