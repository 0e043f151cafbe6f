#include "net/grpc.h"

#include <stdio.h>
#include <string.h>

static struct ek_text text(const char *s)
{
    return ek_text_of(s, strlen(s));
}

/* Heads ------------------------------------------------------------------------- */

bool ek_grpc_is_call(const struct ek_head *h)
{
    static const char grpc[] = "application/grpc";
    const struct ek_field *type = ek_head_field(h, "content-type");
    size_t n = sizeof grpc - 1;
    return ek_text_equal(h->method, text("POST")) && type && type->value.n >= n &&
           ek_text_is(ek_text_of(type->value.p, n), grpc) &&
           (type->value.n == n || strchr("+;", type->value.p[n]));
}

int64_t ek_grpc_timeout_us(const struct ek_head *h)
{
    static const struct {
        char unit;
        int64_t us; /* 0: a thousandth */
    } units[] = {{'H', 3600000000}, {'M', 60000000}, {'S', 1000000},
                 {'m', 1000},       {'u', 1},        {'n', 0}};
    const struct ek_field *f = ek_head_field(h, "grpc-timeout");
    int64_t v = 0;
    if (!f || f->value.n < 2 || f->value.n > 9)
        return INT64_MAX;
    for (size_t i = 0; i + 1 < f->value.n; i++) {
        if (f->value.p[i] < '0' || f->value.p[i] > '9')
            return INT64_MAX;
        v = v * 10 + (f->value.p[i] - '0');
    }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (units[i].unit == f->value.p[f->value.n - 1])
            return units[i].us ? v * units[i].us : v / 1000;
    }
    return INT64_MAX;
}

/* Messages ---------------------------------------------------------------------- */

void ek_grpc_reader_init(struct ek_grpc_reader *r, size_t max_message_bytes)
{
    /* One message and a frame's worth of the next. */
    ek_buf_init(&r->buf, 2 * (max_message_bytes + EK_GRPC_PREFIX) + 65536);
    r->max = max_message_bytes;
    r->n_given = 0;
}

void ek_grpc_reader_release(struct ek_grpc_reader *r)
{
    ek_buf_release(&r->buf);
}

static size_t length_at(const char *p)
{
    const unsigned char *b = (const unsigned char *)p;
    return (size_t)b[1] << 24 | (size_t)b[2] << 16 | (size_t)b[3] << 8 | b[4];
}

static void drop_given(struct ek_grpc_reader *r)
{
    if (r->n_given == 0)
        return;
    ek_buf_consume(&r->buf, r->n_given);
    r->n_given = 0;
    if (r->buf.len == 0)
        ek_buf_release(&r->buf);
}

int ek_grpc_reader_add(struct ek_grpc_reader *r, const char *p, size_t n)
{
    drop_given(r);
    return ek_buf_add(&r->buf, p, n);
}

int ek_grpc_reader_next(struct ek_grpc_reader *r, struct ek_text *message)
{
    drop_given(r);
    if (r->buf.len == 0)
        return EK_EAGAIN;
    if (r->buf.data[0] != 0)
        return EK_EUNSUP;
    if (r->buf.len < EK_GRPC_PREFIX)
        return EK_EAGAIN;
    size_t n = length_at(r->buf.data);
    if (n > r->max)
        return EK_ELIMIT;
    if (r->buf.len < EK_GRPC_PREFIX + n)
        return EK_EAGAIN;
    r->n_given = EK_GRPC_PREFIX + n;
    *message = ek_text_of(r->buf.data + EK_GRPC_PREFIX, n);
    return 0;
}

/* Status ------------------------------------------------------------------------ */

void ek_grpc_escape(char *out, size_t size, const char *s)
{
    size_t at = 0;
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        bool is_plain = c >= 0x20 && c <= 0x7e && c != '%';
        if (at + (is_plain ? 1 : 3) >= size)
            break;
        if (is_plain)
            out[at++] = *s;
        else
            at += (size_t)snprintf(out + at, 4, "%%%02X", c);
    }
    out[at] = 0;
}

/* grpc-status and, if there is one, grpc-message. */
struct said {
    char status[4], message[256];
    struct ek_field fields[3];
    size_t n;
};

