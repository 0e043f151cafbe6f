/* http_conn.c - one connection's life: the state machine drawn in http_int.h, its
 * reads, writes and time limits.
 *
 * Waits are counted by the clock and not by the time of the turn: a handler that copies
 * a large answer may take longer than a limit, and its client is not to blame. A timer
 * that comes early therefore looks at the clock before it acts.
 *
 * Invariant between events: the watch's interest and the timer are those of
 * interest_of() and deadline_of() for the state.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "net/h2.h"
#include "net/http_int.h"
#include "net/sock.h"
#include "net/tls.h"

#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Steps of one connection before the others get their turn. */
enum { STEPS_A_TURN = 32 };
enum { WRITE_AT_ONCE = 65536 };
/* Long enough for a far client to read the answer and close, short enough that a
 * client which never closes does not hold its place. */
enum { LINGER_US = 5 * 1000 * 1000 };
static const int64_t never_us = (int64_t)365 * 24 * 3600 * 1000 * 1000;

static size_t unsent(const struct ek_http_conn *c)
{
    return c->out.len - c->n_sent;
}

static void enter(struct ek_http_conn *c, enum ek_http_state state)
{
    c->state = state;
    c->since_us = ek_clock_us();
}

/* Bytes ------------------------------------------------------------------------ */

/* Whether the client ended or the connection failed: it is over alike. */
static int over_alike(int rc)
{
    return rc == EK_EIO ? EK_ECLOSED : rc;
}

static int receive(struct ek_http_conn *c, size_t *got)
{
    struct ek_http_server *s = c->server;
    struct ek_sock sock = {c->watch.fd, c->tls};
    return over_alike(
        ek_sock_read(&sock, s->scratch, sizeof s->scratch, got, &c->read_wants));
}

static int transmit(struct ek_http_conn *c, const char *p, size_t n, size_t *sent)
{
    struct ek_sock sock = {c->watch.fd, c->tls};
    return over_alike(ek_sock_write(&sock, p, n, sent, &c->write_wants));
}

/* Sends what there is. 0: nothing is left. */
static int flush(struct ek_http_conn *c)
{
    while (unsent(c) > 0) {
        size_t n = unsent(c) < WRITE_AT_ONCE ? unsent(c) : WRITE_AT_ONCE;
        size_t sent = 0;
        int rc = transmit(c, c->out.data + c->n_sent, n, &sent);
        if (rc)
            return rc;
        c->n_sent += sent;
        c->since_us = ek_clock_us();
    }
    if (c->out.cap > EK_HTTP1_MAX_KEPT_BYTES)
        ek_buf_release(&c->out);
    ek_buf_reset(&c->out);
    c->n_sent = 0;
    return 0;
}

/* Steps: 0 go on, EK_EAGAIN wait for an event, EK_ECLOSED close the connection --- */

static int refuse(struct ek_http_conn *c, int code, const char *reason)
{
    c->must_close = true;
    return ek_http_answer_self(c, code, reason) ? EK_ECLOSED : 0;
}

/* The handler has the socket; closing c leaves it alone. */
static int hand_over(struct ek_http_conn *c, const char *p, size_t n)
{
    struct ek_http_server *s = c->server;
    struct ek_tls *tls = c->tls;
    int fd = c->watch.fd;
    ek_watch_stop(&c->watch);
    c->watch.fd = -1;
    c->tls = NULL;
    s->handler.on_http2(s->handler.arg, fd, tls, p, n);
    return EK_ECLOSED;
}

/* The first bytes of a connection, kept until they are HTTP/2's preface or cannot
 * be. */
static int step_preface(struct ek_http_conn *c)
{
    size_t preface_n = sizeof EK_H2_PREFACE - 1, got = 0;
    int rc = receive(c, &got);
    if (rc)
        return rc;
    if (c->in.len == 0)
        c->since_us = ek_clock_us();
    if (ek_buf_add(&c->in, c->server->scratch, got))
        return EK_ECLOSED;
    size_t n = c->in.len < preface_n ? c->in.len : preface_n;
    if (memcmp(c->in.data, EK_H2_PREFACE, n) != 0)
        c->has_served = true;
    else if (n == preface_n)
        return hand_over(c, c->in.data, c->in.len);
    return 0;
}

