/* matmul_i6.c - vpdpbusd: codes of six bits put together from a nibble and two bits;
 * the 32 comes off with the sum of the activations. 16 columns share a scale, so a group
 * has two integer sums: below 2^24, exact as f32.
 * From two rows on lines are asked for ahead: two rows take so many instructions a line
 * that the hardware's prefetcher falls behind (14 against 31 GB/s). */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/simd.h"

/* Bits 2j and 2j+1 of every byte, at bits 4 and 5; what comes from the neighbouring
 * byte lies outside them. */
EK_INLINE __m512i high_bits(__m512i w, const int j)
{
    if (j < 2)
        return _mm512_slli_epi16(w, j == 0 ? 4 : 2);
    return j == 2 ? w : _mm512_srli_epi16(w, 2);
}

/* part[t] (+)= s sum (q - 32) v over columns 16 half .. 16 half + 15 of group g, whose
 * six registers are w: four of nibbles, two of high bits. */
EK_INLINE void half_group(const struct ek_tile *c, const int R, int64_t g,
                          const int half, const __m512i *w, __m512 *part)
{
    const __m512i nibble = _mm512_set1_epi8(15), bits = _mm512_set1_epi8(0x30);
    __m512i high[4], low[4];
    for (int t = 0; t < R; t++) {
        const struct ek_act_cell *x = ek_act_cells(c->act + t * c->stride) + g;
        high[t] = _mm512_setzero_si512();
        low[t] = _mm512_set1_epi32(x->less_32[half]);
    }
    EK_UNROLL
    for (int j = 0; j < 4; j++) {
        __m512i q = half ? _mm512_srli_epi16(w[j], 4) : w[j];
        q = _mm512_and_si512(q, nibble);
        /* q | top & bits */
        q = _mm512_ternarylogic_epi32(q, high_bits(w[4 + half], j), bits, 0xf8);
        add_terms(c, R, g, 16 * half + 4 * j, high, low, q);
    }
    __m512 s = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(
        _mm_load_si128((const void *)ek_i6_scales(c->panel, g, half))));
    for (int t = 0; t < R; t++) {
        __m512 dot = _mm512_cvtepi32_ps(join_terms(high[t], low[t]));
        part[t] = half ? _mm512_fmadd_ps(s, dot, part[t]) : _mm512_mul_ps(s, dot);
    }
}

EK_INLINE void tile(const struct ek_tile *c, const int R)
{
    const bool is_ahead = R > 1 || c->is_batch;
    __m512 acc[4], d = _mm512_setzero_ps();
    for (int t = 0; t < R; t++)
        acc[t] = _mm512_setzero_ps();
    for (int64_t g = 0; g < c->G; g++) {
        if (g % 8 == 0) {
            d = _mm512_load_ps(ek_i6_cell(c->panel, g));
            if (is_ahead)
                ek_fetch_ahead(ek_i6_cell(c->panel, g), 5);
        }
        const unsigned char *codes = ek_i6_codes(c->panel, g);
        __m512 part[4];
        __m512i w[6];
        if (is_ahead)
            ek_fetch_ahead(codes, 6);
        for (int i = 0; i < 6; i++)
            w[i] = _mm512_load_si512(codes + 64 * i);
        half_group(c, R, g, 0, w, part);
        half_group(c, R, g, 1, w, part);
        for (int t = 0; t < R; t++) {
            const struct ek_act_cell *x = ek_act_cells(c->act + t * c->stride) + g;
            __m512 scale = _mm512_mul_ps(d, _mm512_set1_ps(x->scale));
            acc[t] = _mm512_fmadd_ps(part[t], scale, acc[t]);
        }
    }
    for (int t = 0; t < R; t++)
        store_lanes(c->y + t * c->ldy, first_lanes(c->n_cols), acc[t], c->mode);
}

void ek_avx512_tile_i6(const struct ek_tile *c, int R)
{
    EK_TILE_TO_4(tile, c, R);
}
