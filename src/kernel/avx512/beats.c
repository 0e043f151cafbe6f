/* beats.c - counts of scores: a comparison of 16, and its bits. */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/simd.h"

EK_INLINE __mmask16 before(__m512 x, __m512 s, const bool is_strict)
{
    return is_strict ? _mm512_cmp_ps_mask(x, s, _CMP_NLE_UQ)
                     : _mm512_cmp_ps_mask(x, s, _CMP_NLT_UQ);
}

EK_INLINE int64_t count(const float *x, int64_t n, __m512 s, const bool is_strict)
{
    int64_t sum = 0, i = 0;
    for (; i + 64 <= n; i += 64) {
        __mmask16 a, b, c, d;
        a = before(_mm512_loadu_ps(x + i), s, is_strict);
        b = before(_mm512_loadu_ps(x + i + 16), s, is_strict);
        c = before(_mm512_loadu_ps(x + i + 32), s, is_strict);
        d = before(_mm512_loadu_ps(x + i + 48), s, is_strict);
        uint64_t low = (uint64_t)_mm512_kunpackw(b, a);
        uint64_t high = (uint64_t)_mm512_kunpackw(d, c);
        sum += __builtin_popcountll(high << 32 | low);
    }
    for (; i < n; i += 16) {
        const __mmask16 lanes = first_lanes(n - i);
        const __m512 v = _mm512_maskz_loadu_ps(lanes, x + i);
        sum += __builtin_popcount(lanes & before(v, s, is_strict));
    }
    return sum;
}

int64_t ek_avx512_beats(const float *x, int64_t n, int64_t split, float s)
{
    const __m512 v = _mm512_set1_ps(s);
    return count(x, split, v, false) + count(x + split, n - split, v, true);
}
