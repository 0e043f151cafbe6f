/* probe.c - what the main thread asks the backends, each on a connection of its own:
 *
 *   report   GET report_path, the tracker's JSON       every report_interval
 *   agent    a line of HAProxy's agent-check            likewise
 *   health   GET health_path, or that a connection is made  every health_interval
 *
 *   WAITING -> CONNECTING -> HANDSHAKE (TLS) -> ASKING -> WAITING
 *
 * A backend that cannot be connected to twice in a row is down, and up again the first
 * time that it can; an agent that is not there says nothing. */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/http1_message.h"
#include "net/sock.h"
#include "route/report.h"
#include "route/run_int.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FAILURES_TO_DOWN = 2, MAX_ANSWER_BYTES = 32768 };
static const int64_t longest_us = 3000000; /* of one question */

enum kind { REPORT, AGENT, HEALTH };
static_assert(HEALTH + 1 == EK_N_PROBES, "a place for each");
enum step { WAITING, CONNECTING, HANDSHAKE, ASKING };

struct ek_probe {
    struct ek_route *route;
    int32_t backend;
    enum kind kind;
    enum step step;
    bool tells_health; /* its failure to connect counts */
    int n_failures;    /* in a row */
    struct ek_sock sock;
    struct ek_watch watch;
    struct ek_timer timer; /* always started: the next question, or too late */
    int64_t asked_us;
    int64_t turn; /* of the backend's addresses */
    struct ek_buf out;
    size_t n_sent;
    struct ek_buf in;
};

static const struct ek_upstream *upstream_of(const struct ek_probe *p)
{
    return ek_router_upstream(&p->route->router, p->backend);
}

static const struct ek_route_backend *config_of(const struct ek_probe *p)
{
    return &upstream_of(p)->config;
}

/* Of all that is asked of this backend: whether it is taken for down. */
static bool *down_of(const struct ek_probe *p)
{
    return &p->route->backends[p->backend].is_down;
}

static int64_t interval_of(const struct ek_probe *p)
{
    const struct ek_route_config *c = p->route->config;
    return p->kind == HEALTH ? c->health_interval_us : c->report_interval_us;
}

static void move_timer(struct ek_probe *p, int64_t delay_us)
{
    int rc = ek_timer_start(&p->timer, delay_us);
    (void)rc; /* it is started: moving it cannot fail */
}

/* Verdicts ----------------------------------------------------------------- */

static void set_health(struct ek_probe *p, bool is_ok, const char *why)
{
    if (!p->tells_health)
        return;
    int n_addresses = (int)upstream_of(p)->n_addresses; /* each has its turn */
    int to_down = n_addresses > FAILURES_TO_DOWN ? n_addresses : FAILURES_TO_DOWN;
    p->n_failures = is_ok ? 0 : p->n_failures + 1;
    bool is_down = p->n_failures >= to_down || (*down_of(p) && !is_ok);
    if (is_down == *down_of(p))
        return;
    *down_of(p) = is_down;
    ek_pool_set_up(p->route->router.pool, p->backend, !is_down, ek_clock_us());
    ek_log(is_down ? EK_LOG_WARN : EK_LOG_INFO, is_down ? "backend_down" : "backend_up",
           "backend=\"%s\" why=\"%s\"", config_of(p)->spec.name, why);
}

static void rest(struct ek_probe *p)
{
    ek_watch_stop(&p->watch);
    ek_sock_close(&p->sock, false);
    ek_buf_release(&p->in);
    ek_buf_release(&p->out);
    p->step = WAITING;
    int64_t past = ek_clock_us() - p->asked_us;
    move_timer(p, interval_of(p) - past);
}

static void fail(struct ek_probe *p, const char *why)
{
    if (p->step == CONNECTING && p->kind != AGENT)
        ek_router_rotate(&p->route->router, p->backend, p->turn);
    set_health(p, false, why);
    rest(p);
}

static void take_report(struct ek_probe *p, const struct ek_load_report *r)
{
    int rc = ek_pool_report(p->route->router.pool, p->backend, r, ek_clock_us());
    if (rc)
        ek_log(EK_LOG_DEBUG, "report_refused", "backend=\"%s\"",
               config_of(p)->spec.name);
}

