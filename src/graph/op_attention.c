/* op_attention.c - the attentions of kernel/jagged.h as an operation. The plan of tiles
 * is made in forward and kept beside the result, because backward needs it:
 *
 *   out[2]   ek_jagged_plan | forward tiles | backward tiles | stage_at (B+1)
 *
 * The kernel sets gradients; where one is added to, or nobody wants it, it goes to
 * scratch with the rows of its value and is added from there. */
#include "graph/graph_int.h"
#include "graph/ops.h"

#include <string.h>

enum {
    Q,
    K,
    V,
    Q_OFFSETS,
    K_OFFSETS,
    POS,
    TIME,
    T_QUERY,
    T_KEY,
    SEQ_SCALE,
    TARGETS,
    N_IN
};
enum { O, LSE, PLAN };

static size_t even(size_t n)
{
    return (n + 63) / 64 * 64;
}

/* What the ceilings allow: tiles, stage, batch. */
struct size {
    int64_t B, n_fwd, n_bwd, n_stage;
    size_t fwd_at, bwd_at, stage_at, bytes; /* of out[PLAN] */
};

static struct size size_of(const struct ek_graph *g, const struct ek_node *n,
                           int64_t out_rows)
{
    struct size s = {.B = g->values[n->in[K_OFFSETS]].rows - 1};
    bool has_bias = n->in[POS] >= 0 || n->in[TIME] >= 0;
    ek_jagged_ceiling(&s.n_fwd, &s.n_bwd, &s.n_stage, &n->attention, s.B, out_rows,
                      g->values[n->in[K]].rows, has_bias);
    s.fwd_at = even(sizeof(struct ek_jagged_plan));
    s.bwd_at = s.fwd_at + even((size_t)s.n_fwd * sizeof(struct ek_jagged_tile));
    s.stage_at = s.bwd_at + even((size_t)s.n_bwd * sizeof(struct ek_jagged_tile));
    s.bytes = s.stage_at + even((size_t)(s.B + 1) * sizeof(int64_t));
    return s;
}

struct bound { /* everything a kernel call points at */
    struct ek_jagged_dims d;
    struct ek_jagged_batch batch;
    struct ek_jagged_bias bias;
    struct ek_jagged_args a;
    int64_t one[2]; /* offsets of a broadcast q */
    char *own;      /* scratch of the members */
    size_t own_bytes;
};

static bool has_bias(const struct ek_node *n)
{
    return n->in[POS] >= 0 || n->in[TIME] >= 0;
}

static void bind(struct bound *b, const struct ek_op_run *r)
{
    const struct ek_node *n = r->node;
    *b = (struct bound){.d = n->attention, .one = {0, r->in[Q].rows}};
    b->d.mask.n_targets = n->in[TARGETS] >= 0 ? r->in[TARGETS].i : NULL;
    b->batch = (struct ek_jagged_batch){
        .B = r->in[K_OFFSETS].rows - 1,
        .q_offsets = b->d.is_broadcast_q ? b->one : r->in[Q_OFFSETS].l,
        .k_offsets = r->in[K_OFFSETS].l,
        .seq_scale = n->in[SEQ_SCALE] >= 0 ? r->in[SEQ_SCALE].f : NULL};
    b->bias = (struct ek_jagged_bias){.pos = r->in[POS].f,
                                      .N = (r->in[POS].cols + 1) / 2,
                                      .time = r->in[TIME].f,
                                      .t_query = r->in[T_QUERY].l,
                                      .t_key = r->in[T_KEY].l};
    b->a = (struct ek_jagged_args){
        .d = &b->d,
        .batch = &b->batch,
        .bias = has_bias(n) ? &b->bias : NULL,
        .plan = (const struct ek_jagged_plan *)(const void *)r->out[PLAN].l,
        .q = r->in[Q].f,
        .k = r->in[K].f,
        .v = r->in[V].f,
        .o = r->out[O].f,
        .lse = n->attention.score == EK_JAGGED_SOFTMAX ? r->out[LSE].f : NULL,
        .ldq = r->in[Q].ld,
        .ldk = r->in[K].ld,
        .ldv = r->in[V].ld,
        .ldo = r->out[O].ld};
    b->own = r->scratch;
    b->own_bytes = ek_jagged_scratch_bytes(&b->d);
}

