/* op_compress.c - Y = W^T X + B for each row's X (n features, d columns), W (n,m): a
 * linear layer along the features.
 *
 *   backward  dX = W dY;  dW += X dY^T;  dB += dY
 * Sums over rows are made in parts of rows and joined in their order. */
#include "graph/graph_int.h"
#include "graph/ops.h"

#include <string.h>

enum { X, W, BIAS };

struct dims {
    int64_t n, m, d;
};

static struct dims dims_of(const struct ek_op_run *r)
{
    struct dims s = {.n = r->in[W].rows, .m = r->in[W].cols};
    s.d = r->in[X].cols / s.n;
    return s;
}

static void forward_block(const struct ek_op_run *r, void *arg, int64_t b, int member)
{
    (void)arg;
    (void)member;
    const struct dims s = dims_of(r);
    struct ek_range rows = ek_block(r->in[X].rows, EK_ROW_BLOCK, b);
    for (int64_t i = rows.lo; i < rows.hi; i++) {
        float *y = ek_at(r->out[0], i);
        struct ek_gemm m = {.M = s.m,
                            .N = s.d,
                            .K = s.n,
                            .a = r->in[W].f,
                            .am = 1,
                            .ak = r->in[W].ld,
                            .b = ek_at(r->in[X], i),
                            .ldb = s.d,
                            .c = y,
                            .ldc = s.d};
        r->g->gemm->f32(&m);
        if (r->in[BIAS].f)
            r->g->ops->add(y, y, r->in[BIAS].f, 1.0f, s.m * s.d);
    }
}

static void compress_forward(const struct ek_op_run *r)
{
    ek_blocks(r, forward_block, NULL, ek_n_blocks(r->in[X].rows, EK_ROW_BLOCK));
}

struct back {
    int64_t part_rows;
    float *sums;   /* (parts, n m + m d): of dW, then of dB */
    float *turned; /* (d,m) of each member: dY of a row */
};

static void back_row(const struct ek_op_run *r, const struct dims *s, int64_t i,
                     float *dw, float *turned)
{
    float *dy = ek_at(r->dout[0], i);
    r->g->gemm->pack_f32(turned, s->m, dy, 1, s->d, s->d, s->m);
    struct ek_gemm w = {.M = s->n,
                        .N = s->m,
                        .K = s->d,
                        .a = ek_at(r->in[X], i),
                        .am = s->d,
                        .ak = 1,
                        .b = turned,
                        .ldb = s->m,
                        .c = dw,
                        .ldc = s->m,
                        .is_added = true};
    r->g->gemm->f32(&w);
    if (!r->din[X].f)
        return;
    struct ek_gemm x = {.M = s->n,
                        .N = s->d,
                        .K = s->m,
                        .a = r->in[W].f,
                        .am = r->in[W].ld,
                        .ak = 1,
                        .b = dy,
                        .ldb = s->d,
                        .c = ek_at(r->din[X], i),
                        .ldc = s->d,
                        .is_added = ek_is_added(r, X)};
    r->g->gemm->f32(&x);
}

static void back_part(const struct ek_op_run *r, void *arg, int64_t part, int member)
{
    const struct back *k = arg;
    const struct dims s = dims_of(r);
    struct ek_range rows = ek_block(r->in[X].rows, k->part_rows, part);
    float *dw = k->sums + part * (s.n * s.m + s.m * s.d), *db = dw + s.n * s.m;
    memset(dw, 0, (size_t)(s.n * s.m + s.m * s.d) * sizeof *dw);
    for (int64_t i = rows.lo; i < rows.hi; i++)
        back_row(r, &s, i, dw, k->turned + member * s.d * s.m);
    if (r->din[BIAS].f && rows.hi > rows.lo)
        r->g->ops->col_sum(db, ek_at(r->dout[0], rows.lo), r->dout[0].ld,
                           rows.hi - rows.lo, s.m * s.d);
}

static void compress_backward(const struct ek_op_run *r)
{
    const struct dims s = dims_of(r);
    const int64_t size = s.n * s.m + s.m * s.d;
    struct back k = {.part_rows = (r->in[X].rows + EK_SUM_PARTS - 1) / EK_SUM_PARTS,
                     .sums = r->scratch,
                     .turned = (float *)r->scratch + EK_SUM_PARTS * size};
    if (k.part_rows < 1)
        return;
    int64_t n_parts = ek_n_blocks(r->in[X].rows, k.part_rows);
    ek_blocks(r, back_part, &k, n_parts);
    for (int64_t p = 0; p < n_parts; p++) {
        const float *sum = k.sums + p * size;
        r->g->ops->add(r->din[W].f, r->din[W].f, sum, 1.0f, s.n * s.m);
        if (r->din[BIAS].f)
            r->g->ops->add(r->din[BIAS].f, r->din[BIAS].f, sum + s.n * s.m, 1.0f,
                           s.m * s.d);
    }
}

static size_t compress_scratch(const struct ek_graph *g, int node, bool is_backward)
{
    const struct ek_node *x = &g->nodes[node];
    size_t n = (size_t)g->values[x->in[W]].rows, m = (size_t)g->values[x->in[W]].cols;
    size_t d = (size_t)g->values[x->in[X]].cols / n;
    if (!is_backward)
        return 0;
    return (EK_SUM_PARTS * (n * m + m * d) + (size_t)ek_team_size(g->o.team) * d * m) *
           sizeof(float);
}

static void compress_cost(const struct ek_op_run *r, struct ek_cost *cost)
{
    cost->forward = 2 * r->in[X].rows * r->in[X].cols * r->in[W].cols;
    cost->backward = 2 * cost->forward;
}

static const struct ek_op_class class = {.name = "compress",
                                         .forward = compress_forward,
                                         .backward = compress_backward,
                                         .cost = compress_cost,
                                         .scratch = compress_scratch};

int ek_compress(struct ek_graph *g, int x, int w, int bias)
{
    if (!ek_expect_cols(g, "compress", x, -1, EK_DTYPE_F32) ||
        !ek_expect_param(g, "compress", w, -1, -1))
        return -1;
    const struct ek_value *v = &g->values[x], *p = &g->values[w];
    int64_t cols = v->cols / p->rows * p->cols;
    if (v->cols % p->rows)
        return ek_graph_fail(g, EK_EINVAL,
                             "compress: '%s' has %lld columns, no multiple of %lld "
                             "features",
                             v->name, (long long)v->cols, (long long)p->rows);
    if (bias >= 0 && !ek_expect_param(g, "compress", bias, 1, cols))
        return -1;
    struct ek_node *n = ek_node_add(g, &class, (int[]){x, w, bias}, 3, 1u << BIAS);
    if (!n)
        return -1;
    n->reads_in = 1u << X | 1u << W;
    return ek_node_out(g, x, cols, EK_DTYPE_F32);
}
