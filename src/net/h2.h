/* h2.h - HTTP/2 connections (RFC 9113), server's and client's end, by nghttp2 over a
 * loop's descriptors, plain or TLS. docs/design/h2.md.
 *
 * What arrives comes through a handler; what is sent is kept and leaves at the end of
 * the turn of the loop, all connections' together. No ek_h2_* call here calls the
 * handler back before it returns, but ek_h2_context_free, which may not be called from
 * inside one. Every call may be made from inside any handler function.
 *
 * Flow control is the caller's: a stream's window opens by what ek_h2_consume is told,
 * so a source is never faster than its sink. The connection's window is given back at
 * once: a stream that waits holds up no other; what a peer can make us hold is
 * max_streams * window_bytes.
 *
 * Owner thread: the loop's.
 */
#ifndef EVENKEEL_NET_H2_H
#define EVENKEEL_NET_H2_H

#include "base/counter.h"
#include "base/err.h"
#include "net/loop.h"
#include "net/message.h"
#include "net/tls.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ek_h2_context; /* what the connections of one loop share */
struct ek_h2;         /* one connection; frees itself after on_closed */
struct ek_h2_stream;  /* one stream; gone after on_stream_closed or ek_h2_reset */

/* RFC 9113 7. */
enum ek_h2_code {
    EK_H2_NO_ERROR = 0x0,
    EK_H2_PROTOCOL_ERROR = 0x1,
    EK_H2_INTERNAL_ERROR = 0x2,
    EK_H2_FLOW_CONTROL_ERROR = 0x3,
    EK_H2_SETTINGS_TIMEOUT = 0x4,
    EK_H2_STREAM_CLOSED = 0x5,
    EK_H2_FRAME_SIZE_ERROR = 0x6,
    EK_H2_REFUSED_STREAM = 0x7,
    EK_H2_CANCEL = 0x8,
    EK_H2_COMPRESSION_ERROR = 0x9,
    EK_H2_CONNECT_ERROR = 0xa,
    EK_H2_ENHANCE_YOUR_CALM = 0xb,
    EK_H2_INADEQUATE_SECURITY = 0xc,
    EK_H2_HTTP_1_1_REQUIRED = 0xd,
};

struct ek_h2_options {
    uint32_t max_streams;      /* of a peer at once; 1000: over it REFUSED_STREAM */
    uint32_t window_bytes;     /* of a stream; 65535 */
    uint32_t max_head_bytes;   /* a head's or trailers' names and values; 32 KiB: 431, a
                                client's stream is reset; EK_HEAD_MAX_FIELDS likewise */
    size_t max_unsent_bytes;   /* kept for one stream; 1 MiB: ek_h2_send is EK_ELIMIT */
    bool has_connect_protocol; /* a server tells that it takes RFC 8441; true */
    int64_t handshake_timeout_us; /* TLS and the peer's SETTINGS; 10 s */
    int64_t head_timeout_us;      /* a head, from its first byte; 10 s */
    int64_t idle_timeout_us;      /* a connection without streams; 75 s; 0: none */
    int64_t send_timeout_us;      /* no byte taken by the socket; 60 s */
    int64_t stall_timeout_us; /* data waits and no window is opened; 60 s; 0: none */
    int64_t ping_interval_us; /* PING after such a silence, while streams are open: a
                                 peer may punish others; 0: none */
    int64_t ping_timeout_us;  /* for any byte after it; 20 s */
    int64_t drain_us; /* a server's: from ek_h2_drain to the GOAWAY that names the
                                 last stream, for requests that are under way; 1 s */
    /* Allowances of a connection: so many at once, the second figure more a second.
     * Past them the peer is told ENHANCE_YOUR_CALM and the connection closed. */
    uint32_t reset_burst, reset_rate; /* streams that a client resets, or makes us reset
                                         by breaking the protocol; 1500 (a
                                         client may cancel all it has at once), 50 */
    uint32_t frame_burst, frame_rate; /* PING, SETTINGS, PRIORITY and empty DATA
                                         frames; 1000, 200 */
};
void ek_h2_options_default(struct ek_h2_options *o);

