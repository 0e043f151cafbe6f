/* jagged.c - the course of a tile of jagged attention: blocks of 64 queries against
 * blocks of 64 keys (jagged_tile.h). */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/jagged_tile.h"

#include <math.h>
#include <string.h>

#define LN2 0.693147180559945f

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* n floats of scratch. */
static float *carve(float **at, int64_t n)
{
    float *p = *at;
    *at += (n + 15) / 16 * 16;
    return p;
}

static void begin(struct ek_jagged_work *w, const struct ek_jagged_args *a,
                  const struct ek_jagged_tile *t)
{
    w->a = a;
    w->t = t;
    w->s = ek_jagged_seq_of(a->d, a->batch, t->b);
    w->Dp = (a->d->D + 15) / 16 * 16;
    w->is_bf16 = a->d->products == EK_DTYPE_BF16;
    w->fold = w->is_bf16 ? 2 : 1;
    w->scale = a->d->score == EK_JAGGED_PHI ? ek_jagged_scale_of(a, t->b) : 1;
    w->bias_sums = a->dpos || a->dtime ? a->stage + t->stage : NULL;
}

static void set_head(struct ek_jagged_work *w, int64_t h)
{
    w->h = h;
    w->kv = h / (w->a->d->H / w->a->d->K);
    w->phi = ek_jagged_phi_of(w->a->d, h);
}

/* n rows of a tensor from row `row`, head h. */
static struct ek_jagged_rows rows_of(const struct ek_jagged_work *w, const void *x,
                                     int64_t ld, int64_t row, int64_t h, int64_t n)
{
    const size_t size = ek_dtype_block_bytes(w->a->d->dtype);
    const int64_t at = row * ld + h * w->a->d->D;
    return (struct ek_jagged_rows){.x = (const char *)x + at * (int64_t)size,
                                   .dtype = w->a->d->dtype,
                                   .ld = ld,
                                   .D = w->a->d->D,
                                   .Dp = w->Dp,
                                   .n = n,
                                   .padded = (n + 15) / 16 * 16};
}

/* The same, to be written. */
static struct ek_jagged_rows out_of(const struct ek_jagged_work *w, void *x, int64_t ld,
                                    int64_t row, int64_t h, int64_t n)
{
    struct ek_jagged_rows r = rows_of(w, x, ld, row, h, n);
    r.to = (char *)x + ((const char *)r.x - (const char *)x);
    return r;
}

static struct ek_jagged_rows q_rows(const struct ek_jagged_work *w, const void *x)
{
    return rows_of(w, x, w->a->ldq, w->s.q0 + w->q->i0, w->h, w->q->n);
}

static struct ek_jagged_rows o_rows(const struct ek_jagged_work *w, const void *x)
{
    return rows_of(w, x, w->a->ldo, w->s.o0 + w->q->i0, w->h, w->q->n);
}

/* Queries [i0, i0+n) and what they see. */
static void set_queries(const struct ek_jagged_work *w, struct ek_jagged_queries *q,
                        int64_t i0, int64_t n)
{
    q->i0 = i0;
    q->n = (int)n;
    q->nv = (int)(n + 15) / 16;
    for (int v = 0; v < 4; v++) {
        q->first[v] = INT32_MAX;
        q->end[v] = 0;
    }
    for (int t = 0; t < 16 * q->nv; t++) {
        struct ek_jagged_span x = {0, 0, -1};
        if (t < n) {
            x = ek_jagged_span_of(&w->a->d->mask, w->t->b, w->s.Lq, w->s.Lk, i0 + t);
            int32_t *first = &q->first[t / 16], *end = &q->end[t / 16];
            if (x.lo < x.hi) {
                *first = x.lo < *first ? x.lo : *first;
                *end = x.hi > *end ? x.hi : *end;
            }
            if (x.self >= 0) {
                *first = x.self < *first ? x.self : *first;
                *end = x.self >= *end ? x.self + 1 : *end;
            }
        }
        q->lo[t] = x.lo;
        q->hi[t] = x.hi;
        q->self[t] = x.self;
    }
}

