/* jagged_pack.c - rows of any type into the forms of jagged_tile.h, and sums back. */
#include "kernel/avx512/jagged_tile.h"

/* Columns [c,c+16) of row i: zero outside. is_whole: they are all there. */
EK_INLINE __m512 load16(const struct ek_jagged_rows *r, int64_t i, int64_t c,
                        const enum ek_dtype t, const bool is_whole)
{
    if (!is_whole && i >= r->n)
        return _mm512_setzero_ps();
    const __mmask16 m = is_whole ? 0xffff : first_lanes(r->D - c);
    const int64_t at = i * r->ld + c;
    if (t == EK_DTYPE_F32)
        return _mm512_maskz_loadu_ps(m, (const float *)r->x + at);
    return ps_of_bf16(_mm256_maskz_loadu_epi16(m, (const uint16_t *)r->x + at));
}

/* The same as bf16. */
EK_INLINE __m256i load16_bf16(const struct ek_jagged_rows *r, int64_t i, int64_t c,
                              const enum ek_dtype t, const bool is_whole)
{
    if (t == EK_DTYPE_F32)
        return (__m256i)_mm512_cvtneps_pbh(load16(r, i, c, t, is_whole));
    if (!is_whole && i >= r->n)
        return _mm256_setzero_si256();
    const __mmask16 m = is_whole ? 0xffff : first_lanes(r->D - c);
    return _mm256_maskz_loadu_epi16(m, (const uint16_t *)r->x + i * r->ld + c);
}

/* True when rows [i,i+n) and all columns up to a multiple of 32 are there. */
EK_INLINE bool are_whole(const struct ek_jagged_rows *r, int64_t i, int64_t n)
{
    return i + n <= r->n && r->D % 32 == 0;
}

/* Two by sixteen bf16. */
EK_INLINE __m512i both_of(__m256i low, __m256i high)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

EK_INLINE void store16(const struct ek_jagged_rows *r, int64_t i, int64_t c, __m512 x,
                       const enum ek_dtype t, const bool is_whole)
{
    const __mmask16 m = is_whole ? 0xffff : first_lanes(r->D - c);
    const int64_t at = i * r->ld + c;
    if (t == EK_DTYPE_F32)
        _mm512_mask_storeu_ps((float *)r->to + at, m, x);
    else
        _mm256_mask_storeu_epi16((uint16_t *)r->to + at, m,
                                 (__m256i)_mm512_cvtneps_pbh(x));
}

void ek_avx512_jagged_fetch(const struct ek_jagged_rows *r)
{
    const int64_t size = r->dtype == EK_DTYPE_F32 ? 4 : 2;
    const char *p = r->x;
    for (int64_t i = 0; i < r->n; i++, p += r->ld * size)
        for (int64_t at = 0; at < r->D * size; at += 64)
            _mm_prefetch(p + at, _MM_HINT_T0);
}

EK_INLINE void pack_row(float *to, const struct ek_jagged_rows *r, int64_t i,
                        const enum ek_dtype t, const bool is_bf16, const bool is_whole)
{
    for (int64_t c = 0; c < r->Dp; c += 16)
        if (is_bf16)
            _mm256_storeu_si256((void *)(to + (i * r->Dp + c) / 2),
                                load16_bf16(r, i, c, t, is_whole));
        else
            _mm512_storeu_ps(to + i * r->Dp + c, load16(r, i, c, t, is_whole));
}

EK_INLINE void pack_rows(float *to, const struct ek_jagged_rows *r,
                         const enum ek_dtype t, const bool is_bf16)
{
    for (int64_t i = 0; i < r->padded; i++)
        if (are_whole(r, i, 1))
            pack_row(to, r, i, t, is_bf16, true);
        else
            pack_row(to, r, i, t, is_bf16, false);
}

