/* attn.c - the inner steps of attention (attn_int.h), in f32.
 *
 * The forms: q in f32, keys and values [token][Dp] f32, columns in their order; p in
 * f32; m in the units of the formula. e4m3 goes through f16, which makes it 2^-8 of its
 * value: score and finish give that back, exactly. */
#include "kernel/attn_int.h"
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/simd.h"

#include <math.h>
#include <string.h>

#define E4M3_UNIT 256.0f

/* 16 codes to f32 of 2^-8 their value: a code moved up by 7 is an f16 of that (bias 15
 * against 7), subnormals included. */
EK_INLINE void widen_e4m3(__m256 x[2], const unsigned char *p)
{
    const __m256i upper =
        _mm256_setr_epi8(-1, 0, -1, 1, -1, 2, -1, 3, -1, 4, -1, 5, -1, 6, -1, 7, -1, 8,
                         -1, 9, -1, 10, -1, 11, -1, 12, -1, 13, -1, 14, -1, 15);
    __m256i c = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)p));
    c = _mm256_shuffle_epi8(c, upper); /* every code times 256 */
    __m256i is_nan =
        _mm256_cmpeq_epi16(_mm256_or_si256(c, _mm256_set1_epi16((short)0x8000)),
                           _mm256_set1_epi16((short)0xff00));
    __m256i h =
        _mm256_and_si256(_mm256_srai_epi16(c, 1), _mm256_set1_epi16((short)0xbfff));
    h = _mm256_or_si256(h, is_nan); /* ffff: a NaN in f16 */
    x[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(h));
    x[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1));
}

EK_INLINE void widen(__m256 x[2], const unsigned char *p, const enum ek_dtype t)
{
    if (t == EK_DTYPE_E4M3) {
        widen_e4m3(x, p);
    } else if (t == EK_DTYPE_BF16) {
        x[0] = ps_of_bf16(_mm_loadu_si128((const void *)p));
        x[1] = ps_of_bf16(_mm_loadu_si128((const void *)(p + 16)));
    } else {
        x[0] = _mm256_loadu_ps((const float *)(const void *)p);
        x[1] = _mm256_loadu_ps((const float *)(const void *)(p + 32));
    }
}

/* Tokens [j0,j1) of the block as f32, zeros up to a multiple of 16 columns. */
EK_INLINE void load_as(const struct ek_attn_block *b,
                       const unsigned char *const strips[],
                       const unsigned char *const next[], const enum ek_dtype t)
{
    const int64_t size = t == EK_DTYPE_F32 ? 4 : t == EK_DTYPE_BF16 ? 2 : 1;
    for (int64_t j = b->j0; j < b->j1; j++) {
        int64_t at = j % EK_ATTN_STRIP * b->D * size;
        const unsigned char *p = strips[j / EK_ATTN_STRIP] + at;
        const char *q = (const char *)next[j / EK_ATTN_STRIP] + at;
        float *to = b->x + j * b->Dp;
        for (int64_t c = 0; c < b->D; c += 16) {
            unsigned char tail[64] = {0};
            __m256 x[2];
            if (c * size % 64 == 0)
                _mm_prefetch(q + c * size, _MM_HINT_T0);
            if (c + 16 > b->D)
                memcpy(tail, p + c * size, (size_t)((b->D - c) * size));
            widen(x, c + 16 > b->D ? tail : p + c * size, t);
            _mm256_store_ps(to + c, x[0]);
            _mm256_store_ps(to + c + 8, x[1]);
        }
    }
}

static void load(const struct ek_attn_block *b, const unsigned char *const strips[],
                 const unsigned char *const next[])
{
    if (b->t == EK_DTYPE_F32)
        load_as(b, strips, next, EK_DTYPE_F32);
    else if (b->t == EK_DTYPE_BF16)
        load_as(b, strips, next, EK_DTYPE_BF16);
    else
        load_as(b, strips, next, EK_DTYPE_E4M3);
}

static void keys(const struct ek_attn_block *b)
{
    load(b, b->k, b->next_k);
}

static void values(const struct ek_attn_block *b)
{
    load(b, b->v, b->next_v);
}

