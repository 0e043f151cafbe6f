/* admin.c - the administrator's HTTP: the board, /metrics, /backends, /explain, POST
 * /drain. */
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/opt.h"
#include "net/static.h"
#include "route/inherit.h"
#include "route/run_int.h"
#include "route/stream.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum { MAX_EXPLAINED = 256 };

/* Metrics ------------------------------------------------------------------ */

static int add_metric(struct ek_buf *out, const char *name, const char *type,
                      const char *help, double v)
{
    return ek_buf_addf(out,
                       "# HELP evenkeel_route_%s %s\n# TYPE evenkeel_route_%s %s\n"
                       "evenkeel_route_%s %.15g\n",
                       name, help, name, type, name, v);
}

static int add_counters(struct ek_buf *out, const struct ek_router *r)
{
    int rc = 0;
#define X(name, help)                                                                  \
    if (!rc) {                                                                         \
        double sum = 0;                                                                \
        for (size_t i = 0; i < r->n_reactors; i++)                                     \
            sum += (double)ek_counter_get(&r->reactors[i]->counters.name);             \
        rc = add_metric(out, #name "_total", "counter", help, sum);                    \
    }
    EK_ROUTE_COUNTERS(X)
#undef X
    return rc;
}

static double sum_of(const struct ek_router *r, bool of_clients, size_t at)
{
    double sum = 0;
    for (size_t i = 0; i < r->n_reactors; i++) {
        const struct ek_h2_counts *n =
            ek_streams_counts(r->reactors[i]->streams, of_clients);
        sum += (double)ek_counter_get(
            (const struct ek_counter *)(const void *)((const char *)n + at));
    }
    return sum;
}

/* Connections of HTTP/2, clients' and backends' apart. */
static int add_h2_counters(struct ek_buf *out, const struct ek_router *r)
{
    static const struct {
        const char *name, *help;
        size_t at;
    } rows[] = {
#define X(name, help) {#name, help, offsetof(struct ek_h2_counts, name)},
        EK_H2_COUNT_TABLE(X)
#undef X
    };
    int rc = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && !rc; i++) {
        const char *name = rows[i].name;
        rc = ek_buf_addf(out,
                         "# HELP evenkeel_route_h2_%s_total %s\n"
                         "# TYPE evenkeel_route_h2_%s_total counter\n"
                         "evenkeel_route_h2_%s_total{side=\"client\"} %.15g\n"
                         "evenkeel_route_h2_%s_total{side=\"backend\"} %.15g\n",
                         name, rows[i].help, name, name, sum_of(r, true, rows[i].at),
                         name, sum_of(r, false, rows[i].at));
    }
    return rc;
}

static int add_reloads(struct ek_buf *out, const struct ek_route *r)
{
    int rc = ek_buf_addf(
        out,
        "# HELP evenkeel_route_reloads_total configurations read again\n"
        "# TYPE evenkeel_route_reloads_total counter\n"
        "evenkeel_route_reloads_total{result=\"applied\"} %llu\n"
        "evenkeel_route_reloads_total{result=\"refused\"} %llu\n",
        (unsigned long long)r->n_reloads, (unsigned long long)r->n_reloads_refused);
    return rc ? rc
              : add_metric(out, "configuration_timestamp_seconds", "gauge",
                           "when the configuration in force was read, in UNIX time",
                           (double)r->loaded_s);
}

static int add_gauges(struct ek_buf *out, const struct ek_route *r)
{
    struct ek_pool_totals t;
    int64_t now = ek_clock_us();
    double open = 0;
    for (size_t i = 0; i < r->router.n_reactors; i++)
        open += (double)ek_counter_get(&r->router.reactors[i]->n_sessions);
    ek_pool_read_totals(r->router.pool, now, &t);
    int rc = add_metric(out, "open_sessions", "gauge", "sessions open now", open);
    if (!rc)
        rc = add_metric(out, "open_connections", "gauge", "client connections open now",
                        (double)ek_counter_get(&r->router.n_connections));
    if (!rc)
        rc = add_metric(out, "waiting_sessions", "gauge", "sessions in the queue",
                        (double)ek_counter_get(&r->router.n_waiting));
    if (!rc)
        rc = add_metric(out, "placements", "gauge",
                        "placements that were not given back", (double)t.open_sessions);
    if (!rc)
        rc = add_metric(out, "placed_total", "counter", "placements ever made",
                        (double)t.placed_total);
    if (!rc)
        rc = add_metric(out, "backends", "gauge", "backends configured", t.n_backends);
    if (!rc)
        rc = add_metric(out, "backends_up", "gauge", "of them, candidates", t.n_up);
    if (!rc)
        rc = add_metric(out, "backends_reporting", "gauge",
                        "of them, with a report that has not expired", t.n_usable);
    if (!rc)
        rc =
            add_metric(out, "proxies", "gauge",
                       "all sessions of the backends / those of this proxy", t.proxies);
    if (!rc)
        rc = add_metric(out, "draining", "gauge", "1 while no connection is accepted",
                        (double)ek_counter_get(&r->router.is_draining));
    if (!rc)
        rc = add_metric(out, "resolve_failures_total", "counter",
                        "times that a backend's name was not resolved",
                        (double)ek_counter_get(&r->n_resolve_failures));
    if (!rc)
        rc = add_metric(out, "address_changes_total", "counter",
                        "times that a backend's name said other addresses",
                        (double)ek_counter_get(&r->n_address_changes));
    if (!rc)
        rc = add_reloads(out, r);
    return rc ? rc
              : add_metric(out, "uptime_seconds", "gauge", "since the start",
                           (double)(now - r->begun_us) / 1e6);
}

