/* h2_io.c - a connection's socket and its clock.
 *
 * Invariants between events: context->out is empty; the watch's interest is what the
 * state needs; the timer is set to due_of() or earlier (a timer that comes early looks
 * again, so that what moves a deadline away costs nothing).
 */
#include "base/mem.h"
#include "net/h2_int.h"
#include "net/sock.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum { READS_A_TURN = 4 };
/* Long enough for a far client to read the GOAWAY. */
enum { LINGER_US = 1000 * 1000 };

static int64_t now_of(const struct ek_h2 *c)
{
    return ek_loop_now_us(c->context->loop);
}

bool ek_h2_allow(struct ek_h2_allowance *a, int64_t now_us, uint32_t burst,
                 uint32_t rate)
{
    int64_t each_us = 1000000 / (rate > 0 ? rate : 1);
    int64_t at_us = a->at_us > now_us ? a->at_us : now_us;
    if (at_us - now_us >= each_us * burst)
        return false;
    a->at_us = at_us + each_us;
    return true;
}

/* Bytes ------------------------------------------------------------------------- */

/* Whether the peer ended or the connection failed: it is over alike. */
static int over_alike(struct ek_h2 *c, int rc)
{
    if (rc == EK_EIO && errno == ETIMEDOUT && !c->why)
        c->why = "dead_peer"; /* it acknowledged nothing (net/sock.h) */
    return rc == EK_EIO ? EK_ECLOSED : rc;
}

static int receive(struct ek_h2 *c, size_t *got)
{
    struct ek_h2_context *x = c->context;
    struct ek_sock s = {c->watch.fd, c->tls};
    return over_alike(c, ek_sock_read(&s, x->in, sizeof x->in, got, &c->read_wants));
}

static int transmit(struct ek_h2 *c, const char *p, size_t n, size_t *sent)
{
    struct ek_sock s = {c->watch.fd, c->tls};
    return over_alike(c, ek_sock_write(&s, p, n, sent, &c->write_wants));
}

/* Sends p[*at, n). 0: all of it. */
static int transmit_all(struct ek_h2 *c, const char *p, size_t n, size_t *at)
{
    while (*at < n) {
        size_t sent = 0;
        int rc = transmit(c, p + *at, n - *at, &sent);
        if (rc)
            return rc;
        *at += sent;
        c->taken_us = now_of(c);
    }
    return 0;
}

/* Sends what the socket did not take before. 0: nothing is left. */
static int flush_kept(struct ek_h2 *c)
{
    int rc = transmit_all(c, c->out.data, c->out.len, &c->n_sent);
    if (rc)
        return rc;
    ek_buf_release(&c->out);
    c->n_sent = 0;
    c->taken_us = now_of(c);
    return 0;
}

/* Sends context->out; what the socket does not take is kept in c->out. */
static int flush_scratch(struct ek_h2 *c)
{
    struct ek_h2_context *x = c->context;
    size_t at = 0;
    int rc =
        c->out.len > c->n_sent ? EK_EAGAIN : transmit_all(c, x->out, x->n_out, &at);
    if (rc == EK_EAGAIN && ek_buf_add(&c->out, x->out + at, x->n_out - at))
        rc = EK_ENOMEM;
    x->n_out = 0;
    return rc;
}

static int put(struct ek_h2 *c, const uint8_t *p, size_t n)
{
    struct ek_h2_context *x = c->context;
    assert(n <= sizeof x->out);
    if (n > sizeof x->out - x->n_out) {
        int rc = flush_scratch(c);
        if (rc && rc != EK_EAGAIN)
            return rc;
    }
    memcpy(x->out + x->n_out, p, n);
    x->n_out += n;
    return 0;
}

/* Behind its GOAWAY a connection that failed says nothing. */
static bool has_said_all(const struct ek_h2 *c)
{
    return c->is_mute ||
           (c->state == EK_H2_CLOSING && !nghttp2_session_want_write(c->session));
}

