/* h1_out.c - what goes out: the ops of a half, and answers of our own. */
#include "net/http1.h"
#include "route/h1_int.h"
#include "route/relay.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Over this, what follows a head is not put behind it but sent by itself. */
enum { JOIN_BYTES = 16384 };

/* Ends our side once all is sent, where the other side's end asks for it. */
static void end_side(struct ek_h1 *h)
{
    bool must = (h->is_tunnel && h->out_ended) || h->state == EK_H1_LINGER;
    if (must && !h->out_shut && h->out.len == 0) {
        h->out_shut = true;
        ek_sock_shut(&h->sock);
        if (h->state == EK_H1_LINGER)
            ek_h1_set_timer(h, EK_H1_LINGER_US);
    }
}

bool ek_h1_flush(struct ek_h1 *h)
{
    size_t sent = 0;
    if (h->state == EK_H1_CONNECTING || h->state == EK_H1_HANDSHAKE)
        return true;
    while (sent < h->out.len) {
        size_t n;
        int want = EK_WRITABLE;
        int rc =
            ek_sock_write(&h->sock, h->out.data + sent, h->out.len - sent, &n, &want);
        h->write_wants = (uint8_t)want;
        if (rc == EK_EAGAIN)
            break;
        if (rc) {
            ek_h1_fail_socket(h, errno);
            return false;
        }
        sent += n;
    }
    if (sent < h->out.len) {
        ek_buf_consume(&h->out, sent);
        return true;
    }
    ek_buf_release(&h->out); /* nothing is held while nothing waits */
    end_side(h);
    if (h->must_drain) {
        h->must_drain = false;
        if (h->half.session)
            ek_relay_drained(&h->half);
    }
    return ek_h1_is_alive(h);
}

/* Sends p[0,n) behind what waits; the rest is kept. Errors: EK_EAGAIN some was kept,
 * EK_ECLOSED, EK_ENOMEM, EK_ELIMIT. Nobody is told of a failure here: the relay that
 * called will. */
static int send_bytes(struct ek_h1 *h, const char *p, size_t n)
{
    size_t done = 0;
    bool can_send = h->state != EK_H1_CONNECTING && h->state != EK_H1_HANDSHAKE;
    while (can_send && h->out.len == 0 && done < n) {
        size_t k;
        int want = EK_WRITABLE;
        int rc = ek_sock_write(&h->sock, p + done, n - done, &k, &want);
        h->write_wants = (uint8_t)want;
        if (rc == EK_EAGAIN)
            break;
        if (rc)
            return EK_ECLOSED;
        done += k;
    }
    if (done == n)
        return 0;
    int rc = ek_buf_add(&h->out, p + done, n - done);
    if (rc)
        return rc;
    h->must_drain = true;
    return can_send && ek_h1_try_watch(h, false) ? EK_ECLOSED : EK_EAGAIN;
}

/* Has `out` sent by the end of this turn, with what is put behind it until then. */
static void send_soon(struct ek_h1 *h)
{
    ek_reactor_soon(h->reactor, &h->task);
}

/* Ops ---------------------------------------------------------------------- */

static int write_request(struct ek_h1 *h, const struct ek_head *head, bool is_last)
{
    const struct ek_route_request *r = h->half.session->request;
    struct ek_http1_form f = {.minor = 1, .is_keep_alive = true};
    h->is_head_method = ek_text_equal(head->method, ek_text_of("HEAD", 4));
    h->wants_websocket = head->is_websocket;
    f.framing = is_last || head->is_websocket ? EK_HTTP1_NO_BODY
                : head->body_bytes >= 0       ? EK_HTTP1_SIZED
                                              : EK_HTTP1_CHUNKED;
    f.websocket_key = head->is_websocket ? r->websocket_key : NULL;
    h->out_framing = (uint8_t)f.framing;
    h->out_ended = is_last;
    return ek_http1_write_request(&h->out, head, &f);
}

static int write_answer(struct ek_h1 *h, const struct ek_head *head, bool is_last)
{
    struct ek_http1_form f = {.minor = h->minor, .is_head_method = h->is_head_method};
    bool is_interim = head->status < 200 && !head->is_websocket;
    /* A stream may end behind the head of an answer that has no body. */
    bool has_none = is_last || is_interim || h->is_head_method || head->status == 204 ||
                    head->status == 304;
    if (is_interim && h->minor == 0)
        return 0;
    f.framing = has_none                ? EK_HTTP1_NO_BODY
                : head->is_websocket    ? EK_HTTP1_TUNNEL
                : head->body_bytes >= 0 ? EK_HTTP1_SIZED
                : h->minor > 0          ? EK_HTTP1_CHUNKED
                                        : EK_HTTP1_TO_END;
    if (f.framing == EK_HTTP1_TO_END || ek_reactor_is_draining(h->reactor) ||
        (h->state == EK_H1_BODY && !h->wants_websocket))
        h->is_keep_alive = false; /* a body that is not read yet may never be */
    f.is_keep_alive = h->is_keep_alive;
    if (head->is_websocket) {
        f.websocket_accept = h->half.session->request->websocket_accept;
        h->is_tunnel = true;
    } else if (h->wants_websocket && !is_interim) {
        h->state = EK_H1_DONE;
    }
    h->has_begun |= !is_interim;
    h->out_framing = (uint8_t)f.framing;
    h->out_ended = is_last;
    return ek_http1_write_answer(&h->out, head, &f);
}

