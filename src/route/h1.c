/* h1.c - a connection's life: opened, idle, in a session, closed. */
#include "route/h1.h"

#include "base/mem.h"
#include "route/h1_int.h"
#include "route/stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

static const int64_t send_timeout_us = 60000000;
/* A connection to a backend that lives so long gets its probes: the short ones, which
 * are the many, do without four calls. */
static const int64_t probes_after_us = 1000000;

/* Bytes of a slow reader: one read of 64 KiB, TLS's and chunks' overhead, a window of
 * HTTP/2. More than a head, too. */
enum { MAX_OUT_BYTES = 1 << 20 };

static void on_ready(struct ek_watch *watch, int events);
static void on_time(struct ek_timer *t);
static void on_task(struct ek_task *t);

void ek_h1_set_timer(struct ek_h1 *h, int64_t delay_us)
{
    int rc = ek_timer_start(&h->timer, delay_us);
    (void)rc; /* it is started: moving it cannot fail */
}

/* Takes fd in any case. */
static int make(struct ek_h1 **out, struct ek_reactor *w, int fd)
{
    struct ek_h1 *h = ek_calloc(1, sizeof *h);
    if (!h) {
        close(fd);
        return EK_ENOMEM;
    }
    h->half.ops = &ek_h1_ops;
    h->reactor = w;
    h->sock.fd = fd;
    h->watch = (struct ek_watch){.fd = fd, .on_ready = on_ready, .owner = h};
    h->upstream = -1;
    h->read_wants = EK_READABLE;
    h->write_wants = EK_WRITABLE;
    ek_link_init(&h->link);
    ek_link_init(&h->group);
    ek_task_init(&h->task, on_task);
    ek_buf_init(&h->in, EK_ROUTE_MAX_HEAD_BYTES + EK_REACTOR_READ_BYTES);
    ek_buf_init(&h->out, MAX_OUT_BYTES);
    ek_timer_init(&h->timer, w->loop, on_time, h);
    if (ek_timer_start(&h->timer, EK_H1_NEVER_US)) {
        close(fd);
        ek_free(h);
        return EK_ENOMEM;
    }
    ek_link_append(&w->conns, &h->link);
    *out = h;
    return 0;
}

static void set_peer(struct ek_h1 *h, const struct sockaddr_storage *peer)
{
    if (peer->ss_family == AF_INET) {
        const struct sockaddr_in *sa = (const void *)peer;
        h->address_n = 4;
        memcpy(h->address, &sa->sin_addr, 4);
    } else if (peer->ss_family == AF_INET6) {
        const struct sockaddr_in6 *sa = (const void *)peer;
        bool is_v4 = IN6_IS_ADDR_V4MAPPED(&sa->sin6_addr);
        h->address_n = is_v4 ? 4 : 16;
        memcpy(h->address, sa->sin6_addr.s6_addr + (is_v4 ? 12 : 0), h->address_n);
    }
}

int ek_h1_accept(struct ek_reactor *w, int fd, struct ek_tls_context *tls,
                 const struct sockaddr_storage *peer)
{
    struct ek_h1 *h;
    int rc = make(&h, w, fd);
    if (rc)
        return rc;
    h->is_front = true;
    ek_counter_add(&w->n_conns, 1);
    ek_counter_share(&w->router->n_connections, 1);
    set_peer(h, peer);
    h->is_tls = tls != NULL;
    h->state = tls ? EK_H1_HANDSHAKE : EK_H1_IDLE;
    rc = tls ? ek_tls_new(&h->sock.tls, tls, fd) : 0;
    if (!rc)
        rc = ek_watch_start(w->loop, &h->watch, EK_READABLE | EK_HANGUP);
    if (rc) {
        ek_h1_kill(h, true);
        return rc;
    }
    ek_h1_set_timer(h, tls ? ek_router_config(w->router)->head_timeout_us
                           : ek_router_config(w->router)->idle_timeout_us);
    return 0;
}

