/* kv_write.c - the rotation, and new keys and values rounded into their pages: the same
 * bits as ref's. Keys go a lane each through the sequential rounding. */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/simd.h"
#include "kernel/kv_write_int.h"
#include "kernel/ref/ref.h"
#include "num/float.h"

#include <math.h>

#define LANES EK_KEY_LANES

/* As ek_f32_to_e4m3, codes in 32-bit lanes; *value is what they stand for. */
EK_INLINE __m512i e4m3_of_ps(__m512 x, __m512 *value)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i u = _mm512_castps_si512(x), a = _mm512_and_si512(u, magnitude);
    __m512i sign = _mm512_andnot_si512(magnitude, u);
    __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    a = _mm512_min_epu32(a, _mm512_set1_epi32(0x43e00000)); /* 448 */
    __mmask16 is_sub = _mm512_cmplt_epu32_mask(a, _mm512_set1_epi32(0x3c800000));
    /* subnormal: adding 2^14 rounds to multiples of 2^-9 */
    const __m512 big = _mm512_set1_ps(16384.0f);
    __m512 sub = _mm512_add_ps(_mm512_castsi512_ps(a), big);
    __m512i low = _mm512_sub_epi32(_mm512_castps_si512(sub), _mm512_castps_si512(big));
    __m512i lsb = _mm512_and_si512(_mm512_srli_epi32(a, 20), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(a, _mm512_add_epi32(lsb, _mm512_set1_epi32(0x7ffff)));
    r = _mm512_srli_epi32(r, 20);
    __m512i v = _mm512_mask_mov_epi32(_mm512_slli_epi32(r, 20), is_sub,
                                      _mm512_castps_si512(_mm512_sub_ps(sub, big)));
    v = _mm512_mask_mov_epi32(_mm512_or_si512(v, sign), is_nan, u);
    *value = _mm512_castsi512_ps(v);
    r = _mm512_sub_epi32(r, _mm512_set1_epi32(120 << 3));
    r = _mm512_mask_mov_epi32(r, is_sub, low);
    r = _mm512_mask_mov_epi32(r, is_nan, _mm512_set1_epi32(0x7f));
    return _mm512_or_si512(r, _mm512_srli_epi32(sign, 24));
}

EK_INLINE int64_t count_over(__m512 x, __mmask16 lanes)
{
    return __builtin_popcount(_mm512_mask_cmp_ps_mask(
        lanes, _mm512_abs_ps(x), _mm512_set1_ps(EK_E4M3_MAX), _CMP_GT_OQ));
}

/* One head of one token to element `at` of the pool. */
static int64_t write_head(void *pool, int64_t at, const float *x, int64_t D,
                          enum ek_dtype t, float scale)
{
    int64_t n_over = 0;
    for (int64_t c = 0; c < D; c += 16) {
        __mmask16 lanes = first_lanes(D - c);
        __m512 v = _mm512_maskz_loadu_ps(lanes, x + c);
        if (t == EK_DTYPE_F32) {
            _mm512_mask_storeu_ps((float *)pool + at + c, lanes, v);
        } else if (t == EK_DTYPE_BF16) {
            _mm256_mask_storeu_epi16((uint16_t *)pool + at + c, lanes, bf16_of_ps(v));
        } else {
            v = _mm512_div_ps(v, _mm512_set1_ps(scale));
            __m512 value;
            n_over += count_over(v, lanes);
            _mm_mask_storeu_epi8((uint8_t *)pool + at + c, lanes,
                                 _mm512_cvtepi32_epi8(e4m3_of_ps(v, &value)));
        }
    }
    return n_over;
}

/* Butterflies of lanes that are `step` apart; `swapped` brings each its partner. */
EK_INLINE __m512 butterfly(__m512 x, __m512 swapped, __mmask16 is_upper)
{
    return _mm512_mask_sub_ps(_mm512_add_ps(x, swapped), is_upper, swapped, x);
}

