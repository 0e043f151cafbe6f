/* perplexity.c - chunks through the forward pass, rows of logits through the team.
 *
 * Logits are taken ROWS at a time: a whole half chunk of a large vocabulary would be a
 * quarter of a gigabyte.
 */
#include "lm/perplexity.h"

#include "base/mem.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define ROWS 32

/* What a member finds out about one row. */
struct row {
    double nll, ref_nll, kl;
    bool agrees;
};

struct run {
    const struct ek_perplexity *job;
    struct ek_score *s;
    int64_t V;
    int32_t *chunk; /* (ctx) ids, BOS put first */
    int32_t *pages; /* 0, 1, 2, ... */
    float *x;       /* (ROWS,V) */
    float *ref;     /* (ROWS,V) or NULL */
    /* While the team scores: */
    const int32_t *next; /* (n_rows) */
    int32_t n_rows;
    struct row rows[ROWS];
};

/* ln sum exp of x, in f64, and the index of the largest. */
static double log_sum(const float *x, int64_t V, int64_t *top)
{
    double sum = 1; /* the top's own term */
    *top = 0;
    for (int64_t v = 1; v < V; v++) {
        if (x[v] > x[*top])
            *top = v;
    }
    for (int64_t v = 0; v < V; v++)
        sum += v != *top ? exp((double)x[v] - (double)x[*top]) : 0;
    return log(sum) + (double)x[*top];
}

static struct row score_row(const float *x, const float *ref, int64_t V, int32_t next)
{
    int64_t top, ref_top;
    double lx = log_sum(x, V, &top);
    struct row r = {.nll = lx - (double)x[next]};
    if (!ref)
        return r;
    double lr = log_sum(ref, V, &ref_top);
    r.ref_nll = lr - (double)ref[next];
    for (int64_t v = 0; v < V; v++) {
        double p = (double)ref[v] - lr;
        r.kl += exp(p) * (p - ((double)x[v] - lx));
    }
    r.kl = r.kl > 0 ? r.kl : 0; /* below 0 by rounding alone */
    r.agrees = top == ref_top;
    return r;
}

static void add_row(struct ek_score *s, const struct row *r, bool has_ref)
{
    s->n++;
    s->nll += r->nll;
    s->nll_sq += r->nll * r->nll;
    if (!has_ref)
        return;
    s->ref_nll += r->ref_nll;
    s->kl += r->kl;
    s->kl_sq += r->kl * r->kl;
    s->kl_max = r->kl > s->kl_max ? r->kl : s->kl_max;
    s->n_agree += r->agrees;
}

void ek_score_add(struct ek_score *s, const float *x, const float *ref, int64_t V,
                  int32_t next)
{
    struct row r = score_row(x, ref, V, next);
    add_row(s, &r, ref != NULL);
}

double ek_score_perplexity(const struct ek_score *s)
{
    return s->n ? exp(s->nll / (double)s->n) : (double)NAN;
}

double ek_score_error(const struct ek_score *s)
{
    if (s->n < 2)
        return 0;
    double n = (double)s->n, mean = s->nll / n;
    double variance = s->nll_sq / n - mean * mean;
    return variance > 0 ? ek_score_perplexity(s) * sqrt(variance / (n - 1)) : 0;
}

static void score_member(void *arg, int member, int n_members)
{
    struct run *r = arg;
    for (int32_t i = member; i < r->n_rows; i += n_members)
        r->rows[i] = score_row(r->x + i * r->V, r->ref ? r->ref + i * r->V : NULL, r->V,
                               r->next[i]);
}

/* Positions [at, at+n) of the chunk through one model; logits for all rows, or none. */
static void forward(const struct run *r, const struct ek_perplexity_model *m,
                    int32_t at, int32_t n, float *logits)
{
    struct ek_lm_seq q = {.tokens = r->chunk + at,
                          .n_tokens = n,
                          .pos0 = at,
                          .pages = r->pages,
                          .want = logits ? EK_LM_WANT_ALL : EK_LM_WANT_NONE};
    ek_lm_forward(m->lm, m->kv, &q, 1, logits);
}

