/* http1.h - an incremental, strict HTTP/1 request parser (RFC 9112) that knows nothing
 * of sockets: bytes go in, in pieces of any size, and the result does not depend on
 * where they were cut.
 *
 *            head complete,              body complete
 *   HEAD ------------------> BODY ------------------> DONE --reset--> HEAD
 *    |  \______________________|_____________________/^
 *    |        no body          |
 *    +-------> FAILED <--------+      (code, reason)
 *
 * Strict means that whatever two parsers could read in two ways is refused: bare CR or
 * LF, NUL and other control characters, obs-fold, space before a colon, Content-Length
 * twice or beside Transfer-Encoding, any coding that is not exactly "chunked".
 * Tolerated: one empty line before the request line, chunk extensions and trailers
 * (read, bounded, dropped).
 */
#ifndef EVENKEEL_NET_HTTP1_H
#define EVENKEEL_NET_HTTP1_H

#include "base/buf.h"
#include "net/http.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    EK_HTTP1_MAX_HEADERS = 100,     /* over it 431; browsers send about 20 */
    EK_HTTP1_MAX_LINE_BYTES = 8192, /* request line, over it 414; RFC 9112 3 asks for
                                        8000 at least */
    EK_HTTP1_MAX_EXTENSION_BYTES = 8192, /* chunk extensions of one body together */
    EK_HTTP1_MAX_KEPT_BYTES = 65536,     /* reset gives larger buffers back */
};

enum ek_http1_phase {
    EK_HTTP1_HEAD,
    EK_HTTP1_BODY,
    EK_HTTP1_DONE,
    EK_HTTP1_FAILED,
};

struct ek_http1 {
    enum ek_http1_phase phase;
    struct ek_http_request request; /* from BODY on; points into head and body */
    int minor;                      /* HTTP/1.minor, 0 or 1; from BODY on */
    bool is_head;                   /* the method is HEAD */
    bool is_keep_alive;             /* what version and Connection say together */
    bool expects_continue;          /* Expect: 100-continue, of an HTTP/1.1 client */
    int code;                       /* FAILED: status to answer; else 0 */
    const char *reason;             /* FAILED: sentence for the client, constant */

    /* private */
    int step;           /* place inside head or body, enum in http1.c */
    bool is_line_first; /* the head's first line is not over yet */
    bool is_chunked;
    uint64_t left;      /* bytes that the body or the chunk still lacks */
    int n_digits;       /* of this chunk size */
    size_t extra_bytes; /* extensions, then trailers, seen so far */
    size_t max_line;    /* ceiling of the request line */
    struct ek_buf head; /* request line and headers; NULs are put in at its end */
    struct ek_buf body; /* de-chunked */
    struct ek_http_header headers[EK_HTTP1_MAX_HEADERS];
};

/* Cannot fail; allocates nothing. */
void ek_http1_init(struct ek_http1 *p, size_t max_head_bytes, size_t max_body_bytes);
void ek_http1_release(struct ek_http1 *p);
void ek_http1_reset(struct ek_http1 *p); /* for the next request */

/* Reads p[0,n) as far as the request goes; *used bytes of it were taken (all, unless
 * DONE or FAILED came before). Called in HEAD or BODY only.
 * Errors: EK_ENOMEM (p may only be reset or released). A bad request is no error here:
 * the phase is FAILED then. */
int ek_http1_feed(struct ek_http1 *p, const char *data, size_t n,
                  size_t *used) EK_MUST_USE;

/* True before the first byte of a request. */
bool ek_http1_is_idle(const struct ek_http1 *p);

/* "Not Found" for 404; "Unknown" for a code outside the table of RFC 9110. */
const char *ek_http1_reason(int code);

/* A header name (RFC 9110 token), and a value without control characters. */
bool ek_http1_is_token(const char *s, size_t n);
bool ek_http1_is_value(const char *s, size_t n);

#endif
