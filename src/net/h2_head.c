/* h2_head.c - heads and trailers between message.h and nghttp2. nghttp2 has checked what
 * RFC 9113 8 says of single fields: case, characters, pseudo fields, connection's
 * fields, Content-Length against the body.
 */
#include "base/mem.h"
#include "net/h2_int.h"

#include <assert.h>
#include <string.h>

/* Arriving ---------------------------------------------------------------------- */

static size_t n_slices(const struct ek_h2 *c)
{
    return c->head_slices.len / sizeof(struct ek_h2_slice);
}

void ek_h2_head_begin(struct ek_h2 *c)
{
    ek_buf_reset(&c->head_bytes);
    ek_buf_reset(&c->head_slices);
    c->is_head_too_large = false;
}

void ek_h2_head_end(struct ek_h2 *c)
{
    if (c->head_bytes.cap > EK_H2_KEPT_HEAD_BYTES)
        ek_buf_release(&c->head_bytes);
    if (c->head_slices.cap > EK_H2_KEPT_HEAD_BYTES)
        ek_buf_release(&c->head_slices);
}

int ek_h2_head_add(struct ek_h2 *c, nghttp2_vec name, nghttp2_vec value)
{
    struct ek_h2_slice s = {(uint32_t)c->head_bytes.len, (uint32_t)name.len,
                            (uint32_t)value.len};
    size_t max = c->context->o.max_head_bytes;
    if (c->is_head_too_large || name.len + value.len > max - c->head_bytes.len ||
        n_slices(c) >= EK_HEAD_MAX_FIELDS) {
        c->is_head_too_large = true;
        return 0;
    }
    int rc = ek_buf_add(&c->head_bytes, name.base, name.len);
    if (!rc)
        rc = ek_buf_add(&c->head_bytes, value.base, value.len);
    return rc ? rc : ek_buf_add(&c->head_slices, &s, sizeof s);
}

static struct ek_field field_at(const struct ek_h2 *c, size_t i)
{
    struct ek_h2_slice s;
    memcpy(&s, c->head_slices.data + i * sizeof s, sizeof s);
    const char *p = c->head_bytes.data + s.at;
    return (struct ek_field){ek_text_of(p, s.name_n),
                             ek_text_of(p + s.name_n, s.value_n)};
}

static bool is(struct ek_text t, const char *word)
{
    size_t n = strlen(word);
    return t.n == n && memcmp(t.p, word, n) == 0;
}

static int64_t number_of(struct ek_text t)
{
    int64_t v = 0;
    for (size_t i = 0; i < t.n; i++)
        v = v * 10 + (t.p[i] - '0'); /* nghttp2 has checked digits and range */
    return v;
}

/* False: a field that HTTP/2 does not know. */
static bool read_pseudo(struct ek_head *h, const struct ek_field *f,
                        struct ek_text *protocol)
{
    if (is(f->name, ":method"))
        h->method = f->value;
    else if (is(f->name, ":scheme"))
        h->scheme = f->value;
    else if (is(f->name, ":authority"))
        h->authority = f->value;
    else if (is(f->name, ":path"))
        h->path = f->value;
    else if (is(f->name, ":protocol"))
        *protocol = f->value;
    else if (is(f->name, ":status"))
        h->status = (int)number_of(f->value);
    else
        return false;
    return true;
}

/* Cookie fields may come in pieces; what is not HTTP/2 wants one (RFC 9113 8.2.3). The
 * joined one lies behind the other bytes. */
static int join_cookies(struct ek_h2 *c)
{
    size_t n_cookies = 0, n_bytes = 0;
    for (size_t i = 0; i < n_slices(c); i++) {
        struct ek_field f = field_at(c, i);
        if (is(f.name, "cookie")) {
            n_cookies++;
            n_bytes += f.value.n + 2;
        }
    }
    if (n_cookies < 2)
        return 0;
    int rc = ek_buf_reserve(&c->head_bytes, 6 + n_bytes);
    if (rc)
        return rc;
    struct ek_buf *b = &c->head_bytes;
    struct ek_h2_slice joined = {(uint32_t)b->len, 6, (uint32_t)(n_bytes - 2)};
    size_t n = n_slices(c), kept = 0;
    memcpy(b->data + b->len, "cookie", 6);
    b->len += 6;
    for (size_t i = 0; i < n; i++) {
        struct ek_field f = field_at(c, i);
        if (!is(f.name, "cookie")) {
            memmove(c->head_slices.data + kept++ * sizeof joined,
                    c->head_slices.data + i * sizeof joined, sizeof joined);
            continue;
        }
        memcpy(b->data + b->len, f.value.p, f.value.n);
        memcpy(b->data + b->len + f.value.n, "; ", 2);
        b->len += f.value.n + 2;
    }
    memcpy(c->head_slices.data + kept * sizeof joined, &joined, sizeof joined);
    c->head_slices.len = (kept + 1) * sizeof joined;
    return 0;
}

/* False: what a proxy and its backend could read differently: Host and :authority name
 * different places, or a name is that of framing in disguise. */
