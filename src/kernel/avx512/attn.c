/* attn.c - scores, weights and sums of a block of attention (attn_int.h), over keys and
 * values in the form of attn_form.c.
 *
 * The forms of a row:
 *   q  as the keys: [unit][4 or 8][4 quarters] of a column or a pair of columns, four
 *      times; bf16 so twice, the high terms and then the low ones, q = high + low to
 *      2^-17
 *   p  f32: [64] f32;  bf16: [64] bf16 high, [64] low;  e4m3: [64] bf16
 *   m  in units of log2: scores times log2 e, so that p = 2^(s - m)
 *   l  16 sums, of the lanes
 * vdpbf16ps then takes two columns or two tokens at once and sums in f32. With bf16
 * keys and values the second term costs what f32 would, and keeps f32's accuracy; with
 * e4m3 one term is far finer than what is stored.
 *
 * A row's sums run in the order of its columns and its tokens, whatever rows are beside
 * it. */
#include "kernel/avx512/attn_simd.h"
#include "kernel/avx512/attn_softmax.h"
#include "kernel/avx512/avx512.h"

/* Four of each dword of x: [4][4 quarters][4 times] from [4 quarters][4]. */
EK_INLINE void store_quarters(float *to, __m512 x)
{
    _mm512_store_ps(to, _mm512_permute_ps(x, 0x00));
    _mm512_store_ps(to + 16, _mm512_permute_ps(x, 0x55));
    _mm512_store_ps(to + 32, _mm512_permute_ps(x, 0xaa));
    _mm512_store_ps(to + 48, _mm512_permute_ps(x, 0xff));
}

/* Two vectors of 16 bf16 as one. */
EK_INLINE __m512i join_halves(__m256i a, __m256i b)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}

static void query(const struct ek_attn_block *b, int64_t r, const float *q)
{
    float *to = b->q + r * EK_ATTN_Q * b->Dp;
    for (int64_t c = 0; c < b->Dp; c += 32) {
        __m512 x0 = _mm512_maskz_loadu_ps(first_lanes(b->D - c), q + c);
        __m512 x1 = _mm512_maskz_loadu_ps(first_lanes(b->D - c - 16), q + c + 16);
        if (b->t == EK_DTYPE_F32) {
            store_quarters(to + 4 * c, x0);
            store_quarters(to + 4 * c + 64, x1);
            continue;
        }
        __m256i low0, low1, high0 = split_bf16(&low0, x0),
                            high1 = split_bf16(&low1, x1);
        __m512 high = _mm512_castsi512_ps(join_halves(high0, high1));
        if (b->t == EK_DTYPE_BF16) {
            store_quarters(to + 2 * c, high);
            store_quarters(to + 2 * c + 2 * b->Dp,
                           _mm512_castsi512_ps(join_halves(low0, low1)));
            continue;
        }
        /* 16 columns are a quarter: 32 bytes, of which each vector takes a dword */
        for (int i = 0; i < 16; i++) {
            float *lane =
                to + 2 * (c / 64 * 64) + i % 8 * 16 + (c % 64 / 16 + i / 8) * 4;
            __m512 one = _mm512_permutexvar_ps(_mm512_set1_epi32(i), high);
            _mm_store_ps(lane, _mm512_castps512_ps128(one));
        }
    }
}