static struct ek_h1 *take_idle(struct ek_reactor *w, const struct ek_upstream *u,
                               int32_t upstream)
{
    struct ek_link *list = &w->idle[upstream];
    if (ek_link_is_alone(list))
        return NULL;
    /* The one used last: the others may grow old and go. */
    struct ek_h1 *h = EK_LINK_OWNER(list->prev, struct ek_h1, group);
    if (h->connection_id != u->connection_id)
        return NULL; /* ek_h1_drop_stale is about to come */
    ek_link_remove(&h->group);
    w->n_idle[upstream]--;
    h->is_reused = true;
    h->state = EK_H1_HEAD;
    ek_h1_set_timer(h, probes_after_us);
    ek_counter_add(&w->counters.reused, 1);
    return h;
}

int ek_h1_open(struct ek_half **half, struct ek_reactor *w, int32_t upstream,
               bool *is_connected)
{
    const struct ek_upstream *u = ek_router_upstream(w->router, upstream);
    struct ek_h1 *h = take_idle(w, u, upstream);
    *is_connected = h != NULL;
    if (!h) {
        int fd;
        int rc = ek_upstream_connect(&fd, u);
        if (rc)
            return rc;
        rc = make(&h, w, fd);
        if (rc)
            return rc;
        h->upstream = upstream;
        h->connection_id = u->connection_id;
        h->state = EK_H1_CONNECTING;
        if (u->tls)
            rc = ek_tls_connect_new(&h->sock.tls, u->tls, fd,
                                    u->config.tls_name ? u->config.tls_name : u->host);
        if (rc) {
            ek_h1_kill(h, false);
            return rc;
        }
        ek_h1_set_timer(h, probes_after_us);
    }
    *half = &h->half;
    return 0;
}

/* The end ------------------------------------------------------------------ */

static void on_dead(struct ek_h1 *h)
{
    ek_timer_stop(&h->timer);
    ek_free(h);
}

void ek_h1_kill(struct ek_h1 *h, bool is_reset)
{
    struct ek_reactor *w = h->reactor;
    if (h->state == EK_H1_DEAD)
        return;
    if (!ek_link_is_alone(&h->group)) {
        ek_link_remove(&h->group);
        w->n_idle[h->upstream]--;
    }
    if (h->is_front) {
        ek_counter_add(&w->n_conns, -1);
        ek_counter_share(&w->router->n_connections, -1);
    }
    h->state = EK_H1_DEAD;
    ek_watch_stop(&h->watch);
    ek_sock_close(&h->sock, is_reset);
    ek_buf_release(&h->in);
    ek_buf_release(&h->out);
    ek_http1_body_release(&h->body);
    ek_link_remove(&h->link);
    ek_reactor_soon(w, &h->task);
}

struct ek_text ek_h1_client(const struct ek_h1 *h, char text[EK_H1_CLIENT_BYTES])
{
    char *at = text;
    if (h->address_n == 16 && inet_ntop(AF_INET6, h->address, text, EK_H1_CLIENT_BYTES))
        return ek_text_of(text, strlen(text));
    for (size_t i = 0; i < h->address_n && h->address_n == 4; i++) {
        unsigned v = h->address[i];
        if (i > 0)
            *at++ = '.';
        if (v >= 100)
            *at++ = (char)('0' + v / 100);
        if (v >= 10)
            *at++ = (char)('0' + v / 10 % 10);
        *at++ = (char)('0' + v % 10);
    }
    return ek_text_of(text, (size_t)(at - text));
}

void ek_h1_become_h2(struct ek_h1 *h, const char *p, size_t n)
{
    struct ek_sock sock = h->sock;
    char client[EK_H1_CLIENT_BYTES];
    struct ek_text address = ek_h1_client(h, client);
    ek_watch_stop(&h->watch);
    h->sock = (struct ek_sock){.fd = -1};
    /* Counted anew before it is not any more: at no moment it is nobody's (drain.c). */
    if (ek_stream_accept(h->reactor->streams, &sock, address, p, n))
        ek_counter_add(&h->reactor->counters.connections_refused, 1);
    ek_h1_kill(h, false);
}

static void fail(struct ek_h1 *h, uint32_t code, const char *why)
{
    bool is_reset = h->is_tunnel || h->has_begun;
    if (h->half.session)
        ek_relay_lost(&h->half, code, why);
    ek_h1_kill(h, is_reset);
}

void ek_h1_fail(struct ek_h1 *h, uint32_t code)
{
    fail(h, code, NULL);
}

