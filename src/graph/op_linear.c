/* op_linear.c - y = act(x w + bias), or its heads turned by their row's position where
 * they lie. Rows go in blocks; dW is summed over parts of the rows and tiles of its own
 * rows, by shapes alone, and the parts joined in order. */
#include "graph/graph_int.h"
#include "graph/ops.h"
#include "graph/turns.h"

#include <string.h>

#define TILE 32 /* rows of dW that one task makes */

enum { X, W, BIAS, POSITIONS };

struct split { /* how dW's work is cut */
    int64_t n_tiles, part_rows, n_parts;
};

static struct split split_of(int64_t n_rows, int64_t C)
{
    struct split s = {.n_tiles = ek_n_blocks(C, TILE)};
    int64_t most = s.n_tiles >= EK_SUM_PARTS ? 1 : EK_SUM_PARTS / s.n_tiles;
    s.part_rows = ek_sum_rows(n_rows, most);
    s.n_parts = ek_n_blocks(n_rows, s.part_rows);
    return s;
}

struct scratch {
    void *turned;   /* w^T for dx, (O,C); in forward w in bf16 */
    float *sums;    /* (n_parts, C+1, O): parts of dW, then of the bias */
    char *dy_pairs; /* bf16: dy of each part */
    size_t pairs_bytes;
};

static size_t even(size_t n)
{
    return (n + 63) / 64 * 64;
}

/* Most parts any number of rows up to the ceiling is cut into. */
static int64_t most_parts(int64_t n_rows, int64_t C)
{
    int64_t n_tiles = ek_n_blocks(C, TILE);
    int64_t most = n_tiles >= EK_SUM_PARTS ? 1 : EK_SUM_PARTS / n_tiles;
    int64_t by_rows = ek_n_blocks(n_rows, EK_SUM_BLOCK);
    return by_rows < most ? by_rows : most;
}

static size_t linear_scratch(const struct ek_graph *g, int node, bool is_backward)
{
    const struct ek_node *n = &g->nodes[node];
    const struct ek_value *w = &g->values[n->in[W]], *x = &g->values[n->in[X]];
    size_t packed = even(ek_gemm_pack_bytes(w->rows, w->cols, false)) + 64;
    if (!is_backward)
        return g->o.is_bf16 ? packed : 0;
    size_t parts = (size_t)most_parts(x->rows, w->rows);
    size_t pairs = g->o.is_bf16 ? (size_t)(x->rows + (int64_t)parts * 2) / 2 *
                                          (size_t)w->cols * 4 +
                                      parts * 64
                                : 0;
    return packed + even(parts * (size_t)(w->rows + 1) * (size_t)w->cols * 4) + pairs;
}

static struct scratch cut(const struct ek_op_run *r, const struct split *s)
{
    int64_t C = r->in[W].rows, O = r->in[W].cols;
    struct scratch c = {.turned = r->scratch};
    c.sums = (float *)(void *)((char *)r->scratch +
                               even(ek_gemm_pack_bytes(C, O, false)) + 64);
    c.dy_pairs = (char *)(c.sums) +
                 even((size_t)s->n_parts * (size_t)(C + 1) * (size_t)O * sizeof(float));
    c.pairs_bytes = even(ek_gemm_pack_bytes(s->part_rows, O, true));
    return c;
}

/* --- forward ---------------------------------------------------------------------- */

static void pack_w(const struct ek_op_run *r, void *arg, int64_t b, int member)
{
    (void)arg;
    (void)member;
    struct ek_mat w = r->in[W];
    struct ek_range n = ek_block(w.cols, EK_ROW_BLOCK, b);
    r->g->gemm->pack_bf16((uint32_t *)r->scratch + n.lo, w.cols, w.f + n.lo, w.ld, 1,
                          w.rows, n.hi - n.lo);
}

/* What act is given: kept beside y where its slope is told by it (of silu, the sigmoid
 * in its place). */
static struct ek_mat sum_of(const struct ek_op_run *r)
{
    return ek_act_reads_x((enum ek_act)r->node->kind) ? r->out[1] : r->out[0];
}

