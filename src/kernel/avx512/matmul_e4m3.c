/* matmul_e4m3.c - codes to bf16 by table (vpermi2b), then vdpbf16ps. The sum over the
 * 128 columns of a block takes the block's scale in f32. */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/simd.h"
#include "kernel/e4m3_table.h"

struct table {
    __m512i hi0, hi1, lo0, lo1;
};

/* 64 codes to two registers of bf16: columns k, k+1 of 16 rows and k+2, k+3. */
EK_INLINE void decode(__m512bh *a, __m512bh *b, const unsigned char *codes,
                      const struct table *e)
{
    __m512i c = _mm512_load_si512(codes);
    __m512i lo = _mm512_permutex2var_epi8(e->lo0, c, e->lo1);
    __m512i hi = _mm512_permutex2var_epi8(e->hi0, c, e->hi1);
    /* hi | (c & 0x80) */
    hi = _mm512_ternarylogic_epi32(hi, c, _mm512_set1_epi8((char)0x80), 0xf8);
    *a = (__m512bh)_mm512_unpacklo_epi8(lo, hi);
    *b = (__m512bh)_mm512_unpackhi_epi8(lo, hi);
}

EK_INLINE void tile(const struct ek_tile *c, const int R)
{
    const struct table e = {
        _mm512_loadu_si512(ek_e4m3_hi), _mm512_loadu_si512(ek_e4m3_hi + 64),
        _mm512_loadu_si512(ek_e4m3_lo), _mm512_loadu_si512(ek_e4m3_lo + 64)};
    const int64_t Kp = c->G * EK_GROUP;
    __m512 acc[8], even[8], odd[8];
    for (int t = 0; t < R; t++)
        acc[t] = _mm512_setzero_ps();
    for (int64_t k0 = 0; k0 < Kp; k0 += EK_E4M3_BLOCK) {
        int64_t k1 = k0 + EK_E4M3_BLOCK < Kp ? k0 + EK_E4M3_BLOCK : Kp;
        for (int t = 0; t < R; t++)
            even[t] = odd[t] = _mm512_setzero_ps();
        for (int64_t k = k0; k < k1; k += 4) {
            __m512bh w0, w1;
            ek_tile_fetch(c, c->panel + k * EK_PANEL, 1);
            decode(&w0, &w1, c->panel + k * EK_PANEL, &e);
            for (int t = 0; t < R; t++) {
                const unsigned char *x = c->act + t * c->stride + 2 * k;
                even[t] = _mm512_dpbf16_ps(even[t], w0, (__m512bh)quad(x));
                odd[t] = _mm512_dpbf16_ps(odd[t], w1, (__m512bh)quad(x + 4));
            }
        }
        __m512 scale = _mm512_set1_ps(c->scales[k0 / EK_E4M3_BLOCK]);
        for (int t = 0; t < R; t++)
            acc[t] = _mm512_fmadd_ps(_mm512_add_ps(even[t], odd[t]), scale, acc[t]);
    }
    for (int t = 0; t < R; t++)
        store_lanes(c->y + t * c->ldy, first_lanes(c->n_cols), acc[t], c->mode);
}

void ek_avx512_tile_e4m3(const struct ek_tile *c, int R)
{
    EK_TILE_TO_8(tile, c, R);
}
