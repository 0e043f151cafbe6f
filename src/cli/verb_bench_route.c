/* verb_bench_route.c - keel bench route: many long sessions against a proxy, and the
 * backend to stand behind it. */
#include "base/mem.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "cli/verb.h"
#include "load/echo.h"
#include "load/sessions.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>

#define ARENA_BYTES      (1 << 20)
#define REPORT_BYTES_MAX (1 << 16)

struct settings {
    const char *path, *host, *pid;
    int mode, protocol; /* as their enums */
    int64_t sessions, warm_up, connections, frame_bytes, interval, settle, duration;
    int64_t timeout, seed;
    double rate;
    bool tls, backend, json;
};

#define AT(member) .offset = offsetof(struct settings, member)

static const struct ek_opt opts[] = {
    {.name = "mode",
     .letter = 'm',
     .type = EK_OPT_CHOICE,
     .choices = "idle|speaking|churn",
     .fallback = "idle",
     .help =
         "hold silent sessions, say frames that come back, or open and end sessions "
         "as fast as it goes",
     AT(mode)},
    {.name = "protocol",
     .letter = 'p',
     .type = EK_OPT_CHOICE,
     .choices = "websocket|grpc|http2",
     .fallback = "websocket",
     .help = "WebSockets over HTTP/1.1, gRPC bidi streams, or GETs over HTTP/2 (churn "
             "alone)",
     AT(protocol)},
    {.name = "sessions",
     .letter = 'n',
     .type = EK_OPT_INT,
     .value = "N",
     .fallback = "100",
     .min = 1,
     .max = 1000000,
     .help = "sessions; of churn, at once",
     AT(sessions)},
    {.name = "connections",
     .letter = 'c',
     .type = EK_OPT_INT,
     .value = "N",
     .fallback = "10",
     .min = 1,
     .max = 100000,
     .help = "connections that carry the streams of HTTP/2; at most one a session",
     AT(connections)},
    {.name = "duration",
     .letter = 'd',
     .type = EK_OPT_MS,
     .value = "TIME",
     .fallback = "10s",
     .min = 1,
     .max = 86400000,
     .help = "how long what is measured lasts, once all sessions are open",
     AT(duration)},
    {.name = "settle",
     .type = EK_OPT_MS,
     .value = "TIME",
     .fallback = "1s",
     .min = 0,
     .max = 3600000,
     .help = "speech or churn before that, which does not count",
     AT(settle)},
    {.name = "rate",
     .letter = 'r',
     .type = EK_OPT_REAL,
     .value = "R",
     .fallback = "1000",
     .min = 0.01,
     .max = 1e6,
     .help = "sessions opened a second, before they are held or speak",
     AT(rate)},
    {.name = "warm_up",
     .type = EK_OPT_INT,
     .value = "N",
     .fallback = "0",
     .min = 0,
     .max = 1000000,
     .help = "of the sessions so many are opened before memory is looked at first",
     AT(warm_up)},
    {.name = "frame_bytes",
     .letter = 'b',
     .type = EK_OPT_INT,
     .value = "N",
     .fallback = "640",
     .min = EK_SESSIONS_FRAME_MIN,
     .max = EK_SESSIONS_FRAME_MAX,
     .help = "bytes of a frame's payload",
     AT(frame_bytes)},
    {.name = "interval",
     .letter = 'i',
     .type = EK_OPT_MS,
     .value = "TIME",
     .fallback = "20ms",
     .min = 0,
     .max = 3600000,
     .help = "between two frames of a session; 0ms: the next when the last is back",
     AT(interval)},
    {.name = "timeout",
     .type = EK_OPT_MS,
     .value = "TIME",
     .fallback = "10s",
     .min = 1,
     .max = 3600000,
     .help = "for a session to be opened, or to be ended",
     AT(timeout)},
    {.name = "path",
     .type = EK_OPT_STR,
     .value = "PATH",
     .help = "of each request; without it / or, for gRPC, /echo.Echo/Chat",
     AT(path)},
    {.name = "host",
     .type = EK_OPT_STR,
     .value = "NAME",
     .help = "what requests call the server; without it the address",
     AT(host)},
    {.name = "tls",
     .type = EK_OPT_FLAG,
     .help = "speak TLS, any certificate will do",
     AT(tls)},
    {.name = "pid",
     .type = EK_OPT_STR,
     .value = "PID[,PID]",
     .help = "processes of the proxy on this machine: their CPU and memory are told",
     AT(pid)},
    {.name = "seed",
     .type = EK_OPT_INT,
     .fallback = "1",
     .min = 0,
     .max = 1e300,
     .help = "of what is said and of its masks",
     AT(seed)},
    {.name = "backend",
     .type = EK_OPT_FLAG,
     .help =
         "be what stands behind a proxy instead: listen on ADDRESS and say all back",
     AT(backend)},
    EK_VERB_JSON(offsetof(struct settings, json)),
    {0},
};

