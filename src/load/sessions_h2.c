/* sessions_h2.c - streams of HTTP/2 connections that are shared: gRPC calls that echo,
 * and plain requests. */
#include "load/sessions_int.h"

#include <stdio.h>
#include <string.h>

static bool is_grpc(const struct ek_slot *s)
{
    return s->run->o->protocol == EK_SESSIONS_GRPC;
}

static void close_up(struct ek_slot *s)
{
    if (s->stream)
        ek_h2_reset(s->stream, EK_H2_CANCEL);
    s->stream = NULL;
    ek_grpc_reader_release(&s->messages);
}

static void fail(struct ek_slot *s, const char *why)
{
    close_up(s);
    ek_slot_ended(s, why);
}

/* Sending ------------------------------------------------------------------ */

static int say(struct ek_slot *s, uint8_t *payload, size_t n)
{
    uint8_t *p = payload - EK_GRPC_PREFIX;
    if (s->is_full)
        return EK_EAGAIN;
    p[0] = 0;
    for (int i = 0; i < 4; i++)
        p[1 + i] = (uint8_t)(n >> (24 - 8 * i));
    int rc = ek_h2_send(s->stream, (const char *)p, n + EK_GRPC_PREFIX);
    s->is_full = rc == EK_EAGAIN;
    return s->is_full ? 0 : rc;
}

static void end(struct ek_slot *s)
{
    if (!s->stream) {
        ek_slot_ended(s, NULL); /* a request ended with its answer */
        return;
    }
    s->state = EK_SLOT_ENDING;
    int rc = ek_h2_send_end(s->stream);
    if (rc && rc != EK_ECLOSED)
        fail(s, ek_status_text(rc));
}

/* Receiving ---------------------------------------------------------------- */

static void on_head(struct ek_h2_stream *stream, const struct ek_head *h, bool is_last)
{
    struct ek_slot *s = ek_h2_user_of(stream);
    s->status = h->status;
    if (is_last)
        s->grpc_status = ek_grpc_status_in(h->fields, h->n_fields);
}

static void on_data(struct ek_h2_stream *stream, const char *p, size_t n)
{
    struct ek_slot *s = ek_h2_user_of(stream);
    ek_h2_consume(stream, n);
    if (!is_grpc(s))
        return;
    int rc = ek_grpc_reader_add(&s->messages, p, n);
    while (!rc) {
        struct ek_text message;
        rc = ek_grpc_reader_next(&s->messages, &message);
        if (!rc)
            rc = ek_slot_heard(s, (const uint8_t *)message.p, message.n);
    }
    if (rc != EK_EAGAIN)
        fail(s, rc == EK_EFORMAT ? "what came back was not what was sent"
                                 : ek_status_text(rc));
    else if (s->state == EK_SLOT_OPENING && s->n_heard > 0)
        ek_slot_opened(s);
}

static void on_end(struct ek_h2_stream *stream, const struct ek_field *trailers,
                   size_t n)
{
    struct ek_slot *s = ek_h2_user_of(stream);
    if (n > 0)
        s->grpc_status = ek_grpc_status_in(trailers, n);
}

static void on_drained(struct ek_h2_stream *stream)
{
    struct ek_slot *s = ek_h2_user_of(stream);
    s->is_full = false;
}

/* Why the stream's end is not as it should be; NULL: it is. */
static const char *judge_end(const struct ek_slot *s, char why[96],
                             const struct ek_h2_end *e)
{
    if (e->is_lost)
        return "the connection broke";
    if (e->is_refused)
        return "the stream was refused";
    if (s->status && s->status != 200)
        snprintf(why, 96, "answered with status %d", s->status);
    else if (is_grpc(s) && s->grpc_status > 0)
        snprintf(why, 96, "ended with grpc-status %d", s->grpc_status);
    else if (e->code != EK_H2_NO_ERROR)
        snprintf(why, 96, "reset with code %u", e->code);
    else if (is_grpc(s) && (s->grpc_status < 0 || s->state != EK_SLOT_ENDING))
        snprintf(why, 96, "the stream was ended");
    else if (!s->status)
        snprintf(why, 96, "the stream ended without an answer");
    else
        return NULL;
    return why;
}

