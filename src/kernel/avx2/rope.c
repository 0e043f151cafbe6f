/* rope.c - the rotation of both pairings, eight values at a time. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/simd.h"

/* Pairs (x[i], x[i + half]); eight pairs a time, their (cos, sin) taken apart. */
static void half_split(float *x, const float *cs, int64_t half)
{
    for (int64_t i = 0; i < half; i += 8) {
        int64_t n = half - i;
        __m256 a = load_first(cs + 2 * i, 2 * n);
        __m256 b = load_first(cs + 2 * i + 8, 2 * n - 8);
        /* shuffle works within 128-bit halves: pairs 0 1 4 5 2 3 6 7, then in order */
        __m256d c = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88));
        __m256d s = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0xdd));
        __m256 cosv = _mm256_castpd_ps(_mm256_permute4x64_pd(c, 0xd8));
        __m256 sinv = _mm256_castpd_ps(_mm256_permute4x64_pd(s, 0xd8));
        __m256 u = load_first(x + i, n), v = load_first(x + half + i, n);
        store_first(x + i, n, _mm256_fmsub_ps(u, cosv, _mm256_mul_ps(v, sinv)));
        store_first(x + half + i, n, _mm256_fmadd_ps(u, sinv, _mm256_mul_ps(v, cosv)));
    }
}

/* Pairs (x[2i], x[2i+1]) lie as their (cos, sin) do. */
static void interleaved(float *x, const float *cs, int64_t n)
{
    for (int64_t i = 0; i < n; i += 8) {
        __m256 a = load_first(cs + i, n - i), v = load_first(x + i, n - i);
        __m256 swapped = _mm256_permute_ps(v, 0xb1);
        __m256 cross = _mm256_mul_ps(swapped, _mm256_movehdup_ps(a));
        store_first(x + i, n - i, _mm256_fmaddsub_ps(v, _mm256_moveldup_ps(a), cross));
    }
}

void ek_avx2_rope(float *x, int64_t ldx, const float *cs, const struct ek_rope *r,
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
