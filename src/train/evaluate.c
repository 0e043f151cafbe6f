/* evaluate.c - batches through the model, the last row of each sample kept until there
 * are CHUNK of them, then all ranked at once. */
#include "train/evaluate.h"

#include "base/clock.h"
#include "base/mem.h"
#include "train/data.h"
#include "train/rank.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 2048 /* samples: each block of items is read once for so many */

const int ek_eval_cuts[EK_EVAL_CUTS] = {5, 10, 20, 50, 200};

/* Everything a run holds; released whole. */
struct work {
    const struct ek_evaluate *o;
    struct ek_loader *loader;
    struct ek_ranker *ranker;
    int64_t dim, cap, n;           /* cap: CHUNK and a batch; n: samples that wait */
    float *h;                      /* (cap, dim) */
    struct ek_rank_query *queries; /* (cap) */
    struct ek_rank *ranks;         /* (cap) */
    int64_t *next_times;           /* (rows of a batch) */
    struct ek_click *clicks;       /* (samples) or NULL: no click head */
    int64_t n_clicks;
    struct ek_evaluation sum;
};

void ek_ranking_add(struct ek_ranking *r, int64_t rank)
{
    const double gain = 1 / log2((double)rank + 1);
    for (int i = 0; i < EK_EVAL_CUTS; i++) {
        if (rank > ek_eval_cuts[i])
            continue;
        r->recall[i] += 1;
        r->ndcg[i] += gain;
        r->mrr[i] += 1 / (double)rank;
    }
}

int ek_ranking_json(struct ek_buf *out, const struct ek_ranking *r)
{
    static const char *const names[] = {"recall", "ndcg", "mrr"};
    const double *const all[] = {r->recall, r->ndcg, r->mrr};
    int rc = ek_buf_add_char(out, '{');
    for (int m = 0; m < 3 && !rc; m++)
        for (int k = 0; k < EK_EVAL_CUTS && !rc; k++)
            rc = ek_buf_addf(out, "%s\"%s@%d\": %.6f", m + k ? ", " : "", names[m],
                             ek_eval_cuts[k], all[m][k]);
    return rc ? rc : ek_buf_add_char(out, '}');
}

static void divide(struct ek_ranking *r, double n)
{
    for (int i = 0; i < EK_EVAL_CUTS; i++) {
        r->recall[i] /= n;
        r->ndcg[i] /= n;
        r->mrr[i] /= n;
    }
}

/* --- the click head --------------------------------------------------------------- */

static int by_logit(const void *a, const void *b)
{
    const struct ek_click *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit < y->logit ? -1 : 1;
    return x->is_click - y->is_click;
}

/* The mean of log(1 + exp(-logit)) of clicks and log(1 + exp(logit)) of others. */
static double log_loss(const struct ek_click *clicks, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double x = (double)clicks[i].logit, z = clicks[i].is_click ? -x : x;
        sum += fmax(z, 0) + log1p(exp(-fabs(z)));
    }
    return sum / (double)n;
}

void ek_click_measure(struct ek_click *clicks, int64_t n, double *entropy, double *auc)
{
    int64_t n_clicks = 0, n_nan = 0;
    *entropy = *auc = (double)NAN;
    for (int64_t i = 0; i < n; i++) {
        n_clicks += clicks[i].is_click;
        n_nan += isnan(clicks[i].logit);
    }
    if (n_clicks == 0 || n_clicks == n || n_nan > 0)
        return;
    const double n_pairs = (double)n_clicks * (double)(n - n_clicks);
    const double rate = (double)n_clicks / (double)n;
    /* Sorted first: then neither sum depends on the order they came in. */
    qsort(clicks, (size_t)n, sizeof *clicks, by_logit);
    *entropy = log_loss(clicks, n) / -(rate * log(rate) + (1 - rate) * log(1 - rate));
    double wins = 0, below = 0; /* pairs where the click is above; others below */
    for (int64_t i = 0, end; i < n; i = end) {
        int64_t c = 0;
        for (end = i; end < n && !(clicks[end].logit > clicks[i].logit); end++)
            c += clicks[end].is_click;
        const double others = (double)(end - i - c);
        wins += (double)c * (below + others / 2);
        below += others;
    }
    *auc = wins / n_pairs;
}