/* Keys that count as exp(0) instead of being masked. */
static int64_t padded_keys(const struct ek_jagged_work *w)
{
    const struct ek_jagged_dims *d = w->a->d;
    const struct ek_jagged_mask *m = &d->mask;
    bool is_masked = m->is_causal || m->window > 0 || m->block > 0;
    if (!d->is_subtracting || d->score != EK_JAGGED_SOFTMAX || is_masked || w->a->bias)
        return 0;
    return (4 - w->s.Lk % 4) % 4;
}

/* True when a query of vectors [v0,v1) does not see all of [j,j+4). */
static bool is_cut(const struct ek_jagged_queries *q, int v0, int v1, int64_t j)
{
    const __m512i from = _mm512_set1_epi32((int)j), to = _mm512_set1_epi32((int)j + 4);
    for (int v = v0; v < v1; v++) {
        __mmask16 m = _mm512_cmp_epi32_mask(_mm512_load_si512(q->lo + 16 * v), from,
                                            _MM_CMPINT_LE);
        m &= _mm512_cmp_epi32_mask(_mm512_load_si512(q->hi + 16 * v), to,
                                   _MM_CMPINT_NLT);
        if ((m | ~first_lanes(q->n - 16 * v)) != (__mmask16)~0)
            return true;
    }
    return false;
}

/* The runs of keys [j0, j0+n), n at most 64, and the queries in hand. */
static void set_runs(struct ek_jagged_work *w, int64_t j0, int64_t n, bool has_padding)
{
    const struct ek_jagged_queries *q = w->q;
    w->j0 = j0;
    w->n_runs = 0;
    for (int r = 0; r < n; r += 4) {
        struct ek_jagged_run x = {r, r + 4, q->nv, 0, false};
        for (int v = 0; v < q->nv; v++)
            if (q->first[v] < j0 + r + 4 && q->end[v] > j0 + r) {
                x.v0 = v < x.v0 ? v : x.v0;
                x.v1 = v + 1;
            }
        if (x.v0 >= x.v1)
            continue;
        x.is_cut = !(has_padding && r + 4 > n) && is_cut(q, x.v0, x.v1, j0 + r);
        struct ek_jagged_run *last = w->run + (w->n_runs > 0 ? w->n_runs - 1 : 0);
        if (w->n_runs > 0 && last->r1 == r && last->v0 == x.v0 && last->v1 == x.v1 &&
            last->is_cut == x.is_cut)
            last->r1 = r + 4;
        else
            w->run[w->n_runs++] = x;
    }
}

/* to [key][query] = A rows . queries turned, for every run. */
static void products_by_key(const struct ek_jagged_work *w, float *to,
                            const float *rows, const float *turned)
{
    const int64_t words = w->Dp / w->fold;
    for (const struct ek_jagged_run *x = w->run; x < w->run + w->n_runs; x++) {
        struct ek_jagged_product g = {.C = to + x->r0 * LANES + 16 * x->v0,
                                      .ldc = LANES,
                                      .A = rows + x->r0 * words,
                                      .rs = words,
                                      .ks = 1,
                                      .B = turned + 16 * x->v0,
                                      .ldb = LANES,
                                      .rows = x->r1 - x->r0,
                                      .n = words,
                                      .nv = x->v1 - x->v0};
        ek_avx512_jagged_product(&g, w->is_bf16);
    }
}

/* sums [col][query] += pairs (turned in place) . x pairs, for every run. */
static void products_by_query(const struct ek_jagged_work *w, const float *pairs)
{
    if (!w->q->is_begun && w->run->v1 - w->run->v0 < w->q->nv)
        memset(w->q->sums, 0, (size_t)(w->Dp * LANES) * sizeof(float));
    for (const struct ek_jagged_run *x = w->run; x < w->run + w->n_runs; x++) {
        bool is_first = !w->q->is_begun && x == w->run && x->v1 - x->v0 == w->q->nv;
        struct ek_jagged_product g = {.C = w->q->sums + 16 * x->v0,
                                      .ldc = LANES,
                                      .A = pairs + x->r0 / w->fold * w->Dp,
                                      .rs = 1,
                                      .ks = w->Dp,
                                      .B = w->x_pairs + x->r0 / w->fold * LANES +
                                           16 * x->v0,
                                      .ldb = LANES,
                                      .rows = w->Dp,
                                      .n = (x->r1 - x->r0) / w->fold,
                                      .nv = x->v1 - x->v0,
                                      .is_adding = !is_first};
        ek_avx512_jagged_product(&g, w->is_bf16);
    }
    w->q->is_begun = true;
}

