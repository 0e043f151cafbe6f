/* matmul_e4m3.c - codes to f32, then FMA. Eight codes are columns k, k+1 of four
 * outputs, so a register sums even and odd columns of four outputs; they are joined at
 * the end of a block of 128 columns, where its scale is due. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/simd.h"

/* (x[k], x[k+1]) four times, from a pair of bf16. */
EK_INLINE __m256 pair(const unsigned char *x)
{
    int32_t bits;
    __builtin_memcpy(&bits, x, sizeof bits);
    __m256i v = _mm256_set1_epi32(bits);
    __m256i high = _mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000u));
    return _mm256_castsi256_ps(
        _mm256_blend_epi32(_mm256_slli_epi32(v, 16), high, 0xaa));
}

/* Outputs 0..7 from the two registers that hold them as (even, odd) pairs. */
EK_INLINE __m256 join(__m256 a, __m256 b)
{
    __m256 s = _mm256_hadd_ps(a, b); /* outputs 0 1 4 5 2 3 6 7 */
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(s), 0xd8));
}

EK_INLINE void add_quad(__m256 part[4], const unsigned char *w, const unsigned char *x)
{
    __m256 x0 = pair(x), x1 = pair(x + 4);
    for (int l = 0; l < 4; l++) {
        __m128i codes = _mm_load_si128((const void *)(w + 16 * l));
        part[l] = _mm256_fmadd_ps(ps_of_e4m3(codes), x0, part[l]);
        part[l] = _mm256_fmadd_ps(ps_of_e4m3(_mm_srli_si128(codes, 8)), x1, part[l]);
    }
}

EK_INLINE void tile_row(const struct ek_tile *c, int t)
{
    const int64_t Kp = c->G * EK_GROUP;
    const unsigned char *x = c->act + t * c->stride;
    __m256 lo = _mm256_setzero_ps(), hi = lo;
    for (int64_t k0 = 0; k0 < Kp; k0 += EK_E4M3_BLOCK) {
        int64_t k1 = k0 + EK_E4M3_BLOCK < Kp ? k0 + EK_E4M3_BLOCK : Kp;
        __m256 scale = _mm256_set1_ps(c->scales[k0 / EK_E4M3_BLOCK]);
        __m256 part[4];
        for (int l = 0; l < 4; l++)
            part[l] = _mm256_setzero_ps();
        for (int64_t k = k0; k < k1; k += 4)
            add_quad(part, c->panel + k * EK_PANEL, x + 2 * k);
        lo = _mm256_fmadd_ps(join(part[0], part[1]), scale, lo);
        hi = _mm256_fmadd_ps(join(part[2], part[3]), scale, hi);
    }
    store_cols(c->y + t * c->ldy, c->n_cols, lo, c->mode);
    store_cols(c->y + t * c->ldy + 8, c->n_cols - 8, hi, c->mode);
}

void ek_avx2_tile_e4m3(const struct ek_tile *c, int R)
{
    for (int t = 0; t < R; t++)
        tile_row(c, t);
}