EK_INLINE void pack_pair(float *to, const struct ek_jagged_rows *r, int64_t i,
                         const enum ek_dtype t, const bool is_whole)
{
    const uint16_t *x = (const uint16_t *)r->x + i * r->ld;
    for (int64_t c = 0; t == EK_DTYPE_BF16 && is_whole && c < r->Dp; c += 32)
        pair_32(to + c, _mm512_loadu_si512(x + c), _mm512_loadu_si512(x + r->ld + c));
    for (int64_t c = 0; !(t == EK_DTYPE_BF16 && is_whole) && c < r->Dp; c += 16)
        _mm512_storeu_si512(to + c,
                            pair_words(both_of(load16_bf16(r, i, c, t, is_whole),
                                               load16_bf16(r, i + 1, c, t, is_whole))));
}

EK_INLINE void pack_pairs(float *to, const struct ek_jagged_rows *r,
                          const enum ek_dtype t)
{
    for (int64_t i = 0; i < r->padded; i += 2, to += r->Dp)
        if (are_whole(r, i, 2))
            pack_pair(to, r, i, t, true);
        else
            pack_pair(to, r, i, t, false);
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

/* Rows [i,i+16), words [k,k+16). */
EK_INLINE void pack_turned_block(float *to, const struct ek_jagged_rows *r, int64_t i,
                                 int64_t k, const enum ek_dtype t, const bool is_bf16,
                                 const bool is_whole)
{
    const int64_t n = r->Dp / (is_bf16 ? 2 : 1) - k;
    __m512i x[16];
    for (int y = 0; y < 16; y++)
        x[y] = is_bf16 ? both_of(load16_bf16(r, i + y, 2 * k, t, is_whole),
                                 load16_bf16(r, i + y, 2 * k + 16, t, is_whole))
                       : _mm512_castps_si512(load16(r, i + y, k, t, is_whole));
    turn(x);
    for (int y = 0; y < 16; y++)
        if (is_whole || y < n)
            _mm512_storeu_si512(to + (k + y) * LANES + i, x[y]);
}

EK_INLINE void pack_turned(float *to, const struct ek_jagged_rows *r,
                           const enum ek_dtype t, const bool is_bf16)
{
    const int64_t words = r->Dp / (is_bf16 ? 2 : 1);
    for (int64_t i = 0; i < r->padded; i += 16)
        for (int64_t k = 0; k < words; k += 16)
            if (are_whole(r, i, 16))
                pack_turned_block(to, r, i, k, t, is_bf16, true);
            else
                pack_turned_block(to, r, i, k, t, is_bf16, false);
}

EK_INLINE void delta_of(float *delta, const struct ek_jagged_rows *x,
                        const struct ek_jagged_rows *y, const enum ek_dtype t,
                        const bool is_bf16, const bool is_whole)
{
    for (int64_t i = 0; i < x->n; i++) {
        __m512 sum = _mm512_setzero_ps();
        for (int64_t c = 0; c < x->Dp; c += 16) {
            __m512 a = is_bf16 ? ps_of_bf16(load16_bf16(x, i, c, t, is_whole))
                               : load16(x, i, c, t, is_whole);
            sum = _mm512_fmadd_ps(a, load16(y, i, c, t, is_whole), sum);
        }
        delta[i] = _mm512_reduce_add_ps(sum);
    }
    for (int64_t i = x->n; i < x->padded; i++)
        delta[i] = 0;
}

EK_INLINE void delta_as(float *delta, const struct ek_jagged_rows *x,
                        const struct ek_jagged_rows *y, const enum ek_dtype t,
                        const bool is_bf16)
{
    if (are_whole(x, 0, 0))
        delta_of(delta, x, y, t, is_bf16, true);
    else
        delta_of(delta, x, y, t, is_bf16, false);
}

/* Rows [i,i+16), columns [c,c+16). */
EK_INLINE void unturn_block(const struct ek_jagged_rows *to, const float *sums,
                            const float *factor, const int64_t at[2], bool is_adding,
                            const enum ek_dtype t, const bool is_whole)
{
    const int64_t i = at[0], c = at[1];
    const __m512 f = _mm512_loadu_ps(factor + i);
    __m512i x[16];
    for (int y = 0; y < 16; y++)
        x[y] = _mm512_castps_si512(
            _mm512_mul_ps(f, _mm512_loadu_ps(sums + (c + y) * LANES + i)));
    turn(x);
    for (int y = 0; y < 16; y++) {
        __m512 row = _mm512_castsi512_ps(x[y]);
        if (!is_whole && i + y >= to->n)
            continue;
        if (is_adding)
            row = _mm512_add_ps(load16(to, i + y, c, t, is_whole), row);
        store16(to, i + y, c, row, t, is_whole);
    }
}

EK_INLINE void unturn(const struct ek_jagged_rows *to, const float *sums,
                      const float *factor, bool is_adding, const enum ek_dtype t)
{
    for (int64_t i = 0; i < to->n; i += 16)
        for (int64_t c = 0; c < to->Dp; c += 16) {
            const int64_t at[2] = {i, c};
            if (are_whole(to, i, 16))
                unturn_block(to, sums, factor, at, is_adding, t, true);
            else
                unturn_block(to, sums, factor, at, is_adding, t, false);
        }
}

EK_INLINE void unpack(const struct ek_jagged_rows *to, const float *sums, float factor,
                      const enum ek_dtype t)
{
    const __m512 f = _mm512_set1_ps(factor);
    for (int64_t i = 0; i < to->n; i++)
        for (int64_t c = 0; c < to->Dp; c += 16) {
            const __m512 x = _mm512_mul_ps(f, _mm512_loadu_ps(sums + i * to->Dp + c));
            if (are_whole(to, i, 1))
                store16(to, i, c, x, t, true);
            else
                store16(to, i, c, x, t, false);
        }
}

/* f with the type of rows and the kind of products as constants. */
#define BY_TYPE(t, f, ...)                                                             \
    ((t) == EK_DTYPE_F32 ? f(__VA_ARGS__, EK_DTYPE_F32) : f(__VA_ARGS__, EK_DTYPE_BF16))
#define BY_TYPES(t, is_bf16, f, ...)                                                   \
    ((t) == EK_DTYPE_F32 ? ((is_bf16) ? f(__VA_ARGS__, EK_DTYPE_F32, true)             \
                                      : f(__VA_ARGS__, EK_DTYPE_F32, false))           \
                         : ((is_bf16) ? f(__VA_ARGS__, EK_DTYPE_BF16, true)            \
                                      : f(__VA_ARGS__, EK_DTYPE_BF16, false)))

void ek_avx512_jagged_pack_rows(float *to, const struct ek_jagged_rows *r, bool is_bf16)
{
    BY_TYPES(r->dtype, is_bf16, pack_rows, to, r);
}

void ek_avx512_jagged_pack_pairs(float *to, const struct ek_jagged_rows *r,
                                 bool is_bf16)
{
    if (is_bf16)
        BY_TYPE(r->dtype, pack_pairs, to, r);
    else
        BY_TYPES(r->dtype, false, pack_rows, to, r);
}

void ek_avx512_jagged_pack_turned(float *to, const struct ek_jagged_rows *r,
                                  bool is_bf16)
{
    BY_TYPES(r->dtype, is_bf16, pack_turned, to, r);
}

void ek_avx512_jagged_delta(float *delta, const struct ek_jagged_rows *x, const void *y,
                            bool is_bf16)
{
    struct ek_jagged_rows other = *x;
    other.x = y;
    BY_TYPES(x->dtype, is_bf16, delta_as, delta, x, &other);
}

void ek_avx512_jagged_unturn(const struct ek_jagged_rows *to, const float *sums,
                             const float *factor, bool is_adding)
{
    BY_TYPE(to->dtype, unturn, to, sums, factor, is_adding);
}

void ek_avx512_jagged_unpack(const struct ek_jagged_rows *to, const float *sums,
                             float factor)
{
    BY_TYPE(to->dtype, unpack, to, sums, factor);
}
