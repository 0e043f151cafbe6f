#include "route/orca_oob.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/grpc.h"
#include "route/report.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

static const char path[] = "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics";
static const int64_t first_pause_us = 1000000, longest_pause_us = 60000000;
static const int64_t never_us = INT64_C(1) << 60;

/* One backend that is asked. */
struct source {
    struct ek_orca_oob *oob;
    int32_t backend;             /* in the pool */
    bool is_over;                /* freed with its connection */
    struct ek_h2 *h2;            /* NULL: resting */
    struct ek_h2_stream *stream; /* NULL: none */
    struct ek_grpc_reader reader;
    struct ek_timer timer; /* always started */
    int64_t pause_us;      /* the next one's length */
    bool is_unimplemented; /* on this connection: not asked again */
};

struct ek_orca_oob {
    struct ek_router *router;
    struct ek_loop *loop;
    struct ek_h2_context *h2;
    struct ek_rng rng;
    struct source *
        *sources; /* (n_upstreams of the router) by backend; NULL: not asked */
};

/* Asking ------------------------------------------------------------------------ */

static const struct ek_upstream *upstream_of(const struct source *s)
{
    return ek_router_upstream(s->oob->router, s->backend);
}

static size_t put_varint(unsigned char *p, uint64_t v)
{
    size_t n = 0;
    for (; v > 0x7f; v >>= 7)
        p[n++] = (unsigned char)(v | 0x80);
    p[n++] = (unsigned char)v;
    return n;
}

/* OrcaLoadReportRequest {report_interval = 1: Duration {seconds = 1, nanos = 2}}. */
static size_t put_request(unsigned char out[32], int64_t interval_us)
{
    size_t n = 2;
    out[n++] = 0x08;
    n += put_varint(out + n, (uint64_t)(interval_us / 1000000));
    out[n++] = 0x10;
    n += put_varint(out + n, (uint64_t)(interval_us % 1000000 * 1000));
    out[0] = 0x0a;
    out[1] = (unsigned char)(n - 2);
    return n;
}

static void ask(struct source *s)
{
    unsigned char request[32];
    const struct ek_upstream *u = upstream_of(s);
    const char *address = u->config.spec.address;
    size_t n =
        put_request(request, ek_router_config(s->oob->router)->report_interval_us);
    struct ek_grpc_target target = {
        .authority = u->host[0] ? ek_text_of(address, strlen(address))
                                : ek_text_of("localhost", 9),
        .path = path,
        .authorization = u->authorization,
    };
    if (ek_grpc_call(&s->stream, s->h2, &target, request, n, s))
        ek_h2_close(s->h2, EK_H2_NO_ERROR, "no stream could be opened");
}

/* A little different for each: what broke together must not come back together. */
static void rest(struct source *s)
{
    double share = 0.8 + 0.4 * ek_rng_uniform(&s->oob->rng);
    int rc = ek_timer_start(&s->timer, (int64_t)((double)s->pause_us * share));
    (void)rc; /* it is started: moving it cannot fail */
    s->pause_us *= 2;
    if (s->pause_us > longest_pause_us)
        s->pause_us = longest_pause_us;
}

static int connect_source(struct source *s)
{
    const struct ek_upstream *u = upstream_of(s);
    struct ek_h2_start start = {.fd = -1, .user = s};
    int rc = ek_upstream_connect(&start.fd, u);
    if (rc)
        return rc;
    if (u->tls)
        rc = ek_tls_connect_new(&start.tls, u->tls, start.fd,
                                u->config.tls_name ? u->config.tls_name : u->host);
    if (rc) {
        close(start.fd);
        return rc;
    }
    return ek_h2_new(&s->h2, s->oob->h2, &start);
}

static void on_time(struct ek_timer *t)
{
    struct source *s = t->owner;
    int rc = ek_timer_start(t, never_us);
    (void)rc; /* its place in the heap was just freed */
    if (s->h2)
        return;
    s->is_unimplemented = false;
    if (connect_source(s)) {
        s->h2 = NULL;
        rest(s);
        return;
    }
    ask(s);
}

/* Hearing ----------------------------------------------------------------------- */

static const char *name_of(const struct source *s)
{
    return upstream_of(s)->config.spec.name;
}

static void take(struct source *s, struct ek_text m)
{
    struct ek_load_report r;
    if (s->is_over)
        return;
    int rc = ek_report_proto(&r, m.p, m.n, NULL);
    if (!rc)
        rc = ek_pool_report(s->oob->router->pool, s->backend, &r, ek_clock_us());
    if (rc)
        ek_log(EK_LOG_DEBUG, "report_refused", "backend=\"%s\"", name_of(s));
    else
        s->pause_us = first_pause_us;
}

static void on_data(struct ek_h2_stream *stream, const char *p, size_t n)
{
    struct source *s = ek_h2_user_of(stream);
    struct ek_text m;
    int rc = ek_grpc_reader_add(&s->reader, p, n);
    ek_h2_consume(stream, n);
    while (!rc && (rc = ek_grpc_reader_next(&s->reader, &m)) == 0)
        take(s, m);
    if (rc != EK_EAGAIN)
        ek_h2_close(s->h2, EK_H2_INTERNAL_ERROR, "its reports cannot be read");
}

