/* relay.h - one session: its halves, its placement, its figures. half.h is the seam.
 *
 *   begin ──> PLACING ──> OPENING ──────> OPEN ──────────────> over: one way out,
 *               │  ^        │  head kept    answer's head       which gives the placement
 *            queue └─retry──┘               passed on           back and writes the log
 */
#ifndef EVENKEEL_ROUTE_RELAY_H
#define EVENKEEL_ROUTE_RELAY_H

#include "base/buf.h"
#include "net/http1_message.h"
#include "route/reactor.h"

enum ek_relay_state {
    EK_RELAY_WAITING, /* in the queue */
    EK_RELAY_OPENING, /* has a placement; the answer's head is awaited */
    EK_RELAY_OPEN,    /* the answer's head was passed on */
    EK_RELAY_OVER,
};

/* What is kept of a gRPC request's body to be said again; its buffer grows by need. */
enum { EK_RELAY_KEPT_BYTES = 16384 };

/* A request until it is answered: one block, strings behind it. */
struct ek_route_request {
    struct ek_head head; /* as the backend gets it */
    bool is_last;        /* it has no body */
    bool is_idempotent;  /* RFC 9110 9.2.2 */
    bool is_grpc;
    uint64_t key;              /* of policy hash */
    char websocket_key[25];    /* "": no WebSocket, or none came (RFC 8441) */
    char websocket_accept[29]; /* the answer to it */
    int32_t tried[EK_TRIED_MAX];
    int n_tried;
    int64_t turn;       /* of the backend's addresses, when it was connected to */
    size_t n_addresses; /* of the backend under way that could not be connected to */
    struct ek_field *fields;
    struct ek_buf kept; /* gRPC: all of its body that was passed on; owned */
};

struct ek_relay {
    struct ek_half *front,
        *back; /* NULL: let go; borrowed, their connections own them */
    struct ek_reactor *reactor;
    struct ek_link link;    /* of reactor->sessions */
    struct ek_link waiting; /* of reactor->queue, or alone */
    struct ek_timer timer;  /* queue, log, age; always started */
    struct ek_task end;     /* frees it */
    struct ek_placement placement;
    struct ek_route_request *request; /* owned; NULL once it was answered */
    struct ek_relay_ws *ws; /* owned; NULL: frames are not followed (relay_ws.c) */
    uint64_t id;
    uint64_t bytes_up, bytes_down; /* from the client, from the backend */
    int64_t begun_us;
    int64_t log_us;  /* when the next record is due */
    int64_t over_us; /* when it is too old; INT64_MAX: never */
    int64_t seen_us; /* last byte, either way */
    uint8_t state;   /* enum ek_relay_state */
    bool is_websocket, is_grpc;
    bool has_body;    /* of the request's body was passed on what is not kept */
    bool is_flowing;  /* the front was told to go on: it does not stop for a queue */
    bool front_ended; /* the request is whole */
    bool back_ended;  /* the answer is whole */
    bool is_connected;
    bool is_reused; /* its connection to the backend served another session before */
    int16_t status; /* of the answer; 0: none */
    uint32_t interim_bytes; /* of interim heads that were passed on */
};

/* Ends every session of the reactor: a drain's deadline. WebSockets whose frames are
 * followed are told by a Close first, and end when it was answered or a while later. */
void ek_relay_close_all(struct ek_reactor *w);
/* Likewise, all of them now. */
void ek_relay_end_all(struct ek_reactor *w);
/* Ends those of backends whose time to finish is over. */
void ek_relay_end_removed(struct ek_reactor *w);
/* Looks whether those who wait find room now. */
void ek_relay_serve_queue(struct ek_reactor *w);

/* Says to s->back, which was given the head, what the one before it had heard of the
 * body. Errors: EK_ENOMEM, EK_ECLOSED. */
int ek_relay_say_again(struct ek_relay *s) EK_MUST_USE;

/* relay_request.c */
/* A copy of `head` as a backend gets it. Errors: EK_ENOMEM, EK_EIO (no randomness). */
int ek_route_request_new(struct ek_route_request **r, const struct ek_reactor *w,
                         const struct ek_head *head, bool is_last,
                         struct ek_text client) EK_MUST_USE;
void ek_route_request_free(struct ek_route_request *r); /* NULL is left alone */
/* *out is `head` as the client gets it; fields has room for one more than head has.
 * What the backend reports of its load there is taken. */
void ek_answer_for_client(struct ek_relay *s, struct ek_head *out,
                          struct ek_field *fields, const struct ek_head *head);
/* Is it a report of load? Then it was taken, and the client does not get it. */
bool ek_relay_takes_report(struct ek_relay *s, const struct ek_field *f);

/* relay_log.c */
void ek_relay_log_start(const struct ek_relay *s);
void ek_relay_log_minute(const struct ek_relay *s);
/* by: "client", "backend", "proxy". */
void ek_relay_log_end(const struct ek_relay *s, const char *by, const char *why);

#endif
