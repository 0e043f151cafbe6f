/* jagged_block.c - softmax in blocks of 64 with products in bf16 (jagged_rows.h): each
 * block is seen once, so nothing is carried from key block to key block, and four queries'
 * scores become weights without leaving the registers. No sums in memory, nothing turned
 * back.
 */
#include "kernel/avx512/jagged_phi.h"
#include "kernel/avx512/jagged_rows.h"

#include <math.h>

#define LN2 0.693147180559945f

bool ek_avx512_jagged_is_block(const struct ek_jagged_args *a,
                               const struct ek_jagged_seq *s)
{
    const struct ek_jagged_dims *d = a->d;
    const struct ek_jagged_mask *m = &d->mask;
    return d->score == EK_JAGGED_SOFTMAX && d->products == EK_DTYPE_BF16 &&
           m->block == LANES && !m->is_causal && m->window <= 0 && !a->bias &&
           !d->is_broadcast_q && d->H == d->K && d->D % 32 == 0 && s->Lq == s->Lk;
}

/* Keys are needed whole when their block begins, queries a group at a time; outputs when
 * they are written. All are asked for a few at a time, so that none waits in a queue. */
static void fetch_keys(const struct block *b, int64_t i, int64_t n)
{
    const struct ek_jagged_args *a = b->a;
    fetch(b, a->k, a->ldk, b->s.k0, i, n);
    fetch(b, a->v, a->ldv, b->s.k0, i, n);
}

static void fetch_queries(const struct block *b, int64_t i, int64_t n)
{
    const struct ek_jagged_args *a = b->a;
    fetch(b, a->q, a->ldq, b->s.q0, i, n);
    fetch(b, a->o, a->ldo, b->s.o0, i, n);
    if (!b->is_backward)
        return;
    fetch(b, a->d_o, a->ldo, b->s.o0, i, n);
    fetch(b, a->dq, a->ldq, b->s.q0, i, n);
}

/* What stands AHEAD of the group of queries at r, and the next block's keys. */
static void fetch_ahead(const struct block *b, int r)
{
    fetch_queries(b, b->i + r + AHEAD, GROUP);
    fetch_keys(b, b->i + LANES + r, GROUP);
    if (!b->is_backward)
        return;
    fetch(b, b->a->dk, b->a->ldk, b->s.k0, b->i + r, GROUP);
    fetch(b, b->a->dv, b->a->ldv, b->s.k0, b->i + r, GROUP);
}

/* --- forward --- */

/* Scores to weights, in units of log2; their largest and their sum. */
EK_INLINE void soften(__m512 s[GROUP][4], float top[GROUP], float l[GROUP],
                      __m512 factor, __mmask16 last, const int NV)
{
    const __m512 none = _mm512_set1_ps(-INFINITY);
    EK_UNROLL
    for (int i = 0; i < GROUP; i++) {
        __m512 t = none, sum = _mm512_setzero_ps();
        EK_UNROLL
        for (int v = 0; v < NV; v++) {
            s[i][v] = _mm512_mul_ps(factor, s[i][v]);
            if (v == NV - 1)
                s[i][v] = _mm512_mask_mov_ps(none, last, s[i][v]);
            t = _mm512_max_ps(t, s[i][v]);
        }
        top[i] = _mm512_reduce_max_ps(t);
        t = _mm512_set1_ps(top[i]);
        EK_UNROLL
        for (int v = 0; v < NV; v++) {
            s[i][v] = exp2_short(_mm512_sub_ps(s[i][v], t));
            sum = _mm512_add_ps(sum, s[i][v]);
        }
        l[i] = _mm512_reduce_add_ps(sum);
    }
}

EK_INLINE void forward_rows(const struct block *b, const int NV)
{
    const struct ek_jagged_args *a = b->a;
    const struct ek_jagged_rows q = rows_of(b, a->q, a->ldq, b->q0, b->h);
    struct ek_jagged_rows o = rows_of(b, a->o, a->ldo, b->o0, b->h);
    const __m512 factor = _mm512_set1_ps(a->d->alpha * LOG2E);
    o.to = (char *)a->o + ((const char *)o.x - (const char *)a->o);
    for (int r = 0; r < b->n; r += GROUP) {
        __m512 s[GROUP][4];
        float top[GROUP], l[GROUP];
        const char *line[GROUP];
        fetch_ahead(b, r);
        lines_of(line, b, &q, b->q_packed, r);
        multiply(s, line, 4, b->k_turned, LANES, b->D / 2, NV);
        soften(s, top, l, factor, b->last, NV);
        keep_rows(b->weights, s, NV);
        EK_UNROLL
        for (int i = 0; i < GROUP; i++)
            line[i] = (const char *)(b->weights + i * LANES / 2);
        for (int i = 0; a->lse && i < GROUP && r + i < b->n; i++)
            a->lse[(b->o0 + r + i) * a->d->H + b->h] = top[i] * LN2 + logf(l[i]);
        EK_UNROLL
        for (int i = 0; i < GROUP; i++)
            l[i] = 1 / l[i];
        product(b, &o, r, line, 4, b->v_pairs, 8 * NV, l);
    }
}

