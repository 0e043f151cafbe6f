/* sessions_websocket.c - a WebSocket's side of a client: RFC 6455, its handshake
 * checked, over a connection of its own. */
#include "load/sessions_int.h"
#include "net/http1_message.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { ANSWER_MAX = 16384 };

static void close_up(struct ek_slot *s)
{
    ek_watch_forget(&s->watch);
    ek_sock_close(&s->sock, false);
    ek_buf_release(&s->out);
    ek_ws_reader_release(&s->reader);
}

static void fail(struct ek_slot *s, const char *why)
{
    close_up(s);
    ek_slot_ended(s, why);
}

static const char *sentence(int rc)
{
    switch (rc) {
    case EK_ECLOSED:
        return "the connection was closed";
    case EK_EIO:
        return "the connection was reset";
    case EK_EFORMAT:
        return "what came back was not what was sent, or no WebSocket";
    default:
        return ek_status_text(rc);
    }
}

/* Sending ------------------------------------------------------------------ */

/* All of it is taken: what the socket does not take waits in `out`. */
static int put(struct ek_slot *s, const uint8_t *p, size_t n)
{
    size_t done = 0;
    int rc = 0, want = 0;
    while (done < n && !rc) {
        size_t sent = 0;
        rc = ek_sock_write(&s->sock, p + done, n - done, &sent, &want);
        done += rc ? 0 : sent;
    }
    if (rc != EK_EAGAIN)
        return rc;
    ek_buf_init(&s->out, EK_SESSIONS_FRAME_MAX + EK_WS_HEAD_MAX);
    rc = ek_buf_add(&s->out, p + done, n - done);
    return rc ? rc : ek_watch_change(&s->watch, EK_READABLE | EK_WRITABLE);
}

static int send_rest(struct ek_slot *s)
{
    int want;
    while (s->out.len > 0) {
        size_t sent = 0;
        int rc = ek_sock_write(&s->sock, s->out.data, s->out.len, &sent, &want);
        if (rc)
            return rc == EK_EAGAIN ? 0 : rc;
        ek_buf_consume(&s->out, sent);
    }
    ek_buf_release(&s->out);
    return ek_watch_change(&s->watch, EK_READABLE);
}

/* Room for a head before payload. */
static int send_frame(struct ek_slot *s, enum ek_ws_opcode opcode, uint8_t *payload,
                      size_t n)
{
    uint8_t text[EK_WS_HEAD_MAX];
    struct ek_ws_head h = {
        .opcode = (uint8_t)opcode, .is_final = true, .is_masked = true, .n = n};
    uint64_t random = ek_rng_u64(&s->run->rng);
    memcpy(h.mask, &random, sizeof h.mask);
    ek_ws_mask(payload, n, h.mask);
    size_t n_head = ek_ws_head_write(text, &h);
    memcpy(payload - n_head, text, n_head);
    return put(s, payload - n_head, n + n_head);
}

static int say(struct ek_slot *s, uint8_t *payload, size_t n)
{
    return s->out.len > 0 ? EK_EAGAIN : send_frame(s, EK_WS_BINARY, payload, n);
}

/* Receiving ---------------------------------------------------------------- */

static int on_frame(void *owner, const struct ek_ws_head *h, uint8_t *payload)
{
    struct ek_slot *s = owner;
    if (h->is_masked)
        return EK_EFORMAT; /* a server masks nothing */
    if (h->opcode == EK_WS_PONG)
        return 0;
    if (h->opcode == EK_WS_CLOSE)
        return EK_ECLOSED;
    if (h->opcode == EK_WS_PING) {
        uint8_t pong[EK_WS_HEAD_MAX + 125];
        memcpy(pong + EK_WS_HEAD_MAX, payload, (size_t)h->n);
        if (s->out.len > 0)
            return 0; /* a later ping will do */
        return send_frame(s, EK_WS_PONG, pong + EK_WS_HEAD_MAX, (size_t)h->n);
    }
    if (h->opcode != EK_WS_BINARY || !h->is_final)
        return EK_EFORMAT;
    return ek_slot_heard(s, payload, (size_t)h->n);
}

/* p[0,n) is a whole head. NULL: the handshake is as it should be. */
static const char *judge_answer(struct ek_slot *s, char why[96], const char *p,
                                size_t n)
{
    struct ek_http1_message m;
    char accept[29];
    if (ek_http1_read_answer(&m, p, n, false, true)) {
        snprintf(why, 96, "the handshake was answered with what is not HTTP: %.40s",
                 m.reason);
        return why;
    }
    if (m.head.status != 101) {
        snprintf(why, 96, "the handshake was answered with status %d", m.head.status);
        return why;
    }
    if (ek_websocket_accept(accept, s->key, strlen(s->key)))
        return "out of memory";
    if (!ek_text_equal(m.websocket_accept, ek_text_of(accept, strlen(accept))))
        return "the handshake was answered with a wrong Sec-WebSocket-Accept";
    return NULL;
}

