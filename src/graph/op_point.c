/* op_point.c - elementwise operations and those that only move columns. */
#include "graph/graph_int.h"
#include "graph/ops.h"

#include <string.h>

/* fn does n numbers that stand together, from row on: of one row or, where neither
 * input, output nor gradient is columns of something wider, of a whole block. */
typedef void row_fn(const struct ek_op_run *r, int64_t row, int64_t n);

struct by_rows {
    row_fn *fn;
    bool is_whole; /* blocks at once */
};

static bool is_dense(const struct ek_mat *m, int n)
{
    for (int k = 0; k < n; k++)
        if (m[k].f && m[k].ld != m[k].cols)
            return false;
    return true;
}

static void row_block(const struct ek_op_run *r, void *arg, int64_t b, int member)
{
    (void)member;
    const struct by_rows *o = arg;
    struct ek_range n = ek_block(r->out[0].rows, EK_ROW_BLOCK, b);
    if (o->is_whole)
        o->fn(r, n.lo, (n.hi - n.lo) * r->out[0].cols);
    for (int64_t i = n.lo; !o->is_whole && i < n.hi; i++)
        o->fn(r, i, r->out[0].cols);
}

/* has_parts: rows of one input are narrower than the output's. */
static void by_rows(const struct ek_op_run *r, row_fn *fn, bool has_parts)
{
    struct by_rows o = {fn, !has_parts && is_dense(r->in, r->node->n_in) &&
                                is_dense(r->din, r->node->n_in) &&
                                is_dense(r->out, r->node->n_out) &&
                                is_dense(r->dout, r->node->n_out)};
    ek_blocks(r, row_block, &o, ek_n_blocks(r->out[0].rows, EK_ROW_BLOCK));
}

/* A node of `n_in` f32 inputs of the same rows; out of x's columns. */
static int point_add(struct ek_graph *g, const struct ek_op_class *class, const int *in,
                     int n_in, struct ek_node **out)
{
    for (int k = 0; k < n_in; k++)
        if (!ek_expect_cols(g, class->name, in[k], k ? g->values[in[0]].cols : -1,
                            EK_DTYPE_F32) ||
            !ek_same_rows(g, class->name, in[0], in[k]))
            return -1;
    struct ek_node *n = ek_node_add(g, class, in, n_in, 0);
    if (!n)
        return -1;
    *out = n;
    return ek_node_out(g, in[0], g->values[in[0]].cols, EK_DTYPE_F32);
}

/* --- act -------------------------------------------------------------------------- */

static void act_row(const struct ek_op_run *r, int64_t i, int64_t n)
{
    r->g->ops->act(ek_at(r->out[0], i), ek_at(r->in[0], i), n,
                   (enum ek_act)r->node->kind);
}

static void act_forward(const struct ek_op_run *r)
{
    by_rows(r, act_row, false);
}

static void act_back_row(const struct ek_op_run *r, int64_t i, int64_t n)
{
    enum ek_act act = (enum ek_act)r->node->kind;
    float *dy = ek_at(r->dout[0], i), *dx = ek_at(r->din[0], i);
    const float *s = ek_act_reads_x(act) ? ek_at(r->in[0], i) : ek_at(r->out[0], i);
    bool is_added = ek_is_added(r, 0);
    r->g->ops->act_grad(is_added ? dy : dx, s, dy, n, act);
    if (is_added)
        r->g->ops->add(dx, dx, dy, 1.0f, n);
}

static void act_backward(const struct ek_op_run *r)
{
    by_rows(r, act_back_row, false);
}

static const struct ek_op_class act_class = {
    .name = "activate", .forward = act_forward, .backward = act_backward};

int ek_activate(struct ek_graph *g, int x, enum ek_act act)
{
    struct ek_node *n;
    int y = point_add(g, &act_class, &x, 1, &n);
    if (y < 0)
        return -1;
    n->kind = (int)act;
    n->reads_in = ek_act_reads_x(act);
    n->reads_out = !ek_act_reads_x(act) && act != EK_ACT_NONE;
    return y;
}

/* --- add, scale ------------------------------------------------------------------- */

static void add_row(const struct ek_op_run *r, int64_t i, int64_t n)
{
    r->g->ops->add(ek_at(r->out[0], i), ek_at(r->in[0], i), ek_at(r->in[1], i),
                   r->node->f[0], n);
}

static void add_forward(const struct ek_op_run *r)
{
    by_rows(r, add_row, false);
}

static void add_back_row(const struct ek_op_run *r, int64_t i, int64_t n)
{
    for (int k = 0; k < r->node->n_in; k++)
        if (r->din[k].f)
            r->g->ops->mul(ek_at(r->din[k], i), ek_at(r->dout[0], i), NULL,
                           k ? r->node->f[0] : 1.0f, n, ek_is_added(r, k));
}

