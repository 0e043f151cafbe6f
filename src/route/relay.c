/* relay.c - a session's course: placed, perhaps queued, tried elsewhere, open, over. */
#include "route/relay.h"

#include "base/mem.h"
#include "route/h1.h"
#include "route/relay_int.h"
#include "route/stream.h"

enum { INTERIM_MAX_BYTES = 131072 };  /* of a session, all together */
static const int64_t tick_us = 50000; /* the queue is looked at so often */

static void place(struct ek_relay *s);
static void on_time(struct ek_timer *t);

/* Time --------------------------------------------------------------------- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t silence_us(const struct ek_relay *s)
{
    int64_t limit = ek_relay_config(s)->tunnel_timeout_us;
    return limit > 0 ? s->seen_us + limit : INT64_MAX;
}

void ek_relay_set_timer(struct ek_relay *s)
{
    int64_t due = least(least(s->log_us, s->over_us), silence_us(s));
    due = least(due, ek_relay_ws_due(s));
    ek_relay_move_timer(&s->timer,
                        due == INT64_MAX ? EK_RELAY_NEVER_US : due - ek_relay_now(s));
}

static void on_open_time(struct ek_relay *s)
{
    int64_t now = ek_relay_now(s);
    if (now >= s->over_us) {
        s->over_us = INT64_MAX;
        if (!ek_relay_ws_close(s, "max_age")) {
            ek_relay_end_ours(s, "max_age", "the stream reached its greatest age");
            return;
        }
    }
    if (ek_relay_ws_on_time(s))
        return;
    if (now >= silence_us(s)) {
        ek_relay_end_badly(s, EK_RESET_CANCEL, "proxy", "silent");
        return;
    }
    if (now >= s->log_us) {
        int64_t each = ek_relay_config(s)->log_interval_us; /* a reload may change it */
        s->log_us = each > 0 ? now + each : INT64_MAX;
        ek_relay_log_minute(s);
    }
    ek_relay_set_timer(s);
}

static void on_time(struct ek_timer *t)
{
    struct ek_relay *s = t->owner;
    int rc =
        ek_timer_start(t, EK_RELAY_NEVER_US); /* its place in the heap was just freed */
    (void)rc;
    if (s->state == EK_RELAY_WAITING) {
        ek_counter_add(&s->reactor->counters.refused, 1);
        ek_relay_refuse(s, 503, "no backend had room in time");
    } else if (s->state == EK_RELAY_OPENING && ek_relay_now(s) >= s->over_us) {
        ek_relay_refuse(s, 503, "the session reached its greatest age");
    } else if (s->state == EK_RELAY_OPENING && s->is_connected) {
        ek_relay_refuse(s, 504, "the backend did not answer in time");
    } else if (s->state == EK_RELAY_OPENING) {
        struct ek_half *back = s->back;
        ek_relay_reset(back, EK_RESET_REFUSED); /* as if it had failed by itself */
        back->ops->reset(back, EK_RESET_CANCEL);
    } else if (s->state == EK_RELAY_OPEN) {
        on_open_time(s);
    }
}

/* Placing ------------------------------------------------------------------ */

static int pick(struct ek_relay *s, struct ek_placement *out)
{
    const struct ek_route_request *r = s->request;
    struct ek_pick p = {
        .now_us = ek_relay_now(s),
        .key = r->key,
        .session = s->id,
        .tried = r->tried,
        .n_tried = r->n_tried,
        .rng = &s->reactor->rng,
    };
    return ek_pool_pick(s->reactor->router->pool, &p, out);
}

static bool enqueue(struct ek_relay *s)
{
    struct ek_reactor *w = s->reactor;
    const struct ek_route_config *c = ek_relay_config(s);
    if (c->queue_timeout_us <= 0 || !ek_link_is_alone(&s->waiting))
        return false;
    if (ek_counter_share(&w->router->n_waiting, 1) > c->max_queue) {
        ek_counter_share(&w->router->n_waiting, -1);
        return false;
    }
    ek_link_append(&w->queue, &s->waiting);
    ek_counter_add(&w->counters.queued, 1);
    s->state = EK_RELAY_WAITING;
    ek_relay_move_timer(&s->timer, c->queue_timeout_us);
    ek_relay_move_timer(&w->tick, tick_us);
    return true;
}

