/* stream_in.c - what comes on streams: requests of clients, answers of backends. */
#include "base/log.h"
#include "base/mem.h"
#include "route/relay.h"
#include "route/stream_int.h"

#include <string.h>

static struct ek_stream_half *half_of(struct ek_h2_stream *s)
{
    return ek_h2_user_of(s);
}

/* Requests ---------------------------------------------------------------------- */

static bool is_grpc(const struct ek_head *h)
{
    const struct ek_field *type = ek_head_field(h, "content-type");
    return type && type->value.n >= 16 &&
           ek_text_is(ek_text_of(type->value.p, 16), "application/grpc");
}

static void on_request(struct ek_h2_stream *s, const struct ek_head *head, bool is_last)
{
    struct ek_stream_conn *c = ek_h2_get_user(ek_h2_connection(s));
    struct ek_stream_half *h = ek_stream_half_new(c, s);
    struct ek_head request = *head;
    if (!h) {
        ek_h2_reset(s, EK_H2_REFUSED_STREAM);
        return;
    }
    ek_h2_set_user_of(s, h);
    h->is_grpc = is_grpc(head);
    h->is_early = !is_last;
    request.scheme = c->is_tls ? ek_text_of("https", 5) : ek_text_of("http", 4);
    ek_relay_begin(c->streams->reactor, &h->half, &request, is_last,
                   ek_text_of(c->client, strlen(c->client)));
}

static void on_answer(struct ek_h2_stream *s, const struct ek_head *head, bool is_last)
{
    struct ek_stream_half *h = half_of(s);
    ek_relay_head(&h->half, head, is_last);
}

/* Bodies and ends --------------------------------------------------------------- */

static void on_data(struct ek_h2_stream *s, const char *p, size_t n)
{
    struct ek_stream_half *h = half_of(s);
    if (h->is_early) {
        h->n_held += n;
        if (ek_buf_add(&h->early, p, n))
            ek_h2_close(h->conn->h2, EK_H2_INTERNAL_ERROR, "out of memory");
        return;
    }
    int rc = ek_relay_body(&h->half, p, n);
    if (!h->stream)
        return;
    if (rc == EK_EAGAIN)
        h->n_held += n;
    else
        ek_h2_consume(s, n);
}

static int keep_trailers(struct ek_stream_half *h, const struct ek_field *f, size_t n)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += f[i].name.n + f[i].value.n;
    struct ek_field *all = ek_calloc(1, n * sizeof *all + bytes);
    if (!all)
        return EK_ENOMEM;
    char *at = (char *)(all + n);
    for (size_t i = 0; i < n; i++) {
        memcpy(at, f[i].name.p, f[i].name.n);
        all[i].name = ek_text_of(at, f[i].name.n);
        at += f[i].name.n;
        if (f[i].value.n > 0)
            memcpy(at, f[i].value.p, f[i].value.n);
        all[i].value = ek_text_of(at, f[i].value.n);
        at += f[i].value.n;
    }
    h->early_trailers = all;
    h->n_early_trailers = n;
    return 0;
}

static void on_end(struct ek_h2_stream *s, const struct ek_field *f, size_t n)
{
    struct ek_stream_half *h = half_of(s);
    if (h->is_early) {
        h->early_ended = true;
        if (n > 0 && keep_trailers(h, f, n))
            ek_h2_close(h->conn->h2, EK_H2_INTERNAL_ERROR, "out of memory");
    } else if (n > 0)
        ek_relay_trailers(&h->half, f, n);
    else
        ek_relay_end(&h->half);
}

static void on_drained(struct ek_h2_stream *s)
{
    struct ek_stream_half *h = half_of(s);
    if (h->half.session)
        ek_relay_drained(&h->half);
}

static uint32_t code_of(const struct ek_stream_half *h, const struct ek_h2_end *e)
{
    if (e->is_refused || (!h->is_front && !h->conn->is_ready))
        return EK_RESET_REFUSED;
    if (e->is_lost)
        return h->is_front ? EK_RESET_CANCEL : EK_RESET_CONNECT;
    return e->was_reset ? e->code : EK_RESET_CANCEL;
}

