/* jagged.c - jagged attention, plainly: pair by pair, each score computed whenever
 * it is needed. With BF16 products q, k, v and do are rounded; P and dx stay f32. */
#include "kernel/jagged_int.h"
#include "kernel/ref/ref.h"
#include "num/float.h"

#include <math.h>
#include <string.h>

/* The tile in hand and what holds for all of its pairs. */
struct walk {
    const struct ek_jagged_args *a;
    const struct ek_jagged_tile *t;
    struct ek_jagged_seq s;
    float scale;
    int64_t h, kv;   /* query head, kv head */
    enum ek_phi phi; /* of head h */
};

struct pair {
    float x, p, grad; /* score; P; phi's gradient times scale */
};

static float load(const void *x, enum ek_dtype t, int64_t at)
{
    return t == EK_DTYPE_F32 ? ((const float *)x)[at]
                             : ek_bf16_to_f32(((const uint16_t *)x)[at]);
}

static void store(void *x, enum ek_dtype t, int64_t at, float v)
{
    if (t == EK_DTYPE_F32)
        ((float *)x)[at] = v;
    else
        ((uint16_t *)x)[at] = ek_f32_to_bf16(v);
}

/* As it is multiplied. */
static float factor(const struct walk *w, const void *x, int64_t at)
{
    float v = load(x, w->a->d->dtype, at);
    return w->a->d->products == EK_DTYPE_BF16 ? ek_bf16_to_f32(ek_f32_to_bf16(v)) : v;
}

static int64_t q_at(const struct walk *w, int64_t i)
{
    return (w->s.q0 + i) * w->a->ldq + w->h * w->a->d->D;
}

static int64_t o_at(const struct walk *w, int64_t i)
{
    return (w->s.o0 + i) * w->a->ldo + w->h * w->a->d->D;
}

static int64_t k_at(const struct walk *w, int64_t j)
{
    return (w->s.k0 + j) * w->a->ldk + w->kv * w->a->d->D;
}

static int64_t v_at(const struct walk *w, int64_t j)
{
    return (w->s.k0 + j) * w->a->ldv + w->kv * w->a->d->D;
}

static int64_t pair_at(const struct walk *w, int64_t i, int64_t j)
{
    const struct ek_jagged_bias *bias = w->a->bias;
    return bias->pair_at[w->t->b] + w->h * bias->pair_ld + i * w->s.Lk + j;
}

static int bucket_at(const struct walk *w, int64_t i, int64_t j)
{
    const struct ek_jagged_bias *bias = w->a->bias;
    return ek_jagged_bucket(bias->t_query[w->s.o0 + i] - bias->t_key[w->s.k0 + j]);
}

static float score(const struct walk *w, int64_t i, int64_t j)
{
    const struct ek_jagged_bias *bias = w->a->bias;
    float x = 0;
    for (int64_t c = 0; c < w->a->d->D; c++)
        x += factor(w, w->a->q, q_at(w, i) + c) * factor(w, w->a->k, k_at(w, j) + c);
    x *= w->a->d->alpha;
    if (bias && bias->pair)
        x += bias->pair[pair_at(w, i, j)];
    if (bias && bias->pos)
        x += bias->pos[bias->N - 1 + j - i];
    if (bias && bias->time)
        x += bias->time[bucket_at(w, i, j)];
    return x;
}

static struct walk walk_of(const struct ek_jagged_args *a,
                           const struct ek_jagged_tile *t)
{
    return (struct walk){.a = a,
                         .t = t,
                         .s = ek_jagged_seq_of(a->d, a->batch, t->b),
                         .scale = ek_jagged_scale_of(a, t->b)};
}

static void set_head(struct walk *w, int64_t h)
{
    w->h = h;
    w->kv = h / (w->a->d->H / w->a->d->K);
    w->phi = ek_jagged_phi_of(w->a->d, h);
}

/* Walks the keys [lo,hi) that query i sees, ascending; -1 at the end. */
static int64_t next_key(const struct walk *w, int64_t i, int64_t j, int64_t lo,
                        int64_t hi)
{
    struct ek_jagged_span x =
        ek_jagged_span_of(&w->a->d->mask, w->t->b, w->s.Lq, w->s.Lk, i);
    for (j = j < lo ? lo : j + 1; j < hi; j++)
        if ((j >= x.lo && j < x.hi) || j == x.self)
            return j;
    return -1;
}