/* --- the run ---------------------------------------------------------------------- */

static void release(struct work *w)
{
    ek_loader_free(w->loader);
    ek_ranker_free(w->ranker);
    ek_free(w->h);
    ek_free(w->queries);
    ek_free(w->ranks);
    ek_free(w->next_times);
    ek_free(w->clicks);
}

/* Events of the user who has most. */
static int64_t longest_history(const struct ek_events *e)
{
    int64_t most = 0;
    for (int64_t u = 0; u < e->n_users; u++) {
        const int64_t n = e->offsets[u + 1] - e->offsets[u];
        most = n > most ? n : most;
    }
    return most;
}

static struct ek_ranker_options ranker_options(const struct ek_evaluate *o, int64_t cap)
{
    const struct ek_param *items = ek_params_get(o->params, ek_rec_items(o->model));
    return (struct ek_ranker_options){.items = items->value,
                                      .n_items = items->rows,
                                      .dim = items->cols,
                                      .is_cosine = o->config->is_cosine,
                                      .max_queries = cap,
                                      .max_seen = longest_history(&o->data->events),
                                      .team = o->team,
                                      .isa = o->isa};
}

static struct ek_loader_options loader_options(const struct ek_evaluate *o)
{
    assert(o->part != EK_PART_TRAIN);
    return (struct ek_loader_options){.part = o->part,
                                      .max_length = o->config->max_length,
                                      .batch = o->batch,
                                      .n_ahead = 1};
}

/* o, dim and cap for n samples in batches of B. */
static void measure(struct work *w, const struct ek_evaluate *o, int64_t n, int64_t B)
{
    w->o = o;
    w->dim = ek_params_get(o->params, ek_rec_items(o->model))->cols;
    w->cap = n < CHUNK ? n : CHUNK + B;
}

static void list_arrays(struct work *w, int64_t n, int64_t T, struct ek_taker *t)
{
    w->h = ek_take_array(t, w->cap, (size_t)w->dim * sizeof *w->h);
    w->queries = ek_take_array(t, w->cap, sizeof *w->queries);
    w->ranks = ek_take_array(t, w->cap, sizeof *w->ranks);
    w->next_times = ek_take_array(t, T, sizeof *w->next_times);
    if (ek_rec_click(w->o->model) >= 0 && w->o->data->click >= 0)
        w->clicks = ek_take_array(t, n, sizeof *w->clicks);
}

int ek_evaluate_measure(size_t *sum, const struct ek_evaluate *o, struct ek_err *err)
{
    const struct ek_loader_options l = loader_options(o);
    struct ek_loader_size size;
    struct ek_taker t = {.is_dry = true};
    struct work w = {0};
    int rc = ek_loader_measure(&size, &o->data->events, &o->data->split, &l, err);
    if (rc)
        return rc;
    measure(&w, o, size.n_samples, size.max_sequences);
    list_arrays(&w, size.n_samples, size.max_rows, &t);
    const struct ek_ranker_options r = ranker_options(o, w.cap);
    if (t.status || !ek_add_size(sum, *sum, t.bytes) ||
        !ek_add_size(sum, *sum, size.bytes) || !ek_ranker_bytes(sum, &r))
        return ek_err_set(err, EK_ELIMIT,
                          "evaluation: its buffers take more bytes than a number can "
                          "tell");
    return 0;
}

