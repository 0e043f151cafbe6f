/* call.c - one completion request from its body to its last byte. */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "serve/server_int.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define ANSWER_BYTES_MAX (256u << 20) /* of a whole answer as JSON */
#define LISTS_BYTES_MAX  (4u << 20)   /* of the lists in a body */

static int32_t n_choices(const struct ek_call *c)
{
    return c->n_jobs * (int32_t)c->params.n;
}

static void link_call(struct ek_server *s, struct ek_call *c)
{
    c->next = s->calls;
    if (c->next)
        c->next->prev = c;
    s->calls = c;
    s->n_calls++;
}

static void unlink_call(struct ek_server *s, struct ek_call *c)
{
    if (c->next)
        c->next->prev = c->prev;
    if (c->prev)
        c->prev->next = c->next;
    else
        s->calls = c->next;
    s->n_calls--;
}

static void free_call(struct ek_call *c)
{
    ek_session_end(&c->session);
    for (int32_t i = 0; c->choices && i < n_choices(c); i++) {
        ek_buf_release(&c->choices[i].text);
        ek_buf_release(&c->choices[i].tokens);
        ek_buf_release(&c->choices[i].top);
    }
    ek_free(c->choices);
    ek_jobs_free(c->jobs, c->n_jobs);
    ek_api_params_release(&c->params);
    ek_arena_release(&c->arena);
    ek_buf_release(&c->out);
    ek_free(c);
}

static void maybe_free(struct ek_call *c)
{
    if (c->x || c->n_open > 0)
        return;
    unlink_call(c->server, c);
    free_call(c);
}

/* ---- start ---- */

static void set_head(struct ek_call *c)
{
    struct ek_server *s = c->server;
    const char *prefix = c->params.kind == EK_API_CHAT ? "chatcmpl" : "cmpl";
    if (c->params.request_id)
        snprintf(c->id, sizeof c->id, "%s-%s", prefix, c->params.request_id);
    else
        snprintf(c->id, sizeof c->id, "%s-%016llx%08llx", prefix,
                 (unsigned long long)s->id_salt, (unsigned long long)s->next_id++);
    c->head = (struct ek_answer_head){
        .kind = c->params.kind,
        .id = c->id,
        .model = s->o.model_id,
        .created_s = ek_clock_wall_us() / 1000000,
        .tokenizer = s->rt->tokenizer,
        .has_logprobs = c->params.logprobs,
        .has_ids = c->params.return_token_ids,
        .has_usage_key = c->params.stream && c->params.include_usage,
    };
}

/* The nearer of the client's and the server's; 0: there is none. */
static int64_t deadline_us(const struct ek_call *c)
{
    int64_t most = c->server->o.timeout_us;
    int64_t us = (int64_t)(c->params.timeout * 1e6);
    us = us > 0 && (most == 0 || us < most) ? us : most;
    return us > 0 ? c->start_us + us : 0;
}

static int build(struct ek_call *c, enum ek_api_kind kind, struct ek_api_error *e)
{
    struct ek_server *s = c->server;
    const struct ek_http_request *r = ek_http_get_request(c->x);
    int rc = ek_api_parse(&c->params, kind, r->body, r->body_n, &c->arena, e);
    if (!rc)
        rc = ek_jobs_build(&c->jobs, &c->n_jobs, &s->model, &c->params, e);
    if (rc)
        return rc;
    c->choices = ek_calloc((size_t)n_choices(c), sizeof *c->choices);
    if (!c->choices)
        return ek_api_fail(e, 500, "", "the server is out of memory");
    for (int32_t i = 0; i < n_choices(c); i++) {
        ek_buf_init(&c->choices[i].text, ANSWER_BYTES_MAX);
        ek_buf_init(&c->choices[i].tokens, ANSWER_BYTES_MAX);
        ek_buf_init(&c->choices[i].top, ANSWER_BYTES_MAX);
    }
    struct ek_salt salt;
    if (ek_auth_salt(&salt, s->o.auth, ek_http_header_get(r, "authorization"),
                     c->params.cache_salt))
        return ek_api_fail(e, 500, "", "the server is out of memory");
    for (int32_t i = 0; i < c->n_jobs; i++) {
        struct ek_request *request = &c->jobs[i].request;
        request->user = c;
        request->salt = salt;
        request->deadline_us = deadline_us(c);
        c->usage.prompt_tokens += request->n_prompt;
    }
    return 0;
}

/* Refuses a call of n choices that has no room. Asked with 1 before any work, which is
 * cheap for both sides. One that is more than all the room there is may come when
 * nothing else is here: it could not come ever otherwise. */
