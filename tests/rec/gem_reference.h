/* gem_reference.h - gem of one sequence in float64, written from docs/design/gem.md with
 * loops over positions and chunks: no graph, no kernel, parameters by name alone. */
#ifndef EVENKEEL_TESTS_REC_GEM_REFERENCE_H
#define EVENKEEL_TESTS_REC_GEM_REFERENCE_H

#include "gem_parts.h"

/* --- a layer ------------------------------------------------------------------------------ */

static bool is_seen(const struct ref *r, int64_t i, int64_t j)
{
    if (j > i)
        return false;
    return r->c->window ? i - j <= r->c->window : i / 64 == j / 64;
}

static void ref_self_attention(struct ref *r, double *x)
{
    int64_t d = r->d, D = d / r->c->heads;
    double *qkv = ref_linear(r, "attention.qkv",
                             ref_norm(r, "attention.norm", x, r->T, false), r->T);
    const struct ek_param *pos = ref_param(r, "attention.pos", "");
    int64_t N = (pos->cols + 1) / 2;
    double *o = ref_new(r, r->T * d), *score = ref_new(r, r->T);
    for (int64_t i = 0; i < r->T; i++)
        for (int64_t h = 0; h < r->c->heads; h++) {
            int64_t lo = i;
            while (lo > 0 && is_seen(r, i, lo - 1))
                lo--;
            for (int64_t j = lo; j <= i; j++) {
                score[j - lo] =
                    dot(qkv + i * 3 * d + h * D, qkv + j * 3 * d + d + h * D, D) /
                        sqrt((double)D) +
                    (double)pos->value[N - 1 + j - i];
                if (r->c->has_times)
                    score[j - lo] +=
                        (double)ref_param(r, "attention.time", "")
                            ->value[ek_jagged_bucket(r->b->next_times[i] / 1000000 -
                                                     r->b->times[j] / 1000000)];
            }
            ref_mix(o + i * d + h * D, score, true, qkv + lo * 3 * d + 2 * d + h * D,
                    3 * d, i + 1 - lo, D);
        }
    double *y = ref_linear(r, "attention.out", o, r->T);
    for (int64_t i = 0; i < r->T * d; i++)
        x[i] += y[i];
}

static int64_t first_of(const struct ref *r, int64_t chunk)
{
    int64_t t = chunk * r->chunk;
    return t < r->T ? t : r->T;
}

/* (C, seeds, d): what the seeds find in each chunk. */
static double *ref_pool(struct ref *r, const double *y)
{
    int64_t d = r->d, S = r->c->seeds, D = d / r->c->heads;
    double *kv = ref_linear(r, "pool.kv", y, r->T);
    const struct ek_param *seeds = ref_param(r, "pool.seeds", "");
    double *p = ref_new(r, r->C * S * d), *score = ref_new(r, r->T);
    double *q = ref_new(r, S * d);
    for (int64_t i = 0; i < S * d; i++)
        q[i] = (double)seeds->value[i];
    for (int64_t c = 0; c < r->C; c++)
        for (int64_t s = 0; s < S; s++)
            for (int64_t h = 0; h < r->c->heads; h++) {
                int64_t lo = first_of(r, c), hi = first_of(r, c + 1);
                for (int64_t j = lo; j < hi; j++)
                    score[j - lo] = dot(q + s * d + h * D, kv + j * 2 * d + h * D, D) /
                                    sqrt((double)D);
                ref_mix(p + (c * S + s) * d + h * D, score, true,
                        kv + lo * 2 * d + d + h * D, 2 * d, hi - lo, D);
            }
    return ref_norm(r, "pool.norm", p, r->C * S, false);
}

/* (C, m, d): the history of each seed, then the latest position before the chunk. */
static double *ref_summary(struct ref *r, const double *x)
{
    int64_t d = r->d, S = r->c->seeds, D = d / r->c->heads, wide = S * d;
    double *y = ref_norm(r, "summary.norm", x, r->T, false);
    double *p = ref_pool(r, y), *moved = ref_new(r, r->C * wide);
    memcpy(moved + wide, p, (size_t)((r->C - 1) * wide) * sizeof *p);
    double *q = ref_linear(r, "history.q", moved, r->C * S);
    double *k = ref_linear(r, "history.k", moved, r->C * S);
    const struct ek_param *pos = ref_param(r, "history.pos", "");
    double *all = ref_new(r, r->C * r->m * d), *score = ref_new(r, r->C);
    for (int64_t c = 0; c < r->C; c++) {
        for (int64_t h = 0; h < S * r->c->heads; h++) {
            for (int64_t j = 0; j <= c; j++)
                score[j] = dot(q + c * wide + h * D, k + j * wide + h * D, D) /
                               sqrt((double)D) +
                           (double)pos->value[(pos->cols + 1) / 2 - 1 + j - c];
            ref_mix(all + c * r->m * d + h * D, score, true, moved + h * D, wide, c + 1,
                    D);
        }
        if (c > 0)
            memcpy(all + (c * r->m + S) * d, y + (first_of(r, c) - 1) * d,
                   (size_t)d * sizeof *y);
    }
    return ref_gate(r, "summary.gate", all, r->C * r->m);
}

