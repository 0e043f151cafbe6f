/* rope.c - the rotation of both pairings, 16 values at a time. */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/simd.h"

/* Pairs (x[i], x[i + half]); 16 pairs a time, their (cos, sin) taken apart. */
static void half_split(float *x, const float *cs, int64_t half)
{
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    for (int64_t i = 0; i < half; i += 16) {
        __mmask16 lanes = first_lanes(half - i);
        __m512 a = _mm512_maskz_loadu_ps(first_lanes(2 * (half - i)), cs + 2 * i);
        __m512 b =
            _mm512_maskz_loadu_ps(first_lanes(2 * (half - i) - 16), cs + 2 * i + 16);
        __m512 c = _mm512_permutex2var_ps(a, even, b);
        __m512 s = _mm512_permutex2var_ps(a, odd, b);
        __m512 u = _mm512_maskz_loadu_ps(lanes, x + i);
        __m512 v = _mm512_maskz_loadu_ps(lanes, x + half + i);
        _mm512_mask_storeu_ps(x + i, lanes, _mm512_fmsub_ps(u, c, _mm512_mul_ps(v, s)));
        _mm512_mask_storeu_ps(x + half + i, lanes,
                              _mm512_fmadd_ps(u, s, _mm512_mul_ps(v, c)));
    }
}

/* Pairs (x[2i], x[2i+1]) lie as their (cos, sin) do. */
static void interleaved(float *x, const float *cs, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 lanes = first_lanes(n - i);
        __m512 a = _mm512_maskz_loadu_ps(lanes, cs + i);
        __m512 v = _mm512_maskz_loadu_ps(lanes, x + i);
        __m512 swapped = _mm512_permute_ps(v, 0xb1);
        __m512 cross = _mm512_mul_ps(swapped, _mm512_movehdup_ps(a));
        _mm512_mask_storeu_ps(x + i, lanes,
                              _mm512_fmaddsub_ps(v, _mm512_moveldup_ps(a), cross));
    }
}

void ek_avx512_rope(float *x, int64_t ldx, const float *cs, const struct ek_rope *r,
                    int64_t T, int64_t H, int64_t D)
{
    for (int64_t t = 0; t < T; t++)
        for (int64_t h = 0; h < H; h++) {
            float *head = x + t * ldx + h * D;
            if (r->is_interleaved)
                interleaved(head, cs + t * r->n_dims, r->n_dims);
            else
                half_split(head, cs + t * r->n_dims, r->n_dims / 2);
        }
}
