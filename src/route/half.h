/* half.h - a session of the proxy is two halves, and this is all they know of each
 * other:
 *
 *      client <──> front half <──> relay <──> back half <──> backend
 *                  HTTP/1.1                   HTTP/1.1
 *                  WebSocket tunnel           WebSocket tunnel
 *                  stream of HTTP/2           stream of HTTP/2
 *
 * A half is a source (what its connection brings goes to ek_relay_*) and a sink (its
 * ops write what the other half brought). Any front goes with any back, because between
 * them there is only: head, body bytes, trailers, end, reset, and "wait" / "go on".
 *
 * A direction is: head (an answer may have interim 1xx heads before it) -> body* ->
 * trailers or end. The two directions end independently (half-close). After the head
 * of a WebSocket (message.h, is_websocket with status 101) body bytes are frames of
 * RFC 6455, in both directions, and no half looks into them.
 *
 * Flow control. A sink takes all it is given. What it cannot send at once it keeps and
 * answers EK_EAGAIN; its source then stops reading at once and hands over no more than
 * its protocol lets the peer still send (HTTP/1: nothing; HTTP/2: the window), until
 * resume. So a direction holds one read or one window, however slow its reader is, and
 * nothing while both sides keep up.
 *
 * Lifetime. A half belongs to its connection, the session to the relay. detach and
 * reset are the last calls a half gets; it sets half->session NULL first in both. Every
 * ek_relay_* call may end the session: after it a source looks whether half->session is
 * still there. Memory of a half stays readable until the end of the turn of its loop.
 *
 * Owner thread: the reactor's loop, one for both halves.
 */
#ifndef EVENKEEL_ROUTE_HALF_H
#define EVENKEEL_ROUTE_HALF_H

#include "base/status.h"
#include "net/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Why a direction broke off: the codes of RFC 9113 7, passed through unchanged between
 * two halves of HTTP/2. The ones with a meaning to the relay: */
enum {
    EK_RESET_NO_ERROR = 0x0, /* from a backend, after its answer: the rest of the
                                 request is not wanted */
    EK_RESET_PROTOCOL = 0x1, /* the peer broke its protocol */
    EK_RESET_INTERNAL = 0x2, /* ours: out of memory */
    EK_RESET_REFUSED = 0x7,  /* nothing of the request was looked at: another backend
                                 may have it (also: not connected) */
    EK_RESET_CANCEL = 0x8,   /* the peer left */
    EK_RESET_CONNECT = 0xa,  /* a tunnel's connection failed */
    EK_RESET_CALM = 0xb,     /* ENHANCE_YOUR_CALM */
};

struct ek_half;
struct ek_relay; /* one session; relay.h */

/* An answer of the proxy's own, before the backend's head. */
struct ek_refusal {
    int status;             /* 400, 413, 502, 503, 504; a gRPC stream says it in
                               trailers */
    int64_t retry_after_ms; /* with jitter; 0: not said */
    const char *why;        /* a sentence for the client; constant */
};

/* What a half does when told. int: 0, EK_EAGAIN as above (body alone), other codes: it
 * cannot go on (EK_ENOMEM, EK_ECLOSED), and the relay will reset both. Nothing here may
 * call ek_relay_* before it returns, but drained. */
struct ek_half_ops {
    /* A back half gets a request, a front half an answer. is_last: neither body nor
     * trailers. The head is readable during the call only. */
    int (*head)(struct ek_half *h, const struct ek_head *head, bool is_last);
    int (*body)(struct ek_half *h, const char *p, size_t n);
    int (*trailers)(struct ek_half *h, const struct ek_field *fields, size_t n);
    int (*end)(struct ek_half *h);
    /* The other half's sink has room again (sources stopped by EK_EAGAIN), or, for a
     * front half, the backend is there: go on with the body. */
    void (*resume)(struct ek_half *h);
    /* Front halves alone, before head: the last thing said. */
    void (*refuse)(struct ek_half *h, const struct ek_refusal *r);
    /* The session broke: tell the peer as the protocol can. */
    void (*reset)(struct ek_half *h, uint32_t code);
    /* The session is over, both directions of this half may be whole or not; what was
     * taken is still sent, the connection may serve another session. */
    void (*detach)(struct ek_half *h);
};

struct ek_half {
    const struct ek_half_ops *ops;
    struct ek_relay *session; /* borrowed; NULL: in none */
    /* A back half's, when it is lost before it was connected: */
    bool is_shared; /* another half says so to the pool, or this one has: one failure is
                       one, however many waited for that connection */
    bool is_ours;   /* the proxy let go of it: nothing against the backend */
};

/* A front half has a whole request head: a session begins, front->session is set. The
 * head is copied. client: the peer's address, "192.0.2.1" or "2001:db8::1". The front
 * reads no body before resume. It may be refused at once (ops->refuse inside the call,
 * front->session NULL after it). Cannot fail otherwise. */
struct ek_reactor;
void ek_relay_begin(struct ek_reactor *w, struct ek_half *front,
                    const struct ek_head *request, bool is_last, struct ek_text client);

/* What a source hands over. head: an answer's, from a back half; interim ones (1xx but
 * a WebSocket's 101) before it. */
void ek_relay_head(struct ek_half *from, const struct ek_head *head, bool is_last);
/* 0 or EK_EAGAIN: stop reading until resume. */
int ek_relay_body(struct ek_half *from, const char *p, size_t n);
void ek_relay_trailers(struct ek_half *from, const struct ek_field *fields, size_t n);
void ek_relay_end(struct ek_half *from);
/* The connection or stream broke: both halves are let go (from gets no more calls). */
void ek_relay_reset(struct ek_half *from, uint32_t code);
/* Likewise, with what the log says of it: constant; NULL: that the peer left. */
void ek_relay_lost(struct ek_half *from, uint32_t code, const char *why);
/* A sink that answered EK_EAGAIN has sent what it kept. */
void ek_relay_drained(struct ek_half *from);
/* A back half reached its backend: the front may send its body. */
void ek_relay_connected(struct ek_half *from);

#endif