/* Keys in whole steps beyond the last one, which count as exp(0); else 0. */
static int64_t padded_keys(const struct walk *w)
{
    const struct ek_jagged_mask *m = &w->a->d->mask;
    bool is_masked = m->is_causal || m->window > 0 || m->block > 0;
    if (!w->a->d->is_subtracting || is_masked || w->a->bias)
        return 0;
    return (EK_JAGGED_BLOCK - w->s.Lk % EK_JAGGED_BLOCK) % EK_JAGGED_BLOCK;
}

static void forward_softmax(const struct walk *w, int64_t i, float *o)
{
    const int64_t Lk = w->s.Lk, n_pad = padded_keys(w);
    float m = n_pad ? 0 : -INFINITY, l = 0;
    for (int64_t j = -1; (j = next_key(w, i, j, 0, Lk)) >= 0;)
        m = fmaxf(m, score(w, i, j));
    for (int64_t j = -1; (j = next_key(w, i, j, 0, Lk)) >= 0;) {
        float p = expf(score(w, i, j) - m);
        l += p;
        for (int64_t c = 0; c < w->a->d->D; c++)
            o[c] += p * factor(w, w->a->v, v_at(w, j) + c);
    }
    if (n_pad > 0) {
        l += (float)n_pad * expf(0 - m);
        l -= (float)n_pad * expf(0 - m);
    }
    for (int64_t c = 0; c < w->a->d->D; c++) /* NaN stays */
        o[c] = l <= 0 ? 0 : o[c] / l;
    if (w->a->lse)
        w->a->lse[(w->s.o0 + i) * w->a->d->H + w->h] = l <= 0 ? -INFINITY : m + logf(l);
}

static void forward_phi(const struct walk *w, int64_t i, float *o)
{
    for (int64_t j = -1; (j = next_key(w, i, j, 0, w->s.Lk)) >= 0;) {
        float grad, p = w->scale * ek_phi_value(w->phi, score(w, i, j), &grad);
        for (int64_t c = 0; c < w->a->d->D; c++)
            o[c] += p * factor(w, w->a->v, v_at(w, j) + c);
    }
}

void ek_ref_jagged_forward(const struct ek_jagged_args *a, int64_t tile, void *scratch)
{
    struct walk w = walk_of(a, &a->plan->fwd[tile]);
    float *o = scratch;
    set_head(&w, w.t->h);
    for (int64_t i = w.t->lo; i < w.t->hi; i++) {
        memset(o, 0, (size_t)a->d->D * sizeof *o);
        if (a->d->score == EK_JAGGED_SOFTMAX)
            forward_softmax(&w, i, o);
        else
            forward_phi(&w, i, o);
        for (int64_t c = 0; c < a->d->D; c++)
            store(a->o, a->d->dtype, o_at(&w, i) + c, o[c]);
    }
}

/* P and dx of a pair. */
static float grad_of(const struct walk *w, int64_t i, int64_t j, float *p)
{
    const struct ek_jagged_args *a = w->a;
    const float x = score(w, i, j);
    float dp = 0, delta = 0, grad;
    for (int64_t c = 0; c < a->d->D; c++)
        dp += factor(w, a->d_o, o_at(w, i) + c) * factor(w, a->v, v_at(w, j) + c);
    if (a->d->score == EK_JAGGED_PHI) {
        *p = w->scale * ek_phi_value(w->phi, x, &grad);
        return w->scale * grad * dp;
    }
    for (int64_t c = 0; c < a->d->D; c++)
        delta +=
            factor(w, a->d_o, o_at(w, i) + c) * load(a->o, a->d->dtype, o_at(w, i) + c);
    *p = expf(x - a->lse[(w->s.o0 + i) * a->d->H + w->h]);
    return *p * (dp - delta);
}

