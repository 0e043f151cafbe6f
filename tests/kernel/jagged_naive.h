/* jagged_naive.h - jagged attention in f64, pair by pair, written from the formulas of
 * kernel/jagged.h and sharing nothing with the kernels but their structs; and a fixture
 * that holds one batch for both. */
#ifndef EVENKEEL_TESTS_KERNEL_JAGGED_NAIVE_H
#define EVENKEEL_TESTS_KERNEL_JAGGED_NAIVE_H

#include "kernel_test.h"
#include "num/float.h"

#include <stdlib.h>

#define SEQS_MAX 12

/* What distinguishes one case. Lengths end at the first negative one. */
struct shape {
    int lq[SEQS_MAX], lk[SEQS_MAX];
    struct ek_jagged_dims d;
    bool has_pair, has_pos, has_time, has_seq_scale;
    int targets[SEQS_MAX];
    double amplitude; /* of the inputs; 0: 1 */
};

/* Values and gradients of all rows, dense, in f64. */
struct naive {
    double *q, *k, *v, *o, *d_o, *dq, *dk, *dv, *lse, *pair, *pos, *time, *dpair, *dpos,
        *dtime;
};

struct jagged {
    struct ek_jagged_dims d;
    struct ek_jagged_batch batch;
    struct ek_jagged_bias bias;
    struct ek_jagged_plan plan;
    struct ek_jagged_args a;
    int64_t q_offsets[SEQS_MAX + 1], k_offsets[SEQS_MAX + 1], pair_at[SEQS_MAX];
    int32_t n_targets[SEQS_MAX];
    float seq_scale[SEQS_MAX];
    enum ek_phi phis[64];
    int64_t n_q, n_k, n_o, n_pair; /* rows; pairs of one head */
    int64_t *t_query, *t_key;
    size_t size; /* of an element */
    struct naive x;
    void *owned[48];
    int n_owned;
};

static inline void *own(struct jagged *f, void *p)
{
    assert_true(f->n_owned < (int)COUNT(f->owned));
    f->owned[f->n_owned++] = p;
    return p;
}

static inline double *own_doubles(struct jagged *f, int64_t n)
{
    return own(f, new_bytes((size_t)(n + 1) * sizeof(double)));
}

static inline double get(const void *x, enum ek_dtype t, int64_t i)
{
    return t == EK_DTYPE_F32 ? (double)((const float *)x)[i]
                             : (double)ek_bf16_to_f32(((const uint16_t *)x)[i]);
}

/* Random rows as the kernel gets them, and what it multiplies in f64. What lies between
 * rows is NaN. */
static inline void *make_rows(struct jagged *f, double *exact, int64_t rows, int64_t n,
                              int64_t ld, double amplitude, struct ek_rng *rng)
{
    void *x = own(f, new_bytes((size_t)(rows * ld + 64) * f->size));
    memset(x, 0xff, (size_t)(rows * ld + 64) * f->size);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < n; c++) {
            float y = random_float(rng) * (float)amplitude;
            float rounded = ek_bf16_to_f32(ek_f32_to_bf16(y));
            if (f->d.dtype == EK_DTYPE_F32)
                ((float *)x)[r * ld + c] = y;
            else
                ((uint16_t *)x)[r * ld + c] = ek_f32_to_bf16(y);
            bool is_rounded =
                f->d.dtype == EK_DTYPE_BF16 || f->d.products == EK_DTYPE_BF16;
            exact[r * n + c] = (double)(is_rounded ? rounded : y);
        }
    return x;
}

static inline float *make_floats(struct jagged *f, double *exact, int64_t n,
                                 struct ek_rng *rng)
{
    float *x = own(f, new_floats(n + 1));
    for (int64_t i = 0; i < n; i++) {
        x[i] = random_float(rng);
        exact[i] = (double)x[i];
    }
    return x;
}

