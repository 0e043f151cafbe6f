/* kv_write.c - new keys and values rounded into their pages, the same bits as ref's. */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/simd.h"
#include "num/float.h"

/* As ek_f32_to_e4m3; *n_over gains the lanes beyond the range. */
EK_INLINE __m128i e4m3_of_ps(__m512 x, __mmask16 lanes, int64_t *n_over)
{
    __m512i u = _mm512_castps_si512(x);
    __m512i a = _mm512_and_si512(u, _mm512_set1_epi32(0x7fffffff));
    __m512i sign =
        _mm512_srli_epi32(_mm512_andnot_si512(_mm512_set1_epi32(0x7fffffff), u), 24);
    __mmask16 is_over = _mm512_mask_cmp_ps_mask(
        lanes, _mm512_castsi512_ps(a), _mm512_set1_ps(EK_E4M3_MAX), _CMP_GT_OQ);
    __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    *n_over += __builtin_popcount(is_over);
    a = _mm512_min_epu32(a, _mm512_set1_epi32(0x43e00000)); /* 448 */
    /* subnormal: adding 2^14 rounds to multiples of 2^-9 */
    __m512 sub = _mm512_add_ps(_mm512_castsi512_ps(a), _mm512_set1_ps(16384.0f));
    __m512i low =
        _mm512_sub_epi32(_mm512_castps_si512(sub), _mm512_set1_epi32(0x46800000));
    __m512i lsb = _mm512_and_si512(_mm512_srli_epi32(a, 20), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(a, _mm512_add_epi32(lsb, _mm512_set1_epi32(0x7ffff)));
    r = _mm512_sub_epi32(_mm512_srli_epi32(r, 20), _mm512_set1_epi32(120 << 3));
    __mmask16 is_sub = _mm512_cmplt_epu32_mask(a, _mm512_set1_epi32(0x3c800000));
    r = _mm512_mask_mov_epi32(r, is_sub, low);
    r = _mm512_mask_mov_epi32(r, is_nan, _mm512_set1_epi32(0x7f));
    return _mm512_cvtepi32_epi8(_mm512_or_si512(r, sign));
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
            _mm_mask_storeu_epi8((uint8_t *)pool + at + c, lanes,
                                 e4m3_of_ps(v, lanes, &n_over));
        }
    }
    return n_over;
}

int64_t ek_avx512_kv_write(void *k_pool, void *v_pool, const float *k, int64_t ldk,
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
