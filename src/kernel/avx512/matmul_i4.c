/* matmul_i4.c - vpdpbusd: weights as unsigned nibbles, activations signed.
 * sum (d q + m) s v = s (d sum q v + m sum v), the integer sums exact: < 2^24. */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/simd.h"

EK_INLINE __m512i quad(const unsigned char *x)
{
    int32_t bits;
    __builtin_memcpy(&bits, x, sizeof bits);
    return _mm512_set1_epi32(bits);
}

EK_INLINE void tile(const struct ek_tile *c, const int R)
{
    const __m512i low = _mm512_set1_epi8(15);
    __m512 acc[8];
    for (int t = 0; t < R; t++)
        acc[t] = _mm512_setzero_ps();
    for (int64_t g = 0; g < c->G; g++) {
        const unsigned char *cell = c->panel + g * EK_I4_CELL;
        __m512 d = _mm512_cvtph_ps(_mm256_load_si256((const void *)cell));
        __m512 m = _mm512_cvtph_ps(_mm256_load_si256((const void *)(cell + 32)));
        __m512i q[8];
        for (int j = 0; j < 4; j++) {
            __m512i both = _mm512_load_si512(cell + 64 + 64 * j);
            q[j] = _mm512_and_si512(both, low);
            q[j + 4] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
        }
        for (int t = 0; t < R; t++) {
            const unsigned char *row = c->act + t * c->stride,
                                *x = row + g * EK_ACT_CELL;
            float s = ek_act_scales(row, c->G)[g], sum = ek_act_sums(row, c->G)[g];
            __m512i v = _mm512_setzero_si512(); /* high terms, then 256 of them + low */
            for (int j = 0; j < 8; j++)
                v = _mm512_dpbusd_epi32(v, q[j], quad(x + 4 * j));
            v = _mm512_slli_epi32(v, 8);
            for (int j = 0; j < 8; j++)
                v = _mm512_dpbusd_epi32(v, q[j], quad(x + EK_GROUP + 4 * j));
            __m512 dot = _mm512_cvtepi32_ps(v);
            dot = _mm512_fmadd_ps(d, dot, _mm512_mul_ps(m, _mm512_set1_ps(sum)));
            acc[t] = _mm512_fmadd_ps(dot, _mm512_set1_ps(s), acc[t]);
        }
    }
    for (int t = 0; t < R; t++)
        store_lanes(c->y + t * c->ldy, first_lanes(c->n_cols), acc[t], c->mode);
}

void ek_avx512_tile_i4(const struct ek_tile *c, int R)
{
    EK_TILE_TO_8(tile, c, R);
}
