/* prepare.c - activations into the form of matmul_int.h, the same bits as ref's. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/simd.h"

#include <string.h>

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

/* The largest magnitude of each quad of 32 values. */
EK_INLINE __m256i quads_most(const __m256 v[4])
{
    const __m256i abs = _mm256_set1_epi32(0x7fffffff);
    __m256i m[4];
    for (int j = 0; j < 4; j++) {
        m[j] = _mm256_and_si256(_mm256_castps_si256(v[j]), abs);
        m[j] = _mm256_max_epu32(m[j], _mm256_shuffle_epi32(m[j], 0x4e));
        m[j] = _mm256_max_epu32(m[j], _mm256_shuffle_epi32(m[j], 0xb1));
    }
    __m256i a = _mm256_unpacklo_epi32(m[0], m[1]); /* quads 0 2 0 2 | 1 3 1 3 */
    __m256i b = _mm256_unpacklo_epi32(m[2], m[3]);
    return _mm256_permutevar8x32_epi32(_mm256_unpacklo_epi64(a, b),
                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* The largest of eight unsigned lanes, in all of them. */
EK_INLINE __m256i most_of_lanes(__m256i v)
{
    v = _mm256_max_epu32(v, _mm256_permute4x64_epi64(v, 0x4e));
    v = _mm256_max_epu32(v, _mm256_shuffle_epi32(v, 0x4e));
    return _mm256_max_epu32(v, _mm256_shuffle_epi32(v, 0xb1));
}

/* The first lane of v that is x, but for lane `other`. */
EK_INLINE int lane_of(__m256i v, __m256i x, int other)
{
    __m256 is_x = _mm256_castsi256_ps(_mm256_cmpeq_epi32(v, x));
    return __builtin_ctz((unsigned)_mm256_movemask_ps(is_x) & ~(1u << other));
}

EK_INLINE __m256i without_lane(__m256i v, int lane)
{
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_andnot_si256(_mm256_cmpeq_epi32(lanes, _mm256_set1_epi32(lane)), v);
}

EK_INLINE float first_lane(__m256i v)
{
    return _mm256_cvtss_f32(_mm256_castsi256_ps(v));
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

/* Tops of v, quads `at`, taken off it. */
EK_INLINE void split(struct ek_act_cell *cell, const int at[2], __m256i v[4])
{
    const __m256i top_most = _mm256_set1_epi32(127),
                  top_least = _mm256_set1_epi32(-127);
    const __m256i quads = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
    _Alignas(32) int8_t tops[EK_GROUP];
    __m256i t[4];
    for (int j = 0; j < 4; j++) {
        __m256i q = _mm256_add_epi32(quads, _mm256_set1_epi32(2 * j));
        __m256i is_at =
            _mm256_or_si256(_mm256_cmpeq_epi32(q, _mm256_set1_epi32(at[0])),
                            _mm256_cmpeq_epi32(q, _mm256_set1_epi32(at[1])));
        t[j] = _mm256_srai_epi32(_mm256_add_epi32(v[j], _mm256_set1_epi32(8)), 4);
        t[j] = _mm256_max_epi32(_mm256_min_epi32(t[j], top_most), top_least);
        t[j] = _mm256_and_si256(t[j], is_at);
        v[j] = _mm256_sub_epi32(v[j], _mm256_slli_epi32(t[j], 4));
    }
    store_bytes(tops, t);
    for (int i = 0; i < 2; i++)
        memcpy(cell->top[i], tops + 4 * at[i], 4);
}

/* 32 values in v; see ref/prepare.c. */
EK_INLINE void quantize_group(struct ek_act_cell *cell, const __m256 v[4])
{
    __m256i most = quads_most(v), first = most_of_lanes(most);
    int at[2] = {lane_of(most, first, 31)};
    most = without_lane(most, at[0]);
    at[1] = lane_of(most, most_of_lanes(most), at[0]);
    most = without_lane(most, at[1]);
    float scale, inv;
    memset(cell, 0, sizeof *cell);
    cell->at[0] = ek_act_at(at[0]);
    cell->at[1] = ek_act_at(at[1]);
    if (!ek_act_scale(&scale, &inv, first_lane(first),
                      first_lane(most_of_lanes(most)))) {
        ek_act_finish(cell, scale, 0, 0);
        return;
    }
    __m256i i[4];
    for (int j = 0; j < 4; j++)
        i[j] = _mm256_cvtps_epi32(_mm256_mul_ps(v[j], _mm256_set1_ps(inv)));
    int32_t sum_0 = sum_of_lanes_i32(_mm256_add_epi32(i[0], i[1]));
    int32_t sum_16 = sum_of_lanes_i32(_mm256_add_epi32(i[2], i[3]));
    split(cell, at, i);
    store_bytes(cell->base, i);
    ek_act_finish(cell, scale, sum_0, sum_16);
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