static void note(struct ek_relay *s, bool is_ok)
{
    ek_pool_note(s->reactor->router->pool, s->placement.backend, is_ok,
                 ek_relay_now(s));
}

/* A connection could not be made: has the backend an address that was not tried? */
static bool has_next_address(struct ek_relay *s)
{
    struct ek_route_request *r = s->request;
    const struct ek_router *router = s->reactor->router;
    const struct ek_upstream *u = ek_router_upstream(router, s->placement.backend);
    if (!u || u->n_addresses < 2)
        return false;
    ek_router_rotate(router, s->placement.backend, r->turn);
    return ++r->n_addresses < u->n_addresses;
}

static void forget_backend(struct ek_relay *s)
{
    struct ek_route_request *r = s->request;
    if (r->n_tried < EK_TRIED_MAX)
        r->tried[r->n_tried++] = s->placement.backend;
    r->n_addresses = 0;
    ek_relay_give_back(s);
}

/* Of a gRPC request one window is kept until the answer's head, so that a backend that
 * looked at nothing of it costs its client nothing. */
static void keep_body(struct ek_relay *s, const char *p, size_t n)
{
    struct ek_route_request *r = s->request;
    if (s->has_body || !r)
        return;
    if (r->is_grpc && !r->head.is_websocket && ek_buf_add(&r->kept, p, n) == 0)
        return;
    s->has_body = true;
    ek_buf_release(&r->kept);
}

int ek_relay_say_again(struct ek_relay *s)
{
    const struct ek_buf *kept = &s->request->kept;
    int rc = kept->len > 0 ? s->back->ops->body(s->back, kept->data, kept->len) : 0;
    if (!rc)
        s->front->ops->resume(s->front); /* the one before it may have stopped it */
    if (rc == EK_EAGAIN)
        rc = 0; /* `drained` is owed, and lets the front go on */
    if (!rc && s->front_ended && !s->request->is_last)
        rc = s->back->ops->end(s->back);
    return rc;
}

/* Opens the half towards the placement's backend and gives it the request. */
static int open_back(struct ek_relay *s)
{
    bool is_connected = false;
    struct ek_half *back;
    int32_t backend = s->placement.backend;
    const struct ek_upstream *u = ek_router_upstream(s->reactor->router, backend);
    bool is_h2 = u->config.protocol == EK_ROUTE_HTTP2;
    s->request->turn = ek_counter_get(&u->turn);
    int rc = is_h2 ? ek_stream_open(&back, s->reactor->streams, backend, &is_connected)
                   : ek_h1_open(&back, s->reactor, backend, &is_connected);
    if (rc)
        return rc;
    s->back = back;
    back->session = s;
    s->state = EK_RELAY_OPENING;
    s->is_connected = false;
    s->is_reused = is_connected && !is_h2; /* a stream is always new */
    ek_relay_move_timer(&s->timer, ek_relay_config(s)->connect_timeout_us);
    rc = back->ops->head(back, &s->request->head, s->request->is_last);
    if (!rc && s->is_flowing)
        rc = ek_relay_say_again(s);
    if (rc) {
        ek_relay_let_go(&s->back);
        back->ops->reset(back, EK_RESET_CANCEL);
        return rc;
    }
    if (is_connected)
        ek_relay_connected(back);
    return 0;
}

/* True: it has a placement. Otherwise it waits, or is over. */
static bool pick_or_refuse(struct ek_relay *s)
{
    int rc = pick(s, &s->placement);
    if (!rc)
        return true;
    if (rc == EK_EBUSY && !s->is_flowing && enqueue(s))
        return false;
    ek_counter_add(&s->reactor->counters.refused, 1);
    if (rc == EK_EBUSY)
        ek_relay_refuse(s, 503, "no backend has room");
    else if (s->request->n_tried > 0)
        ek_relay_refuse(s, 502, "no backend could be reached");
    else
        ek_relay_refuse(s, 503, "no backend is up");
    return false;
}

/* It has a placement: opened there, or where else there is room. */
static void open_placed(struct ek_relay *s)
{
    int rc;
    while ((rc = open_back(s)) != 0) {
        if (rc == EK_ENOMEM) {
            ek_relay_refuse(s, 503, "out of memory");
            return;
        }
        ek_counter_add(&s->reactor->counters.connect_failures, 1);
        if (has_next_address(s))
            continue;
        note(s, false);
        forget_backend(s);
        if (!pick_or_refuse(s))
            return;
    }
}