/* X(name, help): what was counted, for metrics; of all connections of a context. */
#define EK_H2_COUNT_TABLE(X)                                                           \
    X(connections, "connections of HTTP/2")                                            \
    X(streams, "streams begun")                                                        \
    X(closed_data, "DATA frames for streams that were over, skipped")                  \
    X(refused_streams, "streams over the limit, or while draining")                    \
    X(malformed, "streams reset because their frames broke the rules")                 \
    X(oversized_heads, "heads over the limit")                                         \
    X(protocol_errors, "connections closed because the peer broke HTTP/2")             \
    X(reset_floods, "connections closed for resets, or resets provoked from us")       \
    X(frame_floods, "connections closed for PING, SETTINGS, empty or unread frames")   \
    X(continuation_floods, "connections closed for heads in too many frames")          \
    X(stalls, "connections closed: no window, or no byte taken in time")               \
    X(ping_timeouts, "connections closed: a PING was not answered")                    \
    X(late_heads, "connections closed: a head was not whole in time")

/* Kept by the loop's thread, read by any. */
struct ek_h2_counts {
#define X(name, help) struct ek_counter name;
    EK_H2_COUNT_TABLE(X)
#undef X
};

/* How a stream ended. */
struct ek_h2_end {
    uint32_t code;   /* of RST_STREAM; NO_ERROR when both sides ended */
    bool was_reset;  /* by RST_STREAM of either side: NO_ERROR may be its code */
    bool is_refused; /* a client's: the peer looked at nothing of it (REFUSED_STREAM,
                        GOAWAY with a lower id, never sent): safe to try elsewhere */
    bool is_lost;    /* the connection broke */
    const char *why; /* is_lost: why this side gave it up; NULL: the peer left */
};

struct ek_h2_handler {
    /* A request (server; the stream is new, its user NULL) or an answer (client;
     * interim ones, 1xx, before it). is_last: nothing follows. An RFC 8441 request has
     * is_websocket; what else is CONNECT was refused. */
    void (*on_head)(struct ek_h2_stream *s, const struct ek_head *h, bool is_last);
    void (*on_data)(struct ek_h2_stream *s, const char *p, size_t n); /* n >= 1 */
    /* The peer's side ended, with trailers or n 0 without. */
    void (*on_end)(struct ek_h2_stream *s, const struct ek_field *trailers, size_t n);
    /* All that ek_h2_send kept when it said EK_EAGAIN has been sent. */
    void (*on_drained)(struct ek_h2_stream *s);
    /* Once for each stream that ek_h2_reset did not end. A stream of which no on_head
     * came is not told of. */
    void (*on_stream_closed)(struct ek_h2_stream *s, const struct ek_h2_end *e);
    /* The peer's SETTINGS, a GOAWAY or room for streams arrived: ek_h2_can_open may say
     * otherwise. May be NULL. */
    void (*on_change)(struct ek_h2 *c);
    /* Nothing of c is used afterwards; its streams were told before. why: a sentence,
     * or "" for an orderly end. */
    void (*on_closed)(struct ek_h2 *c, const char *why);
};

/* Handler and options are copied. Errors: EK_ENOMEM. */
int ek_h2_context_new(struct ek_h2_context **x, struct ek_loop *loop,
                      const struct ek_h2_handler *handler,
                      const struct ek_h2_options *o) EK_MUST_USE;
/* Closes every connection at once; on_stream_closed and on_closed are called. */
void ek_h2_context_free(struct ek_h2_context *x);
/* From now on, of connections that are there too, as far as it is asked for again. */
void ek_h2_context_set(struct ek_h2_context *x, const struct ek_h2_options *o);
const struct ek_h2_counts *ek_h2_context_counts(const struct ek_h2_context *x);

