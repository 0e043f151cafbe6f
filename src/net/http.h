/* http.h - an HTTP server: HTTP/1.1 over TCP or TLS, requests whole, answers whole or
 * streamed. Strict parsing (RFC 9112): no obs-fold, no ambiguity between Content-Length
 * and Transfer-Encoding, no bare CR or LF.
 *
 * Owner thread: the loop's. A handler answers at once or keeps the exchange and answers
 * later from the same thread. One exchange a connection at a time; requests sent ahead
 * wait. No call here ever calls the handler back before it returns, but for
 * ek_http_server_free, which may therefore not be called from inside a handler.
 *
 * When a client leaves: a connection that fails, is reset, or whose client ends its
 * sending side (FIN) while the handler holds the exchange is closed in the same turn,
 * on_closed(is_aborted) being called. A client that half-closes and reads on is thus
 * given up too, unless it was answered before its FIN is looked at (a handler that
 * answers inside on_request always is in time); what is answered whole is still sent.
 */
#ifndef EVENKEEL_NET_HTTP_H
#define EVENKEEL_NET_HTTP_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "net/loop.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ek_http_header {
    const char *name;  /* lower case, NUL-terminated */
    const char *value; /* trimmed, NUL-terminated, without NUL or line ends inside */
};

struct ek_http_request {
    const char *method; /* GET HEAD POST PUT PATCH DELETE or OPTIONS; others got 501 */
    const char *path;   /* percent-decoded (%2F too), begins with '/', no NUL; dot
                           segments are not resolved: no path is a file here */
    const char *query;  /* raw, without '?'; "" when absent */
    const struct ek_http_header *headers;
    size_t n_headers;
    const char *body; /* whole, de-chunked */
    size_t body_n;
};

/* First header of that (lower case) name, or NULL. */
const char *ek_http_header_get(const struct ek_http_request *r, const char *name);

struct ek_http_limits {
    size_t max_head_bytes;   /* request line and headers: 32 KiB -> 431 */
    size_t max_body_bytes;   /* 8 MiB -> 413 */
    int32_t max_connections; /* 1024; over it, new ones are accepted and closed */
    int64_t head_timeout_us; /* from first byte to end of head: 10 s -> 408 */
    int64_t body_timeout_us; /* without a byte of the body: 30 s -> 408 */
    int64_t idle_timeout_us; /* without a request, new connections too: 75 s */
    int64_t send_timeout_us; /* no byte taken by a reader: 60 s -> closed */
    size_t max_unsent_bytes; /* of one exchange: 4 MiB; over it ek_http_send is
                                    EK_ELIMIT */
};
void ek_http_limits_default(struct ek_http_limits *l);

struct ek_tls;           /* net/tls.h */
struct ek_http_exchange; /* one request and its answer; valid until on_closed returns */

struct ek_http_handler {
    /* The request is whole. It stays readable until the exchange ends. */
    void (*on_request)(void *arg, struct ek_http_exchange *x);
    /* The exchange is over: answered whole, or the client left first (`is_aborted`).
     * Called exactly once for each on_request; nothing of x is used afterwards. */
    void (*on_closed)(void *arg, struct ek_http_exchange *x, bool is_aborted);
    void *arg;
    /* Body of the error answers the server makes itself (400, 408, 413, 414, 417, 431,
     * 501, 505): appended to `out`; reason is a sentence. NULL: plain text. These
     * answers close the connection, and no on_request or on_closed belongs to them. */
    int (*on_error_body)(void *arg, struct ek_buf *out, int code, const char *reason);
    const char *error_type; /* content type of those bodies */
    /* A new connection speaks HTTP/2, by prior knowledge (its 24 bytes in one piece) or
     * ALPN: fd and tls (NULL: plain) are the handler's from here on, p[0,n) was read
     * from it. NULL: such a client is refused. */
    void (*on_http2)(void *arg, int fd, struct ek_tls *tls, const char *p, size_t n);
};

const struct ek_http_request *ek_http_get_request(const struct ek_http_exchange *x);
void ek_http_set_user(struct ek_http_exchange *x, void *user);
void *ek_http_get_user(const struct ek_http_exchange *x);

/* Adds a header to the answer; before respond or begin. EK_ENOMEM; EK_ELIMIT over
 * 16 KiB together; EK_EINVAL: a control character in the value, a name that is no
 * token, or one the server writes itself (Content-Length, Transfer-Encoding,
 * Connection, Date). */
int ek_http_add_header(struct ek_http_exchange *x, const char *name,
                       const char *value) EK_MUST_USE;

/* The whole answer at once; code 200..599. HEAD sends the head alone; 204 and 304 have
 * no body. content_type may be NULL. EK_ENOMEM closes the connection (on_closed
 * follows); EK_ECLOSED after ek_http_abort or such a failure. */
int ek_http_respond(struct ek_http_exchange *x, int code, const char *content_type,
                    const void *body, size_t n) EK_MUST_USE;

/* A streamed answer: begin, send any number of times, end. Chunked to HTTP/1.1 clients,
 * until close to HTTP/1.0 ones. What is sent within one turn leaves together at its
 * end. send: EK_ELIMIT over max_unsent_bytes, nothing taken (the caller should give up:
 * ek_http_abort); EK_ECLOSED after an abort or failure, on_closed follows. */
int ek_http_begin(struct ek_http_exchange *x, int code,
                  const char *content_type) EK_MUST_USE;
int ek_http_send(struct ek_http_exchange *x, const void *p, size_t n) EK_MUST_USE;
int ek_http_end(struct ek_http_exchange *x) EK_MUST_USE;
/* Closes the connection at the end of this turn, calling on_closed(is_aborted). */
void ek_http_abort(struct ek_http_exchange *x);

struct ek_tls_context; /* net/tls.h */
struct ek_http_server;

/* listen: "HOST:PORT", "[::1]:8080", ":0" (all addresses, IPv6 and IPv4) or
 * "unix:PATH" (a socket file nobody listens on any more is replaced). tls is borrowed,
 * NULL: plain. Limits and handler are copied. Errors: EK_EINVAL, EK_EIO with the
 * address and the system's reason, EK_ENOMEM. */
int ek_http_server_new(struct ek_http_server **s, struct ek_loop *loop,
                       const char *listen, struct ek_tls_context *tls,
                       const struct ek_http_limits *limits,
                       const struct ek_http_handler *handler,
                       struct ek_err *err) EK_MUST_USE;

/* The listening socket: to be handed to another process. */
int ek_http_server_fd(const struct ek_http_server *s);
/* Its socket file, if it has one, is left there: another process listens at it. */
void ek_http_server_keep_path(struct ek_http_server *s);
/* "127.0.0.1:43817", "[::]:8080" or "unix:PATH": the address really bound. */
const char *ek_http_server_address(const struct ek_http_server *s);
/* Open connections, idle ones and those that only wait for the client's end included;
 * 0 after a drain means that everything is over. */
int32_t ek_http_server_connections(const struct ek_http_server *s);

/* Stops accepting and closes idle connections; exchanges under way go on with
 * "Connection: close". free closes everything at once (on_closed is called). */
void ek_http_server_drain(struct ek_http_server *s);
void ek_http_server_free(struct ek_http_server *s);

#endif
