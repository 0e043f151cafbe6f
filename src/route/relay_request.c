/* relay_request.c - a request as the backend gets it, an answer as the client does. */
#include "base/log.h"
#include "base/mem.h"
#include "route/relay.h"
#include "route/report.h"

#include <assert.h>
#include <string.h>

/* Fields that we add: X-Forwarded-For, X-Forwarded-Proto, Via. */
enum { ADDED_FIELDS = 3 };

/* What is filled: fields and the bytes behind them, both known to suffice. */
struct writer {
    struct ek_route_request *r;
    char *at, *end;
};

static struct ek_text put(struct writer *w, struct ek_text t)
{
    struct ek_text copy = {w->at, t.n};
    if (!t.p)
        return t;
    if (t.n > (size_t)(w->end - w->at))
        return ek_text_of(w->at, 0); /* never: the sum was taken before */
    memcpy(w->at, t.p, t.n);
    w->at += t.n;
    return copy;
}

static void put_field(struct writer *w, struct ek_text name, struct ek_text value)
{
    struct ek_field *f = &w->r->fields[w->r->head.n_fields++];
    f->name = put(w, name);
    f->value = put(w, value);
}

#define LITERAL(s) ek_text_of(s, sizeof(s) - 1)

/* Who the client is, as far as we know: added to what it said, or said anew. */
static bool is_forwarded(struct ek_text name)
{
    return ek_text_is(name, "x-forwarded-for") || ek_text_is(name, "x-forwarded-proto");
}

static void put_forwarded(struct writer *w, const struct ek_head *head, bool trusts,
                          struct ek_text client)
{
    struct ek_field *f = &w->r->fields[w->r->head.n_fields++];
    f->name = put(w, LITERAL("X-Forwarded-For"));
    f->value = ek_text_of(w->at, 0);
    bool has_proto = false;
    for (size_t i = 0; i < head->n_fields && trusts; i++) {
        const struct ek_field *g = &head->fields[i];
        has_proto |= ek_text_is(g->name, "x-forwarded-proto");
        if (!ek_text_is(g->name, "x-forwarded-for") || g->value.n == 0)
            continue;
        f->value.n += put(w, g->value).n;
        f->value.n += put(w, LITERAL(", ")).n;
    }
    f->value.n += put(w, client.n ? client : LITERAL("unknown")).n;
    if (has_proto)
        put_field(w, LITERAL("X-Forwarded-Proto"),
                  ek_head_field(head, "x-forwarded-proto")->value);
    else
        put_field(w, LITERAL("X-Forwarded-Proto"), head->scheme);
}

static size_t bytes_of(const struct ek_head *h, struct ek_text client, const char *via)
{
    /* The names that we add, "unknown", a comma a field, the scheme. */
    size_t n = 256 + h->method.n + h->path.n + h->authority.n + client.n;
    n += 2 * h->scheme.n + (via ? strlen(via) : 0);
    for (size_t i = 0; i < h->n_fields; i++)
        n += h->fields[i].name.n + h->fields[i].value.n + 2;
    return n;
}

/* RFC 9110 9.2.2. */
static bool is_idempotent(struct ek_text method)
{
    static const char *const words[] = {"get", "head",   "options",
                                        "put", "delete", "trace"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (ek_text_is(method, words[i]))
            return true;
    }
    return false;
}

/* The key ------------------------------------------------------------------ */

static uint64_t hash(struct ek_text t)
{
    assert(t.p || t.n == 0);
    uint64_t h = 0xcbf29ce484222325; /* FNV-1a */
    for (size_t i = 0; i < t.n; i++)
        h = (h ^ (unsigned char)t.p[i]) * 0x100000001b3;
    return h;
}

/* "name=value" of a list: the value, or nothing. */
static struct ek_text find_pair(struct ek_text list, char separator, const char *name)
{
    size_t name_n = strlen(name);
    while (list.n > 0) {
        const char *cut = memchr(list.p, separator, list.n);
        size_t n = cut ? (size_t)(cut - list.p) : list.n;
        struct ek_text pair = ek_text_of(list.p, n);
        list = ek_text_of(list.p + n + (cut != NULL), list.n - n - (cut != NULL));
        while (pair.n > 0 && pair.p[0] == ' ')
            pair = ek_text_of(pair.p + 1, pair.n - 1);
        if (pair.n > name_n && pair.p[name_n] == '=' &&
            memcmp(pair.p, name, name_n) == 0)
            return ek_text_of(pair.p + name_n + 1, pair.n - name_n - 1);
    }
    return ek_text_of(NULL, 0);
}

/* By a name as a person wrote it: case does not count. */
static struct ek_text find_field(const struct ek_head *h, const char *name)
{
    for (size_t i = 0; i < h->n_fields; i++) {
        if (ek_text_same(h->fields[i].name, ek_text_of(name, strlen(name))))
            return h->fields[i].value;
    }
    return ek_text_of(NULL, 0);
}

