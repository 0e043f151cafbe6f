/* echo_h2.c - the streams of the echo backend. The bytes of a gRPC stream go back as
 * they came: their prefixes are right for both ways. */
#include "base/mem.h"
#include "load/echo_int.h"
#include "net/grpc.h"

#include <string.h>

/* The user of a stream that echoes: bytes that are not consumed yet, because what they
 * made is kept: the peer waits. Other streams have none. */
struct echo_stream {
    size_t n_held;
};

static void give_up(struct ek_h2_stream *s, uint32_t code)
{
    ek_free(ek_h2_user_of(s));
    ek_h2_reset(s, code);
}

static void answer_request(struct ek_h2_stream *s)
{
    static const char body[EK_ECHO_BODY] = {0};
    static const struct ek_field length = {{"content-length", 14}, {"128", 3}};
    const struct ek_head h = {
        .status = 200, .fields = &length, .n_fields = 1, .body_bytes = EK_ECHO_BODY};
    int rc = ek_h2_answer(s, &h, false);
    if (!rc)
        rc = ek_h2_send(s, body, sizeof body);
    if (!rc || rc == EK_EAGAIN)
        rc = ek_h2_send_end(s);
    if (rc && rc != EK_ECLOSED)
        ek_h2_reset(s, EK_H2_INTERNAL_ERROR);
}

static void on_head(struct ek_h2_stream *s, const struct ek_head *h, bool is_last)
{
    if (!ek_text_equal(h->method, ek_text_of("POST", 4))) {
        answer_request(s);
        return;
    }
    struct echo_stream *echo = ek_calloc(1, sizeof *echo);
    ek_h2_set_user_of(s, echo);
    int rc = echo ? ek_grpc_begin(s) : EK_ENOMEM;
    if (!rc && is_last)
        rc = ek_grpc_end(s, EK_GRPC_OK, NULL);
    if (rc && rc != EK_ECLOSED)
        give_up(s, EK_H2_INTERNAL_ERROR);
}

static void on_data(struct ek_h2_stream *s, const char *p, size_t n)
{
    struct echo_stream *echo = ek_h2_user_of(s);
    int rc = echo ? ek_h2_send(s, p, n) : 0;
    if (rc == EK_EAGAIN)
        echo->n_held += n;
    else
        ek_h2_consume(s, n);
    if (rc && rc != EK_EAGAIN && rc != EK_ECLOSED)
        give_up(s, EK_H2_INTERNAL_ERROR);
}

static void on_end(struct ek_h2_stream *s, const struct ek_field *trailers, size_t n)
{
    (void)trailers;
    (void)n;
    if (!ek_h2_user_of(s))
        return;
    int rc = ek_grpc_end(s, EK_GRPC_OK, NULL);
    if (rc && rc != EK_ECLOSED)
        give_up(s, EK_H2_INTERNAL_ERROR);
}

static void on_drained(struct ek_h2_stream *s)
{
    struct echo_stream *echo = ek_h2_user_of(s);
    if (!echo)
        return;
    ek_h2_consume(s, echo->n_held);
    echo->n_held = 0;
}

static void on_stream_closed(struct ek_h2_stream *s, const struct ek_h2_end *end)
{
    (void)end;
    ek_free(ek_h2_user_of(s));
}

static void on_closed(struct ek_h2 *c, const char *why)
{
    (void)c;
    (void)why;
}

int ek_echo_h2_new(struct ek_echo *e)
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
    o.stall_timeout_us = 0;
    o.reset_burst = o.frame_burst = 1000000; /* proxies are measured, not judged */
    o.reset_rate = o.frame_rate = 1000000;
    return ek_h2_context_new(&e->h2, e->loop, &handler, &o);
}
