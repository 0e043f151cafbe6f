/* op_low_rank.c - Y = X (X^T P) for each row's X (n features, d columns), P (n,k).
 *
 *   forward   T = X^T P (d,k);  Y = X T
 *   backward  dT = X^T dY;  dX = dY T^T + P dT^T;  dP += X dT
 * T is made again in backward: it costs as much as Y and would be kept d k a row. */
#include "graph/graph_int.h"
#include "graph/ops.h"

#include <string.h>

enum { X, P };

struct dims {
    int64_t n, d, k;
};

static struct dims dims_of(const struct ek_op_run *r)
{
    struct dims s = {.n = r->node->n[0], .k = r->in[P].cols};
    s.d = r->in[X].cols / s.n;
    return s;
}

/* c (M,N) [+]= a b, b and c packed. */
static void multiply(const struct ek_op_run *r, float *c, const float *a, int64_t am,
                     int64_t ak, const float *b, const int64_t mnk[3], bool is_added)
{
    struct ek_gemm m = {.M = mnk[0],
                        .N = mnk[1],
                        .K = mnk[2],
                        .a = a,
                        .am = am,
                        .ak = ak,
                        .b = b,
                        .ldb = mnk[1],
                        .c = c,
                        .ldc = mnk[1],
                        .is_added = is_added};
    r->g->gemm->f32(&m);
}

static void forward_block(const struct ek_op_run *r, void *arg, int64_t b, int member)
{
    (void)arg;
    const struct dims s = dims_of(r);
    struct ek_range rows = ek_block(r->in[X].rows, EK_ROW_BLOCK, b);
    float *t = (float *)r->scratch + member * s.d * s.k;
    for (int64_t i = rows.lo; i < rows.hi; i++) {
        const float *x = ek_at(r->in[X], i);
        multiply(r, t, x, 1, s.d, r->in[P].f, (int64_t[]){s.d, s.k, s.n}, false);
        multiply(r, ek_at(r->out[0], i), x, s.d, 1, t, (int64_t[]){s.n, s.k, s.d},
                 false);
    }
}

static void low_rank_forward(const struct ek_op_run *r)
{
    ek_blocks(r, forward_block, NULL, ek_n_blocks(r->in[X].rows, EK_ROW_BLOCK));
}

struct back {
    int64_t part_rows;
    float *sums; /* (parts, n, k) of dP; then T, dT, turned, for each member */
};

static void back_row(const struct ek_op_run *r, const struct dims *s, int64_t i,
                     float *dp, float *own)
{
    float *t = own, *dt = t + s->d * s->k, *turned = dt + s->d * s->k;
    const float *x = ek_at(r->in[X], i), *dy = ek_at(r->dout[0], i);
    multiply(r, dt, x, 1, s->d, dy, (int64_t[]){s->d, s->k, s->n}, false);
    multiply(r, dp, x, s->d, 1, dt, (int64_t[]){s->n, s->k, s->d}, true);
    if (!r->din[X].f)
        return;
    const int64_t dims[] = {s->n, s->d, s->k};
    multiply(r, t, x, 1, s->d, r->in[P].f, (int64_t[]){s->d, s->k, s->n}, false);
    r->g->gemm->pack_f32(turned, s->d, t, 1, s->k, s->k, s->d);
    multiply(r, ek_at(r->din[X], i), dy, s->k, 1, turned, dims, ek_is_added(r, X));
    r->g->gemm->pack_f32(turned, s->d, dt, 1, s->k, s->k, s->d);
    multiply(r, ek_at(r->din[X], i), r->in[P].f, s->k, 1, turned, dims, true);
}

static void back_part(const struct ek_op_run *r, void *arg, int64_t part, int member)
{
    const struct back *k = arg;
    const struct dims s = dims_of(r);
    struct ek_range rows = ek_block(r->in[X].rows, k->part_rows, part);
    float *dp = k->sums + part * s.n * s.k;
    float *own = k->sums + EK_SUM_PARTS * s.n * s.k + member * 3 * s.d * s.k;
    memset(dp, 0, (size_t)(s.n * s.k) * sizeof *dp);
    for (int64_t i = rows.lo; i < rows.hi; i++)
        back_row(r, &s, i, dp, own);
}

static void low_rank_backward(const struct ek_op_run *r)
{
    struct back k = {.part_rows = (r->in[X].rows + EK_SUM_PARTS - 1) / EK_SUM_PARTS,
                     .sums = r->scratch};
    const struct dims s = dims_of(r);
    if (k.part_rows < 1)
        return;
    int64_t n_parts = ek_n_blocks(r->in[X].rows, k.part_rows);
    ek_blocks(r, back_part, &k, n_parts);
    for (int64_t p = 0; r->din[P].f && p < n_parts; p++)
        r->g->ops->add(r->din[P].f, r->din[P].f, k.sums + p * s.n * s.k, 1.0f,
                       s.n * s.k);
}

static size_t low_rank_scratch(const struct ek_graph *g, int node, bool is_backward)
{
    const struct ek_node *x = &g->nodes[node];
    size_t k = (size_t)g->values[x->in[P]].cols, n = (size_t)x->n[0];
    size_t d = (size_t)g->values[x->in[X]].cols / n;
    size_t members = (size_t)ek_team_size(g->o.team);
    if (!is_backward)
        return members * d * k * sizeof(float);
    return (EK_SUM_PARTS * n * k + members * 3 * d * k) * sizeof(float);
}

static void low_rank_cost(const struct ek_op_run *r, struct ek_cost *cost)
{
    cost->forward = 4 * r->in[X].rows * r->in[X].cols * r->in[P].cols;
    cost->backward = 2 * cost->forward;
}

static const struct ek_op_class class = {.name = "low_rank",
                                         .forward = low_rank_forward,
                                         .backward = low_rank_backward,
                                         .cost = low_rank_cost,
                                         .scratch = low_rank_scratch};

int ek_low_rank(struct ek_graph *g, int x, int p, int64_t n_features)
{
    if (!ek_expect_cols(g, "low_rank", x, -1, EK_DTYPE_F32) ||
        !ek_expect_param(g, "low_rank", p, n_features, -1))
        return -1;
    const struct ek_value *v = &g->values[x];
    if (v->cols % n_features || v->base != x)
        return ek_graph_fail(g, EK_EINVAL,
                             "low_rank: '%s' has %lld columns, no multiple of %lld "
                             "features, or is a part of another value",
                             v->name, (long long)v->cols, (long long)n_features);
    struct ek_node *n = ek_node_add(g, &class, (int[]){x, p}, 2, 0);
    if (!n)
        return -1;
    n->n[0] = n_features;
    n->reads_in = 3;
    return ek_node_out(g, x, n_features * g->values[p].cols, EK_DTYPE_F32);
}