/* One metric of every backend. */
struct column {
    const char *name, *type, *help;
    double (*read)(const struct ek_backend_state *s);
};

static double read_up(const struct ek_backend_state *s)
{
    return s->is_up && !s->is_ejected;
}
static double read_draining(const struct ek_backend_state *s)
{
    return s->is_draining;
}
static double read_open(const struct ek_backend_state *s)
{
    return s->open_sessions;
}
static double read_placed(const struct ek_backend_state *s)
{
    return (double)s->placed_total;
}
static double read_failures(const struct ek_backend_state *s)
{
    return (double)s->failures_total;
}
static double read_reports(const struct ek_backend_state *s)
{
    return (double)s->reports_total;
}
static double read_refused(const struct ek_backend_state *s)
{
    return (double)(s->reports_refused + s->figures_refused);
}
static double read_age(const struct ek_backend_state *s)
{
    return s->report_age_us < 0 ? (double)NAN : (double)s->report_age_us / 1e6;
}
static double read_capacity(const struct ek_backend_state *s)
{
    return s->effective_capacity;
}
static double read_pending(const struct ek_backend_state *s)
{
    return s->pending;
}
static double read_room(const struct ek_backend_state *s)
{
    return s->room;
}

static const struct column columns[] = {
    {"backend_up", "gauge", "1: it may get sessions", read_up},
    {"backend_draining", "gauge", "1: it gets no new sessions", read_draining},
    {"backend_open_sessions", "gauge", "sessions of this proxy there", read_open},
    {"backend_placed_total", "counter", "sessions ever placed there", read_placed},
    {"backend_failures_total", "counter", "sessions it could not open", read_failures},
    {"backend_reports_total", "counter", "reports of load", read_reports},
    {"backend_reports_refused_total", "counter", "reports or figures that cannot be",
     read_refused},
    {"backend_report_age_seconds", "gauge", "age of the latest report", read_age},
    {"backend_effective_capacity", "gauge", "sessions it can carry", read_capacity},
    {"backend_pending_sessions", "gauge", "sessions that its report does not count",
     read_pending},
    {"backend_room", "gauge", "sessions there is room for", read_room},
};

static int add_value(struct ek_buf *out, const struct column *c,
                     const struct ek_backend_state *s)
{
    double v = c->read(s);
    int rc = ek_buf_addf(out, "evenkeel_route_%s{backend=\"", c->name);
    for (const char *p = s->name; *p && !rc; p++) {
        if (*p == '"' || *p == '\\')
            rc = ek_buf_add_char(out, '\\');
        if (!rc)
            rc = ek_buf_add_char(out, *p);
    }
    if (rc)
        return rc;
    return isnan(v) ? ek_buf_add_str(out, "\"} NaN\n")
                    : ek_buf_addf(out, "\"} %.15g\n", v);
}

static int add_backends(struct ek_buf *out, const struct ek_route *r)
{
    struct ek_pool *pool = r->router.pool;
    int64_t now = ek_clock_us();
    for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++) {
        int rc = ek_buf_addf(out,
                             "# HELP evenkeel_route_%s %s\n"
                             "# TYPE evenkeel_route_%s %s\n",
                             columns[c].name, columns[c].help, columns[c].name,
                             columns[c].type);
        for (int32_t i = 0; i < ek_pool_end(pool) && !rc; i++) {
            struct ek_backend_state s;
            /* One that was removed may share its name with what came in its place. */
            if (ek_pool_read(pool, i, now, &s) && !s.is_removed)
                rc = add_value(out, &columns[c], &s);
        }
        if (rc)
            return rc;
    }
    return 0;
}

