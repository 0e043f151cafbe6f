#include "lm/calibrate.h"

#include "base/mem.h"
#include "lm/model_int.h"

#include <assert.h>
#include <string.h>

struct run {
    struct ek_calibration *c;
    const struct ek_calibrate *job;
};

static size_t layer_size(const struct ek_calibration *c)
{
    return 2 * (size_t)c->C + (size_t)c->HD + (size_t)c->F;
}

/* Where an input's channels begin, and how many they are. */
static size_t place_of(const struct ek_calibration *c, int32_t layer,
                       enum ek_calibration_input in, int32_t *n)
{
    const int32_t sizes[] = {c->C, c->HD, c->C, c->F};
    size_t at = (size_t)layer * layer_size(c);
    for (int i = 0; i < (int)in; i++)
        at += (size_t)sizes[i];
    *n = sizes[in];
    return at;
}

static void on_rows(void *arg, int32_t layer, enum ek_lm_matrix first, const float *x,
                    int32_t T, int member, int n_members)
{
    const struct run *r = arg;
    static const enum ek_calibration_input inputs[EK_LM_MATRICES] = {
        [EK_LM_Q] = EK_CALIBRATION_QKV,
        [EK_LM_O] = EK_CALIBRATION_O,
        [EK_LM_GATE] = EK_CALIBRATION_GLU,
        [EK_LM_DOWN] = EK_CALIBRATION_DOWN,
    };
    int32_t K;
    double *sums = r->c->sums + place_of(r->c, layer, inputs[first], &K);
    const int32_t *pos = r->job->lm->plan.pos;
    int64_t k0, k1;
    ek_team_share(&k0, &k1, K, 16, member, n_members);
    for (int32_t t = 0; t < T; t++) {
        const float *row = x + (int64_t)t * K;
        for (int64_t k = k0; pos[t] > 0 && k < k1; k++)
            sums[k] += (double)row[k] * (double)row[k];
    }
}

static int check(const struct ek_calibrate *job, struct ek_err *err)
{
    int32_t ctx = ek_lm_get_params(job->lm)->ctx;
    if (job->ctx < 2 || job->ctx > ctx)
        return ek_err_set(err, EK_EINVAL, "ctx %d: expected 2 to the model's %d",
                          job->ctx, ctx);
    if (job->n_ids < 2)
        return ek_err_set(err, EK_EINVAL,
                          "the text has %lld tokens: expected 2 or more",
                          (long long)job->n_ids);
    return 0;
}

/* One chunk of n >= 2 ids; `chunk` and `pages` are the caller's memory. */
static void run_chunk(const struct ek_calibrate *job, const int32_t *ids, int32_t n,
                      int32_t *chunk, const int32_t *pages)
{
    memcpy(chunk, ids, (size_t)n * sizeof *ids);
    if (job->bos >= 0)
        chunk[0] = job->bos;
    for (int32_t at = 0; at < n; at += job->max_batch_tokens) {
        int32_t left = n - at;
        struct ek_lm_seq q = {
            .tokens = chunk + at,
            .n_tokens = left < job->max_batch_tokens ? left : job->max_batch_tokens,
            .pos0 = at,
            .pages = pages,
            .want = EK_LM_WANT_NONE};
        ek_lm_forward(job->lm, job->kv, &q, 1, NULL);
    }
}

static int run_text(struct run *r, int32_t *chunk, const int32_t *pages,
                    struct ek_err *err)
{
    const struct ek_calibrate *job = r->job;
    int64_t total = (job->n_ids + job->ctx - 1) / job->ctx;
    for (int64_t i = 0; i < total; i++) {
        int64_t left = job->n_ids - i * job->ctx;
        int32_t n = (int32_t)(left < job->ctx ? left : job->ctx);
        if (n > 1)
            run_chunk(job, job->ids + i * job->ctx, n, chunk, pages);
        r->c->n_tokens += n - 1;
        if (job->on_chunk && !job->on_chunk(job->arg, i + 1, total))
            return ek_err_set(err, EK_ECANCELED, "stopped after %lld of %lld chunks",
                              (long long)(i + 1), (long long)total);
    }
    return 0;
}

static int take_memory(struct ek_calibration *c, const struct ek_lm_params *p)
{
    c->n_layers = p->n_layers;
    c->C = p->C;
    c->HD = p->H * p->D;
    c->F = p->F;
    size_t n = (size_t)c->n_layers * layer_size(c);
    c->sums = ek_calloc(n, sizeof *c->sums);
    c->means = ek_calloc(n, sizeof *c->means);
    return c->sums && c->means ? 0 : EK_ENOMEM;
}

int ek_calibrate_run(struct ek_calibration *c, const struct ek_calibrate *job,
                     struct ek_err *err)
{
    struct ek_calibration made = {0};
    struct run r = {&made, job};
    int32_t *chunk = NULL, *pages = NULL, n_pages;
    memset(c, 0, sizeof *c);
    int rc = check(job, err);
    if (rc)
        return rc;
    assert(ek_lm_prefill_bytes(job->lm) == 0);
    n_pages = (job->ctx + EK_PAGE_TOKENS - 1) / EK_PAGE_TOKENS;
    chunk = ek_alloc_array((size_t)job->ctx, sizeof *chunk);
    pages = ek_alloc_array((size_t)n_pages, sizeof *pages);
    if (!chunk || !pages || take_memory(&made, ek_lm_get_params(job->lm))) {
        rc = ek_err_set(err, EK_ENOMEM, "no memory for calibration");
        goto out;
    }
    for (int32_t i = 0; i < n_pages; i++)
        pages[i] = i;
    job->lm->watch = on_rows;
    job->lm->watch_arg = &r;
    rc = run_text(&r, chunk, pages, err);
    job->lm->watch = NULL;
    if (rc)
        goto out;
    for (size_t i = 0; i < (size_t)made.n_layers * layer_size(&made); i++)
        made.means[i] = (float)(made.sums[i] / (double)made.n_tokens);
    *c = made;
    made = (struct ek_calibration){0};
out:
    ek_calibration_release(&made);
    ek_free(pages);
    ek_free(chunk);
    return rc;
}

void ek_calibration_release(struct ek_calibration *c)
{
    ek_free(c->sums);
    ek_free(c->means);
    memset(c, 0, sizeof *c);
}

const float *ek_calibration_get(const struct ek_calibration *c, int32_t layer,
                                enum ek_calibration_input in)
{
    int32_t n;
    assert(layer >= 0 && layer < c->n_layers);
    return c->means + place_of(c, layer, in, &n);
}
