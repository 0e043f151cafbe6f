/* stream.c - connections of HTTP/2 to clients and backends, and the life of a half. */
#include "route/stream.h"

#include "base/mem.h"
#include "route/stream_int.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* A reader of a long session may pause for a while. */
static const int64_t stall_us = 300 * 1000000LL;

/* Halves ------------------------------------------------------------------------ */

static void on_half_over(struct ek_task *t)
{
    struct ek_stream_half *h = EK_LINK_OWNER(t, struct ek_stream_half, end);
    ek_buf_release(&h->early);
    ek_free(h->early_trailers);
    ek_free(h);
}

/* Should c never be made, the first one that waits for it says so to the pool. */
static void join(struct ek_stream_half *h, struct ek_stream_conn *c)
{
    h->conn = c;
    h->half.is_shared = c->has_first;
    c->has_first = true;
    ek_link_append(&c->halves, &h->of_conn);
}

struct ek_stream_half *ek_stream_half_new(struct ek_stream_conn *c,
                                          struct ek_h2_stream *stream)
{
    struct ek_stream_half *h = ek_calloc(1, sizeof *h);
    if (!h)
        return NULL;
    h->half.ops = &ek_stream_ops;
    h->stream = stream;
    h->is_front = c->upstream < 0;
    join(h, c);
    ek_buf_init(&h->early, EK_REACTOR_READ_BYTES);
    ek_task_init(&h->end, on_half_over);
    return h;
}

/* h goes and has said nothing of c, which is not made yet: the next one will. */
static void pass_on(const struct ek_stream_half *h, struct ek_stream_conn *c)
{
    if (c->is_ready || h->half.is_shared)
        return;
    c->has_first = !ek_link_is_alone(&c->halves);
    if (c->has_first)
        EK_LINK_OWNER(c->halves.next, struct ek_stream_half, of_conn)->half.is_shared =
            false;
}

void ek_stream_half_let_go(struct ek_stream_half *h)
{
    if (h->half.session || h->stream)
        return;
    ek_link_remove(&h->of_conn);
    pass_on(h, h->conn);
    ek_reactor_soon(h->conn->streams->reactor, &h->end);
}

/* Connections ------------------------------------------------------------------- */

static int make_conn(struct ek_stream_conn **out, struct ek_streams *s,
                     struct ek_sock *sock, int32_t upstream, struct ek_text early)
{
    struct ek_stream_conn *c = ek_calloc(1, sizeof *c);
    struct ek_h2_start start = {.fd = sock->fd,
                                .tls = sock->tls,
                                .is_server = upstream < 0,
                                .bytes = early.p,
                                .n_bytes = early.n,
                                .user = c};
    bool is_tls = sock->tls != NULL;
    *sock = (struct ek_sock){.fd = -1};
    if (!c) {
        ek_tls_free(start.tls);
        close(start.fd);
        return EK_ENOMEM;
    }
    c->streams = s;
    c->upstream = upstream;
    c->is_tls = is_tls;
    ek_link_init(&c->halves);
    ek_sock_find_dead(start.fd, ek_router_config(s->reactor->router)->dead_peer_us);
    int rc = ek_h2_new(&c->h2, upstream < 0 ? s->front : s->back, &start);
    if (rc) {
        ek_free(c);
        return rc;
    }
    ek_link_append(upstream < 0 ? &s->fronts : &s->backs[upstream], &c->link);
    *out = c;
    return 0;
}

int ek_stream_accept(struct ek_streams *s, struct ek_sock *sock, struct ek_text client,
                     const char *bytes, size_t n)
{
    struct ek_stream_conn *c;
    int rc = make_conn(&c, s, sock, -1, ek_text_of(bytes, n));
    if (rc)
        return rc;
    if (client.n < sizeof c->client)
        memcpy(c->client, client.p, client.n);
    ek_counter_add(&s->reactor->n_conns, 1);
    ek_counter_share(&s->reactor->router->n_connections, 1);
    if (ek_reactor_is_draining(s->reactor))
        ek_h2_drain(c->h2);
    return 0;
}

static int connect_to(struct ek_stream_conn **c, struct ek_streams *s, int32_t upstream)
{
    const struct ek_upstream *u = ek_router_upstream(s->reactor->router, upstream);
    struct ek_sock sock = {.fd = -1};
    int rc = ek_upstream_connect(&sock.fd, u);
    if (rc)
        return rc;
    if (u->tls)
        rc = ek_tls_connect_new(&sock.tls, u->tls, sock.fd,
                                u->config.tls_name ? u->config.tls_name : u->host);
    if (rc) {
        close(sock.fd);
        return rc;
    }
    rc = make_conn(c, s, &sock, upstream, ek_text_of(NULL, 0));
    if (!rc)
        (*c)->connection_id = u->connection_id;
    return rc;
}

/* How many streams a connection of this backend's takes, as one that is full shows. */
static int32_t limit_of(struct ek_link *list)
{
    int32_t limit = INT32_MAX;
    for (struct ek_link *l = list->next; l != list; l = l->next) {
        const struct ek_stream_conn *v = EK_LINK_OWNER(l, struct ek_stream_conn, link);
        bool is_full =
            v->is_ready && !ek_h2_can_open(v->h2) && !ek_h2_is_leaving(v->h2);
        if (is_full && ek_h2_streams(v->h2) < limit)
            limit = ek_h2_streams(v->h2);
    }
    return limit > 1 ? limit : 1;
}