/* A stream that a leaving connection did not look at: the same request on another
 * connection to the same backend, once, as if nothing had been. */
static bool moves(struct ek_stream_half *h, const struct ek_h2_end *e)
{
    struct ek_relay *s = h->half.session;
    if (h->is_front || !e->is_refused || h->was_moved || !h->conn->is_ready ||
        !ek_h2_is_leaving(h->conn->h2) || !s->request || s->has_body)
        return false;
    if (ek_stream_move(h) || ek_stream_begin(h, &s->request->head, s->request->is_last))
        return false;
    if (!s->is_flowing || ek_relay_say_again(s) == 0)
        return true;
    ek_h2_reset(h->stream, EK_H2_CANCEL);
    h->stream = NULL;
    return false;
}

static void on_stream_closed(struct ek_h2_stream *s, const struct ek_h2_end *e)
{
    struct ek_stream_half *h = half_of(s);
    h->stream = NULL;
    if (h->half.session && moves(h, e))
        return;
    if (h->half.session)
        ek_relay_lost(&h->half, code_of(h, e), e->why);
    ek_stream_half_let_go(h);
}

/* Connections ------------------------------------------------------------------- */

/* A backend's SETTINGS: it is there, and what waited for them goes on. */
static void on_change(struct ek_h2 *h2)
{
    struct ek_stream_conn *c = ek_h2_get_user(h2);
    struct ek_link *next;
    if (c->is_ready || !ek_h2_is_ready(h2))
        return;
    c->is_ready = true;
    ek_counter_add(&c->streams->reactor->counters.connects, 1);
    for (struct ek_link *l = c->halves.next; l != &c->halves; l = next) {
        struct ek_stream_half *h = EK_LINK_OWNER(l, struct ek_stream_half, of_conn);
        next = l->next;
        struct ek_relay *s = h->half.session;
        if (!s)
            continue;
        if (!h->stream && s->request &&
            ek_stream_begin(h, &s->request->head, s->request->is_last)) {
            ek_relay_reset(&h->half, EK_RESET_REFUSED);
            ek_stream_half_let_go(h);
            continue;
        }
        ek_relay_connected(&h->half);
    }
}

static void on_closed(struct ek_h2 *h2, const char *why)
{
    struct ek_stream_conn *c = ek_h2_get_user(h2);
    struct ek_reactor *w = c->streams->reactor;
    /* Those that never had a stream. */
    while (!ek_link_is_alone(&c->halves)) {
        struct ek_stream_half *h =
            EK_LINK_OWNER(c->halves.next, struct ek_stream_half, of_conn);
        ek_link_remove(&h->of_conn);
        if (h->half.session)
            ek_relay_reset(&h->half, EK_RESET_REFUSED);
        ek_stream_half_let_go(h);
    }
    if (why[0])
        ek_log(EK_LOG_DEBUG, "h2_closed", "side=%s why=\"%s\"",
               c->upstream < 0 ? "client" : "backend", why);
    if (c->upstream < 0) {
        ek_counter_add(&w->n_conns, -1);
        ek_counter_share(&w->router->n_connections, -1);
    }
    ek_link_remove(&c->link);
    ek_free(c);
}

const struct ek_h2_handler ek_stream_front_handler = {
    .on_head = on_request,
    .on_data = on_data,
    .on_end = on_end,
    .on_drained = on_drained,
    .on_stream_closed = on_stream_closed,
    .on_closed = on_closed,
};

const struct ek_h2_handler ek_stream_back_handler = {
    .on_head = on_answer,
    .on_data = on_data,
    .on_end = on_end,
    .on_drained = on_drained,
    .on_stream_closed = on_stream_closed,
    .on_change = on_change,
    .on_closed = on_closed,
};