void ek_h1_fail_socket(struct ek_h1 *h, int error)
{
    /* Its machine acknowledged nothing (net/sock.h), or cannot be reached. */
    bool is_dead = error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH;
    fail(h, EK_RESET_CANCEL, is_dead ? "dead_peer" : NULL);
}

static void linger(struct ek_h1 *h)
{
    h->state = EK_H1_LINGER;
    h->out_ended = true;
    h->is_paused = false;
    ek_buf_release(&h->in);
    ek_h1_set_timer(h, h->out.len > 0 ? send_timeout_us : EK_H1_LINGER_US);
    if (!ek_h1_flush(h))
        return;
    if (h->out.len == 0 && h->sock.tls)
        ek_h1_kill(h, false); /* close_notify says that this was all */
    else
        ek_h1_watch(h);
}

static void rest(struct ek_h1 *h)
{
    struct ek_reactor *w = h->reactor;
    const struct ek_route_config *c = ek_router_config(w->router);
    h->state = EK_H1_IDLE;
    h->is_paused = h->has_begun = h->out_ended = false;
    h->is_head_method = h->wants_websocket = false;
    h->out_framing = EK_HTTP1_NO_BODY;
    if (h->is_front) {
        h->is_reused = true;
        ek_h1_set_timer(h, c->idle_timeout_us);
        if (h->in.len > 0)
            ek_reactor_soon(w, &h->task);
        return;
    }
    if (w->n_idle[h->upstream] >= c->pool_connections ||
        !ek_upstream_keeps(ek_router_upstream(w->router, h->upstream),
                           h->connection_id)) {
        ek_h1_kill(h, false);
        return;
    }
    w->n_idle[h->upstream]++;
    ek_link_append(&w->idle[h->upstream], &h->group);
    /* Shorter than what servers keep (75 s): a request into a closing connection is the
     * one that must be tried again. */
    ek_h1_set_timer(h, c->idle_timeout_us / 2);
}

void ek_h1_finish(struct ek_h1 *h)
{
    bool is_whole = h->state == EK_H1_DONE && h->out_ended && !h->is_tunnel;
    if (h->is_tunnel && h->state == EK_H1_DONE && h->out.len == 0) {
        ek_h1_kill(h, false); /* both sides have ended */
        return;
    }
    bool is_kept = is_whole && h->is_keep_alive && !ek_reactor_is_draining(h->reactor);
    ek_http1_body_release(&h->body);
    if (is_kept && (h->is_front || (h->in.len == 0 && h->out.len == 0)))
        rest(h);
    else if (h->is_front ||
             (h->is_tunnel && (h->out.len > 0 || h->state == EK_H1_BODY)))
        linger(h); /* the peer may not have ended, after a Close of ours */
    else
        ek_h1_kill(h, false);
    if (ek_h1_is_alive(h))
        ek_h1_watch(h);
}

void ek_h1_drop_stale(struct ek_reactor *w)
{
    for (size_t i = 0; i < w->router->n_upstreams; i++) {
        const struct ek_upstream *u = ek_router_upstream(w->router, (int32_t)i);
        struct ek_link *next;
        for (struct ek_link *l = w->idle[i].next; l != &w->idle[i]; l = next) {
            struct ek_h1 *h = EK_LINK_OWNER(l, struct ek_h1, group);
            next = l->next;
            if (!ek_upstream_keeps(u, h->connection_id))
                ek_h1_kill(h, false);
        }
    }
}

/* A client that has only just come is about to ask, and one that has asked must be
 * heard: neither can know. */
static bool may_ask(const struct ek_h1 *h)
{
    return h->is_front && (!h->is_reused || ek_sock_has_bytes(&h->sock));
}

void ek_h1_close_idle(struct ek_reactor *w, bool all)
{
    struct ek_link *next;
    for (struct ek_link *l = w->conns.next; l != &w->conns; l = next) {
        struct ek_h1 *h = EK_LINK_OWNER(l, struct ek_h1, link);
        next = l->next;
        bool is_idle = h->state == EK_H1_IDLE && h->in.len == 0 && h->out.len == 0;
        if (!all && is_idle && may_ask(h))
            ek_timer_hasten(&h->timer, EK_ROUTE_FRESH_US); /* called at each wake */
        else if (all || is_idle)
            ek_h1_kill(h, false);
    }
}

