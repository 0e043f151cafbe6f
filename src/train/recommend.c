/* recommend.c - one history as a batch of one sequence, and the best items behind
 * it. */
#include "base/mem.h"
#include "train/data.h"
#include "train/evaluate.h"
#include "train/rank.h"

/* What is bound where nothing is known; each (length). */
struct unknown {
    int64_t *times;
    float *numbers;
    int32_t *levels;
};

static void unknown_release(struct unknown *x)
{
    ek_free(x->times);
    ek_free(x->numbers);
    ek_free(x->levels);
}

static int unknown_init(struct unknown *x, int64_t length)
{
    x->times = ek_calloc((size_t)length, sizeof *x->times);
    x->numbers = ek_calloc((size_t)length, sizeof *x->numbers);
    x->levels = ek_alloc_array((size_t)length, sizeof *x->levels);
    for (int64_t i = 0; x->levels && i < length; i++)
        x->levels[i] = -1;
    return x->times && x->numbers && x->levels ? 0 : EK_ENOMEM;
}

/* Columns of the log's rows from `row` on. */
static void bind_columns(struct ek_rec_batch *b, const struct ek_events *e, int64_t row)
{
    int64_t user = 0, end = e->n_users; /* offsets[user] <= row < offsets[end] */
    while (end - user > 1) {
        const int64_t middle = user + (end - user) / 2;
        *(e->offsets[middle] <= row ? &user : &end) = middle;
    }
    for (int i = 0; i < e->n_columns && i < EK_REC_COLUMNS_MAX; i++) {
        const struct ek_column *c = &e->columns[i];
        const int64_t at = c->of == EK_COLUMN_USER ? user : row;
        b->columns[i].numbers = c->numbers ? c->numbers + at : NULL;
        b->columns[i].levels = c->levels ? c->levels + at : NULL;
    }
}

/* Runs the model over the latest rows of the history; h is the last row's. */
static int forward(const struct ek_evaluate *o, const struct ek_history *h,
                   const struct unknown *x, const float **last)
{
    const int64_t most = o->config->max_length, n = h->n < most ? h->n : most;
    const int64_t from = h->n - n, offsets[] = {0, n};
    struct ek_rec_batch b = {.B = 1, .T = n, .offsets = offsets};
    b.items = h->items + from;
    b.times = h->times ? h->times + from : x->times;
    b.targets = x->levels; /* none: a click head is not asked */
    for (int i = 0; i < EK_REC_COLUMNS_MAX; i++) {
        b.columns[i].numbers = x->numbers;
        b.columns[i].levels = x->levels;
    }
    if (h->row >= 0)
        bind_columns(&b, &o->data->events, h->row + from);
    int rc = ek_rec_bind(o->model, &b);
    if (rc)
        return rc;
    ek_graph_forward(ek_rec_graph(o->model), 0);
    const struct ek_mat m = ek_graph_mat(ek_rec_graph(o->model), ek_rec_h(o->model));
    *last = m.f + (n - 1) * m.ld;
    return 0;
}

static int check(const struct ek_history *h, int64_t n_items, struct ek_err *err)
{
    if (h->n < 1)
        return ek_err_set(err, EK_EINVAL, "history: expected one item at least");
    for (int64_t i = 0; i < h->n; i++)
        if (h->items[i] < 0 || h->items[i] >= n_items)
            return ek_err_set(err, EK_EINVAL,
                              "history: item %d: expected 0 to %lld, the model's",
                              h->items[i], (long long)(n_items - 1));
    return 0;
}

int ek_recommend(const struct ek_evaluate *o, const struct ek_history *history,
                 bool is_filtered, int32_t *items, float *scores, int64_t k, int64_t *n,
                 struct ek_err *err)
{
    const struct ek_param *table = ek_params_get(o->params, ek_rec_items(o->model));
    const struct ek_ranker_options r = {.items = table->value,
                                        .n_items = table->rows,
                                        .dim = table->cols,
                                        .is_cosine = o->config->is_cosine,
                                        .max_queries = 1,
                                        .max_seen = history->n,
                                        .team = o->team,
                                        .isa = o->isa};
    struct ek_ranker *ranker = NULL;
    struct unknown x = {0};
    const float *h = NULL;
    int64_t found = 0;
    int rc = check(history, table->rows, err);
    if (rc)
        return rc;
    rc = unknown_init(&x, o->config->max_length);
    if (!rc)
        rc = ek_ranker_new(&ranker, &r, NULL);
    if (!rc)
        rc = forward(o, history, &x, &h);
    if (!rc) {
        found = ek_ranker_top(ranker, items, scores, k, h, history->items,
                              is_filtered ? history->n : 0);
        rc = found < 0 ? (int)found : 0;
    }
    if (!rc)
        *n = found;
    ek_ranker_free(ranker);
    unknown_release(&x);
    return rc ? ek_err_set(err, rc, "recommend: %s", ek_status_text(rc)) : 0;
}
