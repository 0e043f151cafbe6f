/* reckit.h - small models with every parameter random, batches of jagged lengths, and
 * the plain float64 arithmetic that the references are written with. */
#ifndef EVENKEEL_TESTS_REC_RECKIT_H
#define EVENKEEL_TESTS_REC_RECKIT_H

#include "framekit.h"

#include <math.h>
#include <stdio.h>

#define N_ITEMS 23
#define MAX_B   12
#define MAX_T   64
#define MAX_D   16

struct reckit {
    struct ek_team *team;
    struct ek_params *params;
    struct ek_rec *m;
    struct ek_rec_config c;
    struct ek_rec_batch b;
    int64_t offsets[MAX_B + 1];
    int32_t items[MAX_T], targets[MAX_T], negatives[8];
    int64_t times[MAX_T], next_times[MAX_T];
};

static const int64_t rk_lengths[] = {5, 1, 8, 3, 1, 2, 7};

static inline struct ek_rec_config rk_config(enum ek_rec_kind kind)
{
    return (struct ek_rec_config){.kind = kind,
                                  .dim = 8,
                                  .blocks = 2,
                                  .heads = 2,
                                  .ffn = 12,
                                  .max_length = 8,
                                  .loss = EK_REC_SAMPLED,
                                  .negatives = 8,
                                  .temperature = 0.5};
}

static const struct ek_rec_shape rk_shape = {
    .n_items = N_ITEMS, .max_sequences = MAX_B, .max_rows = MAX_T};

/* Sequences [from, to) of the lengths, with the same rows whichever are taken. */
static inline void rk_fill(struct reckit *k, size_t from, size_t to)
{
    struct ek_rng rng;
    int64_t t = 0;
    k->offsets[0] = 0;
    for (size_t s = from; s < to; s++) {
        ek_rng_init(&rng, 100 + s);
        int64_t now = 1000000000 * (int64_t)(s + 1);
        for (int64_t i = 0; i < rk_lengths[s]; i++, t++) {
            k->items[t] = (int32_t)ek_rng_below(&rng, N_ITEMS);
            k->targets[t] = (int32_t)ek_rng_below(&rng, N_ITEMS + 2) - 2;
            k->times[t] = now;
            now += (int64_t)ek_rng_below(&rng, 50) * 700000;
            k->next_times[t] = now;
        }
        k->offsets[s - from + 1] = t;
    }
    for (size_t j = 0; j < COUNT(k->negatives); j++)
        k->negatives[j] = (int32_t)(j * 3);
    k->b = (struct ek_rec_batch){.B = (int64_t)(to - from),
                                 .T = t,
                                 .offsets = k->offsets,
                                 .items = k->items,
                                 .times = k->times,
                                 .next_times = k->next_times,
                                 .targets = k->targets,
                                 .negatives = k->negatives};
}

static inline void rk_open(struct reckit *k, const struct ek_rec_config *c,
                           struct frame_how how)
{
    memset(k, 0, sizeof *k);
    struct frame f = frame_open(c, &rk_shape, how);
    k->c = *c;
    k->team = f.team;
    k->params = f.params;
    k->m = f.m;
    rk_fill(k, 0, COUNT(rk_lengths));
}

static inline void rk_close(struct reckit *k)
{
    frame_close(k->m, k->params, k->team);
}

static inline void rk_forward(struct reckit *k)
{
    frame_forward(k->m, &k->b);
}

static inline const float *rk_h(struct reckit *k)
{
    struct ek_mat h = ek_graph_mat(ek_rec_graph(k->m), ek_rec_h(k->m));
    assert_int_equal(h.ld, k->c.dim);
    assert_int_equal(h.rows, k->b.T);
    return h.f;
}

/* --- float64 ------------------------------------------------------------------------- */

static inline const float *rk_weight(struct reckit *k, const char *part,
                                     const char *name)
{
    char full[64];
    (void)snprintf(full, sizeof full, "%s%s%s", part, part[0] ? "." : "", name);
    int id = ek_params_find(k->params, full);
    if (id < 0)
        fail_msg("no parameter %s", full);
    return ek_params_get(k->params, id)->value;
}

/* y[j] = bias[j] + sum_i x[i] w[i,j] */
static inline void rk_linear(double *y, const double *x, const float *w,
                             const float *bias, int64_t n, int64_t cols)
{
    for (int64_t j = 0; j < cols; j++) {
        y[j] = bias ? (double)bias[j] : 0;
        for (int64_t i = 0; i < n; i++)
            y[j] += x[i] * (double)w[i * cols + j];
    }
}

static inline void rk_norm(double *y, const double *x, const float *gain,
                           const float *bias, int64_t n, double eps)
{
    double mean = 0, square = 0;
    for (int64_t i = 0; i < n; i++)
        mean += x[i] / (double)n;
    for (int64_t i = 0; i < n; i++)
        square += (x[i] - mean) * (x[i] - mean) / (double)n;
    for (int64_t i = 0; i < n; i++)
        y[i] = (x[i] - mean) / sqrt(square + eps) * (gain ? (double)gain[i] : 1) +
               (bias ? (double)bias[i] : 0);
}

static inline double rk_silu(double x)
{
    return x / (1 + exp(-x));
}

/* sqrt(dim) items[id] + positions[t], of one row. */
static inline void rk_embed(struct reckit *k, double *x, int64_t row, int64_t t)
{
    const float *item = rk_weight(k, "", "items") + k->items[row] * k->c.dim;
    const float *place = rk_weight(k, "", "positions") + t * k->c.dim;
    for (int64_t i = 0; i < k->c.dim; i++)
        x[i] = sqrt((double)k->c.dim) * (double)item[i] + (double)place[i];
}

#endif
