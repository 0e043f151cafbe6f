/* orca.c - the report as xds.data.orca.v3.OrcaLoadReport.
 *
 *   1 cpu_utilization  2 mem_utilization  6 rps_fractional  9 application_utilization
 *   5 utilization: map of resources       8 named_metrics: map of the rest
 *
 * rps_fractional is the number of open sessions: weighted round robin of gRPC and Envoy
 * weighs a server by rps / utilization, which is then its effective capacity. */
#include "session/encode_int.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { CPU = 1, MEM = 2, UTILIZATION = 5, RPS = 6, NAMED = 8, APPLICATION = 9 };

struct metric {
    int field;        /* of the message */
    const char *name; /* key of a map, or the field's name */
    double value;     /* finite */
};

struct metrics {
    struct metric at[4 + EK_RESOURCE_MAX + EK_ORCA_N_NAMES];
    int n;
};

static void add(struct metrics *m, int field, const char *name, double value)
{
    assert(m->n < (int)(sizeof m->at / sizeof m->at[0]));
    m->at[m->n++] = (struct metric){field, name, value};
}

static double share(const struct ek_resource_report *r)
{
    return fmin(r->used / r->total, 1);
}

/* In the order of the fields' numbers, each map in one run. */
static void collect(struct metrics *m, const struct ek_tracker *t,
                    const struct ek_snapshot *s)
{
    const struct ek_tracker_report *r = &s->r;
    const double named[EK_ORCA_N_NAMES] = {
        [EK_ORCA_ACTIVE_SESSIONS] = (double)r->active_sessions,
        [EK_ORCA_SESSION_COST] = r->session_cost,
        [EK_ORCA_EFFECTIVE_CAPACITY] = r->effective_capacity,
        [EK_ORCA_REMAINING_SESSIONS] = r->remaining_sessions,
        [EK_ORCA_YOUNG_SESSIONS] = (double)r->young_sessions,
        [EK_ORCA_YOUNG_WEIGHT] = r->young_weight,
        [EK_ORCA_SAFETY_FACTOR] = r->safety_factor,
    };
    m->n = 0;
    add(m, CPU, "cpu_utilization", fmax(r->cpu_utilization, 0));
    for (int i = 0; i < s->n_resources; i++) {
        if (!strcmp(s->names[i], "memory"))
            add(m, MEM, "mem_utilization", share(&s->resources[i]));
    }
    add(m, RPS, "rps_fractional", (double)r->active_sessions);
    add(m, APPLICATION, "application_utilization", r->utilization);
    for (int i = 0; i < s->n_resources; i++) {
        if (strcmp(s->names[i], "memory") != 0)
            add(m, UTILIZATION, s->names[i], share(&s->resources[i]));
    }
    for (int i = 0; i < EK_ORCA_N_NAMES; i++) {
        if (t->orca[i][0])
            add(m, NAMED, t->orca[i], named[i]);
    }
}

static const char *map_name(int field)
{
    return field == UTILIZATION ? "utilization"
           : field == NAMED     ? "named_metrics"
                                : NULL;
}

static void put_text(struct ek_session_out *o, const struct metrics *m)
{
    ek_put_str(o, "TEXT ");
    for (int i = 0; i < m->n; i++) {
        const char *map = map_name(m->at[i].field);
        ek_put_str(o, i ? ", " : "");
        if (map) {
            ek_put_str(o, map);
            ek_put_str(o, ".");
        }
        ek_put_str(o, m->at[i].name);
        ek_put_str(o, "=");
        ek_put_number(o, m->at[i].value);
    }
}

/* Names are of letters, digits and . _ -: nothing to escape. */
static void put_json(struct ek_session_out *o, const struct metrics *m)
{
    int open = 0; /* the map being written */
    ek_put_str(o, "JSON {");
    for (int i = 0; i < m->n; i++) {
        const char *map = map_name(m->at[i].field);
        int now = map ? m->at[i].field : 0;
        if (open && now != open)
            ek_put_str(o, "}");
        ek_put_str(o, i ? "," : "");
        if (map && now != open) {
            ek_put_str(o, "\"");
            ek_put_str(o, map);
            ek_put_str(o, "\":{");
            /* The comma before this map's first metric is the one before the map. */
        }
        open = now;
        ek_put_str(o, "\"");
        ek_put_str(o, m->at[i].name);
        ek_put_str(o, "\":");
        ek_put_number(o, m->at[i].value);
    }
    ek_put_str(o, open ? "}}" : "}");
}

static void put_byte(struct ek_session_out *o, unsigned v)
{
    unsigned char byte = (unsigned char)v;
    ek_put(o, &byte, 1);
}

/* Field `field` as a double: wire type 1, eight bytes, the least first. */
static void put_double(struct ek_session_out *o, int field, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_byte(o, (unsigned)field << 3 | 1);
    for (int i = 0; i < 8; i++)
        put_byte(o, (unsigned)(bits >> (8 * i) & 0xff));
}

static void put_proto(struct ek_session_out *o, const struct metrics *m)
{
    for (int i = 0; i < m->n; i++) {
        const struct metric *x = &m->at[i];
        size_t n = strlen(x->name);
        if (!map_name(x->field)) {
            if (x->value != 0) /* proto3: 0 is not sent */
                put_double(o, x->field, x->value);
            continue;
        }
        /* An entry is a message: 1 key, 2 value. Its length is one byte: names are 64
         * long at most. */
        assert(n <= 100);
        put_byte(o, (unsigned)x->field << 3 | 2);
        put_byte(o, (unsigned)(2 + n + 9));
        put_byte(o, 1 << 3 | 2);
        put_byte(o, (unsigned)n);
        ek_put(o, x->name, n);
        put_double(o, 2, x->value);
    }
}

static void put_binary(struct ek_session_out *o, const struct metrics *m,
                       enum ek_tracker_encoding e)
{
    char bytes[EK_ORCA_PROTO_MAX];
    struct ek_session_out proto = {bytes, sizeof bytes, 0};
    put_proto(&proto, m);
    assert(proto.len <= sizeof bytes);
    if (e == EK_TRACKER_ORCA_GRPC) { /* not compressed, and how long it is */
        put_byte(o, 0);
        for (int shift = 24; shift >= 0; shift -= 8)
            put_byte(o, (unsigned)(proto.len >> shift & 0xff));
    }
    if (e == EK_TRACKER_ORCA_BIN)
        ek_put_str(o, "BIN ");
    if (e == EK_TRACKER_ORCA_BIN || e == EK_TRACKER_ORCA_TRAILER)
        ek_put_base64(o, bytes, proto.len);
    else
        ek_put(o, bytes, proto.len);
}

void ek_put_orca(struct ek_session_out *o, const struct ek_tracker *t,
                 const struct ek_snapshot *s, enum ek_tracker_encoding e)
{
    struct metrics m;
    collect(&m, t, s);
    if (e == EK_TRACKER_ORCA_TEXT)
        put_text(o, &m);
    else if (e == EK_TRACKER_ORCA_JSON)
        put_json(o, &m);
    else
        put_binary(o, &m, e);
}