static bool may_be_http2(const struct ek_http_conn *c)
{
    return c->server->handler.on_http2 && !c->has_served;
}

static int step_handshake(struct ek_http_conn *c)
{
    static const char plain[] =
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n"
        "Content-Length: 41\r\nConnection: close\r\n\r\n"
        "this port speaks HTTPS; use an https URL\n";
    int rc = ek_tls_handshake(c->tls, &c->read_wants);
    if (rc == 0 && c->server->handler.on_http2 && ek_tls_has_alpn(c->tls, "h2"))
        return hand_over(c, NULL, 0);
    if (rc == 0)
        enter(c, EK_HTTP_REQUEST);
    if (rc != EK_ECLOSED || !ek_tls_met_http(c->tls))
        return rc;
    /* The client will not understand an alert, but this. */
    ek_tls_free(c->tls);
    c->tls = NULL;
    if (ek_buf_add(&c->out, plain, sizeof plain - 1))
        return EK_ECLOSED;
    c->must_close = true;
    enter(c, EK_HTTP_ANSWERED);
    return 0;
}

static int deliver(struct ek_http_conn *c)
{
    struct ek_http_server *s = c->server;
    if (!c->parser.is_keep_alive)
        c->must_close = true;
    if (c->parser.request.path[0] == '*')
        return ek_http_answer_self(c, 204, NULL) ? EK_ECLOSED : 0;
    enter(c, EK_HTTP_HANDLER);
    c->x.is_open = true;
    s->handler.on_request(s->handler.arg, &c->x);
    return 0;
}

/* The client waits to hear that its body is wanted; it is, or the parser had failed. */
static int send_continue(struct ek_http_conn *c)
{
    static const char line[] = "HTTP/1.1 100 Continue\r\n\r\n";
    c->has_sent_continue = true;
    if (ek_buf_add(&c->out, line, sizeof line - 1))
        return EK_ECLOSED;
    int rc = flush(c);
    return rc == EK_EAGAIN ? 0 : rc;
}

static int parse(struct ek_http_conn *c, const char *p, size_t n, size_t *used)
{
    bool was_idle = ek_http1_is_idle(&c->parser);
    if (ek_http1_feed(&c->parser, p, n, used))
        return EK_ECLOSED;
    /* A head is timed from its first byte, a body from its last. */
    if (was_idle || c->parser.phase != EK_HTTP1_HEAD)
        c->since_us = ek_clock_us();
    return 0;
}

static int after_parse(struct ek_http_conn *c, bool has_more)
{
    struct ek_http1 *p = &c->parser;
    if (p->phase == EK_HTTP1_FAILED)
        return refuse(c, p->code, p->reason);
    if (p->phase == EK_HTTP1_DONE)
        return deliver(c);
    if (p->phase == EK_HTTP1_BODY && p->expects_continue && !c->has_sent_continue &&
        !has_more && p->body.len == 0)
        return send_continue(c);
    return 0;
}

static int step_request(struct ek_http_conn *c)
{
    size_t used = 0, got = 0;
    int rc;
    if (may_be_http2(c))
        return step_preface(c);
    if (c->in.len > 0) {
        rc = parse(c, c->in.data, c->in.len, &used);
        if (!rc)
            ek_buf_consume(&c->in, used);
    } else {
        rc = receive(c, &got);
        if (!rc)
            rc = parse(c, c->server->scratch, got, &used);
        if (!rc)
            rc = ek_buf_add(&c->in, c->server->scratch + used, got - used);
    }
    if (rc == EK_EAGAIN && unsent(c) > 0) {
        int sent = flush(c);
        return sent ? sent : rc;
    }
    if (rc)
        return rc == EK_EAGAIN ? rc : EK_ECLOSED;
    return after_parse(c, c->in.len > 0);
}

static void shut(struct ek_http_conn *c)
{
    if (c->tls)
        ek_tls_end(c->tls);
    shutdown(c->watch.fd, SHUT_WR);
    ek_buf_release(&c->in);
    enter(c, EK_HTTP_LINGER);
}

