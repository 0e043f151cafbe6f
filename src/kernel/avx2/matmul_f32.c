/* matmul_f32.c - two registers of 8 outputs x R rows. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/simd.h"

EK_INLINE void tile(const struct ek_tile *c, const int R)
{
    const float *w = (const float *)(const void *)c->panel;
    __m256 lo[4], hi[4];
    EK_UNROLL
    for (int t = 0; t < R; t++)
        lo[t] = hi[t] = _mm256_setzero_ps();
    for (int64_t k = 0; k < c->G * EK_GROUP; k++) {
        ek_tile_fetch(c, c->panel + k * EK_PANEL * 4, 1);
        __m256 w0 = _mm256_load_ps(w + k * EK_PANEL);
        __m256 w1 = _mm256_load_ps(w + k * EK_PANEL + 8);
        EK_UNROLL
        for (int t = 0; t < R; t++) {
            const float *x = (const float *)(const void *)(c->act + t * c->stride) + k;
            __m256 xk = _mm256_broadcast_ss(x);
            lo[t] = _mm256_fmadd_ps(w0, xk, lo[t]);
            hi[t] = _mm256_fmadd_ps(w1, xk, hi[t]);
        }
    }
    EK_UNROLL
    for (int t = 0; t < R; t++) {
        store_cols(c->y + t * c->ldy, c->n_cols, lo[t], c->mode);
        store_cols(c->y + t * c->ldy + 8, c->n_cols - 8, hi[t], c->mode);
    }
}

void ek_avx2_tile_f32(const struct ek_tile *c, int R)
{
    EK_TILE_TO_4(tile, c, R);
}
