#include "serve/orca.h"

#include "base/link.h"
#include "base/mem.h"
#include "net/grpc.h"

#include <evenkeel/session.h>
#include <string.h>
#include <unistd.h>

/* A sample of the tracker lives so long: more often nothing new could be told. */
static const int64_t least_us = 500000;
static const int64_t default_us = 10000000; /* to who asks for no interval */
static const int64_t most_us = INT64_C(86400000000);
/* Balancers ask with a connection each; a server has few of them. */
enum { REQUEST_MAX = 4096, MAX_STREAMS = 16, MAX_CONNS = 128, KEY_MAX = 1024 };

struct ek_orca {
    struct ek_loop *loop;
    struct ek_h2_context *h2;
    ek_orca_put_fn *put;
    ek_orca_allows_fn *allows;
    void *arg;            /* of both */
    struct ek_link conns; /* struct conn.link */
    int n_conns;          /* at most MAX_CONNS */
};

struct conn {
    struct ek_link link;
    struct ek_orca *orca;
    struct ek_h2 *h2;
};

/* A call of StreamCoreMetrics. */
struct watcher {
    struct ek_orca *orca;
    struct ek_h2_stream *stream;
    struct ek_grpc_reader request;
    struct ek_timer timer;
    int64_t interval_us;
    bool is_waiting; /* for the reader of what was sent */
};

static void watcher_free(struct watcher *w)
{
    ek_timer_stop(&w->timer);
    ek_grpc_reader_release(&w->request);
    ek_free(w);
}

static void give_up(struct watcher *w)
{
    ek_h2_reset(w->stream, EK_H2_INTERNAL_ERROR);
    watcher_free(w);
}

/* The end that the server chooses. */
static void refuse(struct watcher *w, enum ek_grpc_status status, const char *why)
{
    if (ek_grpc_fail(w->stream, status, why))
        ek_h2_reset(w->stream, EK_H2_INTERNAL_ERROR);
    else
        ek_h2_finish(w->stream, EK_H2_NO_ERROR);
    watcher_free(w);
}

/* The request ------------------------------------------------------------------- */

/* A varint of p[0,n); *at moves behind it. False: it is cut or too long. */
static bool read_varint(const struct ek_text *m, size_t *at, uint64_t *v)
{
    *v = 0;
    for (unsigned shift = 0; shift < 64 && *at < m->n; shift += 7) {
        unsigned char b = (unsigned char)m->p[(*at)++];
        *v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80))
            return true;
    }
    return false;
}

/* The next field: its number, its varint or its bytes. False: the end, or no
 * message. */
static bool next_field(const struct ek_text *m, size_t *at, uint64_t *field,
                       uint64_t *v, struct ek_text *bytes)
{
    uint64_t key;
    *bytes = ek_text_of(NULL, 0);
    if (*at >= m->n || !read_varint(m, at, &key))
        return false;
    *field = key >> 3;
    if ((key & 7) == 0)
        return read_varint(m, at, v);
    if ((key & 7) == 1)
        *v = 8;
    else if ((key & 7) == 5)
        *v = 4;
    else if ((key & 7) != 2 || !read_varint(m, at, v))
        return false;
    if (*v > m->n - *at)
        return false;
    *bytes = ek_text_of(m->p + *at, (size_t)*v);
    *at += (size_t)*v;
    return true;
}

/* OrcaLoadReportRequest.report_interval, a Duration {seconds = 1, nanos = 2}. */
static int64_t interval_of(struct ek_text request)
{
    uint64_t field, v, seconds = 0, nanos = 0;
    struct ek_text bytes, duration = {NULL, 0};
    size_t at = 0;
    while (next_field(&request, &at, &field, &v, &bytes)) {
        if (field == 1 && bytes.p)
            duration = bytes;
    }
    at = 0;
    while (next_field(&duration, &at, &field, &v, &bytes)) {
        if (field == 1 && !bytes.p)
            seconds = v;
        else if (field == 2 && !bytes.p)
            nanos = v;
    }
    if (seconds > 86400 || nanos > 999999999)
        return most_us;
    int64_t us = (int64_t)(seconds * 1000000 + nanos / 1000);
    return us == 0 ? default_us : us < least_us ? least_us : us;
}

/* Reports ----------------------------------------------------------------------- */

static void report(struct watcher *w)
{
    char out[EK_TRACKER_ENCODED_MAX];
    size_t n;
    int rc = w->orca->put(w->orca->arg, out, sizeof out, &n);
    if (!rc && !w->is_waiting)
        rc = ek_h2_send(w->stream, out, n);
    w->is_waiting |= rc == EK_EAGAIN;
    bool is_lost = rc && rc != EK_EAGAIN;
    if (is_lost || ek_timer_start(&w->timer, w->interval_us))
        give_up(w);
}

static void on_time(struct ek_timer *t)
{
    report(t->owner);
}

static void on_end(struct ek_h2_stream *s, const struct ek_field *f, size_t n)
{
    struct watcher *w = ek_h2_user_of(s);
    struct ek_text request;
    (void)f;
    (void)n;
    if (ek_grpc_reader_next(&w->request, &request)) {
        refuse(w, EK_GRPC_INVALID_ARGUMENT, "no OrcaLoadReportRequest came");
        return;
    }
    w->interval_us = interval_of(request);
    ek_grpc_reader_release(&w->request);
    if (ek_grpc_begin(s))
        give_up(w);
    else
        report(w);
}

