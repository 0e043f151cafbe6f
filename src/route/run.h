/* run.h - the proxy as a whole: from a configuration to a process that routes until it
 * is told to stop. docs/design/proxy.md.
 *
 *   main thread     admin HTTP, reports and health checks of the backends, drain
 *   thread 1..N     a loop each: listeners, sessions
 */
#ifndef EVENKEEL_ROUTE_RUN_H
#define EVENKEEL_ROUTE_RUN_H

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "route/pool.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EK_ROUTE_MAX_LISTENERS = 64 }; /* each thread watches all */

struct ek_route_listener {
    const char *listen;           /* as net/listen.h: "HOST:PORT", "unix:PATH" */
    const char *const *tls_certs; /* (n_tls) PEM files; the first is for clients that
                                     ask for a name of none */
    const char *const *tls_keys;  /* (n_tls) of each certificate */
    size_t n_tls;                 /* 0: plain */
};

enum ek_route_protocol {
    EK_ROUTE_HTTP1,
    EK_ROUTE_HTTP2, /* prior knowledge, or ALPN under TLS */
};

struct ek_route_backend {
    struct ek_backend_spec spec; /* its address is connected to: "HOST:PORT", numeric or
                                    a name (resolve.h), or "unix:PATH" */
    enum ek_route_protocol protocol;
    bool has_tls;
    bool skips_verify;    /* TLS: any certificate will do */
    const char *tls_ca;   /* PEM file; NULL: the system's */
    const char *tls_name; /* SNI and the name to verify; NULL: the address's host, which
                             unix:PATH has not */
    /* Where its reports come from; NULL: not by this way. */
    const char *report_path; /* polled by HTTP/1.1 GET at its address: JSON */
    bool reports_orca;       /* by gRPC out of band (orca_oob.h), over HTTP/2 */
    const char *agent;       /* "HOST:PORT" of an agent-check line */
    const char
        *report_key_file;    /* what it wants of who asks for reports: file with a key,
                                    sent as "Authorization: Bearer KEY"; NULL: nothing */
    const char *health_path; /* GET must answer 2xx or 3xx; NULL: a TCP connect must
                                 succeed, unless reports come: they are enough */
};

enum ek_route_key {
    EK_ROUTE_KEY_NONE,
    EK_ROUTE_KEY_HEADER,
    EK_ROUTE_KEY_COOKIE,
    EK_ROUTE_KEY_QUERY,
    EK_ROUTE_KEY_CLIENT
};

/* Asks for a name's addresses, and may wait: net/address.h, ek_address_resolve_all. Any
 * thread. */
struct ek_address;
typedef int (*ek_resolve_fn)(struct ek_address **list, size_t *n, const char *text,
                             bool numeric, struct ek_err *err);

struct ek_route_config {
    const struct ek_route_listener *listeners;
    size_t n_listeners;
    const struct ek_route_backend *backends;
    size_t n_backends;
    struct ek_pool_options pool;
    enum ek_route_key key;      /* of policy hash: where the key is */
    const char *key_name;       /* header (in any case), cookie or query key */
    const char *admin;          /* "127.0.0.1:9090", "unix:PATH"; NULL: none */
    int32_t threads;            /* 1..; 0: as many as cores may be used */
    int32_t max_connections;    /* of clients, all threads; 20000 */
    int32_t max_queue;          /* sessions that wait for room; 256 */
    int64_t queue_timeout_us;   /* longest wait in it; 5 s; 0: no queue */
    int64_t retry_after_us;     /* of a refusal, plus up to as much again; 1 s */
    int64_t connect_timeout_us; /* 5 s */
    int64_t head_timeout_us;    /* a request's head, from its first byte; 10 s */
    int64_t idle_timeout_us;    /* a client connection between requests; 75 s */
    int64_t answer_timeout_us;  /* from the request to the answer's head; 0: none */
    int64_t tunnel_timeout_us;  /* a session without a byte; 0: none */
    int64_t websocket_ping_us;  /* of a side's silence, then a Ping to it; 0: none */
    int64_t http2_ping_us; /* of a client's silence while it has streams; 0: none */
    int64_t
        backend_http2_ping_us; /* likewise of a backend's; gRPC's servers punish more
                                      than one in 5 min unless told otherwise; 0: none */
    int64_t ping_timeout_us;   /* for any byte after it, then the session ends; 20 s */
    bool counts_frames;        /* of WebSockets, for the log */
    int64_t dead_peer_us;      /* a peer that acknowledges nothing; 60 s; 0: kernel's */
    int64_t max_age_us;        /* of a session, less up to a tenth; 0: none */
    int64_t resolve_interval_us; /* backends' names are asked for again; 30 s; 0: only
                                    those that were not resolved */
    ek_resolve_fn resolve;       /* NULL: the system's resolver */
    int64_t drain_us;            /* longest wait at SIGTERM; 0: until all have ended */
    int64_t
        backend_drain_us; /* longest wait for the sessions of a backend that was removed;
                                    0: until all have ended */
    int64_t report_interval_us;  /* between two polls of a backend; 1 s */
    int64_t health_interval_us;  /* between two health checks; 2 s */
    int64_t log_interval_us;     /* between two records of a long session; 60 s */
    int32_t pool_connections;    /* idle ones kept to a backend a thread; 32 */
    enum ek_log_level log_level; /* set by a reload; at the start it is the caller's */
    bool logs_sessions;          /* start, minute and end records; true */
    bool trusts_forwarded;       /* keep X-Forwarded-For and -Proto of the client and
                                   append; false: replace */
    struct ek_inherited *inherited; /* sockets to begin with (inherit.h); NULL: none */
    const char *via;                /* pseudonym in Via; NULL: none; "evenkeel" */
};