static bool is_seen(const struct walk *w, int64_t i, int64_t j)
{
    struct ek_jagged_span x =
        ek_jagged_span_of(&w->a->d->mask, w->t->b, w->s.Lq, w->s.Lk, i);
    return (j >= x.lo && j < x.hi) || j == x.self;
}

/* dk and dv of key j, from all queries of all heads of the kv head. */
static void backward_key(struct walk *w, int64_t j, float *dk, float *dv)
{
    const struct ek_jagged_dims *d = w->a->d;
    const int64_t G = d->H / d->K;
    int64_t i0, i1;
    ek_jagged_tile_queries(&i0, &i1, d, &w->s, w->t);
    memset(dk, 0, (size_t)d->D * sizeof *dk);
    memset(dv, 0, (size_t)d->D * sizeof *dv);
    for (int64_t g = 0; g < G; g++) {
        set_head(w, w->t->h * G + g);
        for (int64_t i = i0; i < i1; i++) {
            if (!is_seen(w, i, j))
                continue;
            float p, dx = grad_of(w, i, j, &p);
            for (int64_t c = 0; c < d->D; c++) {
                dk[c] += d->alpha * dx * factor(w, w->a->q, q_at(w, i) + c);
                dv[c] += p * factor(w, w->a->d_o, o_at(w, i) + c);
            }
        }
    }
    for (int64_t c = 0; c < d->D; c++) {
        store(w->a->dk, d->dtype, k_at(w, j) + c, dk[c]);
        store(w->a->dv, d->dtype, v_at(w, j) + c, dv[c]);
    }
}

static void add_bias_grad(const struct walk *w, int64_t i, int64_t j, float dx)
{
    const struct ek_jagged_args *a = w->a;
    const struct ek_jagged_tile *t = w->t;
    int64_t n, first = ek_jagged_first_diagonal(&n, a->d, &w->s, t);
    float *sums = a->stage + t->stage;
    if (a->dpair)
        a->dpair[pair_at(w, i, j)] = dx;
    if (a->dpos)
        sums[j - i - first] += dx;
    if (a->dtime)
        sums[n + bucket_at(w, i, j)] += dx;
}

/* What the tile's keys add to the gradient of query i. */
static void backward_query(const struct walk *w, int64_t i, float *dq)
{
    const struct ek_jagged_args *a = w->a;
    memset(dq, 0, (size_t)a->d->D * sizeof *dq);
    for (int64_t j = -1; (j = next_key(w, i, j, w->t->lo, w->t->hi)) >= 0;) {
        float p, dx = grad_of(w, i, j, &p);
        for (int64_t c = 0; c < a->d->D; c++)
            dq[c] += a->d->alpha * dx * factor(w, a->k, k_at(w, j) + c);
        if (a->bias)
            add_bias_grad(w, i, j, dx);
    }
    if (ek_jagged_is_direct(a->d, &w->s)) {
        for (int64_t c = 0; c < a->d->D; c++)
            store(a->dq, a->d->dtype, q_at(w, i) + c, dq[c]);
    } else {
        memcpy(ek_jagged_stage_row(a, &w->s, w->t, i, w->h), dq,
               (size_t)a->d->D * sizeof *dq);
    }
}

void ek_ref_jagged_backward(const struct ek_jagged_args *a, int64_t tile, void *scratch)
{
    struct walk w = walk_of(a, &a->plan->bwd[tile]);
    const int64_t D = a->d->D, G = a->d->H / a->d->K;
    float *sums = scratch;
    int64_t i0, i1;
    ek_jagged_tile_queries(&i0, &i1, a->d, &w.s, w.t);
    if (a->dpos || a->dtime) {
        int64_t n;
        ek_jagged_first_diagonal(&n, a->d, &w.s, w.t);
        memset(a->stage + w.t->stage, 0,
               (size_t)(n + EK_JAGGED_BUCKETS) * sizeof(float));
    }
    for (int64_t j = w.t->lo; j < w.t->hi; j++)
        backward_key(&w, j, sums, sums + D);
    for (int64_t g = 0; g < G; g++) {
        set_head(&w, w.t->h * G + g);
        for (int64_t i = i0; i < i1; i++)
            backward_query(&w, i, sums);
    }
}
