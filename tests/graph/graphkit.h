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
    } names[] = {{"ids", 0},     {"targets", 1}, {"negatives", 0}, {"offsets", 2},
                 {"weights", 3}, {"labels", 4},  {"some", 1}};
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

/* --- the cases ------------------------------------------------------------------------------ */

static inline int linear_act(struct kit *k, enum ek_act act)
{
    int x = kit_x(k, "x", 7, 1), w = kit_param(k, "w", 7, 5, 0.1f);
    int b = kit_param(k, "b", 1, 5, 1);
    if (act == EK_ACT_RELU && b >= 0) /* far from the kink */
        for (int i = 0; i < 5; i++)
            ek_params_get(k->params, ek_params_find(k->params, "b"))->value[i] =
                i % 2 ? 2.0f : -2.0f;
    return kit_loss(k, ek_linear(k->g, x, w, b, act), k->axis, 5);
}

static int case_linear(struct kit *k)
{
    return linear_act(k, EK_ACT_NONE);
}

static int case_linear_relu(struct kit *k)
{
    return linear_act(k, EK_ACT_RELU);
}

static int case_linear_silu(struct kit *k)
{
    return linear_act(k, EK_ACT_SILU);
}

static int case_linear_gelu(struct kit *k)
{
    return linear_act(k, EK_ACT_GELU);
}

static int case_linear_tanh(struct kit *k)
{
    return linear_act(k, EK_ACT_TANH);
}

static int case_linear_wide(struct kit *k)
{
    int x = kit_x(k, "x", 70, 0.5f), w = kit_param(k, "w", 70, 33, 0.3f);
    return kit_loss(k, ek_linear(k->g, x, w, -1, EK_ACT_SIGMOID), k->axis, 33);
}

static int case_activate(struct kit *k)
{
    int x = kit_x(k, "x", 19, 2);
    int y = ek_activate(k->g, ek_activate(k->g, x, EK_ACT_SILU), EK_ACT_TANH);
    return kit_loss(k, y, k->axis, 19);
}

static int case_layer_norm(struct kit *k)
{
    int x = kit_x(k, "x", 21, 1), gain = kit_param(k, "gain", 1, 21, 1);
    int bias = kit_param(k, "bias", 1, 21, 1);
    return kit_loss(k, ek_layer_norm(k->g, x, gain, bias, 1e-3f), k->axis, 21);
}

static int case_layer_norm_plain(struct kit *k)
{
    int x = kit_x(k, "x", 16, 1);
    return kit_loss(k, ek_layer_norm(k->g, x, -1, -1, 1e-3f), k->axis, 16);
}

static int case_rms_norm(struct kit *k)
{
    int x = kit_x(k, "x", 21, 1), gain = kit_param(k, "gain", 1, 21, 1);
    return kit_loss(k, ek_rms_norm(k->g, x, gain, 1e-3f), k->axis, 21);
}

static int case_add_scale(struct kit *k)
{
    int x = kit_x(k, "x", 5, 1), z = kit_x(k, "z", 5, 1);
    int y = ek_add(k->g, ek_scale(k->g, x, 3), z, -0.5f);
    return kit_loss(k, ek_add(k->g, y, x, 2), k->axis, 5); /* x twice: it adds up */
}

static int case_mul(struct kit *k)
{
    int x = kit_x(k, "x", 18, 1), z = kit_x(k, "z", 18, 1);
    int y = ek_mul(k->g, ek_mul(k->g, x, z), kit_x(k, "f", 1, 1));
    return kit_loss(k, ek_mul(k->g, y, y), k->axis, 18); /* a square: both inputs one */
}

static int case_gate(struct kit *k)
{
    int x = kit_x(k, "x", 9, 1), z = kit_x(k, "z", 9, 1);
    return kit_loss(k, ek_gate(k->g, x, z), k->axis, 9);
}

static int case_dropout(struct kit *k)
{
    int x = kit_x(k, "x", 20, 1), z = kit_x(k, "z", 20, 1);
    int y = ek_residual(k->g, x, ek_dropout(k->g, z, 0.25f), 0.5f);
    return kit_loss(k, y, k->axis, 20);
}

static int case_columns(struct kit *k)
{
    int x = ek_scale(k->g, kit_x(k, "x", 12, 1), 1);
    int a = ek_graph_columns(k->g, x, 0, 4), b = ek_graph_columns(k->g, x, 4, 4);
    int y = ek_add(k->g, ek_mul(k->g, a, b), a, 1); /* 8..11 get no gradient */
    return kit_loss(k, y, k->axis, 4);
}

