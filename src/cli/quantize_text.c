/* quantize_text.c - texts through models: calibration before, comparison after. */
#include "base/mem.h"
#include "cli/progress.h"
#include "cli/quantize.h"

#include <stdio.h>

#define TEXT_BYTES_MAX ((size_t)1 << 30)
#define IDS_MAX        ((size_t)1 << 30)
#define BATCH_TOKENS   256

/* One model with its pages. */
struct half {
    struct ek_modelfile m;
    struct ek_lm *lm;
    struct ek_kv kv;
};

static void close_half(struct half *h)
{
    ek_kv_release(&h->kv);
    ek_lm_free(h->lm);
    ek_modelfile_close(&h->m);
}

static int open_half(struct half *h, const char *path, int64_t ctx,
                     struct ek_team *team, struct ek_err *err)
{
    enum ek_isa isa;
    struct ek_progress progress;
    struct ek_lm_options o = {.max_batch_tokens = BATCH_TOKENS,
                              .on_progress = ek_progress_bytes,
                              .progress_arg = &progress};
    int rc = ek_isa_choose(&isa, err);
    if (!rc)
        rc = ek_modelfile_open(&h->m, path, err);
    if (rc)
        return rc;
    ek_progress_begin(&progress, "loading weights", true);
    rc = ek_lm_load(&h->lm, &h->m, &o, ek_ops_get(isa), team, err);
    ek_progress_end(&progress);
    if (rc)
        return rc;
    return ek_kv_init(&h->kv, ek_lm_get_params(h->lm), EK_DTYPE_F32,
                      (int32_t)((ctx + EK_PAGE_TOKENS - 1) / EK_PAGE_TOKENS), err);
}

/* The text's ids by h's tokenizer; *bos is the id put first, or -1. */
static int read_ids(struct ek_ids *ids, int32_t *bos, const struct half *h,
                    const char *path, int64_t max_bytes, struct ek_err *err)
{
    struct ek_tokenizer *t = NULL;
    struct ek_buf text;
    int32_t V = ek_lm_get_params(h->lm)->V;
    ek_buf_init(&text, TEXT_BYTES_MAX);
    int rc = ek_modelfile_tokenizer(&t, &h->m, err);
    if (!rc)
        rc = ek_file_read(&text, path, err);
    if (rc)
        goto out;
    size_t n = text.len;
    if (max_bytes > 0 && (uint64_t)max_bytes < n)
        n = (size_t)max_bytes;
    rc = ek_tokenizer_encode(t, ids, text.data ? text.data : "", n, NULL,
                             EK_SPECIALS_PLAIN, true);
    if (rc)
        ek_err_set(err, rc, "%s: %s", path, ek_status_text(rc));
    for (size_t i = 0; i < ids->n && !rc; i++) {
        if (ids->ids[i] >= V)
            rc = ek_err_set(err, EK_EFORMAT,
                            "%s: the tokenizer's id %d is outside of the model's "
                            "vocabulary of %d",
                            h->m.path, ids->ids[i], V);
    }
    *bos = ek_tokenizer_adds_bos(t) ? ek_tokenizer_bos(t) : -1;
out:
    ek_tokenizer_free(t);
    ek_buf_release(&text);
    return rc;
}

static bool on_calibrate(void *arg, int64_t done, int64_t total)
{
    ek_progress_show(arg, done, total, NULL);
    return !ek_interrupt_seen();
}

int ek_quantize_calibrate(struct ek_calibration *c, const char *in,
                          const struct ek_quantize_settings *set, struct ek_team *team,
                          struct ek_err *err)
{
    struct half h = {0};
    struct ek_ids ids;
    struct ek_progress progress;
    int32_t bos = -1;
    ek_ids_init(&ids, IDS_MAX);
    int rc = open_half(&h, in, set->ctx, team, err);
    if (!rc)
        rc = read_ids(&ids, &bos, &h, set->calibrate, set->max_bytes, err);
    if (rc)
        goto out;
    struct ek_calibrate job = {.lm = h.lm,
                               .kv = &h.kv,
                               .max_batch_tokens = BATCH_TOKENS,
                               .ctx = (int32_t)set->ctx,
                               .bos = bos,
                               .ids = ids.ids,
                               .n_ids = (int64_t)ids.n,
                               .on_chunk = on_calibrate,
                               .arg = &progress};
    ek_progress_begin(&progress, "calibrating", false);
    rc = ek_calibrate_run(c, &job, err);
    ek_progress_end(&progress);
    if (rc == EK_EINVAL)
        ek_err_prefix(err, "%s", set->calibrate);
out:
    ek_ids_release(&ids);
    close_half(&h);
    return rc;
}

static bool on_chunk(void *arg, int64_t done, int64_t total, const struct ek_score *s)
{
    char note[48];
    snprintf(note, sizeof note, "perplexity %.4f", ek_score_perplexity(s));
    ek_progress_show(arg, done, total, note);
    return !ek_interrupt_seen();
}

int ek_quantize_check(struct ek_score *s, const char *in, const char *out,
                      const struct ek_quantize_settings *set, struct ek_team *team,
                      struct ek_err *err)
{
    struct half a = {0}, b = {0};
    struct ek_ids ids;
    struct ek_progress progress;
    int32_t bos = -1;
    ek_ids_init(&ids, IDS_MAX);
    int rc = open_half(&a, in, set->ctx, team, err);
    if (!rc)
        rc = open_half(&b, out, set->ctx, team, err);
    if (!rc)
        rc = read_ids(&ids, &bos, &b, set->check, set->max_bytes, err);
    if (rc)
        goto out;
    struct ek_perplexity job = {.model = {b.lm, &b.kv},
                                .ref = {a.lm, &a.kv},
                                .team = team,
                                .max_batch_tokens = BATCH_TOKENS,
                                .ctx = (int32_t)set->ctx,
                                .bos = bos,
                                .ids = ids.ids,
                                .n_ids = (int64_t)ids.n,
                                .on_chunk = on_chunk,
                                .arg = &progress};
    ek_progress_begin(&progress, "comparing", false);
    rc = ek_perplexity_run(s, &job, err);
    ek_progress_end(&progress);
    if (rc == EK_EINVAL)
        ek_err_prefix(err, "%s", set->check);
out:
    ek_ids_release(&ids);
    close_half(&b);
    close_half(&a);
    return rc;
}
