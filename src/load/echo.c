#include "load/echo.h"

#include "base/link.h"
#include "base/mem.h"
#include "load/echo_int.h"
#include "load/websocket.h"
#include "net/address.h"
#include "net/http1_message.h"
#include "net/sock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEAD_MAX = 32768, FRAME_MAX = 1 << 20, ACCEPTS = 32, TICK_US = 100000 };

/* A connection of HTTP/1.1 or a WebSocket; one of HTTP/2 is handed on. */
struct conn {
    struct ek_link link;
    struct ek_echo *e;
    struct ek_watch watch;
    struct ek_sock sock;
    struct ek_buf in;  /* of a head what came; a WebSocket keeps it in its reader */
    struct ek_buf out; /* what the socket did not take: nothing is read meanwhile */
    struct ek_ws_reader reader;
    bool is_websocket;
    bool is_ending; /* closed when out is sent */
};

static void close_conn(struct conn *c)
{
    ek_link_remove(&c->link);
    ek_watch_forget(&c->watch);
    ek_sock_close(&c->sock, false);
    ek_buf_release(&c->in);
    ek_buf_release(&c->out);
    ek_ws_reader_release(&c->reader);
    ek_free(c);
}

/* What is not taken at once waits. */
static int put(struct conn *c, const void *p, size_t n)
{
    size_t sent = 0;
    int want;
    int rc = c->out.len ? EK_EAGAIN : ek_sock_write(&c->sock, p, n, &sent, &want);
    if (rc && rc != EK_EAGAIN)
        return rc;
    if (sent == n)
        return 0;
    rc = ek_buf_add(&c->out, (const char *)p + sent, n - sent);
    return rc ? rc : ek_watch_change(&c->watch, EK_WRITABLE);
}

static int send_rest(struct conn *c)
{
    size_t sent = 0;
    int want;
    int rc = ek_sock_write(&c->sock, c->out.data, c->out.len, &sent, &want);
    if (rc)
        return rc == EK_EAGAIN ? 0 : rc;
    ek_buf_consume(&c->out, sent);
    if (c->out.len)
        return 0;
    ek_buf_release(&c->out);
    return c->is_ending ? EK_ECLOSED : ek_watch_change(&c->watch, EK_READABLE);
}

/* WebSocket ---------------------------------------------------------------- */

static int on_frame(void *owner, const struct ek_ws_head *h, uint8_t *payload)
{
    struct conn *c = owner;
    uint8_t text[EK_WS_HEAD_MAX];
    struct ek_ws_head reply = {.opcode = h->opcode, .is_final = h->is_final, .n = h->n};
    if (!h->is_masked)
        return EK_EFORMAT; /* a client masks all */
    if (h->opcode == EK_WS_PONG || c->is_ending)
        return 0;
    if (h->opcode == EK_WS_PING)
        reply.opcode = EK_WS_PONG;
    size_t n_head = ek_ws_head_write(text, &reply); /* shorter than the masked one */
    memcpy(payload - n_head, text, n_head);
    int rc = put(c, payload - n_head, n_head + (size_t)h->n);
    if (rc || h->opcode != EK_WS_CLOSE)
        return rc;
    c->is_ending = true;
    return c->out.len ? 0 : EK_ECLOSED;
}

/* HTTP/1.1 ----------------------------------------------------------------- */

static int answer(struct conn *c, const struct ek_http1_message *m)
{
    char text[512], accept[29];
    int n;
    if (!m->head.is_websocket) {
        n = snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n",
                     EK_ECHO_BODY);
        memset(text + n, 'x', EK_ECHO_BODY);
        return put(c, text, (size_t)n + EK_ECHO_BODY);
    }
    struct ek_text key = m->head.websocket_key;
    int rc = ek_websocket_accept(accept, key.p, key.n);
    if (rc)
        return rc;
    n = snprintf(text, sizeof text,
                 "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                 "Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
                 accept);
    c->is_websocket = true;
    c->reader =
        (struct ek_ws_reader){.max = FRAME_MAX, .on_frame = on_frame, .owner = c};
    return put(c, text, (size_t)n);
}

/* Requests that came whole; without bodies. */
static int read_heads(struct conn *c)
{
    while (!c->is_websocket && c->in.len > 0) {
        struct ek_http1_message m;
        size_t from = 0;
        bool is_bad = false;
        size_t n = ek_http1_find_end(c->in.data, c->in.len, &from, &is_bad);
        if (is_bad)
            return EK_EFORMAT;
        if (n == 0)
            return 0;
        int rc = ek_http1_read_request(&m, c->in.data, n);
        if (!rc && m.framing != EK_HTTP1_NO_BODY && !m.head.is_websocket)
            rc = EK_EUNSUP;
        if (!rc)
            rc = answer(c, &m);
        if (rc)
            return rc;
        ek_buf_consume(&c->in, n);
    }
    size_t n = c->in.len;
    if (n > 0 && n <= EK_ECHO_SCRATCH)
        memcpy(c->e->scratch, c->in.data, n);
    ek_buf_release(&c->in);
    return n > 0 ? ek_ws_reader_feed(&c->reader, c->e->scratch, n) : 0;
}

