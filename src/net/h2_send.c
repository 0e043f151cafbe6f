/* h2_send.c - the sending side of streams: heads, data in bursts, trailers, end, reset.
 *
 * is_queued: nghttp2 holds a DATA item of the stream. It ends with the burst (EOF without
 * END_STREAM), unless the burst is the last and no trailers follow it.
 */
#include "base/mem.h"
#include "net/h2_int.h"

#include <assert.h>
#include <string.h>

static size_t to_send(const struct ek_h2_stream *s)
{
    return s->n_unsent - s->n_out;
}

/* Bursts ------------------------------------------------------------------------ */

static ssize_t read_burst(nghttp2_session *session, int32_t id, uint8_t *buf,
                          size_t max, uint32_t *flags, nghttp2_data_source *source,
                          void *user_data)
{
    struct ek_h2_stream *s = source->ptr;
    size_t n = to_send(s);
    (void)session;
    (void)id;
    (void)buf;
    (void)user_data;
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (n > max)
        return (ssize_t)max;
    s->is_burst_over = true;
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (!s->is_ending || s->trailers)
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    return (ssize_t)n;
}

static void forget_unsent(struct ek_h2_stream *s)
{
    if (s->unsent)
        s->conn->n_unsent--;
    ek_free(s->unsent);
    s->unsent = NULL;
    s->n_unsent = s->n_out = s->cap = 0;
}

int ek_h2_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head,
                    size_t n, nghttp2_data_source *source, void *user_data)
{
    struct ek_h2_stream *s = source->ptr;
    struct ek_h2 *c = user_data;
    struct ek_h2_context *x = c->context;
    (void)session;
    assert(frame->data.padlen == 0);
    (void)frame;
    if (n + 9 > sizeof x->out - x->n_out) {
        c->is_out_full = true;
        return NGHTTP2_ERR_WOULDBLOCK;
    }
    memcpy(x->out + x->n_out, head, 9);
    if (n > 0)
        memcpy(x->out + x->n_out + 9, s->unsent + s->n_out, n);
    x->n_out += n + 9;
    s->n_out += (uint32_t)n;
    c->progress_us = ek_loop_now_us(x->loop);
    if (s->n_out == s->n_unsent)
        forget_unsent(s);
    return 0;
}

static int submit_trailers(struct ek_h2_stream *s)
{
    struct ek_h2 *c = s->conn;
    size_t n = ek_h2_nv_fields(c->context, 0, s->trailers, s->n_trailers);
    int rv = nghttp2_submit_trailer(c->session, s->id, c->context->nv, n);
    ek_free(s->trailers);
    s->trailers = NULL;
    s->are_trailers_queued = true;
    return rv == NGHTTP2_ERR_NOMEM ? EK_ENOMEM : 0;
}

int ek_h2_queue(struct ek_h2_stream *s)
{
    nghttp2_data_provider from = {.source = {.ptr = s}, .read_callback = read_burst};
    if (s->is_queued || !s->is_open || s->is_ended || s->are_trailers_queued)
        return 0;
    if (to_send(s) == 0 && !s->is_ending)
        return 0;
    if (to_send(s) == 0 && s->trailers)
        return submit_trailers(s);
    int rv =
        nghttp2_submit_data(s->conn->session, NGHTTP2_FLAG_END_STREAM, s->id, &from);
    if (rv == NGHTTP2_ERR_NOMEM)
        return EK_ENOMEM;
    s->is_queued = rv == 0; /* else the stream is closing, and its end will be told */
    return 0;
}

static void queue_or_fail(struct ek_h2_stream *s)
{
    if (ek_h2_queue(s))
        ek_h2_fail(s->conn, EK_H2_INTERNAL_ERROR, "out of memory", NULL);
}

static void reset(struct ek_h2_stream *s, uint32_t code)
{
    struct ek_h2 *c = s->conn;
    s->is_reset_ours = true;
    if (nghttp2_submit_rst_stream(c->session, NGHTTP2_FLAG_NONE, s->id, code))
        ek_h2_fail(c, EK_H2_INTERNAL_ERROR, "out of memory", NULL);
    ek_h2_soon(c);
}

