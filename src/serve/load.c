/* load.c - what a balancer in front may know: each request is a session of the tracker
 * (evenkeel/session.h), and what bounds them are seats in the batch and KV pages. CPU
 * does not: a step takes all cores, for one sequence as for many. */
#include "serve/server_int.h"

#include <strings.h>

#define DAY_US INT64_C(86400000000)

static int add_resource(struct ek_tracker *t, const char *name, double total,
                        double cost, int *id)
{
    struct ek_resource_options o;
    ek_tracker_resource_init(&o, sizeof o);
    o.name = name;
    o.total = total;
    o.prior_cost = cost;
    o.safety_factor = cost > 0 ? 1 : 0;
    return ek_tracker_add_resource(t, &o, id);
}

int ek_load_start(struct ek_server *s, struct ek_err *err)
{
    struct ek_tracker_options o;
    char why[256] = "a resource was refused";
    ek_tracker_options_init(&o, sizeof o);
    o.cpu = EK_TRACKER_CPU_NONE;
    o.deadline_us = DAY_US; /* a call always ends: its exchange does */
    int rc = ek_tracker_new(&s->tracker, &o, why, sizeof why);
    if (!rc)
        rc = add_resource(s->tracker, "seats", s->rt->engine_options.max_seqs, 1,
                          &s->seats);
    if (!rc)
        rc = add_resource(s->tracker, "kv_pages", 1, 0, &s->kv_pages);
    return rc ? ek_err_set(err, rc, "sessions cannot be tracked: %s", why) : 0;
}

/* What is used as of now. */
static void refresh(const struct ek_server *s)
{
    const struct ek_engine_stats *e = ek_worker_stats(s->worker);
    int32_t n_pages = e->n_pages - e->n_quarantined;
    (void)ek_tracker_set_resource(s->tracker, s->seats, ek_worker_choices(s->worker),
                                  s->rt->engine_options.max_seqs);
    /* The engine has not reported yet, or lost all its pages: as it was. */
    if (n_pages > 0 && e->n_free_pages <= n_pages)
        (void)ek_tracker_set_resource(s->tracker, s->kv_pages,
                                      n_pages - e->n_free_pages, n_pages);
}

int ek_load_put(const struct ek_server *s, enum ek_tracker_encoding e, char *out,
                size_t size, size_t *n)
{
    refresh(s);
    return ek_tracker_encode(s->tracker, e, out, size, n);
}

int ek_load_add_header(const struct ek_server *s, struct ek_http_exchange *x)
{
    const char *format =
        ek_http_header_get(ek_http_get_request(x), "endpoint-load-metrics-format");
    enum ek_tracker_encoding e = EK_TRACKER_ORCA_TEXT;
    char text[EK_TRACKER_ENCODED_MAX];
    size_t n;
    if (!format)
        return 0;
    if (!strcasecmp(format, "json"))
        e = EK_TRACKER_ORCA_JSON;
    else if (!strcasecmp(format, "bin"))
        e = EK_TRACKER_ORCA_BIN;
    else if (strcasecmp(format, "text") != 0)
        return 0; /* a form of others: the answer matters more */
    int rc = ek_load_put(s, e, text, sizeof text, &n);
    return rc ? rc : ek_http_add_header(x, ek_tracker_encoding_header(e), text);
}