/* Rows of heads by minus or plus the angles at cs, rows of (cos, sin). */
static void turn_rows(const struct ek_op_run *r, struct ek_mat m, int64_t row,
                      int64_t n, const float *cs)
{
    const int64_t D = r->node->n[0];
    const struct ek_rope rope = {.n_dims = (int)D, .is_interleaved = true, .mscale = 1};
    r->g->kernels->rope(ek_at(m, row), m.ld, cs, &rope, n, m.cols / D, D);
}

static void turn_block(const struct ek_op_run *r, const struct ek_turns *t,
                       struct ek_range n)
{
    for (int64_t i = n.lo; i < n.hi; i++)
        ek_turns_row(ek_at(r->out[1], i), t, *ek_at(r->in[POSITIONS], i));
    turn_rows(r, r->out[0], n.lo, n.hi - n.lo, ek_at(r->out[1], n.lo));
}

/* arg: the turns, or NULL. */
static void forward_block(const struct ek_op_run *r, void *arg, int64_t b, int member)
{
    (void)member;
    struct ek_range n = ek_block(r->in[X].rows, EK_GEMM_BLOCK, b);
    enum ek_act act = (enum ek_act)r->node->kind;
    struct ek_mat to = sum_of(r);
    struct ek_gemm m = {.M = n.hi - n.lo,
                        .N = r->in[W].cols,
                        .K = r->in[W].rows,
                        .a = ek_at(r->in[X], n.lo),
                        .am = r->in[X].ld,
                        .ak = 1,
                        .b = r->g->o.is_bf16 ? r->scratch : (void *)r->in[W].f,
                        .ldb = r->in[W].ld,
                        .c = ek_at(to, n.lo),
                        .ldc = to.ld,
                        .start = r->in[BIAS].f};
    (r->g->o.is_bf16 ? r->g->gemm->bf16 : r->g->gemm->f32)(&m);
    if (act == EK_ACT_SILU)
        r->g->ops->silu(ek_at(r->out[0], n.lo), ek_at(to, n.lo), ek_at(to, n.lo),
                        m.M * m.N);
    else if (act != EK_ACT_NONE)
        r->g->ops->act(ek_at(r->out[0], n.lo), ek_at(to, n.lo), m.M * m.N, act);
    if (arg)
        turn_block(r, arg, n);
}

static void linear_forward(const struct ek_op_run *r)
{
    const int64_t D = r->node->n[0];
    struct ek_turns turns;
    if (D > 0)
        ek_turns_init(&turns, D, r->node->f[0]);
    if (r->g->o.is_bf16)
        ek_blocks(r, pack_w, NULL, ek_n_blocks(r->in[W].cols, EK_ROW_BLOCK));
    ek_blocks(r, forward_block, D > 0 ? &turns : NULL,
              ek_n_blocks(r->in[X].rows, EK_GEMM_BLOCK));
}

/* --- backward --------------------------------------------------------------------- */

struct back {
    struct split split;
    struct scratch s;
    int64_t n_blocks; /* of rows of dx; 0: nobody wants it */
};

/* dz = dy act'(.), in dy's place. */
static void slope_block(const struct ek_op_run *r, void *arg, int64_t b, int member)
{
    (void)arg;
    (void)member;
    struct ek_range n = ek_block(r->dout[0].rows, EK_ROW_BLOCK, b);
    struct ek_mat s = sum_of(r);
    float *dy = ek_at(r->dout[0], n.lo);
    int64_t size = (n.hi - n.lo) * r->dout[0].cols;
    if (r->node->kind == EK_ACT_SILU)
        r->g->ops->silu_grad(dy, ek_at(r->out[0], n.lo), ek_at(s, n.lo), dy, size);
    else
        r->g->ops->act_grad(dy, ek_at(s, n.lo), dy, size, (enum ek_act)r->node->kind);
}

