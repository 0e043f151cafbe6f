/* matmul_i8.c - vpdpbusd: weights as unsigned codes q + 128, activations signed; the
 * 128 comes off with the sum of the activations. Integer sums are exact: < 2^31. */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/simd.h"

EK_INLINE void tile(const struct ek_tile *c, const int R)
{
    __m512 acc[4];
    for (int t = 0; t < R; t++)
        acc[t] = _mm512_setzero_ps();
    for (int64_t g = 0; g < c->G; g++) {
        const unsigned char *w = ek_i8_codes(c->panel, g);
        __m512i high[4], low[4];
        ek_tile_fetch(c, w - 64, 9); /* the scales stand before the codes */
        for (int t = 0; t < R; t++) {
            const struct ek_act_cell *x = ek_act_cells(c->act + t * c->stride) + g;
            high[t] = _mm512_setzero_si512();
            low[t] = _mm512_set1_epi32(x->less_128);
        }
        for (int j = 0; j < 8; j++)
            add_terms(c, R, g, 4 * j, high, low, _mm512_load_si512(w + 64 * j));
        __m512 d =
            _mm512_cvtph_ps(_mm256_load_si256((const void *)ek_i8_scales(c->panel, g)));
        for (int t = 0; t < R; t++) {
            const struct ek_act_cell *x = ek_act_cells(c->act + t * c->stride) + g;
            __m512 dot = _mm512_cvtepi32_ps(join_terms(high[t], low[t]));
            __m512 scale = _mm512_mul_ps(d, _mm512_set1_ps(x->scale));
            acc[t] = _mm512_fmadd_ps(dot, scale, acc[t]);
        }
    }
    for (int t = 0; t < R; t++)
        store_lanes(c->y + t * c->ldy, first_lanes(c->n_cols), acc[t], c->mode);
}

void ek_avx512_tile_i8(const struct ek_tile *c, int R)
{
    EK_TILE_TO_4(tile, c, R);
}