/* HTTP/2 says so first. True: the connection is no longer ours. */
static bool hand_to_h2(struct conn *c, size_t n)
{
    size_t n_preface = sizeof EK_H2_PREFACE - 1;
    if (c->is_websocket || c->in.len || n < n_preface ||
        memcmp(c->e->scratch, EK_H2_PREFACE, n_preface) != 0)
        return false;
    struct ek_h2 *h2;
    struct ek_h2_start start = {.fd = c->sock.fd,
                                .is_server = true,
                                .bytes = (const char *)c->e->scratch,
                                .n_bytes = n};
    ek_watch_stop(&c->watch);
    c->sock.fd = -1;
    if (ek_h2_new(&h2, c->e->h2, &start)) {
        /* it was closed there */
    }
    close_conn(c);
    return true;
}

static void on_ready(struct ek_watch *w, int events)
{
    struct conn *c = w->owner;
    struct ek_echo *e = c->e;
    size_t n = 0;
    int want;
    (void)events;
    int rc = 0;
    if (c->out.len > 0) {
        rc = send_rest(c);
    } else {
        rc = ek_sock_read(&c->sock, e->scratch, EK_ECHO_SCRATCH, &n, &want);
        if (!rc && hand_to_h2(c, n))
            return;
        if (!rc && c->is_websocket) {
            rc = ek_ws_reader_feed(&c->reader, e->scratch, n);
        } else if (!rc) {
            rc = ek_buf_add(&c->in, e->scratch, n);
            if (!rc)
                rc = read_heads(c);
        }
    }
    if (rc && rc != EK_EAGAIN)
        close_conn(c);
}

/* Accepting ---------------------------------------------------------------- */

static void take(struct ek_echo *e, int fd)
{
    struct conn *c = ek_calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        return;
    }
    c->e = e;
    c->sock.fd = fd;
    c->watch = (struct ek_watch){.fd = fd, .on_ready = on_ready, .owner = c};
    ek_link_init(&c->link);
    ek_buf_init(&c->in, HEAD_MAX + EK_ECHO_SCRATCH);
    ek_buf_init(&c->out, 2 * FRAME_MAX);
    ek_link_append(&e->conns, &c->link);
    if (ek_watch_start(e->loop, &c->watch, EK_READABLE))
        close_conn(c);
}

static void on_accept(struct ek_watch *w, int events)
{
    struct ek_echo *e = w->owner;
    (void)events;
    for (int i = 0; i < ACCEPTS; i++) {
        int fd = accept4(w->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0)
            take(e, fd);
        else if (errno == EMFILE || errno == ENFILE)
            ek_watch_stop(w); /* until the next tick: it stays readable */
        if (fd < 0)
            return;
    }
}

static void on_tick(struct ek_timer *t)
{
    struct ek_echo *e = t->owner;
    bool is_watched =
        e->accepts.loop || !ek_watch_start(e->loop, &e->accepts, EK_READABLE);
    (void)is_watched; /* else tried again */
    if ((e->o->is_stopped && e->o->is_stopped()) || ek_timer_start(t, TICK_US))
        ek_loop_stop(e->loop);
}

static int set_up(struct ek_echo *e, struct ek_err *err)
{
    char address[128];
    struct rlimit limit;
    int fd;
    if (!getrlimit(RLIMIT_NOFILE, &limit)) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit); /* else fewer connections are taken */
    }
    e->scratch = ek_alloc(EK_ECHO_SCRATCH);
    int rc = e->scratch ? ek_loop_new(&e->loop, err)
                        : ek_err_set(err, EK_ENOMEM, "out of memory");
    if (!rc)
        rc = ek_address_listen(&fd, address, &e->unix_path, e->o->listen, err);
    if (rc)
        return rc;
    ek_sock_send_at_once(fd); /* connections inherit it */
    e->accepts = (struct ek_watch){.fd = fd, .on_ready = on_accept, .owner = e};
    ek_timer_init(&e->tick, e->loop, on_tick, e);
    rc = ek_echo_h2_new(e);
    if (!rc)
        rc = ek_timer_start(&e->tick, 0);
    if (rc)
        return ek_err_set(err, rc, "the backend: %s", ek_status_text(rc));
    if (e->o->on_ready)
        e->o->on_ready(e->o->arg, address);
    return 0;
}

int ek_echo_run(const struct ek_echo_options *o, struct ek_err *err)
{
    struct ek_echo e = {.o = o, .accepts = {.fd = -1}};
    ek_link_init(&e.conns);
    int rc = set_up(&e, err);
    if (!rc)
        rc = ek_loop_run(e.loop, err);
    while (!ek_link_is_alone(&e.conns))
        close_conn(EK_LINK_OWNER(e.conns.next, struct conn, link));
    ek_h2_context_free(e.h2);
    if (e.accepts.fd >= 0) {
        ek_timer_stop(&e.tick);
        ek_watch_stop(&e.accepts);
        close(e.accepts.fd);
    }
    if (e.unix_path)
        unlink(e.unix_path);
    ek_free(e.unix_path);
    ek_loop_free(e.loop);
    ek_free(e.scratch);
    return rc;
}