static void note_end(struct ek_h2_stream *s)
{
    s->is_ended = true;
    if (s->is_finished && !s->has_ended)
        reset(s, s->finish_code);
}

static void after_data(struct ek_h2_stream *s, uint8_t flags)
{
    if (s->is_burst_over) {
        s->is_burst_over = false;
        s->is_queued = false;
    }
    if (flags & NGHTTP2_FLAG_END_STREAM)
        note_end(s);
    if (to_send(s) == 0 && s->is_waiting) {
        s->is_waiting = false;
        if (s->is_known)
            s->conn->context->handler.on_drained(s);
    }
    queue_or_fail(s);
}

void ek_h2_after_sent(struct ek_h2 *c, const nghttp2_frame *frame)
{
    struct ek_h2_stream *s =
        nghttp2_session_get_stream_user_data(c->session, frame->hd.stream_id);
    if (!s)
        return;
    if (frame->hd.type == NGHTTP2_DATA) {
        after_data(s, frame->hd.flags);
        return;
    }
    if (frame->hd.type != NGHTTP2_HEADERS)
        return;
    s->is_open = !c->is_server || s->has_answered;
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        note_end(s);
    else
        queue_or_fail(s);
}

/* Calls ------------------------------------------------------------------------- */

int ek_h2_open(struct ek_h2_stream **s, struct ek_h2 *c, const struct ek_head *h,
               bool is_last, void *user)
{
    if (!ek_h2_can_open(c))
        return EK_EBUSY;
    if (h->is_websocket && !ek_h2_has_connect(c))
        return EK_EUNSUP;
    struct ek_h2_stream *v = ek_h2_stream_new(c);
    if (!v)
        return EK_ENOMEM;
    size_t n = ek_h2_nv_request(c->context, h);
    v->user = user;
    v->is_known = true;
    v->is_websocket = h->is_websocket;
    v->is_ending = is_last;
    v->id = nghttp2_submit_headers(
        c->session, is_last ? NGHTTP2_FLAG_END_STREAM : NGHTTP2_FLAG_NONE, -1, NULL,
        c->context->nv, n, v);
    if (v->id < 0) {
        int rc = v->id == NGHTTP2_ERR_NOMEM ? EK_ENOMEM : EK_EBUSY;
        ek_h2_stream_free(v);
        return rc;
    }
    ek_counter_add(&c->context->counts.streams, 1);
    ek_h2_soon(c);
    *s = v;
    return 0;
}

int ek_h2_answer(struct ek_h2_stream *s, const struct ek_head *h, bool is_last)
{
    struct ek_h2 *c = s->conn;
    struct ek_head said = *h;
    char status[4];
    if (s->is_ending || s->has_answered)
        return EK_ECLOSED;
    if (h->status == 101)
        said.status = 200;
    else if (s->is_websocket && h->status / 100 == 2)
        said.status = 502; /* 2xx would say that the tunnel is there */
    size_t n = ek_h2_nv_answer(c->context, &said, status);
    int rv = nghttp2_submit_headers(
        c->session, is_last ? NGHTTP2_FLAG_END_STREAM : NGHTTP2_FLAG_NONE, s->id, NULL,
        c->context->nv, n, NULL);
    if (rv)
        return rv == NGHTTP2_ERR_NOMEM ? EK_ENOMEM : EK_ECLOSED;
    s->has_answered = said.status >= 200;
    s->is_ending = is_last;
    ek_h2_soon(c);
    return 0;
}

static int keep(struct ek_h2_stream *s, const char *p, size_t n)
{
    struct ek_h2 *c = s->conn;
    size_t kept = to_send(s);
    if (n > c->context->o.max_unsent_bytes - kept)
        return EK_ELIMIT;
    if (s->n_out > 0) {
        memmove(s->unsent, s->unsent + s->n_out, kept);
        s->n_unsent = (uint32_t)kept;
        s->n_out = 0;
    }
    if (kept + n > s->cap) {
        size_t cap =
            s->cap > 0 && kept + n < 2 * (size_t)s->cap ? 2 * (size_t)s->cap : kept + n;
        char *grown = ek_realloc_array(s->unsent, cap, 1);
        if (!grown)
            return EK_ENOMEM;
        if (!s->unsent && c->n_unsent++ == 0)
            c->progress_us = ek_loop_now_us(c->context->loop);
        s->unsent = grown;
        s->cap = (uint32_t)cap;
    }
    memcpy(s->unsent + kept, p, n);
    s->n_unsent = (uint32_t)(kept + n);
    return 0;
}

