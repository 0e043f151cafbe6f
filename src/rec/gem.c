/* gem.c - a scaled-down GEM after its public descriptions: a sequence of events and a
 * side of features that is no sequence, which exchange what they know in every layer.
 *
 *   x' = x + attention(LN(x))                                  within blocks or a window
 *   S  = gate(summary of the chunks before)                    seeds, pooled twice
 *   X' = LN(sum_e g_e expert_e([X | S]) + X)                   interaction experts
 *   q  = LN(x'),  p = gelu(q K^T),  x'' = x' + rms(p V + q)    K, V made from gate(X')
 *
 * X has a row for each chunk of tokens. docs/design/gem.md says what of this is public,
 * what is our reading, and why no position sees a later event.
 *
 * Source: Zeng et al. 2024, arXiv 2411.09852 (InterFormer: both sides, gated exchange);
 * Zhang et al. 2024, arXiv 2403.02545 (Wukong: experts); public descriptions of Kunlun
 * (feed-forward as GDPA, seed pooling, SumKronLinear). */
#include "rec/gem_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define EPS        1e-5f
#define BLOCK      64
#define COLUMNS_OF 4096 /* of a row that is gathered */

struct rule {
    const char *key;
    int64_t value, lo, hi;
};

static int check(const struct ek_rec_config *c, const struct ek_rec_shape *s,
                 struct ek_err *err)
{
    const struct rule rules[] = {
        {"chunk", c->chunk, 0, 1 << 20},
        {"seeds", c->seeds, 1, COLUMNS_OF / c->dim},
        {"rank", c->rank, 1, 256},
        {"experts", c->experts, 1, 16},
        {"window", c->window, 0, 1 << 20},
        {"dim", c->dim, 1, COLUMNS_OF / EK_GEM_SLOTS},
        {"ffn", c->ffn, 1, (1 << 20) / (2 * c->dim)},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].value < rules[i].lo || rules[i].value > rules[i].hi)
            return ek_err_set(err, EK_EINVAL, "%s: %lld; expected %lld to %lld for gem",
                              rules[i].key, (long long)rules[i].value,
                              (long long)rules[i].lo, (long long)rules[i].hi);
    for (int i = 0; i < s->n_columns; i++)
        for (int k = 0; k < i; k++)
            if (!strncmp(s->columns[i].name, s->columns[k].name, EK_GEM_NAME))
                return ek_err_set(
                    err, EK_EINVAL,
                    "columns '%s' and '%s': expected names that differ in "
                    "their first %d bytes",
                    s->columns[k].name, s->columns[i].name, EK_GEM_NAME);
    if (c->has_times && s->lacks_times)
        return ek_err_set(err, EK_EINVAL,
                          "times: true; expected false: the log has no times");
    return 0;
}

/* --- the sequence side ------------------------------------------------------------ */

/* Softmax attention that looks back within blocks of 64, or so many positions; learned
 * terms by distance, and by the time that passed. */
static int self_attention(struct ek_rec *m, int x)
{
    const struct ek_rec_config *c = &m->c;
    int64_t n = c->max_length + EK_REC_EXTRA;
    int qkv =
        ek_rec_linear(m, "attention.qkv", ek_rec_norm(m, "attention.norm", x, EPS),
                      3 * c->dim, EK_ACT_NONE);
    struct ek_attention o = ek_rec_attention(c->heads, c->dim / c->heads);
    o.mask.is_causal = true;
    o.mask.window = (int32_t)c->window;
    o.mask.block = c->window ? 0 : BLOCK;
    o.pos = ek_rec_param(m, "attention.pos", 1, 2 * n - 1, EK_INIT_NORMAL, 0.02f);
    if (c->has_times) {
        o.time = ek_rec_param(m, "attention.time", 1, EK_JAGGED_BUCKETS, EK_INIT_NORMAL,
                              0.02f);
        o.t_query = m->next_times;
        o.t_key = m->times;
    }
    int y = ek_jagged_attention(m->g, ek_graph_columns(m->g, qkv, 0, c->dim),
                                ek_graph_columns(m->g, qkv, c->dim, c->dim),
                                ek_graph_columns(m->g, qkv, 2 * c->dim, c->dim),
                                m->offsets, m->offsets, &o);
    y = ek_rec_linear(m, "attention.out", y, c->dim, EK_ACT_NONE);
    return ek_residual(m->g, x, y, (float)c->dropout);
}

/* Keys and values of every chunk's feed-forward from its features (chunks, n * dim):
 * sum_i Z_i^T X W_i + B, so that (n, dim) becomes (n_keys, 2 dim) with few
 * parameters. */