/* Readiness ---------------------------------------------------------------- */

static bool is_reading(const struct ek_h1 *h)
{
    switch (h->state) {
    case EK_H1_IDLE:
    case EK_H1_HEAD:
    case EK_H1_LINGER:
        return true;
    case EK_H1_BODY:
        return !h->is_paused;
    default:
        return false;
    }
}

/* A client that ends its side while it waits for an answer has left (http.h says the
 * same); within a body or a tunnel it may well end it. */
static bool minds_hangup(const struct ek_h1 *h)
{
    return h->is_front && !h->is_tunnel &&
           (h->state == EK_H1_DONE || (h->state == EK_H1_BODY && h->wants_websocket));
}

int ek_h1_try_watch(struct ek_h1 *h, bool is_exact)
{
    int wants = 0;
    if (is_reading(h))
        wants |= h->read_wants;
    if (h->out.len > 0 || h->state == EK_H1_CONNECTING)
        wants |= h->state == EK_H1_CONNECTING ? EK_WRITABLE : h->write_wants;
    if (h->state == EK_H1_HANDSHAKE)
        wants = h->read_wants;
    if (minds_hangup(h))
        wants |= EK_HANGUP;
    /* Both sides ended is told without being asked for: nobody could act on it. */
    bool is_deaf = wants == 0 && h->out_shut;
    if (!is_exact && h->watch.loop && !is_deaf)
        wants |= h->watch.interest & (EK_READABLE | EK_HANGUP);
    if (is_deaf)
        ek_watch_stop(&h->watch);
    else if (h->watch.loop)
        return ek_watch_change(&h->watch, wants);
    else
        return ek_watch_start(h->reactor->loop, &h->watch, wants);
    return 0;
}

void ek_h1_watch(struct ek_h1 *h)
{
    if (ek_h1_try_watch(h, false))
        ek_h1_fail(h, EK_RESET_INTERNAL);
}

static void on_connected(struct ek_h1 *h)
{
    ek_counter_add(&h->reactor->counters.connects, 1);
    h->state = EK_H1_HEAD;
    h->read_wants = EK_READABLE;
    if (!ek_h1_flush(h))
        return;
    if (h->half.session)
        ek_relay_connected(&h->half);
}

int ek_h1_try_connect(struct ek_h1 *h)
{
    struct ek_reactor *w = h->reactor;
    size_t sent = 0;
    int want, rc = EK_EAGAIN;
    /* On the same machine, and for socket files, it is made by now. */
    if (!h->sock.tls)
        rc = ek_sock_write(&h->sock, h->out.data, h->out.len, &sent, &want);
    if (rc && rc != EK_EAGAIN)
        return EK_ECLOSED;
    if (rc == EK_EAGAIN)
        return ek_watch_start(w->loop, &h->watch, EK_WRITABLE);
    ek_counter_add(&w->counters.connects, 1);
    h->state = EK_H1_HEAD;
    h->must_tell = true;
    ek_buf_consume(&h->out, sent);
    if (h->out.len == 0)
        ek_buf_release(&h->out);
    ek_reactor_soon(w, &h->task);
    return ek_watch_start(w->loop, &h->watch,
                          EK_READABLE | (h->out.len > 0 ? EK_WRITABLE : 0));
}

static void handshake(struct ek_h1 *h)
{
    int want;
    int rc = ek_tls_handshake(h->sock.tls, &want);
    if (rc == EK_EAGAIN) {
        h->read_wants = (uint8_t)want;
    } else if (rc) {
        if (h->is_front)
            ek_h1_kill(h, false);
        else
            ek_h1_fail(h, EK_RESET_REFUSED);
    } else if (h->is_front && ek_tls_has_alpn(h->sock.tls, "h2")) {
        ek_h1_become_h2(h, NULL, 0);
    } else if (h->is_front) {
        h->state = EK_H1_IDLE;
        h->read_wants = EK_READABLE;
        ek_h1_set_timer(h, ek_reactor_is_draining(h->reactor)
                               ? EK_ROUTE_FRESH_US
                               : ek_router_config(h->reactor->router)->idle_timeout_us);
        ek_h1_read(h);
    } else {
        on_connected(h);
    }
}