static inline void setup_bias(struct jagged *f, const struct shape *s,
                              struct ek_rng *rng)
{
    struct ek_jagged_bias *b = &f->bias;
    f->a.bias = s->has_pair || s->has_pos || s->has_time ? b : NULL;
    int64_t longest = 1;
    for (int64_t i = 0; i < f->batch.B; i++) {
        int lq = s->lq[f->d.is_broadcast_q ? 0 : i];
        f->pair_at[i] = f->n_pair;
        f->n_pair += (int64_t)lq * s->lk[i];
        longest = longest > lq ? longest : lq;
        longest = longest > s->lk[i] ? longest : s->lk[i];
    }
    *b = (struct ek_jagged_bias){
        .pair_at = f->pair_at, .pair_ld = f->n_pair, .N = longest + 3};
    f->x.pair = own_doubles(f, f->n_pair * f->d.H);
    f->x.dpair = own_doubles(f, f->n_pair * f->d.H);
    f->x.pos = own_doubles(f, 2 * b->N);
    f->x.dpos = own_doubles(f, 2 * b->N);
    f->x.time = own_doubles(f, EK_JAGGED_BUCKETS);
    f->x.dtime = own_doubles(f, EK_JAGGED_BUCKETS);
    if (s->has_pair) {
        b->pair = make_floats(f, f->x.pair, f->n_pair * f->d.H, rng);
        f->a.dpair = own(f, new_floats(f->n_pair * f->d.H));
    }
    if (s->has_pos) {
        b->pos = make_floats(f, f->x.pos, 2 * b->N - 1, rng);
        f->a.dpos = own(f, new_floats(2 * b->N));
    }
    f->t_query = own(f, new_bytes((size_t)(f->n_o + 1) * 8));
    f->t_key = own(f, new_bytes((size_t)(f->n_k + 1) * 8));
    b->t_query = f->t_query;
    b->t_key = f->t_key;
    for (int64_t i = 0; i < f->n_o; i++)
        f->t_query[i] = 1700000000 + (int64_t)ek_rng_below(rng, 1u << (i % 24));
    for (int64_t i = 0; i < f->n_k; i++)
        f->t_key[i] = 1700000000 + (int64_t)ek_rng_below(rng, 1u << (i % 28));
    if (s->has_time) {
        b->time = make_floats(f, f->x.time, EK_JAGGED_BUCKETS, rng);
        f->a.dtime = own(f, new_floats(EK_JAGGED_BUCKETS));
    }
}

static inline void setup_rows(struct jagged *f, double amplitude, struct ek_rng *rng)
{
    const int64_t HD = (int64_t)f->d.H * f->d.D, KD = (int64_t)f->d.K * f->d.D;
    struct ek_jagged_args *a = &f->a;
    a->ldq = HD + 3;
    a->ldk = KD + 5;
    a->ldv = KD + 7;
    a->ldo = HD + 1;
    f->x.q = own_doubles(f, f->n_q * HD);
    f->x.k = own_doubles(f, f->n_k * KD);
    f->x.v = own_doubles(f, f->n_k * KD);
    f->x.d_o = own_doubles(f, f->n_o * HD);
    f->x.o = own_doubles(f, f->n_o * HD);
    f->x.lse = own_doubles(f, f->n_o * f->d.H);
    f->x.dq = own_doubles(f, f->n_q * HD);
    f->x.dk = own_doubles(f, f->n_k * KD);
    f->x.dv = own_doubles(f, f->n_k * KD);
    a->q = make_rows(f, f->x.q, f->n_q, HD, a->ldq, amplitude, rng);
    a->k = make_rows(f, f->x.k, f->n_k, KD, a->ldk, amplitude, rng);
    a->v = make_rows(f, f->x.v, f->n_k, KD, a->ldv, amplitude, rng);
    a->d_o = make_rows(f, f->x.d_o, f->n_o, HD, a->ldo, amplitude, rng);
    a->o = own(f, new_bytes((size_t)(f->n_o * a->ldo + 64) * f->size));
    a->dq = own(f, new_bytes((size_t)(f->n_q * a->ldq + 64) * f->size));
    a->dk = own(f, new_bytes((size_t)(f->n_k * a->ldk + 64) * f->size));
    a->dv = own(f, new_bytes((size_t)(f->n_k * a->ldv + 64) * f->size));
    if (f->d.score == EK_JAGGED_SOFTMAX)
        a->lse = own(f, new_floats(f->n_o * f->d.H + 1));
}

