#include "train/tables.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

struct table {
    int param;
    int64_t cols, cap, n; /* cap: rows of a step at most; n: copied so far */
    int32_t *ids;         /* (cap) owned, with grad; NULL: one micro-batch a step */
    float *grad;          /* (cap, cols) */
    float *squares;       /* (rows of the table) owned, 0 between calls; or NULL */
    struct ek_row_grad
        sources[EK_ROW_SOURCES]; /* of the step, as optimizers take them */
    int n_sources;
};

struct ek_tables {
    struct ek_tables_options o;
    const struct ek_grad_ops *ops;
    struct table *tables; /* (n) owned */
    int n;
    int64_t max_rows;
    void *scratch; /* of ek_rows_each; NULL without norms */
};

void ek_tables_free(struct ek_tables *t)
{
    if (!t)
        return;
    for (int i = 0; t->tables && i < t->n; i++) {
        ek_free(t->tables[i].ids);
        ek_free(t->tables[i].grad);
        ek_free(t->tables[i].squares);
    }
    ek_free(t->tables);
    ek_free(t->scratch);
    ek_free(t);
}

static struct table table_of(const struct ek_tables_options *o, int param)
{
    return (struct table){.param = param,
                          .cols = ek_params_get(o->params, param)->cols,
                          .cap = ek_graph_row_ceiling(o->graph, param) * o->n_micro};
}

static void list_arrays(struct table *x, const struct ek_tables_options *o,
                        struct ek_taker *t)
{
    if (o->n_micro > 1) {
        x->ids = ek_take_array(t, x->cap + 1, sizeof *x->ids);
        x->grad = ek_take_aligned(t, x->cap + 1, (size_t)x->cols * sizeof *x->grad);
    }
    if (o->has_norm)
        x->squares = ek_take_zeroed(t, ek_params_get(o->params, x->param)->rows,
                                    sizeof *x->squares);
}

static void *take_scratch(const struct ek_tables_options *o, int64_t max_rows,
                          struct ek_taker *t)
{
    return o->has_norm ? ek_take_aligned(t, 1, ek_rows_bytes(max_rows)) : NULL;
}

int ek_tables_measure(size_t *sum, int64_t *max_rows, const struct ek_tables_options *o)
{
    struct ek_taker t = {.is_dry = true};
    *max_rows = 0;
    for (int i = 0; i < ek_params_count(o->params); i++) {
        if (!ek_params_get(o->params, i)->is_table)
            continue;
        struct table x = table_of(o, i);
        list_arrays(&x, o, &t);
        *max_rows = x.cap > *max_rows ? x.cap : *max_rows;
    }
    if (*max_rows)
        (void)take_scratch(o, *max_rows, &t);
    if (t.status)
        return t.status;
    return ek_add_size(sum, *sum, t.bytes) ? 0 : EK_ELIMIT;
}

static int take_all(struct ek_tables *t)
{
    struct ek_taker taker = {.is_dry = false};
    int n = ek_params_count(t->o.params);
    t->tables = ek_calloc((size_t)n + 1, sizeof *t->tables);
    if (!t->tables)
        return EK_ENOMEM;
    for (int i = 0; i < n; i++) {
        if (!ek_params_get(t->o.params, i)->is_table)
            continue;
        struct table *x = &t->tables[t->n++];
        *x = table_of(&t->o, i);
        list_arrays(x, &t->o, &taker);
        if (x->cap > t->max_rows)
            t->max_rows = x->cap;
    }
    if (t->n > 0)
        t->scratch = take_scratch(&t->o, t->max_rows, &taker);
    return taker.status;
}

int ek_tables_new(struct ek_tables **out, const struct ek_tables_options *o,
                  struct ek_err *err)
{
    struct ek_tables *t = ek_calloc(1, sizeof *t);
    if (!t)
        return ek_err_set(err, EK_ENOMEM, "tables: out of memory");
    t->o = *o;
    t->ops = ek_grad_ops_get(o->isa);
    t->max_rows = 1;
    int rc = take_all(t);
    if (rc) {
        ek_tables_free(t);
        return ek_err_set(err, rc, "tables: rows of gradients: %s", ek_status_text(rc));
    }
    *out = t;
    return 0;
}

