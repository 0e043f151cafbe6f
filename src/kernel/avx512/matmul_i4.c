/* matmul_i4.c - vpdpbusd: weights as unsigned nibbles, activations signed.
 * sum (d q + m) s v = s (d sum q v + m sum v), the integer sums exact: < 2^24.
 * The terms of every row have their own sums, so that no product waits for another.
 * Four rows a tile: 16 products a group and row, 3 more instructions for the same two
 * multipliers; eight rows leave the compiler without registers and lose 6 %. */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/simd.h"

EK_INLINE void tile(const struct ek_tile *c, const int R)
{
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512 acc[4];
    for (int t = 0; t < R; t++)
        acc[t] = _mm512_setzero_ps();
    for (int64_t g = 0; g < c->G; g++) {
        const unsigned char *cell = c->panel + g * EK_I4_CELL;
        __m512i high[4], low[4];
        ek_tile_fetch(c, cell, EK_I4_CELL / 64);
        for (int t = 0; t < R; t++)
            high[t] = low[t] = _mm512_setzero_si512();
        for (int j = 0; j < 4; j++) {
            __m512i q = _mm512_load_si512(cell + 64 + 64 * j);
            add_terms(c, R, g, 4 * j, high, low, _mm512_and_si512(q, nibble));
            q = _mm512_and_si512(_mm512_srli_epi16(q, 4), nibble);
            add_terms(c, R, g, 4 * j + 16, high, low, q);
        }
        __m512 d = _mm512_cvtph_ps(_mm256_load_si256((const void *)cell));
        __m512 m = _mm512_cvtph_ps(_mm256_load_si256((const void *)(cell + 32)));
        for (int t = 0; t < R; t++) {
            const struct ek_act_cell *x = ek_act_cells(c->act + t * c->stride) + g;
            __m512 dot = _mm512_cvtepi32_ps(join_terms(high[t], low[t]));
            dot = _mm512_fmadd_ps(d, dot, _mm512_mul_ps(m, _mm512_set1_ps(x->sum)));
            acc[t] = _mm512_fmadd_ps(dot, _mm512_set1_ps(x->scale), acc[t]);
        }
    }
    for (int t = 0; t < R; t++)
        store_lanes(c->y + t * c->ldy, first_lanes(c->n_cols), acc[t], c->mode);
}

void ek_avx512_tile_i4(const struct ek_tile *c, int R)
{
    EK_TILE_TO_4(tile, c, R);
}