static int write_metrics(struct ek_buf *out, const struct ek_route *r)
{
    int rc = add_gauges(out, r);
    if (!rc)
        rc = add_counters(out, &r->router);
    if (!rc)
        rc = add_h2_counters(out, &r->router);
    return rc ? rc : add_backends(out, r);
}

/* JSON --------------------------------------------------------------------- */

static int add_number(struct ek_buf *out, const char *key, double v)
{
    return isfinite(v) ? ek_buf_addf(out, ",\"%s\":%.9g", key, v)
                       : ek_buf_addf(out, ",\"%s\":null", key);
}

static int add_flag(struct ek_buf *out, const char *key, bool v)
{
    return ek_buf_addf(out, ",\"%s\":%s", key, v ? "true" : "false");
}

static int add_report(struct ek_buf *out, const struct ek_backend_state *s)
{
    const struct ek_load_report *l = &s->report;
    const struct {
        const char *key;
        uint32_t bit;
        double v;
    } figures[] = {
        {"reported_sessions", EK_LOAD_ACTIVE, l->active_sessions},
        {"young_sessions", EK_LOAD_YOUNG, l->young_sessions},
        {"session_cost", EK_LOAD_COST, l->session_cost},
        {"safety_factor", EK_LOAD_FACTOR, l->safety_factor},
        {"cpu_utilization", EK_LOAD_CPU, l->cpu_utilization},
        {"utilization", EK_LOAD_APPLICATION, l->application_utilization},
        {"mem_utilization", EK_LOAD_MEMORY, l->mem_utilization},
        {"reported_capacity", EK_LOAD_CAPACITY, l->effective_capacity},
    };
    int rc = 0;
    for (size_t i = 0; i < sizeof figures / sizeof figures[0] && !rc; i++) {
        if (s->has_report && (l->has & figures[i].bit))
            rc = add_number(out, figures[i].key, figures[i].v);
    }
    return rc;
}

static int add_backend(struct ek_buf *out, const struct ek_backend_state *s)
{
    int rc = ek_buf_add_str(out, "{\"name\":");
    if (!rc)
        rc = ek_json_add_str(out, s->name, strlen(s->name));
    if (!rc)
        rc = ek_buf_add_str(out, ",\"address\":");
    if (!rc)
        rc = ek_json_add_str(out, s->address, strlen(s->address));
    const struct {
        const char *key;
        bool v;
    } flags[] = {{"up", s->is_up},
                 {"draining", s->is_draining},
                 {"ejected", s->is_ejected},
                 {"has_report", s->has_report}};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0] && !rc; i++)
        rc = add_flag(out, flags[i].key, flags[i].v);
    const struct {
        const char *key;
        double v;
    } figures[] = {
        {"weight", s->weight},
        {"max_sessions", s->max_sessions},
        {"open_sessions", s->open_sessions},
        {"placed_total", (double)s->placed_total},
        {"failures_total", (double)s->failures_total},
        {"reports_total", (double)s->reports_total},
        {"reports_refused", (double)(s->reports_refused + s->figures_refused)},
        {"report_age_seconds",
         s->report_age_us < 0 ? (double)NAN : (double)s->report_age_us / 1e6},
        {"effective_capacity", s->effective_capacity},
        {"pending", s->pending},
        {"remaining_sessions", s->room},
        {"slow_start", s->slow_start},
    };
    for (size_t i = 0; i < sizeof figures / sizeof figures[0] && !rc; i++)
        rc = add_number(out, figures[i].key, figures[i].v);
    if (!rc)
        rc = add_report(out, s);
    return rc ? rc : ek_buf_add_char(out, '}');
}

static int write_backends(struct ek_buf *out, const struct ek_route *r)
{
    struct ek_pool *pool = r->router.pool;
    int64_t now = ek_clock_us();
    bool is_first = true;
    int rc = ek_buf_addf(out, "{\"policy\":\"%s\",\"backends\":[",
                         ek_policy_name(r->config->pool.policy));
    for (int32_t i = 0; i < ek_pool_end(pool) && !rc; i++) {
        struct ek_backend_state s;
        if (!ek_pool_read(pool, i, now, &s))
            continue;
        if (!is_first)
            rc = ek_buf_add_char(out, ',');
        if (!rc)
            rc = add_backend(out, &s);
        is_first = false;
    }
    return rc ? rc : ek_buf_add_str(out, "]}\n");
}