static int make_keys(struct ek_rec *m, int features)
{
    const struct ek_gem *e = ek_gem_of(m);
    const int64_t dim = m->c.dim, wide = 2 * dim;
    const float scale = 1.0f / sqrtf((float)dim);
    int rows = ek_reshape(m->g, features, e->features, dim), sum = -1;
    for (int i = 0; i < EK_GEM_KRON; i++) {
        char w[16], z[16];
        (void)snprintf(w, sizeof w, "ffn.w%d", i);
        (void)snprintf(z, sizeof z, "ffn.z%d", i);
        int t = ek_linear(m->g, rows,
                          ek_rec_param(m, w, dim, wide, EK_INIT_XAVIER_NORMAL, 1.0f),
                          -1, EK_ACT_NONE);
        t = ek_reshape(m->g, t, e->chunks, e->n_features * wide);
        int base = i == 0 ? ek_rec_param(m, "ffn.base", 1, e->n_keys * wide,
                                         EK_INIT_NORMAL, scale)
                          : -1;
        t = ek_compress(
            m->g, t,
            ek_rec_param(m, z, e->n_features, e->n_keys, EK_INIT_NORMAL, scale), base);
        sum = i == 0 ? t : ek_add(m->g, sum, t, 1.0f);
    }
    return ek_reshape(m->g, sum, e->keys, wide);
}

/* GDPA as a feed-forward layer that each chunk has for itself: n_keys hidden units,
 * whose weights in and out are the keys and values made from the features. */
static int feed_forward(struct ek_rec *m, int x, int features)
{
    const struct ek_gem *e = ek_gem_of(m);
    const struct ek_rec_config *c = &m->c;
    int seen = ek_gem_gated(m, "ffn.gate", features, e->features, e->n_features);
    int kv = make_keys(m, seen);
    int q = ek_rec_norm(m, "ffn.norm", x, EPS);
    struct ek_attention o = ek_rec_attention(c->heads, c->dim / c->heads);
    o.score = EK_JAGGED_PHI;
    o.phi = EK_PHI_GELU_TANH;
    o.alpha = 1.0f;
    int y = ek_jagged_attention(m->g, q, ek_graph_columns(m->g, kv, 0, c->dim),
                                ek_graph_columns(m->g, kv, c->dim, c->dim),
                                e->chunk_offsets, e->key_offsets, &o);
    int gain = ek_rec_param(m, "ffn.out.gain", 1, c->dim, EK_INIT_ONE, 1.0f);
    y = ek_rms_norm(m->g, ek_add(m->g, y, q, 1.0f), gain, EPS);
    return ek_residual(m->g, x, y, (float)c->dropout);
}

/* --- the model -------------------------------------------------------------------- */

static void add_inputs(struct ek_rec *m)
{
    struct ek_gem *e = ek_gem_of(m);
    struct ek_graph *g = m->g;
    int64_t n = e->n_chunks_max;
    e->chunks = ek_graph_axis(g, "chunks", n);
    e->edges = ek_graph_axis(g, "chunk edges", n + 1);
    e->seeds = ek_graph_axis(g, "seeds", n * m->c.seeds);
    e->keys = ek_graph_axis(g, "keys", n * e->n_keys);
    e->features = ek_graph_axis(g, "features", n * e->n_features);
    e->summary = ek_graph_axis(g, "summary", n * e->n_summary);
    e->chunk_offsets = ek_graph_input(g, "chunk_offsets", e->edges, 1, EK_DTYPE_I64);
    e->key_offsets = ek_graph_input(g, "key_offsets", e->edges, 1, EK_DTYPE_I64);
    e->sequence_chunks =
        ek_graph_input(g, "sequence_chunks", m->edges, 1, EK_DTYPE_I64);
    e->before = ek_graph_input(g, "chunk_before", e->chunks, 1, EK_DTYPE_I32);
    e->latest = ek_graph_input(g, "latest_row", e->chunks, 1, EK_DTYPE_I32);
    e->user = ek_graph_input(g, "chunk_user", e->chunks, 1, EK_DTYPE_I32);
    e->zero = ek_graph_input(g, "zero", e->chunks, 1, EK_DTYPE_I32);
    e->chunk_of = ek_graph_input(g, "chunk_of", m->tokens, 1, EK_DTYPE_I32);
}

static int build(struct ek_rec *m)
{
    const struct ek_rec_config *c = &m->c;
    const struct ek_gem *e = ek_gem_of(m);
    add_inputs(m);
    if (c->has_times)
        ek_rec_times(m);
    int x = ek_gem_events(m, m->x), features = ek_gem_features(m);
    for (int i = 0; i < c->blocks; i++) {
        ek_rec_part(m, "block", i);
        if (!c->alternates || i % 2 == 0)
            x = self_attention(m, x);
        if (c->alternates && i % 2 == 0 && c->blocks > 1)
            continue;
        features = ek_gem_interact(m, features, ek_gem_summary(m, x));
        x = feed_forward(m, x, features);
    }
    ek_rec_part(m, "output", -1);
    int h = ek_rec_norm(m, "norm", x, EPS);
    if (c->click_weight > 0) {
        ek_rec_part(m, "click", -1);
        int64_t n = e->n_features < EK_GEM_CONTEXT ? e->n_features : EK_GEM_CONTEXT;
        int few =
            ek_rec_param(m, "context", e->n_features, n, EK_INIT_XAVIER_NORMAL, 1);
        int context =
            ek_gather(m->g, ek_compress(m->g, features, few, -1), e->chunk_of);
        m->click = ek_rec_click_head(m, h, context);
    }
    return h;
}

const struct ek_rec_family ek_rec_gem = {
    .check = check, .take = ek_gem_take, .build = build, .bind = ek_gem_bind};