static int case_columns_overlap(struct kit *k)
{
    int x = ek_scale(k->g, kit_x(k, "x", 12, 1), 1);
    int a = ek_graph_columns(k->g, x, 0, 8), b = ek_graph_columns(k->g, x, 4, 8);
    int c = ek_graph_columns(k->g, ek_graph_columns(k->g, x, 2, 10), 1, 8);
    return kit_loss(k, ek_add(k->g, ek_mul(k->g, a, b), c, 1), k->axis, 8);
}

static int case_concat(struct kit *k)
{
    int x = kit_x(k, "x", 3, 1), z = kit_x(k, "z", 5, 1);
    int y = ek_concat(k->g, (int[]){x, z, x}, 3);
    return kit_loss(k, ek_mul(k->g, y, y), k->axis, 11);
}

static int case_lookup(struct kit *k)
{
    int some = kit_input(k, "some", k->axis, 1, EK_DTYPE_I32);
    int table = kit_param(k, "table", 7, 6, 1);
    int y = ek_lookup(k->g, table, some, 3);
    int others = kit_input(k, "targets", k->axis, 1, EK_DTYPE_I32);
    y = ek_mul(k->g, y, ek_lookup(k->g, table, others, 1)); /* two sources, one table */
    return kit_loss(k, y, k->axis, 6);
}

static int bags(struct kit *k, bool is_mean)
{
    int bag_axis = kit_axis(k, "bags", k->n),
        edge_axis = kit_axis(k, "edges", k->n + 1);
    int some = kit_input(k, "some", k->axis, 1, EK_DTYPE_I32);
    int offsets = kit_input(k, "offsets", edge_axis, 1, EK_DTYPE_I64);
    int y =
        ek_bag(k->g, kit_param(k, "table", 7, 6, 1), some, offsets, bag_axis, is_mean);
    return kit_loss(k, ek_mul(k->g, y, y), bag_axis, 6);
}

static int case_bag_sum(struct kit *k)
{
    return bags(k, false);
}

static int case_bag_mean(struct kit *k)
{
    return bags(k, true);
}

static int case_low_rank(struct kit *k)
{
    int x = kit_x(k, "x", 4 * 6, 1), p = kit_param(k, "p", 4, 3, 1);
    return kit_loss(k, ek_low_rank(k->g, x, p, 4), k->axis, 12);
}

static int sampled(struct kit *k, bool is_cosine)
{
    int targets = kit_input(k, "targets", k->axis, 1, EK_DTYPE_I32);
    int negative_axis = kit_axis(k, "negative rows", 5);
    int negatives = kit_input(k, "negatives", negative_axis, 1, EK_DTYPE_I32);
    int h = kit_x(k, "x", 6, 1), table = kit_param(k, "table", 9, 6, 1);
    return kit_scalar(k, ek_sampled_softmax(k->g, h, table, targets, negatives,
                                            &(struct ek_sampled){is_cosine, 0.5f}));
}

static int case_sampled_dot(struct kit *k)
{
    return sampled(k, false);
}

static int case_sampled_cosine(struct kit *k)
{
    return sampled(k, true);
}

static int full(struct kit *k, bool is_cosine)
{
    int targets = kit_input(k, "targets", k->axis, 1, EK_DTYPE_I32);
    int h = kit_x(k, "x", 6, 1), table = kit_param(k, "table", 9, 6, 1);
    return kit_scalar(k, ek_full_softmax(k->g, h, table, targets, 1,
                                         &(struct ek_sampled){is_cosine, 0.5f}));
}

static int case_full_dot(struct kit *k)
{
    return full(k, false);
}

static int case_full_cosine(struct kit *k)
{
    return full(k, true);
}

/* Sequences of 0 to 2 rows and one of all that is left, so that every row has one. */
static int attention(struct kit *k, struct ek_attention o, bool is_split)
{
    int edge_axis = kit_axis(k, "edges", k->n + 1);
    int offsets = kit_input(k, "offsets", edge_axis, 1, EK_DTYPE_I64);
    k->offsets[k->n] = k->n;
    int x = kit_x(k, "x", 3 * 8, 1), q, key, v;
    if (is_split) { /* parts of one value: gradients are set where they belong */
        x = ek_scale(k->g, x, 1);
        q = ek_graph_columns(k->g, x, 0, 8);
        key = ek_graph_columns(k->g, x, 8, 8);
        v = ek_graph_columns(k->g, x, 16, 8);
    } else { /* keys are values too: added to */
        q = kit_x(k, "q", 8, 1);
        key = v = kit_x(k, "kv", 8, 1);
    }
    return kit_loss(k, ek_jagged_attention(k->g, q, key, v, offsets, offsets, &o),
                    k->axis, 8);
}