/* All that happens within 16 coordinates of a block of 16 or more. */
EK_INLINE __m512 rotate_16(__m512 x)
{
    x = butterfly(x, _mm512_permute_ps(x, 0xb1), 0xaaaa);
    x = butterfly(x, _mm512_permute_ps(x, 0x4e), 0xcccc);
    x = butterfly(x, _mm512_shuffle_f32x4(x, x, 0xb1), 0xf0f0);
    return butterfly(x, _mm512_shuffle_f32x4(x, x, 0x4e), 0xff00);
}

static void rotate_block(float *x, int64_t n)
{
    __m512 scale = _mm512_set1_ps(1.0f / sqrtf((float)n));
    for (int64_t i = 0; i < n; i += LANES)
        _mm512_storeu_ps(x + i, rotate_16(_mm512_loadu_ps(x + i)));
    for (int64_t step = LANES; step < n; step *= 2)
        for (int64_t i = 0; i < n; i += 2 * step)
            for (int64_t j = i; j < i + step; j += LANES) {
                __m512 a = _mm512_loadu_ps(x + j), b = _mm512_loadu_ps(x + j + step);
                _mm512_storeu_ps(x + j, _mm512_add_ps(a, b));
                _mm512_storeu_ps(x + j + step, _mm512_sub_ps(a, b));
            }
    for (int64_t i = 0; i < n; i += LANES)
        _mm512_storeu_ps(x + i, _mm512_mul_ps(_mm512_loadu_ps(x + i), scale));
}

void ek_avx512_rotate(float *x, int64_t ldx, int64_t T, int64_t heads, int64_t D)
{
    int64_t n = D & -D;
    if (n < LANES) {
        ek_ref_rotate(x, ldx, T, heads, D);
        return;
    }
    for (int64_t t = 0; t < T; t++)
        for (int64_t i = 0; i < heads * D; i += n)
            rotate_block(x + t * ldx + i, n);
}

static int64_t write_keys(struct ek_key_lanes *b, int64_t D)
{
    __mmask16 lanes = first_lanes(b->n);
    __m512 r = _mm512_setzero_ps(), rest = _mm512_setzero_ps();
    int64_t n_over = 0;
    for (int64_t c = D - 1; c >= 0; c--) {
        __m512 q = _mm512_maskz_loadu_ps(lanes, b->q[c]);
        rest = _mm512_add_ps(rest, _mm512_mul_ps(q, q));
        _mm512_storeu_ps(b->weight[c], rest);
    }
    __m512 lambda =
        _mm512_add_ps(_mm512_mul_ps(_mm512_set1_ps(EK_KV_LAMBDA / (float)D), rest),
                      _mm512_set1_ps(EK_KV_TINY));
    for (int64_t c = 0; c < D; c++) {
        __m512 q = _mm512_maskz_loadu_ps(lanes, b->q[c]), value;
        __m512 y = _mm512_maskz_loadu_ps(lanes, b->k[c]);
        __m512 w = _mm512_add_ps(lambda, _mm512_loadu_ps(b->weight[c]));
        __m512 x = _mm512_add_ps(y, _mm512_mul_ps(r, _mm512_div_ps(q, w)));
        __m512i code = e4m3_of_ps(x, &value);
        n_over += count_over(x, lanes);
        r = _mm512_add_ps(r, _mm512_mul_ps(q, _mm512_sub_ps(y, value)));
        _mm_storeu_si128((__m128i *)(void *)b->code[c], _mm512_cvtepi32_epi8(code));
    }
    return n_over;
}

int64_t ek_avx512_kv_write(void *k_pool, void *v_pool, const struct ek_kv_rows *r,
                           int64_t t0, int64_t t1, const struct ek_attn_dims *d)
{
    static const struct ek_kv_steps steps = {write_head, write_keys};
    return ek_kv_write_run(k_pool, v_pool, r, t0, t1, d, &steps);
}
