/* gem_parts.h - what the float64 reference of gem is made of: parameters by name, linear
 * maps, norms, gates, weighted sums and what goes in, as loops. */
#ifndef EVENKEEL_TESTS_REC_GEM_PARTS_H
#define EVENKEEL_TESTS_REC_GEM_PARTS_H

#include "base/arena.h"
#include "kernel/jagged.h"
#include "rec/gem_int.h"
#include "testkit.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#define REF_SLOTS   4
#define REF_CONTEXT 4

struct ref {
    struct ek_arena arena;
    const struct ek_params *params;
    const struct ek_rec_config *c;
    const struct ek_rec_shape *s;
    const struct ek_rec_batch *b; /* of one sequence */
    char part[32];
    int64_t T, C, d, n, m, chunk, keys;
};

static double *ref_new(struct ref *r, int64_t n)
{
    double *p = ek_arena_calloc(&r->arena, (size_t)n, sizeof *p);
    assert_non_null(p);
    return p;
}

/* The parameter "<part>.<name><more>". */
static const struct ek_param *ref_param(const struct ref *r, const char *name,
                                        const char *more)
{
    char full[96];
    (void)snprintf(full, sizeof full, "%s%s%s%s", r->part, r->part[0] ? "." : "", name,
                   more);
    int id = ek_params_find(r->params, full);
    if (id < 0)
        fail_msg("no parameter '%s'", full);
    return ek_params_get(r->params, id);
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* x (rows, in) w + b -> (rows, out). */
static double *ref_linear(struct ref *r, const char *name, const double *x,
                          int64_t rows)
{
    const struct ek_param *w = ref_param(r, name, ""), *b = ref_param(r, name, ".bias");
    double *y = ref_new(r, rows * w->cols);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t o = 0; o < w->cols; o++) {
            double sum = (double)b->value[o];
            for (int64_t k = 0; k < w->rows; k++)
                sum += x[i * w->rows + k] * (double)w->value[k * w->cols + o];
            y[i * w->cols + o] = sum;
        }
    return y;
}

static double *ref_norm(struct ref *r, const char *name, const double *x, int64_t rows,
                        bool is_rms)
{
    const struct ek_param *gain = ref_param(r, name, ".gain");
    const struct ek_param *bias = is_rms ? NULL : ref_param(r, name, ".bias");
    int64_t C = gain->cols;
    double *y = ref_new(r, rows * C);
    for (int64_t i = 0; i < rows; i++) {
        double mean = 0, square = 0;
        for (int64_t c = 0; c < C && !is_rms; c++)
            mean += x[i * C + c] / (double)C;
        for (int64_t c = 0; c < C; c++)
            square += (x[i * C + c] - mean) * (x[i * C + c] - mean) / (double)C;
        for (int64_t c = 0; c < C; c++)
            y[i * C + c] =
                (x[i * C + c] - mean) / sqrt(square + 1e-5) * (double)gain->value[c] +
                (bias ? (double)bias->value[c] : 0);
    }
    return y;
}

static double *ref_gate(struct ref *r, const char *name, const double *x, int64_t rows)
{
    double *gate = ref_linear(r, name, x, rows);
    for (int64_t i = 0; i < rows * r->d; i++)
        gate[i] = x[i] * sigmoid(gate[i]);
    return gate;
}

/* One query over keys [lo,hi) of a head: scores are given, softmax or not. */
static void ref_mix(double *o, const double *score, bool is_softmax, const double *v,
                    int64_t ldv, int64_t n, int64_t D)
{
    double top = score[0], sum = 0;
    for (int64_t j = 1; j < n; j++)
        top = fmax(top, score[j]);
    for (int64_t j = 0; j < n; j++)
        sum += exp(score[j] - top);
    for (int64_t c = 0; c < D; c++) {
        o[c] = 0;
        for (int64_t j = 0; j < n; j++)
            o[c] += (is_softmax ? exp(score[j] - top) / sum : gelu(score[j])) *
                    v[j * ldv + c];
    }
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* --- input -------------------------------------------------------------------------------- */

static void add_column(struct ref *r, double *x, int i, int64_t row)
{
    const struct ek_rec_column *c = &r->s->columns[i];
    const struct ek_param *w = ref_param(r, "column.", c->name);
    if (c->levels == 0) {
        for (int64_t k = 0; k < r->d; k++)
            x[k] += asinh((double)r->b->columns[i].numbers[row]) * (double)w->value[k];
        return;
    }
    int32_t level = r->b->columns[i].levels[row];
    if (c->levels > w->rows)
        level = ek_gem_row(level, i, (int32_t)w->rows);
    const float *from = w->value + level * w->cols;
    const struct ek_param *up = w->cols < r->d ? ref_param(r, "up.", c->name) : NULL;
    for (int64_t k = 0; k < r->d; k++)
        for (int64_t j = 0; j < w->cols; j++)
            if (up)
                x[k] += (double)from[j] * (double)up->value[j * r->d + k];
            else
                x[k] += j == k ? (double)from[j] : 0;
}

static double *ref_events(struct ref *r)
{
    double *x = ref_new(r, r->T * r->d);
    r->part[0] = 0;
    const struct ek_param *items = ref_param(r, "items", "");
    const struct ek_param *positions = ref_param(r, "positions", "");
    (void)snprintf(r->part, sizeof r->part, "event");
    for (int64_t t = 0; t < r->T; t++) {
        for (int64_t k = 0; k < r->d; k++)
            x[t * r->d + k] =
                sqrt((double)r->d) * (double)items->value[r->b->items[t] * r->d + k] +
                (double)positions->value[t * r->d + k];
        for (int i = 0; i < r->s->n_columns; i++)
            if (!r->s->columns[i].is_user)
                add_column(r, x + t * r->d, i, t);
        int gap =
            t == 0 ? 129
                   : ek_jagged_bucket((r->b->times[t] - r->b->times[t - 1]) / 1000000);
        for (int64_t k = 0; k < r->d && r->c->has_times; k++)
            x[t * r->d + k] += (double)ref_param(r, "gap", "")->value[gap * r->d + k];
    }
    return x;
}

static double *ref_features(struct ref *r)
{
    double *X = ref_new(r, r->C * r->n * r->d);
    (void)snprintf(r->part, sizeof r->part, "user");
    for (int64_t c = 0; c < r->C; c++) {
        double *row = X + c * r->n * r->d;
        for (int64_t k = 0; k < REF_SLOTS * r->d; k++)
            row[k] = (double)ref_param(r, "slots", "")->value[k];
        int64_t at = REF_SLOTS;
        for (int i = 0; i < r->s->n_columns; i++)
            if (r->s->columns[i].is_user)
                add_column(r, row + at++ * r->d, i, 0);
    }
    return X;
}

#endif
