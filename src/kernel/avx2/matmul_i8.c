/* matmul_i8.c - vpmaddwd: codes q + 128 widened to 16 bits, activations as whole 16-bit
 * integers, products of pairs exact in 32 bits; the 128 comes off with their sum. Half
 * the instructions of vpmaddubsw, which needs codes as two nibbles to stay clear
 * of saturation. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/simd.h"

/* v[32] = base + 16 top. */
EK_INLINE void widen(int16_t *v, const struct ek_act_cell *x)
{
    for (int i = 0; i < EK_GROUP; i += 16) {
        __m128i base = _mm_load_si128((const void *)(x->base + i));
        _mm256_store_si256((void *)(v + i), _mm256_cvtepi8_epi16(base));
    }
    for (int i = 0; i < 2; i++) {
        int16_t *at = v + (x->at[i] >> 5) * 4;
        __m128i top = _mm_cvtepi8_epi16(_mm_loadu_si32(x->top[i]));
        top = _mm_add_epi16(_mm_loadl_epi64((const void *)at), _mm_slli_epi16(top, 4));
        _mm_storel_epi64((void *)at, top);
    }
}

/* Four activations, four times. */
EK_INLINE __m256i quad(const int16_t *v)
{
    long long bits;
    __builtin_memcpy(&bits, v, sizeof bits);
    return _mm256_set1_epi64x(bits);
}

/* Four outputs' quads of codes. */
EK_INLINE __m256i codes(const unsigned char *w)
{
    return _mm256_cvtepu8_epi16(_mm_load_si128((const void *)w));
}

/* Outputs 0..7 from the two registers that hold them in halves. */
EK_INLINE __m256i join(__m256i a, __m256i b)
{
    return _mm256_permute4x64_epi64(_mm256_hadd_epi32(a, b), 0xd8);
}

/* Group g: outputs [8 half, 8 half + 8) of the panel. */
EK_INLINE void half_group(const struct ek_tile *c, const int R, int64_t g, int half,
                          __m256 *acc, int16_t (*v)[EK_GROUP])
{
    const unsigned char *w = ek_i8_codes(c->panel, g) + half * 32;
    const unsigned char *scales = ek_i8_scales(c->panel, g) + half * 16;
    __m256i a[4], b[4];
    EK_UNROLL
    for (int t = 0; t < R; t++)
        a[t] = b[t] = _mm256_setzero_si256();
    EK_ROLLED
    for (int j = 0; j < 8; j++) {
        __m256i u = codes(w + 64 * j), z = codes(w + 64 * j + 16);
        EK_UNROLL
        for (int t = 0; t < R; t++) {
            __m256i x = quad(v[t] + 4 * j);
            a[t] = _mm256_add_epi32(a[t], _mm256_madd_epi16(u, x));
            b[t] = _mm256_add_epi32(b[t], _mm256_madd_epi16(z, x));
        }
    }
    __m256 d = _mm256_cvtph_ps(_mm_load_si128((const void *)scales));
    EK_UNROLL
    for (int t = 0; t < R; t++) {
        const struct ek_act_cell *x = ek_act_cells(c->act + t * c->stride) + g;
        __m256i sum =
            _mm256_add_epi32(join(a[t], b[t]), _mm256_set1_epi32(16 * x->less_8));
        __m256 scale = _mm256_mul_ps(d, _mm256_set1_ps(x->scale));
        acc[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), scale, acc[t]);
    }
}

EK_INLINE void tile(const struct ek_tile *c, const int R)
{
    _Alignas(32) int16_t v[4][EK_GROUP];
    __m256 lo[4], hi[4];
    EK_UNROLL
    for (int t = 0; t < R; t++)
        lo[t] = hi[t] = _mm256_setzero_ps();
    for (int64_t g = 0; g < c->G; g++) {
        EK_UNROLL
        for (int t = 0; t < R; t++)
            widen(v[t], ek_act_cells(c->act + t * c->stride) + g);
        ek_tile_fetch(c, ek_i8_codes(c->panel, g) - 64,
                      9); /* scales stand before them */
        half_group(c, R, g, 0, lo, v);
        half_group(c, R, g, 1, hi, v);
    }
    EK_UNROLL
    for (int t = 0; t < R; t++) {
        store_cols(c->y + t * c->ldy, c->n_cols, lo[t], c->mode);
        store_cols(c->y + t * c->ldy + 8, c->n_cols - 8, hi[t], c->mode);
    }
}

void ek_avx2_tile_i8(const struct ek_tile *c, int R)
{
    EK_TILE_TO_4(tile, c, R);
}