static void make_plan(const struct bound *b, const struct ek_op_run *r)
{
    struct size s = size_of(r->g, r->node, r->g->values[r->node->out[O]].rows);
    char *at = (char *)r->out[PLAN].l;
    struct ek_jagged_plan *plan = (struct ek_jagged_plan *)(void *)at;
    *plan =
        (struct ek_jagged_plan){.fwd = (struct ek_jagged_tile *)(void *)(at + s.fwd_at),
                                .bwd = (struct ek_jagged_tile *)(void *)(at + s.bwd_at),
                                .stage_at = (int64_t *)(void *)(at + s.stage_at),
                                .members = ek_team_size(r->g->o.team)};
    ek_jagged_plan_build(plan, &b->d, &b->batch, has_bias(r->node));
}

struct pass {
    const struct bound *b;
    ek_jagged_fn *fn;
    int64_t n;
};

static void tile_share(void *arg, int member, int n_members)
{
    const struct pass *p = arg;
    void *own = p->b->own + (size_t)member * p->b->own_bytes;
    for (int64_t r = 0, t; (t = ek_jagged_deal(p->n, r, member, n_members)) >= 0; r++)
        p->fn(&p->b->a, t, own);
}

static void attention_forward(const struct ek_op_run *r)
{
    struct bound b;
    if (r->in[K_OFFSETS].rows < 1)
        return;
    bind(&b, r);
    make_plan(&b, r);
    struct pass p = {&b, r->g->kernels->jagged_forward, b.a.plan->n_fwd};
    ek_team_run(r->g->o.team, tile_share, &p);
}

/* --- backward --------------------------------------------------------------------- */

static bool goes_aside(const struct ek_graph *g, const struct ek_node *n, int k,
                       unsigned added)
{
    const struct ek_value *v = &g->values[n->in[k]];
    return !v->needs_grad || v->kind == EK_VALUE_PARAM || (added >> k & 1);
}

/* Floats of one gradient set aside: rows as far apart as the value's. */
static size_t aside_bytes(const struct ek_graph *g, const struct ek_node *n, int k)
{
    const struct ek_value *v = &g->values[n->in[k]];
    return even((size_t)v->rows * (size_t)g->values[v->base].cols * sizeof(float));
}

static size_t attention_scratch(const struct ek_graph *g, int node, bool is_backward)
{
    const struct ek_node *n = &g->nodes[node];
    size_t sum =
        (size_t)ek_team_size(g->o.team) * ek_jagged_scratch_bytes(&n->attention);
    if (!is_backward)
        return sum;
    unsigned added = 0;
    for (int i = g->n_forward; i < g->n_steps; i++)
        if (g->steps[i].phase == EK_PHASE_BACKWARD && g->steps[i].node == node)
            added = g->steps[i].added;
    for (int k = Q; k <= V; k++)
        if (goes_aside(g, n, k, added))
            sum += aside_bytes(g, n, k);
    for (int k = POS; k <= TIME; k++)
        if (n->in[k] >= 0)
            sum += aside_bytes(g, n, k);
    struct size s = size_of(g, n, g->values[n->out[O]].rows);
    return sum + even((size_t)s.n_stage * sizeof(float));
}

static void reduce_share(void *arg, int member, int n_members)
{
    const struct pass *p = arg;
    int64_t lo, hi;
    ek_team_share(&lo, &hi, p->n, 1, member, n_members);
    ek_jagged_reduce(&p->b->a, lo, hi);
}

