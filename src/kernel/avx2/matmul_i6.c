/* matmul_i6.c - codes of six bits put together from a nibble and two bits. Two products
 * of vpmaddubsw can be added before 16 bits are too few: 4 * 63 * 127 = 32,004 < 2^15.
 * The 32 comes off with the sum of the activations; sums of 16 columns are exact as
 * f32. Two rows of 16 outputs, so that a broadcast serves two products. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/simd.h"

EK_INLINE __m256i quad(const int8_t *x)
{
    int32_t bits;
    __builtin_memcpy(&bits, x, sizeof bits);
    return _mm256_set1_epi32(bits);
}

/* Bits 2j and 2j+1 of every byte, at bits 4 and 5. */
EK_INLINE __m256i high_bits(__m256i w, const int j)
{
    w = j == 0   ? _mm256_slli_epi16(w, 4)
        : j == 1 ? _mm256_slli_epi16(w, 2)
        : j == 3 ? _mm256_srli_epi16(w, 2)
                 : w;
    return _mm256_and_si256(w, _mm256_set1_epi8(0x30));
}

/* Codes of columns 16 half + 4 j .. + 3 and of 8 outputs, w where theirs begin. */
EK_INLINE __m256i codes(const unsigned char *w, const int half, const int j)
{
    __m256i q = _mm256_load_si256((const void *)(w + 64 * j));
    __m256i top = _mm256_load_si256((const void *)(w + 256 + 64 * half));
    q = _mm256_and_si256(half ? _mm256_srli_epi16(q, 4) : q, _mm256_set1_epi8(15));
    return _mm256_or_si256(q, high_bits(top, j));
}

/* tops[32] of a cell, zero where it has none: choosing codes by a quad's number would
 * take as many instructions as their products. */
EK_INLINE void spread_tops(int8_t *tops, const struct ek_act_cell *x)
{
    _mm256_store_si256((void *)tops, _mm256_setzero_si256());
    for (int i = 0; i < 2; i++)
        __builtin_memcpy(tops + 4 * (x->at[i] >> 5), x->top[i], 4);
}

/* Columns 16 half + 4 j .. + 7 of group g: v[2 t + h] += sum q (base + 16 top), row t
 * and half h of the panel. */
EK_INLINE void add_quads(__m256i *v, const struct ek_tile *c, const int R, int64_t g,
                         const int half, const int j, int8_t (*tops)[EK_GROUP])
{
    const __m256i times_16 = _mm256_set1_epi16(16), times_1 = _mm256_set1_epi16(1);
    const unsigned char *w = ek_i6_codes(c->panel, g);
    __m256i q[4];
    EK_UNROLL
    for (int i = 0; i < 4; i++)
        q[i] = codes(w + i % 2 * 32, half, j + i / 2);
    EK_UNROLL
    for (int t = 0; t < R; t++) {
        const struct ek_act_cell *x = ek_act_cells(c->act + t * c->stride) + g;
        const int k = 16 * half + 4 * j;
        __m256i a0 = quad(tops[t] + k), a1 = quad(tops[t] + k + 4);
        __m256i b0 = quad(x->base + k), b1 = quad(x->base + k + 4);
        EK_UNROLL
        for (int h = 0; h < 2; h++) {
            __m256i a = _mm256_add_epi16(_mm256_maddubs_epi16(q[h], a0),
                                         _mm256_maddubs_epi16(q[2 + h], a1));
            __m256i b = _mm256_add_epi16(_mm256_maddubs_epi16(q[h], b0),
                                         _mm256_maddubs_epi16(q[2 + h], b1));
            v[2 * t + h] = _mm256_add_epi32(
                v[2 * t + h], _mm256_add_epi32(_mm256_madd_epi16(a, times_16),
                                               _mm256_madd_epi16(b, times_1)));
        }
    }
}

/* part[2 t + h] (+)= s sum (q - 32) v over columns 16 half .. 16 half + 15 of group g.
 */
EK_INLINE void half_group(const struct ek_tile *c, const int R, int64_t g,
                          const int half, int8_t (*tops)[EK_GROUP], __m256 *part)
{
    const unsigned char *scales = ek_i6_scales(c->panel, g, half);
    __m256i v[4];
    EK_UNROLL
    for (int i = 0; i < 2 * R; i++)
        v[i] = _mm256_set1_epi32(
            (ek_act_cells(c->act + i / 2 * c->stride) + g)->less_32[half]);
    add_quads(v, c, R, g, half, 0, tops);
    add_quads(v, c, R, g, half, 2, tops);
    EK_UNROLL
    for (int i = 0; i < 2 * R; i++) {
        __m256 s = _mm256_cvtepi32_ps(
            _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(scales + i % 2 * 8))));
        __m256 dot = _mm256_cvtepi32_ps(v[i]);
        part[i] = half ? _mm256_fmadd_ps(s, dot, part[i]) : _mm256_mul_ps(s, dot);
    }
}

EK_INLINE void tile(const struct ek_tile *c, const int R)
{
    _Alignas(32) int8_t tops[2][EK_GROUP];
    __m256 acc[4];
    EK_UNROLL
    for (int i = 0; i < 2 * R; i++)
        acc[i] = _mm256_setzero_ps();
    for (int64_t g = 0; g < c->G; g++) {
        const float *d = (const float *)(const void *)ek_i6_cell(c->panel, g);
        __m256 part[4];
        if (g % 8 == 0)
            ek_tile_fetch(c, (const unsigned char *)d, 5);
        ek_tile_fetch(c, ek_i6_codes(c->panel, g), 6);
        for (int t = 0; t < R; t++)
            spread_tops(tops[t], ek_act_cells(c->act + t * c->stride) + g);
        half_group(c, R, g, 0, tops, part);
        half_group(c, R, g, 1, tops, part);
        EK_UNROLL
        for (int i = 0; i < 2 * R; i++) {
            const struct ek_act_cell *x = ek_act_cells(c->act + i / 2 * c->stride) + g;
            __m256 scale =
                _mm256_mul_ps(_mm256_load_ps(d + i % 2 * 8), _mm256_set1_ps(x->scale));
            acc[i] = _mm256_fmadd_ps(part[i], scale, acc[i]);
        }
    }
    for (int t = 0; t < R; t++) {
        store_cols(c->y + t * c->ldy, c->n_cols, acc[2 * t], c->mode);
        store_cols(c->y + t * c->ldy + 8, c->n_cols - 8, acc[2 * t + 1], c->mode);
    }
}

void ek_avx2_tile_i6(const struct ek_tile *c, int R)
{
    if (R == 2)
        tile(c, 2);
    else
        tile(c, 1);
}
