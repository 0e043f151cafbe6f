/* kv_write.c - the rotation, and new keys and values rounded into their pages: the same
 * bits as ref's. Keys go a lane each through the sequential rounding. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/simd.h"
#include "kernel/kv_write_int.h"
#include "kernel/ref/ref.h"
#include "num/float.h"

#include <math.h>
#include <string.h>

#define LANES 8

/* As ek_f32_to_e4m3, codes in 32-bit lanes; *value is what they stand for. */
EK_INLINE __m256i e4m3_of_ps(__m256 x, __m256 *value)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i u = _mm256_castps_si256(x), a = _mm256_and_si256(u, magnitude);
    __m256i sign = _mm256_andnot_si256(magnitude, u);
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    a = _mm256_min_epu32(a, _mm256_set1_epi32(0x43e00000)); /* 448 */
    __m256i is_sub = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x3c800000), a);
    /* subnormal: adding 2^14 rounds to multiples of 2^-9 */
    const __m256 big = _mm256_set1_ps(16384.0f);
    __m256 sub = _mm256_add_ps(_mm256_castsi256_ps(a), big);
    __m256i low = _mm256_sub_epi32(_mm256_castps_si256(sub), _mm256_castps_si256(big));
    __m256i lsb = _mm256_and_si256(_mm256_srli_epi32(a, 20), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(a, _mm256_add_epi32(lsb, _mm256_set1_epi32(0x7ffff)));
    r = _mm256_srli_epi32(r, 20);
    __m256i v = _mm256_blendv_epi8(
        _mm256_slli_epi32(r, 20), _mm256_castps_si256(_mm256_sub_ps(sub, big)), is_sub);
    v = _mm256_blendv_epi8(_mm256_or_si256(v, sign), u, is_nan);
    *value = _mm256_castsi256_ps(v);
    r = _mm256_sub_epi32(r, _mm256_set1_epi32(120 << 3));
    r = _mm256_blendv_epi8(r, low, is_sub);
    r = _mm256_blendv_epi8(r, _mm256_set1_epi32(0x7f), is_nan);
    return _mm256_or_si256(r, _mm256_srli_epi32(sign, 24));
}

/* Lanes that hold no value are zero. */
EK_INLINE int64_t count_over(__m256 x)
{
    __m256 a = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
    __m256 is_over = _mm256_cmp_ps(a, _mm256_set1_ps(EK_E4M3_MAX), _CMP_GT_OQ);
    return __builtin_popcount((unsigned)_mm256_movemask_ps(is_over));
}

EK_INLINE __m128i bytes_of(__m256i codes)
{
    __m128i words = narrow_16(codes);
    return _mm_packus_epi16(words, words);
}

/* One head of one token to element `at` of the pool. */
static int64_t write_head(void *pool, int64_t at, const float *x, int64_t D,
                          enum ek_dtype t, float scale)
{
    int64_t n_over = 0, size = t == EK_DTYPE_F32 ? 4 : t == EK_DTYPE_BF16 ? 2 : 1;
    for (int64_t c = 0; c < D; c += 8) {
        unsigned char *dst = (unsigned char *)pool + (at + c) * size, bytes[32];
        int64_t n = D - c < 8 ? D - c : 8;
        __m256 v = load_first(x + c, n);
        if (t == EK_DTYPE_F32) {
            _mm256_storeu_ps((float *)(void *)bytes, v);
        } else if (t == EK_DTYPE_BF16) {
            _mm_storeu_si128((__m128i *)(void *)bytes, bf16_of_ps(v));
        } else {
            v = _mm256_div_ps(v, _mm256_set1_ps(scale));
            __m256 value;
            n_over += count_over(v);
            _mm_storeu_si128((__m128i *)(void *)bytes, bytes_of(e4m3_of_ps(v, &value)));
        }
        memcpy(dst, bytes, (size_t)(n * size));
    }
    return n_over;
}

/* Butterflies of lanes that are some step apart; `swapped` brings each its partner, and
 * the upper one of a pair has its sign in `upper`. */
EK_INLINE __m256 butterfly(__m256 x, __m256 swapped, __m256 upper)
{
    return _mm256_add_ps(_mm256_xor_ps(x, upper), swapped);
}