static void add_aside(const struct ek_op_run *r, int k, const float *from)
{
    struct ek_mat to = r->din[k];
    for (int64_t i = 0; to.f && i < to.rows; i++) {
        float *row = ek_at(to, i);
        r->g->ops->add(row, row, from + i * to.ld, 1.0f, to.cols);
    }
}

static void attention_backward(const struct ek_op_run *r)
{
    struct bound b;
    float *aside[N_IN] = {NULL};
    if (r->in[K_OFFSETS].rows < 1)
        return;
    bind(&b, r);
    char *at = b.own + (size_t)ek_team_size(r->g->o.team) * b.own_bytes;
    for (int k = Q; k <= TIME; k++) {
        bool is_bias = k >= POS;
        if (r->node->in[k] < 0 || k == Q_OFFSETS || k == K_OFFSETS ||
            (!is_bias && !goes_aside(r->g, r->node, k, r->added)))
            continue;
        aside[k] = (float *)(void *)at;
        at += aside_bytes(r->g, r->node, k);
    }
    b.a.d_o = r->dout[O].f;
    b.a.dq = aside[Q] ? aside[Q] : r->din[Q].f;
    b.a.dk = aside[K] ? aside[K] : r->din[K].f;
    b.a.dv = aside[V] ? aside[V] : r->din[V].f;
    b.a.dpos = aside[POS];
    b.a.dtime = aside[TIME];
    b.a.stage = (float *)(void *)at;
    struct pass p = {&b, r->g->kernels->jagged_backward, b.a.plan->n_bwd};
    ek_team_run(r->g->o.team, tile_share, &p);
    p.n = ek_jagged_reduce_units(&b.a);
    ek_team_run(r->g->o.team, reduce_share, &p);
    for (int k = Q; k <= TIME; k++)
        if (aside[k])
            add_aside(r, k, aside[k]);
}

static void attention_cost(const struct ek_op_run *r, struct ek_cost *cost)
{
    const struct ek_jagged_plan *plan =
        (const struct ek_jagged_plan *)(const void *)r->out[PLAN].l;
    cost->forward = 4 * r->node->attention.D * plan->n_pairs;
    cost->backward = 10 * r->node->attention.D * plan->n_pairs;
}

static const struct ek_op_class class = {.name = "attention",
                                         .forward = attention_forward,
                                         .backward = attention_backward,
                                         .cost = attention_cost,
                                         .scratch = attention_scratch};

/* --- building --------------------------------------------------------------------- */

