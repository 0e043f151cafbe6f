/* attn.c - the three inner steps of attention (attn_int.h). */
#include "kernel/attn_int.h"
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/simd.h"
#include "kernel/e4m3_table.h"

#include <math.h>

/* 16 codes to f32: the bf16 bytes from the tables into the upper half of each lane. */
EK_INLINE __m512 ps_of_e4m3(__m128i codes)
{
    const __m512i spread = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
    __m512i c = _mm512_shuffle_epi8(_mm512_cvtepu8_epi32(codes), spread);
    __m512i lo = _mm512_maskz_permutex2var_epi8(0x4444444444444444ull,
                                                _mm512_loadu_si512(ek_e4m3_lo), c,
                                                _mm512_loadu_si512(ek_e4m3_lo + 64));
    __m512i hi = _mm512_maskz_permutex2var_epi8(0x8888888888888888ull,
                                                _mm512_loadu_si512(ek_e4m3_hi), c,
                                                _mm512_loadu_si512(ek_e4m3_hi + 64));
    __m512i sign = _mm512_and_si512(c, _mm512_set1_epi32((int)0x80000000u));
    return _mm512_castsi512_ps(_mm512_or_si512(_mm512_or_si512(lo, hi), sign));
}

/* Lanes of n 16-bit or 8-bit elements from p. */
EK_INLINE __m512 load_as_ps(const unsigned char *p, enum ek_dtype t, __mmask16 lanes)
{
    if (t == EK_DTYPE_F32)
        return _mm512_maskz_loadu_ps(lanes, p);
    if (t == EK_DTYPE_BF16)
        return ps_of_bf16(_mm256_maskz_loadu_epi16(lanes, p));
    return ps_of_e4m3(_mm_maskz_loadu_epi8(lanes, p));
}

static void load(float *dst, const void *src, enum ek_dtype t, int64_t n, int64_t D,
                 int64_t Dp)
{
    int64_t size = t == EK_DTYPE_F32 ? 4 : t == EK_DTYPE_BF16 ? 2 : 1;
    const unsigned char *p = src;
    for (int64_t j = 0; j < n; j++)
        for (int64_t c = 0; c < Dp; c += 16)
            _mm512_store_ps(dst + j * Dp + c,
                            load_as_ps(p + (j * D + c) * size, t, first_lanes(D - c)));
}

/* Lane j of the result = sum of the lanes of a[j]. */
EK_INLINE __m512 sums_of_16(const __m512 a[16])
{
    __m512 b[8], c[4], d[2];
    for (int i = 0; i < 8; i++)
        b[i] = _mm512_add_ps(_mm512_unpacklo_ps(a[2 * i], a[2 * i + 1]),
                             _mm512_unpackhi_ps(a[2 * i], a[2 * i + 1]));
    for (int i = 0; i < 4; i++) {
        __m512d u = _mm512_castps_pd(b[2 * i]), v = _mm512_castps_pd(b[2 * i + 1]);
        c[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(u, v)),
                             _mm512_castpd_ps(_mm512_unpackhi_pd(u, v)));
    }
    for (int i = 0; i < 2; i++)
        d[i] = _mm512_add_ps(_mm512_shuffle_f32x4(c[2 * i], c[2 * i + 1], 0x88),
                             _mm512_shuffle_f32x4(c[2 * i], c[2 * i + 1], 0xdd));
    return _mm512_add_ps(_mm512_shuffle_f32x4(d[0], d[1], 0x88),
                         _mm512_shuffle_f32x4(d[0], d[1], 0xdd));
}

static void score(float *s, const float *q, const float *k, int64_t Pp, int64_t Dp)
{
    for (int64_t j = 0; j < Pp; j += 16) {
        __m512 dot[16];
        for (int i = 0; i < 16; i++)
            dot[i] = _mm512_setzero_ps();
        for (int64_t c = 0; c < Dp; c += 16) {
            __m512 x = _mm512_load_ps(q + c);
            const float *row = k + j * Dp + c;
            for (int i = 0; i < 16; i++)
                dot[i] = _mm512_fmadd_ps(x, _mm512_load_ps(row + i * Dp), dot[i]);
        }
        _mm512_store_ps(s + j, sums_of_16(dot));
    }
}

/* acc[0, 16 n) = acc * old + sum_j p[j] v[j], j ascending. */
EK_INLINE void add_values(float *acc, __m512 old, const float *p, const float *v,
                          int64_t j0, int64_t j1, int64_t Dp, const int n)
{
    __m512 a[4];
    for (int i = 0; i < n; i++)
        a[i] = _mm512_mul_ps(_mm512_load_ps(acc + 16 * i), old);
    for (int64_t j = j0; j < j1; j++) {
        __m512 pj = _mm512_set1_ps(p[j]);
        for (int i = 0; i < n; i++)
            a[i] = _mm512_fmadd_ps(pj, _mm512_load_ps(v + j * Dp + 16 * i), a[i]);
    }
    for (int i = 0; i < n; i++)
        _mm512_store_ps(acc + 16 * i, a[i]);
}

EK_INLINE __mmask16 lanes_of(int64_t j, int64_t j0, int64_t j1)
{
    return (__mmask16)(first_lanes(j1 - j) & ~first_lanes(j0 - j));
}

static void update(struct ek_attn_row *row, float *s, const float *v, int64_t j0,
                   int64_t j1, int64_t Pp, int64_t Dp, float scale, float softcap)
{
    const __m512 vscale = _mm512_set1_ps(scale), cap = _mm512_set1_ps(softcap);
    __m512 top = _mm512_set1_ps(*row->m), sum = _mm512_setzero_ps();
    for (int64_t j = 0; j < Pp; j += 16) {
        __m512 x = _mm512_mul_ps(_mm512_load_ps(s + j), vscale);
        if (softcap > 0)
            x = _mm512_mul_ps(cap, tanh_ps(_mm512_div_ps(x, cap)));
        _mm512_store_ps(s + j, x);
        top = _mm512_mask_max_ps(top, lanes_of(j, j0, j1), x, top);
    }
    const __m512 m = _mm512_set1_ps(_mm512_reduce_max_ps(top));
    const __m512 old = exp_ps(_mm512_sub_ps(_mm512_set1_ps(*row->m), m));
    for (int64_t j = 0; j < Pp; j += 16) {
        __m512 e = exp_ps(_mm512_sub_ps(_mm512_load_ps(s + j), m));
        e = _mm512_maskz_mov_ps(lanes_of(j, j0, j1), e);
        sum = _mm512_add_ps(sum, e);
        _mm512_store_ps(s + j, e);
    }
    *row->m = _mm512_cvtss_f32(m);
    *row->l = *row->l * _mm512_cvtss_f32(old) + _mm512_reduce_add_ps(sum);
    int64_t c = 0;
    for (; c + 64 <= Dp; c += 64)
        add_values(row->acc + c, old, s, v + c, j0, j1, Dp, 4);
    for (; c < Dp; c += 16)
        add_values(row->acc + c, old, s, v + c, j0, j1, Dp, 1);
}

void ek_avx512_attn(float *out, int64_t ldo, const float *q, int64_t ldq,
                    const void *k_pool, const void *v_pool,
                    const struct ek_attn_dims *d, const struct ek_attn_seq *seqs,
                    int64_t n_seqs, int64_t i0, int64_t i1, void *scratch)
{
    static const struct ek_attn_steps steps = {load, score, update};
    struct ek_attn_args a = {out, q, k_pool, v_pool, d, seqs, ldo, ldq, n_seqs};
    ek_attn_run(&a, i0, i1, scratch, &steps);
}
