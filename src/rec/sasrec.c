/* sasrec.c - self-attentive sequential recommendation: causal softmax attention, then a
 * feed-forward layer, each behind a layer norm; queries are normed, keys and values
 * not.
 *
 *   q = LN(x)        y = q + drop(MHA(q, x, x) Wo + bo)       causal, 1/sqrt(head dim)
 *   z = LN(y)        x' = z + drop(drop(relu(z W1 + b1)) W2 + b2)
 *   h = LN(x of the last block)
 *
 * Source: Kang & McAuley 2018, arXiv 1808.09781, in the variant that the HSTU paper's
 * authors compare with. Theirs drops weights of attention; here the branch is dropped,
 * since weights exist only in registers. */
#include "rec/model_int.h"

#define EPS 1e-8f

static int attention(struct ek_rec *m, int q, int x)
{
    const struct ek_rec_config *c = &m->c;
    int query = ek_rec_linear(m, "attention.q", q, c->dim, EK_ACT_NONE);
    int both = ek_rec_linear(m, "attention.kv", x, 2 * c->dim, EK_ACT_NONE);
    int key = ek_graph_columns(m->g, both, 0, c->dim);
    int value = ek_graph_columns(m->g, both, c->dim, c->dim);
    struct ek_attention o = ek_rec_attention(c->heads, c->dim / c->heads);
    o.score = EK_JAGGED_SOFTMAX;
    o.mask.is_causal = true;
    int y = ek_jagged_attention(m->g, query, key, value, m->offsets, m->offsets, &o);
    return ek_rec_linear(m, "attention.out", y, c->dim, EK_ACT_NONE);
}

static int feed_forward(struct ek_rec *m, int z)
{
    const struct ek_rec_config *c = &m->c;
    int up = ek_rec_linear(m, "ffn.up", z, c->ffn, EK_ACT_RELU);
    if (c->dropout > 0)
        up = ek_dropout(m->g, up, (float)c->dropout);
    return ek_rec_linear(m, "ffn.down", up, c->dim, EK_ACT_NONE);
}

static int build(struct ek_rec *m)
{
    float drop = (float)m->c.dropout;
    int x = m->x;
    for (int i = 0; i < m->c.blocks; i++) {
        ek_rec_part(m, "block", i);
        int q = ek_rec_norm(m, "attention.norm", x, EPS);
        int y = ek_residual(m->g, q, attention(m, q, x), drop);
        int z = ek_rec_norm(m, "ffn.norm", y, EPS);
        x = ek_residual(m->g, z, feed_forward(m, z), drop);
    }
    ek_rec_part(m, "output", -1);
    return ek_rec_norm(m, "norm", x, EPS);
}

const struct ek_rec_family ek_rec_sasrec = {.build = build};