static int step_answered(struct ek_http_conn *c)
{
    struct ek_http_server *s = c->server;
    int rc = flush(c);
    if (rc)
        return rc;
    if (c->x.is_open) {
        c->x.is_open = false;
        s->handler.on_closed(s->handler.arg, &c->x, false);
    }
    if (c->must_close || s->is_draining) {
        shut(c);
        return 0;
    }
    ek_http1_reset(&c->parser);
    ek_buf_reset(&c->x.extra);
    c->x = (struct ek_http_exchange){.conn = c, .extra = c->x.extra};
    c->has_sent_continue = false;
    enter(c, EK_HTTP_REQUEST);
    return 0;
}

/* Bytes are read past TLS here: what they say no longer matters. */
static int step_linger(struct ek_http_conn *c)
{
    struct ek_http_server *s = c->server;
    struct ek_sock plain = {c->watch.fd, NULL};
    size_t got;
    int want;
    return over_alike(ek_sock_read(&plain, s->scratch, sizeof s->scratch, &got, &want));
}

static int step(struct ek_http_conn *c)
{
    if (c->is_broken)
        return EK_ECLOSED;
    switch (c->state) {
    case EK_HTTP_HANDSHAKE:
        return step_handshake(c);
    case EK_HTTP_REQUEST:
        return step_request(c);
    case EK_HTTP_HANDLER: {
        int rc = flush(c);
        return rc ? rc : EK_EAGAIN;
    }
    case EK_HTTP_ANSWERED:
        return step_answered(c);
    case EK_HTTP_LINGER:
        return step_linger(c);
    }
    return EK_ECLOSED;
}

/* Waiting ---------------------------------------------------------------------- */

static int interest_of(const struct ek_http_conn *c)
{
    int w = unsent(c) > 0 ? c->write_wants : 0;
    switch (c->state) {
    case EK_HTTP_HANDSHAKE:
        return c->read_wants;
    case EK_HTTP_REQUEST:
        return c->read_wants | w;
    case EK_HTTP_HANDLER:
        /* Requests sent ahead are left in the socket, so that a client cannot make us
         * hold them; its leaving is told all the same. */
        return EK_HANGUP | w;
    case EK_HTTP_ANSWERED:
        return w;
    case EK_HTTP_LINGER:
        return EK_READABLE;
    }
    return 0;
}

static int64_t deadline_of(const struct ek_http_conn *c)
{
    const struct ek_http_limits *l = &c->server->limits;
    switch (c->state) {
    case EK_HTTP_HANDSHAKE:
        return c->since_us + l->head_timeout_us;
    case EK_HTTP_REQUEST:
        if (ek_http1_is_idle(&c->parser) && c->in.len == 0)
            return c->since_us + l->idle_timeout_us;
        if (c->parser.phase == EK_HTTP1_HEAD)
            return c->since_us + l->head_timeout_us;
        return c->since_us + l->body_timeout_us;
    case EK_HTTP_HANDLER:
    case EK_HTTP_ANSWERED:
        return unsent(c) > 0 ? c->since_us + l->send_timeout_us : INT64_MAX;
    case EK_HTTP_LINGER:
        return c->since_us + LINGER_US;
    }
    return INT64_MAX;
}

static void move_timer(struct ek_http_conn *c)
{
    int64_t due = deadline_of(c);
    int rc =
        ek_timer_start(&c->timer, due == INT64_MAX ? never_us : due - ek_clock_us());
    assert(rc == 0 && "a started timer is moved without memory");
    (void)rc;
}

void ek_http_conn_drive(struct ek_http_conn *c)
{
    int rc = 0;
    c->is_driving = true;
    for (int i = 0; i < STEPS_A_TURN && rc == 0; i++)
        rc = step(c);
    c->is_driving = false;
    if (rc == 0)
        ek_http_conn_soon(c);
    if (rc == EK_ECLOSED || ek_watch_change(&c->watch, interest_of(c))) {
        ek_http_conn_close(c);
        return;
    }
    move_timer(c);
}

static void on_ready(struct ek_watch *w, int events)
{
    struct ek_http_conn *c = w->owner;
    /* The peer ended its side while the handler works. A client that only stopped
     * sending and still reads looks the same as one that left; the second is the
     * common one and its request is dear, so both are given up. */
    if (c->state == EK_HTTP_HANDLER && (events & EK_HANGUP))
        ek_http_conn_close(c);
    else
        ek_http_conn_drive(c);
}