/* The answer is whole (or its connection ended). False: it is not yet. */
static bool take_http(struct ek_probe *p, bool is_end)
{
    struct ek_http1_message m;
    size_t from = 0;
    bool is_bad;
    size_t head = ek_http1_find_end(p->in.data, p->in.len, &from, &is_bad);
    if (head == 0 && !is_bad && !is_end)
        return false;
    if (head == 0 || ek_http1_read_answer(&m, p->in.data, head, false, false)) {
        fail(p, "the answer is no HTTP");
        return true;
    }
    struct ek_http1_body body;
    struct ek_buf text;
    ek_http1_body_init(&body, &m);
    ek_buf_init(&text, MAX_ANSWER_BYTES);
    int rc = 0;
    for (size_t at = head; at < p->in.len && !body.is_done && !rc;) {
        size_t used;
        struct ek_text data;
        rc = ek_http1_body_feed(&body, p->in.data + at, p->in.len - at, &used, &data);
        if (!rc)
            rc = ek_buf_add(&text, data.p, data.n);
        at += used;
    }
    bool is_whole = body.is_done || is_end;
    bool is_good = m.head.status >= 200 && m.head.status < 400;
    struct ek_load_report report;
    if (!is_whole && !rc) {
        ek_buf_release(&text);
        ek_http1_body_release(&body);
        return false;
    }
    if (p->kind == REPORT && !rc && m.head.status == 200 &&
        !ek_report_json(&report, text.data ? text.data : "", text.len))
        take_report(p, &report);
    ek_buf_release(&text);
    ek_http1_body_release(&body);
    set_health(p, is_good || p->kind == REPORT, "the health check's status");
    rest(p);
    return true;
}

static bool take_line(struct ek_probe *p, bool is_end)
{
    struct ek_load_report r;
    if (!is_end && !(p->in.len && strpbrk(p->in.data, "\r\n")))
        return false;
    if (!ek_report_agent(&r, p->in.data ? p->in.data : "", p->in.len))
        take_report(p, &r);
    rest(p);
    return true;
}

/* Talking ------------------------------------------------------------------ */

static void read_answer(struct ek_probe *p)
{
    char bytes[4096];
    for (;;) {
        size_t got;
        int want;
        int rc = ek_sock_read(&p->sock, bytes, sizeof bytes, &got, &want);
        if (rc == EK_EAGAIN) {
            if (ek_watch_change(&p->watch, want))
                fail(p, "cannot be watched");
            return;
        }
        bool is_end = rc == EK_ECLOSED;
        if ((rc && !is_end) || (!rc && ek_buf_add(&p->in, bytes, got))) {
            fail(p, "the connection broke");
            return;
        }
        if (p->kind == AGENT ? take_line(p, is_end) : take_http(p, is_end))
            return;
        if (is_end) {
            fail(p, "the connection ended early");
            return;
        }
    }
}

static void ask(struct ek_probe *p)
{
    while (p->n_sent < p->out.len) {
        size_t n;
        int want;
        int rc = ek_sock_write(&p->sock, p->out.data + p->n_sent,
                               p->out.len - p->n_sent, &n, &want);
        if (rc == EK_EAGAIN) {
            if (ek_watch_change(&p->watch, want))
                fail(p, "cannot be watched");
            return;
        }
        if (rc) {
            fail(p, "the connection broke");
            return;
        }
        p->n_sent += n;
    }
    read_answer(p);
}

static void begin_to_ask(struct ek_probe *p)
{
    const struct ek_route_backend *b = config_of(p);
    const char *path = p->kind == REPORT ? b->report_path : b->health_path;
    const char *key = p->kind == REPORT ? upstream_of(p)->authorization : NULL;
    p->step = ASKING;
    if (p->kind == HEALTH && !path) {
        set_health(p, true, "connected");
        rest(p);
        return;
    }
    int rc = 0;
    if (p->kind != AGENT)
        rc = ek_buf_addf(
            &p->out,
            "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n"
            "User-Agent: evenkeel\r\n%s%s%s\r\n",
            path,
            strncmp(b->spec.address, "unix:", 5) == 0 ? "localhost" : b->spec.address,
            key ? "Authorization: " : "", key ? key : "", key ? "\r\n" : "");
    if (rc)
        fail(p, "out of memory");
    else
        ask(p);
}

