/* h1_int.h - one connection of HTTP/1.1, to a client or to a backend, and the half of a
 * session that it carries; a WebSocket after its handshake is its last one.
 *
 *   client's                                 backend's
 *     HANDSHAKE (TLS)                          CONNECTING -> HANDSHAKE (TLS)
 *       v                                        v
 *     IDLE -> HEAD -> BODY -> DONE             IDLE <-> HEAD -> BODY -> DONE
 *       ^              (tunnel)  |               ^       (tunnel)         |
 *       +------ detach ----------+               +------ detach ---------+
 *                 \-> LINGER -> dead
 *
 * The state is that of what comes in; what goes out has out_framing and out_ended. `in`
 * holds received bytes that could not be handed over yet, `out` bytes the socket did
 * not take: both are empty, without memory, while nothing waits.
 * Files: h1.c (life), h1_in.c (what comes), h1_out.c (what goes).
 */
#ifndef EVENKEEL_ROUTE_H1_INT_H
#define EVENKEEL_ROUTE_H1_INT_H

#include "net/http1_message.h"
#include "net/sock.h"
#include "route/h1.h"

enum ek_h1_state {
    EK_H1_CONNECTING,
    EK_H1_HANDSHAKE,
    EK_H1_IDLE,
    EK_H1_HEAD,
    EK_H1_BODY,
    EK_H1_DONE,
    EK_H1_LINGER, /* our side is shut: what comes is dropped until the peer ends, as
                     closing over unread bytes would reset the connection */
    EK_H1_DEAD,
};

struct ek_h1 {
    struct ek_half half;
    struct ek_link link;  /* of reactor->conns */
    struct ek_link group; /* of reactor->idle[upstream], or alone */
    struct ek_reactor *reactor;
    struct ek_sock sock;
    struct ek_watch watch;
    struct ek_timer timer;     /* always started, so that moving it cannot fail */
    struct ek_task task;       /* goes on with `in`, flushes; in DEAD: frees */
    struct ek_http1_body body; /* of what comes in */
    struct ek_buf in;
    struct ek_buf out;
    size_t scanned;     /* of `in`: where the search for the head's end goes on */
    int32_t upstream;   /* a backend's: its index; -1: a client's */
    uint32_t address_n; /* 0: no address (a socket file), 4, 16 */
    union {
        unsigned char address[16]; /* a client's */
        uint32_t connection_id;    /* a backend's: of the upstream it was made for */
    };
    uint8_t state;       /* enum ek_h1_state */
    uint8_t out_framing; /* enum ek_http1_framing */
    uint8_t minor;       /* of the peer's message */
    uint8_t read_wants, write_wants;
    bool is_front;
    bool is_tls;
    bool is_paused;       /* the other half, or the backend, is not ready */
    bool is_head_method;  /* the request under way is HEAD */
    bool wants_websocket; /* the request under way asks for one */
    bool is_tunnel;
    bool has_begun; /* front: the answer's head was written */
    bool out_ended; /* the message that goes out is whole */
    bool out_shut;  /* and our side of the connection is ended */
    bool is_keep_alive;
    bool must_drain;    /* the sink said EK_EAGAIN: `drained` is owed */
    bool is_reused;     /* had a session before */
    bool must_tell;     /* back: `connected` is owed to the relay */
    bool sends_at_once; /* back: TCP_NODELAY is set; a client's inherits it */
};

#define EK_H1_NEVER_US (INT64_C(1) << 60)
/* What a peer has to end its side in once ours is shut. */
#define EK_H1_LINGER_US INT64_C(2000000)

static inline bool ek_h1_is_alive(const struct ek_h1 *h)
{
    return h->state != EK_H1_DEAD;
}

/* h1.c */
extern const struct ek_half_ops ek_h1_ops; /* h1_out.c */
/* Closes; h is freed at the end of the turn. Its session was told already. */
void ek_h1_kill(struct ek_h1 *h, bool is_reset);
/* The connection failed or broke HTTP: the session is told, then it is closed. */
void ek_h1_fail(struct ek_h1 *h, uint32_t code);
/* Likewise, its socket failed with that errno. */
void ek_h1_fail_socket(struct ek_h1 *h, int error);
/* Watches for what it can do now; one that cannot be watched has failed, which try
 * leaves to its caller (EK_EIO). What is not wanted any more is watched on until it
 * happens (is_exact): most times it is wanted again before, and a call is spared. */
void ek_h1_watch(struct ek_h1 *h);
int ek_h1_try_watch(struct ek_h1 *h, bool is_exact) EK_MUST_USE;
/* A new connection to a backend: sends `out` right away if it can. Errors: EK_ECLOSED
 * it could not be made, EK_EIO. */
int ek_h1_try_connect(struct ek_h1 *h) EK_MUST_USE;
/* A client's address, in text; without one it is empty. */
enum { EK_H1_CLIENT_BYTES = 46 };
struct ek_text ek_h1_client(const struct ek_h1 *h, char text[EK_H1_CLIENT_BYTES]);
/* A client's, before its first request: it speaks HTTP/2. p[0,n) was read from it. The
 * socket goes to stream.h, h dies. */
void ek_h1_become_h2(struct ek_h1 *h, const char *p, size_t n);
/* After a session, or never again: IDLE, or closed. */
void ek_h1_finish(struct ek_h1 *h);
void ek_h1_set_timer(struct ek_h1 *h, int64_t delay_us);

/* h1_in.c */
void ek_h1_read(struct ek_h1 *h);
/* Hands over what `in` holds, as far as it goes. */
void ek_h1_go_on(struct ek_h1 *h);
/* The peer ended its side. */
void ek_h1_input_ended(struct ek_h1 *h);

/* h1_out.c */
/* Sends what the socket takes; false: the connection failed (and h is told so). */
bool ek_h1_flush(struct ek_h1 *h);
/* A client's: an answer of our own, then the end. */
void ek_h1_answer(struct ek_h1 *h, const struct ek_refusal *r);

#endif
