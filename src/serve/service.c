#include "serve/service.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Contexts beyond this are asked for by name (--ctx), not taken by default: a sequence
 * reserves the pages of its whole answer. */
#define CTX_DEFAULT_MAX 8192

void ek_service_options_default(struct ek_service_options *o)
{
    *o = (struct ek_service_options){
        .max_seqs = 8,
        .max_batch_tokens = 512,
        .prefill_chunk = 256,
        .kv_dtype = EK_DTYPE_BF16,
        .weights = EK_LM_WEIGHTS_KEEP,
    };
}

/* The last part of the path, without .gguf: what a client would call the model. */
static void name_of_path(char *out, size_t cap, const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t start = n;
    while (start > 0 && path[start - 1] != '/')
        start--;
    if (n - start > 5 && !memcmp(path + n - 5, ".gguf", 5))
        n -= 5;
    snprintf(out, cap, "%.*s", (int)(n - start), path + start);
}

static int load_template(struct ek_service *s, struct ek_err *err)
{
    char *source = NULL;
    size_t n = 0;
    int rc = ek_modelfile_template(&source, &n, &s->file, err);
    if (rc == EK_ENOENT)
        return 0;
    if (!rc) {
        rc = ek_template_parse(&s->chat, source, n, err);
        if (rc)
            ek_err_prefix(err, "%s: chat template", s->file.path);
    }
    ek_free(source);
    return rc;
}

/* Pages for the KV storage: what was asked for, else every seat a full context, as far
 * as a quarter of the machine's memory goes. */
static int choose_pages(struct ek_service *s, const struct ek_service_options *o,
                        const struct ek_lm_params *p, struct ek_err *err)
{
    int64_t page = (int64_t)ek_kv_page_bytes(p, o->kv_dtype);
    int64_t per_seq = ek_pages_for_tokens(s->ctx);
    int64_t bytes = o->kv_bytes;
    int64_t n = per_seq * o->max_seqs;
    if (bytes == 0)
        bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE) / 4;
    else
        n = bytes / page;
    if (n > bytes / page)
        n = bytes / page;
    if (n > INT32_MAX)
        n = INT32_MAX;
    if (n < 1)
        return ek_err_set(
            err, EK_EINVAL,
            "kv_memory: %lld bytes hold no page of %d tokens (%lld bytes)",
            (long long)bytes, EK_PAGE_TOKENS, (long long)page);
    s->n_pages = (int32_t)n;
    /* A context that the pages cannot hold would be a promise nobody can keep. */
    if (s->ctx > n * EK_PAGE_TOKENS)
        s->ctx = (int32_t)(n * EK_PAGE_TOKENS);
    return 0;
}

static int load_weights(struct ek_service *s, const struct ek_service_options *o,
                        struct ek_err *err)
{
    enum ek_isa isa;
    struct ek_lm_options lm = {
        .weights = o->weights,
        .max_batch_tokens = o->max_batch_tokens,
        .on_progress = o->on_progress,
        .progress_arg = o->progress_arg,
    };
    int rc = ek_isa_choose(&isa, err);
    if (rc)
        return rc;
    s->ops = ek_ops_get(isa);
    rc = ek_team_new(&s->team, o->n_threads, true, err);
    if (!rc)
        rc = ek_lm_load(&s->lm, &s->file, &lm, s->ops, s->team, err);
    return rc;
}

static int settle_ctx(struct ek_service *s, const struct ek_service_options *o,
                      const struct ek_lm_params *p, struct ek_err *err)
{
    int32_t most = EK_PAGES_PER_SEQ_MAX * EK_PAGE_TOKENS;
    if (p->ctx > 0 && p->ctx < most)
        most = p->ctx;
    if (o->ctx > most)
        return ek_err_set(err, EK_EINVAL, "ctx: %d is over what the model can, %d",
                          o->ctx, most);
    s->ctx = o->ctx > 0 ? o->ctx : most < CTX_DEFAULT_MAX ? most : CTX_DEFAULT_MAX;
    return 0;
}

static int open_parts(struct ek_service *s, const struct ek_service_options *o,
                      struct ek_err *err)
{
    int rc = ek_modelfile_tokenizer(&s->tokenizer, &s->file, err);
    if (!rc)
        rc = load_template(s, err);
    if (!rc)
        rc = load_weights(s, o, err);
    if (rc)
        return rc;
    const struct ek_lm_params *p = ek_lm_get_params(s->lm);
    if (ek_tokenizer_size(s->tokenizer) > p->V)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: the tokenizer has %d tokens, the model's head only %d",
                          s->file.path, ek_tokenizer_size(s->tokenizer), p->V);
    for (int32_t id = 0; id < p->V; id++) {
        struct ek_str piece = ek_tokenizer_piece(s->tokenizer, id, true);
        s->longest_piece = piece.n > s->longest_piece ? piece.n : s->longest_piece;
    }
    rc = settle_ctx(s, o, p, err);
    if (!rc)
        rc = choose_pages(s, o, p, err);
    if (!rc)
        rc = ek_kv_init(&s->kv, p, o->kv_dtype, s->n_pages, err);
    return rc;
}

int ek_service_open(struct ek_service *s, const struct ek_service_options *o,
                    struct ek_err *err)
{
    *s = (struct ek_service){.created_s = ek_clock_wall_us() / 1000000};
    int rc = ek_modelfile_open(&s->file, o->path, err);
    if (!rc)
        rc = open_parts(s, o, err);
    if (rc) {
        ek_service_close(s);
        return rc;
    }
    if (o->id)
        snprintf(s->id, sizeof s->id, "%s", o->id);
    else
        name_of_path(s->id, sizeof s->id, o->path);
    s->engine = (struct ek_engine_options){
        .ctx = s->ctx,
        .n_pages = s->n_pages,
        .max_seqs = o->max_seqs,
        .max_batch_tokens = o->max_batch_tokens,
        .prefill_chunk = o->prefill_chunk,
    };
    return 0;
}

void ek_service_close(struct ek_service *s)
{
    ek_kv_release(&s->kv);
    ek_lm_free(s->lm);
    ek_team_free(s->team);
    ek_template_free(s->chat);
    ek_tokenizer_free(s->tokenizer);
    ek_modelfile_close(&s->file);
    *s = (struct ek_service){0};
}

static int32_t forward(void *arg, const struct ek_lm_seq *seqs, int32_t n_seqs,
                       float *logits)
{
    struct ek_service *s = arg;
    return ek_lm_forward(s->lm, &s->kv, seqs, n_seqs, logits);
}

int ek_service_engine(struct ek_engine **e, struct ek_service *s,
                      ek_on_delta_fn *on_delta, void *arg, struct ek_err *err)
{
    struct ek_engine_model model = {forward, s, ek_lm_get_params(s->lm)->V};
    return ek_engine_new(e, &model, s->tokenizer, &s->engine, s->ops, on_delta, arg,
                         err);
}
