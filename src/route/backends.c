/* backends.c - the backends of a running proxy, as the main thread adds, changes and
 * removes them.
 *
 *   FREE ──place─> IN USE ──remove──> DRAINING ──no session, grace period over──> FREE
 *                  │  ^
 *                  └──┘ change: another upstream in its place
 *
 * The upstream is there before the pool lets any session come; a place is given again
 * only when no session and no thread knows its index any more. Connections outlive
 * both, so each remembers its upstream's connection_id. */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "route/orca_oob.h"
#include "route/resolve.h"
#include "route/run_int.h"

#include <assert.h>

static struct ek_upstream *upstream_at(const struct ek_route *r, int32_t backend)
{
    return r->backends[backend].upstream;
}

static void free_graced(struct ek_graced *g)
{
    ek_upstream_free(EK_LINK_OWNER(g, struct ek_upstream, graced));
}

static void show(struct ek_route *r, int32_t backend, struct ek_upstream *u)
{
    struct ek_upstream *before = upstream_at(r, backend);
    r->backends[backend].upstream = u;
    ek_shared_ptr_set(&r->router.upstreams[backend], u);
    if (before)
        ek_grace_put(&r->router, &before->graced, free_graced);
}

static int ask(struct ek_route *r, int32_t backend)
{
    const struct ek_upstream *u = upstream_at(r, backend);
    if (u->n_addresses == 0 || (u->config.agent && u->agent.n == 0))
        ek_resolver_hurry(r->resolver);
    int rc = ek_route_start_probes(r, backend);
    if (!rc && upstream_at(r, backend)->config.reports_orca)
        rc = ek_orca_oob_start(r->orca, backend);
    return rc;
}

static void ask_no_more(struct ek_route *r, int32_t backend)
{
    ek_route_stop_probes(r, backend);
    ek_orca_oob_stop(r->orca, backend);
}

int ek_backends_open(struct ek_route *r)
{
    struct ek_router *router = &r->router;
    size_t n = (size_t)r->config->pool.max_backends;
    router->upstreams = ek_calloc(n, sizeof *router->upstreams);
    r->backends = ek_calloc(n, sizeof *r->backends);
    if (!router->upstreams || !r->backends)
        return EK_ENOMEM;
    router->n_upstreams = n;
    int rc = ek_pool_new(&router->pool, &r->config->pool);
    return rc ? rc : ek_orca_oob_new(&r->orca, router, r->loop);
}

void ek_backends_close(struct ek_route *r)
{
    for (size_t i = 0; r->backends && i < r->router.n_upstreams; i++) {
        ek_route_stop_probes(r, (int32_t)i);
        ek_upstream_free(r->backends[i].upstream);
    }
    ek_free(r->backends);
    ek_free(r->router.upstreams);
    ek_pool_free(r->router.pool);
}

/* When sessions of a backend in use are ended. */
static void limit(struct ek_route *r, int32_t backend, int64_t end_us)
{
    struct ek_route_place *p = &r->backends[backend];
    r->n_limited += (end_us != INT64_MAX) - (p->end_us != INT64_MAX);
    p->end_us = end_us;
}

/* The place is not in use any more: nothing but the name is left of it. */
static void leave(struct ek_route *r, int32_t backend)
{
    limit(r, backend, INT64_MAX);
    ek_pool_remove(r->router.pool, backend);
    ask_no_more(r, backend);
    ek_counter_set(&upstream_at(r, backend)->is_removed, 1);
    r->backends[backend].removed = ek_grace_begin(&r->router);
    r->n_removed++;
    ek_route_tick_soon(r);
}

