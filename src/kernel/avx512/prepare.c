/* prepare.c - activations into the form of matmul_int.h, the same bits as ref's. */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/simd.h"

#include <string.h>

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

/* The largest magnitude of each quad of 32 values. */
EK_INLINE __m256i quads_most(__m512 a, __m512 b)
{
    const __m512i abs = _mm512_set1_epi32(0x7fffffff);
    const __m512i firsts =
        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 0, 0, 0, 0, 0, 0, 0);
    __m512i u = _mm512_and_si512(_mm512_castps_si512(a), abs);
    __m512i v = _mm512_and_si512(_mm512_castps_si512(b), abs);
    u = _mm512_max_epu32(u, _mm512_shuffle_epi32(u, _MM_PERM_BADC));
    v = _mm512_max_epu32(v, _mm512_shuffle_epi32(v, _MM_PERM_BADC));
    u = _mm512_max_epu32(u, _mm512_shuffle_epi32(u, _MM_PERM_CDAB));
    v = _mm512_max_epu32(v, _mm512_shuffle_epi32(v, _MM_PERM_CDAB));
    return _mm512_castsi512_si256(_mm512_permutex2var_epi32(u, firsts, v));
}

/* The largest of eight lanes, in all of them. */
EK_INLINE __m256i most_of_lanes(__m256i v)
{
    v = _mm256_max_epu32(v, _mm256_permute4x64_epi64(v, 0x4e));
    v = _mm256_max_epu32(v, _mm256_shuffle_epi32(v, 0x4e));
    return _mm256_max_epu32(v, _mm256_shuffle_epi32(v, 0xb1));
}

EK_INLINE float first_lane(__m256i v)
{
    return _mm256_cvtss_f32(_mm256_castsi256_ps(v));
}

/* base of 16 of v; their tops, zero outside `lanes`, to top. */
EK_INLINE void split(int8_t *base, int8_t *top, __mmask16 lanes, __m512i v)
{
    __m512i t = _mm512_srai_epi32(_mm512_add_epi32(v, _mm512_set1_epi32(8)), 4);
    t = _mm512_max_epi32(_mm512_min_epi32(t, _mm512_set1_epi32(127)),
                         _mm512_set1_epi32(-127));
    t = _mm512_maskz_mov_epi32(lanes, t);
    v = _mm512_sub_epi32(v, _mm512_slli_epi32(t, 4));
    _mm_store_si128((__m128i *)(void *)base, _mm512_cvtepi32_epi8(v));
    _mm_store_si128((__m128i *)(void *)top, _mm512_cvtepi32_epi8(t));
}

/* 32 values in a and b; see ref/prepare.c. */
EK_INLINE void quantize_group(struct ek_act_cell *cell, __m512 a, __m512 b)
{
    _Alignas(16) int8_t tops[EK_GROUP];
    __m256i most = quads_most(a, b), first = most_of_lanes(most);
    unsigned at_0 = _mm256_cmpeq_epi32_mask(most, first);
    at_0 &= 0u - at_0;
    __m256i others = _mm256_maskz_mov_epi32((__mmask8)~at_0, most);
    unsigned at_1 = _mm256_cmpeq_epi32_mask(others, most_of_lanes(others)) & ~at_0;
    at_1 &= 0u - at_1;
    others = _mm256_maskz_mov_epi32((__mmask8)~at_1, others);
    float scale, inv;
    bool is_some = ek_act_scale(&scale, &inv, first_lane(first),
                                first_lane(most_of_lanes(others)));
    int q0 = __builtin_ctz(at_0), q1 = __builtin_ctz(at_1);
    _mm512_store_si512(cell, _mm512_setzero_si512());
    cell->at[0] = ek_act_at(q0);
    cell->at[1] = ek_act_at(q1);
    if (!is_some) {
        ek_act_finish(cell, scale, 0, 0);
        return;
    }
    __m512 vinv = _mm512_set1_ps(inv);
    uint32_t lanes = 15u << 4 * q0 | 15u << 4 * q1;
    __m512i i = _mm512_cvtps_epi32(_mm512_mul_ps(a, vinv));
    __m512i j = _mm512_cvtps_epi32(_mm512_mul_ps(b, vinv));
    split(cell->base, tops, (__mmask16)lanes, i);
    split(cell->base + 16, tops + 16, (__mmask16)(lanes >> 16), j);
    memcpy(cell->top[0], tops + 4 * q0, 4);
    memcpy(cell->top[1], tops + 4 * q1, 4);
    ek_act_finish(cell, scale, _mm512_reduce_add_epi32(i), _mm512_reduce_add_epi32(j));
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
