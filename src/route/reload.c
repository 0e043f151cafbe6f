/* reload.c - another configuration for a running proxy, whole or not at all.
 *
 *   plan    everything that can fail: names resolved, certificates read, sockets opened,
 *           places taken; nothing is to be seen of it
 *   commit  cannot fail: sessions that begin from now on go by the new one
 */
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/notify.h"
#include "net/sock.h"
#include "route/names.h"
#include "route/run_int.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Names of new backends are asked for so long, while sessions go on; reports wait. A
 * resolver turns to its second server after 5 s. */
static const int64_t names_us = 7000000;

/* What becomes of a backend of the new configuration. */
enum fate { ADDED, CHANGED, KEPT };
static const char *const fate_names[] = {"added", "changed", "kept"};

struct plan {
    const struct ek_route_config *c;
    struct ek_route_held *held;     /* keeps it */
    struct ek_upstream **upstreams; /* (c->n_backends) new ones; NULL: nothing is new */
    enum fate *fates;               /* (c->n_backends) */
    bool *stays;                    /* (n_upstreams of the router) by place */
    size_t n_placed;                /* backends looked at by place_added */
    struct ek_front *fronts[EK_ROUTE_MAX_LISTENERS]; /* by place; NULL: none there */
};

/* Backends ----------------------------------------------------------------------- */

/* A backend is who it was by name and address. */
static struct ek_upstream *find_same(const struct ek_route *r,
                                     const struct ek_route_backend *b)
{
    for (size_t i = 0; i < r->router.n_upstreams; i++) {
        struct ek_upstream *u = r->backends[i].upstream;
        if (u && r->backends[i].removed == 0 &&
            strcmp(u->config.spec.name, b->spec.name) == 0 &&
            strcmp(u->config.spec.address, b->spec.address) == 0)
            return u;
    }
    return NULL;
}

static int plan_backend(struct ek_route *r, struct plan *p, size_t k,
                        struct ek_err *err)
{
    const struct ek_route_backend *b = &p->c->backends[k];
    struct ek_upstream *before = find_same(r, b);
    p->fates[k] = !before ? ADDED : ek_upstream_is_set(before, b) ? KEPT : CHANGED;
    if (before)
        p->stays[before->backend] = true;
    /* Of one that stays as it is the files may be new. */
    if (p->fates[k] == KEPT && !b->has_tls && !b->report_key_file)
        return 0;
    return ek_upstream_new(&p->upstreams[k], b, before, r->next_connection_id++, err);
}

static int plan_backends(struct ek_route *r, struct plan *p, struct ek_err *err)
{
    int rc = 0;
    for (size_t k = 0; k < p->c->n_backends && !rc; k++)
        rc = plan_backend(r, p, k, err);
    return rc;
}

/* Names ---------------------------------------------------------------------------- */

/* Does the plan take a backend away that could get a session now? */
static const struct ek_upstream *find_going(const struct ek_route *r,
                                            const struct plan *p)
{
    for (size_t i = 0; i < r->router.n_upstreams; i++) {
        const struct ek_route_place *place = &r->backends[i];
        if (place->upstream && place->removed == 0 && !p->stays[i] && !place->is_down)
            return place->upstream;
    }
    return NULL;
}

static bool is_unknown(const struct plan *p, size_t k)
{
    const struct ek_upstream *u = p->upstreams[k];
    return p->fates[k] == ADDED && u && u->n_addresses == 0;
}

static int take_name(struct ek_route *r, struct plan *p, size_t k,
                     const struct ek_name *name, struct ek_err *err)
{
    const struct ek_upstream *going = find_going(r, p);
    if (name->n > 0 && ek_upstream_give(p->upstreams[k], name->list, name->n))
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    if (name->n > 0 || !going)
        return 0; /* alone it is down until its name says something: resolve.h */
    return ek_err_set(
        err, EK_EIO,
        "backend '%.200s': address: %s; it would take the place of backend "
        "'%.200s', which stays as it was",
        p->c->backends[k].spec.name, name->why, going->config.spec.name);
}

