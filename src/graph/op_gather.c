/* op_gather.c - rows of a value by index, and the same numbers as other rows: how what
 * is known of a sequence or a chunk reaches its tokens, and back. Unlike a look-up's,
 * the gradient goes to the value: equal indices are grouped and summed in order
 * (rows.h). */
#include "graph/graph_int.h"
#include "graph/ops.h"

#include <assert.h>
#include <string.h>

enum { X, IDS };

/* --- gather ----------------------------------------------------------------------- */

static void gather_block(const struct ek_op_run *r, void *arg, int64_t b, int member)
{
    (void)arg;
    (void)member;
    struct ek_range n = ek_block(r->out[0].rows, EK_ROW_BLOCK, b);
    const size_t bytes = (size_t)r->out[0].cols * sizeof(float);
    for (int64_t i = n.lo; i < n.hi; i++) {
        int32_t id = r->in[IDS].i[i];
        assert(id < r->in[X].rows);
        if (id < 0)
            memset(ek_at(r->out[0], i), 0, bytes);
        else
            memcpy(ek_at(r->out[0], i), ek_at(r->in[X], id), bytes);
    }
}

static void gather_forward(const struct ek_op_run *r)
{
    ek_blocks(r, gather_block, NULL, ek_n_blocks(r->out[0].rows, EK_ROW_BLOCK));
}

static void zero_block(const struct ek_op_run *r, void *arg, int64_t b, int member)
{
    (void)arg;
    (void)member;
    struct ek_range n = ek_block(r->din[X].rows, EK_ROW_BLOCK, b);
    for (int64_t i = n.lo; i < n.hi; i++)
        memset(ek_at(r->din[X], i), 0, (size_t)r->din[X].cols * sizeof(float));
}

static void add_row(void *arg, int64_t row, const float *sum)
{
    const struct ek_op_run *r = arg;
    float *dx = ek_at(r->din[X], row);
    r->g->ops->add(dx, dx, sum, 1.0f, r->din[X].cols);
}

static void gather_backward(const struct ek_op_run *r)
{
    if (r->din[X].rows == 0)
        return;
    if (!ek_is_added(r, X))
        ek_blocks(r, zero_block, NULL, ek_n_blocks(r->din[X].rows, EK_ROW_BLOCK));
    struct ek_row_grad source = {.ids = r->in[IDS].i,
                                 .grad = r->dout[0].f,
                                 .n = r->dout[0].rows,
                                 .ld = r->dout[0].ld,
                                 .scale = 1.0f};
    struct ek_rows rows = {.sources = &source,
                           .n_sources = 1,
                           .table_rows = r->din[X].rows,
                           .cols = r->din[X].cols,
                           .scratch = r->scratch,
                           .team = r->g->o.team,
                           .ops = r->g->ops};
    struct ek_op_run run = *r;
    ek_rows_each(&rows, add_row, &run);
}

static size_t gather_scratch(const struct ek_graph *g, int node, bool is_backward)
{
    return is_backward ? ek_rows_bytes(g->values[g->nodes[node].in[IDS]].rows) : 0;
}

static const struct ek_op_class gather_class = {.name = "gather",
                                                .forward = gather_forward,
                                                .backward = gather_backward,
                                                .scratch = gather_scratch};

int ek_gather(struct ek_graph *g, int x, int ids)
{
    if (!ek_expect_cols(g, "gather", x, -1, EK_DTYPE_F32) ||
        !ek_expect_cols(g, "gather", ids, 1, EK_DTYPE_I32))
        return -1;
    const struct ek_value *v = &g->values[x];
    if (v->kind == EK_VALUE_PARAM || v->cols > EK_ROW_COLS)
        return ek_graph_fail(
            g, EK_EINVAL,
            "gather: '%s' has %lld columns; expected a value that is no "
            "parameter, of at most %d",
            v->name, (long long)v->cols, EK_ROW_COLS);
    struct ek_node *n = ek_node_add(g, &gather_class, (int[]){x, ids}, 2, 0);
    if (!n)
        return -1;
    n->reads_in = 1u << IDS;
    return ek_node_out(g, ids, g->values[x].cols, EK_DTYPE_F32);
}

/* --- reshape ---------------------------------------------------------------------- */

/* One wide row is n_parts narrow ones, one after the other. */
struct shape {
    struct ek_mat wide, narrow;
    bool is_to_wide, is_added;
};

static void copy_part(const struct ek_op_run *r, const struct shape *s, float *wide,
                      float *narrow)
{
    float *to = s->is_to_wide ? wide : narrow, *from = s->is_to_wide ? narrow : wide;
    if (s->is_added)
        r->g->ops->add(to, to, from, 1.0f, s->narrow.cols);
    else
        memcpy(to, from, (size_t)s->narrow.cols * sizeof *to);
}

static void reshape_block(const struct ek_op_run *r, void *arg, int64_t b, int member)
{
    (void)member;
    const struct shape *s = arg;
    struct ek_range n = ek_block(s->wide.rows, EK_ROW_BLOCK, b);
    int64_t n_parts = s->wide.cols / s->narrow.cols;
    for (int64_t i = n.lo; i < n.hi; i++)
        for (int64_t k = 0; k < n_parts; k++)
            copy_part(r, s, ek_at(s->wide, i) + k * s->narrow.cols,
                      ek_at(s->narrow, i * n_parts + k));
}

static void reshape(const struct ek_op_run *r, struct ek_mat to, struct ek_mat from,
                    bool is_added)
{
    struct shape s = {.is_to_wide = to.cols > from.cols, .is_added = is_added};
    s.wide = s.is_to_wide ? to : from;
    s.narrow = s.is_to_wide ? from : to;
    assert(to.rows * to.cols == from.rows * from.cols);
    ek_blocks(r, reshape_block, &s, ek_n_blocks(s.wide.rows, EK_ROW_BLOCK));
}

static void reshape_forward(const struct ek_op_run *r)
{
    reshape(r, r->out[0], r->in[X], false);
}

static void reshape_backward(const struct ek_op_run *r)
{
    reshape(r, r->din[X], r->dout[0], ek_is_added(r, X));
}

static const struct ek_op_class reshape_class = {
    .name = "reshape", .forward = reshape_forward, .backward = reshape_backward};

int ek_reshape(struct ek_graph *g, int x, int axis, int64_t cols)
{
    if (!ek_expect_cols(g, "reshape", x, -1, EK_DTYPE_F32))
        return -1;
    const struct ek_value *v = &g->values[x];
    if (axis < 0 || axis >= g->n_axes || cols < 1 ||
        (v->cols % cols && cols % v->cols) ||
        g->axes[axis].max_rows * cols != v->rows * v->cols)
        return ek_graph_fail(
            g, EK_EINVAL,
            "reshape: '%s' (%lld, %lld) to %lld columns: expected a part "
            "or a multiple of them, and an axis of as many numbers",
            v->name, (long long)v->rows, (long long)v->cols, (long long)cols);
    if (!ek_node_add(g, &reshape_class, &x, 1, 0))
        return -1;
    return ek_node_out_rows(g, axis, 0, cols, EK_DTYPE_F32);
}