static void on_stream_closed(struct ek_h2_stream *stream, const struct ek_h2_end *e)
{
    struct ek_slot *s = ek_h2_user_of(stream);
    char text[96];
    const char *why = judge_end(s, text, e);
    s->stream = NULL;
    ek_grpc_reader_release(&s->messages);
    if (!why && s->state == EK_SLOT_OPENING)
        ek_slot_opened(s); /* and ended: a request is CHURN's */
    else
        ek_slot_ended(s, why);
}

/* Opening ------------------------------------------------------------------ */

static int connect_lane(struct ek_lane *lane)
{
    struct ek_sessions *run = lane->run;
    struct ek_h2_start start = {.user = lane};
    int rc = ek_address_connect(&start.fd, &run->address, false);
    if (rc)
        return rc;
    ek_sock_send_at_once(start.fd);
    if (run->tls && ek_tls_connect_new(&start.tls, run->tls, start.fd, run->host)) {
        struct ek_sock sock = {.fd = start.fd};
        ek_sock_close(&sock, false);
        return EK_ENOMEM;
    }
    return ek_h2_new(&lane->h2, run->h2, &start);
}

static int start(struct ek_slot *s)
{
    static const struct ek_field grpc_fields[] = {
        {{"content-type", 12}, {"application/grpc", 16}},
        {{"te", 2}, {"trailers", 8}},
    };
    struct ek_sessions *run = s->run;
    struct ek_lane *lane = &run->lanes[s->index % run->o->n_connections];
    int rc = lane->h2 ? 0 : connect_lane(lane);
    if (rc)
        return rc;
    if (!ek_h2_can_open(lane->h2))
        return EK_EBUSY;
    struct ek_head h = {
        .method = is_grpc(s) ? ek_text_of("POST", 4) : ek_text_of("GET", 3),
        .scheme = run->tls ? ek_text_of("https", 5) : ek_text_of("http", 4),
        .authority = ek_text_of(run->authority, strlen(run->authority)),
        .path = ek_text_of(run->o->path, strlen(run->o->path)),
        .body_bytes = -1};
    if (is_grpc(s)) {
        h.fields = grpc_fields;
        h.n_fields = 2;
    }
    s->status = 0;
    s->grpc_status = -1;
    s->is_full = false;
    rc = ek_h2_open(&s->stream, lane->h2, &h, !is_grpc(s), s);
    if (rc || !is_grpc(s))
        return rc;
    ek_grpc_reader_init(&s->messages, EK_SESSIONS_FRAME_MAX);
    rc = ek_slot_say(s, ek_clock_us());
    if (rc)
        close_up(s);
    return rc;
}

static void on_closed(struct ek_h2 *c, const char *why)
{
    struct ek_lane *lane = ek_h2_get_user(c);
    (void)why; /* its streams were told */
    lane->h2 = NULL;
}

int ek_lanes_new(struct ek_sessions *run)
{
    static const struct ek_h2_handler handler = {.on_head = on_head,
                                                 .on_data = on_data,
                                                 .on_end = on_end,
                                                 .on_drained = on_drained,
                                                 .on_stream_closed = on_stream_closed,
                                                 .on_closed = on_closed};
    struct ek_h2_options o;
    ek_h2_options_default(&o);
    o.idle_timeout_us = 0;
    o.handshake_timeout_us = run->o->timeout_us;
    size_t n = (size_t)run->o->n_connections;
    run->lanes = ek_calloc(n, sizeof *run->lanes);
    if (!run->lanes)
        return EK_ENOMEM;
    for (size_t i = 0; i < n; i++)
        run->lanes[i].run = run;
    return ek_h2_context_new(&run->h2, run->loop, &handler, &o);
}

void ek_lanes_free(struct ek_sessions *run)
{
    ek_h2_context_free(run->h2);
    ek_free(run->lanes);
}

const struct ek_talk ek_talk_h2 = {
    .start = start, .say = say, .end = end, .drop = close_up};
