/* run.c - from a configuration to threads, and the drain at the end. */
#include "route/run.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/sock.h"
#include "route/config.h"
#include "route/inherit.h"
#include "route/orca_oob.h"
#include "route/resolve.h"
#include "route/run_int.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* How often the main thread looks after what it waits for, and whether there is any. */
static const int64_t tick_us = 50000, rest_us = 250000;

void ek_route_config_default(struct ek_route_config *c)
{
    *c = (struct ek_route_config){
        .threads = 1,
        .max_connections = 20000,
        .max_queue = 256,
        .queue_timeout_us = 5000000,
        .retry_after_us = 1000000,
        .connect_timeout_us = 5000000,
        .head_timeout_us = 10000000,
        .idle_timeout_us = 75000000,
        .dead_peer_us = 60000000,
        .report_interval_us = 1000000,
        .health_interval_us = 2000000,
        .log_interval_us = 60000000,
        .resolve_interval_us = 30000000,
        .ping_timeout_us = 20000000,
        .pool_connections = 32,
        .log_level = EK_LOG_INFO,
        .logs_sessions = true,
        .via = "1.1 evenkeel",
    };
    ek_pool_options_default(&c->pool);
}

static int check_backend(const struct ek_route_config *c, size_t i, struct ek_err *err)
{
    const struct ek_route_backend *b = &c->backends[i];
    if (!ek_route_is_address(b->spec.address))
        return ek_err_set(err, EK_EINVAL,
                          "route: backend '%.200s': '%.200s' is no address, expected "
                          "HOST:PORT or unix:PATH",
                          b->spec.name, b->spec.address);
    if (b->agent && !ek_route_is_address(b->agent))
        return ek_err_set(err, EK_EINVAL,
                          "route: backend '%.200s': agent '%.200s' is no address, "
                          "expected HOST:PORT",
                          b->spec.name, b->agent);
    if (b->has_tls && !b->tls_name && strncmp(b->spec.address, "unix:", 5) == 0)
        return ek_err_set(
            err, EK_EINVAL,
            "route: backend '%.200s': TLS to a socket file has no host to "
            "ask for and to verify, expected tls_name: the name in its "
            "certificate",
            b->spec.name);
    for (size_t k = 0; k < i; k++) {
        if (!strcmp(c->backends[k].spec.name, b->spec.name))
            return ek_err_set(err, EK_EINVAL,
                              "route: backend '%.200s' is there twice, expected names "
                              "that differ",
                              b->spec.name);
    }
    return 0;
}

int ek_route_check(const struct ek_route_config *c, struct ek_err *err)
{
    if (c->n_listeners == 0)
        return ek_err_set(err, EK_EINVAL, "route: no listener is given");
    if (c->n_listeners > EK_ROUTE_MAX_LISTENERS)
        return ek_err_set(err, EK_EINVAL, "route: %zu listeners, more than %d",
                          c->n_listeners, EK_ROUTE_MAX_LISTENERS);
    if (c->n_backends == 0)
        return ek_err_set(err, EK_EINVAL, "route: no backend is given");
    if (c->n_backends > (size_t)c->pool.max_backends)
        return ek_err_set(err, EK_EINVAL, "route: %zu backends, more than %d",
                          c->n_backends, c->pool.max_backends);
    if (c->threads < 1 || c->threads > 256)
        return ek_err_set(err, EK_EINVAL, "route: threads: %d is not 1 to 256",
                          c->threads);
    if ((c->key == EK_ROUTE_KEY_HEADER || c->key == EK_ROUTE_KEY_COOKIE ||
         c->key == EK_ROUTE_KEY_QUERY) &&
        !c->key_name)
        return ek_err_set(err, EK_EINVAL, "route: the key of policy hash has no name");
    int rc = 0;
    for (size_t i = 0; i < c->n_backends && !rc; i++)
        rc = check_backend(c, i, err);
    return rc;
}

int ek_route_check_files(const struct ek_route_config *c, struct ek_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < c->n_listeners && !rc; i++)
        rc = ek_front_check_files(&c->listeners[i], err);
    for (size_t i = 0; i < c->n_backends && !rc; i++)
        rc = ek_upstream_check_files(&c->backends[i], err);
    return rc;
}

/* Opening ------------------------------------------------------------------ */

static int open_fronts(struct ek_route *r, struct ek_err *err)
{
    const struct ek_route_config *c = r->config;
    int rc = 0;
    for (size_t i = 0; i < c->n_listeners && !rc; i++) {
        const struct ek_route_listener *l = &c->listeners[i];
        struct ek_front *f;
        char at[EK_INHERITED_AT];
        rc = ek_front_new(&f, l, NULL, ek_inherited_find(c->inherited, at, l->listen),
                          ++r->next_front_id, err);
        if (rc)
            break;
        ek_sock_find_dead(f->fd, c->dead_peer_us);
        ek_fronts_show(r, i, f);
    }
    return rc;
}

