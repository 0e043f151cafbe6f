/* server.c - the loop, the worker's news, and the stop. */
#include "serve/server.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/notify.h"
#include "base/rng.h"
#include "serve/orca.h"
#include "serve/server_int.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define TICK_US 250000

void ek_server_options_default(struct ek_server_options *o)
{
    *o = (struct ek_server_options){
        .listen = "127.0.0.1:8080",
        .max_queue = 64,
        .drain_us = 30000000,
        .keep_alive_us = 10000000,
    };
    ek_http_limits_default(&o->limits);
}

static void on_request(void *arg, struct ek_http_exchange *x)
{
    struct ek_server *s = arg;
    s->arrived_us = ek_clock_us();
    ek_route(s, x);
}

static void on_closed(void *arg, struct ek_http_exchange *x, bool is_aborted)
{
    (void)arg;
    (void)is_aborted;
    struct ek_call *call = ek_http_get_user(x);
    if (call)
        ek_call_on_closed(call);
}

static int on_error_body(void *arg, struct ek_buf *out, int code, const char *reason)
{
    struct ek_server *s = arg;
    s->metrics.answers[code]++;
    ek_access_bad(code, reason);
    return ek_api_write_error(out, code, "", reason);
}

static int put_orca(void *arg, char *out, size_t size, size_t *n)
{
    return ek_load_put(arg, EK_TRACKER_ORCA_GRPC, out, size, n);
}

/* As GET /load. */
static bool allows_orca(void *arg, const char *authorization)
{
    const struct ek_server *s = arg;
    return ek_auth_allows(s->o.auth, authorization);
}

static void on_http2(void *arg, int fd, struct ek_tls *tls, const char *p, size_t n)
{
    struct ek_server *s = arg;
    int rc = ek_orca_take(s->orca, fd, tls, p, n);
    if (rc)
        ek_log(EK_LOG_WARN, "http2_refused", "why=\"%s\"", ek_status_text(rc));
}

static void cancel_all(struct ek_server *s)
{
    s->is_forced = true;
    for (struct ek_call *c = s->calls; c; c = c->next)
        ek_call_cancel(c);
}

/* After a stop: ends the loop once the engine has nothing of ours. Connections that
 * still take bytes get the drain's time for it. */
static void maybe_end(struct ek_server *s)
{
    if (!s->is_draining || ek_worker_choices(s->worker) > 0)
        return;
    if (s->n_calls == 0 || s->is_forced)
        ek_loop_stop(s->loop);
}

static void on_tick(struct ek_timer *t)
{
    struct ek_server *s = t->owner;
    int64_t now = ek_loop_now_us(s->loop);
    for (struct ek_call *c = s->calls, *next; c; c = next) {
        next = c->next;
        ek_call_on_tick(c, now);
    }
    if (s->is_draining && !s->is_forced && now >= s->drain_until_us) {
        ek_log(EK_LOG_WARN, "drain_timeout", "calls=%d", s->n_calls);
        cancel_all(s);
    }
    maybe_end(s);
    if (s->n_calls > 0 && ek_timer_start(t, TICK_US))
        ek_log(EK_LOG_ERROR, "no_memory", "what=timer");
}

static void on_stop(struct ek_watch *w, int events)
{
    struct ek_server *s = w->owner;
    uint64_t n_stops = 0;
    (void)events;
    if (read(w->fd, &n_stops, sizeof n_stops) < 0)
        return;
    bool is_first = !s->is_draining;
    if (is_first) {
        s->is_draining = true;
        s->drain_until_us = ek_loop_now_us(s->loop) + s->o.drain_us;
        ek_log(EK_LOG_INFO, "draining", "calls=%d", s->n_calls);
        ek_notify_stopping("no new requests; those under way are finished");
        ek_tracker_drain(s->tracker, true);
        ek_http_server_drain(s->http);
        ek_orca_drain(s->orca);
    }
    if (!is_first || n_stops > 1)
        cancel_all(s);
    maybe_end(s);
}

/* Woken by the worker. */
static void on_wake(void *arg)
{
    struct ek_server *s = arg;
    for (struct ek_delta *d; (d = ek_worker_next(s->worker));)
        ek_call_on_delta(s, d);
    maybe_end(s);
}

static void wake(void *arg)
{
    struct ek_server *s = arg;
    ek_loop_wake(s->loop);
}