/* dz before it was turned, in its place. */
static void turn_back(const struct ek_op_run *r, void *arg, int64_t b, int member)
{
    (void)arg;
    (void)member;
    float cs[EK_JAGGED_DIM_MAX];
    struct ek_range n = ek_block(r->dout[0].rows, EK_ROW_BLOCK, b);
    for (int64_t i = n.lo; i < n.hi; i++) {
        const float *forth = ek_at(r->out[1], i);
        for (int64_t c = 0; c < r->node->n[0]; c += 2) {
            cs[c] = forth[c];
            cs[c + 1] = -forth[c + 1];
        }
        turn_rows(r, r->dout[0], i, 1, cs);
    }
}

static void pack_turned(const struct ek_op_run *r, void *arg, int64_t b, int member)
{
    (void)member;
    const struct back *k = arg;
    struct ek_mat w = r->in[W];
    struct ek_range n = ek_block(w.rows, EK_ROW_BLOCK, b);
    (r->g->o.is_bf16 ? r->g->gemm->pack_bf16 : r->g->gemm->pack_f32)(
        (float *)k->s.turned + n.lo, w.rows, ek_at(w, n.lo), 1, w.ld, w.cols,
        n.hi - n.lo);
}

static void pack_dy(const struct ek_op_run *r, void *arg, int64_t part, int member)
{
    (void)member;
    const struct back *k = arg;
    struct ek_range n = ek_block(r->dout[0].rows, k->split.part_rows, part);
    r->g->gemm->pack_bf16(k->s.dy_pairs + (size_t)part * k->s.pairs_bytes,
                          r->dout[0].cols, ek_at(r->dout[0], n.lo), r->dout[0].ld, 1,
                          n.hi - n.lo, r->dout[0].cols);
}

static void dx_block(const struct ek_op_run *r, const struct back *k, int64_t b)
{
    struct ek_range n = ek_block(r->dout[0].rows, EK_GEMM_BLOCK, b);
    struct ek_gemm m = {.M = n.hi - n.lo,
                        .N = r->in[W].rows,
                        .K = r->in[W].cols,
                        .a = ek_at(r->dout[0], n.lo),
                        .am = r->dout[0].ld,
                        .ak = 1,
                        .b = k->s.turned,
                        .ldb = r->in[W].rows,
                        .c = ek_at(r->din[X], n.lo),
                        .ldc = r->din[X].ld,
                        .is_added = ek_is_added(r, X)};
    (r->g->o.is_bf16 ? r->g->gemm->bf16 : r->g->gemm->f32)(&m);
}

/* Rows [TILE * tile, ...) of dW over one part of the rows of x; the first tile also
 * sums the bias. */
static void dw_task(const struct ek_op_run *r, const struct back *k, int64_t task)
{
    int64_t tile = task % k->split.n_tiles, part = task / k->split.n_tiles;
    int64_t C = r->in[W].rows, O = r->in[W].cols;
    struct ek_range n = ek_block(r->dout[0].rows, k->split.part_rows, part);
    struct ek_range c = ek_block(C, TILE, tile);
    float *sums = k->s.sums + part * (C + 1) * O;
    struct ek_gemm m = {
        .M = c.hi - c.lo,
        .N = O,
        .K = n.hi - n.lo,
        .a = ek_at(r->in[X], n.lo) + c.lo,
        .am = 1,
        .ak = r->in[X].ld,
        .b = r->g->o.is_bf16 ? (void *)(k->s.dy_pairs + (size_t)part * k->s.pairs_bytes)
                             : (void *)ek_at(r->dout[0], n.lo),
        .ldb = O,
        .c = sums + c.lo * O,
        .ldc = O};
    (r->g->o.is_bf16 ? r->g->gemm->bf16 : r->g->gemm->f32)(&m);
    if (tile == 0 && r->din[BIAS].f) {
        memset(sums + C * O, 0, (size_t)O * sizeof *sums);
        r->g->ops->col_sum(sums + C * O, ek_at(r->dout[0], n.lo), r->dout[0].ld,
                           n.hi - n.lo, O);
    }
}

static void back_task(const struct ek_op_run *r, void *arg, int64_t task, int member)
{
    (void)member;
    const struct back *k = arg;
    if (task < k->n_blocks)
        dx_block(r, k, task);
    else
        dw_task(r, k, task - k->n_blocks);
}

