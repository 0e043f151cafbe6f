/* model.c - what all models have: axes, inputs, the embedded items, the loss, the
 * plan. */
#include "rec/model.h"

#include "base/mem.h"
#include "rec/model_int.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* A family is one file and one line here; NULL: not built in. */
static const struct {
    const char *name;
    const struct ek_rec_family *family;
} families[] = {
    [EK_REC_SASREC] = {"sasrec", &ek_rec_sasrec},
    [EK_REC_HSTU] = {"hstu", &ek_rec_hstu},
    [EK_REC_GEM] = {"gem", &ek_rec_gem},
};

#define N_FAMILIES ((int)(sizeof families / sizeof families[0]))

const char *ek_rec_kind_name(enum ek_rec_kind kind)
{
    return families[kind].name;
}

void ek_rec_free(struct ek_rec *m)
{
    if (!m)
        return;
    ek_graph_free(m->g);
    ek_free(m->position);
    ek_free(m->seconds);
    ek_free(m->next_seconds);
    ek_free(m->inverse);
    ek_free(m->labels);
    ek_free(m->own);
    ek_free(m);
}

static int check(struct ek_rec *m, struct ek_err *err)
{
    int kind = (int)m->c.kind;
    if (kind < 0 || kind >= N_FAMILIES || !families[kind].family)
        return ek_err_set(err, EK_EINVAL, "model: kind %d; expected one of this build",
                          kind);
    m->family = families[kind].family;
    int rc = ek_rec_check(&m->c, &m->shape, err);
    if (rc == 0 && m->family->check)
        rc = m->family->check(&m->c, &m->shape, err);
    return rc;
}

/* --- inputs ----------------------------------------------------------------------- */

static void add_inputs(struct ek_rec *m)
{
    struct ek_graph *g = m->g;
    m->tokens = ek_graph_axis(g, "tokens", m->shape.max_rows);
    m->users = ek_graph_axis(g, "users", m->shape.max_sequences);
    m->edges = ek_graph_axis(g, "edges", m->shape.max_sequences + 1);
    m->ids = ek_graph_input(g, "items", m->tokens, 1, EK_DTYPE_I32);
    m->positions = ek_graph_input(g, "positions", m->tokens, 1, EK_DTYPE_I32);
    m->offsets = ek_graph_input(g, "offsets", m->edges, 1, EK_DTYPE_I64);
    m->targets = m->negatives = m->clicks = -1;
    m->times = m->next_times = m->per_row = m->click = m->loss = -1;
    if (m->is_training || m->c.click_weight > 0)
        m->targets = ek_graph_input(g, "targets", m->tokens, 1, EK_DTYPE_I32);
    for (int i = 0; i < EK_REC_COLUMNS_MAX; i++)
        m->columns[i].value = -1;
}

void ek_rec_times(struct ek_rec *m)
{
    if (m->times >= 0)
        return;
    m->times = ek_graph_input(m->g, "times", m->tokens, 1, EK_DTYPE_I64);
    m->next_times = ek_graph_input(m->g, "next_times", m->tokens, 1, EK_DTYPE_I64);
}

void ek_rec_lengths(struct ek_rec *m)
{
    if (m->per_row < 0)
        m->per_row = ek_graph_input(m->g, "per_row", m->users, 1, EK_DTYPE_F32);
}

int ek_rec_column_input(struct ek_rec *m, int column)
{
    const struct ek_rec_column *c = &m->shape.columns[column];
    if (m->columns[column].value < 0) {
        m->columns[column].is_user = c->is_user;
        m->columns[column].levels = c->levels;
        m->columns[column].value =
            ek_graph_input(m->g, c->name, c->is_user ? m->users : m->tokens, 1,
                           c->levels > 0 ? EK_DTYPE_I32 : EK_DTYPE_F32);
    }
    return m->columns[column].value;
}

/* x = drop(sqrt(dim) items[id] + positions[t]). Positions count from the start of what
 * is seen: then a row is the same whatever comes behind it. */
static void embed(struct ek_rec *m)
{
    struct ek_graph *g = m->g;
    const struct ek_rec_config *c = &m->c;
    struct ek_param_spec items = {.name = "items",
                                  .rows = m->shape.n_items,
                                  .cols = c->dim,
                                  .init = EK_INIT_TRUNCATED,
                                  .scale = 0.02f,
                                  .is_table = c->has_row_optimizer};
    struct ek_param_spec positions = {.name = "positions",
                                      .rows = c->max_length + EK_REC_EXTRA,
                                      .cols = c->dim,
                                      .init = EK_INIT_XAVIER_NORMAL,
                                      .scale = 1.0f};
    ek_rec_part(m, "input", -1);
    m->items = ek_graph_param(g, &items);
    int item = ek_lookup(g, m->items, m->ids, sqrtf((float)c->dim));
    int place = ek_lookup(g, ek_graph_param(g, &positions), m->positions, 1.0f);
    m->x = ek_add(g, item, place, 1.0f);
    if (c->dropout > 0)
        m->x = ek_dropout(g, m->x, (float)c->dropout);
}

