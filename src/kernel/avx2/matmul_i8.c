/* matmul_i8.c - vpmaddubsw without its saturation: a code q + 128 is taken as two
 * nibbles, so a product of a pair is at most 2 * 15 * 128 and the eight of a group
 * 30,720 < 2^15. Eight outputs a pass. All exact, as in avx512. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/simd.h"

EK_INLINE __m256i quad(const int8_t *x)
{
    int32_t bits;
    __builtin_memcpy(&bits, x, sizeof bits);
    return _mm256_set1_epi32(bits);
}

/* sum += w x, pairs of bytes into 16-bit lanes. */
EK_INLINE void add_pairs(__m256i *sum, __m256i w, __m256i x)
{
    *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(w, x));
}

/* Sums of low and of high nibbles, 16 bits, to 32-bit lanes. */
EK_INLINE __m256i join(__m256i low, __m256i high)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i h = _mm256_slli_epi32(_mm256_madd_epi16(high, ones), 4);
    return _mm256_add_epi32(_mm256_madd_epi16(low, ones), h);
}

/* Outputs [8 half, 8 half + 8) of the panel. */
EK_INLINE void half_tile(const struct ek_tile *c, const int R, int half)
{
    const __m256i low = _mm256_set1_epi8(15);
    __m256 acc[2];
    for (int t = 0; t < R; t++)
        acc[t] = _mm256_setzero_ps();
    for (int64_t g = 0; g < c->G; g++) {
        const unsigned char *w = ek_i8_codes(c->panel, g) + half * 32;
        const unsigned char *scales = ek_i8_scales(c->panel, g) + half * 16;
        /* [low, high nibbles of the weights][high, low terms of the activations] */
        __m256i sums[2][2][2];
        for (int i = 0; i < 4; i++)
            for (int t = 0; t < R; t++)
                sums[i / 2][i % 2][t] = _mm256_setzero_si256();
        for (int j = 0; j < 8; j++) {
            __m256i q = _mm256_load_si256((const void *)(w + 64 * j));
            __m256i q0 = _mm256_and_si256(q, low);
            __m256i q1 = _mm256_and_si256(_mm256_srli_epi16(q, 4), low);
            for (int t = 0; t < R; t++) {
                const struct ek_act_cell *x = ek_act_cells(c->act + t * c->stride) + g;
                add_pairs(&sums[0][0][t], q0, quad(x->high + 4 * j));
                add_pairs(&sums[0][1][t], q0, quad(x->low + 4 * j));
                add_pairs(&sums[1][0][t], q1, quad(x->high + 4 * j));
                add_pairs(&sums[1][1][t], q1, quad(x->low + 4 * j));
            }
        }
        __m256 d = _mm256_cvtph_ps(_mm_load_si128((const void *)scales));
        for (int t = 0; t < R; t++) {
            const struct ek_act_cell *x = ek_act_cells(c->act + t * c->stride) + g;
            __m256i high = join(sums[0][0][t], sums[1][0][t]);
            __m256i v = join(sums[0][1][t], sums[1][1][t]);
            v = _mm256_add_epi32(v, _mm256_slli_epi32(high, 8));
            v = _mm256_add_epi32(v, _mm256_set1_epi32(x->less_128));
            __m256 dot = _mm256_cvtepi32_ps(v);
            acc[t] = _mm256_fmadd_ps(dot, _mm256_mul_ps(d, _mm256_set1_ps(x->scale)),
                                     acc[t]);
        }
    }
    for (int t = 0; t < R; t++)
        store_cols(c->y + t * c->ldy + 8 * half, c->n_cols - 8 * half, acc[t], c->mode);
}

EK_INLINE void tile(const struct ek_tile *c, const int R)
{
    half_tile(c, R, 0);
    half_tile(c, R, 1);
}

void ek_avx2_tile_i8(const struct ek_tile *c, int R)
{
    if (R == 2)
        tile(c, 2);
    else
        tile(c, 1);
}
