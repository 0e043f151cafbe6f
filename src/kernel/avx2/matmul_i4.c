/* matmul_i4.c - vpmaddubsw cannot saturate on nibbles: a product of a pair is at most
 * 2 * 15 * 128 and the eight of a group 30,720 < 2^15. Eight outputs a pass.
 * sum (d q + m) s v = s (d sum q v + m sum v), as in avx512. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/simd.h"

EK_INLINE __m256i quad(const int8_t *x)
{
    int32_t bits;
    __builtin_memcpy(&bits, x, sizeof bits);
    return _mm256_set1_epi32(bits);
}

/* Outputs [8 half, 8 half + 8) of the panel. */
EK_INLINE void half_tile(const struct ek_tile *c, const int R, int half)
{
    const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    __m256 acc[4];
    for (int t = 0; t < R; t++)
        acc[t] = _mm256_setzero_ps();
    for (int64_t g = 0; g < c->G; g++) {
        const unsigned char *cell = c->panel + g * EK_I4_CELL;
        __m256i a[4], b[4]; /* products with the high terms, with the low ones */
        for (int t = 0; t < R; t++)
            a[t] = b[t] = _mm256_setzero_si256();
        for (int j = 0; j < 4; j++) {
            __m256i q =
                _mm256_load_si256((const void *)(cell + 64 + 64 * j + 32 * half));
            __m256i q0 = _mm256_and_si256(q, low);
            __m256i q1 = _mm256_and_si256(_mm256_srli_epi16(q, 4), low);
            for (int t = 0; t < R; t++) {
                const struct ek_act_cell *x = ek_act_cells(c->act + t * c->stride) + g;
                const int8_t *xh = x->high + 4 * j, *xl = x->low + 4 * j;
                a[t] = _mm256_add_epi16(a[t], _mm256_maddubs_epi16(q0, quad(xh)));
                a[t] = _mm256_add_epi16(a[t], _mm256_maddubs_epi16(q1, quad(xh + 16)));
                b[t] = _mm256_add_epi16(b[t], _mm256_maddubs_epi16(q0, quad(xl)));
                b[t] = _mm256_add_epi16(b[t], _mm256_maddubs_epi16(q1, quad(xl + 16)));
            }
        }
        __m256 d = _mm256_cvtph_ps(_mm_load_si128((const void *)(cell + 16 * half)));
        __m256 m =
            _mm256_cvtph_ps(_mm_load_si128((const void *)(cell + 32 + 16 * half)));
        for (int t = 0; t < R; t++) {
            const struct ek_act_cell *x = ek_act_cells(c->act + t * c->stride) + g;
            __m256i high = _mm256_slli_epi32(_mm256_madd_epi16(a[t], ones), 8);
            __m256 dot = _mm256_cvtepi32_ps(
                _mm256_add_epi32(high, _mm256_madd_epi16(b[t], ones)));
            dot = _mm256_fmadd_ps(d, dot, _mm256_mul_ps(m, _mm256_set1_ps(x->sum)));
            acc[t] = _mm256_fmadd_ps(dot, _mm256_set1_ps(x->scale), acc[t]);
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

void ek_avx2_tile_i4(const struct ek_tile *c, int R)
{
    EK_TILE_TO_4(tile, c, R);
}
