/* gem_features.c - the non-sequence side of gem: what is known of the user, what the
 * chunks before say, and the experts that let all of it interact. A row for each
 * chunk. */
#include "rec/gem_int.h"

#include <stdio.h>

#define EPS   1e-5f
#define MAX   8     /* parts of one concat */
#define SMALL 0.05f /* of what is added to an item's embedding: less than that is */

/* --- columns of the log ----------------------------------------------------------- */

/* By what it stands behind, no name of a column is that of another parameter. */
static void column_name(char *to, size_t cap, const char *what,
                        const struct ek_rec_column *c)
{
    (void)snprintf(to, cap, "%s.%.*s", what, EK_GEM_NAME, c->name);
}

/* An input that bind makes of column i, "asinh(age)". */
static int derived_input(struct ek_rec *m, int i, const char *how, enum ek_dtype type)
{
    const struct ek_rec_column *c = &m->shape.columns[i];
    char name[EK_GEM_NAME + 8];
    (void)snprintf(name, sizeof name, "%s(%.*s)", how, EK_GEM_NAME, c->name);
    return ek_graph_input(m->g, name, c->is_user ? m->users : m->tokens, 1, type);
}

/* A category's levels looked up in a table of its own; one of another width is brought
 * to dim by a matrix. */
static int embed_category(struct ek_rec *m, int i, int v, float scale)
{
    const struct ek_rec_column *c = &m->shape.columns[i];
    const int32_t rows = ek_gem_rows(&m->c, c->levels);
    char name[EK_GEM_NAME + 8];
    if (rows < c->levels)
        v = ek_gem_of(m)->rows[i] = derived_input(m, i, "hash", EK_DTYPE_I32);
    column_name(name, sizeof name, "column", c);
    int y = ek_lookup(m->g, ek_rec_table(m, name, rows, m->c.column_dim, scale), v, 1);
    if (m->c.column_dim == m->c.dim)
        return y;
    column_name(name, sizeof name, "up", c);
    int up = ek_rec_param(m, name, m->c.column_dim, m->c.dim, EK_INIT_XAVIER_NORMAL, 1);
    return ek_linear(m->g, y, up, -1, EK_ACT_NONE);
}

/* Embedding of column i: levels looked up; of a number, its asinh times a vector. */
static int embed_column(struct ek_rec *m, int i)
{
    const struct ek_rec_column *c = &m->shape.columns[i];
    const float scale = c->is_user ? 0.5f : SMALL;
    char name[EK_GEM_NAME + 8];
    int v = ek_rec_column_input(m, i);
    if (c->levels > 0)
        return embed_category(m, i, v, scale);
    v = ek_gem_of(m)->numbers[i] = derived_input(m, i, "asinh", EK_DTYPE_F32);
    column_name(name, sizeof name, "column", c);
    int w = ek_rec_param(m, name, 1, m->c.dim, EK_INIT_NORMAL, scale);
    return ek_linear(m->g, v, w, -1, EK_ACT_NONE);
}

int ek_gem_events(struct ek_rec *m, int x)
{
    struct ek_gem *e = ek_gem_of(m);
    ek_rec_part(m, "event", -1);
    for (int i = 0; i < m->shape.n_columns; i++)
        if (!m->shape.columns[i].is_user)
            x = ek_residual(m->g, x, embed_column(m, i), (float)m->c.dropout);
    if (m->c.has_times) {
        e->gap = ek_graph_input(m->g, "gap", m->tokens, 1, EK_DTYPE_I32);
        int table =
            ek_rec_param(m, "gap", EK_GEM_GAPS, m->c.dim, EK_INIT_NORMAL, SMALL);
        x = ek_residual(m->g, x, ek_lookup(m->g, table, e->gap, 1.0f),
                        (float)m->c.dropout);
    }
    return x;
}

/* [a | b | ...] of any number of parts, eight at a time. */
struct list {
    int part[MAX], n;
};

static void append(struct ek_rec *m, struct list *l, int v)
{
    if (l->n == MAX) {
        l->part[0] = ek_concat(m->g, l->part, l->n);
        l->n = 1;
    }
    l->part[l->n++] = v;
}

int ek_gem_features(struct ek_rec *m)
{
    struct ek_gem *e = ek_gem_of(m);
    struct list all = {.n = 0};
    ek_rec_part(m, "user", -1);
    int slots = ek_rec_param(m, "slots", 1, EK_GEM_SLOTS * m->c.dim, EK_INIT_NORMAL, 1);
    append(m, &all, ek_lookup(m->g, slots, e->zero, 1.0f));
    for (int i = 0; i < m->shape.n_columns; i++)
        if (m->shape.columns[i].is_user)
            append(m, &all, ek_gather(m->g, embed_column(m, i), e->user));
    return all.n == 1 ? all.part[0] : ek_concat(m->g, all.part, all.n);
}

/* --- what the sequence says ------------------------------------------------------- */

int ek_gem_gated(struct ek_rec *m, const char *name, int x, int axis, int64_t n)
{
    const struct ek_gem *e = ek_gem_of(m);
    int rows = ek_reshape(m->g, x, axis, m->c.dim);
    int gate = ek_rec_linear(m, name, rows, m->c.dim, EK_ACT_NONE);
    return ek_reshape(m->g, ek_gate(m->g, rows, gate), e->chunks, n * m->c.dim);
}