/* to [key][col] += x rows . query pairs, for every run. */
static void products_by_column(const struct ek_jagged_work *w, float *to,
                               const float *x, const float *pairs)
{
    for (const struct ek_jagged_run *run = w->run; run < w->run + w->n_runs; run++)
        for (int64_t c = 0; c < w->Dp; c += 64) {
            const int64_t k0 = 16 * run->v0 / w->fold;
            struct ek_jagged_product g = {
                .C = to + run->r0 * w->Dp + c,
                .ldc = w->Dp,
                .A = x + run->r0 * LANES / w->fold + k0,
                .rs = LANES / w->fold,
                .ks = 1,
                .B = pairs + k0 * w->Dp + c,
                .ldb = w->Dp,
                .rows = run->r1 - run->r0,
                .n = 16 * (run->v1 - run->v0) / w->fold,
                .nv = (int)least(4, (w->Dp - c) / 16),
                .is_adding = true,
            };
            ek_avx512_jagged_product(&g, w->is_bf16);
        }
}

/* --- forward --- */

static void begin_forward(const struct ek_jagged_work *w, struct ek_jagged_queries *q)
{
    struct ek_jagged_rows rows = q_rows(w, w->a->q);
    ek_avx512_jagged_pack_turned(q->turned, &rows, w->is_bf16);
    for (int t = 0; t < LANES; t++) {
        q->m[t] = -INFINITY;
        q->l[t] = 0;
    }
    q->is_begun = false;
}

/* o and LSE of the queries in hand. */
static void end_forward(const struct ek_jagged_work *w)
{
    struct ek_jagged_queries *q = w->q;
    const struct ek_jagged_args *a = w->a;
    const int64_t n_pad = padded_keys(w);
    _Alignas(64) float factor[LANES];
    for (int t = 0; t < LANES; t++)
        factor[t] = w->scale;
    for (int t = 0; a->d->score == EK_JAGGED_SOFTMAX && t < q->n; t++) {
        float l = q->l[t];
        if (n_pad > 0)
            l -= (float)n_pad * exp2f(0 - q->m[t]);
        factor[t] = l <= 0 ? 0 : 1 / l; /* NaN stays */
        if (a->lse)
            a->lse[(w->s.o0 + q->i0 + t) * a->d->H + w->h] =
                l <= 0 ? -INFINITY : q->m[t] * LN2 + logf(l);
    }
    struct ek_jagged_rows rows = out_of(w, a->o, a->ldo, w->s.o0 + q->i0, w->h, q->n);
    if (!q->is_begun)
        memset(q->sums, 0, (size_t)(w->Dp * LANES) * sizeof(float));
    ek_avx512_jagged_unturn(&rows, q->sums, factor, false);
}

static void forward_block(struct ek_jagged_work *w, const float *k, const float *v)
{
    products_by_key(w, w->score, k, w->q->turned);
    if (w->a->bias)
        ek_avx512_jagged_add_bias(w);
    if (w->a->d->score == EK_JAGGED_SOFTMAX)
        ek_avx512_jagged_softmax(w);
    else
        ek_avx512_jagged_phi(w);
    products_by_query(w, v);
}

static void fetch_keys(const struct ek_jagged_work *w, int64_t j0, int64_t j1)
{
    const struct ek_jagged_args *a = w->a;
    struct ek_jagged_rows k = rows_of(w, a->k, a->ldk, w->s.k0 + j0, w->kv, j1 - j0);
    struct ek_jagged_rows v = rows_of(w, a->v, a->ldv, w->s.k0 + j0, w->kv, j1 - j0);
    ek_avx512_jagged_fetch(&k);
    ek_avx512_jagged_fetch(&v);
}

