/* verb_route.c - keel route: options to a running proxy and back to an exit code. */
#include "base/log.h"
#include "base/mem.h"
#include "cli/route_settings.h"
#include "cli/verb_route_run.h"
#include "net/address.h"
#include "route/inherit.h"
#include "route/names.h"

#include <stddef.h>
#include <stdio.h>

#define AT(member) .offset = offsetof(struct ek_route_settings, member)
#define TIME(min_, max_)                                                               \
    .type = EK_OPT_MS, .value = "TIME", .min = (min_), .max = (max_)
#define COUNT(min_, max_) .type = EK_OPT_INT, .value = "N", .min = (min_), .max = (max_)
#define DAY_MS            86400000.0

static const struct ek_opt opts[] = {
    {.name = "listen",
     .type = EK_OPT_LIST,
     .value = "HOST:PORT",
     .help =
         "address to serve on, unix:PATH is a socket file; 127.0.0.1:8000 when none "
         "is given",
     AT(listen)},
    {.name = "backend",
     .type = EK_OPT_LIST,
     .value = "[NAME=]HOST:PORT[,KEY=VALUE]",
     .help =
         "where sessions go; keys: weight, cores, max_sessions, protocol (http1, "
         "http2), agent (HOST:PORT of an agent-check), reports (orca: by gRPC, out "
         "of band), report_key_file, tls_name (SNI, and the name in its certificate)",
     AT(backend)},
    {.name = "admin",
     .type = EK_OPT_STR,
     .value = "HOST:PORT",
     .fallback = "127.0.0.1:9090",
     .help = "address of /metrics, /backends, /explain and POST /drain; off: none",
     AT(admin)},
    {.name = "policy",
     .type = EK_OPT_STR,
     .value = "NAME",
     .fallback = "effective_capacity",
     .help = "how the next session's backend is chosen: effective_capacity, "
             "least_sessions, two_choices, weighted_random, round_robin, hash",
     AT(policy)},
    {.name = "key",
     .type = EK_OPT_STR,
     .value = "KIND:NAME",
     .help = "key of policy hash: header:NAME, cookie:NAME, query:NAME; else the "
             "client's address",
     AT(key)},
    {.name = "admission",
     .type = EK_OPT_CHOICE,
     .choices = "capacity|limit",
     .fallback = "capacity",
     .help = "a backend is full when its reports leave no room for a session, or at "
             "max_sessions alone",
     AT(admission)},
    {.name = "max_sessions",
     COUNT(0, 1e9),
     .fallback = "0",
     .help = "sessions of this proxy on one backend; 0: no limit",
     AT(max_sessions)},
    {.name = "report_path",
     .type = EK_OPT_STR,
     .value = "PATH",
     .help = "poll every backend's load there (GET, JSON of libevenkeel)",
     AT(report_path)},
    {.name = "report_key_file",
     .type = EK_OPT_STR,
     .value = "FILE",
     .help =
         "key that the backends want of who asks for reports: the file's first line, "
         "sent as Authorization: Bearer; read at start and at reload",
     AT(report_key_file)},
    {.name = "report_interval",
     TIME(10, DAY_MS),
     .fallback = "1s",
     .help = "time between two reports of a backend",
     AT(report_interval)},
    {.name = "report_expiry",
     TIME(10, DAY_MS),
     .fallback = "10s",
     .help = "a report older than this says nothing",
     AT(report_expiry)},
    {.name = "health_path",
     .type = EK_OPT_STR,
     .value = "PATH",
     .help = "GET must answer 2xx or 3xx there; otherwise a connection must be made",
     AT(health_path)},
    {.name = "health_interval",
     TIME(10, DAY_MS),
     .fallback = "2s",
     .help = "time between two health checks",
     AT(health_interval)},
    {.name = "resolve_interval",
     TIME(0, DAY_MS),
     .fallback = "30s",
     .help = "backends' names are asked for again after so long, for new connections; "
             "0s: only those that are not resolved yet",
     AT(resolve_interval)},
    {.name = "slow_start",
     TIME(0, DAY_MS),
     .fallback = "0s",
     .help = "a backend that came up gets its share only after so long",
     AT(slow_start)},
    {.name = "max_queue",
     COUNT(0, 1e6),
     .fallback = "256",
     .help = "sessions that may wait for room; more are refused with 503",
     AT(max_queue)},
    {.name = "queue_timeout",
     TIME(0, DAY_MS),
     .fallback = "5s",
     .help = "longest wait for room, then 503; 0s: nobody waits",
     AT(queue_timeout)},
    {.name = "retry_after",
     TIME(0, DAY_MS),
     .fallback = "1s",
     .help = "Retry-After of a refusal, plus up to as much again at random",
     AT(retry_after)},
    {.name = "connect_timeout",
     TIME(1, DAY_MS),
     .fallback = "5s",
     .help = "longest wait for a connection to a backend, then another is tried",
     AT(connect_timeout)},
    {.name = "answer_timeout",
     TIME(0, DAY_MS),
     .fallback = "0s",
     .help = "longest wait for the head of an answer, then 504; 0s: no limit",
     AT(answer_timeout)},
    {.name = "head_timeout",
     TIME(1, DAY_MS),
     .fallback = "10s",
     .help = "time a client has for a request's head",
     AT(head_timeout)},
    {.name = "idle_timeout",
     TIME(1, DAY_MS),
     .fallback = "75s",
     .help = "a client's connection without a request is kept so long",
     AT(idle_timeout)},
    {.name = "tunnel_timeout",
     TIME(0, 100 * DAY_MS),
     .fallback = "0s",
     .help = "a session without a byte ends after so long; 0s: never",
     AT(tunnel_timeout)},
    {.name = "websocket_ping",
     TIME(0, DAY_MS),
     .fallback = "0s",
     .help = "a side of a WebSocket that is silent for so long gets a Ping of the "
             "proxy's own; 0s: none",
     AT(websocket_ping)},
    {.name = "http2_ping",
     TIME(0, DAY_MS),
     .fallback = "0s",
     .help = "a client's connection of HTTP/2 with open streams that is silent for so "
             "long gets a PING; 0s: none",
     AT(http2_ping)},
    {.name = "backend_http2_ping",
     TIME(0, DAY_MS),
     .fallback = "0s",
     .help =
         "likewise a backend's; servers of gRPC punish more than one in 5 min unless "
         "they are told otherwise; 0s: none",
     AT(backend_http2_ping)},
    {.name = "ping_timeout",
     TIME(1, DAY_MS),
     .fallback = "20s",
     .help = "time for any byte after a Ping, then the session is ended",
     AT(ping_timeout)},
    {.name = "dead_peer",
     TIME(0, DAY_MS),
     .fallback = "60s",
     .help = "a peer whose machine acknowledges nothing is given up after so long",
     AT(dead_peer)},
    {.name = "max_age",
     TIME(0, 100 * DAY_MS),
     .fallback = "0s",
     .help = "a session ends at this age, less up to a tenth at random; 0s: never",
     AT(max_age)},
    {.name = "drain",
     TIME(0, 100 * DAY_MS),
     .fallback = "0s",
     .help = "after SIGTERM sessions may go on for so long; 0s: until they end",
     AT(drain)},
    {.name = "backend_drain",
     TIME(0, 100 * DAY_MS),
     .fallback = "0s",
     .help = "sessions of a backend that a reload removed may go on for so long; 0s: "
             "until they end",
     AT(backend_drain)},
    {.name = "threads",
     COUNT(1, 256),
     .fallback = "1",
     .help = "event loops, each with its sessions",
     AT(threads)},
    {.name = "max_connections",
     COUNT(1, 1e7),
     .fallback = "20000",
     .help = "connections of clients; more are closed at once",
     AT(max_connections)},
    {.name = "pool_connections",
     COUNT(0, 1e5),
     .fallback = "32",
     .help = "unused connections kept to a backend, by each thread",
     AT(pool_connections)},
    {.name = "tls_cert",
     .type = EK_OPT_LIST,
     .value = "FILE",
     .help =
         "certificate chain, PEM: clients speak TLS; of several each client gets the "
         "one for the name it asks for, else the first",
     AT(tls_cert)},
    {.name = "tls_key",
     .type = EK_OPT_LIST,
     .value = "FILE",
     .help = "the certificate's private key, PEM; of several, in the same order",
     AT(tls_key)},
    {.name = "backend_tls",
     .type = EK_OPT_FLAG,
     .help = "speak TLS to the backends",
     AT(backend_tls)},
    {.name = "backend_ca",
     .type = EK_OPT_STR,
     .value = "FILE",
     .help = "who may sign the backends' certificates, PEM; otherwise the system's",
     AT(backend_ca)},
    {.name = "backend_tls_insecure",
     .type = EK_OPT_FLAG,
     .help = "take any certificate from the backends",
     AT(backend_tls_insecure)},
    {.name = "trust_forwarded",
     .type = EK_OPT_FLAG,
     .help = "keep the client's X-Forwarded-For and -Proto (a proxy of yours is before "
             "this one)",
     AT(trust_forwarded)},
    {.name = "via",
     .type = EK_OPT_STR,
     .value = "TEXT",
     .fallback = "1.1 evenkeel",
     .help = "value of the Via header; off: none",
     AT(via)},
    {.name = "log_sessions",
     .type = EK_OPT_FLAG,
     .fallback = "true",
     .help = "a record at a session's start, in between, and at its end",
     AT(log_sessions)},
    {.name = "log_frames",
     .type = EK_OPT_FLAG,
     .help = "frames of WebSockets are counted for the log",
     AT(log_frames)},
    {.name = "log_interval",
     TIME(0, DAY_MS),
     .fallback = "60s",
     .help = "time between records of a long session; 0s: none",
     AT(log_interval)},
    {.name = "log_level",
     .type = EK_OPT_CHOICE,
     .choices = "error|warn|info|debug",
     .fallback = "info",
     .help = "least level that is logged",
     AT(log_level)},
    {.name = "check",
     .type = EK_OPT_FLAG,
     .is_flag_only = true,
     .help = "check the configuration and exit",
     AT(check)},
    {0},
};

