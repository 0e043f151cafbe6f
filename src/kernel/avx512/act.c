/* act.c - elementwise operations, 16 values at a time; exp from simd.h. */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/simd.h"

/* x / (1 + exp(-z)): silu with z = x; gelu's (1 + tanh(z/2))/2 is the same sigmoid. */
EK_INLINE __m512 gated(__m512 x, enum ek_glu_kind kind)
{
    __m512 z = x;
    if (kind == EK_GLU_GELU_TANH) {
        __m512 x2 = _mm512_mul_ps(x, x);
        __m512 p = _mm512_fmadd_ps(x2, _mm512_set1_ps(0.044715f), _mm512_set1_ps(1.0f));
        z = _mm512_mul_ps(_mm512_mul_ps(x, p), _mm512_set1_ps(1.5957691216f));
    }
    __m512 e = exp_ps(_mm512_sub_ps(_mm512_setzero_ps(), z));
    return _mm512_div_ps(x, _mm512_add_ps(e, _mm512_set1_ps(1.0f)));
}

void ek_avx512_glu(float *y, const float *gate, const float *up, int64_t n,
                   enum ek_glu_kind kind)
{
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 lanes = first_lanes(n - i);
        __m512 g = gated(_mm512_maskz_loadu_ps(lanes, gate + i), kind);
        __m512 u = _mm512_maskz_loadu_ps(lanes, up + i);
        _mm512_mask_storeu_ps(y + i, lanes, _mm512_mul_ps(g, u));
    }
}

void ek_avx512_add(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 lanes = first_lanes(n - i);
        __m512 sum = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, y + i),
                                   _mm512_maskz_loadu_ps(lanes, x + i));
        _mm512_mask_storeu_ps(y + i, lanes, sum);
    }
}