void ek_avx512_jagged_forward(const struct ek_jagged_args *a, int64_t tile,
                              void *scratch)
{
    enum { BLOCKS = EK_JAGGED_QUERIES / LANES };
    struct ek_jagged_work w;
    struct ek_jagged_queries q[BLOCKS];
    const struct ek_jagged_tile *t = &a->plan->fwd[tile];
    float *at = scratch;
    begin(&w, a, t);
    if (ek_avx512_jagged_is_block(a, &w.s)) {
        ek_avx512_jagged_blocks(a, t, scratch, false);
        return;
    }
    if (ek_avx512_jagged_is_short(a, &w.s)) {
        ek_avx512_jagged_short(a, t, scratch, false);
        return;
    }
    if (ek_avx512_jagged_is_causal(a, &w.s)) {
        ek_avx512_jagged_causal(a, t, scratch, false);
        return;
    }
    set_head(&w, t->h);
    struct ek_jagged_rows ahead =
        rows_of(&w, a->q, a->ldq, w.s.q0 + t->lo, t->h, t->hi - t->lo);
    ek_avx512_jagged_fetch(&ahead);
    w.score = carve(&at, LANES * LANES);
    w.x_pairs = carve(&at, LANES * LANES);
    float *k = carve(&at, LANES * w.Dp), *v = carve(&at, LANES * w.Dp);
    int64_t n_blocks = 0, first = INT32_MAX, end = 0;
    for (int64_t i = t->lo; i < t->hi; i += LANES) {
        w.q = &q[n_blocks++];
        w.q->turned = carve(&at, LANES * w.Dp);
        w.q->sums = carve(&at, LANES * w.Dp);
        set_queries(&w, w.q, i, least(LANES, t->hi - i));
        begin_forward(&w, w.q);
        for (int x = 0; x < w.q->nv; x++) {
            first = least(first, w.q->first[x]);
            end = most(end, w.q->end[x]);
        }
    }
    fetch_keys(&w, first / LANES * LANES, least(end, first / LANES * LANES + LANES));
    for (int64_t j = first / LANES * LANES; j < end; j += LANES) {
        const int64_t n = least(LANES, w.s.Lk - j);
        struct ek_jagged_rows rows = rows_of(&w, a->k, a->ldk, w.s.k0 + j, w.kv, n);
        ek_avx512_jagged_pack_rows(k, &rows, w.is_bf16);
        rows = rows_of(&w, a->v, a->ldv, w.s.k0 + j, w.kv, n);
        ek_avx512_jagged_pack_pairs(v, &rows, w.is_bf16);
        fetch_keys(&w, j + LANES, least(end, j + 2 * LANES));
        for (w.q = q; w.q < q + n_blocks; w.q++) {
            set_runs(&w, j, n, padded_keys(&w) > 0);
            if (w.n_runs > 0)
                forward_block(&w, k, v);
        }
    }
    for (w.q = q; w.q < q + n_blocks; w.q++)
        end_forward(&w);
}

/* --- backward --- */

/* The keys that a tile holds at once, in form, and their gradients. */
struct chunk {
    int64_t j0, n;
    float *k_rows, *k_pairs, *v_rows; /* (n, Dp) each, n up to a multiple of 16 */
    float *dk, *dv;
};

static void begin_chunk(const struct ek_jagged_work *w, struct chunk *c, int64_t j0)
{
    const struct ek_jagged_args *a = w->a;
    const int64_t kv = w->t->h;
    c->j0 = j0;
    c->n = least(EK_JAGGED_KEYS, w->t->hi - j0);
    struct ek_jagged_rows k = rows_of(w, a->k, a->ldk, w->s.k0 + j0, kv, c->n);
    struct ek_jagged_rows v = rows_of(w, a->v, a->ldv, w->s.k0 + j0, kv, c->n);
    ek_avx512_jagged_fetch(&k);
    ek_avx512_jagged_fetch(&v);
    ek_avx512_jagged_pack_rows(c->k_rows, &k, w->is_bf16);
    ek_avx512_jagged_pack_pairs(c->k_pairs, &k, w->is_bf16);
    ek_avx512_jagged_pack_rows(c->v_rows, &v, w->is_bf16);
    memset(c->dk, 0, (size_t)(k.padded * w->Dp) * sizeof(float));
    memset(c->dv, 0, (size_t)(k.padded * w->Dp) * sizeof(float));
}

