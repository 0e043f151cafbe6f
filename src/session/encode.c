/* encode.c - the report for an HTTP poll, for HAProxy and for Prometheus. */
#include "session/encode_int.h"

#include <math.h>
#include <string.h>

enum kind { COUNT, REAL, SECONDS };

struct figure {
    const char *json, *metric, *type, *help; /* metric without its prefix */
    enum kind kind;                          /* int64, double, int64 microseconds */
    size_t offset;                           /* in the report */
};

#define AT(member) offsetof(struct ek_tracker_report, member)

static const struct figure figures[] = {
    {"active_sessions", "active_sessions", "gauge", "open sessions", COUNT,
     AT(active_sessions)},
    {"young_sessions", "young_sessions", "gauge",
     "open sessions begun within the window of smoothing", COUNT, AT(young_sessions)},
    {"session_limit", "session_limit", "gauge", "a session more is refused", COUNT,
     AT(session_limit)},
    {"effective_capacity", "effective_capacity", "gauge",
     "sessions this server can carry", REAL, AT(effective_capacity)},
    {"remaining_sessions", "remaining_sessions", "gauge",
     "of them not open; negative: overloaded", REAL, AT(remaining_sessions)},
    {"utilization", "utilization", "gauge", "open sessions / effective capacity", REAL,
     AT(utilization)},
    {"session_cost", "session_cost", "gauge", "CPU of a session, cores", REAL,
     AT(session_cost)},
    {"safety_factor", "safety_factor", "gauge", "room kept for a session, in costs",
     REAL, AT(safety_factor)},
    {"variation", "session_cost_variation", "gauge",
     "standard deviation / mean of a session's CPU", REAL, AT(variation)},
    {"cores", "cores", "gauge", "cores that may be used", REAL, AT(cores)},
    {"cpu_cores", "cpu_cores", "gauge", "cores in use, smoothed", REAL, AT(cpu_cores)},
    {"base_cores", "base_cores", "gauge", "of them without sessions", REAL,
     AT(base_cores)},
    {"begun_total", "sessions_begun_total", "counter", "sessions ever begun", COUNT,
     AT(begun_total)},
    {"expired_total", "sessions_expired_total", "counter",
     "sessions ended by their deadline", COUNT, AT(expired_total)},
    {"refused_total", "sessions_refused_total", "counter", "sessions refused", COUNT,
     AT(refused_total)},
    {"age_seconds", "cpu_sample_age_seconds", "gauge",
     "age of the latest sample of CPU", SECONDS, AT(age_us)},
    {"window_seconds", "window_seconds", "gauge", "smoothing of CPU", SECONDS,
     AT(window_us)},
    {"young_weight", "young_weight", "gauge",
     "share of a young session's CPU that the smoothed CPU lacks", REAL,
     AT(young_weight)},
};

static void put_figure(struct ek_session_out *o, const struct ek_tracker_report *r,
                       const struct figure *f)
{
    const char *at = (const char *)r + f->offset;
    double v;
    int64_t n;
    if (f->kind == REAL) {
        memcpy(&v, at, sizeof v);
    } else {
        memcpy(&n, at, sizeof n);
        v = f->kind == SECONDS ? (double)n / 1e6 : (double)n;
    }
    ek_put_number(o, v);
}

static void put_key(struct ek_session_out *o, const char *before, const char *key)
{
    ek_put_str(o, before);
    ek_put_str(o, "\"");
    ek_put_str(o, key);
    ek_put_str(o, "\":");
}

/* Names need no escape: letters, digits and . _ - */
static void put_json(struct ek_session_out *o, const struct ek_snapshot *s)
{
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) {
        put_key(o, i ? "," : "{", figures[i].json);
        put_figure(o, &s->r, &figures[i]);
    }
    put_key(o, ",", "smoothing");
    ek_put_str(o, s->r.smoothing == EK_TRACKER_MEAN ? "\"mean\"" : "\"ewma\"");
    put_key(o, ",", "binding");
    ek_put_str(o, "\"");
    ek_put_str(o, s->r.binding);
    ek_put_str(o, "\"");
    put_key(o, ",", "draining");
    ek_put_str(o, s->r.is_draining ? "true" : "false");
    put_key(o, ",", "resources");
    ek_put_str(o, "{");
    for (int i = 0; i < s->n_resources; i++) {
        const struct ek_resource_report *r = &s->resources[i];
        put_key(o, i ? "," : "", s->names[i]);
        put_key(o, "{", "used");
        ek_put_number(o, r->used);
        put_key(o, ",", "total");
        ek_put_number(o, r->total);
        put_key(o, ",", "session_cost");
        ek_put_number(o, r->session_cost);
        put_key(o, ",", "capacity");
        ek_put_number(o, r->capacity);
        ek_put_str(o, "}");
    }
    ek_put_str(o, "}}\n");
}