static void join_row(const struct ek_op_run *r, void *arg, int64_t c, int member)
{
    (void)member;
    const struct back *k = arg;
    int64_t C = r->in[W].rows, O = r->in[W].cols;
    float *to = c < C ? ek_at(r->din[W], c) : r->din[BIAS].f;
    for (int64_t part = 0; to && part < k->split.n_parts; part++)
        r->g->ops->add(to, to, k->s.sums + (part * (C + 1) + c) * O, 1.0f, O);
}

static void linear_backward(const struct ek_op_run *r)
{
    int64_t n = r->dout[0].rows;
    struct back k = {.split = split_of(n, r->in[W].rows)};
    k.s = cut(r, &k.split);
    if (r->node->kind != EK_ACT_NONE)
        ek_blocks(r, slope_block, &k, ek_n_blocks(n, EK_ROW_BLOCK));
    if (r->node->n[0] > 0)
        ek_blocks(r, turn_back, &k, ek_n_blocks(n, EK_ROW_BLOCK));
    if (r->din[X].f) {
        k.n_blocks = ek_n_blocks(n, EK_GEMM_BLOCK);
        ek_blocks(r, pack_turned, &k, ek_n_blocks(r->in[W].rows, EK_ROW_BLOCK));
    }
    if (r->g->o.is_bf16)
        ek_blocks(r, pack_dy, &k, k.split.n_parts);
    ek_blocks_of_two(r, back_task, &k, k.n_blocks, k.split.n_parts * k.split.n_tiles);
    ek_blocks(r, join_row, &k, r->in[W].rows + 1);
}

static void linear_cost(const struct ek_op_run *r, struct ek_cost *cost)
{
    cost->forward = 2 * r->in[X].rows * r->in[W].rows * r->in[W].cols;
    cost->backward = 2 * cost->forward;
}

static const struct ek_op_class class = {.name = "linear",
                                         .forward = linear_forward,
                                         .backward = linear_backward,
                                         .cost = linear_cost,
                                         .scratch = linear_scratch};

/* The node without its outputs; NULL after a fault. */
static struct ek_node *add_node(struct ek_graph *g, int x, int w, int bias,
                                int positions)
{
    if (!ek_expect_param(g, "linear", w, -1, -1) ||
        !ek_expect_cols(g, "linear", x, g->values[w].rows, EK_DTYPE_F32) ||
        (bias >= 0 && !ek_expect_param(g, "linear", bias, 1, g->values[w].cols)))
        return NULL;
    struct ek_node *n = ek_node_add(g, &class, (int[]){x, w, bias, positions}, 4,
                                    1u << BIAS | 1u << POSITIONS);
    if (n)
        n->reads_in = 1u << X | 1u << W;
    return n;
}

int ek_linear(struct ek_graph *g, int x, int w, int bias, enum ek_act act)
{
    struct ek_node *n = add_node(g, x, w, bias, -1);
    if (!n)
        return -1;
    const int64_t O = g->values[w].cols;
    n->kind = (int)act;
    n->reads_out = act == EK_ACT_NONE    ? 0
                   : act == EK_ACT_SILU  ? 3u
                   : ek_act_reads_x(act) ? 2u
                                         : 1u;
    int y = ek_node_out(g, x, O, EK_DTYPE_F32);
    if (y >= 0 && ek_act_reads_x(act) && ek_node_out(g, x, O, EK_DTYPE_F32) < 0)
        return -1;
    return y;
}

int ek_linear_rope(struct ek_graph *g, int x, int w, int bias, int positions,
                   int64_t dim, float base)
{
    if (!ek_expect_param(g, "linear", w, -1, -1) ||
        !ek_expect_turns(g, w, positions, dim, base) ||
        !ek_same_rows(g, "rope", x, positions))
        return -1;
    struct ek_node *n = add_node(g, x, w, bias, positions);
    if (!n)
        return -1;
    n->n[0] = dim;
    n->f[0] = base;
    n->reads_out = 2u;
    int y = ek_node_out(g, x, g->values[w].cols, EK_DTYPE_F32);
    return y >= 0 && ek_node_out(g, x, dim, EK_DTYPE_F32) < 0 ? -1 : y;
}
