/* prepare.c - activations into the form of matmul_int.h, the same bits as ref's. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/simd.h"
#include "num/float.h"

#include <math.h>

static void copy_row(float *out, const float *x, int64_t K, int64_t Kp)
{
    for (int64_t k = 0; k < Kp; k += 8)
        _mm256_storeu_ps(out + k, load_first(x + k, K - k));
}

static void bf16_row(uint16_t *out, const float *x, int64_t K, int64_t Kp)
{
    for (int64_t k = 0; k < Kp; k += 8)
        _mm_storeu_si128((__m128i *)(void *)(out + k),
                         bf16_of_ps(load_first(x + k, K - k)));
}

/* The largest of eight unsigned lanes. */
EK_INLINE uint32_t max_of_lanes_u32(__m256i v)
{
    __m128i m =
        _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

EK_INLINE int32_t sum_of_lanes_i32(__m256i v)
{
    __m128i s =
        _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtsi128_si32(s);
}

/* 32 lanes, each in [-128,127], to bytes. */
EK_INLINE void store_bytes(int8_t *q, const __m256i v[4])
{
    /* The packs work within 128-bit halves; the permutation puts quads in order. */
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]),
                                       _mm256_packs_epi32(v[2], v[3]));
    bytes =
        _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)q, bytes);
}

/* 32 values in v; see ref/prepare.c for infinities, NaN and tiny groups. */
EK_INLINE void quantize_group(struct ek_act_cell *cell, const __m256 v[4])
{
    const __m256i abs = _mm256_set1_epi32(0x7fffffff), zero = _mm256_setzero_si256();
    __m256i most = zero, i[4], high[4];
    for (int j = 0; j < 4; j++)
        most = _mm256_max_epu32(most, _mm256_and_si256(_mm256_castps_si256(v[j]), abs));
    uint32_t top = max_of_lanes_u32(most);
    float amax = ek_f32_of_bits(top);
    bool is_finite = top < 0x7f800000u;
    if (!is_finite || amax < EK_ACT_TINY) {
        _mm256_storeu_si256((__m256i *)(void *)cell->high, zero);
        _mm256_storeu_si256((__m256i *)(void *)cell->low, zero);
        ek_act_finish(cell, is_finite ? 0.0f : NAN, 0, 0);
        return;
    }
    __m256 inv = _mm256_set1_ps(EK_ACT_TOP / amax);
    for (int j = 0; j < 4; j++)
        i[j] = _mm256_cvtps_epi32(_mm256_mul_ps(v[j], inv));
    int32_t sum_0 = sum_of_lanes_i32(_mm256_add_epi32(i[0], i[1]));
    int32_t sum_16 = sum_of_lanes_i32(_mm256_add_epi32(i[2], i[3]));
    for (int j = 0; j < 4; j++) /* v = 256 high + low */
        high[j] = _mm256_srai_epi32(_mm256_add_epi32(i[j], _mm256_set1_epi32(128)), 8);
    store_bytes(cell->high, high);
    for (int j = 0; j < 4; j++)
        i[j] = _mm256_sub_epi32(i[j], _mm256_slli_epi32(high[j], 8));
    store_bytes(cell->low, i);
    ek_act_finish(cell, amax / EK_ACT_TOP, sum_0, sum_16);
}

static void quantize_row(struct ek_act_cell *cells, const float *x, int64_t K)
{
    for (int64_t k = 0; k < K; k += EK_GROUP) {
        __m256 v[4];
        for (int j = 0; j < 4; j++)
            v[j] = load_first(x + k + 8 * j, K - k - 8 * j);
        quantize_group(cells + k / EK_GROUP, v);
    }
}

void ek_avx2_matmul_prepare(void *act, enum ek_weight_format f, const float *x,
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