static uint64_t key_of(const struct ek_reactor *w, const struct ek_head *h,
                       struct ek_text client)
{
    const struct ek_route_config *c = ek_router_config(w->router);
    struct ek_text found = client;
    const struct ek_field *f;
    const char *query = h->path.n ? memchr(h->path.p, '?', h->path.n) : NULL;
    switch (c->key) {
    case EK_ROUTE_KEY_HEADER:
        found = find_field(h, c->key_name);
        break;
    case EK_ROUTE_KEY_COOKIE:
        f = ek_head_field(h, "cookie");
        found = f ? find_pair(f->value, ';', c->key_name) : ek_text_of(NULL, 0);
        break;
    case EK_ROUTE_KEY_QUERY:
        found = ek_text_of(NULL, 0);
        if (query)
            found = find_pair(
                ek_text_of(query + 1, (size_t)(h->path.p + h->path.n - query) - 1), '&',
                c->key_name);
        break;
    default:
        break;
    }
    return hash(found.p ? found : client);
}

/* Requests ----------------------------------------------------------------- */

static int set_websocket_key(struct ek_route_request *r, struct ek_text key)
{
    int rc = 0;
    if (key.p && key.n < sizeof r->websocket_key)
        memcpy(r->websocket_key, key.p, key.n);
    else
        rc = ek_websocket_key(r->websocket_key);
    return rc ? rc
              : ek_websocket_accept(r->websocket_accept, r->websocket_key,
                                    strlen(r->websocket_key));
}

static void copy_head(struct writer *w, const struct ek_head *head)
{
    struct ek_head *h = &w->r->head;
    *h = *head;
    h->method = put(w, head->method);
    h->scheme = put(w, head->scheme);
    h->authority = put(w, head->authority);
    h->path = put(w, head->path);
    h->fields = w->r->fields;
    h->n_fields = 0;
    h->websocket_key = ek_text_of(NULL, 0);
    for (size_t i = 0; i < head->n_fields; i++) {
        if (!is_forwarded(head->fields[i].name))
            put_field(w, head->fields[i].name, head->fields[i].value);
    }
}

void ek_route_request_free(struct ek_route_request *r)
{
    if (r)
        ek_buf_release(&r->kept);
    ek_free(r);
}

int ek_route_request_new(struct ek_route_request **out,
                         const struct ek_reactor *reactor, const struct ek_head *head,
                         bool is_last, struct ek_text client)
{
    const struct ek_route_config *c = ek_router_config(reactor->router);
    size_t n_fields = head->n_fields + ADDED_FIELDS;
    size_t bytes = bytes_of(head, client, c->via);
    struct ek_route_request *r =
        ek_calloc(1, sizeof *r + n_fields * sizeof *r->fields + bytes);
    if (!r)
        return EK_ENOMEM;
    r->fields = (struct ek_field *)(void *)(r + 1);
    struct writer w = {r, (char *)(r->fields + n_fields), NULL};
    w.end = w.at + bytes;
    copy_head(&w, head);
    put_forwarded(&w, head, c->trusts_forwarded, client);
    if (c->via)
        put_field(&w, LITERAL("Via"), ek_text_of(c->via, strlen(c->via)));
    ek_buf_init(&r->kept, EK_RELAY_KEPT_BYTES);
    r->is_last = is_last;
    r->is_idempotent = is_idempotent(head->method);
    r->key = key_of(reactor, head, client);
    const struct ek_field *type = ek_head_field(head, "content-type");
    r->is_grpc = type && type->value.n >= 16 &&
                 ek_text_is(ek_text_of(type->value.p, 16), "application/grpc");
    int rc = head->is_websocket ? set_websocket_key(r, head->websocket_key) : 0;
    if (rc) {
        ek_free(r);
        return rc;
    }
    *out = r;
    return 0;
}

/* Answers ------------------------------------------------------------------ */

void ek_answer_for_client(struct ek_relay *s, struct ek_head *out,
                          struct ek_field *fields, const struct ek_head *head)
{
    const char *via = ek_router_config(s->reactor->router)->via;
    size_t n = 0;
    for (size_t i = 0; i < head->n_fields; i++) {
        if (!ek_relay_takes_report(s, &head->fields[i]))
            fields[n++] = head->fields[i];
    }
    if (via)
        fields[n++] = (struct ek_field){LITERAL("Via"), {via, strlen(via)}};
    *out = *head;
    out->fields = fields;
    out->n_fields = n;
}

bool ek_relay_takes_report(struct ek_relay *s, const struct ek_field *f)
{
    struct ek_load_report r;
    int rc;
    if (ek_text_is(f->name, "endpoint-load-metrics"))
        rc = ek_report_header(&r, f->value.p, f->value.n, NULL);
    else if (ek_text_is(f->name, "endpoint-load-metrics-bin"))
        rc = ek_report_trailer(&r, f->value.p, f->value.n, NULL);
    else
        return false;
    if (!rc && s->placement.pool)
        rc = ek_pool_report(s->placement.pool, s->placement.backend, &r,
                            ek_loop_now_us(s->reactor->loop));
    if (rc)
        ek_log(EK_LOG_DEBUG, "report_refused", "session=%llu",
               (unsigned long long)s->id);
    return true;
}