static void end_chunk(const struct ek_jagged_work *w, const struct chunk *c)
{
    const struct ek_jagged_args *a = w->a;
    struct ek_jagged_rows k = out_of(w, a->dk, a->ldk, w->s.k0 + c->j0, w->t->h, c->n);
    struct ek_jagged_rows v = out_of(w, a->dv, a->ldv, w->s.k0 + c->j0, w->t->h, c->n);
    ek_avx512_jagged_unpack(&k, c->dk, a->d->alpha * w->scale);
    ek_avx512_jagged_unpack(&v, c->dv, w->scale);
}

/* Asks for queries [i0,i1), i1 - i0 at most LANES. */
static void fetch_queries(const struct ek_jagged_work *w, int64_t i0, int64_t i1)
{
    const struct ek_jagged_args *a = w->a;
    const int64_t n = least(LANES, i1 - i0);
    const void *const o[] = {a->d_o, a->o};
    struct ek_jagged_rows r = rows_of(w, a->q, a->ldq, w->s.q0 + i0, w->h, n);
    ek_avx512_jagged_fetch(&r);
    for (int i = 0; i < (a->d->score == EK_JAGGED_SOFTMAX ? 2 : 1); i++) {
        r = rows_of(w, o[i], a->ldo, w->s.o0 + i0, w->h, n);
        ek_avx512_jagged_fetch(&r);
    }
}

static void begin_backward(const struct ek_jagged_work *w)
{
    struct ek_jagged_queries *q = w->q;
    const struct ek_jagged_args *a = w->a;
    struct ek_jagged_rows x = q_rows(w, a->q), g = o_rows(w, a->d_o);
    ek_avx512_jagged_pack_turned(q->turned, &x, w->is_bf16);
    ek_avx512_jagged_pack_pairs(q->pairs, &x, w->is_bf16);
    ek_avx512_jagged_pack_turned(q->d_turned, &g, w->is_bf16);
    ek_avx512_jagged_pack_pairs(q->d_pairs, &g, w->is_bf16);
    if (a->d->score != EK_JAGGED_SOFTMAX)
        return;
    struct ek_jagged_rows o = o_rows(w, a->o);
    ek_avx512_jagged_delta(q->delta, &g, o.x, w->is_bf16);
    for (int t = 0; t < 16 * q->nv; t++)
        q->lse[t] = t < q->n ? a->lse[(w->s.o0 + q->i0 + t) * a->d->H + w->h] / LN2 : 0;
}

/* Keys [j0,j0+n) of the chunk from the queries in hand. */
static void backward_block(struct ek_jagged_work *w, const struct chunk *c)
{
    const int64_t r = w->j0 - c->j0, words = w->Dp / w->fold;
    products_by_key(w, w->score, c->k_rows + r * words, w->q->turned);
    products_by_key(w, w->dp, c->v_rows + r * words, w->q->d_turned);
    if (w->a->bias)
        ek_avx512_jagged_add_bias(w);
    ek_avx512_jagged_grad(w);
    if (w->bias_sums || w->a->dpair)
        ek_avx512_jagged_bias_grad(w, w->scale);
    products_by_column(w, c->dv + r * w->Dp, w->p, w->q->d_pairs);
    products_by_column(w, c->dk + r * w->Dp, w->dx, w->q->pairs);
    products_by_query(w, c->k_pairs + r / w->fold * w->Dp);
}

static void end_backward(const struct ek_jagged_work *w, bool is_first)
{
    const struct ek_jagged_args *a = w->a;
    struct ek_jagged_rows to =
        out_of(w, a->dq, a->ldq, w->s.q0 + w->q->i0, w->h, w->q->n);
    _Alignas(64) float factor[LANES];
    for (int t = 0; t < LANES; t++)
        factor[t] = a->d->alpha * w->scale;
    if (!ek_jagged_is_direct(a->d, &w->s)) {
        to.to = ek_jagged_stage_row(a, &w->s, w->t, w->q->i0, w->h);
        to.x = to.to;
        to.dtype = EK_DTYPE_F32;
        to.ld = (int64_t)a->d->H * a->d->D;
    }
    if (!w->q->is_begun)
        memset(w->q->sums, 0, (size_t)(w->Dp * LANES) * sizeof(float));
    ek_avx512_jagged_unturn(&to, w->q->sums, factor, !is_first);
}