/* Weight 0 to 100 % is what remains; ready only takes back a drain of ours. */
static void put_agent(struct ek_session_out *o, const struct ek_tracker *t,
                      const struct ek_snapshot *s)
{
    const struct ek_tracker_report *r = &s->r;
    if (r->is_draining) {
        ek_put_str(o, "drain\n");
        return;
    }
    double left = fmin(fmax(100 * (1 - r->utilization), 0), 100);
    ek_put_str(o, s->was_drained ? "ready up " : "up ");
    ek_put_number(o, r->remaining_sessions >= 1 ? fmax(floor(left), 1) : 0);
    ek_put_str(o, "%");
    if (t->o.agent_proxies > 0) {
        /* 0 would mean no limit at all. */
        double most = floor(r->effective_capacity / t->o.agent_proxies);
        ek_put_str(o, " maxconn:");
        ek_put_number(o, fmax(most, 1));
    }
    ek_put_str(o, "\n");
}

static void put_head(struct ek_session_out *o, const char *name, const char *type,
                     const char *help)
{
    ek_put_str(o, "# HELP evenkeel_");
    ek_put_str(o, name);
    ek_put_str(o, " ");
    ek_put_str(o, help);
    ek_put_str(o, "\n# TYPE evenkeel_");
    ek_put_str(o, name);
    ek_put_str(o, " ");
    ek_put_str(o, type);
    ek_put_str(o, "\n");
}

static void put_sample(struct ek_session_out *o, const char *name, const char *label)
{
    ek_put_str(o, "evenkeel_");
    ek_put_str(o, name);
    if (label) {
        ek_put_str(o, "{resource=\"");
        ek_put_str(o, label);
        ek_put_str(o, "\"}");
    }
    ek_put_str(o, " ");
}

static void put_resources(struct ek_session_out *o, const struct ek_snapshot *s)
{
    static const struct {
        const char *name, *help;
        size_t offset;
    } columns[] = {
        {"resource_used", "units in use", offsetof(struct ek_resource_report, used)},
        {"resource_size", "units there are",
         offsetof(struct ek_resource_report, total)},
        {"resource_session_cost", "units of a session",
         offsetof(struct ek_resource_report, session_cost)},
        {"resource_capacity", "sessions this resource can carry",
         offsetof(struct ek_resource_report, capacity)},
    };
    for (int c = 0; c < 4 && s->n_resources > 0; c++) {
        put_head(o, columns[c].name, "gauge", columns[c].help);
        for (int i = 0; i < s->n_resources; i++) {
            double v;
            memcpy(&v, (const char *)&s->resources[i] + columns[c].offset, sizeof v);
            put_sample(o, columns[c].name, s->names[i]);
            ek_put_number(o, v);
            ek_put_str(o, "\n");
        }
    }
}

static void put_prometheus(struct ek_session_out *o, const struct ek_snapshot *s)
{
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) {
        put_head(o, figures[i].metric, figures[i].type, figures[i].help);
        put_sample(o, figures[i].metric, NULL);
        put_figure(o, &s->r, &figures[i]);
        ek_put_str(o, "\n");
    }
    put_head(o, "draining", "gauge", "1 while no session is accepted");
    put_sample(o, "draining", NULL);
    ek_put_str(o, s->r.is_draining ? "1\n" : "0\n");
    put_head(o, "binding", "gauge", "1: the resource that bounds the capacity");
    put_sample(o, "binding", s->r.binding);
    ek_put_str(o, "1\n");
    put_resources(o, s);
}

int ek_tracker_encode(struct ek_tracker *t, enum ek_tracker_encoding e, char *out,
                      size_t size, size_t *len)
{
    if (e < EK_TRACKER_ORCA_TEXT || e > EK_TRACKER_PROMETHEUS)
        return EK_SESSION_EINVAL;
    struct ek_snapshot s;
    struct ek_session_out o = {out, size > 0 ? size - 1 : 0, 0};
    ek_tracker_snapshot(t, &s);
    if (e == EK_TRACKER_JSON)
        put_json(&o, &s);
    else if (e == EK_TRACKER_AGENT)
        put_agent(&o, t, &s);
    else if (e == EK_TRACKER_PROMETHEUS)
        put_prometheus(&o, &s);
    else
        ek_put_orca(&o, t, &s, e);
    *len = o.len;
    if (size > 0)
        out[o.len < size ? o.len : 0] = 0;
    return o.len < size ? 0 : EK_SESSION_ESPACE;
}

const char *ek_tracker_encoding_header(enum ek_tracker_encoding e)
{
    switch ((int)e) {
    case EK_TRACKER_ORCA_TEXT:
    case EK_TRACKER_ORCA_JSON:
    case EK_TRACKER_ORCA_BIN:
        return "endpoint-load-metrics";
    case EK_TRACKER_ORCA_TRAILER:
        return "endpoint-load-metrics-bin";
    default:
        return NULL;
    }
}

const char *ek_tracker_encoding_type(enum ek_tracker_encoding e)
{
    switch ((int)e) {
    case EK_TRACKER_ORCA_PROTO:
        return "application/x-protobuf";
    case EK_TRACKER_ORCA_GRPC:
        return "application/grpc";
    case EK_TRACKER_JSON:
        return "application/json";
    case EK_TRACKER_AGENT:
        return "text/plain";
    case EK_TRACKER_PROMETHEUS:
        return "text/plain; version=0.0.4";
    default:
        return NULL;
    }
}
