/* beats.c - counts of scores: a comparison of 8, and its bits. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/simd.h"

EK_INLINE __m256 before(__m256 x, __m256 s, const bool is_strict)
{
    return is_strict ? _mm256_cmp_ps(x, s, _CMP_NLE_UQ)
                     : _mm256_cmp_ps(x, s, _CMP_NLT_UQ);
}

EK_INLINE int64_t count(const float *x, int64_t n, __m256 s, const bool is_strict)
{
    int64_t sum = 0, i = 0;
    for (; i + 8 <= n; i += 8)
        sum += __builtin_popcount(
            (unsigned)_mm256_movemask_ps(before(_mm256_loadu_ps(x + i), s, is_strict)));
    if (i < n) {
        const __m256 m = before(load_first(x + i, n - i), s, is_strict);
        sum += __builtin_popcount((unsigned)_mm256_movemask_ps(
            _mm256_and_ps(m, _mm256_castsi256_ps(first_lanes(n - i)))));
    }
    return sum;
}

int64_t ek_avx2_beats(const float *x, int64_t n, int64_t split, float s)
{
    const __m256 v = _mm256_set1_ps(s);
    return count(x, split, v, false) + count(x + split, n - split, v, true);
}