/* What one expert adds to the features of a chunk; x (n + m, d). */
static void ref_expert(struct ref *r, int e, const double *x, double weight,
                       double *sum)
{
    char name[5][32];
    static const char *const what[] = {"fm", "norm", "up", "down", "compress"};
    for (int i = 0; i < 5; i++)
        (void)snprintf(name[i], sizeof name[i], "expert%d.%s", e, what[i]);
    int64_t d = r->d, n_in = r->n + r->m, k = r->c->rank;
    const struct ek_param *P = ref_param(r, name[0], ""),
                          *W = ref_param(r, name[4], "");
    double *fm = ref_new(r, n_in * k);
    for (int64_t i = 0; i < n_in; i++)
        for (int64_t l = 0; l < n_in; l++) /* (X X^T) P */
            for (int64_t j = 0; j < k; j++)
                fm[i * k + j] +=
                    dot(x + i * d, x + l * d, d) * (double)P->value[l * k + j];
    double *up = ref_linear(r, name[2], ref_norm(r, name[1], fm, 1, false), 1);
    for (int64_t i = 0; i < d; i++)
        up[i] = gelu(up[i]);
    double *down = ref_linear(r, name[3], up, 1);
    int64_t n_fm = (r->n + 1) / 2;
    for (int64_t i = 0; i < n_fm * d; i++)
        sum[i] += weight * down[i];
    for (int64_t o = 0; o < r->n - n_fm; o++)
        for (int64_t i = 0; i < n_in; i++)
            for (int64_t c = 0; c < d; c++)
                sum[(n_fm + o) * d + c] +=
                    weight * (double)W->value[i * W->cols + o] * x[i * d + c];
}

static double *ref_interact(struct ref *r, const double *X, const double *S)
{
    int64_t d = r->d, n_in = r->n + r->m;
    double *sum = ref_new(r, r->C * r->n * d), *x = ref_new(r, n_in * d);
    for (int64_t c = 0; c < r->C; c++) {
        double *to = sum + c * r->n * d, *gate = NULL;
        memcpy(x, X + c * r->n * d, (size_t)(r->n * d) * sizeof *x);
        memcpy(x + r->n * d, S + c * r->m * d, (size_t)(r->m * d) * sizeof *x);
        memcpy(to, x, (size_t)(r->n * d) * sizeof *x);
        if (r->c->experts > 1)
            gate = ref_linear(r, "experts", x, 1);
        for (int e = 0; e < r->c->experts; e++)
            ref_expert(r, e, x, gate ? sigmoid(gate[e]) : 1, to);
    }
    return ref_norm(r, "experts.norm", sum, r->C * r->n, false);
}

/* (keys, 2d) of one chunk from its gated features (n, d). */
static double *ref_keys(struct ref *r, const double *X)
{
    int64_t d = r->d, wide = 2 * d;
    const struct ek_param *base = ref_param(r, "ffn.base", "");
    double *kv = ref_new(r, r->keys * wide);
    for (int64_t i = 0; i < r->keys * wide; i++)
        kv[i] = (double)base->value[i];
    for (int t = 0; t < 2; t++) {
        const struct ek_param *W = ref_param(r, t ? "ffn.w1" : "ffn.w0", "");
        const struct ek_param *Z = ref_param(r, t ? "ffn.z1" : "ffn.z0", "");
        for (int64_t j = 0; j < r->keys; j++)
            for (int64_t o = 0; o < wide; o++)
                for (int64_t f = 0; f < r->n; f++)
                    for (int64_t k = 0; k < d; k++)
                        kv[j * wide + o] += (double)Z->value[f * Z->cols + j] *
                                            X[f * d + k] *
                                            (double)W->value[k * wide + o];
    }
    return kv;
}