static void forward(struct block *b)
{
    const struct ek_jagged_args *a = b->a;
    const struct ek_jagged_rows k = rows_of(b, a->k, a->ldk, b->k0, b->h);
    const struct ek_jagged_rows v = rows_of(b, a->v, a->ldv, b->k0, b->h);
    const struct ek_jagged_rows q = rows_of(b, a->q, a->ldq, b->q0, b->h);
    ek_avx512_jagged_pack_turned(b->k_turned, &k, true);
    ek_avx512_jagged_pack_pairs(b->v_pairs, &v, true);
    if (b->dtype == EK_DTYPE_F32)
        ek_avx512_jagged_pack_rows(b->q_packed, &q, true);
    switch ((b->n + 15) / 16) {
    case 1:
        forward_rows(b, 1);
        break;
    case 2:
        forward_rows(b, 2);
        break;
    case 3:
        forward_rows(b, 3);
        break;
    default:
        forward_rows(b, 4);
        break;
    }
}

/* --- backward --- */

/* P of four queries from their scores, dx from P and dP. */
EK_INLINE void weigh(const struct block *b, int r, __m512 s[GROUP][4], __m512 factor,
                     const int NV)
{
    EK_UNROLL
    for (int i = 0; i < GROUP; i++) {
        const __m512 lse = _mm512_set1_ps(b->lse[r + i]);
        EK_UNROLL
        for (int v = 0; v < NV; v++) {
            s[i][v] = exp2_short(_mm512_fmsub_ps(s[i][v], factor, lse));
            if (v == NV - 1)
                s[i][v] = _mm512_maskz_mov_ps(b->last, s[i][v]);
            _mm512_store_ps(b->weights + i * LANES + 16 * v, s[i][v]);
        }
    }
}

EK_INLINE void slope(const struct block *b, int r, __m512 dp[GROUP][4], const int NV)
{
    EK_UNROLL
    for (int i = 0; i < GROUP; i++) {
        const __m512 delta = _mm512_set1_ps(b->delta[r + i]);
        EK_UNROLL
        for (int v = 0; v < NV; v++)
            dp[i][v] = _mm512_mul_ps(_mm512_load_ps(b->weights + i * LANES + 16 * v),
                                     _mm512_sub_ps(dp[i][v], delta));
    }
}

/* What backward needs of four queries beside their rows. */
static void take_queries(struct block *b, const struct ek_jagged_rows *q,
                         const struct ek_jagged_rows *g, int r)
{
    const struct ek_jagged_args *a = b->a;
    const struct ek_jagged_rows q4 = some_of(q, r), g4 = some_of(g, r);
    const struct ek_jagged_rows o = rows_of(b, a->o, a->ldo, b->o0, b->h);
    const struct ek_jagged_rows o4 = some_of(&o, r);
    ek_avx512_jagged_pack_pairs(b->q_pairs + r / 2 * b->D, &q4, true);
    ek_avx512_jagged_pack_pairs(b->d_pairs + r / 2 * b->D, &g4, true);
    ek_avx512_jagged_delta(b->delta + r, &g4, o4.x, true);
    if (b->dtype == EK_DTYPE_F32) {
        ek_avx512_jagged_pack_rows(b->q_packed + r * b->D / 2, &q4, true);
        ek_avx512_jagged_pack_rows(b->d_packed + r * b->D / 2, &g4, true);
    }
    for (int i = r; i < r + GROUP; i++)
        b->lse[i] = i < b->n ? a->lse[(b->o0 + i) * a->d->H + b->h] / LN2 : 0;
}

/* The queries: P and dx of all of them, and dq. */
EK_INLINE void backward_rows(struct block *b, const struct ek_jagged_rows *q,
                             const struct ek_jagged_rows *g,
                             const struct ek_jagged_rows *dq, const int NV)
{
    const float alpha = b->a->d->alpha, alphas[GROUP] = {alpha, alpha, alpha, alpha};
    const __m512 factor = _mm512_set1_ps(alpha * LOG2E);
    for (int r = 0; r < b->n; r += GROUP) {
        __m512 x[GROUP][4];
        const char *line[GROUP];
        fetch_ahead(b, r);
        take_queries(b, q, g, r);
        lines_of(line, b, q, b->q_packed, r);
        multiply(x, line, 4, b->k_turned, LANES, b->D / 2, NV);
        weigh(b, r, x, factor, NV);
        keep_pairs(b->p + r / 2 * LANES, x, NV);
        lines_of(line, b, g, b->d_packed, r);
        multiply(x, line, 4, b->v_turned, LANES, b->D / 2, NV);
        slope(b, r, x, NV);
        keep_pairs(b->dx + r / 2 * LANES, x, NV);
        keep_rows(b->weights, x, NV);
        EK_UNROLL
        for (int i = 0; i < GROUP; i++)
            line[i] = (const char *)(b->weights + i * LANES / 2);
        product(b, dq, r, line, 4, b->k_pairs, 8 * NV, alphas);
    }
}

