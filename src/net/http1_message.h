/* http1_message.h - HTTP/1.1 messages for who passes them on (RFC 9112): heads of
 * requests and of answers, bodies as they stream, and the same written again.
 *
 * Unlike http1.h nothing is kept: a head is understood where it was read, a body's bytes
 * are pointed at. As there, what two parsers could read in two ways is refused: bare CR
 * or LF, control characters, obs-fold, space before a colon, two lengths, any coding
 * that is not exactly "chunked", and in requests chunk extensions.
 *
 * Threads: any. Nothing here fails for lack of memory unless it says so.
 */
#ifndef EVENKEEL_NET_HTTP1_MESSAGE_H
#define EVENKEEL_NET_HTTP1_MESSAGE_H

#include "base/buf.h"
#include "net/message.h"

/* Looks for the end of a head in p[0,n), from *from, which is 0 at first and then what
 * the last call left there. Returns the head's length with its empty line, 0: not there
 * yet. *is_bad: a line that is not ended by CR LF, however many bytes follow. One empty
 * line before the head is part of it. */
size_t ek_http1_find_end(const char *p, size_t n, size_t *from, bool *is_bad);

enum ek_http1_framing {
    EK_HTTP1_NO_BODY,
    EK_HTTP1_SIZED,   /* Content-Length */
    EK_HTTP1_CHUNKED, /* Transfer-Encoding: chunked */
    EK_HTTP1_TO_END,  /* answers: until the connection ends */
    EK_HTTP1_TUNNEL,  /* after 101: bytes until the connection ends */
};

struct ek_http1_message {
    struct ek_head head; /* fields point to `fields`; only those end to end */
    int minor;           /* HTTP/1.minor, 0 or 1 */
    enum ek_http1_framing framing;
    bool is_keep_alive;              /* what version and Connection say */
    struct ek_text websocket_accept; /* of an answer */
    int code;                        /* why it was refused; else 0 */
    const char *reason;              /* the sentence for it, constant */
    struct ek_field fields[EK_HEAD_MAX_FIELDS];
};

/* p[0,n) is a head as find_end found it; m points into it, and the header values stay
 * as they are. Errors: EK_EFORMAT, m->code and m->reason say what to answer. */
int ek_http1_read_request(struct ek_http1_message *m, const char *p,
                          size_t n) EK_MUST_USE;

/* The answer to a request of that method that wanted a WebSocket or not. A 101 that
 * nobody asked for is refused. m->code is 502 on EK_EFORMAT. */
int ek_http1_read_answer(struct ek_http1_message *m, const char *p, size_t n,
                         bool is_head_method, bool wants_websocket) EK_MUST_USE;

/* A body as it streams. */
struct ek_http1_body {
    enum ek_http1_framing framing;
    bool is_request;    /* chunk extensions are refused */
    bool is_done;       /* the last byte was read */
    bool has_trailers;  /* the buffer below holds some */
    uint8_t step;       /* private: place inside the chunked form */
    uint8_t n_digits;   /* private */
    uint32_t n_extra;   /* private: bytes of extensions seen */
    uint64_t left;      /* bytes that the body or the chunk still lacks */
    struct ek_buf text; /* private: trailer lines; empty but at the end */
};

void ek_http1_body_init(struct ek_http1_body *b, const struct ek_http1_message *m);
void ek_http1_body_release(struct ek_http1_body *b);

/* Reads on in p[0,n): *used bytes of it were taken, *data (may be empty) are bytes of
 * the body in them. To be called until it used all or is_done.
 * Errors: EK_EFORMAT, EK_ELIMIT (trailers, extensions over 8 KiB), EK_ENOMEM. */
int ek_http1_body_feed(struct ek_http1_body *b, const char *p, size_t n, size_t *used,
                       struct ek_text *data) EK_MUST_USE;

/* Trailers of a body that is done, without those of framing. Returns their number.
 * They point into b. */
size_t ek_http1_body_trailers(const struct ek_http1_body *b,
                              struct ek_field fields[EK_HEAD_MAX_FIELDS]);

/* Writing. Errors: those of ek_buf_add. */

/* What the head says beside its fields. */
struct ek_http1_form {
    enum ek_http1_framing
        framing;                  /* SIZED: the length is among the fields. NO_BODY: "0"
                                      is written where a length must be */
    int minor;                    /* answers: the client's */
    bool is_keep_alive;           /* otherwise "Connection: close" */
    bool is_head_method;          /* answers: to HEAD, so the length is not "0" */
    const char *websocket_key;    /* request: 24 characters, NULL: no WebSocket */
    const char *websocket_accept; /* answer: 28 characters, likewise */
};

int ek_http1_write_request(struct ek_buf *out, const struct ek_head *h,
                           const struct ek_http1_form *f) EK_MUST_USE;
int ek_http1_write_answer(struct ek_buf *out, const struct ek_head *h,
                          const struct ek_http1_form *f) EK_MUST_USE;
/* The last chunk with its trailers, which may be none. */
int ek_http1_write_trailers(struct ek_buf *out, const struct ek_field *fields,
                            size_t n) EK_MUST_USE;

/* Sec-WebSocket-Accept of a key (RFC 6455 4.2.2): 28 characters and a NUL. Errors:
 * EK_ENOMEM. */
int ek_websocket_accept(char accept[29], const char *key, size_t n) EK_MUST_USE;
/* A key's form: base64 of 16 bytes. */
bool ek_websocket_is_key(struct ek_text key);
/* A fresh key: 24 characters and a NUL. Errors: EK_EIO (no randomness). */
int ek_websocket_key(char key[25]) EK_MUST_USE;

#endif