static void add_backward(const struct ek_op_run *r)
{
    by_rows(r, add_back_row, false);
}

static const struct ek_op_class add_class = {
    .name = "add", .forward = add_forward, .backward = add_backward};

int ek_add(struct ek_graph *g, int a, int b, float scale)
{
    struct ek_node *n;
    int y = point_add(g, &add_class, (int[]){a, b}, 2, &n);
    if (y >= 0)
        n->f[0] = scale;
    return y;
}

static void scale_row(const struct ek_op_run *r, int64_t i, int64_t n)
{
    r->g->ops->mul(ek_at(r->out[0], i), ek_at(r->in[0], i), NULL, r->node->f[0], n,
                   false);
}

static void scale_forward(const struct ek_op_run *r)
{
    by_rows(r, scale_row, false);
}

static void scale_back_row(const struct ek_op_run *r, int64_t i, int64_t n)
{
    r->g->ops->mul(ek_at(r->din[0], i), ek_at(r->dout[0], i), NULL, r->node->f[0], n,
                   ek_is_added(r, 0));
}

static void scale_backward(const struct ek_op_run *r)
{
    by_rows(r, scale_back_row, false);
}

static const struct ek_op_class scale_class = {
    .name = "scale", .forward = scale_forward, .backward = scale_backward};

int ek_scale(struct ek_graph *g, int x, float s)
{
    struct ek_node *n;
    int y = point_add(g, &scale_class, &x, 1, &n);
    if (y >= 0)
        n->f[0] = s;
    return y;
}

/* --- mul, gate -------------------------------------------------------------------- */

static void mul_row(const struct ek_op_run *r, int64_t i, int64_t n)
{
    float *y = ek_at(r->out[0], i), *a = ek_at(r->in[0], i), *b = ek_at(r->in[1], i);
    if (r->node->flag) /* one factor a row */
        r->g->ops->mul(y, a, NULL, b[0], n, false);
    else
        r->g->ops->mul(y, a, b, 1.0f, n, false);
}

static void mul_forward(const struct ek_op_run *r)
{
    by_rows(r, mul_row, r->node->flag);
}

static void mul_back_row(const struct ek_op_run *r, int64_t i, int64_t n)
{
    const struct ek_grad_ops *ops = r->g->ops;
    float *dy = ek_at(r->dout[0], i);
    const float *a = ek_at(r->in[0], i), *b = ek_at(r->in[1], i);
    if (r->din[0].f)
        ops->mul(ek_at(r->din[0], i), dy, r->node->flag ? NULL : b,
                 r->node->flag ? b[0] : 1.0f, n, ek_is_added(r, 0));
    if (!r->din[1].f)
        return;
    float *db = ek_at(r->din[1], i);
    if (r->node->flag)
        db[0] = (ek_is_added(r, 1) ? db[0] : 0.0f) + (float)ops->dot(dy, a, n);
    else
        ops->mul(db, dy, a, 1.0f, n, ek_is_added(r, 1));
}

static void mul_backward(const struct ek_op_run *r)
{
    by_rows(r, mul_back_row, r->node->flag);
}

static const struct ek_op_class mul_class = {
    .name = "mul", .forward = mul_forward, .backward = mul_backward};

int ek_mul(struct ek_graph *g, int a, int b)
{
    if (!ek_expect_cols(g, "mul", a, -1, EK_DTYPE_F32) ||
        !ek_expect_cols(g, "mul", b, -1, EK_DTYPE_F32) || !ek_same_rows(g, "mul", a, b))
        return -1;
    bool is_factor = g->values[b].cols == 1 && g->values[a].cols > 1;
    if (!is_factor && !ek_expect_cols(g, "mul", b, g->values[a].cols, EK_DTYPE_F32))
        return -1;
    struct ek_node *n = ek_node_add(g, &mul_class, (int[]){a, b}, 2, 0);
    if (!n)
        return -1;
    n->flag = is_factor;
    n->reads_in = 3;
    return ek_node_out(g, a, g->values[a].cols, EK_DTYPE_F32);
}

int ek_gate(struct ek_graph *g, int x, int gate)
{
    return ek_mul(g, x, ek_activate(g, gate, EK_ACT_SIGMOID));
}

/* --- dropout, residual ------------------------------------------------------------ */

static bool is_dropping(const struct ek_op_run *r)
{
    return r->g->o.is_training && r->node->f[0] > 0.0f;
}

/* y [+]= x dropped, from row i on: elements are counted over the whole value. */
static void drop_row(const struct ek_op_run *r, float *y, const float *x, int64_t i,
                     int64_t n, bool is_added)
{
    if (is_dropping(r))
        r->g->ops->dropout(y, x, n, r->key, i * r->out[0].cols, r->node->f[0],
                           is_added);
    else
        r->g->ops->mul(y, x, NULL, 1.0f, n, is_added);
}