/* A backend whose name nobody knows may come; but none goes for it. */
static int plan_names(struct ek_route *r, struct plan *p, struct ek_err *err)
{
    size_t n_backends = p->c->n_backends, n = 0;
    struct ek_name *names = ek_calloc(n_backends, sizeof *names);
    int rc = names ? 0 : EK_ENOMEM;
    for (size_t k = 0; k < n_backends && !rc; k++) {
        if (is_unknown(p, k))
            names[n++].text = p->c->backends[k].spec.address;
    }
    if (!rc)
        rc = ek_names_ask(names, n, r->config->resolve, names_us);
    if (rc)
        ek_err_set(err, rc, "names of backends: %s", ek_status_text(rc));
    size_t at = 0;
    for (size_t k = 0; k < n_backends && !rc && at < n; k++) {
        if (is_unknown(p, k))
            rc = take_name(r, p, k, &names[at++], err);
    }
    for (size_t i = 0; i < n; i++)
        ek_free(names[i].list);
    ek_free(names);
    return rc;
}

/* The last step of the plan. What it placed is taken back by its own removal. */
static int place_added(struct ek_route *r, struct plan *p, struct ek_err *err)
{
    for (; p->n_placed < p->c->n_backends; p->n_placed++) {
        size_t k = p->n_placed;
        if (p->fates[k] != ADDED)
            continue;
        struct ek_upstream *u = p->upstreams[k];
        p->upstreams[k] = NULL;
        int rc = ek_backends_place(r, u, err);
        if (rc)
            return rc;
        p->upstreams[k] = u;
    }
    return 0;
}

/* Listeners ---------------------------------------------------------------------- */

static bool is_named(const struct ek_route_config *c, const char *listen)
{
    for (size_t k = 0; k < c->n_listeners; k++) {
        if (strcmp(c->listeners[k].listen, listen) == 0)
            return true;
    }
    return false;
}

/* A place for it: that of the one which listens there already, else one that is or will
 * be free. One that stays keeps its place: threads know its watch by that. */
static size_t place_of(const struct ek_route *r, const struct plan *p,
                       const char *listen)
{
    size_t found = EK_ROUTE_MAX_LISTENERS;
    for (size_t i = EK_ROUTE_MAX_LISTENERS; i-- > 0;) {
        const struct ek_front *f = r->fronts[i];
        if (p->fronts[i])
            continue;
        if (f && strcmp(f->listen, listen) == 0)
            return i;
        if (!f || !is_named(p->c, f->listen))
            found = i;
    }
    return found;
}

static void free_front(struct ek_graced *g)
{
    struct ek_front *f = EK_LINK_OWNER(g, struct ek_front, graced);
    if (f->has_socket)
        ek_front_empty(f->route, f);
    ek_front_free(f);
}

static bool is_planned(const struct plan *p, int64_t id)
{
    for (size_t i = 0; i < EK_ROUTE_MAX_LISTENERS; i++) {
        if (p->fronts[i] && p->fronts[i]->id == id)
            return true;
    }
    return false;
}

/* One that was removed just now, whose socket is open for a grace period still: to bind
 * its address again would fail until then. */
static struct ek_front *find_leaving(const struct ek_route *r, const struct plan *p,
                                     const char *listen)
{
    const struct ek_link *all = &r->router.graced;
    for (struct ek_link *l = all->next; l != all; l = l->next) {
        struct ek_graced *g = EK_LINK_OWNER(l, struct ek_graced, link);
        struct ek_front *f = EK_LINK_OWNER(g, struct ek_front, graced);
        if (g->drop == free_front && f->has_socket && strcmp(f->listen, listen) == 0 &&
            !is_planned(p, f->id))
            return f;
    }
    return NULL;
}

