/* request.c - a request's memory, before and after the engine has it. */
#include "serve/engine_int.h"

#include <assert.h>

const char *ek_finish_name(enum ek_finish f)
{
    static const char *const names[] = {"", "stop", "length", "abort", "error"};
    return names[f];
}

void ek_request_init(struct ek_request *r, size_t max_arena_bytes)
{
    *r = (struct ek_request){.n = 1};
    ek_arena_init(&r->arena, max_arena_bytes);
    ek_sampling_default(&r->sampling);
    ek_stop_init(&r->stop);
}

void ek_request_release(struct ek_request *r)
{
    for (int32_t i = 0; r->choices && i < r->n; i++)
        ek_choice_release(&r->choices[i]);
    ek_arena_release(&r->arena);
    r->choices = NULL;
}

/* A sequence must fit when it is alone: then preemption can always make it room. */
static int check_lengths(const struct ek_request *r, const struct ek_engine_options *o,
                         struct ek_err *err)
{
    if (r->n_prompt > o->ctx || r->max_tokens > o->ctx - r->n_prompt)
        return ek_err_set(err, EK_ELIMIT,
                          "%d prompt tokens and %d answer tokens are more than the "
                          "context of %d tokens",
                          r->n_prompt, r->max_tokens, o->ctx);
    int32_t n_pages = ek_pages_for_tokens(r->n_prompt + r->max_tokens);
    if (n_pages > o->n_pages)
        return ek_err_set(err, EK_ELIMIT,
                          "%d prompt tokens and %d answer tokens take %d KV pages; the "
                          "server has %d",
                          r->n_prompt, r->max_tokens, n_pages, o->n_pages);
    return 0;
}

/* A tokenizer may know more tokens than the model (Gemma 3's image token). */
static int check_ids(const struct ek_request *r, int32_t V, struct ek_err *err)
{
    for (int32_t i = 0; i < r->n_prompt; i++) {
        if (r->prompt[i] < 0 || r->prompt[i] >= V)
            return ek_err_set(
                err, EK_EINVAL,
                "token %d of the prompt has id %d: the model knows 0 to %d", i,
                r->prompt[i], V - 1);
    }
    return 0;
}

static int alloc_scores(struct ek_request *r)
{
    size_t n = (size_t)r->n_prompt, n_top = n * (size_t)r->n_top;
    r->prompt_tokens = ek_arena_calloc(&r->arena, n, sizeof *r->prompt_tokens);
    r->prompt_top = ek_arena_calloc(&r->arena, n_top, sizeof *r->prompt_top);
    return r->prompt_tokens && r->prompt_top ? 0 : EK_ENOMEM;
}

int ek_request_prepare(struct ek_request *r, const struct ek_engine *e,
                       struct ek_err *err)
{
    assert(r->n >= 1 && r->n <= EK_CHOICES_MAX && r->n_prompt >= 1);
    assert(r->max_tokens >= 1 && r->n_top <= EK_TOP_LOGPROBS_MAX);
    int rc = check_lengths(r, &e->o, err);
    if (!rc)
        rc = check_ids(r, e->model.V, err);
    if (rc)
        return rc;
    if (r->wants_prompt_logprobs)
        rc = alloc_scores(r);
    r->choices = ek_arena_calloc(&r->arena, (size_t)r->n, sizeof *r->choices);
    if (!r->choices)
        rc = EK_ENOMEM;
    for (int32_t i = 0; !rc && i < r->n; i++)
        rc = ek_choice_prepare(&r->choices[i], r, i, e);
    return rc ? ek_err_set(err, rc, "no memory for the request") : 0;
}