static inline void setup_plan(struct jagged *f)
{
    bool has_bias = f->a.dpos || f->a.dtime;
    int64_t n_fwd, n_bwd, n_stage;
    ek_jagged_ceiling(&n_fwd, &n_bwd, &n_stage, &f->d, f->batch.B, f->n_o, f->n_k,
                      has_bias);
    f->plan.members = 3;
    f->plan.fwd = own(f, new_bytes((size_t)(n_fwd + 1) * sizeof *f->plan.fwd));
    f->plan.bwd = own(f, new_bytes((size_t)(n_bwd + 1) * sizeof *f->plan.bwd));
    f->plan.stage_at = own(f, new_bytes((size_t)(f->batch.B + 1) * 8));
    ek_jagged_plan_build(&f->plan, &f->d, &f->batch, has_bias);
    assert_true(f->plan.n_fwd <= n_fwd && f->plan.n_bwd <= n_bwd);
    assert_true(f->plan.n_stage <= n_stage);
    f->a.stage = own(f, new_floats(f->plan.n_stage + 1));
    memset(f->a.stage, 0xff, (size_t)f->plan.n_stage * sizeof(float));
}

static inline void setup(struct jagged *f, const struct shape *s, uint64_t seed)
{
    struct ek_rng rng;
    ek_rng_init(&rng, seed);
    *f = (struct jagged){.d = s->d, .batch = {.B = 0}};
    f->size = ek_dtype_block_bytes(f->d.dtype);
    f->q_offsets[0] = 0;
    for (int64_t b = 0; b < SEQS_MAX && s->lk[b] >= 0; b++) {
        int lq = s->lq[f->d.is_broadcast_q ? 0 : b];
        f->k_offsets[b + 1] = f->k_offsets[b] + s->lk[b];
        f->q_offsets[b + 1] = f->q_offsets[b] + lq;
        f->n_targets[b] = s->targets[b];
        f->seq_scale[b] = 0.5f + (float)b / 4;
        f->batch.B = b + 1;
    }
    f->n_k = f->k_offsets[f->batch.B];
    f->n_o = f->q_offsets[f->batch.B];
    f->n_q = f->d.is_broadcast_q ? s->lq[0] : f->n_o;
    f->batch.q_offsets = f->q_offsets;
    f->batch.k_offsets = f->k_offsets;
    if (s->has_seq_scale)
        f->batch.seq_scale = f->seq_scale;
    if (s->d.mask.n_targets)
        f->d.mask.n_targets = f->n_targets;
    if (s->d.phis) {
        for (int h = 0; h < f->d.H; h++)
            f->phis[h] = (enum ek_phi)(h % EK_PHI_COUNT);
        f->d.phis = f->phis;
    }
    f->a.d = &f->d;
    f->a.batch = &f->batch;
    f->a.plan = &f->plan;
    setup_rows(f, s->amplitude > 0 ? s->amplitude : 1, &rng);
    setup_bias(f, s, &rng);
    setup_plan(f);
}

static inline void teardown(struct jagged *f)
{
    for (int i = 0; i < f->n_owned; i++)
        ek_free(f->owned[i]);
}

static inline void run_forward(struct jagged *f, const struct ek_ops *ops)
{
    void *scratch = new_bytes(ek_jagged_scratch_bytes(&f->d));
    for (int64_t t = 0; t < f->plan.n_fwd; t++)
        ops->jagged_forward(&f->a, t, scratch);
    ek_free(scratch);
}

static inline void run_backward(struct jagged *f, const struct ek_ops *ops)
{
    void *scratch = new_bytes(ek_jagged_scratch_bytes(&f->d));
    for (int64_t t = 0; t < f->plan.n_bwd; t++)
        ops->jagged_backward(&f->a, t, scratch);
    ek_jagged_reduce(&f->a, 0, ek_jagged_reduce_units(&f->a));
    ek_free(scratch);
}

/* --- the formulas --- */

/* By ids as HSTU has them: the context is position 0, all targets one position. */
static inline bool sees(const struct ek_jagged_mask *m, int64_t b, int64_t Lq,
                        int64_t Lk, int64_t i, int64_t j)
{
    const int64_t n_targets = m->is_causal && m->n_targets ? m->n_targets[b] : 0;
    const int64_t shift = m->n_context > 0 ? m->n_context - 1 : 0;
    int64_t row = m->is_causal ? i + Lk - Lq : i, col = j, end = Lk - n_targets - shift;
    if (m->block > 0 && i / m->block != j / m->block)
        return false;
    if (m->is_causal && (m->n_context > 0 || n_targets > 0 || m->n_full > 0)) {
        row = row - shift < 0 ? 0 : row - shift;
        col = col - shift < 0 ? 0 : col - shift;
        row = row > end ? end : row;
        col = col > end ? end : col;
        if (i < m->n_context && i < Lk - n_targets)
            return j < Lk - n_targets;
        if (i != j && row <= col)
            return false;
        bool is_full = m->n_full > 0 && row >= end - m->n_full;
        return m->window == 0 || is_full || row - col <= m->window;
    }
    if (m->is_causal && col > row)
        return false;
    return m->window == 0 || llabs(row - col) <= m->window;
}

