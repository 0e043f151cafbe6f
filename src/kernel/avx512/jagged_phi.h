/* jagged_phi.h - the activations of kernel/phi.h and their gradients, 16 at a time. */
#ifndef EVENKEEL_KERNEL_AVX512_JAGGED_PHI_H
#define EVENKEEL_KERNEL_AVX512_JAGGED_PHI_H

#include "kernel/avx512/attn_softmax.h"
#include "kernel/phi.h"

/* 1/x: 2^-14 relative, for what becomes bf16; one step of Newton's to 2e-7. */
EK_INLINE __m512 inverse(__m512 x, const bool is_bf16)
{
    __m512 y = _mm512_rcp14_ps(x);
    if (is_bf16)
        return y;
    return _mm512_mul_ps(y, _mm512_fnmadd_ps(x, y, _mm512_set1_ps(2.0f)));
}

/* 2^x for what becomes bf16: a cubic over [0,1), 8e-5 relative (least largest error).
 * Needs no bounds: 2^-inf is 0, and NaN stays. */
EK_INLINE __m512 exp2_short(__m512 x)
{
    const __m512 r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __m512 p = _mm512_set1_ps(0.07802452f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.22606716f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.69583354f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.99992522f));
    return _mm512_scalef_ps(p, x);
}

EK_INLINE __m512 exp2_as(__m512 x, const bool is_bf16)
{
    return is_bf16 ? exp2_short(x) : exp2_ps(x, 6);
}

/* 1/(1 + 2^x); the exponent is held below where 1/x would lose its Newton step. */
EK_INLINE __m512 logistic(__m512 x, const bool is_bf16)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    if (!is_bf16)
        x = _mm512_min_ps(x, _mm512_set1_ps(120.0f));
    return inverse(_mm512_add_ps(one, exp2_as(x, is_bf16)), is_bf16);
}

/* 1/(1 + exp(-x)) */
EK_INLINE __m512 sigmoid(__m512 x, const bool is_bf16)
{
    return logistic(_mm512_mul_ps(x, _mm512_set1_ps(-LOG2E)), is_bf16);
}

