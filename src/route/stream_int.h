/* stream_int.h - what stream.c (connections, ends), stream_in.c (what nghttp2's side
 * brings) and stream_out.c (ops of a half) share.
 *
 * A half is freed at the end of the turn in which both its session and its stream are
 * gone. Bytes that came and were not taken by the other half are not consumed: the
 * stream's window stays shut by as many.
 */
#ifndef EVENKEEL_ROUTE_STREAM_INT_H
#define EVENKEEL_ROUTE_STREAM_INT_H

#include "base/buf.h"
#include "net/h2.h"
#include "route/stream.h"

enum { EK_CLIENT_TEXT_MAX = 47 }; /* an IPv6 address and a NUL */

/* A connection: user of its struct ek_h2. */
struct ek_stream_conn {
    struct ek_link link; /* of streams->fronts, or of streams->backs[upstream] */
    struct ek_streams *streams;
    struct ek_h2 *h2;
    struct ek_link halves;  /* struct ek_stream_half.of_conn */
    int32_t upstream;       /* -1: a client's */
    uint32_t connection_id; /* of the upstream it was made for */
    bool is_ready;          /* a backend's: its SETTINGS came */
    bool has_first;         /* a half came: later ones share it */
    bool is_tls;
    char client[EK_CLIENT_TEXT_MAX];
};

struct ek_streams {
    struct ek_reactor *reactor;
    struct ek_h2_context *front, *back;
    struct ek_link fronts;
    struct ek_link *backs; /* (n_upstreams) */
};

struct ek_stream_half {
    struct ek_half half;    /* first: ek_half of ops is this */
    struct ek_link of_conn; /* of conn->halves */
    struct ek_stream_conn *conn;
    struct ek_h2_stream *stream;     /* NULL: not opened yet, or over */
    struct ek_buf early;             /* a request's body before the backend is there */
    struct ek_field *early_trailers; /* (n_early_trailers) and its trailers; owned, one
                                        block; NULL: none */
    size_t n_early_trailers;
    size_t n_held;      /* bytes passed on and not consumed */
    struct ek_task end; /* frees it */
    bool is_front;
    bool is_grpc;
    bool is_early;    /* front: no resume yet; what comes is kept in `early` */
    bool early_ended; /* and its end came, too */
    bool has_begun;   /* front: the answer's final head was sent */
    bool has_ended;   /* what goes out is whole */
    bool was_moved;   /* back: it was refused once by a connection that was leaving */
};

/* stream.c */
struct ek_stream_half *ek_stream_half_new(struct ek_stream_conn *c,
                                          struct ek_h2_stream *stream);
/* Frees h at the end of the turn if its session and its stream are gone. */
void ek_stream_half_let_go(struct ek_stream_half *h);
/* Has h's request sent on another connection to its upstream. */
int ek_stream_move(struct ek_stream_half *h) EK_MUST_USE;

/* stream_in.c */
extern const struct ek_h2_handler ek_stream_front_handler, ek_stream_back_handler;

/* stream_out.c. A backend's stream begins: its session's request is sent, now or once
 * the peer's SETTINGS say that it takes a WebSocket. */
int ek_stream_begin(struct ek_stream_half *h, const struct ek_head *head,
                    bool is_last) EK_MUST_USE;

#endif
