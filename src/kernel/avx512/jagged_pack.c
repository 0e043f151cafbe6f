/* jagged_pack.c - rows of any type into the forms of jagged_tile.h, and sums back. */
#include "kernel/avx512/jagged_tile.h"

/* Columns [c,c+16) of row i: zero outside. */
EK_INLINE __m512 load16(const struct ek_jagged_rows *r, int64_t i, int64_t c)
{
    if (i >= r->n)
        return _mm512_setzero_ps();
    const __mmask16 m = first_lanes(r->D - c);
    const int64_t at = i * r->ld + c;
    if (r->dtype == EK_DTYPE_F32)
        return _mm512_maskz_loadu_ps(m, (const float *)r->x + at);
    return ps_of_bf16(_mm256_maskz_loadu_epi16(m, (const uint16_t *)r->x + at));
}

EK_INLINE void store16(const struct ek_jagged_rows *r, int64_t i, int64_t c, __m512 x)
{
    const __mmask16 m = first_lanes(r->D - c);
    const int64_t at = i * r->ld + c;
    if (r->dtype == EK_DTYPE_F32)
        _mm512_mask_storeu_ps((float *)r->to + at, m, x);
    else
        _mm256_mask_storeu_epi16((uint16_t *)r->to + at, m, bf16_of_ps(x));
}

EK_INLINE __m512i both_of(__m512 low, __m512 high)
{
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

void ek_avx512_jagged_pack_rows(float *to, const struct ek_jagged_rows *r, bool is_bf16)
{
    for (int64_t i = 0; i < r->padded; i++)
        for (int64_t c = 0; c < r->Dp; c += 16) {
            __m512 x = load16(r, i, c);
            if (is_bf16)
                _mm256_storeu_si256((void *)(to + (i * r->Dp + c) / 2),
                                    (__m256i)_mm512_cvtneps_pbh(x));
            else
                _mm512_storeu_ps(to + i * r->Dp + c, x);
        }
}

void ek_avx512_jagged_pack_pairs(float *to, const struct ek_jagged_rows *r,
                                 bool is_bf16)
{
    if (!is_bf16) {
        ek_avx512_jagged_pack_rows(to, r, false);
        return;
    }
    for (int64_t i = 0; i < r->padded; i += 2, to += r->Dp)
        for (int64_t c = 0; c < r->Dp; c += 16)
            _mm512_storeu_si512(
                to + c, pair_words(both_of(load16(r, i, c), load16(r, i + 1, c))));
}

/* 16 by 16 words, rows to columns. */
EK_INLINE void turn(__m512i x[16])
{
    __m512i y[16];
    for (int i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
        x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
        x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
        x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        y[i] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0x88);
        y[i + 4] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0xdd);
        y[i + 8] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0x88);
        y[i + 12] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        x[i] = _mm512_shuffle_i32x4(y[i], y[i + 8], 0x88);
        x[i + 4] = _mm512_shuffle_i32x4(y[i + 4], y[i + 12], 0x88);
        x[i + 8] = _mm512_shuffle_i32x4(y[i], y[i + 8], 0xdd);
        x[i + 12] = _mm512_shuffle_i32x4(y[i + 4], y[i + 12], 0xdd);
    }
}

void ek_avx512_jagged_pack_turned(float *to, const struct ek_jagged_rows *r,
                                  bool is_bf16)
{
    const int64_t fold = is_bf16 ? 2 : 1, words = r->Dp / fold;
    for (int64_t i = 0; i < r->padded; i += 16)
        for (int64_t k = 0; k < words; k += 16) {
            __m512i x[16];
            for (int t = 0; t < 16; t++) {
                __m512 low = load16(r, i + t, k * fold);
                x[t] = is_bf16 ? both_of(low, load16(r, i + t, k * fold + 16))
                               : _mm512_castps_si512(low);
            }
            turn(x);
            for (int t = 0; t < 16 && k + t < words; t++)
                _mm512_storeu_si512(to + (k + t) * LANES + i, x[t]);
        }
}

void ek_avx512_jagged_delta(float *delta, const struct ek_jagged_rows *x, const void *y,
                            bool is_bf16)
{
    struct ek_jagged_rows other = *x;
    other.x = y;
    for (int64_t i = 0; i < x->padded; i++) {
        __m512 sum = _mm512_setzero_ps();
        for (int64_t c = 0; c < x->Dp; c += 16) {
            __m512 a = load16(x, i, c);
            if (is_bf16)
                a = ps_of_bf16((__m256i)_mm512_cvtneps_pbh(a));
            sum = _mm512_fmadd_ps(a, load16(&other, i, c), sum);
        }
        delta[i] = _mm512_reduce_add_ps(sum);
    }
}

void ek_avx512_jagged_unturn(const struct ek_jagged_rows *to, const float *sums,
                             const float *factor, bool is_adding)
{
    for (int64_t i = 0; i < to->n; i += 16) {
        const __m512 f = _mm512_loadu_ps(factor + i);
        for (int64_t c = 0; c < to->Dp; c += 16) {
            __m512i x[16];
            for (int t = 0; t < 16; t++)
                x[t] = _mm512_castps_si512(
                    _mm512_mul_ps(f, _mm512_loadu_ps(sums + (c + t) * LANES + i)));
            turn(x);
            for (int t = 0; t < 16 && i + t < to->n; t++) {
                __m512 y = _mm512_castsi512_ps(x[t]);
                if (is_adding)
                    y = _mm512_add_ps(load16(to, i + t, c), y);
                store16(to, i + t, c, y);
            }
        }
    }
}

void ek_avx512_jagged_unpack(const struct ek_jagged_rows *to, const float *sums,
                             float factor)
{
    const __m512 f = _mm512_set1_ps(factor);
    for (int64_t i = 0; i < to->n; i++)
        for (int64_t c = 0; c < to->Dp; c += 16)
            store16(to, i, c, _mm512_mul_ps(f, _mm512_loadu_ps(sums + i * to->Dp + c)));
}