/* Streams ----------------------------------------------------------------------- */

static bool is_allowed(const struct ek_orca *o, const struct ek_head *h)
{
    const struct ek_field *f = ek_head_field(h, "authorization");
    char key[KEY_MAX];
    if (!f || f->value.n >= sizeof key)
        return o->allows(o->arg, NULL);
    memcpy(key, f->value.p, f->value.n);
    key[f->value.n] = 0;
    return o->allows(o->arg, key);
}

static void on_head(struct ek_h2_stream *s, const struct ek_head *h, bool is_last)
{
    static const char path[] = "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics";
    const struct conn *c = ek_h2_get_user(ek_h2_connection(s));
    if (!ek_grpc_is_call(h)) {
        ek_h2_reset(s, EK_H2_HTTP_1_1_REQUIRED);
        return;
    }
    struct watcher *w = ek_calloc(1, sizeof *w);
    if (!w) {
        ek_h2_reset(s, EK_H2_REFUSED_STREAM);
        return;
    }
    w->orca = c->orca;
    w->stream = s;
    ek_grpc_reader_init(&w->request, REQUEST_MAX);
    ek_timer_init(&w->timer, c->orca->loop, on_time, w);
    ek_h2_set_user_of(s, w);
    if (!ek_text_equal(h->path, ek_text_of(path, sizeof path - 1)))
        refuse(w, EK_GRPC_UNIMPLEMENTED, "there is StreamCoreMetrics alone");
    else if (!is_allowed(c->orca, h))
        refuse(w, EK_GRPC_UNAUTHENTICATED, "the API key is missing or wrong");
    else if (is_last)
        refuse(w, EK_GRPC_INVALID_ARGUMENT, "no OrcaLoadReportRequest came");
}

static void on_data(struct ek_h2_stream *s, const char *p, size_t n)
{
    struct watcher *w = ek_h2_user_of(s);
    ek_h2_consume(s, n);
    if (ek_grpc_reader_add(&w->request, p, n))
        refuse(w, EK_GRPC_RESOURCE_EXHAUSTED, "the request is too large");
}

static void on_drained(struct ek_h2_stream *s)
{
    struct watcher *w = ek_h2_user_of(s);
    w->is_waiting = false;
}

static void on_stream_closed(struct ek_h2_stream *s, const struct ek_h2_end *e)
{
    (void)e;
    watcher_free(ek_h2_user_of(s));
}

static void on_closed(struct ek_h2 *h2, const char *why)
{
    struct conn *c = ek_h2_get_user(h2);
    (void)why;
    ek_link_remove(&c->link);
    c->orca->n_conns--;
    ek_free(c);
}

/* Life -------------------------------------------------------------------------- */

int ek_orca_new(struct ek_orca **out, struct ek_loop *loop, ek_orca_put_fn *put,
                ek_orca_allows_fn *allows, void *arg)
{
    static const struct ek_h2_handler handler = {.on_head = on_head,
                                                 .on_data = on_data,
                                                 .on_end = on_end,
                                                 .on_drained = on_drained,
                                                 .on_stream_closed = on_stream_closed,
                                                 .on_closed = on_closed};
    struct ek_h2_options options;
    struct ek_orca *o = ek_calloc(1, sizeof *o);
    if (!o)
        return EK_ENOMEM;
    ek_link_init(&o->conns);
    o->loop = loop;
    o->put = put;
    o->allows = allows;
    o->arg = arg;
    ek_h2_options_default(&options);
    options.max_streams = MAX_STREAMS;
    options.has_connect_protocol = false;
    int rc = ek_h2_context_new(&o->h2, loop, &handler, &options);
    if (rc) {
        ek_free(o);
        return rc;
    }
    *out = o;
    return 0;
}

void ek_orca_free(struct ek_orca *o)
{
    if (!o)
        return;
    ek_h2_context_free(o->h2);
    ek_free(o);
}

void ek_orca_drain(struct ek_orca *o)
{
    for (struct ek_link *l = o->conns.next; l != &o->conns; l = l->next)
        ek_h2_drain(EK_LINK_OWNER(l, struct conn, link)->h2);
}

int ek_orca_take(struct ek_orca *o, int fd, struct ek_tls *tls, const char *p, size_t n)
{
    bool is_full = o->n_conns == MAX_CONNS;
    struct conn *c = is_full ? NULL : ek_calloc(1, sizeof *c);
    struct ek_h2_start start = {
        .fd = fd, .tls = tls, .is_server = true, .bytes = p, .n_bytes = n, .user = c};
    if (!c) {
        ek_tls_free(tls);
        close(fd);
        return is_full ? EK_ELIMIT : EK_ENOMEM;
    }
    int rc = ek_h2_new(&c->h2, o->h2, &start);
    if (rc) {
        ek_free(c);
        return rc;
    }
    c->orca = o;
    o->n_conns++;
    ek_link_append(&o->conns, &c->link);
    return 0;
}
