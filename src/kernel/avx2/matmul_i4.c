/* matmul_i4.c - I4 and I4S. vpmaddubsw cannot saturate on nibbles: a product of a pair
 * is at most 2 * 15 * 127 and the eight of a group 30,480 < 2^15. Tops have sums of
 * their own: 16 times a nibble would saturate.
 * sum (d q + m) s v = s (d sum q v + m sum v), as in avx512; symmetric, m = -8 d.
 * Two rows of 16 outputs, so that a broadcast serves two products. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/simd.h"

#define ROWS 2 /* of a tile */

EK_INLINE __m256i quad(const int8_t *x)
{
    int32_t bits;
    __builtin_memcpy(&bits, x, sizeof bits);
    return _mm256_set1_epi32(bits);
}

EK_INLINE const struct ek_act_cell *act_cell(const struct ek_tile *c, int t, int64_t g)
{
    return ek_act_cells(c->act + t * c->stride) + g;
}

/* Columns k..k+3 of group g, nibbles q of both halves (8 outputs each) of the panel:
 * products with base to a, row t and half h at [2 t + h]. */
EK_INLINE void add_base(__m256i *a, const struct ek_tile *c, const int R, int64_t g,
                        int k, const __m256i q[2])
{
    EK_UNROLL
    for (int t = 0; t < R; t++) {
        __m256i x = quad(act_cell(c, t, g)->base + k);
        for (int i = 2 * t; i < 2 * t + 2; i++)
            a[i] = _mm256_add_epi16(a[i], _mm256_maddubs_epi16(q[i % 2], x));
    }
}

/* b[h] = the sum of the products of the tops of one row. */
EK_INLINE void times_tops(__m256i b[2], const struct ek_act_cell *x,
                          const unsigned char *w)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    b[0] = b[1] = _mm256_setzero_si256();
    for (int i = 0; i < 2; i++) {
        const unsigned char *at = w + 2 * (x->at[i] & 0x60);
        __m128i right = _mm_cvtsi32_si128(4 - (x->at[i] & 4));
        __m256i top = quad(x->top[i]);
        for (int h = 0; h < 2; h++) {
            __m256i q = _mm256_load_si256((const void *)(at + 32 * h));
            q = _mm256_and_si256(_mm256_srl_epi16(q, right), nibble);
            b[h] = _mm256_add_epi16(b[h], _mm256_maddubs_epi16(q, top));
        }
    }
}

/* v[2 t + h] = sum over group g of the nibbles w times base + 16 top. */
EK_INLINE void dots(__m256i *v, const struct ek_tile *c, const int R, int64_t g,
                    const unsigned char *w)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i a[2 * ROWS];
    EK_UNROLL
    for (int i = 0; i < 2 * R; i++)
        a[i] = _mm256_setzero_si256();
    EK_ROLLED
    for (int j = 0; j < 4; j++) {
        __m256i u = _mm256_load_si256((const void *)(w + 64 * j));
        __m256i z = _mm256_load_si256((const void *)(w + 64 * j + 32));
        __m256i q[2] = {_mm256_and_si256(u, nibble), _mm256_and_si256(z, nibble)};
        add_base(a, c, R, g, 4 * j, q);
        q[0] = _mm256_and_si256(_mm256_srli_epi16(u, 4), nibble);
        q[1] = _mm256_and_si256(_mm256_srli_epi16(z, 4), nibble);
        add_base(a, c, R, g, 4 * j + 16, q);
    }
    EK_UNROLL
    for (int t = 0; t < R; t++) {
        __m256i b[2];
        times_tops(b, act_cell(c, t, g), w);
        for (int h = 0; h < 2; h++)
            v[2 * t + h] =
                _mm256_add_epi32(_mm256_madd_epi16(a[2 * t + h], _mm256_set1_epi16(1)),
                                 _mm256_madd_epi16(b[h], _mm256_set1_epi16(16)));
    }
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
    __m256 acc[2 * ROWS];
    EK_UNROLL
    for (int i = 0; i < 2 * R; i++)
        acc[i] = _mm256_setzero_ps();
    for (int64_t g = 0; g < c->G; g++) {
        const unsigned char *cell = c->panel + g * EK_I4_CELL;
        __m256i v[2 * ROWS];
        ek_tile_fetch(c, cell, EK_I4_CELL / 64);
        dots(v, c, R, g, cell + 64);
        EK_UNROLL
        for (int i = 0; i < 2 * R; i++) {
            const struct ek_act_cell *x = act_cell(c, i / 2, g);
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
    __m256 acc[2 * ROWS];
    EK_UNROLL
    for (int i = 0; i < 2 * R; i++)
        acc[i] = _mm256_setzero_ps();
    for (int64_t g = 0; g < c->G; g++) {
        const unsigned char *w = ek_i4s_codes(c->panel, g);
        __m256i v[2 * ROWS];
        ek_tile_fetch(c, w - 64, 5); /* the scales stand before the codes */
        dots(v, c, R, g, w);
        EK_UNROLL
        for (int i = 0; i < 2 * R; i++) {
            const struct ek_act_cell *x = act_cell(c, i / 2, g);
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