/* Has nghttp2 write as long as the socket takes it. 0: all is sent. */
static int pump(struct ek_h2 *c)
{
    int rc = flush_kept(c);
    while (rc == 0) {
        const uint8_t *p;
        ssize_t n = has_said_all(c) ? 0 : nghttp2_session_mem_send(c->session, &p);
        if (n < 0) {
            c->context->n_out = 0;
            return EK_ENOMEM;
        }
        if (n > 0) {
            rc = put(c, p, (size_t)n);
            continue;
        }
        bool was_full = c->is_out_full;
        c->is_out_full = false;
        rc = flush_scratch(c);
        if (!was_full)
            break;
    }
    if (rc && c->context->n_out > 0) {
        int kept = flush_scratch(c);
        rc = kept && kept != EK_EAGAIN ? kept : rc;
    }
    return rc;
}

/* What nghttp2 says of input it cannot go on with. */
static void fail_input(struct ek_h2 *c, ssize_t rv)
{
    struct ek_h2_counts *n = &c->context->counts;
    if (rv == NGHTTP2_ERR_FLOODED)
        ek_h2_fail(c, EK_H2_ENHANCE_YOUR_CALM, "answers to its frames are not read",
                   &n->frame_floods);
    else if (rv == NGHTTP2_ERR_TOO_MANY_CONTINUATIONS)
        ek_h2_fail(c, EK_H2_ENHANCE_YOUR_CALM, "a head in too many frames",
                   &n->continuation_floods);
    else if (rv == NGHTTP2_ERR_NOMEM)
        ek_h2_fail(c, EK_H2_INTERNAL_ERROR, "out of memory", NULL);
    else
        ek_h2_fail(c, EK_H2_PROTOCOL_ERROR, "the peer broke HTTP/2",
                   &n->protocol_errors);
}

/* nghttp2 skips DATA for streams that are over without a word, as RFC 9113 5.1 allows
 * (who sent it may not know yet), and gives its window back. Here it is counted: what
 * frames' heads say, less what nghttp2 told of. */
static void scan_frames(struct ek_h2 *c, const char *p, size_t n)
{
    while (n > 0) {
        size_t k = n < c->scan_left ? n : c->scan_left;
        c->scan_left -= (uint32_t)k;
        p += k;
        n -= k;
        k = sizeof c->scan - c->n_scan;
        k = n < k ? n : k;
        memcpy(c->scan + c->n_scan, p, k);
        c->n_scan = (uint8_t)(c->n_scan + k);
        p += k;
        n -= k;
        if (c->n_scan < sizeof c->scan)
            return;
        c->n_scan = 0;
        c->scan_left =
            (uint32_t)c->scan[0] << 16 | (uint32_t)c->scan[1] << 8 | c->scan[2];
        c->n_skipped += c->scan[3] == NGHTTP2_DATA;
    }
}

static void count_skipped(struct ek_h2 *c)
{
    bool is_between = c->scan_left == 0 && c->n_scan == 0;
    if (!is_between || c->n_skipped == 0)
        return;
    ek_counter_add(&c->context->counts.closed_data, c->n_skipped);
    c->n_skipped = 0;
}

static void feed(struct ek_h2 *c, const char *p, size_t n)
{
    c->received_us = now_of(c);
    c->pinged_us = 0;
    scan_frames(c, p, n);
    ssize_t rv = nghttp2_session_mem_recv(c->session, (const uint8_t *)p, n);
    if (rv < 0)
        fail_input(c, rv);
    else
        count_skipped(c);
}

/* Steps ------------------------------------------------------------------------- */

static void feed_early(struct ek_h2 *c)
{
    char *p = c->early;
    c->early = NULL;
    feed(c, p, c->n_early);
    ek_free(p);
}

/* 0, or EK_ECLOSED: the peer ended. */
static int read_input(struct ek_h2 *c)
{
    c->has_more_input = false;
    if (c->early)
        feed_early(c);
    for (int i = 0; i < READS_A_TURN && c->state == EK_H2_OPEN; i++) {
        size_t got = 0;
        int rc = receive(c, &got);
        if (rc)
            return rc == EK_EAGAIN ? 0 : rc;
        feed(c, c->context->in, got);
        /* A short read of a plain socket has emptied it. */
        if (!c->tls && got < sizeof c->context->in)
            return 0;
    }
    c->has_more_input = c->state == EK_H2_OPEN;
    return 0;
}

