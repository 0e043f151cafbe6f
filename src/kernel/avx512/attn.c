/* attn.c - attention of up to four rows over a page as it lies (attn_int.h).
 *
 * Keys and values are widened to f32 in registers, 64 columns at a time, once for all
 * rows of the group, and multiplied in f32: exact, and as fast as vdpbf16ps on a query
 * split in two bf16 terms, which takes as many instructions.
 *
 * A row's sums run in the order of its columns' lanes and its tokens, whatever the type
 * of the page and the rows beside it. */
#include "kernel/attn_int.h"
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/simd.h"
#include "kernel/e4m3_table.h"

#include <math.h>

#define W 64 /* columns of a step */

struct table {
    __m512i hi0, hi1, lo0, lo1;
    __m512i order; /* so that unpacking and splitting leave columns in order */
};

/* Where widen wants columns of bf16: i and 16+i beside each other. */
static const uint16_t order_bf16[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                        21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                        11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
/* And of e4m3: in each 128 bits four of columns 0.. and 16.. by turns, then four of
 * 32.. and 48..; unpacking takes the halves apart. */
#define E4M3_4(i) (i), 16 + (i), 1 + (i), 17 + (i), 2 + (i), 18 + (i), 3 + (i), 19 + (i)
static const uint8_t order_e4m3[64] = {E4M3_4(0), E4M3_4(32), E4M3_4(4),  E4M3_4(36),
                                       E4M3_4(8), E4M3_4(40), E4M3_4(12), E4M3_4(44)};

EK_INLINE struct table table_of(enum ek_dtype t)
{
    struct table e = {0};
    if (t == EK_DTYPE_BF16)
        e.order = _mm512_loadu_si512(order_bf16);
    if (t == EK_DTYPE_E4M3)
        e = (struct table){
            _mm512_loadu_si512(ek_e4m3_hi), _mm512_loadu_si512(ek_e4m3_hi + 64),
            _mm512_loadu_si512(ek_e4m3_lo), _mm512_loadu_si512(ek_e4m3_lo + 64),
            _mm512_loadu_si512(order_e4m3)};
    return e;
}

/* Pairs of bf16 to the even and to the odd ones. */
EK_INLINE void split_pairs(__m512 x[2], __m512i pairs)
{
    x[0] = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    x[1] = _mm512_castsi512_ps(
        _mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000u)));
}

/* x = 64 columns from p, those outside `cols` zero and not read. */
EK_INLINE void widen(__m512 x[4], const unsigned char *p, uint64_t cols,
                     const enum ek_dtype t, const struct table *e)
{
    if (t == EK_DTYPE_F32) {
        for (int i = 0; i < 4; i++)
            x[i] = _mm512_maskz_loadu_ps((__mmask16)(cols >> 16 * i), p + 64 * i);
    } else if (t == EK_DTYPE_BF16) {
        __m512i lo = _mm512_maskz_loadu_epi16((__mmask32)cols, p);
        __m512i hi = _mm512_maskz_loadu_epi16((__mmask32)(cols >> 32), p + 64);
        split_pairs(x, _mm512_permutexvar_epi16(e->order, lo));
        split_pairs(x + 2, _mm512_permutexvar_epi16(e->order, hi));
    } else {
        __m512i c = _mm512_permutexvar_epi8(e->order, _mm512_maskz_loadu_epi8(cols, p));
        __m512i lo = _mm512_permutex2var_epi8(e->lo0, c, e->lo1);
        __m512i hi = _mm512_permutex2var_epi8(e->hi0, c, e->hi1);
        /* hi | (c & 0x80) */
        hi = _mm512_ternarylogic_epi32(hi, c, _mm512_set1_epi8((char)0x80), 0xf8);
        split_pairs(x, _mm512_unpacklo_epi8(lo, hi));
        split_pairs(x + 2, _mm512_unpackhi_epi8(lo, hi));
    }
}

static uint64_t first_columns(int64_t n)
{
    return n >= 64 ? ~0ull : (1ull << n) - 1;
}

EK_INLINE void load_as(float *dst, const unsigned char *p, const enum ek_dtype t,
                       int64_t n, int64_t D, int64_t Dp)
{
    const struct table e = table_of(t);
    const int64_t size = t == EK_DTYPE_F32 ? 4 : t == EK_DTYPE_BF16 ? 2 : 1;
    for (int64_t j = 0; j < n; j++)
        for (int64_t c = 0; c < Dp; c += W) {
            __m512 x[4];
            widen(x, p + (j * D + c) * size, first_columns(D - c), t, &e);
            for (int i = 0; i < 4; i++)
                _mm512_store_ps(dst + j * Dp + c + 16 * i, x[i]);
        }
}

static void load(float *dst, const void *src, enum ek_dtype t, int64_t n, int64_t D,
                 int64_t Dp)
{
    if (t == EK_DTYPE_F32)
        load_as(dst, src, EK_DTYPE_F32, n, D, Dp);
    else if (t == EK_DTYPE_BF16)
        load_as(dst, src, EK_DTYPE_BF16, n, D, Dp);
    else
        load_as(dst, src, EK_DTYPE_E4M3, n, D, Dp);
}

