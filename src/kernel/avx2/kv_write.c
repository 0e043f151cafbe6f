/* kv_write.c - new keys and values rounded into their pages, the same bits as ref's. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/simd.h"
#include "num/float.h"

#include <string.h>

/* As ek_f32_to_e4m3, eight codes in 32-bit lanes; *n_over gains the values beyond the
 * range (lanes that hold no value are zero). */
EK_INLINE __m256i e4m3_of_ps(__m256 x, int64_t *n_over)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i u = _mm256_castps_si256(x), a = _mm256_and_si256(u, magnitude);
    __m256i sign = _mm256_srli_epi32(_mm256_andnot_si256(magnitude, u), 24);
    __m256 is_over =
        _mm256_cmp_ps(_mm256_castsi256_ps(a), _mm256_set1_ps(EK_E4M3_MAX), _CMP_GT_OQ);
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    *n_over += __builtin_popcount((unsigned)_mm256_movemask_ps(is_over));
    a = _mm256_min_epu32(a, _mm256_set1_epi32(0x43e00000)); /* 448 */
    /* subnormal: adding 2^14 rounds to multiples of 2^-9 */
    __m256 sub = _mm256_add_ps(_mm256_castsi256_ps(a), _mm256_set1_ps(16384.0f));
    __m256i low =
        _mm256_sub_epi32(_mm256_castps_si256(sub), _mm256_set1_epi32(0x46800000));
    __m256i lsb = _mm256_and_si256(_mm256_srli_epi32(a, 20), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(a, _mm256_add_epi32(lsb, _mm256_set1_epi32(0x7ffff)));
    r = _mm256_sub_epi32(_mm256_srli_epi32(r, 20), _mm256_set1_epi32(120 << 3));
    __m256i is_sub = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x3c800000), a);
    r = _mm256_blendv_epi8(r, low, is_sub);
    r = _mm256_blendv_epi8(r, _mm256_set1_epi32(0x7f), is_nan);
    return _mm256_or_si256(r, sign);
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
            __m128i codes = narrow_16(e4m3_of_ps(v, &n_over));
            _mm_storeu_si128((__m128i *)(void *)bytes, _mm_packus_epi16(codes, codes));
        }
        memcpy(dst, bytes, (size_t)(n * size));
    }
    return n_over;
}

int64_t ek_avx2_kv_write(void *k_pool, void *v_pool, const float *k, int64_t ldk,
                         const float *v, int64_t ldv, const int64_t *slot, int64_t t0,
                         int64_t t1, const struct ek_attn_dims *d)
{
    int64_t D = d->D, P = d->page_tokens, n_over = 0;
    for (int64_t t = t0; t < t1; t++) {
        int64_t page = slot[t] / P, token = slot[t] % P;
        for (int64_t h = 0; h < d->K; h++) {
            int64_t at = ((page * d->K + h) * P + token) * D;
            n_over += write_head(k_pool, at, k + t * ldk + h * D, D, d->kv_dtype,
                                 d->k_scale ? d->k_scale[h] : 1.0f);
            n_over += write_head(v_pool, at, v + t * ldv + h * D, D, d->kv_dtype,
                                 d->v_scale ? d->v_scale[h] : 1.0f);
        }
    }
    return n_over;
}