static bool read_field(struct ek_head *h, struct ek_field *fields,
                       const struct ek_field *f)
{
    if (is(f->name, "host")) {
        if (!h->authority.p)
            h->authority = f->value;
        return ek_text_equal(h->authority, f->value);
    }
    if (ek_text_is_disguised(f->name))
        return false;
    if (is(f->name, "sec-websocket-key") || is(f->name, "sec-websocket-accept"))
        return true;
    if (is(f->name, "content-length"))
        h->body_bytes = number_of(f->value);
    else if (is(f->name, "expect"))
        h->expects_continue = ek_text_is(f->value, "100-continue");
    fields[h->n_fields++] = *f;
    return true;
}

bool ek_h2_head_read(struct ek_h2 *c, struct ek_head *h, bool *is_unsupported)
{
    struct ek_field *fields = c->context->fields;
    struct ek_text protocol = {NULL, 0};
    *h = (struct ek_head){.fields = fields, .body_bytes = -1};
    *is_unsupported = false;
    if (join_cookies(c))
        return false;
    for (size_t i = 0; i < n_slices(c); i++) {
        struct ek_field f = field_at(c, i);
        bool is_fine = f.name.n > 0 && f.name.p[0] == ':'
                           ? read_pseudo(h, &f, &protocol)
                           : read_field(h, fields, &f);
        if (!is_fine)
            return false;
    }
    if (h->status == 0 && is(h->method, "CONNECT")) {
        h->is_websocket = ek_text_is(protocol, "websocket");
        *is_unsupported = !h->is_websocket;
        h->method = ek_text_of("GET", 3); /* as RFC 6455 says the same */
    }
    /* nghttp2 looks at a path only where the scheme is http or https. */
    return h->status > 0 || *is_unsupported ||
           (ek_text_is_path(h->path, h->method) && ek_text_is_authority(h->authority));
}

size_t ek_h2_trailers_read(struct ek_h2 *c)
{
    size_t n = 0;
    for (size_t i = 0; i < n_slices(c); i++) {
        struct ek_field f = field_at(c, i);
        if (!ek_text_is_framing(f.name) && !ek_text_is_disguised(f.name))
            c->context->fields[n++] = f;
    }
    return n;
}

/* Leaving ----------------------------------------------------------------------- */

/* Fields of one connection alone; nghttp2 sends what it is given. */
static bool is_forbidden(const struct ek_field *f)
{
    switch (f->name.n) {
    case 2:
        return ek_text_is(f->name, "te") && !ek_text_is(f->value, "trailers");
    case 4:
        return ek_text_is(f->name, "host");
    case 7:
        return ek_text_is(f->name, "upgrade");
    case 10:
        return ek_text_is(f->name, "connection") || ek_text_is(f->name, "keep-alive");
    case 16:
        return ek_text_is(f->name, "proxy-connection");
    case 17:
        return ek_text_is(f->name, "transfer-encoding");
    default:
        return f->name.n == 0 || f->name.p[0] == ':';
    }
}

/* nghttp2 copies what it is given, names in lower case; it only wants no const. */
static nghttp2_nv nv_of(struct ek_text name, struct ek_text value)
{
    union {
        const char *p;
        uint8_t *bytes;
    } n = {name.p}, v = {value.n > 0 ? value.p : ""};
    return (nghttp2_nv){n.bytes, v.bytes, name.n, value.n, NGHTTP2_NV_FLAG_NONE};
}

static void add_pseudo(struct ek_h2_context *x, size_t *n, const char *name,
                       struct ek_text value)
{
    if (value.p)
        x->nv[(*n)++] = nv_of(ek_text_of(name, strlen(name)), value);
}

size_t ek_h2_nv_fields(struct ek_h2_context *x, size_t at, const struct ek_field *f,
                       size_t n)
{
    assert(at + n <= sizeof x->nv / sizeof x->nv[0]);
    for (size_t i = 0; i < n; i++) {
        if (!is_forbidden(&f[i]))
            x->nv[at++] = nv_of(f[i].name, f[i].value);
    }
    return at;
}

size_t ek_h2_nv_request(struct ek_h2_context *x, const struct ek_head *h)
{
    size_t n = 0;
    struct ek_text connect = {"CONNECT", 7}, websocket = {"websocket", 9},
                   https = {"https", 5};
    add_pseudo(x, &n, ":method", h->is_websocket ? connect : h->method);
    if (h->is_websocket)
        add_pseudo(x, &n, ":protocol", websocket);
    add_pseudo(x, &n, ":scheme", h->scheme.p ? h->scheme : https);
    add_pseudo(x, &n, ":authority", h->authority);
    add_pseudo(x, &n, ":path", h->path);
    return ek_h2_nv_fields(x, n, h->fields, h->n_fields);
}

size_t ek_h2_nv_answer(struct ek_h2_context *x, const struct ek_head *h, char status[4])
{
    size_t n = 0;
    int v = h->status;
    status[0] = (char)('0' + v / 100 % 10);
    status[1] = (char)('0' + v / 10 % 10);
    status[2] = (char)('0' + v % 10);
    status[3] = 0;
    add_pseudo(x, &n, ":status", ek_text_of(status, 3));
    return ek_h2_nv_fields(x, n, h->fields, h->n_fields);
}
