/* graphkit.h - one operation at a time as a graph of its own: everything differentiable
 * is a parameter (rows of an axis by looking up 0, 1, 2 ...), and the loss is the inner
 * product of the result with fixed weights, so that its slope is known to be checked. */
#ifndef EVENKEEL_TESTS_GRAPH_GRAPHKIT_H
#define EVENKEEL_TESTS_GRAPH_GRAPHKIT_H

#include "base/rng.h"
#include "graph/graph.h"
#include "graph/ops.h"
#include "testkit.h"

#include <math.h>
#include <stdio.h>

#define KIT_MAX  (1 << 16)
#define COUNT(a) (sizeof(a) / sizeof *(a))

struct kit {
    struct ek_params *params;
    struct ek_team *team;
    struct ek_graph *g;
    int64_t n; /* rows of the axis */
    int axis, ids, y, w;
    int folded;               /* an axis of three times the rows; 0: none */
    int32_t *identity, *ints; /* (KIT_MAX) 0, 1, 2 ...; random below 7, some negative */
    int64_t *offsets;
    float *weights, *unit; /* (KIT_MAX) random; in {0,1} */
};

struct kit_case {
    const char *name;
    int (*build)(struct kit *k);
};

static inline int kit_param(struct kit *k, const char *name, int64_t rows, int64_t cols,
                            float scale)
{
    struct ek_param_spec s = {.name = name,
                              .rows = rows,
                              .cols = cols,
                              .init = EK_INIT_UNIFORM,
                              .scale = scale};
    return ek_graph_param(k->g, &s);
}

/* (n, cols) on the axis, differentiable. */
static inline int kit_x(struct kit *k, const char *name, int64_t cols, float scale)
{
    return ek_lookup(k->g, kit_param(k, name, k->n, cols, scale), k->ids, 1.0f);
}

static inline int kit_input(struct kit *k, const char *name, int axis, int64_t cols,
                            enum ek_dtype type)
{
    return ek_graph_input(k->g, name, axis, cols, type);
}

/* An axis that always has these rows. */
static inline int kit_axis(struct kit *k, const char *name, int64_t rows)
{
    int axis = ek_graph_axis(k->g, name, rows);
    if (axis >= 0)
        assert_int_equal(ek_graph_set_axis(k->g, axis, rows), 0);
    return axis;
}

/* Binds every input by its name: ids, targets and bags are i32, offsets i64. */
static inline void kit_bind(struct kit *k)
{
    static const struct {
        const char *name;
        int kind;
    } names[] = {{"ids", 0},     {"targets", 1}, {"negatives", 0},
                 {"offsets", 2}, {"weights", 3}, {"labels", 4},
                 {"some", 1},    {"sevens", 0},  {"places", 3}};
    for (size_t i = 0; i < COUNT(names); i++) {
        int v = ek_graph_find(k->g, names[i].name);
        const void *p[] = {k->identity, k->ints, k->offsets, k->weights, k->unit};
        if (v >= 0)
            ek_graph_bind(k->g, v, p[names[i].kind]);
    }
}

static inline void kit_fill(struct kit *k)
{
    struct ek_rng rng;
    ek_rng_init(&rng, 11);
    k->identity = ek_alloc_array(KIT_MAX, sizeof *k->identity);
    k->ints = ek_alloc_array(KIT_MAX, sizeof *k->ints);
    k->offsets = ek_alloc_array(KIT_MAX, sizeof *k->offsets);
    k->weights = ek_alloc_array(KIT_MAX, sizeof *k->weights);
    k->unit = ek_alloc_array(KIT_MAX, sizeof *k->unit);
    assert_true(k->identity && k->ints && k->offsets && k->weights && k->unit);
    int64_t at = 0;
    for (int i = 0; i < KIT_MAX; i++) {
        k->identity[i] = i;
        k->ints[i] = (int32_t)ek_rng_below(&rng, 8) - 1;
        k->offsets[i] = at;
        at += (int64_t)ek_rng_below(&rng, 3);
        if (at > k->n)
            at = k->n;
        k->weights[i] = (float)(ek_rng_uniform(&rng) * 2 - 1);
        k->unit[i] = (float)ek_rng_below(&rng, 2);
    }
}

struct kit_options {
    int n_threads;
    bool is_recomputed, is_bf16;
    enum ek_isa isa;
    bool is_training;
};

static inline void kit_open(struct kit *k, const struct kit_case *c, int64_t n,
                            const struct kit_options *o)
{
    struct ek_err err = EK_ERR_INIT;
    *k = (struct kit){.n = n};
    kit_fill(k);
    assert_int_equal(ek_team_new(&k->team, o->n_threads, false, &err), 0);
    assert_int_equal(ek_params_new(&k->params, 5, &err), 0);
    struct ek_graph_options go = {.team = k->team,
                                  .isa = o->isa,
                                  .is_bf16 = o->is_bf16,
                                  .is_training = o->is_training,
                                  .seed = 3};
    assert_int_equal(ek_graph_new(&k->g, k->params, &go, &err), 0);
    k->axis = ek_graph_axis(k->g, "rows", n);
    k->ids = kit_input(k, "ids", k->axis, 1, EK_DTYPE_I32);
    ek_graph_region(k->g, "all");
    k->y = c->build(k);
    if (k->y >= 0) {
        ek_graph_output(k->g, k->y);
        if (o->is_recomputed)
            ek_graph_keep_region(k->g, "all", EK_KEEP_RECOMPUTE);
    }
    if (ek_graph_plan(k->g, &err))
        fail_msg("%s: %s", c->name, err.text);
    kit_bind(k);
}

static inline void kit_close(struct kit *k)
{
    ek_graph_free(k->g);
    ek_params_free(k->params);
    ek_team_free(k->team);
    ek_free(k->identity);
    ek_free(k->ints);
    ek_free(k->offsets);
    ek_free(k->weights);
    ek_free(k->unit);
}

/* Ends a build: y's inner product with the weights is the loss. */
static inline int kit_loss(struct kit *k, int y, int axis, int64_t cols)
{
    int w = kit_input(k, "weights", axis, cols, EK_DTYPE_F32);
    k->w = w;
    ek_graph_loss(k->g, ek_inner(k->g, y, w));
    return y;
}

static inline int kit_scalar(struct kit *k, int loss)
{
    ek_graph_loss(k->g, loss);
    return loss;
}

static inline void kit_forward(struct kit *k)
{
    assert_int_equal(ek_graph_set_axis(k->g, k->axis, k->n), 0);
    if (k->folded)
        assert_int_equal(ek_graph_set_axis(k->g, k->folded, 3 * k->n), 0);
    ek_graph_forward(k->g, 1);
}

/* The loss in f64 from the result as it stands. */
static inline double kit_value(struct kit *k)
{
    struct ek_mat y = ek_graph_mat(k->g, k->y);
    double sum = 0;
    if (!k->w)
        return (double)y.f[0];
    for (int64_t r = 0; r < y.rows; r++)
        for (int64_t c = 0; c < y.cols; c++)
            sum += (double)y.f[r * y.ld + c] * (double)k->weights[r * y.cols + c];
    return sum;
}

#endif