static void on_connect(struct ek_h1 *h)
{
    int e = 0;
    socklen_t n = sizeof e;
    if (getsockopt(h->sock.fd, SOL_SOCKET, SO_ERROR, &e, &n) || e) {
        ek_h1_fail(h, EK_RESET_REFUSED);
    } else if (h->sock.tls) {
        h->state = EK_H1_HANDSHAKE;
        handshake(h);
    } else {
        on_connected(h);
    }
}

static void hang_up(struct ek_h1 *h)
{
    int e = 0;
    socklen_t n = sizeof e;
    if (h->state == EK_H1_LINGER)
        ek_h1_kill(h, false);
    else if (getsockopt(h->sock.fd, SOL_SOCKET, SO_ERROR, &e, &n))
        ek_h1_fail(h, EK_RESET_CANCEL);
    else
        ek_h1_fail_socket(h, e);
}

/* Something happened that is watched without being wanted now. A failed connection is
 * told again once it is not watched any more. */
static bool is_unwanted(const struct ek_h1 *h, int events)
{
    int watched = h->watch.interest;
    bool can_read = is_reading(h) && (h->read_wants & EK_READABLE);
    bool is_read = (events & watched & EK_READABLE) && !can_read;
    bool is_hangup = (events & watched & EK_HANGUP) && !minds_hangup(h);
    return is_hangup || (is_read && !(events & EK_HANGUP));
}

static void on_ready(struct ek_watch *watch, int events)
{
    struct ek_h1 *h = watch->owner;
    bool is_exact = false;
    if (h->state == EK_H1_CONNECTING) {
        on_connect(h);
    } else if (h->state == EK_H1_HANDSHAKE) {
        handshake(h);
    } else {
        if (h->out.len > 0 && (events & h->write_wants) && !ek_h1_flush(h))
            return;
        if (ek_h1_is_alive(h) && is_reading(h) && (events & h->read_wants))
            ek_h1_read(h);
        else if (ek_h1_is_alive(h) && is_unwanted(h, events))
            is_exact = true;
        else if (ek_h1_is_alive(h) && (events & EK_HANGUP))
            hang_up(h);
    }
    /* A tunnel's end stays readable for ever. */
    is_exact |= h->is_tunnel && h->state == EK_H1_DONE;
    if (ek_h1_is_alive(h) && ek_h1_try_watch(h, is_exact))
        ek_h1_fail(h, EK_RESET_INTERNAL);
}

static void on_task(struct ek_task *t)
{
    struct ek_h1 *h = EK_LINK_OWNER(t, struct ek_h1, task);
    if (h->state == EK_H1_DEAD) {
        on_dead(h);
        return;
    }
    if (h->must_tell) {
        h->must_tell = false;
        if (h->half.session)
            ek_relay_connected(&h->half);
    }
    if (!ek_h1_is_alive(h) || !ek_h1_flush(h))
        return;
    ek_h1_go_on(h);
    if (ek_h1_is_alive(h) && is_reading(h) && h->sock.tls &&
        ek_tls_has_pending(h->sock.tls))
        ek_h1_read(h);
    if (ek_h1_is_alive(h))
        ek_h1_watch(h);
}

static void on_time(struct ek_timer *t)
{
    struct ek_h1 *h = t->owner;
    struct ek_refusal late = {.status = 408, .why = "the request did not come in time"};
    if (ek_timer_start(t, EK_H1_NEVER_US)) { /* its place in the heap was just freed */
        ek_h1_fail(h, EK_RESET_INTERNAL);
        return;
    }
    if (h->is_front && h->state == EK_H1_HEAD) {
        ek_counter_add(&h->reactor->counters.late_heads, 1);
        ek_h1_answer(h, &late);
    } else if (!h->is_front && h->half.session) {
        ek_sock_find_dead(h->sock.fd,
                          ek_router_config(h->reactor->router)->dead_peer_us);
    } else if (h->is_front && h->state == EK_H1_IDLE && ek_sock_has_bytes(&h->sock)) {
        ek_h1_set_timer(h, EK_H1_LINGER_US); /* it asked just now */
    } else if (h->state == EK_H1_IDLE || h->state == EK_H1_HANDSHAKE ||
               h->state == EK_H1_LINGER) {
        ek_h1_fail(h, EK_RESET_REFUSED);
    }
}
