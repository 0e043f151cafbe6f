/* matmul_bf16.c - both sides widened to f32, then FMA. A 32-bit lane holds columns k
 * (low half) and k+1 (high half) of one output. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/simd.h"

EK_INLINE __m256 low_halves(__m256i v)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
}

EK_INLINE __m256 high_halves(__m256i v)
{
    return _mm256_castsi256_ps(
        _mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000u)));
}

EK_INLINE void tile(const struct ek_tile *c, const int R)
{
    __m256 lo[4], hi[4];
    EK_UNROLL
    for (int t = 0; t < R; t++)
        lo[t] = hi[t] = _mm256_setzero_ps();
    for (int64_t k = 0; k < c->G * EK_GROUP; k += 2) {
        const unsigned char *w = c->panel + k * EK_PANEL * 2;
        ek_tile_fetch(c, w, 1);
        __m256i u = _mm256_load_si256((const void *)w);
        __m256i v = _mm256_load_si256((const void *)(w + 32));
        EK_UNROLL
        for (int t = 0; t < R; t++) {
            int32_t pair;
            __builtin_memcpy(&pair, c->act + t * c->stride + 2 * k, sizeof pair);
            __m256i x = _mm256_set1_epi32(pair);
            __m256 x0 = low_halves(x), x1 = high_halves(x);
            lo[t] = _mm256_fmadd_ps(low_halves(u), x0, lo[t]);
            lo[t] = _mm256_fmadd_ps(high_halves(u), x1, lo[t]);
            hi[t] = _mm256_fmadd_ps(low_halves(v), x0, hi[t]);
            hi[t] = _mm256_fmadd_ps(high_halves(v), x1, hi[t]);
        }
    }
    EK_UNROLL
    for (int t = 0; t < R; t++) {
        store_cols(c->y + t * c->ldy, c->n_cols, lo[t], c->mode);
        store_cols(c->y + t * c->ldy + 8, c->n_cols - 8, hi[t], c->mode);
    }
}

void ek_avx2_tile_bf16(const struct ek_tile *c, int R)
{
    EK_TILE_TO_4(tile, c, R);
}