static void shake_hands(struct ek_probe *p)
{
    int want;
    int rc = ek_tls_handshake(p->sock.tls, &want);
    if (rc == EK_EAGAIN) {
        if (ek_watch_change(&p->watch, want))
            fail(p, "cannot be watched");
    } else if (rc) {
        fail(p, ek_tls_reason(p->sock.tls));
    } else {
        begin_to_ask(p);
    }
}

static void on_ready(struct ek_watch *w, int events)
{
    struct ek_probe *p = w->owner;
    int e = 0;
    socklen_t n = sizeof e;
    (void)events;
    if (p->step == CONNECTING) {
        if (getsockopt(p->sock.fd, SOL_SOCKET, SO_ERROR, &e, &n) || e) {
            fail(p, strerror(e));
            return;
        }
        p->step = HANDSHAKE;
        if (!p->sock.tls) {
            begin_to_ask(p);
            return;
        }
    }
    if (p->step == HANDSHAKE)
        shake_hands(p);
    else
        ask(p);
}

static void begin(struct ek_probe *p)
{
    const struct ek_upstream *u = upstream_of(p);
    const struct ek_route_backend *b = &u->config;
    int64_t limit = interval_of(p) > longest_us ? interval_of(p) : longest_us;
    p->asked_us = ek_clock_us();
    p->n_sent = 0;
    move_timer(p, limit);
    p->turn = ek_counter_get(&u->turn);
    p->step = CONNECTING;
    if (p->kind == AGENT ? u->agent.n == 0 : u->n_addresses == 0) {
        fail(p, "its name is not resolved");
        return;
    }
    if (p->kind == AGENT ? ek_address_connect(&p->sock.fd, &u->agent, false)
                         : ek_upstream_connect(&p->sock.fd, u)) {
        p->sock.fd = -1;
        fail(p, strerror(errno));
        return;
    }
    p->watch.fd = p->sock.fd;
    int rc = 0;
    if (u->tls && p->kind != AGENT)
        rc = ek_tls_connect_new(&p->sock.tls, u->tls, p->sock.fd,
                                b->tls_name ? b->tls_name : u->host);
    if (!rc)
        rc = ek_watch_start(p->route->loop, &p->watch, EK_WRITABLE);
    if (rc)
        fail(p, ek_status_text(rc));
}

static void on_time(struct ek_timer *t)
{
    struct ek_probe *p = t->owner;
    move_timer(p, longest_us); /* its place in the heap was just freed */
    if (p->step == WAITING)
        begin(p);
    else
        fail(p, "timed out");
}

/* Life --------------------------------------------------------------------- */

static int add_probe(struct ek_route *r, const struct ek_upstream *u, enum kind kind)
{
    struct ek_probe *p = ek_calloc(1, sizeof *p);
    if (!p)
        return EK_ENOMEM;
    *p = (struct ek_probe){.route = r,
                           .backend = u->backend,
                           .kind = kind,
                           .tells_health = kind == HEALTH ||
                                           (kind == REPORT && !u->config.health_path),
                           .sock = {.fd = -1},
                           .watch = {.fd = -1, .on_ready = on_ready, .owner = p}};
    ek_buf_init(&p->in, MAX_ANSWER_BYTES);
    ek_buf_init(&p->out, MAX_ANSWER_BYTES);
    ek_timer_init(&p->timer, r->loop, on_time, p);
    int rc = ek_timer_start(&p->timer, 0);
    if (rc) {
        ek_free(p);
        return rc;
    }
    r->backends[u->backend].probes[kind] = p;
    return 0;
}

int ek_route_start_probes(struct ek_route *r, int32_t backend)
{
    const struct ek_upstream *u = ek_router_upstream(&r->router, backend);
    int rc = 0;
    if (u->config.report_path)
        rc = add_probe(r, u, REPORT);
    if (!rc && u->config.agent)
        rc = add_probe(r, u, AGENT);
    if (!rc && (u->config.health_path || !u->config.report_path))
        rc = add_probe(r, u, HEALTH);
    return rc;
}

void ek_route_stop_probes(struct ek_route *r, int32_t backend)
{
    for (int k = 0; k < EK_N_PROBES; k++) {
        struct ek_probe *p = r->backends[backend].probes[k];
        r->backends[backend].probes[k] = NULL;
        if (!p)
            continue;
        ek_watch_stop(&p->watch);
        ek_sock_close(&p->sock, false);
        ek_buf_release(&p->in);
        ek_buf_release(&p->out);
        ek_timer_stop(&p->timer);
        ek_free(p);
    }
}