/* Seeds over the tokens of each chunk: (chunks * seeds, dim). */
static int pool_chunks(struct ek_rec *m, int x)
{
    const struct ek_gem *e = ek_gem_of(m);
    const struct ek_rec_config *c = &m->c;
    int kv = ek_rec_linear(m, "pool.kv", x, 2 * c->dim, EK_ACT_NONE);
    int seeds = ek_rec_param(m, "pool.seeds", c->seeds, c->dim, EK_INIT_NORMAL, 1.0f);
    struct ek_attention o = ek_rec_attention(c->heads, c->dim / c->heads);
    o.is_broadcast_q = true;
    o.out_axis = e->seeds;
    int y = ek_jagged_attention(m->g, seeds, ek_graph_columns(m->g, kv, 0, c->dim),
                                ek_graph_columns(m->g, kv, c->dim, c->dim), -1,
                                e->chunk_offsets, &o);
    return ek_rec_norm(m, "pool.norm", y, EPS);
}

/* What each seed found in the chunks before: attention along the chunks of a sequence,
 * every seed its own heads. Row c holds chunk c-1, so that looking back at rows up to c
 * looks at chunks up to c-1; the first row holds nothing: zeros. */
static int pool_history(struct ek_rec *m, int pooled)
{
    const struct ek_gem *e = ek_gem_of(m);
    const struct ek_rec_config *c = &m->c;
    const int64_t wide = c->seeds * c->dim;
    const int64_t n = (c->max_length + c->chunk - 1) / c->chunk;
    int shifted = ek_gather(m->g, ek_reshape(m->g, pooled, e->chunks, wide), e->before);
    int rows = ek_reshape(m->g, shifted, e->seeds, c->dim);
    int q = ek_rec_linear(m, "history.q", rows, c->dim, EK_ACT_NONE);
    int k = ek_rec_linear(m, "history.k", rows, c->dim, EK_ACT_NONE);
    struct ek_attention o =
        ek_rec_attention((int)(c->seeds * c->heads), c->dim / c->heads);
    o.mask.is_causal = true;
    o.pos = ek_rec_param(m, "history.pos", 1, 2 * n - 1, EK_INIT_NORMAL, 0.02f);
    return ek_jagged_attention(m->g, ek_reshape(m->g, q, e->chunks, wide),
                               ek_reshape(m->g, k, e->chunks, wide), shifted,
                               e->sequence_chunks, e->sequence_chunks, &o);
}

int ek_gem_summary(struct ek_rec *m, int x)
{
    const struct ek_gem *e = ek_gem_of(m);
    int y = ek_rec_norm(m, "summary.norm", x, EPS);
    int parts[] = {pool_history(m, pool_chunks(m, y)), ek_gather(m->g, y, e->latest)};
    return ek_gem_gated(m, "summary.gate", ek_concat(m->g, parts, 2), e->summary,
                        e->n_summary);
}

/* --- experts ---------------------------------------------------------------------- */

/* Half of the next features from a factorisation machine, half linear. */
static int expert(struct ek_rec *m, int index, int x, int64_t n_in)
{
    const struct ek_gem *e = ek_gem_of(m);
    const struct ek_rec_config *c = &m->c;
    int64_t n_fm = (e->n_features + 1) / 2, n_linear = e->n_features - n_fm;
    char name[5][32];
    static const char *const what[] = {"fm", "norm", "up", "down", "compress"};
    for (int i = 0; i < 5; i++)
        (void)snprintf(name[i], sizeof name[i], "expert%d.%s", index, what[i]);
    int p = ek_rec_param(m, name[0], n_in, c->rank, EK_INIT_XAVIER_NORMAL, 1.0f);
    int fm = ek_rec_norm(m, name[1], ek_low_rank(m->g, x, p, n_in), EPS);
    fm = ek_rec_linear(m, name[2], fm, c->dim, EK_ACT_GELU);
    fm = ek_rec_linear(m, name[3], fm, n_fm * c->dim, EK_ACT_NONE);
    int w = ek_rec_param(m, name[4], n_in, n_linear, EK_INIT_XAVIER_NORMAL, 1.0f);
    return ek_concat(m->g, (int[]){fm, ek_compress(m->g, x, w, -1)}, 2);
}

int ek_gem_interact(struct ek_rec *m, int features, int summary)
{
    const struct ek_gem *e = ek_gem_of(m);
    const struct ek_rec_config *c = &m->c;
    const int64_t n_in = e->n_features + e->n_summary;
    int x = ek_concat(m->g, (int[]){features, summary}, 2), sum = features;
    int gates = c->experts > 1
                    ? ek_rec_linear(m, "experts", x, c->experts, EK_ACT_SIGMOID)
                    : -1;
    for (int i = 0; i < c->experts; i++) {
        int y = expert(m, i, x, n_in);
        if (c->experts > 1)
            y = ek_mul(m->g, y, ek_graph_columns(m->g, gates, i, 1));
        sum = ek_residual(m->g, sum, y, (float)c->dropout);
    }
    int rows = ek_reshape(m->g, sum, e->features, c->dim);
    return ek_reshape(m->g, ek_rec_norm(m, "experts.norm", rows, EPS), e->chunks,
                      e->n_features * c->dim);
}
