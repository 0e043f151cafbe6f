/* simd.h - the vector pieces that several AVX-512 kernels share. */
#ifndef EVENKEEL_KERNEL_AVX512_SIMD_H
#define EVENKEEL_KERNEL_AVX512_SIMD_H

#include "kernel/matmul_int.h"

#include <immintrin.h>

/* The first n lanes, n clipped to [0,16]. */
EK_INLINE __mmask16 first_lanes(int64_t n)
{
    return n >= 16 ? 0xffff : n <= 0 ? 0 : (__mmask16)((1u << n) - 1);
}

/* e^x. r = x - n ln 2, |r| <= 0.35, by its series to r^7 (the rest is below 6e-9), then
 * times 2^n. exp(0) is exactly 1, exp(-inf) 0; NaN stays: min and max return their
 * second operand when one is NaN. Relative error below 2e-7. */
EK_INLINE __m512 exp_ps(__m512 x)
{
    x = _mm512_max_ps(_mm512_set1_ps(-110.0f), x);
    x = _mm512_min_ps(_mm512_set1_ps(100.0f), x);
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)),
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    /* ln 2 in two parts; the first has few bits, so n times it is exact. */
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.0f / 5040);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 720));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

/* log2 x of x >= 1, finite: x = 2^n m, m in [1,2), and log m = 2 artanh s with s =
 * (m-1)/(m+1) below 1/3, by its series to s^15. Absolute error below 4e-7. */
EK_INLINE __m512 log2_ps(__m512 x)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    const __m512 n = _mm512_getexp_ps(x);
    const __m512 m = _mm512_getmant_ps(x, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_src);
    const __m512 s = _mm512_div_ps(_mm512_sub_ps(m, one), _mm512_add_ps(m, one));
    const __m512 z = _mm512_mul_ps(s, s);
    __m512 p = _mm512_set1_ps(1.0f / 15);
    p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(1.0f / 13));
    p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(1.0f / 11));
    p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(1.0f / 9));
    p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(1.0f / 7));
    p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(1.0f / 5));
    p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(1.0f / 3));
    p = _mm512_fmadd_ps(p, z, one);
    return _mm512_fmadd_ps(_mm512_mul_ps(s, p), _mm512_set1_ps(2 * 1.44269504f), n);
}

/* tanh x: (e-1)/(e+1) with e = exp(2x), and below 1/2, where that cancels, the series
 * x (1 - x^2/3 + 2x^4/15 - ...) to x^13. Relative error below 4e-7. */
EK_INLINE __m512 tanh_ps(__m512 x)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    /* e overflows no float up to 40, where tanh is 1 */
    __m512 e = exp_ps(_mm512_min_ps(_mm512_set1_ps(40.0f), _mm512_add_ps(x, x)));
    __m512 big = _mm512_div_ps(_mm512_sub_ps(e, one), _mm512_add_ps(e, one));
    __m512 z = _mm512_mul_ps(x, x);
    __m512 p = _mm512_set1_ps(21844.0f / 6081075);
    p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(-1382.0f / 155925));
    p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(62.0f / 2835));
    p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(-17.0f / 315));
    p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(2.0f / 15));
    p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(-1.0f / 3));
    __m512 small = _mm512_fmadd_ps(_mm512_mul_ps(p, z), x, x);
    __mmask16 is_small = _mm512_cmp_ps_mask(z, _mm512_set1_ps(0.25f), _CMP_LT_OQ);
    return _mm512_mask_mov_ps(big, is_small, small);
}

/* f32 to bf16, nearest even, a NaN quiet (vcvtneps2bf16 would flush subnormals). */
EK_INLINE __m256i bf16_of_ps(__m512 x)
{
    __m512i u = _mm512_castps_si512(x);
    __m512i high = _mm512_srli_epi32(u, 16);
    __m512i lsb = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(u, _mm512_add_epi32(lsb, _mm512_set1_epi32(0x7fff)));
    r = _mm512_srli_epi32(r, 16);
    __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    r = _mm512_mask_or_epi32(r, is_nan, high, _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(r);
}

EK_INLINE __m512 ps_of_bf16(__m256i h)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* The four bytes at x in every lane. */
EK_INLINE __m512i quad(const void *x)
{
    int32_t bits;
    __builtin_memcpy(&bits, x, sizeof bits);
    return _mm512_set1_epi32(bits);
}

struct four {
    int8_t x[4];
};

/* sum += the quads of w times the four bytes at x. As assembly because gcc 12 loads x
 * by an instruction of its own otherwise: an eighth slower. */
EK_INLINE __m512i add_quad(__m512i sum, __m512i w, const int8_t *x)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0"
            : "+v"(sum)
            : "v"(w), "m"(*(const struct four *)(const void *)x));
    return sum;
}

EK_INLINE const struct ek_act_cell *act_cell(const struct ek_tile *c, int t, int64_t g)
{
    return ek_act_cells(c->act + t * c->stride) + g;
}

/* sum[t] += columns k..k+3 of group g, weights w, times the base of R rows. */
EK_INLINE void add_base(__m512i *sum, const struct ek_tile *c, const int R, int64_t g,
                        int k, __m512i w)
{
    EK_UNROLL_GCC
    for (int t = 0; t < R; t++)
        sum[t] = add_quad(sum[t], w, act_cell(c, t, g)->base + k);
}

/* sum[t] += the tops of R rows times their codes among the 512 bytes at w. */
EK_INLINE void add_tops(__m512i *sum, const struct ek_tile *c, const int R, int64_t g,
                        const unsigned char *w)
{
    EK_UNROLL_GCC
    for (int t = 0; t < R; t++) {
        const struct ek_act_cell *x = act_cell(c, t, g);
        for (int i = 0; i < 2; i++) {
            __m512i q = _mm512_load_si512(w + ek_act_code(x, i));
            sum[t] = add_quad(sum[t], q, x->top[i]);
        }
    }
}

/* The nibbles of a group's 256 bytes at w times the base of R rows; to `upper` 16 times
 * the nibbles, which add_tops then finds by number: choosing and moving them anew for
 * every row is slower by a tenth. */
EK_INLINE void add_nibbles(__m512i *sum, unsigned char *upper, const struct ek_tile *c,
                           const int R, int64_t g, const unsigned char *w)
{
    const __m512i low = _mm512_set1_epi8(15);
    for (int j = 0; j < 4; j++) {
        __m512i q = _mm512_load_si512(w + 64 * j);
        __m512i v = _mm512_and_si512(q, low), z = _mm512_andnot_si512(low, q);
        _mm512_store_si512(upper + 64 * j, _mm512_slli_epi16(v, 4));
        _mm512_store_si512(upper + 64 * j + 256, z);
        add_base(sum, c, R, g, 4 * j, v);
        add_base(sum, c, R, g, 4 * j + 16, _mm512_srli_epi16(z, 4));
    }
}

/* y[0,16) (+)= v under mask. */
EK_INLINE void store_lanes(float *y, __mmask16 lanes, __m512 v,
                           enum ek_matmul_mode mode)
{
    if (mode == EK_MATMUL_ADD)
        v = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, y), v);
    _mm512_mask_storeu_ps(y, lanes, v);
}

#endif