static void dropout_row(const struct ek_op_run *r, int64_t i, int64_t n)
{
    drop_row(r, ek_at(r->out[0], i), ek_at(r->in[0], i), i, n, false);
}

static void dropout_forward(const struct ek_op_run *r)
{
    by_rows(r, dropout_row, false);
}

static void dropout_back_row(const struct ek_op_run *r, int64_t i, int64_t n)
{
    drop_row(r, ek_at(r->din[0], i), ek_at(r->dout[0], i), i, n, ek_is_added(r, 0));
}

static void dropout_backward(const struct ek_op_run *r)
{
    by_rows(r, dropout_back_row, false);
}

static const struct ek_op_class dropout_class = {
    .name = "dropout", .forward = dropout_forward, .backward = dropout_backward};

static bool is_share(struct ek_graph *g, const char *op, float p)
{
    if (!(p >= 0.0f && p < 1.0f))
        ek_graph_fail(g, EK_EINVAL, "%s: %g is no share to drop; expected [0,1)", op,
                      (double)p);
    return p >= 0.0f && p < 1.0f;
}

int ek_dropout(struct ek_graph *g, int x, float p)
{
    struct ek_node *n;
    if (!is_share(g, "dropout", p))
        return -1;
    int y = point_add(g, &dropout_class, &x, 1, &n);
    if (y >= 0)
        n->f[0] = p;
    return y;
}

static void residual_row(const struct ek_op_run *r, int64_t i, int64_t n)
{
    float *y = ek_at(r->out[0], i);
    memcpy(y, ek_at(r->in[0], i), (size_t)n * sizeof *y);
    drop_row(r, y, ek_at(r->in[1], i), i, n, true);
}

static void residual_forward(const struct ek_op_run *r)
{
    by_rows(r, residual_row, false);
}

static void residual_back_row(const struct ek_op_run *r, int64_t i, int64_t n)
{
    if (r->din[0].f)
        r->g->ops->mul(ek_at(r->din[0], i), ek_at(r->dout[0], i), NULL, 1.0f, n,
                       ek_is_added(r, 0));
    if (r->din[1].f)
        drop_row(r, ek_at(r->din[1], i), ek_at(r->dout[0], i), i, n, ek_is_added(r, 1));
}

static void residual_backward(const struct ek_op_run *r)
{
    by_rows(r, residual_back_row, false);
}

static const struct ek_op_class residual_class = {
    .name = "residual", .forward = residual_forward, .backward = residual_backward};

int ek_residual(struct ek_graph *g, int a, int b, float p)
{
    struct ek_node *n;
    if (!is_share(g, "residual", p))
        return -1;
    int y = point_add(g, &residual_class, (int[]){a, b}, 2, &n);
    if (y >= 0)
        n->f[0] = p;
    return y;
}

#define CONCAT_MAX 8

/* --- concat ----------------------------------------------------------------------- */

static void concat_row(const struct ek_op_run *r, int64_t i, int64_t n)
{
    (void)n;
    float *y = ek_at(r->out[0], i);
    for (int k = 0; k < r->node->n_in; k++) {
        memcpy(y, ek_at(r->in[k], i), (size_t)r->in[k].cols * sizeof *y);
        y += r->in[k].cols;
    }
}

static void concat_forward(const struct ek_op_run *r)
{
    by_rows(r, concat_row, true);
}

static void concat_back_row(const struct ek_op_run *r, int64_t i, int64_t n)
{
    (void)n;
    const float *dy = ek_at(r->dout[0], i);
    for (int k = 0; k < r->node->n_in; k++) {
        if (r->din[k].f)
            r->g->ops->mul(ek_at(r->din[k], i), dy, NULL, 1.0f, r->in[k].cols,
                           ek_is_added(r, k));
        dy += r->in[k].cols;
    }
}

static void concat_backward(const struct ek_op_run *r)
{
    by_rows(r, concat_back_row, true);
}

static const struct ek_op_class concat_class = {
    .name = "concat", .forward = concat_forward, .backward = concat_backward};

int ek_concat(struct ek_graph *g, const int *x, int n_x)
{
    int64_t cols = 0;
    if (n_x < 1 || n_x > CONCAT_MAX)
        return ek_graph_fail(g, EK_EINVAL, "concat: %d inputs; expected 1 to %d", n_x,
                             CONCAT_MAX);
    for (int k = 0; k < n_x; k++) {
        if (!ek_expect_cols(g, "concat", x[k], -1, EK_DTYPE_F32) ||
            !ek_same_rows(g, "concat", x[0], x[k]))
            return -1;
        cols += g->values[x[k]].cols;
    }
    if (!ek_node_add(g, &concat_class, x, n_x, 0))
        return -1;
    return ek_node_out(g, x[0], cols, EK_DTYPE_F32);
}
