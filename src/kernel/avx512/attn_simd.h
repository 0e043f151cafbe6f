/* attn_simd.h - the pieces of attention's steps that see registers only: keys and
 * values brought into form, products added. attn_form.c and attn.c put memory between
 * them, attn_once.c does not; so both give the same bits. The forms: attn_form.c. */
#ifndef EVENKEEL_KERNEL_AVX512_ATTN_SIMD_H
#define EVENKEEL_KERNEL_AVX512_ATTN_SIMD_H

#include "kernel/attn_int.h"
#include "kernel/avx512/simd.h"
#include "kernel/e4m3_table.h"

#include <stdbool.h>

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