/* Who has that socket now. */
static struct ek_front *find_owner(const struct ek_route *r, int64_t id)
{
    const struct ek_link *all = &r->router.graced;
    for (size_t i = 0; i < EK_ROUTE_MAX_LISTENERS; i++) {
        if (r->fronts[i] && r->fronts[i]->id == id)
            return r->fronts[i];
    }
    for (struct ek_link *l = all->next; l != all; l = l->next) {
        struct ek_graced *g = EK_LINK_OWNER(l, struct ek_graced, link);
        struct ek_front *f = EK_LINK_OWNER(g, struct ek_front, graced);
        if (g->drop == free_front && f->has_socket && f->id == id)
            return f;
    }
    return NULL;
}

static int plan_fronts(struct ek_route *r, struct plan *p, struct ek_err *err)
{
    int rc = 0;
    for (size_t k = 0; k < p->c->n_listeners && !rc; k++) {
        const struct ek_route_listener *l = &p->c->listeners[k];
        size_t i = place_of(r, p, l->listen);
        if (i == EK_ROUTE_MAX_LISTENERS)
            return ek_err_set(err, EK_EINVAL, "listener '%s': there are too many",
                              l->listen);
        const struct ek_front *before = r->fronts[i];
        if (!before || strcmp(before->listen, l->listen) != 0)
            before = find_leaving(r, p, l->listen);
        rc = ek_front_new(&p->fronts[i], l, before, l->listen, ++r->next_front_id, err);
    }
    return rc;
}

void ek_fronts_show(struct ek_route *r, size_t at, struct ek_front *f)
{
    struct ek_front *before = r->fronts[at];
    r->fronts[at] = f;
    ek_shared_ptr_set(&r->router.fronts[at], f);
    if (before) {
        before->route = r;
        /* One that took over later did not get it. */
        before->is_alone = !ek_route_keeps_paths(r);
        ek_grace_put(&r->router, &before->graced, free_front);
        ek_route_tick_soon(r); /* clients may wait in its backlog */
    }
}

static void commit_fronts(struct ek_route *r, struct plan *p)
{
    for (size_t i = 0; i < EK_ROUTE_MAX_LISTENERS; i++) {
        struct ek_front *f = p->fronts[i], *before = r->fronts[i];
        struct ek_front *owner = f ? find_owner(r, f->id) : NULL;
        p->fronts[i] = NULL;
        if (owner)
            ek_front_take(f, owner);
        if (f)
            ek_sock_find_dead(f->fd, p->c->dead_peer_us);
        if (f || before)
            ek_fronts_show(r, i, f);
    }
}

/* The whole ---------------------------------------------------------------------- */

/* What only a start sets. */
static int check_fixed(const struct ek_route *r, const struct ek_route_config *c,
                       struct ek_err *err)
{
    const struct ek_route_config *now = r->config;
    bool same_admin = now->admin && c->admin ? strcmp(now->admin, c->admin) == 0
                                             : now->admin == c->admin;
    if (now->threads != c->threads)
        return ek_err_set(err, EK_EINVAL,
                          "threads: %d, but %d are running: this needs a restart or an "
                          "upgrade (SIGUSR2)",
                          c->threads, now->threads);
    if (!same_admin)
        return ek_err_set(
            err, EK_EINVAL,
            "admin: '%.200s', but it is '%.200s' that is open: this needs "
            "a restart or an upgrade (SIGUSR2)",
            c->admin ? c->admin : "off", now->admin ? now->admin : "off");
    if (ek_counter_get(&r->router.is_draining))
        return ek_err_set(err, EK_EBUSY, "the proxy is draining, and will end");
    /* It has the sockets of now: one that is removed here would be nobody's. */
    if (r->upgrade)
        return ek_err_set(err, EK_EBUSY, "another program is about to take over");
    return 0;
}