static const struct ek_opt_verb table = {
    .name = "bench route",
    .summary = "measure a proxy, or a server, under many long sessions",
    .arguments = "ADDRESS",
    .details =
        "ADDRESS is HOST:PORT or unix:PATH, of any proxy. Behind it stands what "
        "echoes: "
        "keel bench route --backend, or a server of your own that returns each binary "
        "frame of a WebSocket, or each message of a gRPC stream.\n\n"
        "Frames of speaking are due at fixed times, spread evenly over the interval, "
        "and a round trip begins when its frame was due: a stall is in the numbers of "
        "all it delayed. Lateness tells how much of that is the generator's own. Every "
        "echo is compared: its number in the session, its order, all its bytes. "
        "Handshakes are checked, too.\n\n"
        "With --pid, CPU is user and system time in the counted span, written "
        "memory (Pss_Dirty) by difference: a session once all were opened, and after "
        "all that was said.\n\n"
        "Exit code 1 when no session was opened or all were lost. Ctrl-C ends the run "
        "and prints what was measured.",
    .examples =
        "keel bench route --backend 127.0.0.1:9001 &\n"
        "keel route --backend 127.0.0.1:9001 --threads 1 &\n"
        "keel bench route 127.0.0.1:8000 --mode idle -n 2000 --warm-up 16 --pid $!\n"
        "keel bench route 127.0.0.1:8000 --mode speaking -n 400 --duration 60s\n"
        "keel bench route 127.0.0.1:8000 --mode churn -n 64 --json\n"
        "keel bench route 127.0.0.1:8000 -p grpc -m speaking -n 50 --interval 0ms",
    .opts = opts,
    .min_args = 1,
    .max_args = 1,
};

static void on_ready(void *arg, const char *address)
{
    (void)arg;
    printf("listening on %s\n", address);
    fflush(stdout);
}

static int serve(const char *address, int *code, struct ek_err *err)
{
    const struct ek_echo_options o = {
        .listen = address, .on_ready = on_ready, .is_stopped = ek_interrupt_seen};
    int rc = ek_echo_run(&o, err);
    if (rc)
        *code = rc == EK_EINVAL ? EK_EXIT_USAGE : EK_EXIT_FAILED;
    return rc;
}

static int make_options(struct ek_sessions_options *o, const struct settings *set,
                        const char *address, struct ek_err *err)
{
    bool is_grpc = set->protocol == EK_SESSIONS_GRPC;
    *o = (struct ek_sessions_options){
        .address = address,
        .path = set->path ? set->path
                : is_grpc ? "/echo.Echo/Chat"
                          : "/",
        .host = set->host,
        .mode = (enum ek_sessions_mode)set->mode,
        .protocol = (enum ek_sessions_protocol)set->protocol,
        .n = set->sessions,
        .n_warm = set->warm_up,
        .n_connections =
            set->connections < set->sessions ? set->connections : set->sessions,
        .rate = set->rate,
        .frame_bytes = set->frame_bytes,
        .interval_us = set->interval * 1000,
        .settle_us = set->settle * 1000,
        .duration_us = set->duration * 1000,
        .timeout_us = set->timeout * 1000,
        .has_tls = set->tls,
        .seed = (uint64_t)set->seed,
        .is_stopped = ek_interrupt_seen};
    return set->pid ? ek_processes_parse(&o->processes, set->pid, err) : 0;
}

static int print(const struct ek_sessions_options *o,
                 const struct ek_sessions_result *r, bool is_json, struct ek_err *err)
{
    struct ek_buf text;
    ek_buf_init(&text, REPORT_BYTES_MAX);
    int rc = is_json ? ek_sessions_json(&text, o, r) : ek_sessions_table(&text, o, r);
    if (!rc)
        rc = ek_terminal_write(stdout, text.data, text.len);
    ek_buf_release(&text);
    return rc ? ek_err_set(err, rc, "standard output: %s", ek_status_text(rc)) : 0;
}

/* What the report says is also the exit code's to tell. */
static int judge(const struct ek_sessions_options *o,
                 const struct ek_sessions_result *r, struct ek_err *err)
{
    const char *why = r->n_errors ? r->errors[0].text : "none was opened in time";
    bool is_lost = o->mode != EK_SESSIONS_CHURN && r->n_open == 0;
    if (r->is_interrupted || (r->n_opened > 0 && !is_lost))
        return 0;
    return ek_err_set(err, EK_EIO, "%s: %s: %s", o->address,
                      r->n_opened ? "all sessions were lost" : "no session was opened",
                      why);
}

static int load(const struct settings *set, const char *address, int *code,
                struct ek_err *err)
{
    struct ek_sessions_options o;
    struct ek_sessions_result *r = ek_calloc(1, sizeof *r);
    int rc = r ? make_options(&o, set, address, err)
               : ek_err_set(err, EK_ENOMEM, "out of memory");
    if (!rc)
        rc = ek_sessions_run(r, &o, err);
    *code = rc == EK_EINVAL ? EK_EXIT_USAGE : EK_EXIT_FAILED;
    if (!rc)
        rc = print(&o, r, set->json, err);
    if (!rc)
        rc = judge(&o, r, err);
    if (!rc)
        *code = r->is_interrupted ? EK_EXIT_INTERRUPTED : EK_EXIT_OK;
    ek_free(r);
    return rc;
}

static int run(int argc, char **argv)
{
    struct settings set = {0};
    struct ek_opt_args args;
    struct ek_arena arena;
    struct ek_err err = EK_ERR_INIT;
    int code = EK_EXIT_OK;
    ek_arena_init(&arena, ARENA_BYTES);
    if (!ek_verb_options(&ek_verb_bench_route, &set, &args, argc, argv, &arena, &code))
        goto out;
    ek_interrupt_catch();
    ek_interrupt_catch_also(SIGTERM);
    signal(SIGPIPE, SIG_IGN);
    int rc = set.backend ? serve(args.args[0], &code, &err)
                         : load(&set, args.args[0], &code, &err);
    if (rc)
        (void)ek_verb_fail(&ek_verb_bench_route, &err, false);
out:
    ek_arena_release(&arena);
    return code;
}

const struct ek_verb ek_verb_bench_route = {&table, run};
