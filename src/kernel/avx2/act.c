/* act.c - elementwise operations, eight values at a time; exp from simd.h. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/simd.h"

/* x / (1 + exp(-z)): silu with z = x; gelu's (1 + tanh(z/2))/2 is the same sigmoid. */
EK_INLINE __m256 gated(__m256 x, enum ek_glu_kind kind)
{
    __m256 z = x;
    if (kind == EK_GLU_GELU_TANH) {
        __m256 x2 = _mm256_mul_ps(x, x);
        __m256 p = _mm256_fmadd_ps(x2, _mm256_set1_ps(0.044715f), _mm256_set1_ps(1.0f));
        z = _mm256_mul_ps(_mm256_mul_ps(x, p), _mm256_set1_ps(1.5957691216f));
    }
    __m256 e = exp_ps(_mm256_sub_ps(_mm256_setzero_ps(), z));
    return _mm256_div_ps(x, _mm256_add_ps(e, _mm256_set1_ps(1.0f)));
}

void ek_avx2_glu(float *y, const float *gate, const float *up, int64_t n,
                 enum ek_glu_kind kind)
{
    for (int64_t i = 0; i < n; i += 8) {
        __m256 g = gated(load_first(gate + i, n - i), kind);
        store_first(y + i, n - i, _mm256_mul_ps(g, load_first(up + i, n - i)));
    }
}

void ek_avx2_add(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 8)
        store_first(y + i, n - i,
                    _mm256_add_ps(load_first(y + i, n - i), load_first(x + i, n - i)));
}