static bool refuse_full(struct ek_server *s, struct ek_http_exchange *x, int32_t n)
{
    int32_t most = s->rt->engine_options.max_seqs + s->o.max_queue;
    int32_t now = ek_worker_choices(s->worker);
    if (s->is_draining) {
        ek_reply_error(s, x, 503, "", "the server is stopping");
        return true;
    }
    if (now > 0 && n > most - now) {
        char message[128];
        s->metrics.refused_full++;
        snprintf(
            message, sizeof message,
            "the queue is full (%d of %d answers running or waiting, %d asked for); "
            "try again later",
            now, most, n);
        ek_reply_error(s, x, 429, "", message);
        return true;
    }
    return false;
}

static void submit(struct ek_call *c)
{
    struct ek_server *s = c->server;
    c->n_open = c->n_jobs;
    for (int32_t i = 0; i < c->n_jobs; i++) {
        const struct ek_request *r = &c->jobs[i].request;
        ek_metrics_add(&s->metrics, prompt, TOKENS, r->n_prompt);
        ek_metrics_add(&s->metrics, params_n, SMALL, r->n);
        ek_metrics_add(&s->metrics, params_max_tokens, TOKENS, r->max_tokens);
        int rc = ek_worker_submit(s->worker, &c->jobs[i].request);
        assert(rc == 0); /* refuse_full left room for any list of prompts */
        (void)rc;
    }
}

void ek_call_start(struct ek_server *s, struct ek_http_exchange *x,
                   enum ek_api_kind kind)
{
    if (refuse_full(s, x, 1))
        return;
    struct ek_api_error e = {.http = 500};
    struct ek_call *c = ek_calloc(1, sizeof *c);
    if (!c) {
        ek_reply_error(s, x, 500, "", "the server is out of memory");
        return;
    }
    c->server = s;
    c->x = x;
    c->start_us = c->sent_us = ek_clock_us();
    ek_arena_init(&c->arena, LISTS_BYTES_MAX);
    ek_buf_init(&c->out, ANSWER_BYTES_MAX);
    if (build(c, kind, &e)) {
        ek_reply_api_error(s, x, &e);
        free_call(c);
        return;
    }
    if (refuse_full(s, x, n_choices(c))) {
        free_call(c);
        return;
    }
    set_head(c);
    ek_http_set_user(x, c);
    link_call(s, c);
    (void)ek_session_begin(s->tracker,
                           &c->session); /* full: not counted, still served */
    if (s->n_calls == 1 && ek_timer_start(&s->tick, 250000))
        ek_log(EK_LOG_ERROR, "no_memory", "what=timer");
    submit(c);
}

void ek_call_cancel(struct ek_call *c)
{
    if (c->is_cancelled)
        return;
    c->is_cancelled = true;
    for (int32_t i = 0; i < c->n_jobs; i++) {
        if (c->jobs[i].request.user)
            ek_worker_cancel(c->server->worker, &c->jobs[i].request);
    }
}

void ek_call_on_closed(struct ek_call *c)
{
    c->x = NULL;
    c->has_answered = true;
    ek_call_cancel(c);
    maybe_free(c);
}

/* ---- sending ---- */

/* The client cannot be served any more: it reads too slowly or memory is out. */
static void give_up(struct ek_call *c)
{
    c->has_answered = true;
    if (c->x)
        ek_http_abort(c->x);
    ek_call_cancel(c);
}

static int begin(struct ek_call *c)
{
    if (c->has_begun)
        return 0;
    c->has_begun = true;
    c->status = 200;
    c->server->metrics.answers[200]++;
    int rc = ek_add_common_headers(c->server, c->x);
    if (!rc)
        rc = ek_http_add_header(c->x, "Cache-Control", "no-cache");
    if (!rc)
        rc = ek_http_add_header(c->x, "X-Accel-Buffering", "no");
    if (!rc)
        rc = ek_http_add_header(c->x, "X-Request-Id", c->id);
    return rc ? rc : ek_http_begin(c->x, 200, "text/event-stream; charset=utf-8");
}

/* Sends c->out as part of the stream and empties it. */
static void send_out(struct ek_call *c, int rc)
{
    if (!rc)
        rc = begin(c);
    if (!rc)
        rc = ek_http_send(c->x, c->out.data, c->out.len);
    ek_buf_reset(&c->out);
    c->sent_us = ek_clock_us();
    if (rc)
        give_up(c);
}

static void end_stream(struct ek_call *c)
{
    struct ek_out o = {&c->out, 0};
    if (c->params.include_usage && !c->is_cancelled)
        ek_answer_usage_chunk(&o, &c->head, &c->usage);
    ek_out_str(&o, "data: [DONE]\n\n");
    send_out(c, o.rc);
    if (!c->has_answered && ek_http_end(c->x))
        give_up(c);
    c->has_answered = true;
}