static const struct ek_opt_verb table = {
    .name = "route",
    .summary = "balance WebSocket, gRPC and HTTP sessions by the room backends have",
    .arguments = "[CONFIG]",
    .details =
        "A proxy for sessions that last: WebSockets, streams of gRPC, and HTTP answers "
        "that are streamed. Each goes to the backend with the most room by its own "
        "reports (--report-path, an agent, or headers of its answers), less what was "
        "placed there since. "
        "Without "
        "reports the one with the fewest sessions for its weight is taken.\n\n"
        "CONFIG is a YAML file: the flags below as keys (max_queue for --max-queue), "
        "and "
        "lists of backends and listeners. Flags override it.\n\n"
        "SIGTERM or SIGINT (Ctrl-C) stops it: no new connections, sessions go on until "
        "they end or --drain is over; a second signal ends them. SIGHUP, or POST "
        "/reload at "
        "the admin address, reads CONFIG, certificates and keys again: for sessions "
        "that "
        "begin from then on, while open ones go on; an error changes nothing and says "
        "why. SIGUSR2 starts the program anew, of another version perhaps: it gets the "
        "listening sockets, and when it is ready this process takes no more "
        "connections "
        "and ends with its last session. Sockets of systemd's activation are taken by "
        "their addresses.\n\n"
        "Exit codes: 0 stopped by SIGTERM, 130 by SIGINT, 1 failed while running, 2 "
        "bad "
        "options.",
    .examples =
        "keel route --backend 127.0.0.1:9001 --backend 127.0.0.1:9002\n"
        "keel route --check examples/voice.yaml && keel route examples/voice.yaml\n"
        "keel route --backend a=10.0.0.1:80,weight=4 --backend b=10.0.0.2:80 \\\n"
        "    --report-path /load --listen 0.0.0.0:8000\n"
        "curl -X POST 'http://127.0.0.1:9090/drain?backend=a'",
    .opts = opts,
    .keys = ek_route_list_keys,
    .is_config_first = true,
    .min_args = 0,
    .max_args = 1,
};