static int open_backends(struct ek_route *r, struct ek_err *err)
{
    const struct ek_route_config *c = r->config;
    int rc = ek_backends_open(r);
    if (rc)
        return ek_err_set(err, rc, "out of memory");
    for (size_t i = 0; i < c->n_backends && !rc; i++) {
        struct ek_upstream *u;
        rc = ek_upstream_new(&u, &c->backends[i], NULL, r->next_connection_id++, err);
        if (!rc)
            rc = ek_backends_place(r, u, err);
    }
    if (!rc && (ek_resolver_new(&r->resolver, r) || ek_resolver_ask_now(r->resolver)))
        rc = ek_err_set(err, EK_ENOMEM, "out of memory");
    /* None is a newcomer among the others, and starts slowly: their time is 0. One
     * whose name says nothing is down until it does. */
    for (size_t i = 0; i < c->n_backends && !rc; i++) {
        r->backends[i].is_down = r->backends[i].upstream->n_addresses == 0;
        ek_pool_set_up(r->router.pool, (int32_t)i, !r->backends[i].is_down, 0);
    }
    return rc;
}

static int open_reactors(struct ek_route *r, struct ek_err *err)
{
    struct ek_router *router = &r->router;
    size_t n = (size_t)r->config->threads;
    router->reactors = ek_calloc(n, sizeof(struct ek_reactor *));
    if (!router->reactors)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        int rc = ek_reactor_new(&router->reactors[i], router, (int64_t)i, err);
        if (rc)
            return rc;
        router->n_reactors = i + 1;
    }
    return 0;
}

/* Calls of other threads and of signals ------------------------------------- */

static void move_tick(struct ek_route *r, int64_t delay_us)
{
    /* Its place in the heap is free, or its own: it cannot fail. */
    if (ek_timer_start(&r->tick, delay_us))
        ek_log(EK_LOG_ERROR, "no_memory", "what=timer");
}

void ek_route_tick_soon(struct ek_route *r)
{
    ek_timer_hasten(&r->tick, tick_us);
}

static void on_tick(struct ek_timer *t)
{
    struct ek_route *r = t->owner;
    move_tick(r, rest_us);
    ek_backends_work(r);
    bool is_asking = ek_resolver_work(r->resolver);
    ek_route_work_upgrade(r);
    bool is_draining = ek_counter_get(&r->router.is_draining);
    if (is_draining)
        ek_route_work_drain(r);
    if (is_asking || is_draining || r->n_removed > 0 || r->dead_pid > 0 ||
        !ek_link_is_alone(&r->router.graced))
        ek_route_tick_soon(r);
}

static void on_stop(struct ek_watch *w, int events)
{
    struct ek_route *r = w->owner;
    uint64_t n = 0;
    (void)events;
    if (read(w->fd, &n, sizeof n) < 0)
        return;
    ek_route_begin_drain(r);
    r->n_stops += n > 1 ? 2 : 1;
}

static void on_again(struct ek_watch *w, int events)
{
    struct ek_route *r = w->owner;
    struct ek_err err = EK_ERR_INIT;
    struct ek_buf out;
    uint64_t n = 0;
    (void)events;
    if (read(w->fd, &n, sizeof n) < 0)
        return;
    if (r->upgrade) { /* it ends with that, or is the other program's */
        r->reloads_later = true;
        return;
    }
    ek_buf_init(&out, EK_ROUTE_MAX_BODY_BYTES);
    int rc = ek_route_read_again(r, &out, &err);
    (void)rc; /* it was logged */
    ek_buf_release(&out);
}

static void on_over(struct ek_watch *w, int events)
{
    uint64_t n = 0;
    (void)events;
    if (read(w->fd, &n, sizeof n) >= 0)
        ek_route_begin_upgrade(w->owner);
}

static void call(const struct ek_watch *eventfd)
{
    int saved = errno;
    uint64_t one = 1;
    ssize_t n = write(eventfd->fd, &one, sizeof one);
    (void)n;
    errno = saved;
}

void ek_route_stop(struct ek_route *r)
{
    call(&r->stop);
}

void ek_route_upgrade(struct ek_route *r)
{
    call(&r->over);
}

void ek_route_reload(struct ek_route *r)
{
    call(&r->again);
}

/* Life --------------------------------------------------------------------- */

