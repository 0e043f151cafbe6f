/* matmul_i8.c - vpdpbusd: weights as unsigned codes q + 128, activations signed; the
 * 128 comes off with the sum of the activations. Integer sums are exact: < 2^31. */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/simd.h"

EK_INLINE void tile(const struct ek_tile *c, const int R)
{
    __m512 acc[8];
    EK_UNROLL_GCC
    for (int t = 0; t < R; t++)
        acc[t] = _mm512_setzero_ps();
    for (int64_t g = 0; g < c->G; g++) {
        const unsigned char *w = ek_i8_codes(c->panel, g);
        __m512i sum[8];
        ek_tile_fetch(c, w - 64, 9); /* the scales stand before the codes */
        EK_UNROLL_GCC
        for (int t = 0; t < R; t++) {
            const struct ek_act_cell *x = act_cell(c, t, g);
            sum[t] = _mm512_set1_epi32(x->less_8);
            for (int i = 0; i < 2; i++)
                sum[t] = add_quad(sum[t], _mm512_load_si512(w + ek_act_code(x, i)),
                                  x->top[i]);
            sum[t] = _mm512_slli_epi32(sum[t], 4);
        }
        for (int j = 0; j < 8; j++)
            add_base(sum, c, R, g, 4 * j, _mm512_load_si512(w + 64 * j));
        __m512 d =
            _mm512_cvtph_ps(_mm256_load_si256((const void *)ek_i8_scales(c->panel, g)));
        EK_UNROLL_GCC
        for (int t = 0; t < R; t++) {
            __m512 scale = _mm512_mul_ps(d, _mm512_set1_ps(act_cell(c, t, g)->scale));
            acc[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[t]), scale, acc[t]);
        }
    }
    EK_UNROLL_GCC
    for (int t = 0; t < R; t++)
        store_lanes(c->y + t * c->ldy, first_lanes(c->n_cols), acc[t], c->mode);
}

void ek_avx512_tile_i8(const struct ek_tile *c, int R)
{
    EK_TILE_TO_8(tile, c, R);
}
