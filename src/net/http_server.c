/* http_server.c - listening, accepting, and the server's own life. */
#include "base/log.h"
#include "base/mem.h"
#include "net/address.h"
#include "net/http_int.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* How long accepting rests when the process has no descriptors left: the listener
 * stays readable, so watching it on would spin. */
enum { ACCEPT_REST_US = 100 * 1000 };
enum { ACCEPTS_A_TURN = 64 };
static const int64_t never_us = (int64_t)365 * 24 * 3600 * 1000 * 1000;

void ek_http_limits_default(struct ek_http_limits *l)
{
    const int64_t second_us = 1000000;
    *l = (struct ek_http_limits){
        .max_head_bytes = (size_t)32 << 10,
        .max_body_bytes = (size_t)8 << 20,
        .max_connections = 1024,
        .head_timeout_us = 10 * second_us,
        .body_timeout_us = 30 * second_us,
        .idle_timeout_us = 75 * second_us,
        .send_timeout_us = 60 * second_us,
        .max_unsent_bytes = (size_t)4 << 20,
    };
}

static struct ek_http_conn *of_all(struct ek_link *l)
{
    return (struct ek_http_conn *)(void *)((char *)l -
                                           offsetof(struct ek_http_conn, all));
}

static struct ek_http_conn *of_soon(struct ek_link *l)
{
    return (struct ek_http_conn *)(void *)((char *)l -
                                           offsetof(struct ek_http_conn, soon));
}

static void move_timer(struct ek_timer *t, int64_t delay_us)
{
    int rc = ek_timer_start(t, delay_us);
    assert(rc == 0 && "a started timer is moved without memory");
    (void)rc;
}

/* Soon ------------------------------------------------------------------------- */

void ek_http_conn_soon(struct ek_http_conn *c)
{
    if (c->is_driving || !ek_link_is_alone(&c->soon))
        return;
    ek_link_append(&c->server->soon, &c->soon);
    move_timer(&c->server->later, 0);
}

/* Connections put on the list from here on wait for the next turn. */
static void on_later(struct ek_timer *t)
{
    struct ek_http_server *s = t->owner;
    struct ek_link now;
    int rc = ek_timer_start(t, never_us);
    assert(rc == 0 && "its place in the heap was just given up");
    (void)rc;
    ek_link_init(&now);
    if (ek_link_is_alone(&s->soon))
        return;
    /* Move the whole list: `now` takes the place of its head. */
    ek_link_append(&s->soon, &now);
    ek_link_remove(&s->soon);
    while (!ek_link_is_alone(&now)) {
        struct ek_http_conn *c = of_soon(now.next);
        ek_link_remove(&c->soon);
        ek_http_conn_drive(c);
    }
}

/* Accepting -------------------------------------------------------------------- */

static bool is_out_of_descriptors(int e)
{
    return e == EMFILE || e == ENFILE || e == ENOBUFS || e == ENOMEM;
}

static void rest(struct ek_http_server *s, int e)
{
    ek_log(EK_LOG_WARN, "accept_failed", "listen=%s connections=%d reason=\"%s\"",
           s->address, (int)s->n_conns, strerror(e));
    /* Without memory for the timer the listener goes on being watched: slower for
     * all, but nobody is locked out for ever. */
    if (ek_timer_start(&s->retry, ACCEPT_REST_US) == 0)
        ek_watch_stop(&s->listener);
}

static void on_retry(struct ek_timer *t)
{
    struct ek_http_server *s = t->owner;
    if (s->is_draining || s->listener.loop)
        return;
    if (ek_watch_start(s->loop, &s->listener, EK_READABLE))
        rest(s, errno);
}

static void on_connect(struct ek_watch *w, int events)
{
    struct ek_http_server *s = w->owner;
    (void)events;
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        int fd = accept4(w->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (fd < 0 && is_out_of_descriptors(errno)) {
            rest(s, errno);
            return;
        }
        /* Any other error belongs to that connection alone (accept(2)). */
        if (fd < 0)
            continue;
        if (s->n_conns >= s->limits.max_connections)
            close(fd);
        else if (ek_http_conn_new(s, fd))
            ek_log(EK_LOG_WARN, "connection_refused", "listen=%s reason=\"%s\"",
                   s->address, ek_status_text(EK_ENOMEM));
    }
}

/* Life ------------------------------------------------------------------------- */

static int start(struct ek_http_server *s, const char *listen, struct ek_err *err)
{
    int rc = ek_timer_start(&s->later, never_us);
    if (rc)
        return ek_err_set(err, rc, "listen: %s: out of memory", listen);
    rc = ek_address_listen(&s->listener.fd, s->address, &s->unix_path, listen, err);
    if (rc)
        return rc;
    rc = ek_watch_start(s->loop, &s->listener, EK_READABLE);
    if (rc)
        return ek_err_set(err, rc, "listen: %s: %s", listen, strerror(errno));
    return 0;
}

int ek_http_server_new(struct ek_http_server **s, struct ek_loop *loop,
                       const char *listen, struct ek_tls_context *tls,
                       const struct ek_http_limits *limits,
                       const struct ek_http_handler *handler, struct ek_err *err)
{
    struct ek_http_server *v = ek_calloc(1, sizeof *v);
    if (!v)
        return ek_err_set(err, EK_ENOMEM, "listen: %s: out of memory", listen);
    v->loop = loop;
    v->tls = tls;
    v->limits = *limits;
    v->handler = *handler;
    v->listener = (struct ek_watch){.fd = -1, .on_ready = on_connect, .owner = v};
    ek_timer_init(&v->retry, loop, on_retry, v);
    ek_timer_init(&v->later, loop, on_later, v);
    ek_link_init(&v->conns);
    ek_link_init(&v->soon);
    int rc = start(v, listen, err);
    if (rc) {
        ek_http_server_free(v);
        return rc;
    }
    *s = v;
    return 0;
}

int ek_http_server_fd(const struct ek_http_server *s)
{
    return s->listener.fd;
}

void ek_http_server_keep_path(struct ek_http_server *s)
{
    ek_free(s->unix_path);
    s->unix_path = NULL;
}

const char *ek_http_server_address(const struct ek_http_server *s)
{
    return s->address;
}

int32_t ek_http_server_connections(const struct ek_http_server *s)
{
    return s->n_conns;
}

static void stop_listening(struct ek_http_server *s)
{
    ek_timer_stop(&s->retry);
    if (s->listener.fd < 0)
        return;
    ek_watch_stop(&s->listener);
    close(s->listener.fd);
    s->listener.fd = -1;
    if (s->unix_path)
        unlink(s->unix_path);
}

void ek_http_server_drain(struct ek_http_server *s)
{
    s->is_draining = true;
    stop_listening(s);
    struct ek_link *next;
    for (struct ek_link *l = s->conns.next; l != &s->conns; l = next) {
        struct ek_http_conn *c = of_all(l);
        next = l->next;
        bool is_idle = c->state == EK_HTTP_HANDSHAKE ||
                       (c->state == EK_HTTP_REQUEST && ek_http1_is_idle(&c->parser) &&
                        c->in.len == 0);
        if (is_idle && !c->is_driving)
            ek_http_conn_close(c);
    }
}

void ek_http_server_free(struct ek_http_server *s)
{
    if (!s)
        return;
    s->is_draining = true;
    stop_listening(s);
    while (!ek_link_is_alone(&s->conns))
        ek_http_conn_close(of_all(s->conns.next));
    assert(s->n_conns == 0);
    ek_timer_stop(&s->later);
    ek_free(s->unix_path);
    ek_free(s);
}