/* Whose it was at that time: places are used again. */
static const char *name_of(const struct ek_route *r, int32_t backend, int64_t at_us)
{
    const struct ek_upstream *u =
        backend >= 0 ? ek_router_upstream(&r->router, backend) : NULL;
    return u && u->since_us <= at_us ? u->config.spec.name : "";
}

static int add_decision(struct ek_buf *out, const struct ek_route *r,
                        const struct ek_decision *d)
{
    const char *name = name_of(r, d->backend, d->now_us);
    int rc = ek_buf_addf(out,
                         "{\"number\":%llu,\"session\":%llu,\"age_seconds\":%.3f,"
                         "\"reason\":\"%s\",\"candidates\":%d,\"backend\":",
                         (unsigned long long)d->number, (unsigned long long)d->session,
                         (double)(ek_clock_us() - d->now_us) / 1e6,
                         ek_reason_name(d->reason), d->n_candidates);
    if (!rc)
        rc = d->backend < 0 ? ek_buf_add_str(out, "null")
                            : ek_json_add_str(out, name, strlen(name));
    if (!rc)
        rc = add_number(out, "remaining_sessions", d->room);
    if (!rc)
        rc = ek_buf_add_str(out, ",\"rows\":[");
    for (int32_t i = 0; i < d->n_shown && !rc; i++) {
        name = name_of(r, d->rows[i].backend, d->now_us);
        rc = ek_buf_add_str(out, i ? ",{\"backend\":" : "{\"backend\":");
        if (!rc)
            rc = ek_json_add_str(out, name, strlen(name));
        if (!rc)
            rc = add_number(out, "open_sessions", d->rows[i].open_sessions);
        if (!rc)
            rc = add_number(out, "remaining_sessions", (double)d->rows[i].room);
        if (!rc)
            rc = ek_buf_add_char(out, '}');
    }
    return rc ? rc : ek_buf_add_str(out, "]}");
}

static int write_explain(struct ek_buf *out, const struct ek_route *r)
{
    struct ek_decision *all = ek_alloc_array(MAX_EXPLAINED, sizeof *all);
    if (!all)
        return EK_ENOMEM;
    int rc = ek_buf_add_str(out, "{\"decisions\":[");
    size_t n = ek_pool_explain(r->router.pool, all, MAX_EXPLAINED);
    for (size_t i = 0; i < n && !rc; i++) {
        if (i)
            rc = ek_buf_add_char(out, ',');
        if (!rc)
            rc = add_decision(out, r, &all[i]);
    }
    ek_free(all);
    return rc ? rc : ek_buf_add_str(out, "]}\n");
}

/* Requests ----------------------------------------------------------------- */

static void answer(struct ek_http_exchange *x, int code, const char *type,
                   const char *text, size_t n)
{
    if (ek_http_respond(x, code, type, text, n))
        ek_log(EK_LOG_WARN, "admin_answer_lost", NULL);
}

static void answer_text(struct ek_http_exchange *x, int code, const char *text)
{
    answer(x, code, "text/plain", text, strlen(text));
}

/* "key=value" of a query, percent signs left alone; false: it is not there. */
static bool find_query(char *value, size_t cap, const char *query, const char *key)
{
    size_t n = strlen(key);
    for (const char *s = query; *s; s += strcspn(s, "&"), s += *s == '&') {
        size_t len = strcspn(s, "&");
        if (len <= n || strncmp(s, key, n) != 0 || s[n] != '=' || len - n - 1 >= cap)
            continue;
        memcpy(value, s + n + 1, len - n - 1);
        value[len - n - 1] = 0;
        return true;
    }
    return false;
}

/* Browsers say so, and any page that one shows here could ask. */
static bool is_from_page(struct ek_http_exchange *x)
{
    if (!ek_http_header_get(ek_http_get_request(x), "origin"))
        return false;
    answer_text(x, 403, "not from a web page\n");
    return true;
}

/* POST /reload: the configuration is read again. */
static void reload(struct ek_route *r, struct ek_http_exchange *x)
{
    struct ek_err err = EK_ERR_INIT;
    struct ek_buf out;
    if (is_from_page(x))
        return;
    ek_buf_init(&out, EK_ROUTE_MAX_BODY_BYTES);
    if (ek_route_read_again(r, &out, &err) == 0) {
        answer(x, 200, "application/json", out.data, out.len);
    } else {
        ek_buf_reset(&out);
        if (ek_buf_addf(&out, "%s\n", err.text))
            answer_text(x, 500, "out of memory\n");
        else
            answer(x, 400, "text/plain", out.data, out.len);
    }
    ek_buf_release(&out);
}

