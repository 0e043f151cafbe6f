/* report_proto.c - xds.data.orca.v3.OrcaLoadReport, by hand.
 *
 *   1 cpu_utilization  2 mem_utilization  3 rps (whole, deprecated)  6 rps_fractional
 *   7 eps  9 application_utilization: doubles but for 3
 *   4 request_cost  5 utilization  8 named_metrics: map entries {1 key, 2 value}
 *
 * A field may come twice (the last counts), in any order; others are skipped by their
 * wire type. */
#include "route/report_int.h"

#include <string.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

struct reader {
    const unsigned char *p, *end;
};

struct field {
    uint32_t number, type;
    uint64_t whole;       /* VARINT */
    double real;          /* FIXED64 */
    struct reader inside; /* BYTES */
};

static bool read_varint(struct reader *r, uint64_t *v)
{
    *v = 0;
    for (unsigned shift = 0; shift < 70 && r->p < r->end; shift += 7) {
        unsigned char byte = *r->p++;
        if (shift == 63 && byte > 1)
            return false;
        *v |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

static bool skip(struct reader *r, uint64_t n)
{
    if (n > (uint64_t)(r->end - r->p))
        return false;
    r->p += n;
    return true;
}

static bool read_double(struct reader *r, double *v)
{
    uint64_t bits = 0;
    if (!skip(r, 8))
        return false;
    for (int i = 0; i < 8; i++)
        bits |= (uint64_t)r->p[i - 8] << (8 * i);
    memcpy(v, &bits, sizeof bits);
    return true;
}

static bool read_field(struct reader *r, struct field *f)
{
    uint64_t tag;
    if (!read_varint(r, &tag) || tag >> 3 == 0 || tag >> 3 > 0x1fffffff)
        return false;
    *f = (struct field){.number = (uint32_t)(tag >> 3), .type = (uint32_t)(tag & 7)};
    switch (f->type) {
    case VARINT:
        return read_varint(r, &f->whole);
    case FIXED64:
        return read_double(r, &f->real);
    case FIXED32:
        return skip(r, 4);
    case BYTES:
        if (!read_varint(r, &f->whole) || !skip(r, f->whole))
            return false;
        f->inside = (struct reader){r->p - f->whole, r->p};
        return true;
    default:
        return false; /* groups are no proto3 */
    }
}

static bool read_entry(struct ek_report_making *m, struct reader entry)
{
    struct ek_text key = {NULL, 0};
    double value = 0;
    while (entry.p < entry.end) {
        struct field f;
        if (!read_field(&entry, &f))
            return false;
        if (f.number == 1 && f.type == BYTES)
            key = ek_text_of((const char *)f.inside.p,
                             (size_t)(f.inside.end - f.inside.p));
        else if (f.number == 2 && f.type == FIXED64)
            value = f.real;
    }
    if (key.n == 0)
        return false;
    ek_report_set_named(m, key, value);
    return true;
}

static void take_double(struct ek_report_making *m, const struct field *f)
{
    static const char *const names[] = {
        [1] = "cpu_utilization",         [2] = "mem_utilization",
        [6] = "rps_fractional",          [7] = "eps",
        [9] = "application_utilization",
    };
    if (f->number < sizeof names / sizeof names[0] && names[f->number])
        ek_report_set(m, ek_text_of(names[f->number], strlen(names[f->number])),
                      f->real);
}

int ek_report_orca_proto(struct ek_report_making *m, const unsigned char *p, size_t n)
{
    struct reader r = {p, p + n};
    size_t n_entries = 0;
    double whole_rps = 0;
    while (r.p < r.end) {
        struct field f;
        if (!read_field(&r, &f))
            return EK_EFORMAT;
        if (f.type == FIXED64)
            take_double(m, &f);
        else if (f.number == 3 && f.type == VARINT)
            whole_rps = (double)f.whole;
        if (f.number != 8 || f.type != BYTES)
            continue;
        if (++n_entries > EK_REPORT_KEYS_MAX)
            return EK_ELIMIT;
        if (!read_entry(m, f.inside))
            return EK_EFORMAT;
    }
    if (whole_rps > 0 && !(m->r.has & EK_LOAD_RPS)) {
        m->r.has |= EK_LOAD_RPS;
        m->r.rps = whole_rps;
    }
    /* proto3 leaves out zeros: no CPU in use is a figure, if it is a report at all. */
    if (n > 0)
        m->r.has |= EK_LOAD_CPU;
    return 0;
}