struct ek_h2_start {
    int fd; /* taken, also on failure; non-blocking, connected or about to */
    struct ek_tls *tls; /* taken likewise; its handshake may be to come; NULL: plain */
    bool is_server;
    const char *bytes; /* what was already read from it */
    size_t n_bytes;
    void *user;
};
/* Errors: EK_ENOMEM, EK_EIO; nothing is called back then. */
int ek_h2_new(struct ek_h2 **c, struct ek_h2_context *x,
              const struct ek_h2_start *start) EK_MUST_USE;

/* Connection preface of a client, in clear: 24 bytes. */
#define EK_H2_PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

void *ek_h2_get_user(const struct ek_h2 *c);
struct ek_h2_context *ek_h2_get_context(const struct ek_h2 *c);
int ek_h2_get_fd(const struct ek_h2 *c);
int32_t ek_h2_streams(const struct ek_h2 *c); /* open ones */
/* Client: a stream could be opened now: the peer's limit, no GOAWAY, not closing. */
bool ek_h2_can_open(const struct ek_h2 *c);
/* The peer's SETTINGS arrived; before, has_connect is not known. */
bool ek_h2_is_ready(const struct ek_h2 *c);
bool ek_h2_has_connect(const struct ek_h2 *c); /* the peer takes RFC 8441 */
bool ek_h2_is_leaving(const struct ek_h2 *c);  /* GOAWAY was said or heard */

/* GOAWAY; streams under way go on, then the connection closes. A server takes new ones
 * for drain_us still (RFC 9113 6.8). Again: nothing. */
void ek_h2_drain(struct ek_h2 *c);
/* GOAWAY with this code, what is queued is sent if the socket takes it, and the
 * connection closed at the end of the turn. */
void ek_h2_close(struct ek_h2 *c, enum ek_h2_code code, const char *why);

/* ---- Streams ---- */

struct ek_h2 *ek_h2_connection(const struct ek_h2_stream *s);
int32_t ek_h2_stream_id(const struct ek_h2_stream *s);
void ek_h2_set_user_of(struct ek_h2_stream *s, void *user);
void *ek_h2_user_of(const struct ek_h2_stream *s);

/* Client: a request. It and an answer have EK_HEAD_MAX_FIELDS and 8 fields at most;
 * those that HTTP/2 forbids are left out. A WebSocket's (is_websocket) is said as RFC
 * 8441 does. Errors: EK_EBUSY (can_open is false), EK_EUNSUP (a WebSocket, and the peer
 * does not take it), EK_ENOMEM. */
int ek_h2_open(struct ek_h2_stream **s, struct ek_h2 *c, const struct ek_head *h,
               bool is_last, void *user) EK_MUST_USE;

/* Of the calls below, errors: EK_ENOMEM (reset the stream), EK_ECLOSED (its sending
 * side is over; on_stream_closed follows or came). */

/* Server: an answer, after any number of interim ones (1xx, never is_last). A 101 is
 * the 200 that RFC 8441 wants. */
int ek_h2_answer(struct ek_h2_stream *s, const struct ek_head *h,
                 bool is_last) EK_MUST_USE;
/* Takes all n bytes. EK_EAGAIN: they are kept and cannot all leave with this turn, the
 * caller should wait for on_drained. EK_ELIMIT: over max_unsent_bytes, not taken. */
int ek_h2_send(struct ek_h2_stream *s, const char *p, size_t n) EK_MUST_USE;
int ek_h2_send_trailers(struct ek_h2_stream *s, const struct ek_field *f,
                        size_t n) EK_MUST_USE;
int ek_h2_send_end(struct ek_h2_stream *s) EK_MUST_USE;
/* n bytes of on_data are done with: the peer may send as many more. */
void ek_h2_consume(struct ek_h2_stream *s, size_t n);
/* The stream ends now, unsent data is dropped; s is gone. */
void ek_h2_reset(struct ek_h2_stream *s, uint32_t code);
/* s is gone for the caller; what it took is still sent. A stream whose sending side was
 * ended is reset with this code after that if the peer has not ended its own; one whose
 * was not, now. */
void ek_h2_finish(struct ek_h2_stream *s, uint32_t code);

#endif