/* Would what is kept leave at the end of this turn, as far as can be said now? */
static bool must_wait(const struct ek_h2_stream *s)
{
    struct ek_h2 *c = s->conn;
    if (c->state != EK_H2_OPEN || c->out.len > c->n_sent || to_send(s) > EK_H2_SCRATCH)
        return true;
    if (!s->is_open && !c->is_server)
        return to_send(s) > c->context->o.window_bytes / 4;
    int32_t window = nghttp2_session_get_stream_remote_window_size(c->session, s->id);
    int32_t shared = nghttp2_session_get_remote_window_size(c->session);
    return (int64_t)to_send(s) > (window < shared ? window : shared);
}

int ek_h2_send(struct ek_h2_stream *s, const char *p, size_t n)
{
    if (s->is_ending)
        return EK_ECLOSED;
    if (n == 0)
        return 0;
    int rc = keep(s, p, n);
    if (!rc)
        rc = ek_h2_queue(s);
    if (rc)
        return rc;
    ek_h2_soon(s->conn);
    if (must_wait(s))
        s->is_waiting = true;
    return s->is_waiting ? EK_EAGAIN : 0;
}

static int end(struct ek_h2_stream *s)
{
    s->is_ending = true;
    ek_h2_soon(s->conn);
    return ek_h2_queue(s);
}

int ek_h2_send_end(struct ek_h2_stream *s)
{
    return s->is_ending ? EK_ECLOSED : end(s);
}

int ek_h2_send_trailers(struct ek_h2_stream *s, const struct ek_field *f, size_t n)
{
    size_t n_bytes = 0;
    if (s->is_ending)
        return EK_ECLOSED;
    if (n > EK_HEAD_MAX_FIELDS)
        return EK_ELIMIT;
    if (n == 0)
        return end(s);
    for (size_t i = 0; i < n; i++)
        n_bytes += f[i].name.n + f[i].value.n;
    struct ek_field *copy = ek_alloc(n * sizeof *copy + n_bytes);
    if (!copy)
        return EK_ENOMEM;
    char *p = (char *)(copy + n);
    for (size_t i = 0; i < n; i++) {
        memcpy(p, f[i].name.p, f[i].name.n);
        if (f[i].value.n > 0)
            memcpy(p + f[i].name.n, f[i].value.p, f[i].value.n);
        copy[i] = (struct ek_field){ek_text_of(p, f[i].name.n),
                                    ek_text_of(p + f[i].name.n, f[i].value.n)};
        p += f[i].name.n + f[i].value.n;
    }
    s->trailers = copy;
    s->n_trailers = (uint32_t)n;
    return end(s);
}

void ek_h2_consume(struct ek_h2_stream *s, size_t n)
{
    struct ek_h2 *c = s->conn;
    if (s->has_ended || n == 0)
        return;
    int rv = nghttp2_session_consume_stream(c->session, s->id, n);
    if (rv == NGHTTP2_ERR_NOMEM)
        ek_h2_fail(c, EK_H2_INTERNAL_ERROR, "out of memory", NULL);
    if (nghttp2_session_want_write(c->session))
        ek_h2_soon(c);
}

void ek_h2_reset(struct ek_h2_stream *s, uint32_t code)
{
    s->is_known = false;
    reset(s, code);
}

void ek_h2_finish(struct ek_h2_stream *s, uint32_t code)
{
    s->is_known = false;
    if (!s->is_ending || (s->is_ended && !s->has_ended)) {
        reset(s, code);
        return;
    }
    s->is_finished = true;
    s->finish_code = code;
}
