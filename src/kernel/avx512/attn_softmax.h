/* attn_softmax.h - weights of attention from the scores of a block, in registers. A
 * row's form of p, m and l: attn.c. */
#ifndef EVENKEEL_KERNEL_AVX512_ATTN_SOFTMAX_H
#define EVENKEEL_KERNEL_AVX512_ATTN_SOFTMAX_H

#include "kernel/avx512/attn_simd.h"

#include <math.h>

#define LOG2E 1.44269504f

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

#endif
