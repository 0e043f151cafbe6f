/* norm.c - rmsnorm: 16 f32 partial sums in one register, joined in f64. */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/simd.h"

#include <math.h>

static float row_rstd(const float *x, int64_t C, float eps)
{
    __m512 part = _mm512_setzero_ps();
    for (int64_t c = 0; c < C; c += 16) {
        __m512 v = _mm512_maskz_loadu_ps(first_lanes(C - c), x + c);
        part = _mm512_fmadd_ps(v, v, part);
    }
    float lanes[16];
    _mm512_storeu_ps(lanes, part);
    double sum = 0;
    for (int i = 0; i < 16; i++)
        sum += (double)lanes[i];
    return (float)(1.0 / sqrt(sum / (double)C + (double)eps));
}

void ek_avx512_rmsnorm(float *y, int64_t ldy, const float *x, int64_t ldx,
                       const float *gain, float gain_offset, float eps, int64_t N,
                       int64_t C)
{
    const __m512 offset = _mm512_set1_ps(gain_offset);
    for (int64_t n = 0; n < N; n++) {
        const float *in = x + n * ldx;
        const __m512 rstd = _mm512_set1_ps(row_rstd(in, C, eps));
        for (int64_t c = 0; c < C; c += 16) {
            __mmask16 lanes = first_lanes(C - c);
            __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, in + c), rstd);
            __m512 g = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, gain + c), offset);
            _mm512_mask_storeu_ps(y + n * ldy + c, lanes, _mm512_mul_ps(v, g));
        }
    }
}