static const struct ek_attention no_attention = {.heads = 2,
                                                 .kv_heads = 2,
                                                 .dim = 4,
                                                 .alpha = 0.5f,
                                                 .scale = 0.25f,
                                                 .pos = -1,
                                                 .time = -1,
                                                 .t_query = -1,
                                                 .t_key = -1,
                                                 .seq_scale = -1,
                                                 .targets = -1};

static int case_attention_causal(struct kit *k)
{
    struct ek_attention o = no_attention;
    o.mask.is_causal = true;
    return attention(k, o, true);
}

static int case_attention_block(struct kit *k)
{
    struct ek_attention o = no_attention;
    o.mask.block = 64;
    return attention(k, o, false);
}

static int case_attention_hstu(struct kit *k)
{
    struct ek_attention o = no_attention;
    o.score = EK_JAGGED_PHI;
    o.phi = EK_PHI_SILU;
    o.mask.is_causal = true;
    o.pos = kit_param(k, "pos", 1, 2 * k->n + 1, 1);
    return attention(k, o, true);
}

/* GDPA with one set of queries for all sequences. */
static int case_attention_broadcast(struct kit *k)
{
    struct ek_attention o = no_attention;
    int edge_axis = kit_axis(k, "edges", k->n + 1);
    int offsets = kit_input(k, "offsets", edge_axis, 1, EK_DTYPE_I64);
    k->offsets[k->n] = k->n; /* every row belongs to a sequence */
    o.score = EK_JAGGED_PHI;
    o.phi = EK_PHI_GELU_TANH;
    o.is_broadcast_q = true;
    o.out_axis = kit_axis(k, "seeds", 3 * k->n);
    int q = kit_param(k, "q", 3, 8, 1), key = kit_x(k, "k", 8, 1);
    return kit_loss(
        k, ek_jagged_attention(k->g, q, key, kit_x(k, "v", 8, 1), -1, offsets, &o),
        o.out_axis, 8);
}

static int case_bce(struct kit *k)
{
    int labels = kit_input(k, "labels", k->axis, 1, EK_DTYPE_F32);
    int x = kit_x(k, "x", 3, 1), w = kit_param(k, "w", 3, 1, 1);
    return kit_scalar(k, ek_bce(k->g, ek_linear(k->g, x, w, -1, EK_ACT_NONE), labels));
}

/* A block as models have it, two losses, a chain that recomputes through itself. */
static int case_model(struct kit *k)
{
    int labels = kit_input(k, "labels", k->axis, 1, EK_DTYPE_F32);
    int x = ek_dropout(k->g, kit_x(k, "x", 16, 1), 0.1f);
    int n = ek_layer_norm(k->g, x, kit_param(k, "gain", 1, 16, 1), -1, 1e-3f);
    int up = ek_linear(k->g, n, kit_param(k, "up", 16, 32, 0.3f),
                       kit_param(k, "up.bias", 1, 32, 0.3f), EK_ACT_GELU);
    int down = ek_linear(k->g, up, kit_param(k, "down", 32, 16, 0.3f), -1, EK_ACT_NONE);
    int h = ek_residual(k->g, x, down, 0.2f);
    int click = ek_linear(k->g, h, kit_param(k, "click", 16, 1, 1), -1, EK_ACT_NONE);
    int targets = kit_input(k, "targets", k->axis, 1, EK_DTYPE_I32);
    int next = ek_full_softmax(k->g, h, kit_param(k, "items", 9, 16, 1), targets, 1,
                               &(struct ek_sampled){true, 0.5f});
    return kit_scalar(k, ek_add(k->g, next, ek_bce(k->g, click, labels), 0.7f));
}

#define CASE(name)                                                                     \
    {                                                                                  \
#name, case_##name                                                             \
    }

static const struct kit_case kit_cases[] = {
    CASE(linear),
    CASE(linear_relu),
    CASE(linear_silu),
    CASE(linear_gelu),
    CASE(linear_tanh),
    CASE(linear_wide),
    CASE(activate),
    CASE(layer_norm),
    CASE(layer_norm_plain),
    CASE(rms_norm),
    CASE(add_scale),
    CASE(mul),
    CASE(gate),
    CASE(dropout),
    CASE(columns),
    CASE(columns_overlap),
    CASE(concat),
    CASE(lookup),
    CASE(bag_sum),
    CASE(bag_mean),
    CASE(low_rank),
    CASE(sampled_dot),
    CASE(sampled_cosine),
    CASE(full_dot),
    CASE(full_cosine),
    CASE(attention_causal),
    CASE(attention_block),
    CASE(attention_hstu),
    CASE(attention_broadcast),
    CASE(bce),
    CASE(model),
};

#endif
