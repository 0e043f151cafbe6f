/* pick.c - softmax and argmax; the sum of the softmax in f64 lanes. */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/simd.h"

#include <math.h>

/* NaN is passed over: max returns its second operand when one is NaN. */
static float largest(const float *x, int64_t n)
{
    const __m512 least = _mm512_set1_ps(-INFINITY);
    __m512 m = least;
    for (int64_t i = 0; i < n; i += 16)
        m = _mm512_max_ps(_mm512_mask_loadu_ps(least, first_lanes(n - i), x + i), m);
    return _mm512_reduce_max_ps(m);
}

double ek_avx512_softmax(float *p, const float *x, int64_t n, float temperature)
{
    float max = largest(x, n), inv = 1.0f / temperature;
    const __m512 vmax = _mm512_set1_ps(max), vinv = _mm512_set1_ps(inv);
    __m512d sum = _mm512_setzero_pd();
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 lanes = first_lanes(n - i);
        __m512 v = _mm512_sub_ps(_mm512_maskz_loadu_ps(lanes, x + i), vmax);
        __m512 e = _mm512_maskz_mov_ps(lanes, exp_ps(_mm512_mul_ps(v, vinv)));
        sum = _mm512_add_pd(sum, _mm512_cvtps_pd(_mm512_castps512_ps256(e)));
        sum = _mm512_add_pd(sum, _mm512_cvtps_pd(_mm512_extractf32x8_ps(e, 1)));
        _mm512_mask_storeu_ps(p + i, lanes, e);
    }
    double total = _mm512_reduce_add_pd(sum);
    const __m512 scale = _mm512_set1_ps((float)(1.0 / total));
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 lanes = first_lanes(n - i);
        __m512 e = _mm512_maskz_loadu_ps(lanes, p + i);
        _mm512_mask_storeu_ps(p + i, lanes, _mm512_mul_ps(e, scale));
    }
    return (double)max * (double)inv + log(total);
}

int64_t ek_avx512_argmax(const float *x, int64_t n)
{
    const __m512 m = _mm512_set1_ps(largest(x, n));
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 lanes = first_lanes(n - i);
        __m512 v = _mm512_maskz_loadu_ps(lanes, x + i);
        __mmask16 hit = _mm512_mask_cmp_ps_mask(lanes, v, m, _CMP_EQ_OQ);
        if (hit)
            return i + __builtin_ctz(hit);
    }
    return 0; /* nothing but NaN */
}
