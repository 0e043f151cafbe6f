/* http.h - an HTTP server: HTTP/1.1 over TCP or TLS, requests whole, answers whole or
 * streamed. Strict parsing (RFC 9112): no obs-fold, no ambiguity between Content-Length
 * and Transfer-Encoding, no bare CR or LF.
 *
 * Owner thread: the loop's. A handler answers at once or keeps the exchange and answers
 * later from the same thread.
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
    const char *method; /* "GET" */
    const char *path;   /* percent-decoded, begins with '/', no NUL */
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
    int64_t idle_timeout_us; /* keep-alive: 75 s */
    int64_t send_timeout_us; /* no byte taken by a reader: 60 s -> closed */
    size_t max_unsent_bytes; /* of one exchange: 4 MiB; over it ek_http_send is
                                    EK_ELIMIT */
};
void ek_http_limits_default(struct ek_http_limits *l);

struct ek_http_exchange; /* one request and its answer; valid until on_closed returns */

struct ek_http_handler {
    /* The request is whole. It stays readable until the exchange ends. */
    void (*on_request)(void *arg, struct ek_http_exchange *x);
    /* The exchange is over: answered whole, or the client left first (`is_aborted`).
     * Called exactly once for each on_request; nothing of x is used afterwards. */
    void (*on_closed)(void *arg, struct ek_http_exchange *x, bool is_aborted);
    void *arg;
    /* Body of the error answers the server makes itself (400, 408, 413, 431, 501...):
     * appended to `out`; NULL: plain text. */
    int (*on_error_body)(void *arg, struct ek_buf *out, int code, const char *reason);
    const char *error_type; /* content type of those bodies */
};

const struct ek_http_request *ek_http_get_request(const struct ek_http_exchange *x);
void ek_http_set_user(struct ek_http_exchange *x, void *user);
void *ek_http_get_user(const struct ek_http_exchange *x);

/* Adds a header to the answer; before respond or begin. EK_ENOMEM, EK_EINVAL (line end
 * in a value). */
int ek_http_add_header(struct ek_http_exchange *x, const char *name,
                       const char *value) EK_MUST_USE;

/* The whole answer at once. HEAD sends the head alone. EK_ENOMEM closes the connection. */
int ek_http_respond(struct ek_http_exchange *x, int code, const char *content_type,
                    const void *body, size_t n) EK_MUST_USE;

/* A streamed answer: begin, send any number of times, end. Chunked to HTTP/1.1 clients,
 * until close to HTTP/1.0 ones. send: EK_ELIMIT over max_unsent_bytes (the caller should
 * give up: ek_http_abort), EK_ECLOSED after the client left. */
int ek_http_begin(struct ek_http_exchange *x, int code,
                  const char *content_type) EK_MUST_USE;
int ek_http_send(struct ek_http_exchange *x, const void *p, size_t n) EK_MUST_USE;
int ek_http_end(struct ek_http_exchange *x) EK_MUST_USE;
void ek_http_abort(struct ek_http_exchange *x); /* closes the connection */

struct ek_tls_context; /* net/tls.h */
struct ek_http_server;

/* listen: "HOST:PORT", "[::1]:8080", ":0" or "unix:PATH". tls may be NULL. The handler
 * is copied. Errors: EK_EINVAL, EK_EIO with the address and the system's reason. */
int ek_http_server_new(struct ek_http_server **s, struct ek_loop *loop,
                       const char *listen, struct ek_tls_context *tls,
                       const struct ek_http_limits *limits,
                       const struct ek_http_handler *handler,
                       struct ek_err *err) EK_MUST_USE;

/* "127.0.0.1:43817": the address really bound. */
const char *ek_http_server_address(const struct ek_http_server *s);
int32_t ek_http_server_connections(const struct ek_http_server *s);

/* Stops accepting and closes idle connections; exchanges under way go on with
 * "Connection: close". free closes everything at once (on_closed is called). */
void ek_http_server_drain(struct ek_http_server *s);
void ek_http_server_free(struct ek_http_server *s);

#endif