/* The keys: dv and dk, four rows at a time. */
static void backward_keys(const struct block *b, const struct ek_jagged_rows *dk,
                          const struct ek_jagged_rows *dv)
{
    const float alpha = b->a->d->alpha, ones[GROUP] = {1, 1, 1, 1};
    const float alphas[GROUP] = {alpha, alpha, alpha, alpha};
    const int64_t n = (b->n + GROUP - 1) / GROUP * (GROUP / 2), step = LANES * 4;
    for (int r = 0; r < b->n; r += GROUP) {
        const char *line[GROUP];
        EK_UNROLL
        for (int i = 0; i < GROUP; i++)
            line[i] = (const char *)(b->p + r + i);
        product(b, dv, r, line, step, b->d_pairs, n, ones);
        EK_UNROLL
        for (int i = 0; i < GROUP; i++)
            line[i] = (const char *)(b->dx + r + i);
        product(b, dk, r, line, step, b->q_pairs, n, alphas);
    }
}

static void backward(struct block *b)
{
    const struct ek_jagged_args *a = b->a;
    const struct ek_jagged_rows q = rows_of(b, a->q, a->ldq, b->q0, b->h);
    const struct ek_jagged_rows g = rows_of(b, a->d_o, a->ldo, b->o0, b->h);
    const struct ek_jagged_rows k = rows_of(b, a->k, a->ldk, b->k0, b->h);
    const struct ek_jagged_rows v = rows_of(b, a->v, a->ldv, b->k0, b->h);
    const struct ek_jagged_rows dq = out_of(b, a->dq, a->ldq, b->q0, b->h);
    const struct ek_jagged_rows dk = out_of(b, a->dk, a->ldk, b->k0, b->h);
    const struct ek_jagged_rows dv = out_of(b, a->dv, a->ldv, b->k0, b->h);
    ek_avx512_jagged_pack_turned(b->k_turned, &k, true);
    ek_avx512_jagged_pack_turned(b->v_turned, &v, true);
    ek_avx512_jagged_pack_pairs(b->k_pairs, &k, true);
    switch ((b->n + 15) / 16) {
    case 1:
        backward_rows(b, &q, &g, &dq, 1);
        break;
    case 2:
        backward_rows(b, &q, &g, &dq, 2);
        break;
    case 3:
        backward_rows(b, &q, &g, &dq, 3);
        break;
    default:
        backward_rows(b, &q, &g, &dq, 4);
        break;
    }
    backward_keys(b, &dk, &dv);
}

/* --- tiles --- */

static void carve_block(struct block *b, float *at)
{
    const int64_t words = (int64_t)b->D / 2 * LANES;
    float **const forms[] = {&b->k_turned, &b->v_turned, &b->k_pairs,  &b->v_pairs,
                             &b->q_pairs,  &b->d_pairs,  &b->q_packed, &b->d_packed};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        *forms[i] = carve(&at, words);
    b->p = carve(&at, LANES / 2 * LANES);
    b->dx = carve(&at, LANES / 2 * LANES);
    b->weights = carve(&at, GROUP * LANES);
}

void ek_avx512_jagged_blocks(const struct ek_jagged_args *a,
                             const struct ek_jagged_tile *t, void *scratch,
                             bool is_backward)
{
    struct block b;
    b.a = a;
    b.s = ek_jagged_seq_of(a->d, a->batch, t->b);
    b.end = t->hi;
    b.h = t->h;
    b.D = a->d->D;
    b.dtype = a->d->dtype;
    b.is_backward = is_backward;
    carve_block(&b, scratch);
    fetch_keys(&b, t->lo, LANES);
    fetch_queries(&b, t->lo, AHEAD);
    for (b.i = t->lo; b.i < t->hi; b.i += LANES) {
        b.n = (int)(t->hi - b.i < LANES ? t->hi - b.i : LANES);
        b.q0 = b.s.q0 + b.i;
        b.o0 = b.s.o0 + b.i;
        b.k0 = b.s.k0 + b.i;
        b.last = first_lanes(b.n - (b.n - 1) / 16 * 16);
        if (is_backward)
            backward(&b);
        else
            forward(&b);
    }
}
