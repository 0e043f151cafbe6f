/* hstu.c - hierarchical sequential transduction units: pointwise attention in place of
 * softmax, gated by u.
 *
 *   [u v q k] = silu(LN(x) W)                        W (d, 2 h dv + 2 h dqk), N(0, 0.02)
 *   A_ij = silu(q_i.k_j + pos[j-i] + time[bucket(t_{i+1} - t_j)]) / n      j <= i
 *   x' = x + drop(u * LN(A v)) Wo + bo               Wo xavier uniform
 *
 * LN has no gain and no bias; the second runs over all heads together. n is the padded
 * length of the published code, or the sequence's own. A score looks at the time of the
 * row behind its query: when what is predicted will happen is known. Published code
 * computes no 1/sqrt(dqk).
 *
 * Source: Zhai et al. 2024, arXiv 2402.17152, and the authors' published recipe. */
#include "rec/model_int.h"

#include <math.h>

#define EPS 1e-6f

static int check(const struct ek_rec_config *c, const struct ek_rec_shape *s,
                 struct ek_err *err)
{
    if (c->dim_qk != c->dim_v)
        return ek_err_set(err, EK_EINVAL,
                          "dim_qk: %lld beside dim_v %lld; expected equal widths",
                          (long long)c->dim_qk, (long long)c->dim_v);
    if (c->has_times && s->lacks_times)
        return ek_err_set(err, EK_EINVAL,
                          "times: a bias by time, but the data has no times; expected "
                          "false, or a log with timestamps");
    return 0;
}

/* The learned biases of one block's scores. */
static void add_bias(struct ek_rec *m, struct ek_attention *o)
{
    int64_t N = m->c.max_length + EK_REC_EXTRA;
    o->pos = ek_rec_param(m, "bias.position", 1, 2 * N - 1, EK_INIT_NORMAL, 0.02f);
    if (!m->c.has_times)
        return;
    o->time = ek_rec_param(m, "bias.time", 1, EK_JAGGED_BUCKETS, EK_INIT_NORMAL, 0.02f);
    o->t_query = m->next_times;
    o->t_key = m->times;
}

static int attention(struct ek_rec *m, int q, int k, int v)
{
    const struct ek_rec_config *c = &m->c;
    struct ek_attention o = ek_rec_attention(c->heads, c->dim_qk);
    o.score = EK_JAGGED_PHI;
    o.phi = EK_PHI_SILU;
    o.alpha = 1.0f;
    o.mask.is_causal = true;
    if (c->norm == EK_REC_LENGTH)
        o.seq_scale = m->per_row;
    else
        o.scale = 1.0f / (float)(c->max_length + EK_REC_EXTRA);
    add_bias(m, &o);
    return ek_jagged_attention(m->g, q, k, v, m->offsets, m->offsets, &o);
}

static int block(struct ek_rec *m, int x)
{
    struct ek_graph *g = m->g;
    const struct ek_rec_config *c = &m->c;
    int64_t d = c->dim, V = c->heads * c->dim_v, Q = c->heads * c->dim_qk;
    int w = ek_rec_param(m, "uvqk", d, 2 * V + 2 * Q, EK_INIT_NORMAL, 0.02f);
    int uvqk = ek_linear(g, ek_layer_norm(g, x, -1, -1, EPS), w, -1, EK_ACT_SILU);
    int u = ek_graph_columns(g, uvqk, 0, V), v = ek_graph_columns(g, uvqk, V, V);
    int q = ek_graph_columns(g, uvqk, 2 * V, Q);
    int k = ek_graph_columns(g, uvqk, 2 * V + Q, Q);
    int y = ek_mul(g, u, ek_layer_norm(g, attention(m, q, k, v), -1, -1, EPS));
    if (c->dropout > 0)
        y = ek_dropout(g, y, (float)c->dropout);
    int out = ek_rec_param(m, "out", V, d, EK_INIT_XAVIER_UNIFORM, 1.0f);
    int bias = ek_rec_bias(m, "out", d, 1.0f / sqrtf((float)V));
    return ek_add(g, x, ek_linear(g, y, out, bias, EK_ACT_NONE), 1.0f);
}

static int build(struct ek_rec *m)
{
    int x = m->x;
    if (m->c.has_times)
        ek_rec_times(m);
    if (m->c.norm == EK_REC_LENGTH)
        ek_rec_lengths(m);
    for (int i = 0; i < m->c.blocks; i++) {
        ek_rec_part(m, "block", i);
        x = block(m, x);
    }
    return x;
}

const struct ek_rec_family ek_rec_hstu = {.check = check, .build = build};
