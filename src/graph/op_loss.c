/* op_loss.c - scalars: binary cross-entropy from logits, and the inner product. */
#include "graph/graph_int.h"
#include "graph/ops.h"

#include <math.h>

/* --- bce -------------------------------------------------------------------------- */

/* Rows with a label: those without one have a negative y. */
static int64_t n_labels(const struct ek_op_run *r)
{
    int64_t n = 0;
    for (int64_t i = 0; i < r->in[1].rows; i++)
        n += *ek_at(r->in[1], i) >= 0;
    return n;
}

/* -(y log p + (1-y) log(1-p)) = max(x,0) - x y + log(1 + exp(-|x|)), summed in f64 in
 * the order of rows. */
static void bce_forward(const struct ek_op_run *r)
{
    double sum = 0;
    int64_t n = n_labels(r);
    for (int64_t i = 0; i < r->in[0].rows; i++) {
        double x = (double)*ek_at(r->in[0], i), y = (double)*ek_at(r->in[1], i);
        if (y >= 0)
            sum += (x > 0 ? x : 0) - x * y + log1p(exp(-fabs(x)));
    }
    r->out[0].f[0] = n ? (float)(sum / (double)n) : 0.0f;
}

static void bce_backward(const struct ek_op_run *r)
{
    int64_t n = n_labels(r);
    for (int64_t i = 0; i < r->in[0].rows; i++) {
        double x = (double)*ek_at(r->in[0], i), y = (double)*ek_at(r->in[1], i), d = 0;
        if (y >= 0)
            d = (1 / (1 + exp(-x)) - y) / (double)n * (double)r->dout[0].f[0];
        float *dx = ek_at(r->din[0], i);
        *dx = (ek_is_added(r, 0) ? *dx : 0.0f) + (float)d;
    }
}

static const struct ek_op_class bce_class = {
    .name = "bce", .forward = bce_forward, .backward = bce_backward};

int ek_bce(struct ek_graph *g, int x, int y)
{
    if (!ek_expect_cols(g, "bce", x, 1, EK_DTYPE_F32) ||
        !ek_expect_cols(g, "bce", y, 1, EK_DTYPE_F32) || !ek_same_rows(g, "bce", x, y))
        return -1;
    if (g->values[y].needs_grad || !g->values[x].needs_grad)
        return ek_graph_fail(g, EK_EINVAL, "bce: '%s' must be an input, '%s' made",
                             g->values[y].name, g->values[x].name);
    struct ek_node *n = ek_node_add(g, &bce_class, (int[]){x, y}, 2, 0);
    if (!n)
        return -1;
    n->reads_in = 3;
    return ek_node_out_rows(g, -1, 1, 1, EK_DTYPE_F32);
}

/* --- inner ------------------------------------------------------------------------ */

static void inner_forward(const struct ek_op_run *r)
{
    double sum = 0;
    for (int64_t i = 0; i < r->in[0].rows; i++)
        sum += r->g->ops->dot(ek_at(r->in[0], i), ek_at(r->in[1], i), r->in[0].cols);
    r->out[0].f[0] = (float)sum;
}

static void inner_block(const struct ek_op_run *r, void *arg, int64_t b, int member)
{
    (void)arg;
    (void)member;
    struct ek_range n = ek_block(r->in[0].rows, EK_ROW_BLOCK, b);
    for (int64_t i = n.lo; i < n.hi; i++)
        for (int k = 0; k < 2; k++)
            if (r->din[k].f)
                r->g->ops->mul(ek_at(r->din[k], i), ek_at(r->in[1 - k], i), NULL,
                               r->dout[0].f[0], r->in[0].cols, ek_is_added(r, k));
}

static void inner_backward(const struct ek_op_run *r)
{
    ek_blocks(r, inner_block, NULL, ek_n_blocks(r->in[0].rows, EK_ROW_BLOCK));
}

static const struct ek_op_class inner_class = {
    .name = "inner", .forward = inner_forward, .backward = inner_backward};

int ek_inner(struct ek_graph *g, int a, int b)
{
    if (!ek_expect_cols(g, "inner", a, -1, EK_DTYPE_F32) ||
        !ek_expect_cols(g, "inner", b, g->values[a].cols, EK_DTYPE_F32) ||
        !ek_same_rows(g, "inner", a, b))
        return -1;
    struct ek_node *n = ek_node_add(g, &inner_class, (int[]){a, b}, 2, 0);
    if (!n)
        return -1;
    n->reads_in = 3;
    return ek_node_out_rows(g, -1, 1, 1, EK_DTYPE_F32);
}
