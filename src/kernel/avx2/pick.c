/* pick.c - one pass over a row of logits. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/simd.h"

#include <math.h>

static double sum_of_lanes_pd(__m256d v)
{
    double lanes[4];
    _mm256_storeu_pd(lanes, v);
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

/* NaN is passed over: max returns its second operand when one is NaN. Magnitudes are
 * compared as integers, where infinity and NaN are the largest. */
bool ek_avx2_peaks(float *max, const float *x, int64_t n)
{
    const __m256 least = _mm256_set1_ps(-INFINITY);
    const __m256i abs = _mm256_set1_epi32(0x7fffffff);
    __m256i top = _mm256_setzero_si256();
    for (int64_t b = 0; b < n; b += EK_PICK_BLOCK) {
        __m256 m = least;
        for (int64_t i = b; i < b + EK_PICK_BLOCK && i < n; i += 8) {
            __m256 v = load_first(x + i, n - i);
            top = _mm256_max_epu32(top, _mm256_and_si256(_mm256_castps_si256(v), abs));
            v = _mm256_blendv_ps(least, v, _mm256_castsi256_ps(first_lanes(n - i)));
            m = _mm256_max_ps(v, m);
        }
        max[b / EK_PICK_BLOCK] = max_of_lanes(m);
    }
    /* All are below 2^31: signed and unsigned order agree. */
    __m256i is_huge = _mm256_cmpgt_epi32(top, _mm256_set1_epi32(0x7f7fffff));
    return _mm256_testz_si256(is_huge, is_huge);
}

void ek_avx2_weigh(float *e, float *max, double *sum, const float *x, int64_t n,
                   float top, float temperature)
{
    const __m256 vtop = _mm256_set1_ps(top), inv = _mm256_set1_ps(1.0f / temperature);
    for (int64_t b = 0; b < n; b += EK_PICK_BLOCK) {
        __m256 m = _mm256_setzero_ps();
        __m256d s = _mm256_setzero_pd(), t = s;
        for (int64_t i = b; i < b + EK_PICK_BLOCK && i < n; i += 8) {
            __m256 v = _mm256_sub_ps(load_first(x + i, n - i), vtop);
            v = exp_ps(_mm256_mul_ps(v, inv));
            v = _mm256_and_ps(v, _mm256_castsi256_ps(first_lanes(n - i)));
            store_first(e + i, n - i, v);
            m = _mm256_max_ps(v, m);
            s = _mm256_add_pd(s, _mm256_cvtps_pd(_mm256_castps256_ps128(v)));
            t = _mm256_add_pd(t, _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
        }
        max[b / EK_PICK_BLOCK] = max_of_lanes(m);
        sum[b / EK_PICK_BLOCK] = sum_of_lanes_pd(_mm256_add_pd(s, t));
    }
}
