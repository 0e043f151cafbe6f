/* stream_out.c - what goes out on streams: the ops of a half. */
#include "route/relay.h"
#include "route/stream_int.h"

#include <stdio.h>
#include <string.h>

static struct ek_stream_half *half_of(struct ek_half *half)
{
    return (struct ek_stream_half *)(void *)half; /* its first member */
}

static struct ek_text text(const char *s)
{
    return ek_text_of(s, strlen(s));
}

int ek_stream_begin(struct ek_stream_half *h, const struct ek_head *head, bool is_last)
{
    if (head->is_websocket && !h->conn->is_ready)
        return 0; /* on_change comes back to it */
    int rc = ek_h2_open(&h->stream, h->conn->h2, head, is_last, h);
    h->has_ended = is_last;
    return rc == EK_EBUSY ? EK_EIO : rc;
}

static int op_head(struct ek_half *half, const struct ek_head *head, bool is_last)
{
    struct ek_stream_half *h = half_of(half);
    if (!h->is_front)
        return ek_stream_begin(h, head, is_last);
    h->has_begun |= head->status >= 200 || head->is_websocket;
    h->has_ended = is_last;
    return ek_h2_answer(h->stream, head, is_last);
}

static int op_body(struct ek_half *half, const char *p, size_t n)
{
    return ek_h2_send(half_of(half)->stream, p, n);
}

static int op_trailers(struct ek_half *half, const struct ek_field *fields, size_t n)
{
    struct ek_stream_half *h = half_of(half);
    h->has_ended = true;
    return ek_h2_send_trailers(h->stream, fields, n);
}

static int op_end(struct ek_half *half)
{
    return op_trailers(half, NULL, 0);
}

/* The backend is there: what came before it. */
static void pass_early(struct ek_stream_half *h)
{
    struct ek_buf early = h->early;
    size_t n = h->n_held;
    ek_buf_init(&h->early, early.max);
    h->is_early = false;
    if (early.len > 0) {
        h->n_held = 0;
        int rc = ek_relay_body(&h->half, early.data, early.len);
        if (h->stream && rc == EK_EAGAIN)
            h->n_held = n;
        else if (h->stream)
            ek_h2_consume(h->stream, n);
    }
    ek_buf_release(&early);
    if (h->half.session && h->early_ended)
        ek_relay_trailers(&h->half, h->early_trailers, h->n_early_trailers);
}

static void op_resume(struct ek_half *half)
{
    struct ek_stream_half *h = half_of(half);
    if (h->is_early) {
        pass_early(h);
        return;
    }
    size_t n = h->n_held;
    h->n_held = 0;
    if (h->stream && n > 0)
        ek_h2_consume(h->stream, n);
}

/* gRPC's clients want the refusal in trailers, as one head (Trailers-Only). */
static void refuse_grpc(struct ek_h2_stream *stream, const struct ek_refusal *r)
{
    char after[24];
    /* Constant sentences of plain ASCII: nothing in them needs percent-encoding. */
    struct ek_field fields[4] = {
        {text("content-type"), text("application/grpc")},
        {text("grpc-status"), text(r->status == 400 || r->status == 413 ? "13" : "14")},
        {text("grpc-message"), text(r->why)},
    };
    struct ek_head head = {
        .status = 200, .fields = fields, .n_fields = 3, .body_bytes = -1};
    snprintf(after, sizeof after, "%lld", (long long)r->retry_after_ms);
    if (r->retry_after_ms > 0)
        fields[head.n_fields++] =
            (struct ek_field){text("grpc-retry-pushback-ms"), text(after)};
    int rc = ek_h2_answer(stream, &head, true);
    (void)rc; /* the stream ends in any case */
}

static void refuse_http(struct ek_h2_stream *stream, const struct ek_refusal *r)
{
    char after[24];
    struct ek_field fields[2] = {{text("content-type"), text("text/plain")},
                                 {text("retry-after"), {after, 0}}};
    struct ek_head head = {.status = r->status,
                           .fields = fields,
                           .n_fields = r->retry_after_ms > 0 ? 2 : 1,
                           .body_bytes = -1};
    snprintf(after, sizeof after, "%lld", (long long)(r->retry_after_ms + 999) / 1000);
    fields[1].value.n = strlen(after);
    int rc = ek_h2_answer(stream, &head, false);
    if (!rc)
        rc = ek_h2_send(stream, r->why, strlen(r->why));
    if (!rc || rc == EK_EAGAIN)
        rc = ek_h2_send_end(stream);
    (void)rc; /* the stream ends in any case */
}

/* Its stream is over as far as the session is concerned. */
static void leave(struct ek_stream_half *h, bool is_reset, uint32_t code)
{
    struct ek_h2_stream *stream = h->stream;
    h->stream = NULL;
    if (stream && is_reset)
        ek_h2_reset(stream, code);
    else if (stream)
        ek_h2_finish(stream, code);
    ek_stream_half_let_go(h);
}

static void op_refuse(struct ek_half *half, const struct ek_refusal *r)
{
    struct ek_stream_half *h = half_of(half);
    half->session = NULL;
    if (h->is_grpc)
        refuse_grpc(h->stream, r);
    else
        refuse_http(h->stream, r);
    leave(h, false, EK_H2_NO_ERROR);
}

static void op_reset(struct ek_half *half, uint32_t code)
{
    struct ek_stream_half *h = half_of(half);
    struct ek_field fields[2] = {
        {text("grpc-status"), text("14")},
        {text("grpc-message"), text("the connection to the backend broke")}};
    half->session = NULL;
    /* No code of RST_STREAM means UNAVAILABLE and is not taken for "not looked at". */
    bool says_why = h->is_front && h->is_grpc && h->has_begun && !h->has_ended &&
                    code == EK_RESET_CONNECT && h->stream;
    if (says_why && ek_h2_send_trailers(h->stream, fields, 2) == 0)
        leave(h, false, EK_H2_NO_ERROR);
    else
        leave(h, true, code);
}

static void op_detach(struct ek_half *half)
{
    struct ek_stream_half *h = half_of(half);
    half->session = NULL;
    leave(h, false, h->is_front ? EK_H2_NO_ERROR : EK_H2_CANCEL);
}

const struct ek_half_ops ek_stream_ops = {
    .head = op_head,
    .body = op_body,
    .trailers = op_trailers,
    .end = op_end,
    .resume = op_resume,
    .refuse = op_refuse,
    .reset = op_reset,
    .detach = op_detach,
};