/* The stream's end by the backend. What it cannot do it is not asked again while this
 * connection lives; else it is asked on a new one, after a pause. */
static void end_stream(struct source *s, int status)
{
    if (s->is_over)
        return;
    s->is_unimplemented |= status == EK_GRPC_UNIMPLEMENTED;
    if (s->is_unimplemented)
        ek_log(EK_LOG_WARN, "no_orca",
               "backend=\"%s\" why=\"OpenRcaService is not implemented\"", name_of(s));
    else
        ek_h2_close(s->h2, EK_H2_NO_ERROR, "the stream of reports ended");
}

static void on_head(struct ek_h2_stream *stream, const struct ek_head *h, bool is_last)
{
    struct source *s = ek_h2_user_of(stream);
    int status = ek_grpc_status_in(h->fields, h->n_fields);
    if (h->status >= 200 && h->status != 200 && status < 0)
        status = (int)ek_grpc_status_of_http(h->status);
    if (is_last || status > 0)
        end_stream(s, status);
}

static void on_end(struct ek_h2_stream *stream, const struct ek_field *f, size_t n)
{
    end_stream(ek_h2_user_of(stream), ek_grpc_status_in(f, n));
}

static void on_drained(struct ek_h2_stream *stream)
{
    (void)stream;
}

static void on_stream_closed(struct ek_h2_stream *stream, const struct ek_h2_end *e)
{
    struct source *s = ek_h2_user_of(stream);
    s->stream = NULL;
    ek_grpc_reader_release(&s->reader);
    if (!e->is_lost && !s->is_unimplemented)
        ek_h2_close(s->h2, EK_H2_NO_ERROR, "the stream of reports ended");
}

static void free_source(struct source *s)
{
    ek_timer_stop(&s->timer);
    ek_grpc_reader_release(&s->reader);
    ek_free(s);
}

static void on_closed(struct ek_h2 *h2, const char *why)
{
    struct source *s = ek_h2_get_user(h2);
    s->h2 = NULL;
    s->stream = NULL;
    if (s->is_over) {
        free_source(s);
        return;
    }
    ek_log(EK_LOG_DEBUG, "orca_closed", "backend=\"%s\" why=\"%s\"", name_of(s), why);
    rest(s);
}

/* Life -------------------------------------------------------------------------- */

int ek_orca_oob_start(struct ek_orca_oob *o, int32_t backend)
{
    struct source *s = ek_calloc(1, sizeof *s);
    assert(!o->sources[backend]);
    if (!s)
        return EK_ENOMEM;
    *s = (struct source){.oob = o, .backend = backend, .pause_us = first_pause_us};
    ek_grpc_reader_init(&s->reader, EK_REPORT_BYTES_MAX);
    ek_timer_init(&s->timer, o->loop, on_time, s);
    if (ek_timer_start(&s->timer, 0)) {
        ek_free(s);
        return EK_ENOMEM;
    }
    o->sources[backend] = s;
    return 0;
}

void ek_orca_oob_stop(struct ek_orca_oob *o, int32_t backend)
{
    struct source *s = o->sources[backend];
    o->sources[backend] = NULL;
    if (!s)
        return;
    if (!s->h2) {
        free_source(s);
        return;
    }
    s->is_over = true;
    ek_h2_close(s->h2, EK_H2_NO_ERROR, "the backend is not asked any more");
}

int ek_orca_oob_new(struct ek_orca_oob **out, struct ek_router *router,
                    struct ek_loop *loop)
{
    static const struct ek_h2_handler handler = {.on_head = on_head,
                                                 .on_data = on_data,
                                                 .on_end = on_end,
                                                 .on_drained = on_drained,
                                                 .on_stream_closed = on_stream_closed,
                                                 .on_closed = on_closed};
    struct ek_h2_options options;
    struct ek_orca_oob *o = ek_calloc(1, sizeof *o);
    if (!o)
        return EK_ENOMEM;
    o->router = router;
    o->loop = loop;
    ek_rng_init(&o->rng, (uint64_t)ek_clock_us());
    ek_h2_options_default(&options);
    options.handshake_timeout_us = ek_router_config(router)->connect_timeout_us;
    options.idle_timeout_us = 0; /* UNIMPLEMENTED: the connection is kept to know */
    o->sources = ek_calloc(router->n_upstreams, sizeof(struct source *));
    int rc =
        o->sources ? ek_h2_context_new(&o->h2, loop, &handler, &options) : EK_ENOMEM;
    if (rc) {
        ek_orca_oob_free(o);
        return rc;
    }
    *out = o;
    return 0;
}

void ek_orca_oob_free(struct ek_orca_oob *o)
{
    if (!o)
        return;
    for (size_t i = 0; o->sources && i < o->router->n_upstreams; i++)
        ek_orca_oob_stop(o, (int32_t)i);
    ek_h2_context_free(o->h2);
    ek_free(o->sources);
    ek_free(o);
}