/* An error ends the whole answer: nothing of a failed request is passed on as good. */
static void fail(struct ek_call *c, int code, const char *message)
{
    if (c->has_answered)
        return;
    if (c->has_begun) {
        struct ek_out o = {&c->out, 0};
        ek_buf_reset(&c->out);
        ek_out_str(&o, "data: ");
        if (!o.rc)
            o.rc = ek_api_write_error(&c->out, code, "", message);
        ek_out_str(&o, "\n\n");
        send_out(c, o.rc);
        ek_call_cancel(c);
        if (!c->has_answered)
            end_stream(c);
    } else {
        ek_reply_error(c->server, c->x, code, "", message);
    }
    c->has_answered = true;
    ek_call_cancel(c);
}

void ek_call_on_tick(struct ek_call *c, int64_t now_us)
{
    if (!c->params.stream || c->has_answered ||
        now_us - c->sent_us < c->server->o.keep_alive_us)
        return;
    int rc = ek_buf_add_str(&c->out, ": keep-alive\n\n");
    send_out(c, rc);
}

/* ---- news ---- */

static struct ek_str stop_text(const struct ek_request *r, int32_t i)
{
    if (i < 0)
        return (struct ek_str){NULL, 0};
    return (struct ek_str){r->stop.strings[i].text, r->stop.strings[i].n};
}

static void send_chunk(struct ek_call *c, int32_t index, const struct ek_delta *d)
{
    struct ek_call_choice *ch = &c->choices[index];
    const struct ek_job *job = &c->jobs[index / c->params.n];
    const struct ek_request *r = &job->request;
    struct ek_out o = {&c->out, 0};
    struct ek_answer_usage usage = c->usage;
    bool has_echo = c->params.echo && !ch->has_begun;
    struct ek_answer_piece p = {
        .index = index,
        .text = {d->text.data, d->text.len},
        .tokens = d->tokens,
        .top = d->top,
        .n_tokens = d->n_tokens,
        .n_top = r->n_top,
        .is_first = !ch->has_begun,
        .finish = d->finish,
        .stop_id = d->stop_id,
        .stop = stop_text(r, d->stop_string),
        .text_offset = ch->text_offset,
    };
    if (has_echo) {
        struct ek_answer_piece echo = {
            .index = index, .text = job->echo, .stop_id = -1, .is_first = true};
        if (r->wants_prompt_logprobs) {
            echo.prompt = r;
            p.text_offset +=
                ek_answer_chars(&c->head, r->prompt_tokens, r->n_prompt_done);
        }
        ek_answer_chunk(&o, &c->head, &echo, NULL);
        p.is_first = false;
    }
    ek_answer_chunk(&o, &c->head, &p, c->params.continuous_usage ? &usage : NULL);
    ch->has_begun = true;
    ch->text_offset = p.text_offset + ek_answer_chars(&c->head, d->tokens, d->n_tokens);
    send_out(c, o.rc);
}

static int keep(struct ek_call *c, int32_t index, const struct ek_delta *d)
{
    struct ek_call_choice *ch = &c->choices[index];
    int rc = ek_buf_add(&ch->text, d->text.data, d->text.len);
    if (rc || (!c->head.has_logprobs && !c->head.has_ids))
        return rc;
    size_t n = (size_t)d->n_tokens, n_top = (size_t)d->request->n_top;
    rc = ek_buf_add(&ch->tokens, d->tokens, n * sizeof *d->tokens);
    if (!rc)
        rc = ek_buf_add(&ch->top, d->top, n * n_top * sizeof *d->top);
    return rc;
}

/* A choice as one piece. With echo the prompt's text goes before. */
static int whole_piece(struct ek_call *c, int32_t index, struct ek_answer_piece *p)
{
    struct ek_call_choice *ch = &c->choices[index];
    const struct ek_job *job = &c->jobs[index / c->params.n];
    const struct ek_request *r = &job->request;
    int rc = 0;
    if (c->params.echo) {
        struct ek_buf both;
        ek_buf_init(&both, ANSWER_BYTES_MAX);
        rc = ek_buf_add(&both, job->echo.p, job->echo.n);
        if (!rc)
            rc = ek_buf_add(&both, ch->text.data, ch->text.len);
        ek_buf_release(&ch->text);
        ch->text = both;
    }
    *p = (struct ek_answer_piece){
        .index = index,
        .text = {ch->text.data, ch->text.len},
        .tokens = (const struct ek_token *)(void *)ch->tokens.data,
        .top = (const struct ek_logprob *)(void *)ch->top.data,
        .n_tokens = (int32_t)(ch->tokens.len / sizeof(struct ek_token)),
        .n_top = r->n_top,
        .finish = ch->finish,
        .stop_id = ch->stop_id,
        .stop = stop_text(r, ch->stop_string),
        .prompt = r->wants_prompt_logprobs ? r : NULL,
    };
    return rc;
}

