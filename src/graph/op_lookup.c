/* op_lookup.c - rows of a table, one by one or summed in bags. The gradient is a list
 * of rows and stays where it is: the output's own gradient, with the ids beside it. */
#include "graph/graph_int.h"
#include "graph/ops.h"

#include <assert.h>
#include <string.h>

enum { TABLE, IDS, OFFSETS };

#define AHEAD 8 /* rows fetched before their turn */

EK_FETCH fetch_row(const struct ek_op_run *r, int64_t i)
{
    if (i >= r->in[IDS].rows || r->in[IDS].i[i] < 0)
        return;
    const float *x = ek_at(r->in[TABLE], r->in[IDS].i[i]);
    for (int64_t c = 0; c < r->in[TABLE].cols; c += 16)
        __builtin_prefetch(x + c);
}

static void lookup_block(const struct ek_op_run *r, void *arg, int64_t b, int member)
{
    (void)arg;
    (void)member;
    struct ek_range n = ek_block(r->out[0].rows, EK_ROW_BLOCK, b);
    const int64_t C = r->out[0].cols;
    for (int64_t i = n.lo; i < n.hi; i++) {
        int32_t id = r->in[IDS].i[i];
        float *y = ek_at(r->out[0], i);
        fetch_row(r, i + AHEAD);
        assert(id < r->in[TABLE].rows);
        if (id < 0)
            memset(y, 0, (size_t)C * sizeof *y);
        else if (r->node->f[0] == 1.0f)
            memcpy(y, ek_at(r->in[TABLE], id), (size_t)C * sizeof *y);
        else
            r->g->ops->mul(y, ek_at(r->in[TABLE], id), NULL, r->node->f[0], C, false);
    }
}

static void lookup_forward(const struct ek_op_run *r)
{
    ek_blocks(r, lookup_block, NULL, ek_n_blocks(r->out[0].rows, EK_ROW_BLOCK));
}

static void lookup_backward(const struct ek_op_run *r)
{
    (void)r; /* whoever updates the table reads the output's gradient */
}

static int lookup_row_grads(const struct ek_op_run *r, struct ek_row_grad *out)
{
    *out = (struct ek_row_grad){.ids = r->in[IDS].i,
                                .grad = r->dout[0].f,
                                .n = r->dout[0].rows,
                                .ld = r->dout[0].ld,
                                .scale = r->node->f[0]};
    return 1;
}

static int64_t lookup_row_ceiling(const struct ek_graph *g, const struct ek_node *n)
{
    return g->values[n->out[0]].rows;
}

static const struct ek_op_class lookup_class = {.name = "lookup",
                                                .forward = lookup_forward,
                                                .backward = lookup_backward,
                                                .row_grads = lookup_row_grads,
                                                .row_ceiling = lookup_row_ceiling};

int ek_lookup(struct ek_graph *g, int table, int ids, float scale)
{
    if (!ek_expect_cols(g, "lookup", ids, 1, EK_DTYPE_I32) ||
        !ek_expect_table(g, "lookup", table, 1))
        return -1;
    struct ek_node *n = ek_node_add(g, &lookup_class, (int[]){table, ids}, 2, 0);
    if (!n)
        return -1;
    n->f[0] = scale;
    n->table = TABLE;
    n->reads_in = 1u << IDS;
    n->keeps_dout = true;
    return ek_node_out(g, ids, g->values[table].cols, EK_DTYPE_F32);
}

/* --- bags ------------------------------------------------------------------------- */

static void bag_block(const struct ek_op_run *r, void *arg, int64_t b, int member)
{
    (void)arg;
    (void)member;
    struct ek_range n = ek_block(r->out[0].rows, EK_ROW_BLOCK, b);
    const int64_t C = r->out[0].cols;
    for (int64_t i = n.lo; i < n.hi; i++) {
        float *y = ek_at(r->out[0], i);
        int64_t lo = r->in[OFFSETS].l[i], hi = r->in[OFFSETS].l[i + 1];
        float s = r->node->flag && hi > lo ? 1.0f / (float)(hi - lo) : 1.0f;
        memset(y, 0, (size_t)C * sizeof *y);
        for (int64_t e = lo; e < hi; e++) {
            int32_t id = r->in[IDS].i[e];
            fetch_row(r, e + AHEAD);
            assert(id < r->in[TABLE].rows);
            r->out[1].i[e] = (int32_t)i;
            if (id >= 0)
                r->g->ops->mul(y, ek_at(r->in[TABLE], id), NULL, s, C, true);
        }
    }
}

static void bag_forward(const struct ek_op_run *r)
{
    assert(r->out[0].rows == 0 || r->in[OFFSETS].l[0] == 0);
    ek_blocks(r, bag_block, NULL, ek_n_blocks(r->out[0].rows, EK_ROW_BLOCK));
}

/* A mean's entries share the gradient: divided once a bag, in its place. */
static void mean_block(const struct ek_op_run *r, void *arg, int64_t b, int member)
{
    (void)arg;
    (void)member;
    struct ek_range n = ek_block(r->dout[0].rows, EK_ROW_BLOCK, b);
    for (int64_t i = n.lo; i < n.hi; i++) {
        int64_t len = r->in[OFFSETS].l[i + 1] - r->in[OFFSETS].l[i];
        float *dy = ek_at(r->dout[0], i);
        if (len > 0)
            r->g->ops->mul(dy, dy, NULL, 1.0f / (float)len, r->dout[0].cols, false);
    }
}

static void bag_backward(const struct ek_op_run *r)
{
    if (r->node->flag)
        ek_blocks(r, mean_block, NULL, ek_n_blocks(r->dout[0].rows, EK_ROW_BLOCK));
}

static int bag_row_grads(const struct ek_op_run *r, struct ek_row_grad *out)
{
    int64_t n_entries = r->in[OFFSETS].l[r->dout[0].rows]; /* the last bag's end */
    *out = (struct ek_row_grad){.ids = r->in[IDS].i,
                                .row_of = r->out[1].i,
                                .grad = r->dout[0].f,
                                .n = n_entries,
                                .ld = r->dout[0].ld,
                                .scale = 1.0f};
    return 1;
}

static int64_t bag_row_ceiling(const struct ek_graph *g, const struct ek_node *n)
{
    return g->values[n->in[IDS]].rows;
}

static const struct ek_op_class bag_class = {.name = "bag",
                                             .forward = bag_forward,
                                             .backward = bag_backward,
                                             .row_grads = bag_row_grads,
                                             .row_ceiling = bag_row_ceiling};

int ek_bag(struct ek_graph *g, int table, int ids, int offsets, int axis, bool is_mean)
{
    if (!ek_expect_cols(g, "bag", ids, 1, EK_DTYPE_I32) ||
        !ek_expect_cols(g, "bag", offsets, 1, EK_DTYPE_I64) ||
        !ek_expect_table(g, "bag", table, 1))
        return -1;
    if (axis < 0 || axis >= g->n_axes)
        return ek_graph_fail(g, EK_EINVAL, "bag: %d is no axis", axis);
    struct ek_node *n = ek_node_add(g, &bag_class, (int[]){table, ids, offsets}, 3, 0);
    if (!n)
        return -1;
    n->flag = is_mean;
    n->table = TABLE;
    n->reads_in = 1u << IDS | 1u << OFFSETS;
    n->reads_out = n->kept_out = 2;
    n->keeps_dout = true;
    int y = ek_node_out_rows(g, axis, 0, g->values[table].cols, EK_DTYPE_F32);
    if (y < 0 || ek_node_out(g, ids, 1, EK_DTYPE_I32) < 0)
        return -1;
    return y;
}