static int watch_stops(struct ek_server *s, struct ek_err *err)
{
    s->stops.on_ready = on_stop;
    s->stops.owner = s;
    s->stops.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->stops.fd < 0)
        return ek_err_set(err, EK_EIO, "eventfd: %s", strerror(errno));
    int rc = ek_watch_start(s->loop, &s->stops, EK_READABLE);
    return rc ? ek_err_set(err, rc, "epoll: %s", ek_status_text(rc)) : 0;
}

static int start_worker(struct ek_server *s, struct ek_err *err)
{
    struct ek_engine *e = NULL;
    /* The soft limit is in call.c; a list of prompts may pass it in one go. */
    int32_t most = s->rt->engine_options.max_seqs + s->o.max_queue + EK_API_CHOICES_MAX;
    int rc = ek_worker_new(&s->worker, most, wake, s, err);
    if (!rc)
        rc = ek_engine_new(&e, &s->rt->engine_model, s->rt->tokenizer,
                           &s->rt->engine_options, s->rt->ops, ek_worker_on_delta,
                           s->worker, err);
    if (rc)
        return rc;
    s->model = (struct ek_job_model){e, s->rt, s->o.model_id};
    rc = ek_worker_start(s->worker, e, err);
    if (rc)
        ek_engine_free(e);
    return rc;
}

int ek_server_new(struct ek_server **out, const struct ek_server_options *o,
                  struct ek_runtime *rt, struct ek_err *err)
{
    struct ek_server *s = ek_calloc(1, sizeof *s);
    if (!s)
        return ek_err_set(err, EK_ENOMEM, "no memory for the server");
    s->stops.fd = -1;
    s->o = *o;
    s->rt = rt;
    s->created_s = ek_clock_wall_us() / 1000000;
    struct ek_http_handler handler = {
        .on_request = on_request,
        .on_closed = on_closed,
        .arg = s,
        .on_error_body = on_error_body,
        .error_type = "application/json",
        .on_http2 = on_http2,
    };
    s->o.limits.max_body_bytes = EK_API_BODY_BYTES_MAX;
    int rc = ek_rng_secret(&s->id_salt, sizeof s->id_salt);
    if (rc)
        rc = ek_err_set(err, rc, "the system gives no random numbers");
    if (!rc)
        rc = ek_loop_new(&s->loop, err);
    if (!rc) {
        ek_loop_on_wake(s->loop, on_wake, s);
        ek_timer_init(&s->tick, s->loop, on_tick, s);
        rc = ek_load_start(s, err);
        if (!rc && ek_orca_new(&s->orca, s->loop, put_orca, allows_orca, s))
            rc = ek_err_set(err, EK_ENOMEM, "no memory for the server");
        if (!rc)
            rc = watch_stops(s, err);
        if (!rc)
            rc = start_worker(s, err);
    }
    if (!rc)
        rc = ek_http_server_new(&s->http, s->loop, o->listen, o->tls, &s->o.limits,
                                &handler, err);
    if (rc) {
        ek_server_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

const char *ek_server_address(const struct ek_server *s)
{
    return ek_http_server_address(s->http);
}

int ek_server_run(struct ek_server *s, struct ek_err *err)
{
    return ek_loop_run(s->loop, err);
}

void ek_server_stop(struct ek_server *s)
{
    static const uint64_t one = 1;
    ssize_t n = write(s->stops.fd, &one, sizeof one);
    (void)n; /* fails only when the counter is full: then it is readable */
}

/* Closes what is left (calls lose their exchange and are cancelled) and waits until the
 * engine has let go of them: a step at most. */
static void close_all(struct ek_server *s)
{
    static const struct timespec pause = {0, 1000000};
    ek_http_server_free(s->http);
    while (ek_worker_choices(s->worker) > 0) {
        struct ek_delta *d = ek_worker_next(s->worker);
        if (d)
            ek_call_on_delta(s, d);
        else
            nanosleep(&pause, NULL);
    }
}

void ek_server_free(struct ek_server *s)
{
    if (!s)
        return;
    if (s->http)
        close_all(s);
    ek_worker_free(s->worker);
    if (s->loop) {
        ek_timer_stop(&s->tick);
        ek_orca_free(s->orca);
        if (s->stops.loop)
            ek_watch_stop(&s->stops);
        ek_loop_free(s->loop);
    }
    if (s->stops.fd >= 0)
        close(s->stops.fd);
    ek_tracker_free(s->tracker);
    ek_free(s);
}