static void answer_whole(struct ek_call *c)
{
    struct ek_out o = {&c->out, 0};
    size_t n = (size_t)n_choices(c);
    struct ek_answer_piece *pieces = ek_calloc(n, sizeof *pieces);
    int rc = pieces ? 0 : EK_ENOMEM;
    for (int32_t i = 0; !rc && i < n_choices(c); i++)
        rc = whole_piece(c, i, &pieces[i]);
    if (!rc) {
        ek_answer_whole(&o, &c->head, pieces, n_choices(c), &c->usage);
        rc = o.rc;
    }
    ek_free(pieces);
    if (rc) {
        fail(c, 500, "the server is out of memory");
        return;
    }
    ek_reply(c->server, c->x, 200, "application/json", c->out.data, c->out.len);
    c->has_answered = true;
}

static void count_end(struct ek_call *c, const struct ek_delta *d,
                      const struct ek_call_choice *ch)
{
    struct ek_metrics *m = &c->server->metrics;
    m->finished[ch->finish]++;
    ek_metrics_add(m, generation, TOKENS, ch->n_generated);
    if (ch->finish == EK_FINISH_ABORT || ch->finish == EK_FINISH_ERROR ||
        !d->admit_us || !d->first_us)
        return;
    double queue = (double)(d->admit_us - d->request->submit_us) / 1e6;
    double decode = (double)(d->end_us - d->first_us) / 1e6;
    ek_metrics_add(m, queue, E2E, queue);
    ek_metrics_add(m, prefill, E2E, (double)(d->first_us - d->admit_us) / 1e6);
    ek_metrics_add(m, decode, E2E, decode);
    ek_metrics_add(m, inference, E2E, (double)(d->end_us - d->admit_us) / 1e6);
    ek_metrics_add(m, e2e, E2E, (double)(ek_clock_us() - c->start_us) / 1e6);
    if (ch->n_generated > 1)
        ek_metrics_add(m, tpot, ITL, decode / (ch->n_generated - 1));
}

/* Once a prompt. Before its admission the engine may still write n_cached. */
static void count_cached(struct ek_call *c, struct ek_job *job,
                         const struct ek_delta *d)
{
    if (job->has_news || d->admit_us == 0)
        return;
    job->has_news = true;
    c->usage.cached_tokens += job->request.n_cached;
    c->server->metrics.cached_tokens += (uint64_t)job->request.n_cached;
}

static void count_news(struct ek_call *c, struct ek_call_choice *ch,
                       const struct ek_delta *d)
{
    struct ek_metrics *m = &c->server->metrics;
    int64_t now = ek_clock_us();
    if (ch->n_generated == 0 && d->n_generated > 0)
        ek_metrics_add(m, ttft, TTFT, (double)(now - c->start_us) / 1e6);
    else if (d->n_new > 0)
        ek_metrics_add(m, itl, ITL, (double)(now - ch->last_us) / 1e6 / d->n_new);
    ch->last_us = now;
    c->usage.completion_tokens += d->n_generated - ch->n_generated;
    ch->n_generated = d->n_generated;
    if (d->finish != EK_FINISH_NONE) {
        ch->finish = d->finish;
        ch->stop_id = d->stop_id;
        ch->stop_string = d->stop_string;
        count_end(c, d, ch);
    }
}

void ek_call_on_delta(struct ek_server *s, struct ek_delta *d)
{
    struct ek_request *r = d->request;
    struct ek_call *c = r->user;
    struct ek_job *job = (struct ek_job *)r; /* its first member */
    int32_t index = (int32_t)(job - c->jobs) * (int32_t)c->params.n + d->choice;
    count_cached(c, job, d);
    count_news(c, &c->choices[index], d);
    if (d->finish == EK_FINISH_ERROR)
        fail(c, d->is_expired ? 504 : 500, d->error);
    else if (d->finish == EK_FINISH_ABORT && !c->has_answered && !c->params.stream)
        fail(c, 503, "the server is stopping");
    if (!c->has_answered && c->params.stream)
        send_chunk(c, index, d);
    else if (!c->has_answered && keep(c, index, d))
        fail(c, 500, "the server is out of memory");
    if (d->finish == EK_FINISH_NONE) {
        ek_worker_give_back(s->worker, d);
        return;
    }
    if (!d->is_last)
        return;
    r->user = NULL; /* the engine has let go of it */
    if (--c->n_open > 0)
        return;
    if (!c->has_answered && c->params.stream)
        end_stream(c);
    else if (!c->has_answered)
        answer_whole(c);
    ek_access_call(c);
    maybe_free(c);
}
