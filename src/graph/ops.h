/* ops.h - the operations a model is written with; each adds itself to the graph and
 * returns its value (graph.h: -1 after a fault).
 *
 * N rows of some axis, C columns; parameters are values from ek_graph_param. Each line
 * says what backward reads, which is what a saved value costs.
 *
 * Ids are below the rows of their table; targets too, negatives are not negative
 * besides. That and the first offset are asserted as they are read, nothing is clamped:
 * whoever binds ids from outside has looked at them (rec/bind.c). A table of any
 * operation has at most EK_ROW_COLS columns and EK_ROW_SOURCES sources of gradient rows
 * in a graph.
 */
#ifndef EVENKEEL_GRAPH_OPS_H
#define EVENKEEL_GRAPH_OPS_H

#include "graph/graph.h"
#include "kernel/grad.h"
#include "kernel/jagged.h"

/* y (N,O) = act(x (N,C) w (C,O) + bias (1,O)); bias -1: none. gelu is the tanh form.
 * Backward reads x, w, and y (relu, sigmoid, tanh) or the sum before act (silu, gelu),
 * which then is kept beside y. */
int ek_linear(struct ek_graph *g, int x, int w, int bias, enum ek_act act);

/* y = act(x). Backward reads y (relu, sigmoid, tanh) or x (silu, gelu). */
int ek_activate(struct ek_graph *g, int x, enum ek_act act);

/* y = (x - mean) rstd gain + bias over the columns; gain (1,C) and bias (1,C) may be
 * -1. Backward reads x, and mean and rstd of every row.
 * Source: Ba, Kiros & Hinton 2016; Zhang & Sennrich 2019 for rms, which has no mean. */
int ek_layer_norm(struct ek_graph *g, int x, int gain, int bias, float eps);
int ek_rms_norm(struct ek_graph *g, int x, int gain, float eps);

/* y = a + b, y = a - ... are all `add` with a scale: y = a + scale * b. Reads
 * nothing. */
int ek_add(struct ek_graph *g, int a, int b, float scale);

/* y = a * b elementwise; b (N,C) or (N,1), which multiplies the whole row. Reads
 * both. */
int ek_mul(struct ek_graph *g, int a, int b);

/* y = sigmoid(gate) * x: a gate. Reads both. */
int ek_gate(struct ek_graph *g, int x, int gate);

/* y = s x. */
int ek_scale(struct ek_graph *g, int x, float s);

/* y = x m / (1-p), m in {0,1} with P(m=0) = p; from a counter: nothing is saved. */
int ek_dropout(struct ek_graph *g, int x, float p);

/* y = a + dropout(b, p): the end of a residual branch in one pass. p may be 0. */
int ek_residual(struct ek_graph *g, int a, int b, float p);

/* y = [x0 | x1 | ...], n <= 8. Splitting is ek_graph_columns. */
int ek_concat(struct ek_graph *g, const int *x, int n);

/* y[n] = scale * table[ids[n]]; ids (N,1) i32, a negative one gives zeros. */
int ek_lookup(struct ek_graph *g, int table, int ids, float scale);

/* y[b] = sum or mean of table[ids[e]] for e in [offsets[b], offsets[b+1]); empty: 0.
 * ids (E,1) i32, offsets (B+1,1) i64 from 0, not falling, on an axis of its own; y on
 * `axis` of B rows. */
int ek_bag(struct ek_graph *g, int table, int ids, int offsets, int axis, bool is_mean);

/* Low-rank factorisation interaction of n features of d columns, x (N, n*d) seen as
 * X (n,d) for each row:  Y = X (X^T P), P (n,k), as (N, n*k).
 * Without rank it would be X X^T P' of n*n*d multiplications. Reads x, P.
 * Source: Zhang et al. 2024, "Wukong: Towards a Scaling Law for Large-Scale
 * Recommendation" (the optimised FM). */
int ek_low_rank(struct ek_graph *g, int x, int p, int64_t n_features);

/* A linear layer along the features: Y = W^T X + B, x (N, n*d) seen as X (n,d) for each
 * row, w (n,m), bias (1, m*d) or -1 -> (N, m*d). Reads x, w.
 * Source: Wukong's linear compression; the Z of SumKronLinear, sum_i Z_i^T X W_i. */
int ek_compress(struct ek_graph *g, int x, int w, int bias);

/* y[i] = x[ids[i]] of a value x that is no parameter; ids (N,1) i32, a negative one
 * gives zeros, any may repeat. Reads ids. */
int ek_gather(struct ek_graph *g, int x, int ids);

/* The same numbers in the same order as rows of `cols` on another axis: each row split
 * into its parts, or so many rows joined. A copy. The caller sets both axes so that the
 * numbers are as many. Reads nothing. */