/* Every default above; no listener, no backend. */
void ek_route_config_default(struct ek_route_config *c);

struct ek_route;

/* Opens listeners, loads certificates, resolves the backends' names. All of `c` is
 * borrowed until free. Errors, with a sentence: EK_EINVAL, EK_EIO (an address, a
 * certificate), EK_ENOMEM. */
int ek_route_new(struct ek_route **r, const struct ek_route_config *c,
                 struct ek_err *err) EK_MUST_USE;

/* Another configuration in place of the one in force, whole or not at all: backends
 * that are there by name and address keep their sessions, reports and counters, others
 * are added or removed (they drain), listeners likewise; certificates and keys are read
 * again; all else holds for what begins from now on. Main thread. `c` is borrowed until
 * another one takes its place and the threads have looked away (host->forget), or until
 * free. out: JSON of what became of the backends. Errors: EK_EINVAL (also: threads,
 * admin), EK_EIO, EK_ENOMEM and those of tls.h, EK_EBUSY while draining: nothing
 * changed. */
int ek_route_apply(struct ek_route *r, const struct ek_route_config *c,
                   struct ek_buf *out, struct ek_err *err) EK_MUST_USE;

/* Who starts the proxy, as far as it must ask for more. */
struct ek_route_host {
    /* The configuration as it is on disk now. Errors with a sentence. */
    int (*read)(void *arg, const struct ek_route_config **c, struct ek_err *err);
    /* Nobody looks at that one any more. */
    void (*forget)(void *arg, const struct ek_route_config *c);
    /* Every thread runs, who connects is served; NULL: nobody asks. */
    void (*on_ready)(void *arg, struct ek_route *r);
    void *arg;
    char *const *argv; /* how a new process is started; NULL: it cannot be */
};
/* Before run; copied. The configuration of ek_route_new is then its own, too. */
void ek_route_set_host(struct ek_route *r, const struct ek_route_host *host);

/* Asks the host for the configuration and applies it; why not is logged. Any thread,
 * and signal-safe. */
void ek_route_reload(struct ek_route *r);

/* Starts host->argv as a new process that gets the listening sockets (inherit.h). When
 * it is ready this proxy drains: sessions go on until they end. When it is not, this
 * proxy goes on, and why is logged. Any thread, and signal-safe. */
void ek_route_upgrade(struct ek_route *r);

/* What ek_route_new would refuse of the values alone: no file, no socket is opened. */
int ek_route_check(const struct ek_route_config *c, struct ek_err *err) EK_MUST_USE;

/* Opens the certificates and keys that `c` names, no socket. Errors: those of
 * ek_route_new, naming listener or backend, and the file. */
int ek_route_check_files(const struct ek_route_config *c,
                         struct ek_err *err) EK_MUST_USE;

/* The addresses really bound: the first listener's, the admin's ("" without one). */
const char *ek_route_address(const struct ek_route *r);
const char *ek_route_admin(const struct ek_route *r);

/* Starts the threads; routes until stopped and drained. Errors: EK_EIO, EK_ENOMEM. */
int ek_route_run(struct ek_route *r, struct ek_err *err) EK_MUST_USE;

/* First call: new connections are refused, sessions go on until they end or drain_us is
 * over; second call: they are ended. Any thread, and signal-safe. */
void ek_route_stop(struct ek_route *r);

/* After run. NULL is fine. */
void ek_route_free(struct ek_route *r);

#endif