static void ref_feed_forward(struct ref *r, double *x, const double *X)
{
    int64_t d = r->d, D = d / r->c->heads;
    double *seen = ref_gate(r, "ffn.gate", X, r->C * r->n);
    double *q = ref_norm(r, "ffn.norm", x, r->T, false), *o = ref_new(r, r->T * d);
    double *score = ref_new(r, r->keys);
    for (int64_t c = 0; c < r->C; c++) {
        double *kv = ref_keys(r, seen + c * r->n * d);
        for (int64_t t = first_of(r, c); t < first_of(r, c + 1); t++)
            for (int64_t h = 0; h < r->c->heads; h++) {
                for (int64_t j = 0; j < r->keys; j++)
                    score[j] = dot(q + t * d + h * D, kv + j * 2 * d + h * D, D);
                ref_mix(o + t * d + h * D, score, false, kv + d + h * D, 2 * d, r->keys,
                        D);
            }
    }
    for (int64_t i = 0; i < r->T * d; i++)
        o[i] += q[i];
    double *y = ref_norm(r, "ffn.out", o, r->T, true);
    for (int64_t i = 0; i < r->T * d; i++)
        x[i] += y[i];
}

/* --- the click head ----------------------------------------------------------------------- */

static double ref_click(struct ref *r, const double *h, const double *X, int32_t target)
{
    int64_t d = r->d, few = r->n < REF_CONTEXT ? r->n : REF_CONTEXT, n = 2 + few, k = 8;
    const struct ek_param *W = ref_param(r, "context", ""), *P = ref_param(r, "fm", "");
    char part[32];
    memcpy(part, r->part, sizeof part);
    r->part[0] = 0;
    const struct ek_param *items = ref_param(r, "items", "");
    memcpy(r->part, part, sizeof part);
    double *F = ref_new(r, n * d), *fm = ref_new(r, n * k);
    for (int64_t c = 0; c < d; c++) {
        F[c] = h[c];
        if (target >= 0)
            F[d + c] = sqrt((double)d) * (double)items->value[target * d + c];
        for (int64_t o = 0; o < few; o++)
            for (int64_t f = 0; f < r->n; f++)
                F[(2 + o) * d + c] += (double)W->value[f * few + o] * X[f * d + c];
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t l = 0; l < n; l++)
            for (int64_t j = 0; j < k; j++)
                fm[i * k + j] +=
                    dot(F + i * d, F + l * d, d) * (double)P->value[l * k + j];
    double *z = ref_new(r, n * k + n * d + d);
    memcpy(z, ref_norm(r, "fm.norm", fm, 1, false), (size_t)(n * k) * sizeof *z);
    memcpy(z + n * k, F, (size_t)(n * d) * sizeof *z);
    for (int64_t c = 0; c < d; c++)
        z[n * k + n * d + c] = F[c] * F[d + c];
    double *up = ref_linear(r, "up", z, 1);
    for (int64_t i = 0; i < d; i++)
        up[i] = gelu(up[i]);
    return ref_linear(r, "logit", up, 1)[0];
}

/* h (T, d), and logits (T) where the model has a click head. */
static void gem_reference(struct ref *r, double **h, double **logits)
{
    ek_arena_init(&r->arena, (size_t)1 << 28);
    r->T = r->b->T;
    r->d = r->c->dim;
    r->chunk = r->c->chunk ? r->c->chunk : 16;
    r->C = (r->T + r->chunk - 1) / r->chunk;
    r->keys = r->c->ffn ? r->c->ffn : r->d;
    r->m = r->c->seeds + 1;
    r->n = REF_SLOTS;
    for (int i = 0; i < r->s->n_columns; i++)
        r->n += r->s->columns[i].is_user;
    double *x = ref_events(r), *X = ref_features(r);
    for (int i = 0; i < r->c->blocks; i++) {
        (void)snprintf(r->part, sizeof r->part, "block%d", i);
        bool is_attending = !r->c->alternates || i % 2 == 0;
        if (is_attending)
            ref_self_attention(r, x);
        if (r->c->alternates && is_attending && r->c->blocks > 1)
            continue;
        X = ref_interact(r, X, ref_summary(r, x));
        ref_feed_forward(r, x, X);
    }
    (void)snprintf(r->part, sizeof r->part, "output");
    *h = ref_norm(r, "norm", x, r->T, false);
    *logits = ref_new(r, r->T);
    (void)snprintf(r->part, sizeof r->part, "click");
    for (int64_t t = 0; t < r->T && r->c->click_weight > 0; t++)
        (*logits)[t] = ref_click(r, *h + t * r->d, X + t / r->chunk * r->n * r->d,
                                 r->b->targets[t]);
}

#endif