int ek_reshape(struct ek_graph *g, int x, int axis, int64_t cols);

/* Attention on jagged rows (kernel/jagged.h has the formulas): softmax (JFA,
 * BlockAttention), or phi in its place (GDPA, HSTU).
 *
 *   q (Nq, heads*dim), k and v (Nk, kv_heads*dim): columns of one matrix, or not
 *   q_offsets, k_offsets (B+1,1) i64 on an axis of their own
 *   -> (Nq, heads*dim); broadcast_q: q (Lq, ..) is one sequence for all, q_offsets is
 *      -1, and the result has B*Lq rows, on out_axis
 *
 * The last offset is the number of rows: every row belongs to a sequence, or its
 * gradient is not set. What is -1 is absent. pos (1, 2N-1) and time (1,
 * EK_JAGGED_BUCKETS) are parameters added to the scores, shared by heads. Backward
 * reads q, k, v, the result and LSE, all O(rows). Tiles are dealt in a zigzag by their
 * work; the bits depend on none of it. */
struct ek_attention {
    int heads, kv_heads, dim;
    enum ek_jagged_score score;
    float alpha, scale; /* of q.k; of phi */
    enum ek_phi phi;
    struct ek_jagged_mask mask; /* its n_targets is NULL: it comes by `targets` */
    bool is_broadcast_q;
    int out_axis;       /* broadcast_q only */
    int pos, time;      /* parameters */
    int t_query, t_key; /* (Nq,1), (Nk,1) i64, with time */
    int seq_scale;      /* (B,1) f32, multiplies phi: 1/length */
    int targets;        /* (B,1) i32, last rows that are candidates */
};
int ek_jagged_attention(struct ek_graph *g, int q, int k, int v, int q_offsets,
                        int k_offsets, const struct ek_attention *o);

/* Every head (dim columns, even) of x turned by its row's position: (x0, x1) of columns
 * 2i, 2i+1 becomes (x0 cos a - x1 sin a, x1 cos a + x0 sin a), a = position
 * base^(-2i/dim). positions (N,1) f32 is an input: places, or log(1 + time passed).
 * Reads positions. Source: Su et al. 2021, "RoFormer". */
int ek_rope(struct ek_graph *g, int x, int positions, int64_t dim, float base);

/* rope(x w + bias), in one pass and one place: rows are turned where the product left
 * them, and gradients turned back where attention left them. Backward reads x and w,
 * and the (cos, sin) of each row, dim floats, which every head shares. */
int ek_linear_rope(struct ek_graph *g, int x, int w, int bias, int positions,
                   int64_t dim, float base);

/* BlockAttention: z = x w + bias, w (C, (heads + 2 kv_heads) dim); its queries, keys
 * and values turned by positions; softmax attention within blocks of 64 rows counted
 * from the start of each sequence. Two operations, linear_rope and attention, and
 * nothing copied between them. */
struct ek_block {
    int heads, kv_heads, dim;
    float base; /* of rope: 10000 */
    bool is_causal;
};
int ek_block_attention(struct ek_graph *g, int x, int w, int bias, int positions,
                       int offsets, const struct ek_block *o);

/* Mean over the rows whose target is not negative of -log softmax over the positive and
 * R negatives that the whole batch shares:
 *   s+ = e(h, E[pos]) / temperature,  s_j = e(h, E[neg_j]) / temperature
 * e is the dot product, or the cosine. A negative that is the row's target is left out.
 *   h (N,D), table (V,D), targets (N,1) i32, negatives (R,1) i32 -> (1,1)
 * Never holds N x R: logits live a block of rows at a time, and their gradient is
 * formed in the same pass, so backward multiplies by d loss only. */
struct ek_sampled {
    bool is_cosine;
    float temperature; /* > 0 */
};
int ek_sampled_softmax(struct ek_graph *g, int h, int table, int targets, int negatives,
                       const struct ek_sampled *o);

/* The same over all rows of the table from `first` on (0, or 1 where id 0 is nothing),
 * also a block of logits at a time. */
int ek_full_softmax(struct ek_graph *g, int h, int table, int targets, int64_t first,
                    const struct ek_sampled *o);

/* Mean over the rows with y >= 0 of -(y log p + (1-y) log(1-p)), p = sigmoid(x); x
 * (N,1), y (N,1) f32 in [0,1], or negative: no label. */
int ek_bce(struct ek_graph *g, int x, int y);

/* sum of a * b over everything -> (1,1): losses of one's own, and gradient checks. */
int ek_inner(struct ek_graph *g, int a, int b);

/* a + scale * b of two scalars is ek_add: two heads, one loss. */

#endif