/* All that happens within 8 coordinates of a block of 8 or more. */
EK_INLINE __m256 rotate_8(__m256 x)
{
    const __m256 by_1 = _mm256_setr_ps(0, -0.0f, 0, -0.0f, 0, -0.0f, 0, -0.0f);
    const __m256 by_2 = _mm256_setr_ps(0, 0, -0.0f, -0.0f, 0, 0, -0.0f, -0.0f);
    const __m256 by_4 = _mm256_setr_ps(0, 0, 0, 0, -0.0f, -0.0f, -0.0f, -0.0f);
    x = butterfly(x, _mm256_permute_ps(x, 0xb1), by_1);
    x = butterfly(x, _mm256_permute_ps(x, 0x4e), by_2);
    return butterfly(x, _mm256_permute2f128_ps(x, x, 1), by_4);
}

static void rotate_block(float *x, int64_t n)
{
    __m256 scale = _mm256_set1_ps(1.0f / sqrtf((float)n));
    for (int64_t i = 0; i < n; i += LANES)
        _mm256_storeu_ps(x + i, rotate_8(_mm256_loadu_ps(x + i)));
    for (int64_t step = LANES; step < n; step *= 2)
        for (int64_t i = 0; i < n; i += 2 * step)
            for (int64_t j = i; j < i + step; j += LANES) {
                __m256 a = _mm256_loadu_ps(x + j), b = _mm256_loadu_ps(x + j + step);
                _mm256_storeu_ps(x + j, _mm256_add_ps(a, b));
                _mm256_storeu_ps(x + j + step, _mm256_sub_ps(a, b));
            }
    for (int64_t i = 0; i < n; i += LANES)
        _mm256_storeu_ps(x + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), scale));
}

void ek_avx2_rotate(float *x, int64_t ldx, int64_t T, int64_t heads, int64_t D)
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

/* Lanes [i,i+8) of the keys. */
static int64_t write_eight(struct ek_key_lanes *b, int i, int64_t D)
{
    __m256i used = first_lanes(b->n - i);
    __m256 r = _mm256_setzero_ps(), rest = _mm256_setzero_ps();
    int64_t n_over = 0;
    for (int64_t c = D - 1; c >= 0; c--) {
        __m256 q = _mm256_maskload_ps(b->q[c] + i, used);
        rest = _mm256_add_ps(rest, _mm256_mul_ps(q, q));
        _mm256_storeu_ps(b->weight[c] + i, rest);
    }
    __m256 lambda =
        _mm256_add_ps(_mm256_mul_ps(_mm256_set1_ps(EK_KV_LAMBDA / (float)D), rest),
                      _mm256_set1_ps(EK_KV_TINY));
    for (int64_t c = 0; c < D; c++) {
        __m256 q = _mm256_maskload_ps(b->q[c] + i, used), value;
        __m256 y = _mm256_maskload_ps(b->k[c] + i, used);
        __m256 w = _mm256_add_ps(lambda, _mm256_loadu_ps(b->weight[c] + i));
        __m256 x = _mm256_add_ps(y, _mm256_mul_ps(r, _mm256_div_ps(q, w)));
        __m256i code = e4m3_of_ps(x, &value);
        n_over += count_over(x);
        r = _mm256_add_ps(r, _mm256_mul_ps(q, _mm256_sub_ps(y, value)));
        _mm_storel_epi64((__m128i *)(void *)(b->code[c] + i), bytes_of(code));
    }
    return n_over;
}

static int64_t write_keys(struct ek_key_lanes *b, int64_t D)
{
    int64_t n_over = 0;
    for (int i = 0; i < b->n; i += LANES)
        n_over += write_eight(b, i, D);
    return n_over;
}

int64_t ek_avx2_kv_write(void *k_pool, void *v_pool, const struct ek_kv_rows *r,
                         int64_t t0, int64_t t1, const struct ek_attn_dims *d)
{
    static const struct ek_kv_steps steps = {write_head, write_keys};
    return ek_kv_write_run(k_pool, v_pool, r, t0, t1, d, &steps);
}