int ek_tables_count(const struct ek_tables *t)
{
    return t->n;
}

int64_t ek_tables_max_rows(const struct ek_tables *t)
{
    return t->max_rows;
}

void ek_tables_begin(struct ek_tables *t)
{
    for (int i = 0; i < t->n; i++)
        t->tables[i].n = t->tables[i].n_sources = 0;
}

struct copy {
    struct table *x;
    const struct ek_row_grad *s;
};

static void copy_share(void *arg, int member, int n_members)
{
    const struct copy *c = arg;
    const struct ek_row_grad *s = c->s;
    struct table *x = c->x;
    int64_t lo, hi;
    ek_team_share(&lo, &hi, s->n, 1, member, n_members);
    for (int64_t e = lo; e < hi; e++) {
        const float *from = s->grad + (s->row_of ? s->row_of[e] : e) * s->ld;
        float *to = x->grad + (x->n + e) * x->cols;
        x->ids[x->n + e] = s->ids ? s->ids[e] : (int32_t)e;
        for (int64_t k = 0; k < x->cols; k++)
            to[k] = s->scale * from[k];
    }
}

static void copy_sources(struct ek_tables *t, struct table *x)
{
    for (int i = 0; i < x->n_sources; i++) {
        struct copy c = {x, &x->sources[i]};
        assert(x->n + c.s->n <= x->cap);
        ek_team_run(t->o.team, copy_share, &c);
        x->n += c.s->n;
    }
    x->sources[0] =
        (struct ek_row_grad){.ids = x->ids, .grad = x->grad, .n = x->n, .scale = 1.0f};
    x->sources[0].ld = x->cols;
    x->n_sources = 1;
}

void ek_tables_take(struct ek_tables *t, int n_micro)
{
    for (int i = 0; i < t->n; i++) {
        struct table *x = &t->tables[i];
        x->n_sources = ek_graph_row_grads(t->o.graph, x->param, x->sources);
        if (n_micro > 1)
            copy_sources(t, x);
    }
}

struct square {
    const struct ek_grad_ops *ops;
    struct table *x;
};

static void square_row(void *arg, int64_t row, const float *sum)
{
    const struct square *s = arg;
    s->x->squares[row] = (float)s->ops->dot(sum, sum, s->x->cols);
}

/* Each distinct row once, at its first entry. */
static double add_squares(struct table *x)
{
    double sum = 0;
    for (int i = 0; i < x->n_sources; i++) {
        const struct ek_row_grad *s = &x->sources[i];
        for (int64_t e = 0; e < s->n; e++) {
            int64_t row = s->ids ? s->ids[e] : e;
            if (row < 0)
                continue;
            sum += (double)x->squares[row];
            x->squares[row] = 0.0f;
        }
    }
    return sum;
}

double ek_tables_squares(struct ek_tables *t)
{
    double sum = 0;
    for (int i = 0; i < t->n; i++) {
        struct table *x = &t->tables[i];
        const struct ek_param *p = ek_params_get(t->o.params, x->param);
        struct square s = {t->ops, x};
        struct ek_rows rows = {.sources = x->sources,
                               .n_sources = x->n_sources,
                               .table_rows = p->rows,
                               .cols = p->cols,
                               .scratch = t->scratch,
                               .team = t->o.team,
                               .ops = t->ops};
        ek_rows_each(&rows, square_row, &s);
        sum += add_squares(x);
    }
    return sum;
}

void ek_tables_step(struct ek_tables *t, struct ek_adagrad_state *adagrad, float lr,
                    float grad_scale)
{
    for (int i = 0; i < t->n; i++)
        ek_adagrad_step(adagrad, t->o.team, t->tables[i].param, t->tables[i].sources,
                        t->tables[i].n_sources, lr, grad_scale);
}