static void place(struct ek_relay *s)
{
    if (pick_or_refuse(s))
        open_placed(s);
}

void ek_relay_serve_queue(struct ek_reactor *w)
{
    while (!ek_link_is_alone(&w->queue)) {
        struct ek_relay *s = EK_LINK_OWNER(w->queue.next, struct ek_relay, waiting);
        int rc = pick(s, &s->placement);
        if (rc == EK_EBUSY)
            break;
        ek_relay_leave_queue(s);
        if (rc)
            ek_relay_refuse(s, 503, "no backend is up");
        else
            open_placed(s);
    }
    if (!ek_link_is_alone(&w->queue))
        ek_relay_move_timer(&w->tick, tick_us);
}

/* May another backend have it? */
static bool can_retry(const struct ek_relay *s, uint32_t code)
{
    const struct ek_route_request *r = s->request;
    /* A front that was told to go on may have its body under way: gRPC's is kept, and
     * said again where nothing of it was looked at. */
    bool says_again = r->is_grpc && code == EK_RESET_REFUSED;
    bool keeps_body = !s->is_flowing || says_again;
    return s->state == EK_RELAY_OPENING && !s->has_body && keeps_body &&
           r->n_tried < EK_TRIED_MAX - 1 &&
           (code == EK_RESET_REFUSED || r->is_idempotent);
}

/* Begin -------------------------------------------------------------------- */

static struct ek_relay *make(struct ek_reactor *w, const struct ek_head *request,
                             bool is_last, struct ek_text client)
{
    const struct ek_route_config *c = ek_router_config(w->router);
    struct ek_relay *s = ek_calloc(1, sizeof *s);
    if (!s)
        return NULL;
    ek_timer_init(&s->timer, w->loop, on_time, s);
    if (ek_route_request_new(&s->request, w, request, is_last, client) ||
        ek_timer_start(&s->timer, EK_RELAY_NEVER_US)) {
        ek_route_request_free(s->request);
        ek_free(s);
        return NULL;
    }
    s->reactor = w;
    s->id = (uint64_t)ek_counter_share(&w->router->next_id, 1);
    s->begun_us = s->seen_us = ek_relay_now(s);
    s->log_us = c->logs_sessions && c->log_interval_us > 0
                    ? s->begun_us + c->log_interval_us
                    : INT64_MAX;
    s->over_us = INT64_MAX;
    if (c->max_age_us > 0) {
        /* What started together must not end together. */
        double share = 1 - 0.1 * ek_rng_uniform(&w->rng);
        s->over_us = s->begun_us + (int64_t)((double)c->max_age_us * share);
    }
    s->is_grpc = s->request->is_grpc;
    s->front_ended = is_last;
    ek_link_init(&s->waiting);
    ek_task_init(&s->end, ek_relay_on_end);
    ek_link_append(&w->sessions, &s->link);
    ek_counter_add(&w->n_sessions, 1);
    ek_counter_add(&w->counters.sessions, 1);
    return s;
}

void ek_relay_begin(struct ek_reactor *w, struct ek_half *front,
                    const struct ek_head *request, bool is_last, struct ek_text client)
{
    struct ek_refusal no_memory = {.status = 503, .why = "out of memory"};
    struct ek_relay *s = make(w, request, is_last, client);
    if (!s) {
        front->ops->refuse(front, &no_memory);
        return;
    }
    s->front = front;
    front->session = s;
    place(s);
}

/* From the halves ---------------------------------------------------------- */

void ek_relay_connected(struct ek_half *from)
{
    struct ek_relay *s = from->session;
    int64_t limit = ek_relay_config(s)->answer_timeout_us, now = ek_relay_now(s);
    int64_t due = least(limit > 0 ? now + limit : INT64_MAX, s->over_us);
    s->is_connected = true;
    note(s, true);
    ek_relay_move_timer(&s->timer, due == INT64_MAX ? EK_RELAY_NEVER_US : due - now);
    /* A WebSocket's bytes wait for the 101. */
    if (s->front && !s->front_ended && !s->request->head.is_websocket) {
        s->is_flowing = true;
        s->front->ops->resume(s->front);
    }
}

