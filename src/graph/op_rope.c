/* op_rope.c - rotary positions on rows of heads: neighbouring columns of a head are
 * turned by an angle of the row's position, and back in backward. Positions are
 * numbers, so that log(1 + time passed) is one, too. Angles are made in f64 in either
 * direction: a table would be N dim floats to keep. */
#include "graph/graph_int.h"
#include "graph/ops.h"
#include "graph/turns.h"

#include <math.h>

enum { X, POSITIONS };

void ek_turns_init(struct ek_turns *t, int64_t D, float base)
{
    t->D = D;
    for (int64_t i = 0; i < D / 2; i++)
        t->inv_freq[i] = pow((double)base, -2.0 * (double)i / (double)D);
}

void ek_turns_row(float *cs, const struct ek_turns *t, float position)
{
    for (int64_t i = 0; i < t->D; i += 2) {
        const double angle = (double)position * t->inv_freq[i / 2];
        cs[i] = (float)cos(angle);
        cs[i + 1] = (float)sin(angle);
    }
}

struct turn {
    struct ek_turns turns;
    bool is_back;  /* by minus the angle, from dy to dx */
    bool is_added; /* to dx */
};

static void turn_row(const struct ek_op_run *r, const struct turn *t, int64_t row)
{
    float cs[EK_JAGGED_DIM_MAX], sign = t->is_back ? -1.0f : 1.0f;
    const float *x = t->is_back ? ek_at(r->dout[0], row) : ek_at(r->in[X], row);
    float *y = t->is_back ? ek_at(r->din[X], row) : ek_at(r->out[0], row);
    const int64_t D = t->turns.D;
    ek_turns_row(cs, &t->turns, *ek_at(r->in[POSITIONS], row));
    for (int64_t h = 0; h < r->out[0].cols; h += D)
        for (int64_t i = 0; i < D; i += 2) {
            const float c = cs[i], d = sign * cs[i + 1];
            float u = x[h + i] * c - x[h + i + 1] * d;
            float v = x[h + i + 1] * c + x[h + i] * d;
            y[h + i] = t->is_added ? y[h + i] + u : u;
            y[h + i + 1] = t->is_added ? y[h + i + 1] + v : v;
        }
}

static void turn_block(const struct ek_op_run *r, void *arg, int64_t b, int member)
{
    (void)member;
    struct ek_range n = ek_block(r->out[0].rows, EK_ROW_BLOCK, b);
    for (int64_t i = n.lo; i < n.hi; i++)
        turn_row(r, arg, i);
}

static void turn(const struct ek_op_run *r, bool is_back)
{
    struct turn t = {.is_back = is_back, .is_added = is_back && ek_is_added(r, X)};
    ek_turns_init(&t.turns, r->node->n[0], r->node->f[0]);
    ek_blocks(r, turn_block, &t, ek_n_blocks(r->out[0].rows, EK_ROW_BLOCK));
}

static void rope_forward(const struct ek_op_run *r)
{
    turn(r, false);
}

static void rope_backward(const struct ek_op_run *r)
{
    turn(r, true);
}

static const struct ek_op_class class = {
    .name = "rope", .forward = rope_forward, .backward = rope_backward};

bool ek_expect_turns(struct ek_graph *g, int v, int positions, int64_t dim, float base)
{
    if (!ek_expect_cols(g, "rope", positions, 1, EK_DTYPE_F32))
        return false;
    if (dim < 2 || dim % 2 || dim > EK_JAGGED_DIM_MAX || g->values[v].cols % dim ||
        !(base > 1.0f) || g->values[positions].needs_grad) {
        ek_graph_fail(g, EK_EINVAL,
                      "rope: heads of %lld columns in '%s' of %lld, base %g; "
                      "expected an even part of at most %d, a base above 1, and "
                      "positions that are an input",
                      (long long)dim, g->values[v].name, (long long)g->values[v].cols,
                      (double)base, EK_JAGGED_DIM_MAX);
        return false;
    }
    return true;
}

int ek_rope(struct ek_graph *g, int x, int positions, int64_t dim, float base)
{
    if (!ek_expect_cols(g, "rope", x, -1, EK_DTYPE_F32) ||
        !ek_expect_turns(g, x, positions, dim, base) ||
        !ek_same_rows(g, "rope", x, positions))
        return -1;
    struct ek_node *n = ek_node_add(g, &class, (int[]){x, positions}, 2, 0);
    if (!n)
        return -1;
    n->n[0] = dim;
    n->f[0] = base;
    n->reads_in = 1u << POSITIONS;
    return ek_node_out(g, x, g->values[x].cols, EK_DTYPE_F32);
}

int ek_block_attention(struct ek_graph *g, int x, int w, int bias, int positions,
                       int offsets, const struct ek_block *o)
{
    const int64_t q = (int64_t)o->heads * o->dim, kv = (int64_t)o->kv_heads * o->dim;
    int z = ek_linear_rope(g, x, w, bias, positions, o->dim, o->base);
    if (!ek_expect_cols(g, "block_attention", z, q + 2 * kv, EK_DTYPE_F32))
        return -1;
    struct ek_attention a = {.heads = o->heads,
                             .kv_heads = o->kv_heads,
                             .dim = o->dim,
                             .score = EK_JAGGED_SOFTMAX,
                             .alpha = 1.0f / sqrtf((float)o->dim),
                             .scale = 1.0f,
                             .mask = {.is_causal = o->is_causal, .block = 64},
                             .out_axis = -1,
                             .pos = -1,
                             .time = -1,
                             .t_query = -1,
                             .t_key = -1,
                             .seq_scale = -1,
                             .targets = -1};
    return ek_jagged_attention(
        g, ek_graph_columns(g, z, 0, q), ek_graph_columns(g, z, q, kv),
        ek_graph_columns(g, z, q + kv, kv), offsets, offsets, &a);
}
