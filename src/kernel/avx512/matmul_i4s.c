/* matmul_i4s.c - matmul_i4.c without a minimum: the sums begin at -8 sum of the
 * activations, so that what comes out is already sum (q - 8) v, and the multipliers
 * have one instruction less a group. */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/simd.h"

EK_INLINE void group(const struct ek_tile *c, const int R, int64_t g, __m512 *acc,
                     const unsigned char *w, const unsigned char *scales)
{
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512i high[4], low[4];
    for (int t = 0; t < R; t++) {
        const struct ek_act_cell *x = ek_act_cells(c->act + t * c->stride) + g;
        high[t] = _mm512_setzero_si512();
        low[t] = _mm512_set1_epi32(x->less_8);
    }
    for (int j = 0; j < 4; j++) {
        __m512i q = _mm512_load_si512(w + 64 * j);
        add_terms(c, R, g, 4 * j, high, low, _mm512_and_si512(q, nibble));
        q = _mm512_and_si512(_mm512_srli_epi16(q, 4), nibble);
        add_terms(c, R, g, 4 * j + 16, high, low, q);
    }
    __m512 d = _mm512_cvtph_ps(_mm256_load_si256((const void *)scales));
    for (int t = 0; t < R; t++) {
        const struct ek_act_cell *x = ek_act_cells(c->act + t * c->stride) + g;
        __m512 dot = _mm512_cvtepi32_ps(join_terms(high[t], low[t]));
        __m512 scale = _mm512_mul_ps(d, _mm512_set1_ps(x->scale));
        acc[t] = _mm512_fmadd_ps(dot, scale, acc[t]);
    }
}

EK_INLINE void tile(const struct ek_tile *c, const int R)
{
    __m512 acc[4];
    for (int t = 0; t < R; t++)
        acc[t] = _mm512_setzero_ps();
    for (int64_t g = 0; g < c->G; g++) {
        const unsigned char *w = ek_i4s_codes(c->panel, g);
        ek_tile_fetch(c, w - 64, 5); /* the scales stand before the codes */
        group(c, R, g, acc, w, ek_i4s_scales(c->panel, g));
    }
    for (int t = 0; t < R; t++)
        store_lanes(c->y + t * c->ldy, first_lanes(c->n_cols), acc[t], c->mode);
}

void ek_avx512_tile_i4s(const struct ek_tile *c, int R)
{
    EK_TILE_TO_4(tile, c, R);
}
