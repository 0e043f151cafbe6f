/* pick.c - softmax and argmax; the sum of the softmax in f64 lanes. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/simd.h"

#include <math.h>

/* NaN is passed over: max returns its second operand when one is NaN. */
static float largest(const float *x, int64_t n)
{
    const __m256 least = _mm256_set1_ps(-INFINITY);
    __m256 m = least;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        m = _mm256_max_ps(_mm256_loadu_ps(x + i), m);
    __m256 tail = _mm256_blendv_ps(least, load_first(x + i, n - i),
                                   _mm256_castsi256_ps(first_lanes(n - i)));
    return max_of_lanes(_mm256_max_ps(tail, m));
}

static double sum_of_lanes_pd(__m256d v)
{
    double lanes[4];
    _mm256_storeu_pd(lanes, v);
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

double ek_avx2_softmax(float *p, const float *x, int64_t n, float temperature)
{
    float max = largest(x, n), inv = 1.0f / temperature;
    const __m256 vmax = _mm256_set1_ps(max), vinv = _mm256_set1_ps(inv);
    __m256d a = _mm256_setzero_pd(), b = a;
    for (int64_t i = 0; i < n; i += 8) {
        __m256 v = _mm256_sub_ps(load_first(x + i, n - i), vmax);
        __m256 e = exp_ps(_mm256_mul_ps(v, vinv));
        e = _mm256_and_ps(e, _mm256_castsi256_ps(first_lanes(n - i)));
        a = _mm256_add_pd(a, _mm256_cvtps_pd(_mm256_castps256_ps128(e)));
        b = _mm256_add_pd(b, _mm256_cvtps_pd(_mm256_extractf128_ps(e, 1)));
        store_first(p + i, n - i, e);
    }
    double total = sum_of_lanes_pd(_mm256_add_pd(a, b));
    const __m256 scale = _mm256_set1_ps((float)(1.0 / total));
    for (int64_t i = 0; i < n; i += 8)
        store_first(p + i, n - i, _mm256_mul_ps(load_first(p + i, n - i), scale));
    return (double)max * (double)inv + log(total);
}

int64_t ek_avx2_argmax(const float *x, int64_t n)
{
    const __m256 m = _mm256_set1_ps(largest(x, n));
    for (int64_t i = 0; i < n; i += 8) {
        __m256 is_top = _mm256_cmp_ps(load_first(x + i, n - i), m, _CMP_EQ_OQ);
        is_top = _mm256_and_ps(is_top, _mm256_castsi256_ps(first_lanes(n - i)));
        int hit = _mm256_movemask_ps(is_top);
        if (hit)
            return i + __builtin_ctz((unsigned)hit);
    }
    return 0; /* nothing but NaN */
}