static void on_time(struct ek_timer *t)
{
    struct ek_http_conn *c = t->owner;
    int rc = ek_timer_start(t, never_us);
    assert(rc == 0 && "its place in the heap was just given up");
    (void)rc;
    if (deadline_of(c) > ek_clock_us()) {
        move_timer(c);
        return;
    }
    bool is_late = c->state == EK_HTTP_REQUEST && !ek_http1_is_idle(&c->parser);
    if (!is_late || refuse(c, 408, "the request did not arrive in time")) {
        ek_http_conn_close(c);
        return;
    }
    ek_http_conn_drive(c);
}

/* Life ------------------------------------------------------------------------- */

/* A peer that vanished without a word is found out by probes, and by bytes it does not
 * acknowledge. What the kernel holds unsent is kept small: it would hide megabytes from
 * max_unsent_bytes, and calls a socket writable only when a third of them is gone, by
 * when a slow reader looks like one that takes nothing. Failures are harmless: other
 * limits hold, and a Unix socket knows none of these. */
static void set_socket_options(int fd, int64_t send_timeout_us)
{
    int on = 1, idle_s = 60, every_s = 15, n = 4, unsent_bytes = 131072;
    unsigned ms = send_timeout_us / 1000 > 0x7fffffff
                      ? 0x7fffffffU
                      : (unsigned)(send_timeout_us / 1000);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &n, sizeof n);
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_bytes, sizeof unsent_bytes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

static void conn_free(struct ek_http_conn *c)
{
    ek_watch_stop(&c->watch);
    ek_timer_stop(&c->timer);
    ek_tls_free(c->tls);
    if (c->watch.fd >= 0)
        close(c->watch.fd);
    ek_http1_release(&c->parser);
    ek_buf_release(&c->x.extra);
    ek_buf_release(&c->in);
    ek_buf_release(&c->out);
    ek_free(c);
}

int ek_http_conn_new(struct ek_http_server *s, int fd)
{
    struct ek_http_conn *c = ek_calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        return EK_ENOMEM;
    }
    c->server = s;
    c->x.conn = c;
    c->watch = (struct ek_watch){.fd = fd, .on_ready = on_ready, .owner = c};
    c->read_wants = EK_READABLE;
    c->write_wants = EK_WRITABLE;
    ek_timer_init(&c->timer, s->loop, on_time, c);
    ek_link_init(&c->soon);
    ek_http1_init(&c->parser, s->limits.max_head_bytes, s->limits.max_body_bytes);
    ek_buf_init(&c->x.extra, EK_HTTP_MAX_EXTRA_BYTES);
    ek_buf_init(&c->in, sizeof s->scratch);
    /* Answers given whole have no ceiling but memory; streams are held to
     * max_unsent_bytes by ek_http_send. */
    ek_buf_init(&c->out, SIZE_MAX / 4);
    enter(c, s->tls ? EK_HTTP_HANDSHAKE : EK_HTTP_REQUEST);
    int rc = s->tls ? ek_tls_new(&c->tls, s->tls, fd) : 0;
    if (!rc)
        rc = ek_timer_start(&c->timer, never_us);
    if (!rc)
        rc = ek_watch_start(s->loop, &c->watch, interest_of(c));
    if (rc) {
        conn_free(c);
        return rc;
    }
    move_timer(c);
    set_socket_options(fd, s->limits.send_timeout_us);
    ek_link_append(&s->conns, &c->all);
    s->n_conns++;
    return 0;
}

void ek_http_conn_close(struct ek_http_conn *c)
{
    struct ek_http_server *s = c->server;
    assert(!c->is_driving);
    if (c->x.is_open) {
        /* Calls of the handler on x from here on must find it gone. */
        c->is_broken = true;
        c->x.is_open = false;
        s->handler.on_closed(s->handler.arg, &c->x, true);
    }
    ek_link_remove(&c->all);
    ek_link_remove(&c->soon);
    s->n_conns--;
    conn_free(c);
}
