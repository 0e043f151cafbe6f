/* prepare.c - activations into the form of matmul_int.h, the same bits as ref's. */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/simd.h"
#include "num/float.h"

#include <math.h>

static void copy_row(float *out, const float *x, int64_t K, int64_t Kp)
{
    for (int64_t k = 0; k < Kp; k += 16)
        _mm512_storeu_ps(out + k, _mm512_maskz_loadu_ps(first_lanes(K - k), x + k));
}

static void bf16_row(uint16_t *out, const float *x, int64_t K, int64_t Kp)
{
    for (int64_t k = 0; k < Kp; k += 16)
        _mm256_storeu_si256(
            (__m256i *)(void *)(out + k),
            bf16_of_ps(_mm512_maskz_loadu_ps(first_lanes(K - k), x + k)));
}

/* v = 256 high + low. The narrowing takes the low byte as it is, v - 256 high. */
EK_INLINE void store_terms(int8_t *high, int8_t *low, __m512i v)
{
    __m512i h = _mm512_srai_epi32(_mm512_add_epi32(v, _mm512_set1_epi32(128)), 8);
    _mm_storeu_si128((__m128i *)(void *)high, _mm512_cvtepi32_epi8(h));
    _mm_storeu_si128((__m128i *)(void *)low, _mm512_cvtepi32_epi8(v));
}

/* 32 values in a and b; see ref/prepare.c for infinities, NaN and tiny groups. */
EK_INLINE void quantize_group(struct ek_act_cell *cell, __m512 a, __m512 b)
{
    const __m512i abs = _mm512_set1_epi32(0x7fffffff);
    __m512i u = _mm512_and_si512(_mm512_castps_si512(a), abs);
    __m512i v = _mm512_and_si512(_mm512_castps_si512(b), abs);
    uint32_t top = _mm512_reduce_max_epu32(_mm512_max_epu32(u, v));
    float amax = ek_f32_of_bits(top);
    bool is_finite = top < 0x7f800000u;
    if (!is_finite || amax < EK_ACT_TINY) {
        _mm512_storeu_si512(cell, _mm512_setzero_si512());
        ek_act_finish(cell, is_finite ? 0.0f : NAN, 0, 0);
        return;
    }
    __m512 inv = _mm512_set1_ps(EK_ACT_TOP / amax);
    __m512i i = _mm512_cvtps_epi32(_mm512_mul_ps(a, inv));
    __m512i j = _mm512_cvtps_epi32(_mm512_mul_ps(b, inv));
    store_terms(cell->high, cell->low, i);
    store_terms(cell->high + 16, cell->low + 16, j);
    ek_act_finish(cell, amax / EK_ACT_TOP, _mm512_reduce_add_epi32(i),
                  _mm512_reduce_add_epi32(j));
}

static void quantize_row(struct ek_act_cell *cells, const float *x, int64_t K)
{
    for (int64_t k = 0; k < K; k += EK_GROUP)
        quantize_group(cells + k / EK_GROUP,
                       _mm512_maskz_loadu_ps(first_lanes(K - k), x + k),
                       _mm512_maskz_loadu_ps(first_lanes(K - k - 16), x + k + 16));
}

void ek_avx512_matmul_prepare(void *act, enum ek_weight_format f, const float *x,
                              int64_t ldx, int64_t T, int64_t K, int64_t t0, int64_t t1)
{
    (void)T;
    int64_t Kp = ek_weight_groups(K) * EK_GROUP;
    for (int64_t t = t0; t < t1; t++) {
        unsigned char *row = ek_act_row(act, f, K, t);
        if (f == EK_WEIGHT_F32)
            copy_row((float *)(void *)row, x + t * ldx, K, Kp);
        else if (f == EK_WEIGHT_BF16 || f == EK_WEIGHT_E4M3)
            bf16_row((uint16_t *)(void *)row, x + t * ldx, K, Kp);
        else
            quantize_row(ek_act_cells(row), x + t * ldx, K);
    }
}
