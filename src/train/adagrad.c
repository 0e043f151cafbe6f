/* adagrad.c - rows grouped by graph/rows.h, each updated where it lies. */
#include "train/adagrad.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

struct ek_adagrad_state {
    struct ek_params *params; /* borrowed */
    const struct ek_grad_ops *ops;
    struct ek_adagrad_options o;
    float **sums; /* (n_params) owned; NULL for dense ones */
    void *scratch;
    int n_params;
    /* the table in progress */
    struct ek_adagrad now;
    struct ek_param *table;
    float *table_sums;
};

void ek_adagrad_free(struct ek_adagrad_state *s)
{
    if (!s)
        return;
    for (int i = 0; s->sums && i < s->n_params; i++)
        ek_free(s->sums[i]);
    ek_free(s->sums);
    ek_free(s->scratch);
    ek_free(s);
}

/* Of the sums of a parameter. */
static size_t sums_bytes(const struct ek_param *p)
{
    return p->is_table ? (size_t)p->rows * sizeof(float) : 0;
}

bool ek_adagrad_bytes(size_t *sum, const struct ek_param *p)
{
    return ek_add_size(sum, *sum, sums_bytes(p));
}

bool ek_adagrad_scratch_bytes(size_t *sum, int64_t max_rows)
{
    return ek_add_size(sum, *sum, ek_rows_bytes(max_rows));
}

static int take_sums(struct ek_adagrad_state *s)
{
    s->sums = ek_calloc((size_t)s->n_params + 1, sizeof *s->sums);
    s->scratch = ek_alloc_aligned(64, ek_rows_bytes(s->o.max_rows));
    if (!s->sums || !s->scratch)
        return EK_ENOMEM;
    for (int i = 0; i < s->n_params; i++) {
        const struct ek_param *p = ek_params_get(s->params, i);
        if (!p->is_table)
            continue;
        s->sums[i] = ek_calloc(1, sums_bytes(p));
        if (!s->sums[i])
            return EK_ENOMEM;
    }
    return 0;
}

int ek_adagrad_new(struct ek_adagrad_state **out, struct ek_params *params,
                   enum ek_isa isa, const struct ek_adagrad_options *o,
                   struct ek_err *err)
{
    if (!(o->eps > 0 && o->l2 >= 0 && o->decay >= 0 && o->max_norm >= 0) ||
        (o->l2 > 0 && o->decay > 0) || o->max_rows < 1 || o->max_rows > INT32_MAX)
        return ek_err_set(err, EK_EINVAL,
                          "adagrad: eps %g, l2 %g, decay %g, max_norm %g, %lld rows; "
                          "expected eps above 0, one of l2 and decay 0, none negative",
                          (double)o->eps, (double)o->l2, (double)o->decay,
                          (double)o->max_norm, (long long)o->max_rows);
    struct ek_adagrad_state *s = ek_calloc(1, sizeof *s);
    if (!s)
        return ek_err_set(err, EK_ENOMEM, "adagrad: out of memory");
    s->params = params;
    s->ops = ek_grad_ops_get(isa);
    s->o = *o;
    s->n_params = ek_params_count(params);
    if (take_sums(s)) {
        ek_adagrad_free(s);
        return ek_err_set(err, EK_ENOMEM, "adagrad: no memory for the sums of rows");
    }
    *out = s;
    return 0;
}

static void update_row(void *arg, int64_t row, const float *sum)
{
    const struct ek_adagrad_state *s = arg;
    s->ops->adagrad(s->table->value + row * s->table->cols, s->table_sums + row, sum,
                    s->table->cols, &s->now);
}

void ek_adagrad_step(struct ek_adagrad_state *s, struct ek_team *team, int param,
                     const struct ek_row_grad *sources, int n_sources, float lr,
                     float grad_scale)
{
    struct ek_row_grad scaled[EK_ROW_SOURCES];
    int64_t n = 0;
    assert(n_sources <= EK_ROW_SOURCES && s->sums[param]);
    for (int i = 0; i < n_sources; i++) {
        scaled[i] = sources[i];
        scaled[i].scale *= grad_scale;
        n += sources[i].n;
    }
    assert(n <= s->o.max_rows);
    s->table = ek_params_get(s->params, param);
    s->table_sums = s->sums[param];
    s->now = (struct ek_adagrad){.lr = lr,
                                 .eps = s->o.eps,
                                 .l2 = s->o.l2,
                                 .decay = s->o.decay,
                                 .max_norm = s->o.max_norm};
    struct ek_rows rows = {.sources = scaled,
                           .n_sources = n_sources,
                           .table_rows = s->table->rows,
                           .cols = s->table->cols,
                           .scratch = s->scratch,
                           .team = team,
                           .ops = s->ops,
                           .table = s->table->value,
                           .of_row = s->table_sums};
    ek_rows_each(&rows, update_row, s);
}

float *ek_adagrad_sums(struct ek_adagrad_state *s, int param)
{
    assert(param >= 0 && param < s->n_params);
    return s->sums[param];
}
