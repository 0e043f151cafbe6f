/* matmul_i4.c - vpdpbusd: weights as unsigned nibbles, activations signed.
 * sum (d q + m) s v = s (d sum q v + m sum v), the integer sums exact: < 2^20.
 * Ten products a group and row, 3 more instructions for the same two multipliers. Eight
 * rows a tile share the unpacking. */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/simd.h"

EK_INLINE void tile(const struct ek_tile *c, const int R)
{
    __m512 acc[8];
    EK_UNROLL_GCC
    for (int t = 0; t < R; t++)
        acc[t] = _mm512_setzero_ps();
    for (int64_t g = 0; g < c->G; g++) {
        const unsigned char *cell = c->panel + g * EK_I4_CELL;
        _Alignas(64) unsigned char upper[512];
        __m512i sum[8];
        ek_tile_fetch(c, cell, EK_I4_CELL / 64);
        EK_UNROLL_GCC
        for (int t = 0; t < R; t++)
            sum[t] = _mm512_setzero_si512();
        add_nibbles(sum, upper, c, R, g, cell + 64);
        add_tops(sum, c, R, g, upper);
        __m512 d = _mm512_cvtph_ps(_mm256_load_si256((const void *)cell));
        __m512 m = _mm512_cvtph_ps(_mm256_load_si256((const void *)(cell + 32)));
        EK_UNROLL_GCC
        for (int t = 0; t < R; t++) {
            const struct ek_act_cell *x = act_cell(c, t, g);
            __m512 dot = _mm512_cvtepi32_ps(sum[t]);
            dot = _mm512_fmadd_ps(d, dot, _mm512_mul_ps(m, _mm512_set1_ps(x->sum)));
            acc[t] = _mm512_fmadd_ps(dot, _mm512_set1_ps(x->scale), acc[t]);
        }
    }
    EK_UNROLL_GCC
    for (int t = 0; t < R; t++)
        store_lanes(c->y + t * c->ldy, first_lanes(c->n_cols), acc[t], c->mode);
}

void ek_avx512_tile_i4(const struct ek_tile *c, int R)
{
    EK_TILE_TO_8(tile, c, R);
}