/* A backend that says "elsewhere" is believed if there is an elsewhere. */
static bool went_elsewhere(struct ek_relay *s)
{
    struct ek_placement next;
    struct ek_route_request *r = s->request;
    if (s->is_flowing || !can_retry(s, EK_RESET_REFUSED))
        return false;
    r->tried[r->n_tried] = s->placement.backend;
    r->n_tried++;
    int rc = pick(s, &next);
    r->n_tried--;
    if (rc)
        return false;
    struct ek_half *back = ek_relay_let_go(&s->back);
    back->ops->reset(back, EK_RESET_CANCEL);
    ek_counter_add(&s->reactor->counters.retries, 1);
    forget_backend(s);
    s->placement = next;
    open_placed(s);
    return true;
}

static void open_session(struct ek_relay *s, const struct ek_head *head, bool is_last)
{
    s->state = EK_RELAY_OPEN;
    s->status = (int16_t)head->status;
    s->is_websocket = head->is_websocket;
    if (s->request->head.is_websocket && !head->is_websocket)
        s->front_ended = true;
    if (s->is_websocket)
        ek_counter_add(&s->reactor->counters.websockets, 1);
    bool is_followed = !s->is_websocket || ek_relay_ws_open(s);
    ek_relay_log_start(s);
    int rc = is_followed ? s->front->ops->head(s->front, head, is_last) : EK_ENOMEM;
    ek_relay_free_request(s);
    ek_relay_set_timer(s);
    if (rc) {
        ek_relay_end_badly(s, EK_RESET_INTERNAL, "proxy", ek_status_text(rc));
        return;
    }
    if (s->is_websocket)
        s->front->ops->resume(s->front);
    if (is_last) {
        s->back_ended = true;
        ek_relay_end_well(s, "backend");
    }
}

/* Nothing says when interim heads end, and nothing stops a backend that sends them
 * while its client reads none. */
static bool interim_is_too_much(struct ek_relay *s, const struct ek_head *head)
{
    size_t n = 64; /* what each costs, as kept for a slow client */
    for (size_t i = 0; i < head->n_fields; i++)
        n += head->fields[i].name.n + head->fields[i].value.n + 32;
    s->interim_bytes += (uint32_t)n;
    return s->interim_bytes > INTERIM_MAX_BYTES;
}

void ek_relay_head(struct ek_half *from, const struct ek_head *head, bool is_last)
{
    struct ek_relay *s = from->session;
    struct ek_field fields[EK_HEAD_MAX_FIELDS + 1];
    struct ek_head out;
    if (head->status < 200 && !head->is_websocket) {
        if (interim_is_too_much(s, head)) {
            ek_counter_add(&s->reactor->counters.bad_answers, 1);
            ek_relay_refuse(s, 502, "the backend's interim answers do not end");
            return;
        }
        int rc = s->front->ops->head(s->front, head, false);
        if (rc)
            ek_relay_end_badly(s, EK_RESET_INTERNAL, "proxy", ek_status_text(rc));
        return;
    }
    if (head->status == 503 && went_elsewhere(s))
        return;
    ek_answer_for_client(s, &out, fields, head);
    open_session(s, &out, is_last);
}

/* A WebSocket that the proxy closes, and both sides have answered. */
static void finish_close(struct ek_relay *s)
{
    if (ek_relay_ws_is_closed(s))
        ek_relay_end_closed(s);
}

int ek_relay_body(struct ek_half *from, const char *p, size_t n)
{
    struct ek_relay *s = from->session;
    bool is_up = from == s->front;
    struct ek_half *to = is_up ? s->back : s->front;
    s->seen_us = ek_relay_now(s);
    if (is_up) {
        keep_body(s, p, n);
        s->bytes_up += n;
        ek_counter_add(&s->reactor->counters.bytes_up, (int64_t)n);
    } else {
        s->bytes_down += n;
        ek_counter_add(&s->reactor->counters.bytes_down, (int64_t)n);
    }
    int rc = s->ws ? ek_relay_ws_body(s, is_up, p, n) : to->ops->body(to, p, n);
    if (rc && rc != EK_EAGAIN) {
        ek_relay_end_badly(s, EK_RESET_CANCEL, is_up ? "backend" : "client", "closed");
        return 0;
    }
    if (rc)
        ek_counter_add(&s->reactor->counters.waits, 1);
    finish_close(s);
    return rc;
}