/* Queries [i0, i0+LANES) below i1. */
static void backward_queries(struct ek_jagged_work *w, const struct chunk *c,
                             int64_t i0, int64_t i1)
{
    struct ek_jagged_queries *q = w->q;
    int64_t first = INT32_MAX, end = 0;
    set_queries(w, q, i0, least(LANES, i1 - i0));
    for (int v = 0; v < q->nv; v++) {
        first = least(first, q->first[v]);
        end = most(end, q->end[v]);
    }
    first = most(first, c->j0);
    end = least(end, c->j0 + c->n);
    q->is_begun = false;
    if (first < end)
        begin_backward(w);
    fetch_queries(w, i0 + LANES, i1);
    first -= (first - c->j0) % LANES;
    for (int64_t j = first; j < end; j += LANES) {
        set_runs(w, j, least(LANES, c->j0 + c->n - j), false);
        if (w->n_runs > 0)
            backward_block(w, c);
    }
    if (first < end || c->j0 == w->t->lo)
        end_backward(w, c->j0 == w->t->lo);
}

static void carve_backward(struct ek_jagged_work *w, struct chunk *c, float *at)
{
    const int64_t block = LANES * w->Dp, keys = EK_JAGGED_KEYS * w->Dp;
    w->score = carve(&at, LANES * LANES);
    w->dp = carve(&at, LANES * LANES);
    w->p = carve(&at, LANES * LANES);
    w->dx = carve(&at, LANES * LANES);
    w->x_pairs = w->is_bf16 ? carve(&at, LANES * LANES) : w->dx;
    w->q->turned = carve(&at, block);
    w->q->d_turned = carve(&at, block);
    w->q->pairs = carve(&at, block);
    w->q->d_pairs = carve(&at, block);
    w->q->sums = carve(&at, block);
    c->k_rows = carve(&at, keys / w->fold);
    c->v_rows = carve(&at, keys / w->fold);
    c->k_pairs = carve(&at, keys / w->fold);
    c->dk = carve(&at, keys);
    c->dv = carve(&at, keys);
}

void ek_avx512_jagged_backward(const struct ek_jagged_args *a, int64_t tile,
                               void *scratch)
{
    struct ek_jagged_work w;
    struct ek_jagged_queries q;
    struct chunk c;
    const struct ek_jagged_tile *t = &a->plan->bwd[tile];
    const int64_t G = a->d->H / a->d->K;
    int64_t i0, i1, n;
    begin(&w, a, t);
    if (ek_avx512_jagged_is_block(a, &w.s)) {
        ek_avx512_jagged_blocks(a, t, scratch, true);
        return;
    }
    if (ek_avx512_jagged_is_short(a, &w.s)) {
        ek_avx512_jagged_short(a, t, scratch, true);
        return;
    }
    if (ek_avx512_jagged_is_causal(a, &w.s)) {
        ek_avx512_jagged_causal(a, t, scratch, true);
        return;
    }
    w.q = &q;
    carve_backward(&w, &c, scratch);
    ek_jagged_tile_queries(&i0, &i1, a->d, &w.s, t);
    if (w.bias_sums) {
        ek_jagged_first_diagonal(&n, a->d, &w.s, t);
        memset(w.bias_sums, 0, (size_t)(n + EK_JAGGED_BUCKETS) * sizeof(float));
    }
    for (int64_t j = t->lo; j == t->lo || j < t->hi; j += EK_JAGGED_KEYS) {
        begin_chunk(&w, &c, j);
        for (int64_t g = 0; g < G; g++) {
            set_head(&w, t->h * G + g);
            fetch_queries(&w, i0, i1);
            for (int64_t i = i0; i < i1; i += LANES)
                backward_queries(&w, &c, i, i1);
        }
        end_chunk(&w, &c);
    }
}
