/* pick.c - one pass over a row of logits. */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/simd.h"

#include <math.h>

/* NaN is passed over: max returns its second operand when one is NaN. Magnitudes are
 * compared as integers, where infinity and NaN are the largest. */
bool ek_avx512_peaks(float *max, const float *x, int64_t n)
{
    const __m512 least = _mm512_set1_ps(-INFINITY);
    const __m512i abs = _mm512_set1_epi32(0x7fffffff);
    __m512i top = _mm512_setzero_si512();
    for (int64_t b = 0; b < n; b += EK_PICK_BLOCK) {
        __m512 m = least;
        for (int64_t i = b; i < b + EK_PICK_BLOCK; i += 16) {
            __mmask16 lanes = first_lanes(n - i);
            __m512 v = _mm512_mask_loadu_ps(least, lanes, x + i);
            m = _mm512_max_ps(v, m);
            v = _mm512_maskz_mov_ps(lanes, v);
            top = _mm512_max_epu32(top, _mm512_and_si512(_mm512_castps_si512(v), abs));
        }
        max[b / EK_PICK_BLOCK] = _mm512_reduce_max_ps(m);
    }
    return _mm512_reduce_max_epu32(top) < 0x7f800000u;
}

void ek_avx512_weigh(float *e, float *max, double *sum, const float *x, int64_t n,
                     float top, float temperature)
{
    const __m512 vtop = _mm512_set1_ps(top), inv = _mm512_set1_ps(1.0f / temperature);
    for (int64_t b = 0; b < n; b += EK_PICK_BLOCK) {
        __m512 m = _mm512_setzero_ps();
        __m512d s = _mm512_setzero_pd(), t = s;
        for (int64_t i = b; i < b + EK_PICK_BLOCK && i < n; i += 16) {
            __mmask16 lanes = first_lanes(n - i);
            __m512 v = _mm512_sub_ps(_mm512_maskz_loadu_ps(lanes, x + i), vtop);
            v = _mm512_maskz_mov_ps(lanes, exp_ps(_mm512_mul_ps(v, inv)));
            _mm512_mask_storeu_ps(e + i, lanes, v);
            m = _mm512_max_ps(v, m);
            s = _mm512_add_pd(s, _mm512_cvtps_pd(_mm512_castps512_ps256(v)));
            t = _mm512_add_pd(t, _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1)));
        }
        max[b / EK_PICK_BLOCK] = _mm512_reduce_max_ps(m);
        sum[b / EK_PICK_BLOCK] = _mm512_reduce_add_pd(_mm512_add_pd(s, t));
    }
}