static void run_piece(struct run *r, int32_t at, int32_t n, bool is_scored)
{
    forward(r, &r->job->model, at, n, is_scored ? r->x : NULL);
    if (r->ref)
        forward(r, &r->job->ref, at, n, is_scored ? r->ref : NULL);
    if (!is_scored)
        return;
    r->next = r->chunk + at + 1;
    r->n_rows = n;
    ek_team_run(r->job->team, score_member, r);
    for (int32_t i = 0; i < n; i++)
        add_row(r->s, &r->rows[i], r->ref != NULL);
}

/* The last id is only predicted, never read: positions [0, ctx-1) are computed. */
static void run_chunk(struct run *r, const int32_t *ids)
{
    const struct ek_perplexity *job = r->job;
    int32_t half = job->ctx / 2, n;
    memcpy(r->chunk, ids, (size_t)job->ctx * sizeof *ids);
    if (job->bos >= 0)
        r->chunk[0] = job->bos;
    for (int32_t at = 0; at < half; at += n) {
        n = half - at < job->max_batch_tokens ? half - at : job->max_batch_tokens;
        run_piece(r, at, n, false);
    }
    int32_t most = job->max_batch_tokens < ROWS ? job->max_batch_tokens : ROWS;
    for (int32_t at = half; at < job->ctx - 1; at += n) {
        n = job->ctx - 1 - at < most ? job->ctx - 1 - at : most;
        run_piece(r, at, n, true);
    }
}

static int check(const struct ek_perplexity *job, struct ek_err *err)
{
    int32_t ctx = ek_lm_get_params(job->model.lm)->ctx;
    if (job->ctx < 4 || job->ctx > ctx)
        return ek_err_set(err, EK_EINVAL, "ctx %d: expected 4 to the model's %d",
                          job->ctx, ctx);
    if (job->n_ids < job->ctx)
        return ek_err_set(err, EK_EINVAL,
                          "the text has %lld tokens: expected at least one chunk of "
                          "%d",
                          (long long)job->n_ids, job->ctx);
    return 0;
}

static int take_memory(struct run *r, struct ek_err *err)
{
    const struct ek_perplexity *job = r->job;
    size_t row = (size_t)r->V * sizeof(float);
    int32_t n_pages = (job->ctx + EK_PAGE_TOKENS - 1) / EK_PAGE_TOKENS;
    r->chunk = ek_alloc_array((size_t)job->ctx, sizeof *r->chunk);
    r->pages = ek_alloc_array((size_t)n_pages, sizeof *r->pages);
    r->x = ek_alloc_array(ROWS, row);
    r->ref = job->ref.lm ? ek_alloc_array(ROWS, row) : NULL;
    if (!r->chunk || !r->pages || !r->x || (job->ref.lm && !r->ref))
        return ek_err_set(err, EK_ENOMEM, "no memory for %d rows of logits", ROWS);
    for (int32_t i = 0; i < n_pages; i++)
        r->pages[i] = i;
    return 0;
}

int ek_perplexity_run(struct ek_score *s, const struct ek_perplexity *job,
                      struct ek_err *err)
{
    struct run r = {.job = job, .s = s};
    int64_t total = 0;
    int rc = check(job, err);
    if (rc)
        return rc;
    memset(s, 0, sizeof *s);
    r.V = ek_lm_get_params(job->model.lm)->V;
    assert(!job->ref.lm || ek_lm_get_params(job->ref.lm)->V == r.V);
    rc = take_memory(&r, err);
    if (rc)
        goto out;
    total = job->n_ids / job->ctx;
    for (int64_t i = 0; i < total && !rc; i++) {
        run_chunk(&r, job->ids + i * job->ctx);
        if (job->on_chunk && !job->on_chunk(job->arg, i + 1, total, s))
            rc = ek_err_set(err, EK_ECANCELED, "stopped after %lld of %lld chunks",
                            (long long)(i + 1), (long long)total);
    }
out:
    ek_free(r.ref);
    ek_free(r.x);
    ek_free(r.pages);
    ek_free(r.chunk);
    return rc;
}