/* Prefetches the `size` cache lines of 64 columns. */
EK_INLINE void prefetch(const unsigned char *p, const int64_t size)
{
    for (int64_t i = 0; i < size; i++)
        _mm_prefetch((const char *)p + 64 * i, _MM_HINT_T1);
}

/* Keys outside [j0,j1) are not read: the nearest stands in for them. */
EK_INLINE int64_t near(const struct ek_attn_group *g, int64_t j)
{
    return j < g->j0 ? g->j0 : j < g->j1 ? j : g->j1 - 1;
}

/* dot[r] += q[r] . k[key] over columns [c,c+64), lane by lane. */
EK_INLINE void add_key(__m512 dot[], const struct ek_attn_group *g, int64_t key,
                       int64_t c, const struct table *e, const enum ek_dtype t,
                       const int R)
{
    const int64_t size = t == EK_DTYPE_F32 ? 4 : t == EK_DTYPE_BF16 ? 2 : 1;
    __m512 x[4];
    widen(x, g->k + (key * g->D + c) * size, first_columns(g->D - c), t, e);
    if (t != EK_DTYPE_F32)
        prefetch(g->next_k + (key * g->D + c) * size, size);
    for (int v = 0; v < 4; v++)
        for (int r = 0; r < R; r++)
            dot[r] = _mm512_fmadd_ps(
                x[v], _mm512_load_ps(g->q + r * g->Dp + c + 16 * v), dot[r]);
}

/* In each 128-bit lane of part[r]: four numbers, of keys j to j+3, to be summed over
 * the lanes to q[r] . k. */
EK_INLINE void four_keys(__m512 part[], const struct ek_attn_group *g, int64_t j,
                         const struct table *e, const enum ek_dtype t, const int R)
{
    __m512 dot[4][EK_ATTN_GROUP];
    for (int i = 0; i < 4; i++)
        for (int r = 0; r < R; r++)
            dot[i][r] = _mm512_setzero_ps();
    const int64_t k0 = near(g, j), k1 = near(g, j + 1), k2 = near(g, j + 2),
                  k3 = near(g, j + 3);
    for (int64_t c = 0; c < g->Dp; c += W) {
        add_key(dot[0], g, k0, c, e, t, R); /* written out: dot stays in registers */
        add_key(dot[1], g, k1, c, e, t, R);
        add_key(dot[2], g, k2, c, e, t, R);
        add_key(dot[3], g, k3, c, e, t, R);
    }
    for (int r = 0; r < R; r++) {
        __m512 a = _mm512_add_ps(_mm512_unpacklo_ps(dot[0][r], dot[1][r]),
                                 _mm512_unpackhi_ps(dot[0][r], dot[1][r]));
        __m512 b = _mm512_add_ps(_mm512_unpacklo_ps(dot[2][r], dot[3][r]),
                                 _mm512_unpackhi_ps(dot[2][r], dot[3][r]));
        __m512d u = _mm512_castps_pd(a), v = _mm512_castps_pd(b);
        part[r] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(u, v)),
                                _mm512_castpd_ps(_mm512_unpackhi_pd(u, v)));
    }
}

/* s[r][j] = q[r] . k[j]; what lies outside [j0,j1) has no meaning. */
EK_INLINE void scores(const struct ek_attn_group *g, const enum ek_dtype t, const int R)
{
    const struct table e = table_of(t);
    for (int64_t j = g->j0 / 16 * 16; j < g->j1; j += 16) {
        __m512 c[4][EK_ATTN_GROUP];
        for (int i = 0; i < 4; i++) {
            if (j + 4 * i < g->j1 && j + 4 * i + 4 > g->j0)
                four_keys(c[i], g, j + 4 * i, &e, t, R);
            else
                for (int r = 0; r < R; r++)
                    c[i][r] = _mm512_setzero_ps();
        }
        for (int r = 0; r < R; r++) {
            __m512 a = _mm512_add_ps(_mm512_shuffle_f32x4(c[0][r], c[1][r], 0x88),
                                     _mm512_shuffle_f32x4(c[0][r], c[1][r], 0xdd));
            __m512 b = _mm512_add_ps(_mm512_shuffle_f32x4(c[2][r], c[3][r], 0x88),
                                     _mm512_shuffle_f32x4(c[2][r], c[3][r], 0xdd));
            _mm512_store_ps(g->s + r * g->Pp + j,
                            _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88),
                                          _mm512_shuffle_f32x4(a, b, 0xdd)));
        }
    }
}

EK_INLINE __mmask16 lanes_of(int64_t j, int64_t j0, int64_t j1)
{
    return (__mmask16)(first_lanes(j1 - j) & ~first_lanes(j0 - j));
}

/* s to p = exp(s - m) with the rows' new m, l brought up to date; old[r] = what the
 * sums up to now are to be multiplied by. */
