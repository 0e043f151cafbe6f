/* matmul_e4m3.c - both sides to f32, then FMA; a block of 128 columns at a time, whose
 * scale is due at its end. Codes lie as columns k, k+1 of four outputs and then k+2,
 * k+3 of the same, so a register sums even and odd columns of four outputs.
 *
 * A code moved up by 7 is an f16 of 2^-8 its value (bias 15 against 7), subnormals
 * included; the 2^8 goes into the block's scale. 0x7f, NaN, would come out as 480: no
 * loader lets it in. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/simd.h"

#define ROWS 4 /* whose sums fit the registers */

/* Activations of a block, as f32. */
struct block {
    _Alignas(32) float x[ROWS][EK_E4M3_BLOCK];
};

EK_INLINE void widen(struct block *b, const struct ek_tile *c, const int R, int64_t k0,
                     int64_t n)
{
    EK_UNROLL
    for (int t = 0; t < R; t++)
        for (int64_t k = 0; k < n; k += 8) {
            const void *x = c->act + t * c->stride + 2 * (k0 + k);
            _mm256_store_ps(b->x[t] + k, ps_of_bf16(_mm_load_si128(x)));
        }
}

/* Sixteen codes: columns k, k+1 of four outputs to a, k+2, k+3 to b. */
EK_INLINE void decode(__m256 *a, __m256 *b, const unsigned char *codes)
{
    __m256i h = _mm256_cvtepi8_epi16(_mm_load_si128((const void *)codes));
    h = _mm256_and_si256(_mm256_slli_epi16(h, 7), _mm256_set1_epi16((short)0xbf80));
    *a = _mm256_cvtph_ps(_mm256_castsi256_si128(h));
    *b = _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1));
}

/* (x[0], x[1]) four times. */
EK_INLINE __m256 pair(const float *x)
{
    double bits;
    __builtin_memcpy(&bits, x, sizeof bits);
    return _mm256_castpd_ps(_mm256_set1_pd(bits));
}

/* Outputs 0..7 from the two registers that hold them as (even, odd) pairs. */
EK_INLINE __m256 join(__m256 a, __m256 b)
{
    __m256 s = _mm256_hadd_ps(a, b); /* outputs 0 1 4 5 2 3 6 7 */
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(s), 0xd8));
}

/* acc[t] += scale times the sum over n columns, outputs [8 half, 8 half + 8) of the
 * panel; w: the block's first code of the panel. */
EK_INLINE void half_block(__m256 *acc, const struct ek_tile *c, const struct block *b,
                          const int R, int64_t n, const unsigned char *w, int half,
                          float scale)
{
    __m256 p[ROWS], q[ROWS]; /* outputs 0..3 and 4..7 of the half */
    EK_UNROLL
    for (int t = 0; t < R; t++)
        p[t] = q[t] = _mm256_setzero_ps();
    for (int64_t k = 0; k < n; k += 4) {
        const unsigned char *codes = w + k * EK_PANEL + 32 * half;
        __m256 p0, p1, q0, q1;
        ek_tile_fetch(c, w + k * EK_PANEL, 1);
        decode(&p0, &p1, codes);
        decode(&q0, &q1, codes + 16);
        EK_UNROLL
        for (int t = 0; t < R; t++) {
            __m256 x0 = pair(b->x[t] + k), x1 = pair(b->x[t] + k + 2);
            p[t] = _mm256_fmadd_ps(p0, x0, p[t]);
            q[t] = _mm256_fmadd_ps(q0, x0, q[t]);
            p[t] = _mm256_fmadd_ps(p1, x1, p[t]);
            q[t] = _mm256_fmadd_ps(q1, x1, q[t]);
        }
    }
    EK_UNROLL
    for (int t = 0; t < R; t++)
        acc[t] = _mm256_fmadd_ps(join(p[t], q[t]), _mm256_set1_ps(256 * scale), acc[t]);
}

EK_INLINE void tile(const struct ek_tile *c, const int R)
{
    const int64_t Kp = c->G * EK_GROUP;
    struct block b;
    __m256 lo[ROWS], hi[ROWS];
    EK_UNROLL
    for (int t = 0; t < R; t++)
        lo[t] = hi[t] = _mm256_setzero_ps();
    for (int64_t k0 = 0; k0 < Kp; k0 += EK_E4M3_BLOCK) {
        int64_t n = Kp - k0 < EK_E4M3_BLOCK ? Kp - k0 : EK_E4M3_BLOCK;
        float scale = c->scales[k0 / EK_E4M3_BLOCK];
        const unsigned char *w = c->panel + k0 * EK_PANEL;
        widen(&b, c, R, k0, n);
        half_block(lo, c, &b, R, n, w, 0, scale);
        half_block(hi, c, &b, R, n, w, 1, scale);
    }
    EK_UNROLL
    for (int t = 0; t < R; t++) {
        store_cols(c->y + t * c->ldy, c->n_cols, lo[t], c->mode);
        store_cols(c->y + t * c->ldy + 8, c->n_cols - 8, hi[t], c->mode);
    }
}

void ek_avx2_tile_e4m3(const struct ek_tile *c, int R)
{
    EK_TILE_TO_4(tile, c, R);
}
