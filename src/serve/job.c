#include "serve/job.h"

#include "base/mem.h"

#include <string.h>

/* Memory one prompt may take: ids, page table, penalties, deltas, prompt logprobs. */
#define ARENA_BYTES_MAX (512u << 20)

static int no_memory(struct ek_api_error *e)
{
    return ek_api_fail(e, 500, "", "the server is out of memory");
}

int ek_job_check_model(const struct ek_job_model *m, const char *name,
                       struct ek_api_error *e)
{
    if (!name || !*name || !strcmp(name, m->id))
        return 0;
    return ek_api_fail(e, 404, "model",
                       "model \"%.200s\" does not exist here; this server has \"%s\"",
                       name, m->id);
}

static int too_long(struct ek_api_error *e, const char *param, size_t n, int32_t ctx)
{
    return ek_api_fail(e, 400, param,
                       "%s: %zu tokens are more than the context of %d tokens leaves "
                       "(an answer needs at least one)",
                       param, n, ctx);
}

/* Bytes so many that no tokenization could fit: refused without the work. */
static int check_bytes(const struct ek_job_model *m, const char *param, size_t n,
                       struct ek_api_error *e)
{
    size_t least = m->rt->longest_piece ? n / m->rt->longest_piece : 0;
    if (least <= (size_t)m->rt->ctx)
        return 0;
    return ek_api_fail(
        e, 400, param,
        "%s: %zu bytes are at least %zu tokens, more than the context of "
        "%d tokens",
        param, n, least, m->rt->ctx);
}

static int encode_failed(int rc, const struct ek_job_model *m, const char *param,
                         struct ek_api_error *e)
{
    if (rc == EK_ELIMIT)
        return ek_api_fail(e, 400, param,
                           "%s: more tokens than the context of %d tokens", param,
                           m->rt->ctx);
    return no_memory(e);
}

int ek_job_text_tokens(struct ek_ids *out, const struct ek_job_model *m,
                       struct ek_str text, bool with_bos, struct ek_api_error *e)
{
    int rc = check_bytes(m, "prompt", text.n, e);
    if (rc)
        return rc;
    rc = ek_tokenizer_encode(m->rt->tokenizer, out, text.p, text.n, NULL,
                             EK_SPECIALS_PARSE, with_bos);
    return rc ? encode_failed(rc, m, "prompt", e) : 0;
}

/* The variables a template sees. Callers' kwargs may add, not replace, them. */
static json_t *template_vars(const struct ek_api_params *p)
{
    json_t *vars = json_object();
    int rc = vars ? 0 : -1;
    if (!rc && p->kwargs)
        rc = json_object_update(vars, p->kwargs);
    if (!rc)
        rc = json_object_set(vars, "messages", p->messages);
    if (!rc)
        rc = json_object_set_new(vars, "add_generation_prompt",
                                 json_boolean(p->add_generation_prompt));
    if (rc) {
        json_decref(vars);
        return NULL;
    }
    return vars;
}

/* Cuts what the template wrote after the last message's content, so that the answer
 * goes on with it. */
static int cut_after_last(struct ek_buf *text, struct ek_buf *plain,
                          const json_t *messages, struct ek_api_error *e)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const json_t *content = json_object_get(last, "content");
    const char *p = json_string_value(content);
    size_t n = json_string_length(content);
    while (n > 0 && strchr(" \t\r\n", p[n - 1]))
        n--;
    const char *at = NULL;
    for (size_t i = text->len; n > 0 && !at && i >= n; i--) {
        if (!memcmp(text->data + i - n, p, n))
            at = text->data + i - n;
    }
    if (!at)
        return ek_api_fail(e, 400, "continue_final_message",
                           "continue_final_message: the last message's content does "
                           "not appear at the end of the rendered chat");
    text->len = (size_t)(at - text->data) + n;
    plain->len = text->len;
    return 0;
}

static int render(struct ek_buf *text, struct ek_buf *plain,
                  const struct ek_job_model *m, const struct ek_api_params *p,
                  struct ek_api_error *e)
{
    struct ek_err err = EK_ERR_INIT;
    json_t *vars = template_vars(p);
    if (!vars)
        return no_memory(e);
    int rc = ek_runtime_chat_text(m->rt, text, plain, vars, &err);
    json_decref(vars);
    if (rc == EK_ENOMEM)
        return no_memory(e);
    if (rc == EK_EUNSUP)
        return ek_api_fail(e, 400, "messages", "%s; use /v1/completions", err.text);
    if (rc)
        return ek_api_fail(e, 400, "messages", "chat template: %s", err.text);
    return p->continue_final_message ? cut_after_last(text, plain, p->messages, e) : 0;
}

