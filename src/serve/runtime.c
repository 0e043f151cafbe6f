#include "serve/runtime.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PROMPT_BYTES_MAX ((size_t)16 << 20) /* of a rendered prompt */

static int32_t forward(void *arg, const struct ek_lm_seq *seqs, int32_t n_seqs,
                       float *logits)
{
    struct ek_runtime *rt = arg;
    return ek_lm_forward(rt->lm, &rt->kv, seqs, n_seqs, logits);
}

static void copy_page(void *arg, int32_t to, int32_t from)
{
    struct ek_runtime *rt = arg;
    ek_kv_copy_page(&rt->kv, to, from);
}

static void poison(void *arg, int32_t page)
{
    struct ek_runtime *rt = arg;
    ek_kv_poison(&rt->kv, page);
}

static void together(void *arg, void (*fn)(void *work, int member, int n_members),
                     void *work)
{
    struct ek_runtime *rt = arg;
    ek_team_run(rt->team, fn, work);
}

static void copy_token_text(char out[64], const struct ek_tokenizer *t, int32_t id)
{
    struct ek_str s = ek_tokenizer_piece(t, id, true);
    out[0] = 0;
    if (id >= 0 && s.n < 64)
        snprintf(out, 64, "%.*s", (int)s.n, s.p);
}

static int open_text(struct ek_runtime *rt, const struct ek_modelfile *m,
                     struct ek_err *err)
{
    int rc = ek_modelfile_tokenizer(&rt->tokenizer, m, err);
    if (rc)
        return rc;
    for (int32_t id = 0; id < ek_tokenizer_size(rt->tokenizer); id++) {
        size_t bytes = ek_tokenizer_piece(rt->tokenizer, id, true).n;
        rt->longest_piece = bytes > rt->longest_piece ? bytes : rt->longest_piece;
    }
    copy_token_text(rt->bos, rt->tokenizer, ek_tokenizer_bos(rt->tokenizer));
    copy_token_text(rt->eos, rt->tokenizer, ek_tokenizer_eos(rt->tokenizer));
    char *source = NULL;
    size_t n = 0;
    rc = ek_modelfile_template(&source, &n, m, err);
    if (rc)
        return rc == EK_ENOENT ? 0 : rc;
    rc = ek_template_parse(&rt->chat, source, n, &rt->chat_err);
    ek_free(source);
    if (rc == EK_ENOMEM)
        return ek_err_set(err, rc, "%s: out of memory", m->path);
    if (rc)
        ek_err_prefix(&rt->chat_err, "chat template");
    return 0;
}

/* Positions a sequence may have. */
static int plan_ctx(struct ek_runtime *rt, const struct ek_lm_params *p,
                    const struct ek_runtime_options *o, struct ek_err *err)
{
    int32_t most = EK_PAGES_PER_SEQ_MAX * EK_PAGE_TOKENS;
    if (p->ctx > 0 && p->ctx < most)
        most = p->ctx;
    if (o->ctx > most)
        return ek_err_set(
            err, EK_EINVAL,
            "ctx: %d is more than the %d positions the model was made for", o->ctx,
            most);
    rt->ctx = most < EK_RUNTIME_CTX_DEFAULT ? most : EK_RUNTIME_CTX_DEFAULT;
    if (o->ctx > 0)
        rt->ctx = o->ctx;
    return 0;
}

/* Pages of KV: what was asked for, else every seat a full context as far as a quarter
 * of the machine's memory goes. A context that the pages cannot hold is cut to what
 * they can: more would be a promise nobody can keep. */
static int plan_pages(int32_t *n_pages, struct ek_runtime *rt,
                      const struct ek_lm_params *p, const struct ek_runtime_options *o,
                      struct ek_err *err)
{
    int64_t page_bytes = (int64_t)ek_kv_page_bytes(p, o->kv_dtype);
    int64_t bytes = o->kv_memory;
    int64_t n = (int64_t)ek_pages_for_tokens(rt->ctx) * o->max_seqs;
    if (bytes > 0)
        n = bytes / page_bytes;
    else
        bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE) / 4;
    n = n < bytes / page_bytes ? n : bytes / page_bytes;
    n = n < INT32_MAX / EK_PAGE_TOKENS ? n : INT32_MAX / EK_PAGE_TOKENS;
    if (n < 1)
        return ek_err_set(
            err, EK_EINVAL,
            "kv_memory: %lld bytes hold no page of %d tokens (%lld bytes)",
            (long long)bytes, EK_PAGE_TOKENS, (long long)page_bytes);
    *n_pages = (int32_t)n;
    if (rt->ctx > *n_pages * EK_PAGE_TOKENS)
        rt->ctx = *n_pages * EK_PAGE_TOKENS;
    return 0;
}