/* x Phi(x). Phi by Abramowitz and Stegun 7.1.26 (1.5e-7). */
EK_INLINE __m512 gelu(__m512 x, __m512 *grad)
{
    const __m512 one = _mm512_set1_ps(1.0f), half = _mm512_set1_ps(0.5f);
    const __m512 e = exp2_as(
        _mm512_mul_ps(_mm512_mul_ps(x, x), _mm512_set1_ps(-0.5f * LOG2E)), false);
    const __m512 t =
        inverse(_mm512_fmadd_ps(_mm512_abs_ps(x),
                                _mm512_set1_ps(0.3275911f * 0.70710678f), one),
                false);
    __m512 p = _mm512_set1_ps(1.061405429f);
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(-1.453152027f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(1.421413741f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(-0.284496736f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(0.254829592f));
    /* the tail beyond |x| */
    const __m512 tail = _mm512_mul_ps(half, _mm512_mul_ps(_mm512_mul_ps(p, t), e));
    const __mmask16 is_below = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
    const __m512 cdf = _mm512_mask_mov_ps(_mm512_sub_ps(one, tail), is_below, tail);
    *grad = _mm512_fmadd_ps(_mm512_mul_ps(x, _mm512_set1_ps(0.39894228f)), e, cdf);
    return _mm512_mul_ps(x, cdf);
}

/* x (1 + tanh u)/2 = x s with s = sigmoid(2 u). */
EK_INLINE __m512 gelu_tanh(__m512 x, __m512 *grad, const bool is_bf16)
{
    const __m512 a = _mm512_set1_ps(2 * 0.79788456f);
    const __m512 a2 = _mm512_set1_ps(-LOG2E * 2 * 0.79788456f);
    const __m512 ab2 = _mm512_set1_ps(-LOG2E * 2 * 0.79788456f * 0.044715f);
    const __m512 ab3 = _mm512_set1_ps(6 * 0.79788456f * 0.044715f);
    const __m512 z = _mm512_mul_ps(x, x);
    const __m512 s = logistic(_mm512_mul_ps(x, _mm512_fmadd_ps(ab2, z, a2)), is_bf16);
    const __m512 y = _mm512_mul_ps(x, s);
    /* s + x s (1-s) (2u)' */
    *grad = _mm512_fmadd_ps(_mm512_fnmadd_ps(y, s, y), _mm512_fmadd_ps(ab3, z, a), s);
    return y;
}

/* The polynomial, and gelu for lanes beyond its range, where there are any. */
EK_INLINE __m512 gelu_poly(__m512 x, __m512 *grad)
{
    const __m512 z = _mm512_mul_ps(x, x), half = _mm512_set1_ps(0.5f);
    __m512 p = _mm512_fmadd_ps(z, _mm512_set1_ps(EK_PHI_POLY_C6),
                               _mm512_set1_ps(EK_PHI_POLY_C4));
    __m512 g = _mm512_fmadd_ps(z, _mm512_set1_ps(6 * EK_PHI_POLY_C6),
                               _mm512_set1_ps(4 * EK_PHI_POLY_C4));
    p = _mm512_fmadd_ps(z, p, _mm512_set1_ps(EK_PHI_POLY_C2));
    g = _mm512_fmadd_ps(z, g, _mm512_set1_ps(2 * EK_PHI_POLY_C2));
    p = _mm512_fmadd_ps(z, p, _mm512_mul_ps(half, x));
    *grad = _mm512_fmadd_ps(x, g, half);
    const __mmask16 is_far = _mm512_cmp_ps_mask(
        _mm512_abs_ps(x), _mm512_set1_ps(EK_PHI_POLY_RANGE), _CMP_NLE_UQ);
    if (is_far) {
        __m512 far_grad, far = gelu(x, &far_grad);
        p = _mm512_mask_mov_ps(p, is_far, far);
        *grad = _mm512_mask_mov_ps(*grad, is_far, far_grad);
    }
    return p;
}

EK_INLINE __m512 hardswish(__m512 x, __m512 *grad)
{
    const __m512 zero = _mm512_setzero_ps(), six = _mm512_set1_ps(6.0f);
    const __m512 sixth = _mm512_set1_ps(1.0f / 6), three = _mm512_set1_ps(3.0f);
    __m512 up = _mm512_add_ps(x, three);
    __m512 g = _mm512_mul_ps(_mm512_add_ps(x, up), sixth);
    g = _mm512_mask_mov_ps(g, _mm512_cmp_ps_mask(up, zero, _CMP_LE_OQ), zero);
    *grad = _mm512_mask_mov_ps(g, _mm512_cmp_ps_mask(x, three, _CMP_GE_OQ),
                               _mm512_set1_ps(1.0f));
    up = _mm512_min_ps(_mm512_max_ps(up, zero), six);
    return _mm512_mul_ps(_mm512_mul_ps(x, up), sixth);
}

/* phi(x) and its gradient, as kernel/phi.h has them. */
EK_INLINE __m512 phi_of(__m512 x, __m512 *grad, const enum ek_phi phi,
                        const bool is_bf16)
{
    const __m512 one = _mm512_set1_ps(1.0f), zero = _mm512_setzero_ps();
    const __mmask16 is_up = _mm512_cmp_ps_mask(x, zero, _CMP_GT_OQ);
    if (phi == EK_PHI_GELU)
        return gelu(x, grad);
    if (phi == EK_PHI_GELU_TANH)
        return gelu_tanh(x, grad, is_bf16);
    if (phi == EK_PHI_GELU_POLY)
        return gelu_poly(x, grad);
    if (phi == EK_PHI_HARDSWISH)
        return hardswish(x, grad);
    if (phi == EK_PHI_SILU) {
        const __m512 s = sigmoid(x, is_bf16), y = _mm512_mul_ps(x, s);
        *grad = _mm512_add_ps(s, _mm512_fnmadd_ps(y, s, y));
        return y;
    }
    if (phi == EK_PHI_LEAKY_RELU) {
        *grad = _mm512_mask_mov_ps(_mm512_set1_ps(0.01f), is_up, one);
        return _mm512_mul_ps(x, *grad);
    }
    if (phi == EK_PHI_RELU) {
        *grad = _mm512_maskz_mov_ps(is_up, one);
        return _mm512_maskz_mov_ps(is_up, x);
    }
    if (phi == EK_PHI_RELU2) {
        const __m512 y = _mm512_maskz_mov_ps(is_up, x);
        *grad = _mm512_add_ps(y, y);
        return _mm512_mul_ps(y, y);
    }
    *grad = one;
    return x;
}

#endif