/* --- results ---------------------------------------------------------------------- */

static void add_loss(struct ek_rec *m)
{
    struct ek_graph *g = m->g;
    struct ek_sampled o = {m->c.is_cosine, (float)m->c.temperature};
    int loss;
    ek_rec_part(m, "loss", -1);
    if (m->c.loss == EK_REC_SAMPLED) {
        int axis = ek_graph_axis(g, "negatives", m->c.negatives);
        m->negatives = ek_graph_input(g, "negatives", axis, 1, EK_DTYPE_I32);
        loss = ek_sampled_softmax(g, m->h, m->items, m->targets, m->negatives, &o);
        if (axis >= 0 && ek_graph_set_axis(g, axis, m->c.negatives))
            return; /* the ceiling itself: cannot happen */
    } else {
        loss = ek_full_softmax(g, m->h, m->items, m->targets, 0, &o);
    }
    if (m->click >= 0) {
        m->clicks = ek_graph_input(g, "clicks", m->tokens, 1, EK_DTYPE_F32);
        loss =
            ek_add(g, loss, ek_bce(g, m->click, m->clicks), (float)m->c.click_weight);
    }
    ek_graph_loss(g, loss);
    m->loss = loss;
}

/* h / |h|: the rms norm without its sqrt(dim). */
static int unit(struct ek_rec *m, int h)
{
    float dim = (float)m->c.dim;
    return ek_scale(m->g, ek_rms_norm(m->g, h, -1, 1e-12f / dim), 1.0f / sqrtf(dim));
}

static int build(struct ek_rec *m, struct ek_err *err)
{
    add_inputs(m);
    embed(m);
    m->h = m->family->build(m);
    if (m->c.click_weight > 0 && m->click < 0)
        m->click = ek_rec_click_head(m, m->h, -1);
    if (m->is_training) {
        add_loss(m); /* which brings h to length 1 itself */
    } else if (m->c.is_cosine) {
        ek_rec_part(m, "output", -1);
        m->h = unit(m, m->h);
    }
    ek_graph_output(m->g, m->h);
    ek_graph_output(m->g, m->click);
    return ek_graph_plan(m->g, err);
}

/* What bind writes; bind.c fills it. */
static void list_buffers(struct ek_rec *m, struct ek_taker *t)
{
    const int64_t T = m->shape.max_rows, B = m->shape.max_sequences;
    m->position = ek_take_array(t, T, sizeof *m->position);
    m->inverse = ek_take_array(t, B, sizeof *m->inverse);
    if (m->times >= 0) {
        m->seconds = ek_take_array(t, T, sizeof *m->seconds);
        m->next_seconds = ek_take_array(t, T, sizeof *m->next_seconds);
    }
    if (m->clicks >= 0)
        m->labels = ek_take_array(t, T, sizeof *m->labels);
}

bool ek_rec_bytes(size_t *sum, const struct ek_rec *m)
{
    struct ek_taker t = {.is_dry = true};
    struct ek_rec copy = *m;
    list_buffers(&copy, &t);
    return !t.status && ek_add_size(sum, *sum, t.bytes) &&
           ek_add_size(sum, *sum, m->own_bytes) &&
           ek_add_size(sum, *sum, ek_graph_arena_bytes(m->g));
}

static int take_buffers(struct ek_rec *m, struct ek_err *err)
{
    struct ek_taker t = {.is_dry = false};
    list_buffers(m, &t);
    return t.status ? ek_err_set(err, t.status, "model: %s", ek_status_text(t.status))
                    : 0;
}

int ek_rec_take(struct ek_rec *m, struct ek_err *err)
{
    int rc = ek_graph_take(m->g, err);
    return rc ? rc : take_buffers(m, err);
}

int ek_rec_new(struct ek_rec **out, struct ek_params *params,
               const struct ek_rec_config *c, const struct ek_rec_shape *shape,
               const struct ek_graph_options *options, struct ek_err *err)
{
    struct ek_rec *m = ek_calloc(1, sizeof *m);
    if (!m)
        return ek_err_set(err, EK_ENOMEM, "model: out of memory");
    m->c = *c;
    m->shape = *shape;
    m->is_training = options->is_training;
    int rc = check(m, err);
    if (rc == 0 && m->family->take)
        rc = m->family->take(m, err);
    if (rc == 0)
        rc = ek_graph_new(&m->g, params, options, err);
    if (rc == 0)
        rc = build(m, err);
    if (rc == 0 && !options->is_deferred)
        rc = take_buffers(m, err);
    m->shape.columns = NULL;
    m->items_param = ek_params_find(params, "items");
    if (rc) {
        ek_rec_free(m);
        return rc;
    }
    *out = m;
    return 0;
}

struct ek_graph *ek_rec_graph(const struct ek_rec *m)
{
    return m->g;
}

int ek_rec_h(const struct ek_rec *m)
{
    return m->h;
}

int ek_rec_items(const struct ek_rec *m)
{
    return m->items_param;
}

int ek_rec_click(const struct ek_rec *m)
{
    return m->click;
}

int ek_rec_loss(const struct ek_rec *m)
{
    return m->loss;
}
