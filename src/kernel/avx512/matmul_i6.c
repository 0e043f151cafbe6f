/* matmul_i6.c - vpdpbusd: codes of six bits put together from a nibble and two bits;
 * the 32 comes off with the sum of the activations. 16 columns share a scale, so a
 * group has two integer sums: below 2^24, exact as f32.
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

/* sum[t] = sum of codes times base over columns 16 half .. 16 half + 15 of group g,
 * whose six registers are w: four of nibbles, two of high bits; what the 32 takes away
 * is in it. The codes go to `codes`, a quad each 64 bytes. */
EK_INLINE void half_sums(__m512i *sum, unsigned char *codes, const struct ek_tile *c,
                         const int R, int64_t g, const int half, const __m512i *w)
{
    const __m512i nibble = _mm512_set1_epi8(15), bits = _mm512_set1_epi8(0x30);
    EK_UNROLL_GCC
    for (int t = 0; t < R; t++)
        sum[t] = _mm512_set1_epi32(act_cell(c, t, g)->less_32[half]);
    EK_UNROLL
    for (int j = 0; j < 4; j++) {
        __m512i q = half ? _mm512_srli_epi16(w[j], 4) : w[j];
        q = _mm512_and_si512(q, nibble);
        /* q | top & bits */
        q = _mm512_ternarylogic_epi32(q, high_bits(w[4 + half], j), bits, 0xf8);
        _mm512_store_si512(codes + 64 * (4 * half + j), q);
        add_base(sum, c, R, g, 16 * half + 4 * j, q);
    }
}

/* The tops of group g, each to the sum of its half. */
EK_INLINE void add_half_tops(__m512i *sum_0, __m512i *sum_16, const struct ek_tile *c,
                             const int R, int64_t g, const unsigned char *codes)
{
    EK_UNROLL_GCC
    for (int t = 0; t < R; t++) {
        const struct ek_act_cell *x = act_cell(c, t, g);
        for (int i = 0; i < 2; i++) {
            __m512i q = _mm512_load_si512(codes + ek_act_code(x, i));
            q = _mm512_slli_epi32(add_quad(_mm512_setzero_si512(), q, x->top[i]), 4);
            __mmask16 is_16 = (__mmask16)(0u - (x->at[i] >> 7));
            sum_16[t] = _mm512_mask_add_epi32(sum_16[t], is_16, sum_16[t], q);
            is_16 = _knot_mask16(is_16);
            sum_0[t] = _mm512_mask_add_epi32(sum_0[t], is_16, sum_0[t], q);
        }
    }
}

EK_INLINE __m512 half_scales(const struct ek_tile *c, int64_t g, int half)
{
    const unsigned char *s = ek_i6_scales(c->panel, g, half);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_load_si128((const void *)s)));
}

/* acc[t] += group g, whose six registers are w, d the scales of eight groups. */
EK_INLINE void group(__m512 *acc, const struct ek_tile *c, const int R, int64_t g,
                     const __m512i *w, __m512 d)
{
    _Alignas(64) unsigned char codes[512];
    __m512i sum_0[4], sum_16[4];
    half_sums(sum_0, codes, c, R, g, 0, w);
    half_sums(sum_16, codes, c, R, g, 1, w);
    add_half_tops(sum_0, sum_16, c, R, g, codes);
    __m512 s_0 = half_scales(c, g, 0), s_16 = half_scales(c, g, 1);
    EK_UNROLL_GCC
    for (int t = 0; t < R; t++) {
        __m512 part = _mm512_mul_ps(s_0, _mm512_cvtepi32_ps(sum_0[t]));
        part = _mm512_fmadd_ps(s_16, _mm512_cvtepi32_ps(sum_16[t]), part);
        __m512 scale = _mm512_mul_ps(d, _mm512_set1_ps(act_cell(c, t, g)->scale));
        acc[t] = _mm512_fmadd_ps(part, scale, acc[t]);
    }
}

EK_INLINE void tile(const struct ek_tile *c, const int R)
{
    const bool is_ahead = R > 1 || c->is_batch;
    __m512 acc[4], d = _mm512_setzero_ps();
    EK_UNROLL_GCC
    for (int t = 0; t < R; t++)
        acc[t] = _mm512_setzero_ps();
    for (int64_t g = 0; g < c->G; g++) {
        if (g % 8 == 0) {
            d = _mm512_load_ps(ek_i6_cell(c->panel, g));
            if (is_ahead)
                ek_fetch_ahead(ek_i6_cell(c->panel, g), 5);
        }
        const unsigned char *codes = ek_i6_codes(c->panel, g);
        __m512i w[6];
        if (is_ahead)
            ek_fetch_ahead(codes, 6);
        for (int i = 0; i < 6; i++)
            w[i] = _mm512_load_si512(codes + 64 * i);
        group(acc, c, R, g, w, d);
    }
    EK_UNROLL_GCC
    for (int t = 0; t < R; t++)
        store_lanes(c->y + t * c->ldy, first_lanes(c->n_cols), acc[t], c->mode);
}

void ek_avx512_tile_i6(const struct ek_tile *c, int R)
{
    EK_TILE_TO_4(tile, c, R);
}
