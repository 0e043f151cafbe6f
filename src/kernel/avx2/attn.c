/* attn.c - the three inner steps of attention (attn_int.h). */
#include "kernel/attn_int.h"
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/simd.h"

#include <math.h>
#include <string.h>

/* n <= 8 elements from p, zeros behind; nothing behind n is read. */
EK_INLINE __m256 load_as_ps(const unsigned char *p, enum ek_dtype t, int64_t n)
{
    if (t == EK_DTYPE_F32)
        return load_first((const float *)(const void *)p, n);
    unsigned char bytes[16] = {0};
    int64_t size = t == EK_DTYPE_BF16 ? 2 : 1;
    memcpy(bytes, p, (size_t)(n < 8 ? n * size : 8 * size));
    __m128i v = _mm_loadu_si128((const void *)bytes);
    return t == EK_DTYPE_BF16 ? ps_of_bf16(v) : ps_of_e4m3(v);
}

static void load(float *dst, const void *src, enum ek_dtype t, int64_t n, int64_t D,
                 int64_t Dp)
{
    int64_t size = t == EK_DTYPE_F32 ? 4 : t == EK_DTYPE_BF16 ? 2 : 1;
    const unsigned char *p = src;
    for (int64_t j = 0; j < n; j++)
        for (int64_t c = 0; c < D; c += 8)
            _mm256_store_ps(dst + j * Dp + c,
                            load_as_ps(p + (j * D + c) * size, t, D - c));
}

/* Lane j of the result = sum of the lanes of a[j]. */
EK_INLINE __m256 sums_of_8(const __m256 a[8])
{
    __m256 b0 = _mm256_hadd_ps(a[0], a[1]), b1 = _mm256_hadd_ps(a[2], a[3]);
    __m256 b2 = _mm256_hadd_ps(a[4], a[5]), b3 = _mm256_hadd_ps(a[6], a[7]);
    __m256 c0 = _mm256_hadd_ps(b0, b1), c1 = _mm256_hadd_ps(b2, b3);
    return _mm256_add_ps(_mm256_permute2f128_ps(c0, c1, 0x20),
                         _mm256_permute2f128_ps(c0, c1, 0x31));
}

static void score(float *s, const float *q, const float *k, int64_t Pp, int64_t Dp)
{
    for (int64_t j = 0; j < Pp; j += 8) {
        __m256 dot[8];
        for (int i = 0; i < 8; i++)
            dot[i] = _mm256_setzero_ps();
        for (int64_t c = 0; c < Dp; c += 8) {
            __m256 x = _mm256_load_ps(q + c);
            const float *row = k + j * Dp + c;
            for (int i = 0; i < 8; i++)
                dot[i] = _mm256_fmadd_ps(x, _mm256_load_ps(row + i * Dp), dot[i]);
        }
        _mm256_store_ps(s + j, sums_of_8(dot));
    }
}

/* acc[0, 8 n) = acc * old + sum_j p[j] v[j], j ascending. */
EK_INLINE void add_values(float *acc, __m256 old, const float *p, const float *v,
                          int64_t j0, int64_t j1, int64_t Dp, const int n)
{
    __m256 a[8];
    for (int i = 0; i < n; i++)
        a[i] = _mm256_mul_ps(_mm256_load_ps(acc + 8 * i), old);
    for (int64_t j = j0; j < j1; j++) {
        __m256 pj = _mm256_broadcast_ss(p + j);
        for (int i = 0; i < n; i++)
            a[i] = _mm256_fmadd_ps(pj, _mm256_load_ps(v + j * Dp + 8 * i), a[i]);
    }
    for (int i = 0; i < n; i++)
        _mm256_store_ps(acc + 8 * i, a[i]);
}

/* Lanes whose token j + lane lies in [j0,j1). */
EK_INLINE __m256 lanes_of(int64_t j, int64_t j0, int64_t j1)
{
    return _mm256_castsi256_ps(
        _mm256_andnot_si256(first_lanes(j0 - j), first_lanes(j1 - j)));
}

static void update(struct ek_attn_row *row, float *s, const float *v, int64_t j0,
                   int64_t j1, int64_t Pp, int64_t Dp, float scale, float softcap)
{
    const __m256 vscale = _mm256_set1_ps(scale), cap = _mm256_set1_ps(softcap);
    __m256 top = _mm256_set1_ps(*row->m), sum = _mm256_setzero_ps();
    for (int64_t j = 0; j < Pp; j += 8) {
        __m256 x = _mm256_mul_ps(_mm256_load_ps(s + j), vscale);
        if (softcap > 0)
            x = _mm256_mul_ps(cap, tanh_ps(_mm256_div_ps(x, cap)));
        _mm256_store_ps(s + j, x);
        top = _mm256_blendv_ps(top, _mm256_max_ps(x, top), lanes_of(j, j0, j1));
    }
    const float m = max_of_lanes(top);
    const __m256 vm = _mm256_set1_ps(m);
    const __m256 old = exp_ps(_mm256_sub_ps(_mm256_set1_ps(*row->m), vm));
    for (int64_t j = 0; j < Pp; j += 8) {
        __m256 e = exp_ps(_mm256_sub_ps(_mm256_load_ps(s + j), vm));
        e = _mm256_and_ps(e, lanes_of(j, j0, j1));
        sum = _mm256_add_ps(sum, e);
        _mm256_store_ps(s + j, e);
    }
    *row->m = m;
    *row->l = *row->l * _mm256_cvtss_f32(old) + sum_of_lanes(sum);
    int64_t c = 0;
    for (; c + 64 <= Dp; c += 64)
        add_values(row->acc + c, old, s, v + c, j0, j1, Dp, 8);
    for (; c < Dp; c += 16)
        add_values(row->acc + c, old, s, v + c, j0, j1, Dp, 2);
}

void ek_avx2_attn(float *out, int64_t ldo, const float *q, int64_t ldq,
                  const void *k_pool, const void *v_pool, const struct ek_attn_dims *d,
                  const struct ek_attn_seq *seqs, int64_t n_seqs, int64_t i0,
                  int64_t i1, void *scratch)
{
    static const struct ek_attn_steps steps = {
        .pad = 16, .load = load, .score = score, .update = update};
    struct ek_attn_args a = {out, q, k_pool, v_pool, d, seqs, ldo, ldq, n_seqs};
    ek_attn_run(&a, i0, i1, scratch, &steps);
}