/* One with room for a stream, the one used last first; or a new one: a backend's limit
 * of streams is no reason to wait. One whose SETTINGS have not come gets no more than
 * the others of its backend took: what is over the limit would be refused, by some with
 * a code that does not say so. */
static int find_conn(struct ek_stream_conn **c, struct ek_streams *s, int32_t upstream)
{
    struct ek_link *list = &s->backs[upstream];
    uint32_t id = ek_router_upstream(s->reactor->router, upstream)->connection_id;
    for (struct ek_link *l = list->prev; l != list; l = l->prev) {
        struct ek_stream_conn *v = EK_LINK_OWNER(l, struct ek_stream_conn, link);
        if (v->connection_id == id && ek_h2_can_open(v->h2) &&
            (v->is_ready || ek_h2_streams(v->h2) < limit_of(list))) {
            *c = v;
            return 0;
        }
    }
    return connect_to(c, s, upstream);
}

int ek_stream_open(struct ek_half **half, struct ek_streams *s, int32_t upstream,
                   bool *is_connected)
{
    struct ek_stream_conn *c;
    int rc = find_conn(&c, s, upstream);
    if (rc)
        return rc;
    struct ek_stream_half *h = ek_stream_half_new(c, NULL);
    if (!h)
        return EK_ENOMEM;
    *is_connected = c->is_ready;
    *half = &h->half;
    return 0;
}

int ek_stream_move(struct ek_stream_half *h)
{
    struct ek_stream_conn *c;
    int rc = find_conn(&c, h->conn->streams, h->conn->upstream);
    if (rc)
        return rc;
    h->was_moved = true;
    ek_link_remove(&h->of_conn);
    join(h, c);
    return 0;
}

/* Life -------------------------------------------------------------------------- */

static struct ek_h2_options options_of(const struct ek_route_config *c, bool is_front)
{
    struct ek_h2_options o;
    ek_h2_options_default(&o);
    o.handshake_timeout_us = is_front ? c->head_timeout_us : c->connect_timeout_us;
    o.head_timeout_us = o.handshake_timeout_us;
    o.idle_timeout_us = c->idle_timeout_us;
    o.stall_timeout_us = stall_us;
    o.ping_interval_us = is_front ? c->http2_ping_us : c->backend_http2_ping_us;
    o.ping_timeout_us = c->ping_timeout_us;
    o.drain_us = EK_ROUTE_FRESH_US;
    return o;
}

void ek_streams_set(struct ek_streams *s)
{
    const struct ek_route_config *c = ek_router_config(s->reactor->router);
    struct ek_h2_options front = options_of(c, true), back = options_of(c, false);
    ek_h2_context_set(s->front, &front);
    ek_h2_context_set(s->back, &back);
}

int ek_streams_new(struct ek_streams **out, struct ek_reactor *w)
{
    const struct ek_route_config *c = ek_router_config(w->router);
    struct ek_h2_options front = options_of(c, true), back = options_of(c, false);
    struct ek_streams *s = ek_calloc(1, sizeof *s);
    if (!s)
        return EK_ENOMEM;
    s->reactor = w;
    ek_link_init(&s->fronts);
    s->backs = ek_calloc(w->router->n_upstreams, sizeof *s->backs);
    for (size_t i = 0; s->backs && i < w->router->n_upstreams; i++)
        ek_link_init(&s->backs[i]);
    int rc = s->backs ? ek_h2_context_new(&s->front, w->loop, &ek_stream_front_handler,
                                          &front)
                      : EK_ENOMEM;
    if (!rc)
        rc = ek_h2_context_new(&s->back, w->loop, &ek_stream_back_handler, &back);
    if (rc) {
        ek_streams_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void ek_streams_free(struct ek_streams *s)
{
    if (!s)
        return;
    ek_h2_context_free(s->front);
    ek_h2_context_free(s->back);
    ek_free(s->backs);
    ek_free(s);
}

void ek_streams_drain(struct ek_streams *s)
{
    for (struct ek_link *l = s->fronts.next; l != &s->fronts; l = l->next)
        ek_h2_drain(EK_LINK_OWNER(l, struct ek_stream_conn, link)->h2);
}

/* What waits for its SETTINGS goes to the backend as it is reached now. */
static void let_go(struct ek_stream_conn *c)
{
    for (struct ek_link *l = c->halves.next; l != &c->halves; l = l->next)
        EK_LINK_OWNER(l, struct ek_stream_half, of_conn)->half.is_ours = !c->is_ready;
    ek_h2_drain(c->h2);
}

void ek_streams_drop_stale(struct ek_streams *s)
{
    const struct ek_router *r = s->reactor->router;
    for (size_t i = 0; i < r->n_upstreams; i++) {
        const struct ek_upstream *u = ek_router_upstream(r, (int32_t)i);
        struct ek_link *list = &s->backs[i];
        for (struct ek_link *l = list->next; l != list; l = l->next) {
            struct ek_stream_conn *c = EK_LINK_OWNER(l, struct ek_stream_conn, link);
            if (!ek_h2_is_leaving(c->h2) && !ek_upstream_keeps(u, c->connection_id))
                let_go(c);
        }
    }
}

const struct ek_h2_counts *ek_streams_counts(const struct ek_streams *s,
                                             bool of_clients)
{
    return ek_h2_context_counts(of_clients ? s->front : s->back);
}