static inline double naive_phi(enum ek_phi phi, double x, double *grad)
{
    if (phi == EK_PHI_GELU_POLY && fabs(x) <= 1.25) {
        const double c2 = 0.3989422804014327, c4 = -0.06649038006690543;
        const double c6 = 0.00997355701003582;
        *grad = 0.5 + 2 * c2 * x + 4 * c4 * pow(x, 3) + 6 * c6 * pow(x, 5);
        return 0.5 * x + c2 * x * x + c4 * pow(x, 4) + c6 * pow(x, 6);
    }
    double t, s, cdf = 0.5 + 0.5 * erf(x * sqrt(0.5));
    const double a = 0.7978845608028654, c = 0.044715;
    switch (phi) {
    case EK_PHI_GELU:
    case EK_PHI_GELU_POLY:
        *grad = cdf + x * exp(-x * x / 2) / sqrt(2 * 3.141592653589793);
        return x * cdf;
    case EK_PHI_GELU_TANH:
        t = tanh(a * (x + c * x * x * x));
        *grad = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * a * (1 + 3 * c * x * x);
        return 0.5 * x * (1 + t);
    case EK_PHI_LEAKY_RELU:
        *grad = x > 0 ? 1 : 0.01;
        return *grad * x;
    case EK_PHI_RELU:
        *grad = x > 0;
        return x > 0 ? x : 0;
    case EK_PHI_RELU2:
        *grad = x > 0 ? 2 * x : 0;
        return x > 0 ? x * x : 0;
    case EK_PHI_SILU:
        s = 1 / (1 + exp(-x));
        *grad = s * (1 + x * (1 - s));
        return x * s;
    case EK_PHI_HARDSWISH:
        *grad = x <= -3 ? 0 : x >= 3 ? 1 : (2 * x + 3) / 6;
        return x <= -3 ? 0 : x >= 3 ? x : x * (x + 3) / 6;
    case EK_PHI_RAW:
    case EK_PHI_COUNT:
        break;
    }
    *grad = 1;
    return x;
}

/* Sequence b, head h, its rows in q, o, k and their lengths. */
struct at {
    int64_t b, h, kv, Lq, Lk, q0, o0, k0;
};

static inline struct at at_of(const struct jagged *f, int64_t b, int64_t h)
{
    const int64_t q = f->d.is_broadcast_q ? 0 : b;
    struct at p = {.b = b, .h = h, .kv = h / (f->d.H / f->d.K)};
    p.Lq = f->q_offsets[q + 1] - f->q_offsets[q];
    p.Lk = f->k_offsets[b + 1] - f->k_offsets[b];
    p.q0 = f->q_offsets[q];
    p.o0 = f->d.is_broadcast_q ? b * p.Lq : p.q0;
    p.k0 = f->k_offsets[b];
    return p;
}

static inline double *row_of(const struct jagged *f, double *x, int64_t heads,
                             int64_t row, int64_t h)
{
    return x + (row * heads + h) * f->d.D;
}

static inline int64_t bucket_naive(const struct jagged *f, const struct at *p,
                                   int64_t i, int64_t j)
{
    double x = fabs((double)(f->t_query[p->o0 + i] - f->t_key[p->k0 + j]));
    double bucket = trunc(log(x > 1 ? x : 1) / 0.301);
    return bucket > 128 ? 128 : (int64_t)bucket;
}

static inline double naive_score(const struct jagged *f, const struct at *p, int64_t i,
                                 int64_t j)
{
    const double *q = row_of(f, f->x.q, f->d.H, p->q0 + i, p->h);
    const double *k = row_of(f, f->x.k, f->d.K, p->k0 + j, p->kv);
    double x = 0;
    for (int64_t c = 0; c < f->d.D; c++)
        x += q[c] * k[c];
    x *= (double)f->d.alpha;
    if (f->bias.pair)
        x += f->x.pair[f->pair_at[p->b] + p->h * f->n_pair + i * p->Lk + j];
    if (f->bias.pos)
        x += f->x.pos[f->bias.N - 1 + j - i];
    if (f->bias.time)
        x += f->x.time[bucket_naive(f, p, i, j)];
    return x;
}