static int make_plan(struct ek_route *r, struct plan *p, struct ek_err *err)
{
    size_t n = p->c->n_backends;
    int rc = check_fixed(r, p->c, err);
    if (!rc)
        rc = ek_route_check(p->c, err);
    if (rc)
        return rc;
    p->held = ek_calloc(1, sizeof *p->held);
    p->upstreams = ek_calloc(n, sizeof(struct ek_upstream *));
    p->fates = ek_calloc(n, sizeof *p->fates);
    p->stays = ek_calloc(r->router.n_upstreams, sizeof *p->stays);
    if (!p->held || !p->upstreams || !p->fates || !p->stays)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    rc = plan_backends(r, p, err);
    if (!rc)
        rc = plan_names(r, p, err);
    if (!rc)
        rc = plan_fronts(r, p, err);
    return rc ? rc : place_added(r, p, err);
}

static void drop_plan(struct ek_route *r, struct plan *p, bool is_refused)
{
    for (size_t k = 0; is_refused && p->upstreams && k < p->c->n_backends; k++) {
        if (k < p->n_placed && p->upstreams[k] && p->fates[k] == ADDED)
            ek_backends_remove(r, p->upstreams[k]->backend, 0);
        else
            ek_upstream_free(p->upstreams[k]);
    }
    for (size_t k = 0; k < EK_ROUTE_MAX_LISTENERS; k++)
        ek_front_free(p->fronts[k]);
    ek_free(p->held);
    ek_free(p->upstreams);
    ek_free(p->fates);
    ek_free(p->stays);
}

/* Of this plan: not what it replaces. */
static bool is_new(const struct plan *p, const struct ek_upstream *u)
{
    for (size_t k = 0; k < p->c->n_backends; k++) {
        if (p->upstreams[k] == u)
            return true;
    }
    return false;
}

/* One whose name says nothing yet is down until it does. */
static void begin_backend(struct ek_route *r, const struct ek_upstream *u)
{
    bool is_up = u->n_addresses > 0;
    r->backends[u->backend].is_down = !is_up;
    ek_pool_set_up(r->router.pool, u->backend, is_up, ek_clock_us());
}

static void commit_backends(struct ek_route *r, struct plan *p)
{
    for (size_t k = 0; k < p->c->n_backends; k++) {
        struct ek_upstream *u = p->upstreams[k];
        if (p->fates[k] == CHANGED)
            ek_backends_change(r, u);
        else if (p->fates[k] == ADDED)
            begin_backend(r, u);
        else if (u)
            ek_backends_refresh(r, u);
    }
    /* Last: at no moment is there nobody for a session that comes. */
    for (size_t i = 0; i < r->router.n_upstreams; i++) {
        struct ek_upstream *u = r->backends[i].upstream;
        if (u && !p->stays[i] && r->backends[i].removed == 0 && !is_new(p, u))
            ek_backends_remove(r, (int32_t)i, p->c->backend_drain_us);
    }
}

static void free_held(struct ek_graced *g)
{
    struct ek_route_held *h = EK_LINK_OWNER(g, struct ek_route_held, graced);
    if (h->host.forget)
        h->host.forget(h->host.arg, h->c);
    ek_free(h);
}

static void commit_config(struct ek_route *r, struct plan *p)
{
    bool asks_anew = r->config->report_interval_us != p->c->report_interval_us;
    p->held->host = r->host;
    p->held->c = r->config;
    r->config = p->c;
    ek_shared_ptr_set(&r->router.config, ek_route_share(p->c));
    ek_pool_set_options(r->router.pool, &p->c->pool);
    ek_log_setup(p->c->log_level, EK_LOG_AUTO);
    ek_grace_put(&r->router, &p->held->graced, free_held);
    p->held = NULL;
    if (asks_anew)
        ek_backends_ask_anew(r);
}

