/* relay_end.c - a session's ways out: each gives its placement back, once. */
#include "base/mem.h"
#include "route/relay_int.h"
#include "route/stream.h"

#include <assert.h>
#include <string.h>

void ek_relay_free_request(struct ek_relay *s)
{
    ek_route_request_free(s->request);
    s->request = NULL;
}

void ek_relay_on_end(struct ek_task *t)
{
    struct ek_relay *s = EK_LINK_OWNER(t, struct ek_relay, end);
    ek_relay_free_request(s);
    ek_timer_stop(&s->timer);
    ek_free(s->ws);
    ek_free(s);
}

void ek_relay_leave_queue(struct ek_relay *s)
{
    if (ek_link_is_alone(&s->waiting))
        return;
    ek_link_remove(&s->waiting);
    ek_counter_share(&s->reactor->router->n_waiting, -1);
}

void ek_relay_give_back(struct ek_relay *s)
{
    if (!s->placement.pool)
        return;
    ek_placement_end(&s->placement, ek_relay_now(s));
    if (!ek_link_is_alone(&s->reactor->queue))
        ek_relay_move_timer(&s->reactor->tick, 0);
}

/* The one way out. */
static void finish(struct ek_relay *s, const char *by, const char *why)
{
    assert(s->state != EK_RELAY_OVER && !s->front && !s->back);
    s->state = EK_RELAY_OVER;
    ek_relay_leave_queue(s);
    if (ek_relay_ws_why(s)) {
        by = "proxy"; /* whoever answered our Close first */
        why = ek_relay_ws_why(s);
    }
    ek_relay_log_end(s, by, why);
    ek_relay_give_back(s);
    ek_link_remove(&s->link);
    ek_counter_add(&s->reactor->n_sessions, -1);
    ek_reactor_soon(s->reactor, &s->end);
}

struct ek_half *ek_relay_let_go(struct ek_half **half)
{
    struct ek_half *h = *half;
    *half = NULL;
    if (h)
        h->session = NULL;
    return h;
}

void ek_relay_end_well(struct ek_relay *s, const char *by)
{
    struct ek_half *front = ek_relay_let_go(&s->front),
                   *back = ek_relay_let_go(&s->back);
    if (back)
        back->ops->detach(back);
    if (front)
        front->ops->detach(front);
    finish(s, by, "done");
}

void ek_relay_end_badly(struct ek_relay *s, uint32_t code, const char *by,
                        const char *why)
{
    struct ek_half *front = ek_relay_let_go(&s->front),
                   *back = ek_relay_let_go(&s->back);
    if (back)
        back->ops->reset(back, code);
    if (front)
        front->ops->reset(front, code);
    finish(s, by, why);
}

void ek_relay_end_closed(struct ek_relay *s)
{
    int rc = s->back_ended ? 0 : s->front->ops->end(s->front);
    if (!rc && !s->front_ended)
        rc = s->back->ops->end(s->back);
    if (rc)
        ek_relay_end_badly(s, EK_RESET_NO_ERROR, "proxy", "");
    else
        ek_relay_end_well(s, "proxy");
}

/* An open session that the proxy itself ends. gRPC reads UNAVAILABLE in trailers: a
 * reset would be INTERNAL to it. */
void ek_relay_end_ours(struct ek_relay *s, const char *why, const char *message)
{
    struct ek_field fields[2] = {{{"grpc-status", 11}, {"14", 2}},
                                 {{"grpc-message", 12}, {message, strlen(message)}}};
    bool says_why =
        s->is_grpc && !s->is_websocket && s->front && s->front->ops == &ek_stream_ops;
    if (!says_why || s->front->ops->trailers(s->front, fields, 2)) {
        ek_relay_end_badly(s, EK_RESET_NO_ERROR, "proxy", why);
        return;
    }
    struct ek_half *front = ek_relay_let_go(&s->front),
                   *back = ek_relay_let_go(&s->back);
    if (back)
        back->ops->reset(back, EK_RESET_CANCEL);
    front->ops->detach(front);
    finish(s, "proxy", why);
}

/* Before the answer's head: with an answer of our own. */
void ek_relay_refuse(struct ek_relay *s, int status, const char *why)
{
    struct ek_half *front = ek_relay_let_go(&s->front),
                   *back = ek_relay_let_go(&s->back);
    struct ek_refusal r = {.status = status, .why = why};
    if (status == 503) {
        double least = (double)ek_relay_config(s)->retry_after_us / 1000;
        r.retry_after_ms = (int64_t)(least * (1 + ek_rng_uniform(&s->reactor->rng)));
    }
    s->status = (int16_t)status;
    if (back)
        back->ops->reset(back, EK_RESET_CANCEL);
    if (front)
        front->ops->refuse(front, &r);
    finish(s, "proxy", why);
}

/* All of a reactor's ------------------------------------------------------------- */

static bool is_ended(const struct ek_router *r, int32_t backend)
{
    const struct ek_upstream *u = ek_router_upstream(r, backend);
    return u && ek_counter_get(&u->is_ended);
}

void ek_relay_end_removed(struct ek_reactor *w)
{
    const struct ek_router *r = w->router;
    struct ek_link *next;
    bool is_any = false;
    for (size_t i = 0; i < r->n_upstreams && !is_any; i++)
        is_any = is_ended(r, (int32_t)i);
    for (struct ek_link *l = w->sessions.next; is_any && l != &w->sessions; l = next) {
        struct ek_relay *s = EK_LINK_OWNER(l, struct ek_relay, link);
        next = l->next;
        if (!s->placement.pool || !is_ended(r, s->placement.backend))
            continue;
        const struct ek_upstream *u = ek_router_upstream(r, s->placement.backend);
        const char *why = ek_counter_get(&u->is_removed) ? "removed" : "backend_drain";
        if (ek_relay_ws_close(s, why))
            ek_relay_set_timer(s);
        else if (s->state == EK_RELAY_OPEN)
            ek_relay_end_ours(s, why, "the backend was taken out of service");
        else
            ek_relay_refuse(s, 503, "the backend was taken out of service");
    }
}

static void end_for_drain(struct ek_relay *s)
{
    if (s->state == EK_RELAY_OPEN)
        ek_relay_end_ours(s, "drain", "the proxy is shutting down");
    else
        ek_relay_refuse(s, 503, "the proxy is shutting down");
}

void ek_relay_close_all(struct ek_reactor *w)
{
    struct ek_link *next;
    for (struct ek_link *l = w->sessions.next; l != &w->sessions; l = next) {
        struct ek_relay *s = EK_LINK_OWNER(l, struct ek_relay, link);
        next = l->next;
        if (ek_relay_ws_close(s, "drain"))
            ek_relay_set_timer(s);
        else
            end_for_drain(s);
    }
}

void ek_relay_end_all(struct ek_reactor *w)
{
    while (!ek_link_is_alone(&w->sessions)) {
        struct ek_relay *s = EK_LINK_OWNER(w->sessions.next, struct ek_relay, link);
        if (ek_relay_ws_close(s, "drain"))
            ek_relay_end_closed(s);
        else
            end_for_drain(s);
    }
}