static const int64_t max_within_ms = INT64_C(100) * 86400 * 1000;

/* POST /drain?backend=NAME[&on=false|&within=TIME]: no new sessions there; without a
 * backend, the proxy itself drains and ends. */
static void drain(struct ek_route *r, struct ek_http_exchange *x, const char *query)
{
    char name[EK_BACKEND_NAME_MAX + 1], on[8], within[24];
    int64_t limit_ms = -1;
    if (is_from_page(x))
        return;
    if (!find_query(name, sizeof name, query, "backend")) {
        if (query[0]) {
            answer_text(
                x, 400,
                "want ?backend=NAME[&on=false|&within=TIME], or no query at all\n");
            return;
        }
        answer_text(x, 202, "draining\n");
        ek_route_stop(r);
        return;
    }
    int32_t backend = ek_pool_find(r->router.pool, name);
    if (backend < 0) {
        answer_text(x, 404, "there is no such backend\n");
        return;
    }
    bool is_on = !find_query(on, sizeof on, query, "on") || strcmp(on, "false") != 0;
    if (find_query(within, sizeof within, query, "within") &&
        (!ek_opt_read_ms(&limit_ms, within) || limit_ms > max_within_ms)) {
        answer_text(x, 400, "within: want a time with its unit, 30s or 5min\n");
        return;
    }
    ek_backends_drain(r, backend, is_on, limit_ms < 0 ? -1 : limit_ms * 1000);
    ek_log(EK_LOG_INFO, "backend_drain", "backend=\"%s\" on=%s", name,
           is_on ? "true" : "false");
    answer_text(x, 200, is_on ? "draining\n" : "ready\n");
}

static const struct page {
    const char *path, *type;
    int (*write)(struct ek_buf *out, const struct ek_route *r);
} pages[] = {
    {"/metrics", "text/plain; version=0.0.4", write_metrics},
    {"/backends", "application/json", write_backends},
    {"/explain", "application/json", write_explain},
};

static void answer_page(struct ek_route *r, struct ek_http_exchange *x,
                        const struct page *page)
{
    struct ek_buf out;
    ek_buf_init(&out, EK_ROUTE_MAX_BODY_BYTES);
    if (page->write(&out, r))
        answer_text(x, 500, "out of memory\n");
    else
        answer(x, 200, page->type, out.data, out.len);
    ek_buf_release(&out);
}

static void answer_file(struct ek_http_exchange *x, const struct ek_static_file *f)
{
    if (ek_static_add_headers(x))
        ek_http_abort(x);
    else
        answer(x, 200, f->type, (const char *)f->data, f->n);
}

static void on_request(void *arg, struct ek_http_exchange *x)
{
    struct ek_route *r = arg;
    const struct ek_http_request *q = ek_http_get_request(x);
    bool is_get = strcmp(q->method, "GET") == 0 || strcmp(q->method, "HEAD") == 0;
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        if (strcmp(q->path, pages[i].path) != 0)
            continue;
        if (is_get)
            answer_page(r, x, &pages[i]);
        else
            answer_text(x, 405, "GET\n");
        return;
    }
    const struct ek_static_file *file = ek_static_find(ek_board_files, q->path);
    bool is_draining = ek_counter_get(&r->router.is_draining);
    if (file && is_get)
        answer_file(x, file);
    else if (strcmp(q->path, "/health") == 0)
        answer_text(x, is_draining ? 503 : 200, is_draining ? "draining\n" : "ok\n");
    else if (strcmp(q->path, "/drain") == 0 && strcmp(q->method, "POST") == 0)
        drain(r, x, q->query);
    else if (strcmp(q->path, "/reload") == 0 && strcmp(q->method, "POST") == 0)
        reload(r, x);
    else
        answer_text(
            x, 404,
            "/ /metrics /backends /explain /health, POST /drain, POST /reload\n");
}

static void on_closed(void *arg, struct ek_http_exchange *x, bool is_aborted)
{
    (void)arg;
    (void)x;
    (void)is_aborted;
}

int ek_route_open_admin(struct ek_route *r, struct ek_err *err)
{
    struct ek_http_limits limits;
    const struct ek_http_handler handler = {
        .on_request = on_request, .on_closed = on_closed, .arg = r};
    ek_http_limits_default(&limits);
    char at[EK_INHERITED_AT];
    const char *address = ek_inherited_find(r->config->inherited, at, r->config->admin);
    return ek_http_server_new(&r->admin, r->loop, address, NULL, &limits, &handler,
                              err);
}
