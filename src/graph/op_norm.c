/* op_norm.c - layer and RMS norm over the columns; statistics are kept, x is read
 * again. */
#include "graph/graph_int.h"
#include "graph/ops.h"

#include <string.h>

enum { X, GAIN, BIAS };

static struct ek_norm norm_of(const struct ek_op_run *r, struct ek_range n)
{
    return (struct ek_norm){.N = n.hi - n.lo,
                            .C = r->in[X].cols,
                            .x = ek_at(r->in[X], n.lo),
                            .ldx = r->in[X].ld,
                            .stat = ek_at(r->out[1], n.lo),
                            .gain = r->in[GAIN].f,
                            .bias = r->in[BIAS].f,
                            .eps = r->node->f[0],
                            .is_rms = r->node->flag};
}

static void forward_block(const struct ek_op_run *r, void *arg, int64_t b, int member)
{
    (void)arg;
    (void)member;
    struct ek_range n = ek_block(r->in[X].rows, EK_ROW_BLOCK, b);
    struct ek_norm o = norm_of(r, n);
    r->g->ops->norm(ek_at(r->out[0], n.lo), r->out[0].ld, &o);
}

static void norm_forward(const struct ek_op_run *r)
{
    ek_blocks(r, forward_block, NULL, ek_n_blocks(r->in[X].rows, EK_ROW_BLOCK));
}

struct back {
    int64_t part_rows;
    bool has_sums; /* somebody wants the gradients of gain or bias */
};

/* One part of the rows, block by block: its sums for gain and bias, then its dx, while
 * x and dy are in the cache. */
static void back_part(const struct ek_op_run *r, void *arg, int64_t part, int member)
{
    (void)member;
    const struct back *k = arg;
    int64_t C = r->in[X].cols;
    struct ek_range n = ek_block(r->in[X].rows, k->part_rows, part);
    float *sum = k->has_sums ? (float *)r->scratch + part * 2 * C : NULL;
    if (sum)
        memset(sum, 0, (size_t)C * 2 * sizeof *sum);
    for (int64_t at = n.lo; at < n.hi; at += EK_ROW_BLOCK) {
        struct ek_range x = {at, at + EK_ROW_BLOCK < n.hi ? at + EK_ROW_BLOCK : n.hi};
        struct ek_norm o = norm_of(r, x);
        const float *dy = ek_at(r->dout[0], at);
        if (sum)
            r->g->ops->norm_grad_w(r->din[GAIN].f ? sum : NULL,
                                   r->din[BIAS].f ? sum + C : NULL, dy, r->dout[0].ld,
                                   &o);
        if (r->din[X].f)
            r->g->ops->norm_grad(ek_at(r->din[X], at), r->din[X].ld, dy, r->dout[0].ld,
                                 &o, ek_is_added(r, X));
    }
}

/* Parts are many and small, so that they fall evenly to the team; their sums are
 * short. */
static void norm_backward(const struct ek_op_run *r)
{
    int64_t N = r->in[X].rows, C = r->in[X].cols;
    int64_t blocks = ek_n_blocks(ek_n_blocks(N, EK_ROW_BLOCK), EK_SUM_PARTS);
    struct back k = {.part_rows = (blocks ? blocks : 1) * EK_ROW_BLOCK,
                     .has_sums = r->din[GAIN].f || r->din[BIAS].f};
    int64_t n_parts = ek_n_blocks(N, k.part_rows);
    ek_blocks(r, back_part, &k, n_parts);
    for (int64_t p = 0; k.has_sums && p < n_parts; p++) {
        const float *sum = (const float *)r->scratch + p * 2 * C;
        if (r->din[GAIN].f)
            r->g->ops->add(r->din[GAIN].f, r->din[GAIN].f, sum, 1.0f, C);
        if (r->din[BIAS].f)
            r->g->ops->add(r->din[BIAS].f, r->din[BIAS].f, sum + C, 1.0f, C);
    }
}

static size_t norm_scratch(const struct ek_graph *g, int node, bool is_backward)
{
    const struct ek_node *n = &g->nodes[node];
    if (!is_backward || (n->in[GAIN] < 0 && n->in[BIAS] < 0))
        return 0;
    return (size_t)EK_SUM_PARTS * 2 * (size_t)g->values[n->in[X]].cols * sizeof(float);
}

static const struct ek_op_class layer_class = {.name = "layer_norm",
                                               .forward = norm_forward,
                                               .backward = norm_backward,
                                               .scratch = norm_scratch};
static const struct ek_op_class rms_class = {.name = "rms_norm",
                                             .forward = norm_forward,
                                             .backward = norm_backward,
                                             .scratch = norm_scratch};

static int norm_add(struct ek_graph *g, const struct ek_op_class *class,
                    const int in[3], float eps)
{
    if (!ek_expect_cols(g, class->name, in[X], -1, EK_DTYPE_F32))
        return -1;
    int64_t C = g->values[in[X]].cols;
    for (int k = GAIN; k <= BIAS; k++)
        if (in[k] >= 0 && !ek_expect_param(g, class->name, in[k], 1, C))
            return -1;
    struct ek_node *n = ek_node_add(g, class, in, 3, 1u << GAIN | 1u << BIAS);
    if (!n)
        return -1;
    n->f[0] = eps;
    n->flag = class == &rms_class;
    n->reads_in = 1u << X | 1u << GAIN;
    n->reads_out = 2;
    int y = ek_node_out(g, in[X], C, EK_DTYPE_F32);
    if (y < 0 || ek_node_out(g, in[X], 2, EK_DTYPE_F32) < 0)
        return -1;
    return y;
}

int ek_layer_norm(struct ek_graph *g, int x, int gain, int bias, float eps)
{
    return norm_add(g, &layer_class, (int[]){x, gain, bias}, eps);
}

int ek_rms_norm(struct ek_graph *g, int x, int gain, float eps)
{
    return norm_add(g, &rms_class, (int[]){x, gain, -1}, eps);
}
