/* h2_recv.c - what nghttp2 calls when frames arrived or left, and what is held against a
 * peer: resets, and frames that cost us and mean nothing.
 */
#include "net/h2_int.h"

#include <string.h>

static struct ek_h2_stream *stream_of(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

/* After ek_h2_fail the rest of the input is not looked at. */
static int verdict(const struct ek_h2 *c)
{
    return c->state == EK_H2_OPEN ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static void count_frame(struct ek_h2 *c)
{
    struct ek_h2_context *x = c->context;
    if (!ek_h2_allow(&c->frames, ek_loop_now_us(x->loop), x->o.frame_burst,
                     x->o.frame_rate))
        ek_h2_fail(c, EK_H2_ENHANCE_YOUR_CALM, "frames that mean nothing, too many",
                   &x->counts.frame_floods);
}

static void count_reset(struct ek_h2 *c)
{
    struct ek_h2_context *x = c->context;
    if (c->is_server && !ek_h2_allow(&c->resets, ek_loop_now_us(x->loop),
                                     x->o.reset_burst, x->o.reset_rate))
        ek_h2_fail(c, EK_H2_ENHANCE_YOUR_CALM, "streams reset, too many",
                   &x->counts.reset_floods);
}

/* Heads ------------------------------------------------------------------------- */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame,
                            void *user_data)
{
    struct ek_h2 *c = user_data;
    ek_h2_head_begin(c);
    c->head_us = ek_loop_now_us(c->context->loop);
    c->head_id = frame->hd.stream_id;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct ek_h2_stream *s = ek_h2_stream_new(c);
    if (!s)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    s->id = frame->hd.stream_id;
    ek_counter_add(&c->context->counts.streams, 1);
    nghttp2_session_set_stream_user_data(session, s->id, s);
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame,
                     const uint8_t *name, size_t name_n, const uint8_t *value,
                     size_t value_n, uint8_t flags, void *user_data)
{
    union {
        const uint8_t *p;
        uint8_t *base;
    } n = {name}, v = {value};
    (void)session;
    (void)frame;
    (void)flags;
    int rc = ek_h2_head_add(user_data, (nghttp2_vec){n.base, name_n},
                            (nghttp2_vec){v.base, value_n});
    return rc ? NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE : 0;
}

/* An answer of our own, before the handler knows of the stream. */
static void answer_self(struct ek_h2_stream *s, int status)
{
    struct ek_head h = {.status = status, .body_bytes = -1};
    s->is_finished = true;
    s->finish_code = EK_H2_NO_ERROR;
    if (ek_h2_answer(s, &h, true))
        ek_h2_reset(s, EK_H2_INTERNAL_ERROR);
}

static void refuse_head(struct ek_h2_stream *s, int status, uint32_t code)
{
    struct ek_h2 *c = s->conn;
    count_reset(c);
    if (c->is_server && status > 0) {
        answer_self(s, status);
        return;
    }
    /* The handler's stream ends as if the peer had reset it. */
    s->was_reset = true;
    nghttp2_submit_rst_stream(c->session, NGHTTP2_FLAG_NONE, s->id, code);
    ek_h2_soon(c);
}

static void on_final_head(struct ek_h2_stream *s, const struct ek_head *h, bool is_last)
{
    struct ek_h2 *c = s->conn;
    s->has_head = h->status == 0 || h->status >= 200 || h->status == 101;
    if (c->is_server) {
        s->is_known = true;
        s->is_websocket = h->is_websocket;
    }
    if (s->is_known)
        c->context->handler.on_head(s, h, is_last);
}

/* Of three digits nghttp2 takes any; 101 is not of HTTP/2 (RFC 9113 8.6). */
static bool is_status(int status)
{
    return status >= 100 && status <= 599 && status != 101;
}

static void on_head_frame(struct ek_h2_stream *s, const nghttp2_frame *frame)
{
    struct ek_h2 *c = s->conn;
    bool is_last = frame->hd.flags & NGHTTP2_FLAG_END_STREAM, is_unsupported = false;
    struct ek_head h;
    s->has_ended = is_last;
    if (c->is_head_too_large) {
        ek_counter_add(&c->context->counts.oversized_heads, 1);
        refuse_head(s, s->has_head ? 0 : 431, EK_H2_ENHANCE_YOUR_CALM);
        return;
    }
    if (s->has_head) {
        size_t n = ek_h2_trailers_read(c);
        if (s->is_known)
            c->context->handler.on_end(s, c->context->fields, n);
        return;
    }
    bool is_sound = ek_h2_head_read(c, &h, &is_unsupported) &&
                    (c->is_server || is_status(h.status));
    if (!is_sound) {
        ek_counter_add(&c->context->counts.malformed, 1);
        refuse_head(s, 400, EK_H2_PROTOCOL_ERROR);
        return;
    }
    if (is_unsupported) {
        s->has_head = true;
        answer_self(s, 501);
        return;
    }
    if (!c->is_server && s->is_websocket && h.status == 200) {
        h.status = 101; /* what RFC 6455 calls it */
        h.is_websocket = true;
    }
    on_final_head(s, &h, is_last);
}

/* Frames ------------------------------------------------------------------------ */

static void on_data_frame(struct ek_h2 *c, const nghttp2_frame *frame)
{
    struct ek_h2_stream *s = stream_of(c->session, frame->hd.stream_id);
    if (!(frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) {
        if (frame->hd.length <= frame->data.padlen)
            count_frame(c);
        return;
    }
    if (!s)
        return;
    s->has_ended = true;
    if (s->is_known)
        c->context->handler.on_end(s, NULL, 0);
}

static void on_settings(struct ek_h2 *c)
{
    c->is_ready = true;
    count_frame(c);
    if (c->context->handler.on_change)
        c->context->handler.on_change(c);
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame,
                         void *user_data)
{
    struct ek_h2 *c = user_data;
    struct ek_h2_stream *s = NULL;
    c->head_us = 0;
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        s = stream_of(session, frame->hd.stream_id);
        if (s && !s->is_reset_ours)
            on_head_frame(s, frame);
        ek_h2_head_end(c);
        break;
    case NGHTTP2_DATA:
        on_data_frame(c, frame);
        break;
    case NGHTTP2_RST_STREAM:
        s = stream_of(session, frame->hd.stream_id);
        if (s)
            s->was_reset = true;
        count_reset(c);
        break;
    case NGHTTP2_SETTINGS:
        if (!(frame->hd.flags & NGHTTP2_FLAG_ACK))
            on_settings(c);
        break;
    case NGHTTP2_PING:
        count_frame(c);
        break;
    case NGHTTP2_GOAWAY:
        c->is_goaway = true;
        if (c->context->handler.on_change)
            c->context->handler.on_change(c);
        break;
    default:
        break;
    }
    return verdict(c);
}

/* nghttp2, which keeps no closed streams here, would skip heads for them. A client that
 * cannot know of a reset of ours breaks HTTP/2 by them (RFC 9113 5.1, 5.1.1); those of
 * others are counted, for each has HPACK at work. (DATA: feed of h2_io.c.) */
static void check_closed(struct ek_h2 *c, const nghttp2_frame_hd *hd)
{
    struct ek_counter *n = &c->context->counts.protocol_errors;
    uint32_t id = (uint32_t)hd->stream_id;
    if (!c->is_server || id % 2 == 0 || hd->type != NGHTTP2_HEADERS)
        return;
    if (id >= c->next_id) {
        if (id > c->next_id) {
            c->skipped_from = c->next_id;
            c->skipped_to = id;
        }
        c->next_id = id + 2;
        return;
    }
    if (nghttp2_session_find_stream(c->session, hd->stream_id))
        return;
    if (id >= c->skipped_from && id < c->skipped_to)
        ek_h2_fail(c, EK_H2_PROTOCOL_ERROR, "a stream id that was passed over", n);
    else if (!c->has_reset && !c->is_goaway)
        ek_h2_fail(c, EK_H2_STREAM_CLOSED, "a head for a stream that is closed", n);
    else
        count_frame(c);
}

/* Priorities, which we said we do not use, nghttp2 skips without a word but this; of
 * types that it does not know there is none. */
static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd,
                          void *user_data)
{
    struct ek_h2 *c = user_data;
    (void)session;
    if (hd->type != NGHTTP2_CONTINUATION)
        c->head_us = 0;
    check_closed(c, hd);
    if (hd->type == NGHTTP2_PRIORITY)
        count_frame(c);
    if (hd->type == NGHTTP2_DATA)
        c->n_skipped--; /* not this one: feed */
    return verdict(c);
}

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t id,
                         const uint8_t *p, size_t n, void *user_data)
{
    struct ek_h2 *c = user_data;
    struct ek_h2_stream *s = stream_of(session, id);
    (void)flags;
    if (nghttp2_session_consume_connection(session, n) == NGHTTP2_ERR_NOMEM)
        return NGHTTP2_ERR_NOMEM;
    if (s && s->is_known)
        c->context->handler.on_data(s, (const char *)p, n);
    return verdict(c);
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code,
                           void *user_data)
{
    struct ek_h2 *c = user_data;
    struct ek_h2_stream *s = stream_of(session, id);
    if (c->head_id == id)
        c->head_us = 0; /* nghttp2 found it malformed, and tells of no such frame */
    if (!s)
        return 0;
    bool is_whole = s->has_ended && s->is_ended && code == EK_H2_NO_ERROR;
    struct ek_h2_end e = {
        .code = code,
        .was_reset = s->was_reset || !is_whole,
        .is_refused = !c->is_server && (s->is_refused || code == EK_H2_REFUSED_STREAM)};
    nghttp2_session_set_stream_user_data(session, id, NULL);
    ek_h2_stream_over(s, &e);
    if (!c->is_server && c->context->handler.on_change && c->state == EK_H2_OPEN)
        c->context->handler.on_change(c);
    return 0;
}