/* What becomes of what, as JSON. */
static int add_backends(struct ek_buf *out, const struct ek_route *r,
                        const struct plan *p, enum fate fate)
{
    bool is_first = true;
    int rc = ek_buf_addf(out, "\"%s\":[", fate_names[fate]);
    for (size_t k = 0; k < p->c->n_backends && !rc; k++) {
        const char *name = p->c->backends[k].spec.name;
        if (p->fates[k] != fate)
            continue;
        if (!is_first)
            rc = ek_buf_add_char(out, ',');
        if (!rc)
            rc = ek_json_add_str(out, name, strlen(name));
        is_first = false;
    }
    (void)r;
    return rc ? rc : ek_buf_add_str(out, "],");
}

static int add_removed(struct ek_buf *out, const struct ek_route *r,
                       const struct plan *p)
{
    bool is_first = true;
    int rc = ek_buf_add_str(out, "\"removed\":[");
    for (size_t i = 0; i < r->router.n_upstreams && !rc; i++) {
        const struct ek_upstream *u = r->backends[i].upstream;
        if (!u || p->stays[i] || r->backends[i].removed > 0 || is_new(p, u))
            continue;
        if (!is_first)
            rc = ek_buf_add_char(out, ',');
        if (!rc)
            rc = ek_json_add_str(out, u->config.spec.name, strlen(u->config.spec.name));
        is_first = false;
    }
    return rc ? rc : ek_buf_add_str(out, "]}}\n");
}

static int describe(struct ek_buf *out, const struct ek_route *r, const struct plan *p,
                    struct ek_err *err)
{
    int rc = ek_buf_add_str(out, "{\"backends\":{");
    for (int fate = ADDED; fate <= KEPT && !rc; fate++)
        rc = add_backends(out, r, p, (enum fate)fate);
    if (!rc)
        rc = add_removed(out, r, p);
    return rc ? ek_err_set(err, rc, "out of memory") : 0;
}

int ek_route_apply(struct ek_route *r, const struct ek_route_config *c,
                   struct ek_buf *out, struct ek_err *err)
{
    struct plan p = {.c = c};
    int rc = make_plan(r, &p, err);
    if (!rc)
        rc = describe(out, r, &p, err);
    if (!rc) {
        commit_backends(r, &p);
        commit_fronts(r, &p);
        commit_config(r, &p);
    }
    drop_plan(r, &p, rc != 0);
    return rc;
}

/* By the host -------------------------------------------------------------------- */

void ek_route_set_host(struct ek_route *r, const struct ek_route_host *host)
{
    r->host = *host;
}

/* A service that ends says no more that it is ready. */
static void notify_outcome(const struct ek_route *r, size_t n_backends, const char *why)
{
    char status[EK_NOTIFY_STATUS_MAX];
    if (ek_counter_get(&r->router.is_draining))
        return;
    if (why)
        snprintf(status, sizeof status, "reload refused: %s", why);
    else
        snprintf(status, sizeof status, "%zu backends", n_backends);
    ek_notify_ready(false, status);
}

int ek_route_read_again(struct ek_route *r, struct ek_buf *out, struct ek_err *err)
{
    const struct ek_route_config *c = NULL;
    int rc;
    if (!r->host.read)
        return ek_err_set(err, EK_EINVAL, "there is no configuration to read again");
    if (!ek_counter_get(&r->router.is_draining))
        ek_notify_reloading();
    rc = r->host.read(r->host.arg, &c, err);
    if (!rc) {
        rc = ek_route_apply(r, c, out, err);
        if (rc)
            r->host.forget(r->host.arg, c);
    }
    if (rc) {
        r->n_reloads_refused++;
        ek_log(EK_LOG_ERROR, "reload_refused", "why=\"%s\"", err->text);
    } else {
        r->n_reloads++;
        r->loaded_s = (int64_t)time(NULL);
        ek_log(EK_LOG_INFO, "reloaded", "backends=%zu", c->n_backends);
    }
    notify_outcome(r, rc ? 0 : c->n_backends, rc ? err->text : NULL);
    return rc;
}