static void query(const struct ek_attn_block *b, int64_t r, const float *q)
{
    float *row = b->q + r * EK_ATTN_Q * b->Dp;
    for (int64_t c = 0; c < b->Dp; c += 8) {
        __m256 x = load_first(q + c, b->D - c);
        if (b->t == EK_DTYPE_E4M3)
            x = ps_of_bf16(bf16_of_ps(x));
        _mm256_store_ps(row + c, x);
    }
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

/* p[j] = q . x[j] for tokens [j0,j1) and their neighbours up to multiples of 8. */
static void multiply_keys(const struct ek_attn_block *b, const struct ek_attn_rows *g,
                          int64_t r)
{
    const float *q = b->q + r * EK_ATTN_Q * b->Dp;
    for (int64_t j = g->j0 / 8 * 8; j < g->j1; j += 8) {
        __m256 dot[8];
        for (int i = 0; i < 8; i++)
            dot[i] = _mm256_setzero_ps();
        for (int64_t c = 0; c < b->D; c += 8) {
            __m256 x = _mm256_load_ps(q + c);
            const float *k = b->x + j * b->Dp + c;
            for (int i = 0; i < 8; i++)
                dot[i] = _mm256_fmadd_ps(x, _mm256_load_ps(k + i * b->Dp), dot[i]);
        }
        _mm256_store_ps(b->p + r * EK_ATTN_BLOCK + j, sums_of_8(dot));
    }
}

/* The weights of a row from its dot products. */
static void softmax(const struct ek_attn_block *b, const struct ek_attn_rows *g,
                    int64_t r)
{
    const float unit = b->t == EK_DTYPE_E4M3 ? E4M3_UNIT : 1.0f;
    const __m256 scale = _mm256_set1_ps(b->scale * unit);
    const __m256 cap = _mm256_set1_ps(b->softcap);
    const int64_t first = g->j0 / 8 * 8;
    float *p = b->p + r * EK_ATTN_BLOCK;
    __m256 top = _mm256_set1_ps(b->m[r]), sum = _mm256_setzero_ps();
    for (int64_t j = first; j < g->j1; j += 8) {
        __m256 x = _mm256_mul_ps(_mm256_load_ps(p + j), scale);
        if (b->softcap > 0)
            x = _mm256_mul_ps(cap, tanh_ps(_mm256_div_ps(x, cap)));
        _mm256_store_ps(p + j, x);
        top = _mm256_blendv_ps(top, _mm256_max_ps(x, top), lanes_of(j, g->j0, g->j1));
    }
    const float m = max_of_lanes(top);
    const __m256 vm = _mm256_set1_ps(m);
    const __m256 old = exp_ps(_mm256_sub_ps(_mm256_set1_ps(b->m[r]), vm));
    for (int64_t j = first; j < g->j1; j += 8) {
        __m256 e = exp_ps(_mm256_sub_ps(_mm256_load_ps(p + j), vm));
        e = _mm256_and_ps(e, lanes_of(j, g->j0, g->j1));
        sum = _mm256_add_ps(sum, e);
        _mm256_store_ps(p + j, e);
    }
    b->m[r] = m;
    b->old[r] = _mm256_cvtss_f32(old);
    float *l = b->l + r * EK_ATTN_LANES;
    _mm256_store_ps(l, _mm256_fmadd_ps(_mm256_load_ps(l), old, sum));
}

static void score(const struct ek_attn_block *b, const struct ek_attn_rows *g)
{
    for (int64_t r = g->r; r < g->r + g->R; r++) {
        multiply_keys(b, g, r);
        softmax(b, g, r);
    }
}

static void value(const struct ek_attn_block *b, const struct ek_attn_rows *g)
{
    for (int64_t r = g->r; r < g->r + g->R; r++) {
        float *acc = b->acc + r * b->Dp;
        const float *p = b->p + r * EK_ATTN_BLOCK;
        const __m256 old = _mm256_set1_ps(b->old[r]);
        int64_t c = 0;
        for (; c + 64 <= b->D; c += 64)
            add_values(acc + c, old, p, b->x + c, g->j0, g->j1, b->Dp, 8);
        for (; c < b->D; c += 16)
            add_values(acc + c, old, p, b->x + c, g->j0, g->j1, b->Dp, 2);
    }
}

static float total(const float *l)
{
    return sum_of_lanes(_mm256_load_ps(l));
}

static void merge(float *sum, const float *acc, float m, float l, int64_t Dp)
{
    float top = sum[0] > m ? sum[0] : m;
    float scales[8] = {sum[0] - top, m - top};
    _mm256_storeu_ps(scales, exp_ps(_mm256_loadu_ps(scales)));
    const __m256 old = _mm256_set1_ps(scales[0]), new = _mm256_set1_ps(scales[1]);
    for (int64_t c = 0; c < Dp; c += 8) {
        float *to = sum + EK_ATTN_HEAD + c;
        __m256 x = _mm256_mul_ps(_mm256_load_ps(to), old);
        _mm256_store_ps(to, _mm256_fmadd_ps(_mm256_load_ps(acc + c), new, x));
    }
    sum[0] = top;
    sum[1] = sum[1] * scales[0] + l * scales[1];
}

static void finish(float *out, const float *acc, int64_t D, enum ek_dtype t,
                   float factor)
{
    const __m256 f = _mm256_set1_ps(t == EK_DTYPE_E4M3 ? factor * E4M3_UNIT : factor);
    for (int64_t c = 0; c < D; c += 8)
        store_first(out + c, D - c, _mm256_mul_ps(_mm256_load_ps(acc + c), f));
}

static const struct ek_attn_steps steps = {.query = query,
                                           .keys = keys,
                                           .score = score,
                                           .values = values,
                                           .value = value,
                                           .total = total,
                                           .merge = merge,
                                           .finish = finish};

void ek_avx2_attn(const struct ek_attn_args *a, int64_t i0, int64_t i1, int64_t step,
                  void *scratch)
{
    ek_attn_run(a, i0, i1, step, scratch, &steps);
}

void ek_avx2_attn_merge(const struct ek_attn_args *a, int64_t t0, int64_t t1,
                        void *scratch)
{
    ek_attn_join(a, t0, t1, scratch, &steps);
}