/* Of the peer's frames that break a rule of its stream alone nghttp2 resets the stream;
 * that reset is counted where it leaves. */
static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame,
                         void *user_data)
{
    struct ek_h2 *c = user_data;
    if (frame->hd.type == NGHTTP2_GOAWAY) {
        if (frame->goaway.error_code != NGHTTP2_NO_ERROR && c->state == EK_H2_OPEN)
            ek_h2_fail(c, frame->goaway.error_code, "the peer broke HTTP/2",
                       &c->context->counts.protocol_errors);
        c->is_goaway = true;
        return 0;
    }
    if (frame->hd.type != NGHTTP2_RST_STREAM) {
        ek_h2_after_sent(c, frame);
        return 0;
    }
    const struct ek_h2_stream *s = stream_of(session, frame->hd.stream_id);
    c->has_reset = true;
    if (s && s->is_reset_ours)
        return 0;
    if (frame->rst_stream.error_code == NGHTTP2_REFUSED_STREAM) {
        ek_counter_add(&c->context->counts.refused_streams, 1);
        count_frame(c);
    } else {
        ek_counter_add(&c->context->counts.malformed, 1);
        count_reset(c);
    }
    return 0;
}

/* A request that never left: the peer said GOAWAY, or its caller reset it before. */
static int on_frame_not_send(nghttp2_session *session, const nghttp2_frame *frame,
                             int error, void *user_data)
{
    struct ek_h2 *c = user_data;
    (void)error;
    if (frame->hd.type != NGHTTP2_HEADERS || c->is_server)
        return 0;
    for (struct ek_link *l = c->streams.next; l != &c->streams; l = l->next) {
        struct ek_h2_stream *s = (struct ek_h2_stream *)l;
        if (s->id != frame->hd.stream_id || s->is_open)
            continue;
        s->is_refused = true;
        if (!nghttp2_session_find_stream(session, s->id)) {
            struct ek_h2_end e = {
                .code = EK_H2_REFUSED_STREAM, .was_reset = true, .is_refused = true};
            ek_h2_stream_over(s, &e);
        }
        break;
    }
    return 0;
}

void ek_h2_set_callbacks(nghttp2_session_callbacks *cb)
{
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_begin_frame_callback(cb, on_begin_frame);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame_recv);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data_chunk);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_frame_send);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(cb, on_frame_not_send);
    nghttp2_session_callbacks_set_send_data_callback(cb, ek_h2_send_data);
}
