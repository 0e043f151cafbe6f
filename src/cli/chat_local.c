/* chat_local.c - answers from a model in this process: a runtime and an engine that the
 * calling thread steps itself. */
#include "base/clock.h"
#include "base/mem.h"
#include "cli/chat.h"
#include "serve/runtime.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ARENA_MAX ((size_t)256 << 20)

struct local {
    const struct ek_chat_options *o; /* borrowed from the verb */
    struct ek_runtime runtime;
    struct ek_engine *engine;
    /* The answer under way. */
    struct ek_chat_sink *sink;
    int64_t start_us;
    enum ek_finish finish;
    const char *error;
};

static void on_delta(void *arg, struct ek_delta *d)
{
    struct local *l = arg;
    if (d->n_generated > 0 && l->sink->first_us == 0)
        l->sink->first_us = ek_clock_us() - l->start_us;
    l->sink->n_answer = d->n_generated;
    if (d->text.len > 0)
        l->sink->on_text(l->sink->arg, d->text.data, d->text.len);
    if (d->finish == EK_FINISH_NONE) {
        ek_engine_give_back(l->engine, d);
        return;
    }
    l->finish = d->finish;
    l->error = d->error;
}

static int make_prompt(struct local *l, struct ek_ids *ids, const json_t *messages,
                       struct ek_err *err)
{
    json_t *vars =
        json_pack("{s:O, s:b}", "messages", messages, "add_generation_prompt", 1);
    if (!vars)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    int rc = ek_runtime_chat_prompt(&l->runtime, ids, vars, err);
    json_decref(vars);
    if (!rc && (int64_t)ids->n >= l->runtime.ctx)
        rc = ek_err_set(err, EK_ELIMIT,
                        "the conversation takes %zu tokens, the context is %d; /reset "
                        "starts over",
                        ids->n, (int)l->runtime.ctx);
    return rc;
}

/* Steps until the request is ours again; a stop from the person cancels it. */
static void run(struct local *l, struct ek_request *r)
{
    bool is_cancelled = false;
    l->finish = EK_FINISH_NONE;
    l->error = NULL;
    ek_engine_submit(l->engine, r);
    while (l->finish == EK_FINISH_NONE) {
        if (!is_cancelled && l->sink->is_stopped && l->sink->is_stopped()) {
            ek_engine_cancel(l->engine, r);
            is_cancelled = true;
        }
        ek_engine_step(l->engine);
    }
}

static int local_answer(void *ctx, const json_t *messages, struct ek_chat_sink *sink,
                        struct ek_err *err)
{
    struct local *l = ctx;
    struct ek_ids ids;
    struct ek_request r;
    uint64_t seed;
    ek_ids_init(&ids, (size_t)l->runtime.ctx + 1);
    ek_request_init(&r, ARENA_MAX);
    l->sink = sink;
    l->start_us = ek_clock_us();
    int rc = make_prompt(l, &ids, messages, err);
    if (!rc) {
        r.prompt = ids.ids;
        r.n_prompt = (int32_t)ids.n;
        rc = ek_sampling_apply(&r, &seed, &l->o->sampling,
                               l->runtime.ctx - (int64_t)ids.n, err);
    }
    if (!rc)
        rc = ek_request_prepare(&r, l->engine, err);
    if (!rc) {
        run(l, &r);
        sink->n_prompt = r.n_prompt;
        sink->is_cut = l->finish == EK_FINISH_LENGTH;
        if (l->finish == EK_FINISH_ERROR)
            rc = ek_err_set(err, EK_EIO, "%s", l->error);
    }
    sink->total_us = ek_clock_us() - l->start_us;
    ek_request_release(&r);
    ek_ids_release(&ids);
    return rc;
}

static void local_close(void *ctx)
{
    struct local *l = ctx;
    ek_engine_free(l->engine);
    ek_runtime_close(&l->runtime);
    ek_free(l);
}

int ek_chat_local_open(struct ek_chat_backend *b, const char *path,
                       const struct ek_chat_options *o, struct ek_err *err)
{
    struct local *l = ek_calloc(1, sizeof *l);
    if (!l)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    l->o = o;
    struct ek_runtime_options ro;
    ek_model_options(&ro, path, &o->model);
    int rc = ek_model_open(&l->runtime, &ro, err);
    if (!rc && !l->runtime.chat)
        rc = ek_err_set(err, EK_EUNSUP, "%s: %s", path,
                        l->runtime.chat_err.text[0] ? l->runtime.chat_err.text
                                                    : "the model has no chat template");
    if (!rc)
        rc =
            ek_engine_new(&l->engine, &l->runtime.engine_model, l->runtime.tokenizer,
                          &l->runtime.engine_options, l->runtime.ops, on_delta, l, err);
    if (rc) {
        local_close(l);
        return rc;
    }
    *b = (struct ek_chat_backend){
        .ctx = l, .answer = local_answer, .close = local_close};
    const char *name = ek_lm_get_params(l->runtime.lm)->name;
    snprintf(b->name, sizeof b->name, "%s", *name ? name : path);
    return 0;
}