void ek_relay_trailers(struct ek_half *from, const struct ek_field *fields, size_t n)
{
    struct ek_relay *s = from->session;
    bool is_up = from == s->front;
    struct ek_half *to = is_up ? s->back : s->front;
    const char *by = is_up ? "client" : "backend";
    bool is_first = !s->front_ended && !s->back_ended;
    int rc = s->ws ? ek_relay_ws_ended(s, is_up) : 0;
    if (is_up)
        s->front_ended = true;
    else
        s->back_ended = true;
    if (is_up && n > 0)
        s->has_body = true; /* trailers of a request are not kept */
    struct ek_field kept[EK_HEAD_MAX_FIELDS];
    size_t n_kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (is_up || !ek_relay_takes_report(s, &fields[i]))
            kept[n_kept++] = fields[i];
    }
    if (!rc)
        rc = n_kept > 0 ? to->ops->trailers(to, kept, n_kept) : to->ops->end(to);
    if (rc)
        ek_relay_end_badly(s, EK_RESET_INTERNAL, "proxy", ek_status_text(rc));
    else if (ek_relay_ws_why(s))
        finish_close(s);
    else if (s->back_ended && (s->front_ended || !s->is_websocket))
        ek_relay_end_well(s, is_first ? by : is_up ? "backend" : "client");
}

void ek_relay_end(struct ek_half *from)
{
    ek_relay_trailers(from, NULL, 0);
}

void ek_relay_drained(struct ek_half *from)
{
    struct ek_relay *s = from->session;
    struct ek_half *source = from == s->front ? s->back : s->front;
    if (s->ws)
        ek_relay_ws_heard(s, from == s->front);
    if (source)
        source->ops->resume(source);
}

/* A backend's stream was reset before its answer: a client's stream hears the same. */
static bool is_passed_on(const struct ek_relay *s, uint32_t code)
{
    return s->front && s->front->ops == &ek_stream_ops && s->is_connected &&
           code != EK_RESET_REFUSED && code != EK_RESET_CONNECT;
}

static void lose_back(struct ek_relay *s, uint32_t code, struct ek_half *back,
                      const char *why)
{
    struct ek_reactor *w = s->reactor;
    bool is_stream = back->ops == &ek_stream_ops;
    s->back = NULL;
    if (s->state != EK_RELAY_OPENING) {
        ek_counter_add(&w->counters.backend_aborts, 1);
        ek_relay_end_badly(s, code, "backend", why ? why : "reset");
        return;
    }
    if (!s->is_connected && !back->is_ours) {
        bool is_told = back->is_shared;
        ek_counter_add(&w->counters.connect_failures, !is_told);
        back->is_shared = true;
        if (can_retry(s, code) && has_next_address(s)) {
            ek_counter_add(&w->counters.retries, 1);
            open_placed(s);
            return;
        }
        if (!is_told)
            note(s, false);
    }
    if (can_retry(s, code)) {
        ek_counter_add(&w->counters.retries, 1);
        /* A kept connection that the backend had closed says nothing against it. */
        if (!s->is_reused && !back->is_ours) {
            forget_backend(s);
            place(s);
        } else {
            open_placed(s);
        }
        return;
    }
    ek_counter_add(&w->counters.backend_aborts, 1);
    if (is_stream && is_passed_on(s, code)) {
        ek_relay_end_badly(s, code, "backend", why ? why : "reset");
        return;
    }
    ek_relay_refuse(s, 502,
                    code == EK_RESET_PROTOCOL
                        ? "the backend's answer is no HTTP"
                        : "the backend closed before it answered");
}

void ek_relay_reset(struct ek_half *from, uint32_t code)
{
    ek_relay_lost(from, code, NULL);
}

void ek_relay_lost(struct ek_half *from, uint32_t code, const char *why)
{
    struct ek_relay *s = from->session;
    from->session = NULL;
    if (from == s->back) {
        lose_back(s, code, from, why);
        return;
    }
    s->front = NULL;
    ek_counter_add(&s->reactor->counters.client_aborts, 1);
    ek_relay_end_badly(s, code, "client",
                       why                         ? why
                       : code == EK_RESET_PROTOCOL ? "bad_request"
                                                   : "left");
}
