/* server.h - the OpenAI-compatible HTTP server over one model.
 *
 * Two threads: the caller's runs the sockets (ek_server_run), a worker's the engine.
 * /health and /metrics are answered by the first and never wait for the second.
 */
#ifndef EVENKEEL_SERVE_SERVER_H
#define EVENKEEL_SERVE_SERVER_H

#include "net/http.h"
#include "net/tls.h"
#include "serve/auth.h"
#include "serve/runtime.h"

struct ek_server_options {
    const char *listen;         /* "HOST:PORT", "unix:PATH" */
    const char *model_id;       /* the name clients use */
    struct ek_tls_context *tls; /* borrowed, may be NULL */
    const struct ek_auth *auth; /* borrowed */
    const char *cors;           /* the one origin allowed, "*" for any; NULL: off */
    int32_t max_queue;          /* choices that may wait beside those that run */
    int64_t drain_us;           /* answers under way may take so long after stop */
    int64_t timeout_us;         /* no answer may take longer; 0: as long as it takes */
    int64_t keep_alive_us;      /* a silent stream gets a comment so often */
    struct ek_http_limits limits;
};
void ek_server_options_default(struct ek_server_options *o);

struct ek_server;

/* Binds and starts the engine's thread. The runtime is borrowed. Errors: EK_EINVAL,
 * EK_EIO (address, reason), EK_ENOMEM. */
int ek_server_new(struct ek_server **s, const struct ek_server_options *o,
                  struct ek_runtime *rt, struct ek_err *err) EK_MUST_USE;

const char *ek_server_address(const struct ek_server *s);

/* Serves until stopped. Errors: EK_EIO. */
int ek_server_run(struct ek_server *s, struct ek_err *err) EK_MUST_USE;

/* First call: no new requests, those under way are finished (at most drain_us); second
 * call: they are cancelled. Any thread, and signal-safe. */
void ek_server_stop(struct ek_server *s);

/* After run. NULL is fine. */
void ek_server_free(struct ek_server *s);

#endif