static int shake(struct ek_h2 *c)
{
    int rc = ek_tls_handshake(c->tls, &c->read_wants);
    if (rc)
        return rc;
    if (!ek_tls_has_alpn(c->tls, "h2")) {
        c->why = "the TLS peer does not speak HTTP/2";
        return EK_ECLOSED;
    }
    c->state = EK_H2_OPEN;
    return 0;
}

/* Our side is shut, what comes is dropped until the peer ends or its time is over. */
static void linger(struct ek_h2 *c)
{
    ek_h2_tell_closed(c, c->why ? c->why : "");
    if (c->tls)
        ek_tls_end(c->tls);
    shutdown(c->watch.fd, SHUT_WR);
    c->state = EK_H2_LINGER;
    c->state_us = now_of(c);
    if (ek_watch_change(&c->watch, EK_READABLE))
        ek_h2_free(c);
    else
        ek_h2_move_timer(c);
}

static void gone(struct ek_h2 *c, const char *why)
{
    ek_h2_tell_closed(c, why);
    ek_h2_free(c);
}

/* False: c is gone. */
static bool drop_input(struct ek_h2 *c)
{
    struct ek_sock plain = {c->watch.fd, NULL};
    size_t got;
    int want;
    int rc = ek_sock_read(&plain, c->context->in, sizeof c->context->in, &got, &want);
    if (rc == 0 || rc == EK_EAGAIN)
        return true;
    gone(c, c->why ? c->why : "");
    return false;
}

/* A connection that failed has LINGER_US for its GOAWAY to find room in the socket. */
static bool is_over(const struct ek_h2 *c)
{
    bool is_sent = c->out.len == c->n_sent;
    if (c->state == EK_H2_CLOSING)
        return is_sent && has_said_all(c);
    return c->state == EK_H2_OPEN && !c->is_draining && is_sent &&
           !nghttp2_session_want_read(c->session) &&
           !nghttp2_session_want_write(c->session);
}

void ek_h2_drive(struct ek_h2 *c, bool can_read)
{
    int rc = 0;
    c->is_driving = true;
    if (c->state == EK_H2_SHAKE)
        rc = shake(c);
    if (rc == 0 && c->state == EK_H2_OPEN && can_read)
        rc = read_input(c);
    bool has_ended = rc == EK_ECLOSED;
    if (rc == 0)
        rc = pump(c);
    c->is_driving = false;
    if (has_ended || rc == EK_ECLOSED || rc == EK_ENOMEM) {
        gone(c, c->why                    ? c->why
                : rc == EK_ENOMEM         ? "out of memory"
                : c->state == EK_H2_SHAKE ? "the TLS handshake failed"
                : c->n_streams > 0        ? "the peer closed the connection"
                                          : "");
        return;
    }
    if (is_over(c)) {
        linger(c);
        return;
    }
    int interest = c->read_wants;
    if (c->state != EK_H2_SHAKE && c->out.len > c->n_sent)
        interest |= c->write_wants;
    if (ek_watch_change(&c->watch, interest)) {
        gone(c, "the descriptor cannot be watched");
        return;
    }
    if (c->has_more_input && c->state == EK_H2_OPEN)
        ek_h2_soon(c);
    ek_h2_move_timer(c);
}

void ek_h2_on_ready(struct ek_watch *w, int events)
{
    struct ek_h2 *c = w->owner;
    bool can_read = events & (EK_READABLE | EK_HANGUP);
    if (c->state >= EK_H2_CLOSING && can_read && !drop_input(c))
        return;
    if (c->state != EK_H2_LINGER)
        ek_h2_drive(c, c->tls || can_read);
}

