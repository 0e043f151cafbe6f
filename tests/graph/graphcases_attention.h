/* graphcases_attention.h - the cases of attention, for graphcases.h. */
#ifndef EVENKEEL_TESTS_GRAPH_GRAPHCASES_ATTENTION_H
#define EVENKEEL_TESTS_GRAPH_GRAPHCASES_ATTENTION_H

#include "graphkit.h"

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

/* Places of either sign, and between whole numbers. x is read twice. */
static int case_rope(struct kit *k)
{
    int places = kit_input(k, "places", k->axis, 1, EK_DTYPE_F32);
    int x = kit_x(k, "x", 12, 1);
    int y = ek_rope(k->g, ek_scale(k->g, x, 2), places, 4, 100);
    return kit_loss(k, ek_mul(k->g, y, ek_rope(k->g, x, places, 6, 10)), k->axis, 12);
}

/* x W, rope on all of q, k and v, attention in blocks: grouped heads. */
static int case_block_attention(struct kit *k)
{
    int edge_axis = kit_axis(k, "edges", k->n + 1);
    int offsets = kit_input(k, "offsets", edge_axis, 1, EK_DTYPE_I64);
    int places = kit_input(k, "places", k->axis, 1, EK_DTYPE_F32);
    k->offsets[k->n] = k->n;
    int x = kit_x(k, "x", 6, 1), w = kit_param(k, "w", 6, 16, 0.5f);
    int y = ek_block_attention(
        k->g, x, w, kit_param(k, "b", 1, 16, 0.5f), places, offsets,
        &(struct ek_block){
            .heads = 2, .kv_heads = 1, .dim = 4, .base = 10000, .is_causal = true});
    return kit_loss(k, y, k->axis, 8);
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

#endif
