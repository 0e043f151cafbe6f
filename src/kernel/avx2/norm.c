/* norm.c - rmsnorm: 16 f32 partial sums in two registers, joined in f64. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/simd.h"

#include <math.h>

static float row_rstd(const float *x, int64_t C, float eps)
{
    __m256 a = _mm256_setzero_ps(), b = a;
    for (int64_t c = 0; c < C; c += 16) {
        __m256 u = load_first(x + c, C - c), v = load_first(x + c + 8, C - c - 8);
        a = _mm256_fmadd_ps(u, u, a);
        b = _mm256_fmadd_ps(v, v, b);
    }
    float lanes[16];
    _mm256_storeu_ps(lanes, a);
    _mm256_storeu_ps(lanes + 8, b);
    double sum = 0;
    for (int i = 0; i < 16; i++)
        sum += (double)lanes[i];
    return (float)(1.0 / sqrt(sum / (double)C + (double)eps));
}

void ek_avx2_rmsnorm(float *y, int64_t ldy, const float *x, int64_t ldx,
                     const float *gain, float gain_offset, float eps, int64_t N,
                     int64_t C)
{
    const __m256 offset = _mm256_set1_ps(gain_offset);
    for (int64_t n = 0; n < N; n++) {
        const float *in = x + n * ldx;
        const __m256 rstd = _mm256_set1_ps(row_rstd(in, C, eps));
        for (int64_t c = 0; c < C; c += 8) {
            __m256 v = _mm256_mul_ps(load_first(in + c, C - c), rstd);
            __m256 g = _mm256_add_ps(load_first(gain + c, C - c), offset);
            store_first(y + n * ldy + c, C - c, _mm256_mul_ps(v, g));
        }
    }
}
