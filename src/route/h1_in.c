/* h1_in.c - what comes in: heads, bodies, tunnels, and ends. */
#include "net/h2.h"
#include "net/http1.h"
#include "route/h1_int.h"
#include "route/relay.h"

#include <errno.h>
#include <string.h>

static void refuse_request(struct ek_h1 *h, int code, const char *why)
{
    struct ek_refusal r = {.status = code, .why = why};
    ek_counter_add(&h->reactor->counters.bad_requests, 1);
    h->is_keep_alive = false;
    ek_h1_answer(h, &r);
}

static void refuse_answer(struct ek_h1 *h)
{
    ek_counter_add(&h->reactor->counters.bad_answers, 1);
    ek_h1_fail(h, EK_RESET_PROTOCOL);
}

/* Heads -------------------------------------------------------------------- */

static void take_request(struct ek_h1 *h, const char *p, size_t n)
{
    struct ek_http1_message m;
    char client[EK_H1_CLIENT_BYTES];
    if (ek_http1_read_request(&m, p, n)) {
        refuse_request(h, m.code, m.reason);
        return;
    }
    m.head.scheme = h->is_tls ? ek_text_of("https", 5) : ek_text_of("http", 4);
    h->is_reused = true;
    h->minor = (uint8_t)m.minor;
    h->is_keep_alive = m.is_keep_alive;
    h->is_head_method = ek_text_equal(m.head.method, ek_text_of("HEAD", 4));
    h->wants_websocket = m.head.is_websocket;
    h->has_begun = h->out_ended = false;
    ek_http1_body_init(&h->body, &m);
    bool is_last = h->body.is_done && !h->wants_websocket;
    h->state = is_last ? EK_H1_DONE : EK_H1_BODY;
    h->is_paused = !is_last; /* until the backend is there */
    ek_h1_set_timer(h, EK_H1_NEVER_US);
    ek_relay_begin(h->reactor, &h->half, &m.head, is_last, ek_h1_client(h, client));
}

/* The accept value was made for the key that this request carries. */
static bool is_accepted(const struct ek_h1 *h, struct ek_text accept)
{
    const char *want = h->half.session->request->websocket_accept;
    return ek_text_equal(accept, ek_text_of(want, strlen(want)));
}

static void take_answer(struct ek_h1 *h, const char *p, size_t n)
{
    struct ek_http1_message m;
    if (ek_http1_read_answer(&m, p, n, h->is_head_method, h->wants_websocket)) {
        refuse_answer(h);
        return;
    }
    int status = m.head.status;
    if (status < 200 && status != 101) {
        ek_relay_head(&h->half, &m.head, false);
        return;
    }
    if (status == 101 && !is_accepted(h, m.websocket_accept)) {
        refuse_answer(h);
        return;
    }
    h->minor = (uint8_t)m.minor;
    h->is_keep_alive = m.is_keep_alive;
    h->is_tunnel = status == 101;
    if (h->wants_websocket && !h->is_tunnel)
        h->out_ended = true;
    ek_http1_body_init(&h->body, &m);
    h->state = h->body.is_done ? EK_H1_DONE : EK_H1_BODY;
    ek_relay_head(&h->half, &m.head, h->body.is_done);
}

/* The head is not whole: it has its time. */
static void await_head(struct ek_h1 *h)
{
    if (h->is_front && h->state == EK_H1_IDLE) {
        h->state = EK_H1_HEAD;
        ek_h1_set_timer(h, ek_router_config(h->reactor->router)->head_timeout_us);
    }
}

/* Does it begin as a connection of HTTP/2 by prior knowledge does? */
static bool is_preface(const struct ek_h1 *h, const char *p, size_t n)
{
    size_t k = n < sizeof EK_H2_PREFACE - 1 ? n : sizeof EK_H2_PREFACE - 1;
    return h->is_front && !h->is_reused && memcmp(p, EK_H2_PREFACE, k) == 0;
}

/* Returns how much of p[0,n) was the head; 0: it is not whole yet. */
static size_t take_head(struct ek_h1 *h, const char *p, size_t n)
{
    bool is_bad;
    if (is_preface(h, p, n)) {
        if (n >= sizeof EK_H2_PREFACE - 1) {
            ek_h1_become_h2(h, p, n);
            return n;
        }
        await_head(h);
        return 0;
    }
    size_t end = ek_http1_find_end(p, n, &h->scanned, &is_bad);
    size_t seen = end ? end : n;
    if (seen > EK_ROUTE_MAX_HEAD_BYTES || is_bad) {
        if (!h->is_front)
            refuse_answer(h);
        else if (is_bad)
            refuse_request(h, 400, "a line of the head is not ended by CR LF");
        else
            refuse_request(h, 431, "the request line and headers are too large");
        return 0;
    }
    if (end == 0) {
        await_head(h);
        return 0;
    }
    h->scanned = 0;
    if (h->is_front)
        take_request(h, p, end);
    else
        take_answer(h, p, end);
    return end;
}