static int begin(struct work *w, const struct ek_evaluate *o, struct ek_err *err)
{
    const struct ek_loader_options l = loader_options(o);
    int64_t B, T;
    int rc = ek_loader_new(&w->loader, &o->data->events, &o->data->split, &l, err);
    if (rc)
        return rc;
    ek_loader_ceiling(w->loader, &B, &T);
    const int64_t n = ek_loader_samples(w->loader);
    measure(w, o, n, B);
    const struct ek_ranker_options r = ranker_options(o, w->cap);
    rc = ek_ranker_new(&w->ranker, &r, err);
    if (rc)
        return rc;
    struct ek_taker t = {.is_dry = false};
    list_arrays(w, n, T, &t);
    return t.status
               ? ek_err_set(err, t.status, "evaluation: %s", ek_status_text(t.status))
               : 0;
}

static void rank(struct work *w)
{
    ek_ranker_run(w->ranker, w->ranks, w->h, w->dim, w->queries, w->n);
    for (int64_t i = 0; i < w->n; i++) {
        ek_ranking_add(&w->sum.filtered, w->ranks[i].filtered);
        ek_ranking_add(&w->sum.unfiltered, w->ranks[i].unfiltered);
    }
    w->sum.samples += w->n;
    w->n = 0;
}

/* The last rows of the batch's sequences, behind those that wait. */
static void keep(struct work *w, const struct ek_batch *b)
{
    const struct ek_graph *g = ek_rec_graph(w->o->model);
    const struct ek_events *e = &w->o->data->events;
    const struct ek_mat h = ek_graph_mat(g, ek_rec_h(w->o->model));
    for (int64_t s = 0; s < b->B; s++) {
        const int64_t last = b->offsets[s + 1] - 1, target = b->events[last] + 1;
        const int64_t first = e->offsets[b->users[s]];
        memcpy(w->h + w->n * w->dim, h.f + last * h.ld, (size_t)w->dim * sizeof *w->h);
        w->queries[w->n++] = (struct ek_rank_query){.target = e->items[target],
                                                    .seen = e->items + first,
                                                    .n_seen = target - first};
        if (!w->clicks)
            continue;
        const struct ek_mat logit = ek_graph_mat(g, ek_rec_click(w->o->model));
        const float *click = e->columns[w->o->data->click].numbers;
        w->clicks[w->n_clicks++] =
            (struct ek_click){logit.f[last * logit.ld], click[target] > 0};
    }
}

static int run(struct work *w, struct ek_err *err)
{
    struct ek_batch b;
    while (ek_loader_next(w->loader, &b)) {
        struct ek_rec_batch in;
        struct ek_train_extra extra = {.next_times = w->next_times};
        const int64_t start = ek_clock_us();
        ek_train_bind_batch(&in, &b, w->o->data, &extra);
        int rc = ek_rec_bind(w->o->model, &in);
        if (rc)
            return ek_err_set(err, rc,
                              "%s: the model refuses a batch of %lld sequences and "
                              "%lld rows: %s",
                              w->o->data->events.source, (long long)b.B, (long long)b.T,
                              ek_status_text(rc));
        ek_graph_forward(ek_rec_graph(w->o->model), 0);
        w->sum.forward_seconds += 1e-6 * (double)(ek_clock_us() - start);
        keep(w, &b);
        if (w->n >= CHUNK)
            rank(w);
        if (w->o->should_stop && w->o->should_stop(w->o->arg))
            return ek_err_set(err, EK_ECANCELED, "evaluation: %s",
                              ek_status_text(EK_ECANCELED));
    }
    rank(w);
    return 0;
}

int ek_evaluate_run(const struct ek_evaluate *o, struct ek_evaluation *out,
                    struct ek_err *err)
{
    struct work w = {0};
    const int64_t start = ek_clock_us();
    int rc = begin(&w, o, err);
    if (!rc)
        rc = run(&w, err);
    if (!rc) {
        divide(&w.sum.filtered, (double)w.sum.samples);
        divide(&w.sum.unfiltered, (double)w.sum.samples);
        ek_click_measure(w.clicks, w.n_clicks, &w.sum.normalised_entropy, &w.sum.auc);
        w.sum.seconds = 1e-6 * (double)(ek_clock_us() - start);
        *out = w.sum;
    }
    release(&w);
    return rc;
}