int ek_job_chat_tokens(struct ek_ids *out, const struct ek_job_model *m,
                       const struct ek_api_params *p, struct ek_api_error *e)
{
    struct ek_buf text, plain;
    ek_buf_init(&text, 2 * EK_API_BODY_BYTES_MAX);
    ek_buf_init(&plain, 2 * EK_API_BODY_BYTES_MAX);
    int rc = render(&text, &plain, m, p, e);
    if (!rc)
        rc = check_bytes(m, "messages", text.len, e);
    if (!rc) {
        rc = ek_tokenizer_encode(m->rt->tokenizer, out, text.data, text.len,
                                 (const uint8_t *)plain.data, EK_SPECIALS_PARSE, false);
        if (rc)
            rc = encode_failed(rc, m, "messages", e);
    }
    ek_buf_release(&text);
    ek_buf_release(&plain);
    return rc;
}

/* Ids given by the client: each must be a token. */
static int take_ids(struct ek_ids *out, const struct ek_job_model *m,
                    const json_t *array, struct ek_api_error *e)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        json_int_t id = json_integer_value(json_array_get(array, i));
        if (id < 0 || id >= m->rt->engine_model.V)
            return ek_api_fail(e, 400, "prompt",
                               "prompt: token %lld is outside the vocabulary of %d",
                               (long long)id, m->rt->engine_model.V);
        int rc = ek_ids_add(out, (int32_t)id);
        if (rc)
            return encode_failed(rc, m, "prompt", e);
    }
    return 0;
}

static int tokens_of(struct ek_ids *out, const struct ek_job_model *m,
                     const struct ek_api_params *p, const json_t *prompt,
                     struct ek_api_error *e)
{
    if (p->kind == EK_API_CHAT)
        return ek_job_chat_tokens(out, m, p, e);
    if (json_is_array(prompt))
        return take_ids(out, m, prompt, e);
    struct ek_str text = {json_string_value(prompt), json_string_length(prompt)};
    return ek_job_text_tokens(out, m, text, p->add_special_tokens, e);
}

static int set_echo(struct ek_job *job, const struct ek_job_model *m,
                    const json_t *prompt, struct ek_api_error *e)
{
    struct ek_request *r = &job->request;
    struct ek_buf text;
    ek_buf_init(&text, ARENA_BYTES_MAX / 8);
    int rc =
        json_is_string(prompt)
            ? ek_buf_add(&text, json_string_value(prompt), json_string_length(prompt))
            : ek_tokenizer_decode(m->rt->tokenizer, &text, r->prompt,
                                  (size_t)r->n_prompt, false);
    if (!rc) {
        job->echo.p = ek_arena_strndup(&r->arena, text.data ? text.data : "", text.len);
        job->echo.n = text.len;
    }
    ek_buf_release(&text);
    return rc || !job->echo.p ? no_memory(e) : 0;
}

static int copy_lists(struct ek_request *r, const struct ek_job_model *m,
                      const struct ek_api_params *p, struct ek_api_error *e)
{
    size_t bias_bytes = (size_t)p->n_bias * sizeof *p->bias;
    size_t ids_bytes = (size_t)p->n_stop_ids * sizeof *p->stop_ids;
    for (int32_t i = 0; i < p->n_bias; i++) {
        if (p->bias[i].id >= m->rt->engine_model.V)
            return ek_api_fail(e, 400, "logit_bias",
                               "logit_bias: token %d is outside the vocabulary of %d",
                               p->bias[i].id, m->rt->engine_model.V);
    }
    struct ek_logit_bias *bias = ek_arena_alloc(&r->arena, bias_bytes);
    int32_t *ids = ek_arena_alloc(&r->arena, ids_bytes);
    if (!bias || !ids)
        return no_memory(e);
    if (bias_bytes)
        memcpy(bias, p->bias, bias_bytes);
    if (ids_bytes)
        memcpy(ids, p->stop_ids, ids_bytes);
    r->sampling.bias = bias;
    r->sampling.n_bias = p->n_bias;
    r->stop_ids = ids;
    r->n_stop_ids = p->n_stop_ids;
    for (int32_t i = 0; i < p->n_stops; i++) {
        if (ek_stop_add(&r->stop, &r->arena, p->stops[i].p, p->stops[i].n))
            return no_memory(e);
    }
    return 0;
}

static int set_sampling(struct ek_sampling *s, const struct ek_api_params *p,
                        struct ek_api_error *e)
{
    s->temperature = (float)p->temperature;
    /* 0 would keep nothing; the smallest positive share keeps the likeliest token. */
    s->top_p = p->top_p > 0 ? (float)p->top_p : 1e-9f;
    s->min_p = (float)p->min_p;
    s->top_k = p->top_k > 0 ? (int32_t)p->top_k : 0;
    s->frequency_penalty = (float)p->frequency_penalty;
    s->presence_penalty = (float)p->presence_penalty;
    s->repetition_penalty = (float)p->repetition_penalty;
    s->seed = (uint64_t)p->seed;
    if (!p->has_seed && ek_rng_secret(&s->seed, sizeof s->seed))
        return ek_api_fail(e, 500, "", "the system gives no random numbers");
    return 0;
}

