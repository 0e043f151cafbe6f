/* graphcases.h - every operation as a case of graphkit.h, and a small model. */
#ifndef EVENKEEL_TESTS_GRAPH_GRAPHCASES_H
#define EVENKEEL_TESTS_GRAPH_GRAPHCASES_H

#include "graphcases_attention.h"

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

static int case_compress(struct kit *k)
{
    int x = kit_x(k, "x", 4 * 6, 1), w = kit_param(k, "w", 4, 3, 1);
    return kit_loss(k, ek_compress(k->g, x, w, kit_param(k, "b", 1, 18, 1)), k->axis,
                    18);
}

/* Rows of seven, often the same one, and none; x is read a second time, so that its
 * gradient is added to. */
static int case_gather(struct kit *k)
{
    int seven = kit_axis(k, "seven", 7);
    int all = kit_input(k, "sevens", seven, 1, EK_DTYPE_I32);
    int some = kit_input(k, "some", k->axis, 1, EK_DTYPE_I32);
    int others = kit_input(k, "targets", k->axis, 1, EK_DTYPE_I32);
    int x = ek_lookup(k->g, kit_param(k, "x", 7, 6, 1), all, 1);
    int y = ek_gather(k->g, ek_scale(k->g, x, 2), some);
    y = ek_mul(k->g, y, ek_gather(k->g, x, others));
    return kit_loss(k, ek_mul(k->g, y, ek_gather(k->g, x, some)), k->axis, 6);
}

/* To rows of their own and back, from a part of a value too. */
static int case_reshape(struct kit *k)
{
    int thirds = ek_graph_axis(k->g, "thirds", 3 * k->n);
    assert_int_equal(ek_graph_set_axis(k->g, thirds, 3 * k->n), 0);
    k->folded = thirds;
    int x = ek_scale(k->g, kit_x(k, "x", 15, 1), 1), w = kit_param(k, "w", 4, 4, 1);
    int part = ek_graph_columns(k->g, x, 2, 12);
    int y = ek_linear(k->g, ek_reshape(k->g, part, thirds, 4), w, -1, EK_ACT_TANH);
    y = ek_reshape(k->g, y, k->axis, 12);
    return kit_loss(k, ek_mul(k->g, y, part), k->axis, 12);
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

static int case_bce(struct kit *k)
{
    int labels = kit_input(k, "labels", k->axis, 1, EK_DTYPE_F32);
    int x = kit_x(k, "x", 3, 1), w = kit_param(k, "w", 3, 1, 1);
    return kit_scalar(k, ek_bce(k->g, ek_linear(k->g, x, w, -1, EK_ACT_NONE), labels));
}

/* Labels between 0 and 1, and none: the weights are negative as often as not. */
static int case_bce_some(struct kit *k)
{
    int labels = kit_input(k, "weights", k->axis, 1, EK_DTYPE_F32);
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
    CASE(compress),
    CASE(gather),
    CASE(reshape),
    CASE(sampled_dot),
    CASE(sampled_cosine),
    CASE(full_dot),
    CASE(full_cosine),
    CASE(attention_causal),
    CASE(attention_block),
    CASE(attention_hstu),
    CASE(rope),
    CASE(block_attention),
    CASE(attention_broadcast),
    CASE(bce),
    CASE(bce_some),
    CASE(model),
};

#endif