/* P[j] and its gradient by x, of query i (softmax: P alone). */
static inline void naive_row(const struct jagged *f, const struct at *p, int64_t i,
                             double *P, double *grad)
{
    double max = -HUGE_VAL, sum = 0;
    double scale = (double)f->d.scale;
    if (f->batch.seq_scale)
        scale *= (double)f->batch.seq_scale[p->b];
    for (int64_t j = 0; j < p->Lk; j++) {
        P[j] = naive_score(f, p, i, j);
        grad[j] = sees(&f->d.mask, p->b, p->Lq, p->Lk, i, j);
        max = grad[j] > 0 && P[j] > max ? P[j] : max;
    }
    for (int64_t j = 0; j < p->Lk; j++) {
        double is_seen = grad[j];
        if (f->d.score == EK_JAGGED_SOFTMAX) {
            P[j] = is_seen > 0 ? exp(P[j] - max) : 0;
            sum += P[j];
        } else {
            P[j] = is_seen * scale *
                   naive_phi(f->d.phis ? f->d.phis[p->h] : f->d.phi, P[j], &grad[j]);
            grad[j] *= is_seen * scale;
        }
    }
    if (f->d.score == EK_JAGGED_SOFTMAX) {
        for (int64_t j = 0; j < p->Lk; j++)
            P[j] = sum > 0 ? P[j] / sum : 0;
        f->x.lse[(p->o0 + i) * f->d.H + p->h] = max + log(sum);
    }
}

static inline void naive_backward_row(const struct jagged *f, const struct at *p,
                                      int64_t i, const double *P, double *dx)
{
    const int64_t D = f->d.D;
    double *go = row_of(f, f->x.d_o, f->d.H, p->o0 + i, p->h), delta = 0;
    double *dq = row_of(f, f->x.dq, f->d.H, p->q0 + i, p->h),
           alpha = (double)f->d.alpha;
    for (int64_t c = 0; c < D; c++)
        delta += go[c] * row_of(f, f->x.o, f->d.H, p->o0 + i, p->h)[c];
    for (int64_t j = 0; j < p->Lk; j++) {
        double dp = 0;
        for (int64_t c = 0; c < D; c++)
            dp += go[c] * row_of(f, f->x.v, f->d.K, p->k0 + j, p->kv)[c];
        dx[j] = f->d.score == EK_JAGGED_SOFTMAX ? P[j] * (dp - delta) : dx[j] * dp;
        for (int64_t c = 0; c < D; c++) {
            row_of(f, f->x.dv, f->d.K, p->k0 + j, p->kv)[c] += P[j] * go[c];
            row_of(f, f->x.dk, f->d.K, p->k0 + j, p->kv)[c] +=
                alpha * dx[j] * row_of(f, f->x.q, f->d.H, p->q0 + i, p->h)[c];
            dq[c] += alpha * dx[j] * row_of(f, f->x.k, f->d.K, p->k0 + j, p->kv)[c];
        }
        if (f->n_pair)
            f->x.dpair[f->pair_at[p->b] + p->h * f->n_pair + i * p->Lk + j] = dx[j];
        f->x.dpos[f->bias.N - 1 + j - i] += dx[j];
        f->x.dtime[bucket_naive(f, p, i, j)] += dx[j];
    }
}

/* o and LSE; with is_backward all gradients too. */
static inline void naive_run(struct jagged *f, bool is_backward)
{
    double *P = new_bytes((size_t)(f->n_k + 1) * 16), *grad = P + f->n_k + 1;
    for (int64_t b = 0; b < f->batch.B; b++)
        for (int64_t h = 0; h < f->d.H; h++) {
            struct at p = at_of(f, b, h);
            for (int64_t i = 0; i < p.Lq; i++) {
                double *o = row_of(f, f->x.o, f->d.H, p.o0 + i, h);
                naive_row(f, &p, i, P, grad);
                for (int64_t c = 0; c < f->d.D; c++) {
                    o[c] = 0;
                    for (int64_t j = 0; j < p.Lk; j++)
                        o[c] += P[j] * row_of(f, f->x.v, f->d.K, p.k0 + j, p.kv)[c];
                }
                if (is_backward)
                    naive_backward_row(f, &p, i, P, grad);
            }
        }
    ek_free(P);
}

#endif