static int open_model(struct ek_runtime *rt, const struct ek_modelfile *m,
                      const struct ek_runtime_options *o, struct ek_err *err)
{
    int32_t batch = o->max_batch_tokens ? o->max_batch_tokens : 512;
    if (batch < o->max_seqs)
        batch = o->max_seqs;
    const struct ek_lm_options lo = {.weights = o->weights,
                                     .has_prefill_weights = o->has_prefill_weights,
                                     .prefill_weights = o->prefill_weights,
                                     .max_batch_tokens = batch,
                                     .on_progress = o->on_progress,
                                     .progress_arg = o->progress_arg};
    int rc = ek_lm_load(&rt->lm, m, &lo, rt->ops, rt->team, err);
    if (!rc && o->is_by_tokens && ek_lm_prefill_bytes(rt->lm) > 0)
        rc = ek_lm_find_crossover(&rt->crossover, rt->lm, err);
    if (rc)
        return rc;
    const struct ek_lm_params *p = ek_lm_get_params(rt->lm);
    int32_t n_pages = 0;
    rc = plan_ctx(rt, p, o, err);
    if (!rc)
        rc = plan_pages(&n_pages, rt, p, o, err);
    if (!rc)
        rc = ek_kv_init(&rt->kv, p, o->kv_dtype, n_pages, err);
    if (rc)
        return rc;
    rt->engine_model = (struct ek_engine_model){
        .forward = forward,
        .copy_page = copy_page,
        .poison = EK_IS_DEBUG ? poison : NULL,
        .together = together,
        .n_members = ek_team_size(rt->team),
        .arg = rt,
        .V = p->V,
        .has_own_decode = ek_lm_prefill_bytes(rt->lm) > 0,
        .kv_saturated = &rt->kv.n_saturated,
    };
    rt->engine_options = (struct ek_engine_options){
        .ctx = rt->ctx,
        .n_pages = n_pages,
        .max_seqs = o->max_seqs,
        .max_batch_tokens = batch,
        .prefill_chunk = o->prefill_chunk ? o->prefill_chunk : batch,
        .itl_target_us = o->itl_target_us,
        .reserve_tokens = o->reserve_tokens,
        .page_check = o->page_check,
        /* By tokens a page's values depend on the batch it was computed in: another
         * sequence would have computed other bits. */
        .caches_prefixes = o->caches_prefixes && rt->crossover.n == 0,
    };
    return 0;
}

int ek_runtime_open(struct ek_runtime *rt, const struct ek_runtime_options *o,
                    struct ek_err *err)
{
    struct ek_modelfile m = {0};
    enum ek_isa isa;
    int64_t start = ek_clock_us();
    *rt = (struct ek_runtime){0};
    int rc = ek_isa_choose(&isa, err);
    if (rc)
        return rc;
    rt->ops = ek_ops_get(isa);
    rc = ek_modelfile_open(&m, o->path, err);
    if (rc == EK_EINVAL) /* a device, a pipe: not an option's fault */
        rc = EK_EFORMAT;
    if (!rc)
        rc = open_text(rt, &m, err);
    if (!rc)
        rc = ek_team_new(&rt->team, o->n_threads, true, err);
    if (!rc)
        rc = open_model(rt, &m, o, err);
    ek_modelfile_close(&m);
    rt->load_us = ek_clock_us() - start;
    if (rc)
        ek_runtime_close(rt);
    return rc;
}

void ek_runtime_close(struct ek_runtime *rt)
{
    ek_kv_release(&rt->kv);
    ek_lm_free(rt->lm);
    ek_team_free(rt->team);
    ek_template_free(rt->chat);
    ek_tokenizer_free(rt->tokenizer);
    *rt = (struct ek_runtime){0};
}

int ek_runtime_chat_text(const struct ek_runtime *rt, struct ek_buf *text,
                         struct ek_buf *is_plain, const json_t *vars,
                         struct ek_err *err)
{
    static const char *const trusted[] = {"bos_token", "eos_token", NULL};
    if (!rt->chat)
        return ek_err_set(err, EK_EUNSUP, "%s",
                          rt->chat_err.text[0] ? rt->chat_err.text
                                               : "the model has no chat template");
    /* A shallow copy: the caller's object is not ours to add keys to. */
    union {
        const json_t *in;
        json_t *out;
    } whole = {.in = vars};
    json_t *all = json_copy(whole.out);
    int rc = 0;
    if (!all || json_object_set_new(all, "bos_token", json_string(rt->bos)) ||
        json_object_set_new(all, "eos_token", json_string(rt->eos)))
        rc = ek_err_set(err, EK_ENOMEM, "out of memory");
    if (!rc)
        rc = ek_template_render(rt->chat, text, is_plain, all, trusted,
                                ek_clock_wall_us(), NULL, err);
    json_decref(all);
    return rc;
}

int ek_runtime_chat_prompt(const struct ek_runtime *rt, struct ek_ids *ids,
                           const json_t *vars, struct ek_err *err)
{
    struct ek_buf text, is_plain;
    ek_buf_init(&text, PROMPT_BYTES_MAX);
    ek_buf_init(&is_plain, PROMPT_BYTES_MAX);
    int rc = ek_runtime_chat_text(rt, &text, &is_plain, vars, err);
    if (!rc) {
        rc = ek_tokenizer_encode(rt->tokenizer, ids, text.data ? text.data : "",
                                 text.len, (const uint8_t *)is_plain.data,
                                 EK_SPECIALS_PARSE, false);
        if (rc)
            ek_err_set(err, rc, "the prompt cannot be tokenized: %s",
                       ek_status_text(rc));
    }
    ek_buf_release(&text);
    ek_buf_release(&is_plain);
    return rc;
}
