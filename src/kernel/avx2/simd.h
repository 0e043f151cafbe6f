/* simd.h - the vector pieces that several AVX2 kernels share. */
#ifndef EVENKEEL_KERNEL_AVX2_SIMD_H
#define EVENKEEL_KERNEL_AVX2_SIMD_H

#include "kernel/matmul_int.h"

#include <immintrin.h>

/* All bits set in the first n lanes, n of any size. */
EK_INLINE __m256i first_lanes(int64_t n)
{
    int count = n > 8 ? 8 : n < 0 ? 0 : (int)n;
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* x[0,n) with zeros behind it, n clipped to [0,8]; nothing behind n is read. */
EK_INLINE __m256 load_first(const float *x, int64_t n)
{
    return n >= 8 ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, first_lanes(n));
}

EK_INLINE void store_first(float *y, int64_t n, __m256 v)
{
    if (n >= 8)
        _mm256_storeu_ps(y, v);
    else
        _mm256_maskstore_ps(y, first_lanes(n), v);
}

/* Lanes joined in a fixed order. */
EK_INLINE float sum_of_lanes(__m256 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

EK_INLINE float max_of_lanes(__m256 v)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

/* 2^n for whole n in [-252, 254], in two factors so that subnormals round once. */
EK_INLINE __m256 times_power_of_two(__m256 p, __m256 n)
{
    const __m256i bias = _mm256_set1_epi32(127);
    __m256i i = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(i, 1);
    __m256i rest = _mm256_sub_epi32(i, half);
    __m256i a = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    __m256i b = _mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(a));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(b));
}

/* e^x. r = x - n ln 2, |r| <= 0.35, by its series to r^7 (the rest is below 6e-9), then
 * times 2^n. exp(0) is exactly 1, exp(-inf) 0; NaN stays: min and max return their
 * second operand when one is NaN. Relative error below 2e-7. */
EK_INLINE __m256 exp_ps(__m256 x)
{
    x = _mm256_max_ps(_mm256_set1_ps(-110.0f), x);
    x = _mm256_min_ps(_mm256_set1_ps(100.0f), x);
    __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    /* ln 2 in two parts; the first has few bits, so n times it is exact. */
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
    __m256 p = _mm256_set1_ps(1.0f / 5040);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 720));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    return times_power_of_two(p, n);
}

/* tanh x: (e-1)/(e+1) with e = exp(2x), and below 1/2, where that cancels, the series
 * x (1 - x^2/3 + 2x^4/15 - ...) to x^13. Relative error below 4e-7. */
EK_INLINE __m256 tanh_ps(__m256 x)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    /* e overflows no float up to 40, where tanh is 1 */
    __m256 e = exp_ps(_mm256_min_ps(_mm256_set1_ps(40.0f), _mm256_add_ps(x, x)));
    __m256 big = _mm256_div_ps(_mm256_sub_ps(e, one), _mm256_add_ps(e, one));
    __m256 z = _mm256_mul_ps(x, x);
    __m256 p = _mm256_set1_ps(21844.0f / 6081075);
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(-1382.0f / 155925));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(62.0f / 2835));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(-17.0f / 315));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(2.0f / 15));
    p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(-1.0f / 3));
    __m256 small = _mm256_fmadd_ps(_mm256_mul_ps(p, z), x, x);
    return _mm256_blendv_ps(big, small,
                            _mm256_cmp_ps(z, _mm256_set1_ps(0.25f), _CMP_LT_OQ));
}

/* Eight 32-bit lanes, each below 2^16, to eight of 16 bits. */
EK_INLINE __m128i narrow_16(__m256i v)
{
    return _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}

/* f32 to bf16, nearest even, a NaN quiet. */
EK_INLINE __m128i bf16_of_ps(__m256 x)
{
    __m256i u = _mm256_castps_si256(x), high = _mm256_srli_epi32(u, 16);
    __m256i lsb = _mm256_and_si256(high, _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(u, _mm256_add_epi32(lsb, _mm256_set1_epi32(0x7fff)));
    __m256i nan = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return narrow_16(_mm256_blendv_epi8(_mm256_srli_epi32(r, 16), nan, is_nan));
}

EK_INLINE __m256 ps_of_bf16(__m128i h)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

/* The low 8 codes, to f32: an e4m3 code moved up by 7 is an f16 of 2^-8 its value (bias
 * 15 against 7), subnormals included; 0x7f is NaN. */
EK_INLINE __m256 ps_of_e4m3(__m128i codes)
{
    __m128i c = _mm_cvtepu8_epi16(codes);
    __m128i em = _mm_and_si128(c, _mm_set1_epi16(0x7f));
    __m128i sign = _mm_slli_epi16(_mm_and_si128(c, _mm_set1_epi16(0x80)), 8);
    __m128i half = _mm_or_si128(_mm_slli_epi16(em, 7), sign);
    __m128i nan = _mm_cmpeq_epi16(em, _mm_set1_epi16(0x7f)); /* ffff: a NaN in f16 */
    __m256 x = _mm256_cvtph_ps(_mm_or_si128(half, nan));
    return _mm256_mul_ps(x, _mm256_set1_ps(256.0f));
}

/* y[0,n) (+)= v. */
EK_INLINE void store_cols(float *y, int64_t n, __m256 v, enum ek_matmul_mode mode)
{
    if (n <= 0)
        return;
    if (mode == EK_MATMUL_ADD)
        v = _mm256_add_ps(load_first(y, n), v);
    store_first(y, n, v);
}

#endif
