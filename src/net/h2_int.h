/* h2_int.h - what the files of HTTP/2 share: h2.c (context, a connection's life),
 * h2_io.c (its socket and time), h2_recv.c (nghttp2's callbacks), h2_send.c (streams'
 * sending side), h2_head.c (heads to and from nghttp2's fields).
 *
 *   SHAKE -> OPEN -> CLOSING -> LINGER -> freed
 *   TLS              last frames   our side is shut, input is dropped: closing over
 *                                  unread bytes would lose the GOAWAY
 *
 * on_closed is called on leaving OPEN or CLOSING; from then on nobody outside knows c.
 *
 * A stream's sending side holds no item of nghttp2's while it has nothing to send: each
 * burst is one nghttp2_submit_data, which ends with the burst (EOF, NO_END_STREAM).
 */
#ifndef EVENKEEL_NET_H2_INT_H
#define EVENKEEL_NET_H2_INT_H

#include "base/buf.h"
#include "base/link.h"
#include "net/h2.h"

#include <nghttp2/nghttp2.h>

enum ek_h2_state { EK_H2_SHAKE, EK_H2_OPEN, EK_H2_CLOSING, EK_H2_LINGER };

/* A token bucket: `burst` at once, `rate` more a second. */
struct ek_h2_allowance {
    int64_t at_us; /* when all tokens will be there again */
};

enum {
    EK_H2_SCRATCH = 65536,
    EK_H2_KEPT_HEAD_BYTES = 2048, /* of the head buffer, between two heads */
    EK_H2_CONNECTION_WINDOW = 1 << 20,
    EK_H2_MORE_FIELDS = 16 /* over a full head: pseudo fields, and what a proxy adds */
};

struct ek_h2_context {
    struct ek_loop *loop;
    struct ek_h2_handler handler;
    struct ek_h2_options o;
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    struct ek_timer later; /* works off `soon`; always started */
    struct ek_link conns;
    struct ek_link soon;
    struct ek_h2_counts counts;
    size_t n_out; /* bytes of out */
    char in[EK_H2_SCRATCH];
    char out[EK_H2_SCRATCH]; /* frames of the connection that is being flushed */
    struct ek_field fields[EK_HEAD_MAX_FIELDS];            /* of the head told of */
    nghttp2_nv nv[EK_HEAD_MAX_FIELDS + EK_H2_MORE_FIELDS]; /* of the head sent */
};

/* A field of the head that is arriving, in head_bytes. */
struct ek_h2_slice {
    uint32_t at, name_n, value_n;
};

struct ek_h2 {
    struct ek_link all;  /* of context->conns */
    struct ek_link soon; /* of context->soon, or alone */
    struct ek_link streams;
    struct ek_h2_context *context;
    nghttp2_session *session;
    struct ek_tls *tls; /* owned; NULL: plain */
    struct ek_watch watch;
    struct ek_timer timer; /* always started, so that moving it cannot fail */
    void *user;
    enum ek_h2_state state;
    struct ek_buf out; /* what the socket did not take; data[0, n_sent) is sent */
    size_t n_sent;
    /* The head that is arriving; header blocks of a connection do not interleave. */
    struct ek_buf head_bytes;  /* names and values */
    struct ek_buf head_slices; /* struct ek_h2_slice, one a field */
    bool is_head_too_large;
    int32_t head_id;                   /* its stream */
    uint32_t next_id;                  /* server: over every id that a head came with */
    uint32_t skipped_from, skipped_to; /* the last ids that a client left out: [,) */
    /* Frames that came, as their heads say: nghttp2 does not tell of all (h2_io.c). */
    uint8_t scan[9]; /* [0,n_scan) of a frame's head */
    uint8_t n_scan;
    uint32_t scan_left; /* bytes until the next head; at first the preface */
    int64_t n_skipped;  /* DATA that came and that nghttp2 did not tell of, yet */
    int32_t n_streams;
    int32_t n_unsent;    /* streams with data to send */
    int64_t due_us;      /* what the timer is set to */
    int64_t state_us;    /* when this state began */
    int64_t idle_us;     /* since when there is no stream */
    int64_t head_us;     /* when the head that is arriving began; 0: none is */
    int64_t received_us; /* last byte */
    int64_t pinged_us;   /* PING without a byte since; 0: none */
    int64_t taken_us;    /* last byte taken by the socket, or out was empty */
    int64_t drain_us;    /* when the drain began */
    int64_t progress_us; /* last DATA that left, or none waited */
    struct ek_h2_allowance resets, frames;
    int read_wants, write_wants; /* they differ from the plain ones under TLS */
    const char *why;             /* of closing */
    bool is_server;
    bool is_ready;    /* the peer's SETTINGS came */
    bool is_goaway;   /* said or heard */
    bool has_reset;   /* RST_STREAM of ours left: frames behind it may still come */
    bool was_drained; /* by ek_h2_drain: once is enough */
    bool is_draining; /* ours: the second GOAWAY is due */
    bool is_driving;
    bool is_out_full;    /* a DATA frame did not fit into context->out */
    bool has_more_input; /* reading stopped for the others' sake */
    char *early;         /* what was read before c was made; NULL: nothing */
    size_t n_early;
    bool is_told; /* on_closed was called */
    bool is_mute; /* out of memory: not even a GOAWAY */
};