static void say(struct said *s, enum ek_grpc_status status, const char *message)
{
    snprintf(s->status, sizeof s->status, "%u", (unsigned)status % 100);
    s->fields[s->n++] = (struct ek_field){text("grpc-status"), text(s->status)};
    if (!message)
        return;
    ek_grpc_escape(s->message, sizeof s->message, message);
    s->fields[s->n++] = (struct ek_field){text("grpc-message"), text(s->message)};
}

static const struct ek_field type_field = {{"content-type", 12},
                                           {"application/grpc", 16}};

int ek_grpc_begin(struct ek_h2_stream *s)
{
    struct ek_head h = {
        .status = 200, .fields = &type_field, .n_fields = 1, .body_bytes = -1};
    return ek_h2_answer(s, &h, false);
}

int ek_grpc_end(struct ek_h2_stream *s, enum ek_grpc_status status, const char *message)
{
    struct said said = {.n = 0};
    say(&said, status, message);
    return ek_h2_send_trailers(s, said.fields, said.n);
}

int ek_grpc_fail(struct ek_h2_stream *s, enum ek_grpc_status status,
                 const char *message)
{
    struct said said = {.fields = {type_field}, .n = 1};
    say(&said, status, message);
    struct ek_head h = {
        .status = 200, .fields = said.fields, .n_fields = said.n, .body_bytes = -1};
    return ek_h2_answer(s, &h, true);
}

int ek_grpc_status_in(const struct ek_field *fields, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct ek_text *v = &fields[i].value;
        if (!ek_text_is(fields[i].name, "grpc-status"))
            continue;
        if (v->n == 0 || v->n > 2)
            return EK_GRPC_UNKNOWN;
        int status = 0;
        for (size_t k = 0; k < v->n; k++) {
            if (v->p[k] < '0' || v->p[k] > '9')
                return EK_GRPC_UNKNOWN;
            status = status * 10 + (v->p[k] - '0');
        }
        return status;
    }
    return -1;
}

enum ek_grpc_status ek_grpc_status_of_http(int status)
{
    switch (status) {
    case 400:
    case 431:
        return EK_GRPC_INTERNAL;
    case 401:
        return EK_GRPC_UNAUTHENTICATED;
    case 403:
        return EK_GRPC_PERMISSION_DENIED;
    case 404:
        return EK_GRPC_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504:
        return EK_GRPC_UNAVAILABLE;
    default:
        return EK_GRPC_UNKNOWN;
    }
}

enum ek_grpc_status ek_grpc_status_of_reset(uint32_t code)
{
    switch (code) {
    case EK_H2_REFUSED_STREAM:
        return EK_GRPC_UNAVAILABLE;
    case EK_H2_CANCEL:
        return EK_GRPC_CANCELLED;
    case EK_H2_ENHANCE_YOUR_CALM:
        return EK_GRPC_RESOURCE_EXHAUSTED;
    case EK_H2_INADEQUATE_SECURITY:
        return EK_GRPC_PERMISSION_DENIED;
    default:
        return EK_GRPC_INTERNAL;
    }
}

/* Client ------------------------------------------------------------------------ */

int ek_grpc_call(struct ek_h2_stream **s, struct ek_h2 *c,
                 const struct ek_grpc_target *target, const void *message, size_t n,
                 void *user)
{
    const char *key = target->authorization;
    struct ek_field fields[3] = {type_field, {text("te"), text("trailers")}};
    if (key)
        fields[2] = (struct ek_field){text("authorization"), text(key)};
    struct ek_head h = {.method = text("POST"),
                        .scheme = text("http"),
                        .authority = target->authority,
                        .path = text(target->path),
                        .fields = fields,
                        .n_fields = key ? 3 : 2,
                        .body_bytes = -1};
    const char prefix[EK_GRPC_PREFIX] = {0, (char)(n >> 24), (char)(n >> 16),
                                         (char)(n >> 8), (char)n};
    struct ek_h2_stream *v;
    int rc = ek_h2_open(&v, c, &h, false, user);
    if (rc)
        return rc;
    rc = ek_h2_send(v, prefix, sizeof prefix);
    if (!rc || rc == EK_EAGAIN)
        rc = ek_h2_send(v, message, n);
    if (!rc || rc == EK_EAGAIN)
        rc = ek_h2_send_end(v);
    if (rc) {
        ek_h2_reset(v, EK_H2_CANCEL);
        return rc;
    }
    *s = v;
    return 0;
}
