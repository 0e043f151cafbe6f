/* matmul_i4.c - I4 and I4S. vpmaddubsw cannot saturate on nibbles: a product of a pair
 * is at most 2 * 15 * 128 and the eight of a group 30,720 < 2^15.
 * sum (d q + m) s v = s (d sum q v + m sum v), as in avx512; symmetric, m = -8 d.
 * Two rows of 16 outputs, so that a broadcast serves two products. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/simd.h"

EK_INLINE __m256i quad(const int8_t *x)
{
    int32_t bits;
    __builtin_memcpy(&bits, x, sizeof bits);
    return _mm256_set1_epi32(bits);
}

/* Columns k..k+3 of group g, nibbles q of both halves (8 outputs each) of the panel:
 * products with high terms to a, with low ones to b, row t and half h at [2 t + h]. */
EK_INLINE void add_quads(__m256i *a, __m256i *b, const struct ek_tile *c, const int R,
                         int64_t g, int k, const __m256i q[2])
{
    EK_UNROLL
    for (int t = 0; t < R; t++) {
        const struct ek_act_cell *x = ek_act_cells(c->act + t * c->stride) + g;
        __m256i high = quad(x->high + k), low = quad(x->low + k);
        EK_UNROLL
        for (int i = 2 * t; i < 2 * t + 2; i++) {
            a[i] = _mm256_add_epi16(a[i], _mm256_maddubs_epi16(q[i % 2], high));
            b[i] = _mm256_add_epi16(b[i], _mm256_maddubs_epi16(q[i % 2], low));
        }
    }
}

/* v[2 t + h] = sum over group g of the nibbles w times 256 high + low. */
EK_INLINE void dots(__m256i *v, const struct ek_tile *c, const int R, int64_t g,
                    const unsigned char *w)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i a[4], b[4];
    EK_UNROLL
    for (int i = 0; i < 2 * R; i++)
        a[i] = b[i] = _mm256_setzero_si256();
    EK_ROLLED
    for (int j = 0; j < 4; j++) {
        __m256i u = _mm256_load_si256((const void *)(w + 64 * j));
        __m256i z = _mm256_load_si256((const void *)(w + 64 * j + 32));
        __m256i q[2] = {_mm256_and_si256(u, nibble), _mm256_and_si256(z, nibble)};
        add_quads(a, b, c, R, g, 4 * j, q);
        q[0] = _mm256_and_si256(_mm256_srli_epi16(u, 4), nibble);
        q[1] = _mm256_and_si256(_mm256_srli_epi16(z, 4), nibble);
        add_quads(a, b, c, R, g, 4 * j + 16, q);
    }
    EK_UNROLL
    for (int i = 0; i < 2 * R; i++)
        v[i] = _mm256_add_epi32(_mm256_madd_epi16(a[i], _mm256_set1_epi16(256)),
                                _mm256_madd_epi16(b[i], _mm256_set1_epi16(1)));
}

EK_INLINE void store(const struct ek_tile *c, const int R, const __m256 *acc)
{
    for (int t = 0; t < R; t++) {
        store_cols(c->y + t * c->ldy, c->n_cols, acc[2 * t], c->mode);
        store_cols(c->y + t * c->ldy + 8, c->n_cols - 8, acc[2 * t + 1], c->mode);
    }
}

EK_INLINE void tile_i4(const struct ek_tile *c, const int R)
{
    __m256 acc[4];
    EK_UNROLL
    for (int i = 0; i < 2 * R; i++)
        acc[i] = _mm256_setzero_ps();
    for (int64_t g = 0; g < c->G; g++) {
        const unsigned char *cell = c->panel + g * EK_I4_CELL;
        __m256i v[4];
        ek_tile_fetch(c, cell, EK_I4_CELL / 64);
        dots(v, c, R, g, cell + 64);
        EK_UNROLL
        for (int i = 0; i < 2 * R; i++) {
            const struct ek_act_cell *x = ek_act_cells(c->act + i / 2 * c->stride) + g;
            const unsigned char *at = cell + i % 2 * 16;
            __m256 d = _mm256_cvtph_ps(_mm_load_si128((const void *)at));
            __m256 m = _mm256_cvtph_ps(_mm_load_si128((const void *)(at + 32)));
            __m256 dot = _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(v[i]),
                                         _mm256_mul_ps(m, _mm256_set1_ps(x->sum)));
            acc[i] = _mm256_fmadd_ps(dot, _mm256_set1_ps(x->scale), acc[i]);
        }
    }
    store(c, R, acc);
}

EK_INLINE void tile_i4s(const struct ek_tile *c, const int R)
{
    __m256 acc[4];
    EK_UNROLL
    for (int i = 0; i < 2 * R; i++)
        acc[i] = _mm256_setzero_ps();
    for (int64_t g = 0; g < c->G; g++) {
        const unsigned char *w = ek_i4s_codes(c->panel, g);
        __m256i v[4];
        ek_tile_fetch(c, w - 64, 5); /* the scales stand before the codes */
        dots(v, c, R, g, w);
        EK_UNROLL
        for (int i = 0; i < 2 * R; i++) {
            const struct ek_act_cell *x = ek_act_cells(c->act + i / 2 * c->stride) + g;
            const void *at = ek_i4s_scales(c->panel, g) + i % 2 * 16;
            __m256 scale = _mm256_mul_ps(_mm256_cvtph_ps(_mm_load_si128(at)),
                                         _mm256_set1_ps(x->scale));
            __m256i dot = _mm256_add_epi32(v[i], _mm256_set1_epi32(x->less_8));
            acc[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, acc[i]);
        }
    }
    store(c, R, acc);
}

void ek_avx2_tile_i4(const struct ek_tile *c, int R)
{
    if (R == 2)
        tile_i4(c, 2);
    else
        tile_i4(c, 1);
}

void ek_avx2_tile_i4s(const struct ek_tile *c, int R)
{
    if (R == 2)
        tile_i4s(c, 2);
    else
        tile_i4s(c, 1);
}
