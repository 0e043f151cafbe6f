/* jagged_naive.h - jagged attention in f64, pair by pair, written from the formulas of
 * kernel/jagged.h and sharing nothing with the kernels but their structs. */
#ifndef EVENKEEL_TESTS_KERNEL_JAGGED_NAIVE_H
#define EVENKEEL_TESTS_KERNEL_JAGGED_NAIVE_H

#include "jagged_fixture.h"

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