/* Scratch holds n new bytes of the answer. */
static void read_answer(struct ek_slot *s, size_t n)
{
    struct ek_sessions *run = s->run;
    size_t from = 0;
    bool is_bad = false;
    char why[96];
    if (ek_buf_add(&s->out, run->scratch, n)) {
        fail(s, "the handshake was answered with a head without an end");
        return;
    }
    size_t n_head = ek_http1_find_end(s->out.data, s->out.len, &from, &is_bad);
    if (is_bad) {
        fail(s, "the handshake was answered with what is not HTTP");
        return;
    }
    if (n_head == 0)
        return;
    const char *wrong = judge_answer(s, why, s->out.data, n_head);
    size_t n_more = s->out.len - n_head;
    memcpy(run->scratch, s->out.data + n_head, n_more);
    ek_buf_release(&s->out);
    s->step = EK_WS_TALKS;
    s->reader = (struct ek_ws_reader){
        .max = EK_SESSIONS_FRAME_MAX, .on_frame = on_frame, .owner = s};
    int rc = wrong || !n_more ? 0 : ek_ws_reader_feed(&s->reader, run->scratch, n_more);
    if (wrong || rc)
        fail(s, wrong ? wrong : sentence(rc));
    else
        ek_slot_opened(s); /* may be another session now */
}

static void on_readable(struct ek_slot *s)
{
    struct ek_sessions *run = s->run;
    for (;;) {
        bool is_answer = s->step == EK_WS_SHAKES;
        size_t cap = is_answer ? ANSWER_MAX : EK_SESSIONS_SCRATCH, n = 0;
        int want = 0;
        int rc = ek_sock_read(&s->sock, run->scratch, cap, &n, &want);
        if (rc == EK_EAGAIN)
            return;
        if (!rc && is_answer) {
            read_answer(s, n);
            return; /* more is told by the loop, but what TLS holds */
        }
        if (!rc)
            rc = ek_ws_reader_feed(&s->reader, run->scratch, n);
        if (rc) {
            fail(s, sentence(rc));
            return;
        }
        if (n < cap && !(s->sock.tls && ek_tls_has_pending(s->sock.tls)))
            return;
    }
}

/* Opening ------------------------------------------------------------------ */

static void ask(struct ek_slot *s)
{
    char text[1024];
    int n = snprintf(text, sizeof text,
                     "GET %.400s HTTP/1.1\r\nHost: %.300s\r\nUpgrade: websocket\r\n"
                     "Connection: Upgrade\r\nSec-WebSocket-Key: %s\r\n"
                     "Sec-WebSocket-Version: 13\r\n\r\n",
                     s->run->o->path, s->run->authority, s->key);
    size_t sent = 0;
    int want = 0;
    int rc = ek_sock_write(&s->sock, text, (size_t)n, &sent, &want);
    if (rc || sent != (size_t)n || ek_watch_change(&s->watch, EK_READABLE)) {
        fail(s, "the handshake could not be sent");
        return;
    }
    ek_buf_init(&s->out, 2 * ANSWER_MAX);
    s->step = EK_WS_SHAKES;
}

static void shake_tls(struct ek_slot *s)
{
    int want = 0;
    int rc = ek_tls_handshake(s->sock.tls, &want);
    if (!rc)
        ask(s);
    else if (rc != EK_EAGAIN || ek_watch_change(&s->watch, want))
        fail(s, "the TLS handshake failed");
}

static void on_connected(struct ek_slot *s)
{
    struct ek_sessions *run = s->run;
    char why[96];
    int code = 0;
    socklen_t n = sizeof code;
    getsockopt(s->sock.fd, SOL_SOCKET, SO_ERROR, &code, &n);
    if (code) {
        snprintf(why, sizeof why, "cannot connect: %.60s", strerror(code));
        fail(s, why);
        return;
    }
    if (!run->tls) {
        ask(s);
        return;
    }
    if (ek_tls_connect_new(&s->sock.tls, run->tls, s->sock.fd, run->host)) {
        fail(s, "out of memory");
        return;
    }
    s->step = EK_WS_TLS;
    shake_tls(s);
}

static void on_ready(struct ek_watch *w, int events)
{
    struct ek_slot *s = w->owner;
    if (s->step == EK_WS_CONNECTS) {
        on_connected(s);
        return;
    }
    if (s->step == EK_WS_TLS) {
        shake_tls(s);
        return;
    }
    int rc = s->step == EK_WS_TALKS && s->out.len > 0 && events & EK_WRITABLE
                 ? send_rest(s)
                 : 0;
    if (rc)
        fail(s, sentence(rc));
    else if (events & (EK_READABLE | EK_HANGUP))
        on_readable(s);
}

static int start(struct ek_slot *s)
{
    int fd;
    int rc = ek_websocket_key(s->key);
    if (!rc)
        rc = ek_address_connect(&fd, &s->run->address, false);
    if (rc)
        return rc;
    ek_sock_send_at_once(fd);
    s->sock = (struct ek_sock){.fd = fd};
    s->step = EK_WS_CONNECTS;
    s->watch = (struct ek_watch){.fd = fd, .on_ready = on_ready, .owner = s};
    rc = ek_watch_start(s->run->loop, &s->watch, EK_WRITABLE);
    if (rc)
        ek_sock_close(&s->sock, false);
    return rc;
}

/* A close frame would be one more for a proxy to pass on: the connection ends. */
static void end(struct ek_slot *s)
{
    close_up(s);
    ek_slot_ended(s, NULL);
}

const struct ek_talk ek_talk_websocket = {
    .start = start, .say = say, .end = end, .drop = close_up};
