#include "serve/runtime.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

#define PROMPT_BYTES_MAX ((size_t)16 << 20) /* of a rendered prompt */

static int32_t forward(void *arg, const struct ek_lm_seq *seqs, int32_t n_seqs,
                       float *logits)
{
    struct ek_runtime *rt = arg;
    return ek_lm_forward(rt->lm, &rt->kv, seqs, n_seqs, logits);
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
        ek_err_prefix(&rt->chat_err, "%s: chat template", m->path);
    return 0;
}

/* Context and page count from the options, or a sentence why they cannot be. */
static int plan_pages(int32_t *n_pages, struct ek_runtime *rt,
                      const struct ek_lm_params *p, const struct ek_runtime_options *o,
                      struct ek_err *err)
{
    if (o->ctx > p->ctx)
        return ek_err_set(err, EK_EINVAL,
                          "ctx %d is more than the %d positions the model was made for",
                          (int)o->ctx, (int)p->ctx);
    rt->ctx = o->ctx ? o->ctx : p->ctx;
    int64_t per_seq = ek_pages_for_tokens(rt->ctx);
    int64_t pages = per_seq * o->max_seqs;
    if (o->kv_memory) {
        int64_t page_bytes = (int64_t)ek_kv_page_bytes(p, o->kv_dtype);
        pages = o->kv_memory / page_bytes;
        if (pages < 1)
            return ek_err_set(err, EK_EINVAL,
                              "kv_memory %lld holds no page: one takes %lld bytes",
                              (long long)o->kv_memory, (long long)page_bytes);
    }
    if (pages > INT32_MAX / EK_PAGE_TOKENS)
        return ek_err_set(err, EK_ELIMIT, "%lld KV pages are over the limit of %d",
                          (long long)pages, INT32_MAX / EK_PAGE_TOKENS);
    *n_pages = (int32_t)pages;
    return 0;
}

static int open_model(struct ek_runtime *rt, const struct ek_modelfile *m,
                      const struct ek_runtime_options *o, struct ek_err *err)
{
    int32_t batch = o->max_batch_tokens ? o->max_batch_tokens : 512;
    if (batch < o->max_seqs)
        batch = o->max_seqs;
    const struct ek_lm_options lo = {.weights = o->weights,
                                     .max_batch_tokens = batch,
                                     .on_progress = o->on_progress,
                                     .progress_arg = o->progress_arg};
    int rc = ek_lm_load(&rt->lm, m, &lo, rt->ops, rt->team, err);
    if (rc)
        return rc;
    const struct ek_lm_params *p = ek_lm_get_params(rt->lm);
    if (ek_tokenizer_size(rt->tokenizer) > p->V)
        return ek_err_set(
            err, EK_EFORMAT,
            "%s: the tokenizer has %d tokens, the model's embedding %d rows", o->path,
            (int)ek_tokenizer_size(rt->tokenizer), (int)p->V);
    int32_t n_pages = 0;
    rc = plan_pages(&n_pages, rt, p, o, err);
    if (rc)
        return rc;
    rc = ek_kv_init(&rt->kv, p, o->kv_dtype, n_pages, err);
    if (rc)
        return rc;
    rt->engine_model =
        (struct ek_engine_model){.forward = forward, .arg = rt, .V = p->V};
    rt->engine_options = (struct ek_engine_options){
        .ctx = rt->ctx,
        .n_pages = n_pages,
        .max_seqs = o->max_seqs,
        .max_batch_tokens = batch,
        .prefill_chunk = o->prefill_chunk ? o->prefill_chunk : batch,
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

int ek_runtime_chat_prompt(const struct ek_runtime *rt, struct ek_ids *ids,
                           const json_t *vars, struct ek_err *err)
{
    static const char *const trusted[] = {"bos_token", "eos_token", NULL};
    if (!rt->chat)
        return ek_err_set(err, EK_EUNSUP, "%s",
                          rt->chat_err.text[0] ? rt->chat_err.text
                                               : "the model has no chat template");
    struct ek_buf text, is_plain;
    ek_buf_init(&text, PROMPT_BYTES_MAX);
    ek_buf_init(&is_plain, PROMPT_BYTES_MAX);
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
        rc = ek_template_render(rt->chat, &text, &is_plain, all, trusted,
                                ek_clock_wall_us(), NULL, err);
    if (!rc) {
        rc = ek_tokenizer_encode(rt->tokenizer, ids, text.data ? text.data : "",
                                 text.len, (const uint8_t *)is_plain.data,
                                 EK_SPECIALS_PARSE, false);
        if (rc)
            ek_err_set(err, rc, "the prompt cannot be tokenized: %s",
                       ek_status_text(rc));
    }
    json_decref(all);
    ek_buf_release(&text);
    ek_buf_release(&is_plain);
    return rc;
}