/* Running -------------------------------------------------------------------------- */

/* A check waits so long for names: a resolver has asked its third server by then. */
static const int64_t check_us = 15000000;

/* The backends' names, all asked for at once. One that nobody knows now may be known when
 * the proxy starts: no error. */
static void warn_of_names(const struct ek_route_config *c)
{
    struct ek_name *names = ek_calloc(c->n_backends + 1, sizeof *names);
    const char **of = ek_calloc(c->n_backends + 1, sizeof *of);
    size_t n = 0;
    for (size_t i = 0; names && of && i < c->n_backends; i++) {
        if (!ek_address_is_name(c->backends[i].spec.address))
            continue;
        of[n] = c->backends[i].spec.name;
        names[n++].text = c->backends[i].spec.address;
    }
    int rc = names && of ? ek_names_ask(names, n, c->resolve, check_us) : EK_ENOMEM;
    if (rc)
        fprintf(stderr, "keel route: warning: backends' names were not asked for: %s\n",
                ek_status_text(rc));
    for (size_t i = 0; i < n; i++) {
        if (!rc && names[i].n == 0)
            fprintf(stderr,
                    "keel route: warning: backend '%s': %s; it is down until that name "
                    "is resolved\n",
                    of[i], names[i].why);
        ek_free(names[i].list);
    }
    ek_free(of);
    ek_free(names);
}

/* What the words and their file say now. */
static int read_again(struct ek_route_config *c, int argc, char **argv,
                      struct ek_arena *arena, struct ek_err *err)
{
    struct ek_route_settings set = {0};
    struct ek_opt_args args;
    int rc = ek_opt_parse(&table, &set, &args, argc, argv, arena, err);
    return rc ? rc : ek_route_settings_read(c, &set, arena, err);
}

static int run(int argc, char **argv)
{
    struct ek_route_settings set = {0};
    struct ek_opt_args args;
    struct ek_route_config c;
    struct ek_err err = EK_ERR_INIT;
    struct ek_arena arena;
    struct ek_inherited inherited;
    int code;
    ek_inherited_read(&inherited);
    ek_arena_init(&arena, EK_ROUTE_ARENA_BYTES);
    if (ek_verb_options(&ek_verb_route, &set, &args, argc, argv, &arena, &code)) {
        ek_log_setup((enum ek_log_level)set.log_level, EK_LOG_AUTO);
        int rc = ek_route_settings_read(&c, &set, &arena, &err);
        c.inherited = &inherited;
        if (!rc && set.check)
            warn_of_names(&c);
        if (!rc && set.check)
            rc = ek_route_check_files(&c, &err);
        else if (!rc)
            rc = ek_verb_route_run(&c, &(struct ek_route_words){argc, argv, read_again},
                                   &code, &err);
        ek_inherited_end(&inherited, rc ? err.text : "it only checked");
        if (rc)
            code = ek_verb_fail(&ek_verb_route, &err, false);
        if (rc == EK_EINVAL)
            code = EK_EXIT_USAGE;
    }
    ek_arena_release(&arena);
    return code;
}

const struct ek_verb ek_verb_route = {&table, run};