static bool check_optional(struct ek_graph *g, const int *in)
{
    static const struct {
        int k;
        enum ek_dtype type;
    } kinds[] = {{T_QUERY, EK_DTYPE_I64},
                 {T_KEY, EK_DTYPE_I64},
                 {SEQ_SCALE, EK_DTYPE_F32},
                 {TARGETS, EK_DTYPE_I32}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (in[kinds[i].k] >= 0 &&
            !ek_expect_cols(g, "attention", in[kinds[i].k], 1, kinds[i].type))
            return false;
    if (in[SEQ_SCALE] >= 0 && g->values[in[SEQ_SCALE]].needs_grad) {
        ek_graph_fail(g, EK_EINVAL,
                      "attention: '%s' has a gradient: expected a scale of sequences "
                      "that is no function of parameters",
                      g->values[in[SEQ_SCALE]].name);
        return false;
    }
    if (in[POS] >= 0 && !ek_expect_param(g, "attention", in[POS], 1, -1))
        return false;
    if (in[TIME] >= 0 &&
        !ek_expect_param(g, "attention", in[TIME], 1, EK_JAGGED_BUCKETS))
        return false;
    if (in[TIME] >= 0 && (in[T_QUERY] < 0 || in[T_KEY] < 0)) {
        ek_graph_fail(g, EK_EINVAL, "attention: a bias by time without times");
        return false;
    }
    return true;
}

static bool check(struct ek_graph *g, const int *in, const struct ek_attention *o)
{
    if (o->kv_heads < 1 || o->heads < 1 || o->heads % o->kv_heads || o->dim < 1 ||
        o->dim > EK_JAGGED_DIM_MAX) {
        ek_graph_fail(
            g, EK_EINVAL,
            "attention: %d heads over %d of dim %d; expected a multiple, dim 1 "
            "to %d",
            o->heads, o->kv_heads, o->dim, EK_JAGGED_DIM_MAX);
        return false;
    }
    if (!ek_expect_cols(g, "attention", in[Q], o->heads * o->dim, EK_DTYPE_F32) ||
        !ek_expect_cols(g, "attention", in[K], o->kv_heads * o->dim, EK_DTYPE_F32) ||
        !ek_expect_cols(g, "attention", in[V], o->kv_heads * o->dim, EK_DTYPE_F32) ||
        !ek_same_rows(g, "attention", in[K], in[V]) ||
        !ek_expect_cols(g, "attention", in[K_OFFSETS], 1, EK_DTYPE_I64))
        return false;
    if (o->is_broadcast_q && (o->out_axis < 0 || o->out_axis >= g->n_axes)) {
        ek_graph_fail(g, EK_EINVAL, "attention: a broadcast q without an axis of rows");
        return false;
    }
    if (!o->is_broadcast_q &&
        (!ek_expect_cols(g, "attention", in[Q_OFFSETS], 1, EK_DTYPE_I64) ||
         !ek_same_rows(g, "attention", in[Q_OFFSETS], in[K_OFFSETS])))
        return false;
    return check_optional(g, in);
}

static int add_outputs(struct ek_graph *g, const int *in, const struct ek_attention *o)
{
    int cols = o->heads * o->dim, y;
    if (o->is_broadcast_q)
        y = ek_node_out_rows(g, o->out_axis, 0, cols, EK_DTYPE_F32);
    else
        y = ek_node_out(g, in[Q], cols, EK_DTYPE_F32);
    if (y < 0 || ek_node_out(g, y, o->heads, EK_DTYPE_F32) < 0)
        return -1;
    struct size s = size_of(g, &g->nodes[g->n_nodes - 1], g->values[y].rows);
    int plan = ek_node_out_rows(g, -1, 1, (int64_t)(s.bytes / 8), EK_DTYPE_I64);
    if (plan < 0)
        return -1;
    g->values[plan].is_output = true; /* costs are told from it after the step */
    return y;
}

int ek_jagged_attention(struct ek_graph *g, int q, int k, int v, int q_offsets,
                        int k_offsets, const struct ek_attention *o)
{
    const int in[N_IN] = {q,         k,
                          v,         o->is_broadcast_q ? -1 : q_offsets,
                          k_offsets, o->pos,
                          o->time,   o->t_query,
                          o->t_key,  o->seq_scale,
                          o->targets};
    const unsigned all = (1u << N_IN) - 1,
                   needed = 1u << Q | 1u << K | 1u << V | 1u << K_OFFSETS;
    if (!check(g, in, o))
        return -1;
    struct ek_node *n = ek_node_add(g, &class, in, N_IN, all & ~needed);
    if (!n)
        return -1;
    n->attention =
        (struct ek_jagged_dims){.H = o->heads,
                                .K = o->kv_heads,
                                .D = o->dim,
                                .dtype = EK_DTYPE_F32,
                                .products = g->o.is_bf16 ? EK_DTYPE_BF16 : EK_DTYPE_F32,
                                .score = o->score,
                                .alpha = o->alpha,
                                .scale = o->scale,
                                .phi = o->phi,
                                .mask = o->mask,
                                .is_broadcast_q = o->is_broadcast_q};
    n->reads_in = all;
    n->reads_out =
        1u << O | 1u << PLAN | (o->score == EK_JAGGED_SOFTMAX ? 1u << LSE : 0);
    return add_outputs(g, in, o);
}