/* Bodies ------------------------------------------------------------------- */

static void end_body(struct ek_h1 *h)
{
    struct ek_field fields[EK_HEAD_MAX_FIELDS];
    h->state = EK_H1_DONE;
    size_t n = ek_http1_body_trailers(&h->body, fields);
    if (n > 0)
        ek_relay_trailers(&h->half, fields, n);
    else
        ek_relay_end(&h->half);
}

static size_t take_body(struct ek_h1 *h, const char *p, size_t n)
{
    size_t used = n;
    struct ek_text data = ek_text_of(p, n);
    if (!h->is_tunnel && ek_http1_body_feed(&h->body, p, n, &used, &data)) {
        if (h->is_front)
            ek_counter_add(&h->reactor->counters.bad_requests, 1);
        else
            ek_counter_add(&h->reactor->counters.bad_answers, 1);
        ek_h1_fail(h, EK_RESET_PROTOCOL);
        return n;
    }
    if (data.n > 0 && ek_relay_body(&h->half, data.p, data.n) == EK_EAGAIN)
        h->is_paused = true;
    if (h->state == EK_H1_BODY && h->half.session && !h->is_tunnel && h->body.is_done)
        end_body(h);
    return used;
}

/* Hands over p[0,n) as far as it goes and returns how far that was. */
static size_t take(struct ek_h1 *h, const char *p, size_t n)
{
    size_t used = 0;
    while (used < n) {
        size_t took = 0;
        bool is_head = h->state == EK_H1_IDLE || h->state == EK_H1_HEAD;
        if (is_head && (h->is_front || h->half.session))
            took = take_head(h, p + used, n - used);
        else if (h->state == EK_H1_BODY && !h->is_paused && h->half.session)
            took = take_body(h, p + used, n - used);
        else if (h->state == EK_H1_LINGER || h->state == EK_H1_DEAD)
            return n;
        if (took == 0)
            break;
        used += took;
    }
    return used;
}

static void keep(struct ek_h1 *h, const char *p, size_t n)
{
    if (n > 0 && h->state == EK_H1_IDLE && !h->is_front)
        ek_h1_kill(h, false); /* more than the answer that was asked for */
    else if (n > 0 && ek_h1_is_alive(h) && h->state != EK_H1_LINGER &&
             ek_buf_add(&h->in, p, n))
        ek_h1_fail(h, EK_RESET_INTERNAL);
}

void ek_h1_go_on(struct ek_h1 *h)
{
    if (h->in.len == 0)
        return;
    /* Taken out: what is handed over may end the session and let go of `in`. */
    struct ek_buf in = h->in;
    ek_buf_init(&h->in, in.max);
    size_t used = take(h, in.data, in.len);
    keep(h, in.data + used, in.len - used);
    ek_buf_release(&in);
}

static void take_received(struct ek_h1 *h, const char *p, size_t n)
{
    if (h->in.len > 0) {
        keep(h, p, n);
        if (ek_h1_is_alive(h))
            ek_h1_go_on(h);
        return;
    }
    size_t used = take(h, p, n);
    keep(h, p + used, n - used);
}

/* Reading ------------------------------------------------------------------ */

void ek_h1_input_ended(struct ek_h1 *h)
{
    bool is_whole =
        h->is_tunnel || (h->state == EK_H1_BODY && h->body.framing == EK_HTTP1_TO_END);
    if (h->state == EK_H1_BODY && is_whole) {
        h->state = EK_H1_DONE;
        ek_relay_end(&h->half);
    } else if (h->state == EK_H1_LINGER || h->state == EK_H1_IDLE) {
        ek_h1_kill(h, false);
    } else {
        ek_h1_fail(h, EK_RESET_CANCEL);
    }
}

void ek_h1_read(struct ek_h1 *h)
{
    struct ek_reactor *w = h->reactor;
    for (;;) {
        size_t got;
        int want = EK_READABLE;
        int rc = ek_sock_read(&h->sock, w->read, sizeof w->read, &got, &want);
        h->read_wants = (uint8_t)want;
        if (rc == EK_EAGAIN)
            return;
        if (rc == EK_ECLOSED) {
            ek_h1_input_ended(h);
            return;
        }
        if (rc) {
            ek_h1_fail_socket(h, errno);
            return;
        }
        if (h->state == EK_H1_IDLE && !h->is_front) {
            ek_h1_kill(h, false); /* nobody asked */
            return;
        }
        take_received(h, w->read, got);
        /* The socket does not tell of what TLS has already taken from it. */
        bool goes_on = h->sock.tls && h->state <= EK_H1_BODY && !h->is_paused;
        if (!goes_on || !ek_tls_has_pending(h->sock.tls))
            return;
    }
}