static struct ek_h1 *h1_of(struct ek_half *half)
{
    return (struct ek_h1 *)(void *)half; /* its first member */
}

static int op_head(struct ek_half *half, const struct ek_head *head, bool is_last)
{
    struct ek_h1 *h = h1_of(half);
    int rc =
        h->is_front ? write_answer(h, head, is_last) : write_request(h, head, is_last);
    if (!rc && h->state == EK_H1_CONNECTING)
        return ek_h1_try_connect(h);
    if (!rc)
        send_soon(h);
    return rc;
}

/* A chunk in one piece: its size, the bytes, CR LF. */
static int send_chunk(struct ek_h1 *h, const char *p, size_t n)
{
    char *out = h->reactor->write;
    int k = snprintf(out, 32, "%zx\r\n", n);
    memcpy(out + k, p, n);
    out[k + n] = '\r';
    out[k + n + 1] = '\n';
    return send_bytes(h, out, (size_t)k + n + 2);
}

static int op_body(struct ek_half *half, const char *p, size_t n)
{
    struct ek_h1 *h = h1_of(half);
    if (!h->is_front && !h->sends_at_once) {
        h->sends_at_once = true;
        ek_sock_send_at_once(h->sock.fd);
    }
    if (h->out.len > 0 && h->out.len + n <= JOIN_BYTES && !h->must_drain) {
        /* Behind a head of this turn. */
        int rc = 0;
        if (h->out_framing == EK_HTTP1_CHUNKED)
            rc = ek_buf_addf(&h->out, "%zx\r\n", n);
        if (!rc)
            rc = ek_buf_add(&h->out, p, n);
        if (!rc && h->out_framing == EK_HTTP1_CHUNKED)
            rc = ek_buf_add(&h->out, "\r\n", 2);
        return rc;
    }
    if (h->out_framing == EK_HTTP1_CHUNKED)
        return send_chunk(h, p, n);
    return send_bytes(h, p, n);
}

static int op_trailers(struct ek_half *half, const struct ek_field *fields, size_t n)
{
    struct ek_h1 *h = h1_of(half);
    h->out_ended = true;
    int rc = 0;
    if (h->out_framing == EK_HTTP1_CHUNKED)
        rc = ek_http1_write_trailers(&h->out, fields, n);
    send_soon(h);
    return rc;
}

static int op_end(struct ek_half *half)
{
    return op_trailers(half, NULL, 0);
}

static void op_resume(struct ek_half *half)
{
    struct ek_h1 *h = h1_of(half);
    if (!h->is_paused)
        return;
    h->is_paused = false;
    send_soon(h);
}

static void op_reset(struct ek_half *half, uint32_t code)
{
    (void)code; /* HTTP/1 has no word for it: a connection that breaks */
    half->session = NULL;
    ek_h1_kill(h1_of(half), h1_of(half)->is_tunnel || h1_of(half)->has_begun);
}

static void op_detach(struct ek_half *half)
{
    half->session = NULL;
    ek_h1_finish(h1_of(half));
}

void ek_h1_answer(struct ek_h1 *h, const struct ek_refusal *r)
{
    char text[256], length[24], after[24];
    snprintf(text, sizeof text, "%s\n", r->why);
    snprintf(length, sizeof length, "%zu", strlen(text));
    snprintf(after, sizeof after, "%lld", (long long)(r->retry_after_ms + 999) / 1000);
    struct ek_field fields[] = {
        {{"Content-Type", 12}, {"text/plain", 10}},
        {{"Content-Length", 14}, {length, strlen(length)}},
        {{"Retry-After", 11}, {after, strlen(after)}},
    };
    struct ek_head head = {.status = r->status,
                           .fields = fields,
                           .n_fields = r->retry_after_ms > 0 ? 3 : 2,
                           .body_bytes = (int64_t)strlen(text)};
    if (h->state != EK_H1_DONE && !(h->state == EK_H1_BODY && h->wants_websocket))
        h->is_keep_alive = false;
    if (h->wants_websocket)
        h->state = EK_H1_DONE;
    struct ek_http1_form f = {.framing = EK_HTTP1_SIZED,
                              .minor = h->minor,
                              .is_keep_alive = h->is_keep_alive &&
                                               !ek_reactor_is_draining(h->reactor)};
    h->out_ended = true;
    int rc = ek_http1_write_answer(&h->out, &head, &f);
    if (!rc && !h->is_head_method)
        rc = ek_buf_add_str(&h->out, text);
    if (rc)
        ek_h1_kill(h, true);
    else if (ek_h1_flush(h))
        ek_h1_finish(h);
}

static void op_refuse(struct ek_half *half, const struct ek_refusal *r)
{
    half->session = NULL;
    ek_h1_answer(h1_of(half), r);
}

const struct ek_half_ops ek_h1_ops = {
    .head = op_head,
    .body = op_body,
    .trailers = op_trailers,
    .end = op_end,
    .resume = op_resume,
    .refuse = op_refuse,
    .reset = op_reset,
    .detach = op_detach,
};