struct ek_h2_stream {
    struct ek_link all; /* of conn->streams */
    struct ek_h2 *conn;
    void *user;
    char *unsent;              /* data[n_out, n_unsent) is to send; NULL: nothing */
    struct ek_field *trailers; /* one block with what they point at; NULL: none */
    uint32_t n_unsent, n_out, cap;
    uint32_t n_trailers;
    int32_t id;
    uint32_t finish_code;   /* of ek_h2_finish */
    bool is_known : 1;      /* the handler was told of it and has not let go */
    bool has_head : 1;      /* a request's, or a final answer's, came */
    bool has_ended : 1;     /* the peer's side */
    bool is_open : 1;       /* HEADERS of ours were sent: DATA may be submitted */
    bool is_queued : 1;     /* nghttp2 has a DATA item of it */
    bool is_waiting : 1;    /* ek_h2_send said EK_EAGAIN */
    bool is_ending : 1;     /* no more data is to come */
    bool is_ended : 1;      /* END_STREAM of ours was sent */
    bool is_finished : 1;   /* reset with finish_code after that */
    bool is_burst_over : 1; /* nghttp2's DATA item ends with the frame being sent */
    bool are_trailers_queued : 1;
    bool has_answered : 1;  /* a server's final head was given to nghttp2 */
    bool is_websocket : 1;  /* the request was */
    bool is_reset_ours : 1; /* the caller's reset, not nghttp2's */
    bool was_reset : 1;
    bool is_refused : 1;
};

/* h2.c */
void ek_h2_soon(struct ek_h2 *c); /* has it driven in this turn */
/* Says GOAWAY and closes; the first reason counts. counter may be NULL. */
void ek_h2_fail(struct ek_h2 *c, uint32_t code, const char *why,
                struct ek_counter *counter);
void ek_h2_stream_free(struct ek_h2_stream *s);
struct ek_h2_stream *ek_h2_stream_new(struct ek_h2 *c);
/* Tells the handler if it knows s, and frees it. */
void ek_h2_stream_over(struct ek_h2_stream *s, const struct ek_h2_end *e);

/* Tells the handler that all streams and c are over, once. */
void ek_h2_tell_closed(struct ek_h2 *c, const char *why);
void ek_h2_free(struct ek_h2 *c); /* closes at once */

/* h2_io.c. drive: goes on as far as it can without waiting; c may be gone after it. */
void ek_h2_drive(struct ek_h2 *c, bool can_read);
void ek_h2_on_ready(struct ek_watch *w, int events);
void ek_h2_on_time(struct ek_timer *t);
void ek_h2_move_timer(struct ek_h2 *c);
/* True when one more is allowed. */
bool ek_h2_allow(struct ek_h2_allowance *a, int64_t now_us, uint32_t burst,
                 uint32_t rate);

/* h2_recv.c */
void ek_h2_set_callbacks(nghttp2_session_callbacks *cb);

/* h2_send.c: nghttp2's callbacks of the sending side, and a stream's next burst. */
int ek_h2_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head,
                    size_t n, nghttp2_data_source *source, void *user_data);
void ek_h2_after_sent(struct ek_h2 *c, const nghttp2_frame *frame);
int ek_h2_queue(struct ek_h2_stream *s);

/* h2_head.c. begin, add, then one of the two. */
void ek_h2_head_begin(struct ek_h2 *c);
int ek_h2_head_add(struct ek_h2 *c, nghttp2_vec name, nghttp2_vec value);
/* The fields arrived, in context->fields; false: they contradict each other. */
bool ek_h2_head_read(struct ek_h2 *c, struct ek_head *h, bool *is_unsupported);
size_t ek_h2_trailers_read(struct ek_h2 *c);
void ek_h2_head_end(struct ek_h2 *c);
/* context->nv filled; how many. */
size_t ek_h2_nv_request(struct ek_h2_context *x, const struct ek_head *h);
size_t ek_h2_nv_answer(struct ek_h2_context *x, const struct ek_head *h,
                       char status[4]);
size_t ek_h2_nv_fields(struct ek_h2_context *x, size_t at, const struct ek_field *f,
                       size_t n);

#endif
