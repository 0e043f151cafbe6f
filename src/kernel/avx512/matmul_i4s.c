/* matmul_i4s.c - matmul_i4.c without a minimum: the sums begin at -8 sum of the
 * activations, so that what comes out is already sum (q - 8) v, and the multipliers
 * have one instruction less a group. */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/simd.h"

EK_INLINE void group(const struct ek_tile *c, const int R, int64_t g, __m512 *acc,
                     const unsigned char *w, const unsigned char *scales)
{
    _Alignas(64) unsigned char upper[512];
    __m512i sum[8];
    EK_UNROLL_GCC
    for (int t = 0; t < R; t++)
        sum[t] = _mm512_set1_epi32(act_cell(c, t, g)->less_8);
    add_nibbles(sum, upper, c, R, g, w);
    add_tops(sum, c, R, g, upper);
    __m512 d = _mm512_cvtph_ps(_mm256_load_si256((const void *)scales));
    EK_UNROLL_GCC
    for (int t = 0; t < R; t++) {
        __m512 scale = _mm512_mul_ps(d, _mm512_set1_ps(act_cell(c, t, g)->scale));
        acc[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[t]), scale, acc[t]);
    }
}

EK_INLINE void tile(const struct ek_tile *c, const int R)
{
    __m512 acc[8];
    EK_UNROLL_GCC
    for (int t = 0; t < R; t++)
        acc[t] = _mm512_setzero_ps();
    for (int64_t g = 0; g < c->G; g++) {
        const unsigned char *w = ek_i4s_codes(c->panel, g);
        ek_tile_fetch(c, w - 64, 5); /* the scales stand before the codes */
        group(c, R, g, acc, w, ek_i4s_scales(c->panel, g));
    }
    EK_UNROLL_GCC
    for (int t = 0; t < R; t++)
        store_lanes(c->y + t * c->ldy, first_lanes(c->n_cols), acc[t], c->mode);
}

void ek_avx512_tile_i4s(const struct ek_tile *c, int R)
{
    EK_TILE_TO_8(tile, c, R);
}