/* s[r] = q . k of the 16 tokens of a strip. */
EK_INLINE void multiply_keys(__m512 s[][EK_ATTN_STRIPS], const struct ek_attn_block *b,
                             int64_t r0, int strip, const enum ek_dtype t, const int R)
{
    const int64_t n = units_of(b->D, t) * vectors_of(t), row = EK_ATTN_Q * b->Dp;
    __m512 sum[EK_ATTN_GROUP][4];
    for (int r = 0; r < R; r++)
        for (int i = 0; i < 4; i++)
            sum[r][i] = _mm512_setzero_ps();
    for (int64_t c = 0; c < n; c++) {
        const float *x = b->x + (c * 16 + strip * 4) * 16;
        const float *q = b->q + r0 * row + c * 16;
        __m512 k[4];
        for (int i = 0; i < 4; i++)
            k[i] = _mm512_load_ps(x + 16 * i);
        for (int r = 0; r < R; r++)
            for (int i = 0; i < 4; i++)
                sum[r][i] = add_key(sum[r][i], q + r * row, 2 * b->Dp, k[i], t);
    }
    for (int r = 0; r < R; r++)
        s[r][strip] = sum_columns(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
}

EK_INLINE void score_as(const struct ek_attn_block *b, const struct ek_attn_rows *g,
                        const enum ek_dtype t, const int R)
{
    __m512 s[EK_ATTN_GROUP][EK_ATTN_STRIPS];
    for (int i = 0; i < EK_ATTN_STRIPS; i++) {
        if (is_seen(g, i))
            multiply_keys(s, b, g->r, i, t, R);
        else
            for (int r = 0; r < R; r++)
                s[r][i] = _mm512_setzero_ps();
    }
    softmax(b, g, s, t, R);
}

/* a[r][i] += p v of a token (f32) or of a pair, whose lanes `part` keeps. */
EK_INLINE void add_values(__m512 a[][4], const struct ek_attn_block *b, int64_t r0,
                          int64_t at, int64_t c, const int part, const enum ek_dtype t,
                          const int R)
{
    const float *x = b->x + at * b->Dp + c, *p = b->p + r0 * EK_ATTN_BLOCK + at;
    __m512 v[4];
    for (int i = 0; i < 4; i++)
        v[i] = _mm512_load_ps(x + 16 * i);
    for (int i = 0; part != -1 && i < 4; i++)
        v[i] = _mm512_and_ps(v[i], _mm512_castsi512_ps(_mm512_set1_epi32(part)));
    for (int r = 0; r < R; r++)
        for (int i = 0; i < 4; i++)
            a[r][i] = add_value(a[r][i], p + r * EK_ATTN_BLOCK, v[i], t);
}

#define EVEN 0xffff
#define ODD  ((int)0xffff0000u)

EK_INLINE void value_as(const struct ek_attn_block *b, const struct ek_attn_rows *g,
                        const enum ek_dtype t, const int R)
{
    const int n = t == EK_DTYPE_F32 ? 1 : 2; /* tokens of a step */
    for (int64_t c = 0; c < b->D; c += EK_ATTN_COLS) {
        __m512 a[EK_ATTN_GROUP][4];
        begin_sums(a, b, g->r, c, R);
        /* A token outside that shares its pair is cleared: it may be NaN. */
        if (g->j0 % n)
            add_values(a, b, g->r, g->j0 / n, c, ODD, t, R);
        for (int64_t at = (g->j0 + n - 1) / n; at < g->j1 / n; at++)
            add_values(a, b, g->r, at, c, -1, t, R);
        if (g->j1 % n)
            add_values(a, b, g->r, g->j1 / n, c, EVEN, t, R);
        end_sums(b, a, g->r, c, R);
    }
}

static void score(const struct ek_attn_block *b, const struct ek_attn_rows *g)
{
    BY_TYPE_AND_ROWS(score_as);
}

static void value(const struct ek_attn_block *b, const struct ek_attn_rows *g)
{
    BY_TYPE_AND_ROWS(value_as);
}

static float total(const float *l)
{
    return _mm512_reduce_add_ps(_mm512_load_ps(l));
}

static void merge(float *sum, const float *acc, float m, float l, int64_t Dp)
{
    float top = sum[0] > m ? sum[0] : m;
    float scales[16] = {sum[0] - top, m - top};
    _mm512_storeu_ps(scales, exp2_ps(_mm512_loadu_ps(scales), 6));
    const __m512 old = _mm512_set1_ps(scales[0]), new = _mm512_set1_ps(scales[1]);
    for (int64_t c = 0; c < Dp; c += 16) {
        float *to = sum + EK_ATTN_HEAD + c;
        __m512 x = _mm512_mul_ps(_mm512_load_ps(to), old);
        _mm512_store_ps(to, _mm512_fmadd_ps(_mm512_load_ps(acc + c), new, x));
    }
    sum[0] = top;
    sum[1] = sum[1] * scales[0] + l * scales[1];
}

/* Vector i of the sums of 64 columns holds, in its lane of 128 bits l, the four columns
 * from where unpacking has put them. */
EK_INLINE int64_t column_of(int i, int l, const enum ek_dtype t)
{
    if (t == EK_DTYPE_F32)
        return 16 * i + 4 * l;
    return t == EK_DTYPE_BF16 ? i / 2 * 32 + 8 * l + i % 2 * 4 : 16 * l + 4 * i;
}

static void finish(float *out, const float *acc, int64_t D, enum ek_dtype t,
                   float factor)
{
    const __m128 f = _mm_set1_ps(factor);
    for (int64_t c = 0; c < D; c += EK_ATTN_COLS)
        for (int at = 0; at < 16; at++) {
            int64_t col = c + column_of(at / 4, at % 4, t), left = D - col;
            __mmask8 lanes = (__mmask8)(left >= 4  ? 15
                                        : left > 0 ? (1 << left) - 1
                                                   : 0);
            _mm_mask_storeu_ps(out + col, lanes,
                               _mm_mul_ps(_mm_load_ps(acc + c + 4 * at), f));
        }
}

static const struct ek_attn_steps steps = {.query = query,
                                           .keys = ek_avx512_attn_keys,
                                           .score = score,
                                           .values = ek_avx512_attn_values,
                                           .value = value,
                                           .score_once = ek_avx512_attn_score_once,
                                           .value_once = ek_avx512_attn_value_once,
                                           .total = total,
                                           .merge = merge,
                                           .finish = finish};

void ek_avx512_attn(const struct ek_attn_args *a, int64_t i0, int64_t i1, int64_t step,
                    void *scratch)
{
    ek_attn_run(a, i0, i1, step, scratch, &steps);
}

void ek_avx512_attn_merge(const struct ek_attn_args *a, int64_t t0, int64_t t1,
                          void *scratch)
{
    ek_attn_join(a, t0, t1, scratch, &steps);
}