/* Time -------------------------------------------------------------------------- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static bool is_to_ping(const struct ek_h2 *c)
{
    return c->is_ready && c->n_streams > 0 && c->context->o.ping_interval_us > 0;
}

static int64_t due_of(const struct ek_h2 *c)
{
    const struct ek_h2_options *o = &c->context->o;
    int64_t due = INT64_MAX;
    if (c->state >= EK_H2_CLOSING)
        return c->state_us + LINGER_US;
    if (!c->is_ready)
        due = c->state_us + o->handshake_timeout_us;
    else if (c->n_streams == 0 && o->idle_timeout_us > 0)
        due = c->idle_us + o->idle_timeout_us;
    if (c->head_us > 0)
        due = least(due, c->head_us + o->head_timeout_us);
    if (c->out.len > c->n_sent)
        due = least(due, c->taken_us + o->send_timeout_us);
    if (c->n_unsent > 0 && o->stall_timeout_us > 0)
        due = least(due, c->progress_us + o->stall_timeout_us);
    if (c->pinged_us > 0)
        due = least(due, c->pinged_us + o->ping_timeout_us);
    else if (is_to_ping(c))
        due = least(due, c->received_us + o->ping_interval_us);
    if (c->is_draining)
        due = least(due, c->drain_us + o->drain_us);
    return due;
}

void ek_h2_move_timer(struct ek_h2 *c)
{
    int64_t due = due_of(c);
    if (due >= c->due_us)
        return;
    c->due_us = due;
    int rc = ek_timer_start(&c->timer, due - now_of(c));
    assert(rc == 0 && "a started timer is moved without memory");
    (void)rc;
}

static void ping(struct ek_h2 *c)
{
    if (nghttp2_submit_ping(c->session, NGHTTP2_FLAG_NONE, NULL))
        ek_h2_fail(c, EK_H2_INTERNAL_ERROR, "out of memory", NULL);
    c->pinged_us = now_of(c);
    ek_h2_soon(c);
}

/* The second GOAWAY of a drain: streams that are not here by now never will be. */
static void end_drain(struct ek_h2 *c)
{
    c->is_draining = false;
    if (nghttp2_submit_goaway(c->session, NGHTTP2_FLAG_NONE,
                              nghttp2_session_get_last_proc_stream_id(c->session),
                              NGHTTP2_NO_ERROR, NULL, 0))
        ek_h2_fail(c, EK_H2_INTERNAL_ERROR, "out of memory", NULL);
    ek_h2_soon(c);
}

static void check_time(struct ek_h2 *c, int64_t now)
{
    const struct ek_h2_options *o = &c->context->o;
    struct ek_h2_counts *n = &c->context->counts;
    if (!c->is_ready && now >= c->state_us + o->handshake_timeout_us)
        ek_h2_fail(c, EK_H2_SETTINGS_TIMEOUT, "no SETTINGS in time", NULL);
    else if (c->is_ready && c->n_streams == 0 && o->idle_timeout_us > 0 &&
             now >= c->idle_us + o->idle_timeout_us)
        ek_h2_fail(c, EK_H2_NO_ERROR, "", NULL);
    if (c->head_us > 0 && now >= c->head_us + o->head_timeout_us)
        ek_h2_fail(c, EK_H2_ENHANCE_YOUR_CALM, "a head was not whole in time",
                   &n->late_heads);
    if (c->out.len > c->n_sent && now >= c->taken_us + o->send_timeout_us)
        ek_h2_fail(c, EK_H2_ENHANCE_YOUR_CALM, "what is sent is not read", &n->stalls);
    if (c->n_unsent > 0 && o->stall_timeout_us > 0 &&
        now >= c->progress_us + o->stall_timeout_us)
        ek_h2_fail(c, EK_H2_ENHANCE_YOUR_CALM, "no window is opened for what waits",
                   &n->stalls);
    if (c->pinged_us > 0 && now >= c->pinged_us + o->ping_timeout_us)
        ek_h2_fail(c, EK_H2_NO_ERROR, "a PING was not answered", &n->ping_timeouts);
    if (c->state >= EK_H2_CLOSING)
        return;
    if (c->is_draining && now >= c->drain_us + o->drain_us)
        end_drain(c);
    if (is_to_ping(c) && c->pinged_us == 0 &&
        now >= c->received_us + o->ping_interval_us)
        ping(c);
}

void ek_h2_on_time(struct ek_timer *t)
{
    struct ek_h2 *c = t->owner;
    static const int64_t never_us = (int64_t)365 * 24 * 3600 * 1000 * 1000;
    int64_t now = now_of(c);
    int rc = ek_timer_start(t, never_us);
    assert(rc == 0 && "its place in the heap was just given up");
    (void)rc;
    c->due_us = now + never_us;
    if (c->state >= EK_H2_CLOSING && now >= c->state_us + LINGER_US) {
        gone(c, c->why ? c->why : "");
        return;
    }
    if (c->state < EK_H2_CLOSING)
        check_time(c, now);
    ek_h2_move_timer(c);
}
