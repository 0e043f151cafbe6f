/* route_settings.h - the options of keel route as they are parsed, and the
 * configuration that they mean. */
#ifndef EVENKEEL_CLI_ROUTE_SETTINGS_H
#define EVENKEEL_CLI_ROUTE_SETTINGS_H

#include "route/config.h"

struct ek_route_settings {
    struct ek_route_lists lists; /* first: their keys' offsets are its own */
    struct ek_opt_list listen, backend, tls_cert, tls_key;
    const char *admin, *report_path, *report_key_file, *health_path, *backend_ca;
    const char *key, *via, *policy;
    int admission, log_level; /* as their enums */
    int64_t threads, max_connections, max_queue, max_sessions, pool_connections;
    int64_t queue_timeout, retry_after, connect_timeout, answer_timeout, head_timeout;
    int64_t websocket_ping, http2_ping, backend_http2_ping, ping_timeout,
        resolve_interval;
    int64_t idle_timeout, tunnel_timeout, dead_peer, max_age, drain, report_interval;
    int64_t backend_drain;
    int64_t report_expiry, health_interval, log_interval, slow_start;
    bool backend_tls, backend_tls_insecure, trust_forwarded, log_sessions, log_frames,
        check;
};

/* Fills *c. What it points at is `set`'s and the arena's.
 * Errors: EK_EINVAL with the option or the place in the file, its value and what would
 * be right; EK_ENOMEM. */
int ek_route_settings_read(struct ek_route_config *c,
                           const struct ek_route_settings *set, struct ek_arena *arena,
                           struct ek_err *err) EK_MUST_USE;

#endif