int ek_backends_place(struct ek_route *r, struct ek_upstream *u, struct ek_err *err)
{
    const struct ek_backend_spec *spec = &u->config.spec;
    int32_t backend = -1;
    int rc = ek_pool_place(r->router.pool, &backend, spec);
    if (rc) {
        ek_err_set(err, rc, "backend '%s': %s", spec->name,
                   rc == EK_ELIMIT ? "there are too many, those included that still "
                                     "have sessions after they were removed"
                                   : ek_status_text(rc));
        ek_upstream_free(u);
        return rc;
    }
    struct ek_route_place *p = &r->backends[backend];
    assert(!p->upstream);
    *p = (struct ek_route_place){.end_us = INT64_MAX};
    u->backend = backend;
    u->since_us = ek_clock_us();
    show(r, backend, u);
    rc = ask(r, backend);
    if (rc) {
        ek_err_set(err, rc, "backend '%s': %s", spec->name, ek_status_text(rc));
        leave(r, backend);
    }
    return rc;
}

void ek_backends_change(struct ek_route *r, struct ek_upstream *u)
{
    int32_t backend = u->backend;
    int rc = ek_pool_update(r->router.pool, backend, &u->config.spec);
    assert(rc == 0);
    ask_no_more(r, backend);
    show(r, backend, u);
    rc = ask(r, backend);
    if (rc)
        ek_log(EK_LOG_ERROR, "backend_not_asked", "backend=\"%s\" why=\"%s\"",
               u->config.spec.name, ek_status_text(rc));
}

void ek_backends_refresh(struct ek_route *r, struct ek_upstream *u)
{
    show(r, u->backend, u);
}

void ek_backends_remove(struct ek_route *r, int32_t backend, int64_t limit_us)
{
    leave(r, backend);
    if (limit_us > 0)
        r->backends[backend].end_us = ek_loop_now_us(r->loop) + limit_us;
}

void ek_backends_drain(struct ek_route *r, int32_t backend, bool is_on,
                       int64_t limit_us)
{
    bool has_limit = is_on && limit_us >= 0;
    ek_pool_set_drain(r->router.pool, backend, is_on);
    limit(r, backend, has_limit ? ek_loop_now_us(r->loop) + limit_us : INT64_MAX);
    ek_counter_set(&upstream_at(r, backend)->is_ended, 0);
}

static void end_sessions(struct ek_route *r, const struct ek_route_place *p)
{
    if (ek_loop_now_us(r->loop) < p->end_us || ek_counter_get(&p->upstream->is_ended))
        return;
    ek_counter_set(&p->upstream->is_ended, 1);
    ek_grace_begin(&r->router);
}

static void work_on(struct ek_route *r, int32_t backend)
{
    struct ek_route_place *p = &r->backends[backend];
    struct ek_upstream *u = p->upstream;
    end_sessions(r, p);
    if (p->removed == 0)
        return;
    if (!ek_grace_is_over(&r->router, p->removed) ||
        !ek_pool_reap(r->router.pool, backend))
        return;
    ek_log(EK_LOG_INFO, "backend_gone", "backend=\"%s\"", u->config.spec.name);
    show(r, backend, NULL);
    p->removed = 0;
    r->n_removed--;
}

void ek_backends_ask_anew(struct ek_route *r)
{
    for (size_t i = 0; i < r->router.n_upstreams; i++) {
        const struct ek_upstream *u = r->backends[i].upstream;
        if (!u || r->backends[i].removed > 0 || !u->config.reports_orca)
            continue;
        ek_orca_oob_stop(r->orca, (int32_t)i);
        if (ek_orca_oob_start(r->orca, (int32_t)i))
            ek_log(EK_LOG_ERROR, "backend_not_asked", "backend=\"%s\" why=\"%s\"",
                   u->config.spec.name, ek_status_text(EK_ENOMEM));
    }
}

void ek_backends_work(struct ek_route *r)
{
    bool has_work = r->n_removed > 0 || r->n_limited > 0;
    for (size_t i = 0; has_work && i < r->router.n_upstreams; i++) {
        if (r->backends[i].upstream)
            work_on(r, (int32_t)i);
    }
    ek_grace_work(&r->router, false);
}