EK_INLINE void softmax(const struct ek_attn_group *g, float old[16], const int R)
{
    const __m512 vscale = _mm512_set1_ps(g->scale), cap = _mm512_set1_ps(g->softcap);
    const int64_t j0 = g->j0 / 16 * 16;
    float m[16] = {0}; /* of rows behind R: any finite value */
    __m512 top[EK_ATTN_GROUP];
    for (int r = 0; r < R; r++)
        top[r] = _mm512_set1_ps(g->m[r]);
    for (int64_t j = j0; j < g->j1; j += 16)
        for (int r = 0; r < R; r++) {
            __m512 x = _mm512_mul_ps(_mm512_load_ps(g->s + r * g->Pp + j), vscale);
            if (g->softcap > 0)
                x = _mm512_mul_ps(cap, tanh_ps(_mm512_div_ps(x, cap)));
            _mm512_store_ps(g->s + r * g->Pp + j, x);
            top[r] = _mm512_mask_max_ps(top[r], lanes_of(j, g->j0, g->j1), x, top[r]);
        }
    for (int r = 0; r < R; r++)
        m[r] = _mm512_reduce_max_ps(top[r]);
    const __mmask16 rows = first_lanes(R);
    __m512 before = _mm512_maskz_loadu_ps(rows, g->m), now = _mm512_loadu_ps(m);
    _mm512_storeu_ps(old, exp_ps(_mm512_sub_ps(before, now)));
    _mm512_mask_storeu_ps(g->m, rows, now);
    for (int r = 0; r < R; r++) {
        __m512 sum = _mm512_setzero_ps();
        for (int64_t j = j0; j < g->j1; j += 16) {
            __m512 x = _mm512_load_ps(g->s + r * g->Pp + j);
            x = _mm512_maskz_mov_ps(lanes_of(j, g->j0, g->j1),
                                    exp_ps(_mm512_sub_ps(x, _mm512_set1_ps(m[r]))));
            sum = _mm512_add_ps(sum, x);
            _mm512_store_ps(g->s + r * g->Pp + j, x);
        }
        g->l[r] = g->l[r] * old[r] + _mm512_reduce_add_ps(sum);
    }
}

/* acc[r] = acc[r] * old[r] + sum_j p[r][j] v[j], j ascending in [j0,j1). */
EK_INLINE void values(const struct ek_attn_group *g, const float old[16],
                      const enum ek_dtype t, const int R)
{
    const struct table e = table_of(t);
    const int64_t size = t == EK_DTYPE_F32 ? 4 : t == EK_DTYPE_BF16 ? 2 : 1;
    for (int64_t c = 0; c < g->Dp; c += W) {
        const uint64_t cols = first_columns(g->D - c);
        __m512 a[EK_ATTN_GROUP][4];
        for (int r = 0; r < R; r++)
            for (int i = 0; i < 4; i++)
                a[r][i] = _mm512_mul_ps(_mm512_load_ps(g->acc + r * g->Dp + c + 16 * i),
                                        _mm512_set1_ps(old[r]));
        for (int64_t j = g->j0; j < g->j1; j++) {
            __m512 x[4];
            widen(x, g->v + (j * g->D + c) * size, cols, t, &e);
            if (t != EK_DTYPE_F32)
                prefetch(g->next_v + (j * g->D + c) * size, size);
            for (int r = 0; r < R; r++) {
                __m512 w = _mm512_set1_ps(g->s[r * g->Pp + j]);
                for (int i = 0; i < 4; i++)
                    a[r][i] = _mm512_fmadd_ps(w, x[i], a[r][i]);
            }
        }
        for (int r = 0; r < R; r++)
            for (int i = 0; i < 4; i++)
                _mm512_store_ps(g->acc + r * g->Dp + c + 16 * i, a[r][i]);
    }
}

EK_INLINE void visit(const struct ek_attn_group *g, const enum ek_dtype t, const int R)
{
    float old[16];
    scores(g, t, R);
    softmax(g, old, R);
    values(g, old, t, R);
}

EK_INLINE void visit_rows(const struct ek_attn_group *g, const enum ek_dtype t)
{
    switch (g->R) {
    case 1:
        visit(g, t, 1);
        break;
    case 2:
        visit(g, t, 2);
        break;
    case 3:
        visit(g, t, 3);
        break;
    default:
        visit(g, t, 4);
        break;
    }
}

static void group(const struct ek_attn_group *g)
{
    if (g->t == EK_DTYPE_F32)
        visit_rows(g, EK_DTYPE_F32);
    else if (g->t == EK_DTYPE_BF16)
        visit_rows(g, EK_DTYPE_BF16);
    else
        visit_rows(g, EK_DTYPE_E4M3);
}

void ek_avx512_attn(float *out, int64_t ldo, const float *q, int64_t ldq,
                    const void *k_pool, const void *v_pool,
                    const struct ek_attn_dims *d, const struct ek_attn_seq *seqs,
                    int64_t n_seqs, int64_t i0, int64_t i1, void *scratch)
{
    static const struct ek_attn_steps steps = {.pad = W, .load = load, .group = group};
    struct ek_attn_args a = {out, q, k_pool, v_pool, d, seqs, ldo, ldq, n_seqs};
    ek_attn_run(&a, i0, i1, scratch, &steps);
}