static int set_lengths(struct ek_request *r, const struct ek_job_model *m,
                       const struct ek_api_params *p, struct ek_api_error *e)
{
    const char *param = p->kind == EK_API_CHAT ? "messages" : "prompt";
    int32_t room = m->rt->ctx - r->n_prompt;
    if (r->n_prompt == 0)
        return ek_api_fail(e, 400, param, "%s: gives no tokens", param);
    if (room < 1)
        return too_long(e, param, (size_t)r->n_prompt, m->rt->ctx);
    if (p->has_max_tokens && p->max_tokens > room)
        return ek_api_fail(e, 400, "max_tokens",
                           "max_tokens: %lld after a prompt of %d tokens are more than "
                           "the context of %d tokens",
                           (long long)p->max_tokens, r->n_prompt, m->rt->ctx);
    r->max_tokens =
        p->max_tokens > 0 && p->max_tokens < room ? (int32_t)p->max_tokens : room;
    if (p->min_tokens > r->max_tokens)
        return ek_api_fail(e, 400, "min_tokens",
                           "min_tokens: %lld are more than the %d the answer may have",
                           (long long)p->min_tokens, r->max_tokens);
    r->min_tokens = (int32_t)p->min_tokens;
    return 0;
}

/* Fills one job whose request is initialised. */
static int build_one(struct ek_job *job, const struct ek_job_model *m,
                     const struct ek_api_params *p, const json_t *prompt,
                     struct ek_api_error *e)
{
    struct ek_request *r = &job->request;
    struct ek_ids ids;
    /* Room to count a prompt that is too long, so that the answer has the number. */
    ek_ids_init(&ids, (size_t)m->rt->ctx * m->rt->longest_piece + EK_API_VALUES_MAX);
    int rc = tokens_of(&ids, m, p, prompt, e);
    int32_t *copy = rc ? NULL : ek_arena_alloc(&r->arena, ids.n * sizeof *copy);
    if (copy && ids.n > 0)
        memcpy(copy, ids.ids, ids.n * sizeof *copy);
    r->prompt = copy;
    r->n_prompt = (int32_t)ids.n;
    ek_ids_release(&ids);
    if (rc)
        return rc;
    if (!copy)
        return no_memory(e);
    r->n = (int32_t)p->n;
    r->priority = (int32_t)p->priority;
    r->has_no_end = p->ignore_eos;
    r->keeps_stop = p->include_stop;
    r->shows_special = !p->skip_special_tokens;
    r->wants_logprobs = p->logprobs;
    r->wants_prompt_logprobs = p->logprobs && p->echo;
    r->n_top = p->logprobs && p->n_top > 0 ? (int32_t)p->n_top : 0;
    if (r->n_top > m->rt->engine_model.V)
        r->n_top = m->rt->engine_model.V;
    rc = set_lengths(r, m, p, e);
    if (!rc)
        rc = set_sampling(&r->sampling, p, e);
    if (!rc)
        rc = copy_lists(r, m, p, e);
    if (!rc && p->echo)
        rc = set_echo(job, m, prompt, e);
    if (rc)
        return rc;
    struct ek_err err = EK_ERR_INIT;
    rc = ek_request_prepare(r, m->engine, &err);
    if (rc)
        ek_api_fail(e, rc == EK_ENOMEM ? 500 : 400, "", "%s", err.text);
    return rc;
}

int ek_jobs_build(struct ek_job **out, int32_t *n_out, const struct ek_job_model *m,
                  struct ek_api_params *p, struct ek_api_error *e)
{
    int rc = ek_job_check_model(m, p->model, e);
    if (rc)
        return rc;
    /* A list of strings or lists is several prompts; a list of ids is one. */
    bool is_list = p->kind == EK_API_COMPLETION && json_is_array(p->prompt) &&
                   !json_is_integer(json_array_get(p->prompt, 0));
    size_t n = is_list ? json_array_size(p->prompt) : 1;
    struct ek_job *jobs = ek_calloc(n, sizeof *jobs);
    if (!jobs)
        return no_memory(e);
    size_t k = 0;
    for (; !rc && k < n; k++) {
        const json_t *prompt = is_list ? json_array_get(p->prompt, k) : p->prompt;
        ek_request_init(&jobs[k].request, ARENA_BYTES_MAX);
        rc = build_one(&jobs[k], m, p, prompt, e);
    }
    if (rc) {
        ek_jobs_free(jobs, (int32_t)k);
        return rc;
    }
    *out = jobs;
    *n_out = (int32_t)n;
    return 0;
}

void ek_jobs_free(struct ek_job *jobs, int32_t n_jobs)
{
    for (int32_t i = 0; i < n_jobs; i++)
        ek_request_release(&jobs[i].request);
    ek_free(jobs);
}