static int open_call(struct ek_route *r, struct ek_watch *w,
                     void (*on_ready)(struct ek_watch *w, int events))
{
    w->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    w->on_ready = on_ready;
    w->owner = r;
    return w->fd < 0 ? EK_EIO : ek_watch_start(r->loop, w, EK_READABLE);
}

static void close_call(struct ek_watch *w)
{
    ek_watch_stop(w);
    if (w->fd >= 0)
        close(w->fd);
}

static int open_main(struct ek_route *r, struct ek_err *err)
{
    int rc = ek_loop_new(&r->loop, err);
    if (rc)
        return rc;
    ek_timer_init(&r->tick, r->loop, on_tick, r);
    if (open_call(r, &r->stop, on_stop) || open_call(r, &r->again, on_again) ||
        open_call(r, &r->over, on_over) || ek_timer_start(&r->tick, tick_us))
        return ek_err_set(err, EK_EIO, "route: %s", strerror(errno));
    return 0;
}

/* It does not start: the proxy that it was to replace goes on with its socket files. */
static void leave_paths(struct ek_route *r)
{
    const struct ek_inherited *in = r->config->inherited;
    r->is_handed_over = in && in->ready_fd >= 0;
}

int ek_route_new(struct ek_route **out, const struct ek_route_config *c,
                 struct ek_err *err)
{
    int rc = ek_route_check(c, err);
    if (rc)
        return rc;
    struct ek_route *r = ek_calloc(1, sizeof *r);
    if (!r)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    r->config = c;
    ek_shared_ptr_set(&r->router.config, ek_route_share(c));
    ek_link_init(&r->router.graced);
    r->stop.fd = r->again.fd = r->over.fd = -1;
    r->loaded_s = (int64_t)time(NULL);
    r->begun_us = ek_clock_us();
    rc = open_main(r, err);
    if (!rc)
        rc = open_backends(r, err);
    if (!rc)
        rc = open_fronts(r, err);
    if (!rc)
        rc = open_reactors(r, err);
    if (!rc && c->admin)
        rc = ek_route_open_admin(r, err);
    if (rc) {
        leave_paths(r);
        ek_route_free(r);
        return rc;
    }
    *out = r;
    return 0;
}

const char *ek_route_address(const struct ek_route *r)
{
    return r->fronts[0]->address;
}

const char *ek_route_admin(const struct ek_route *r)
{
    return r->admin ? ek_http_server_address(r->admin) : "";
}

static void end_threads(struct ek_route *r)
{
    ek_counter_set(&r->router.is_draining, 1);
    ek_counter_set(&r->router.is_ended, 1);
    ek_route_wake_all(r);
    for (size_t i = 0; i < r->router.n_reactors; i++) {
        struct ek_reactor *w = r->router.reactors[i];
        if (w->is_running)
            pthread_join(w->thread, NULL);
        w->is_running = false;
    }
}

int ek_route_run(struct ek_route *r, struct ek_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < r->router.n_reactors && !rc; i++) {
        struct ek_reactor *w = r->router.reactors[i];
        int e = pthread_create(&w->thread, NULL, ek_reactor_main, w);
        if (e)
            rc = ek_err_set(err, EK_EIO, "route: a thread could not be started: %s",
                            strerror(e));
        w->is_running = e == 0;
    }
    if (rc)
        leave_paths(r);
    else if (r->host.on_ready)
        r->host.on_ready(r->host.arg, r);
    if (!rc)
        rc = ek_loop_run(r->loop, err);
    end_threads(r);
    return rc;
}

void ek_route_free(struct ek_route *r)
{
    if (!r)
        return;
    ek_http_server_free(r->admin);
    ek_resolver_free(r->resolver);
    for (size_t i = 0; i < r->router.n_reactors; i++)
        ek_reactor_free(r->router.reactors[i]);
    r->router.n_reactors = 0; /* nobody to give a connection to */
    for (size_t i = 0; i < EK_ROUTE_MAX_LISTENERS; i++) {
        if (r->fronts[i])
            ek_front_shut(r->fronts[i],
                          ek_route_keeps_paths(r) && !r->fronts[i]->is_alone);
        ek_front_free(r->fronts[i]);
    }
    ek_grace_work(&r->router, true);
    ek_orca_oob_free(r->orca);
    ek_backends_close(r);
    close_call(&r->stop);
    close_call(&r->again);
    close_call(&r->over);
    ek_route_end_upgrade(r);
    ek_loop_free(r->loop);
    if (r->host.forget)
        r->host.forget(r->host.arg, r->config);
    ek_free(r->router.reactors);
    ek_free(r);
}
