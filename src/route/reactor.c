#include "route/reactor.h"

#include "base/log.h"
#include "base/mem.h"
#include "net/sock.h"
#include "route/h1.h"
#include "route/relay.h"
#include "route/stream.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { ACCEPTS_A_TURN = 32 };
static const int64_t never_us = INT64_C(1) << 60;
static const int64_t rest_us = 100000; /* without descriptors */

static void move_timer(struct ek_timer *t, int64_t delay_us)
{
    int rc = ek_timer_start(t, delay_us);
    (void)rc; /* it is started: moving it cannot fail */
}

/* Started again right after it was stopped to run: its place in the heap is free. */
static void rearm(struct ek_timer *t)
{
    move_timer(t, never_us);
}

/* Tasks -------------------------------------------------------------------- */

void ek_reactor_soon(struct ek_reactor *w, struct ek_task *t)
{
    if (!ek_link_is_alone(&t->link))
        return;
    ek_link_append(&w->soon, &t->link);
    move_timer(&w->later, 0);
}

static void on_later(struct ek_timer *t)
{
    struct ek_reactor *w = t->owner;
    rearm(t);
    while (!ek_link_is_alone(&w->soon)) {
        struct ek_task *task = EK_LINK_OWNER(w->soon.next, struct ek_task, link);
        ek_link_remove(&task->link);
        task->run(task);
    }
}

static void write_log(struct ek_task *t)
{
    ek_log_flush(&EK_LINK_OWNER(t, struct ek_reactor, log_task)->log);
}

static void on_tick(struct ek_timer *t)
{
    rearm(t);
    ek_relay_serve_queue(t->owner);
}

/* Accepting ---------------------------------------------------------------- */

static void take_connection(struct ek_reactor *w, const struct ek_mail *m)
{
    const struct ek_router *r = w->router;
    if (ek_counter_get(&r->n_connections) >= ek_router_config(r)->max_connections) {
        ek_counter_add(&w->counters.connections_refused, 1);
        close(m->fd);
        return;
    }
    ek_counter_add(&w->counters.connections, 1);
    if (ek_h1_accept(w, m->fd, m->tls, &m->peer))
        ek_counter_add(&w->counters.connections_refused, 1);
}

static int64_t load_of(const struct ek_reactor *w)
{
    return ek_counter_get(&w->n_conns) + ek_counter_get(&w->n_given) -
           ek_counter_get(&w->n_taken);
}

struct ek_reactor *ek_reactor_least(const struct ek_router *r)
{
    struct ek_reactor *found = r->reactors[0];
    int64_t least = load_of(found);
    for (size_t i = 1; i < r->n_reactors; i++) {
        int64_t n = load_of(r->reactors[i]);
        if (n < least) {
            least = n;
            found = r->reactors[i];
        }
    }
    return found;
}

/* A session stays where it was accepted, for an hour perhaps: so the one with the
 * fewest connections takes it. */
static struct ek_reactor *least_busy(struct ek_reactor *w)
{
    struct ek_reactor *found = ek_reactor_least(w->router);
    return load_of(w) - load_of(found) >= 2 ? found : w;
}

bool ek_reactor_give(struct ek_reactor *to, const struct ek_mail *m)
{
    pthread_mutex_lock(&to->mail_lock);
    bool has_room = to->n_mail < EK_REACTOR_MAILBOX;
    if (has_room) {
        to->mail[to->n_mail++] = *m;
        ek_counter_share(&to->n_given, 1);
        if (m->tls)
            ek_tls_context_ref(m->tls);
    }
    pthread_mutex_unlock(&to->mail_lock);
    if (has_room)
        ek_loop_wake(to->loop);
    return has_room;
}

static void stop_accepting(struct ek_reactor *w)
{
    for (size_t i = 0; i < EK_ROUTE_MAX_LISTENERS; i++) {
        ek_watch_stop(&w->accepts[i].watch);
        w->accepts[i].id = 0;
    }
    ek_counter_set(&w->is_accepting, 0);
}

/* Watches the sockets that the router has now, and no others. One may have another
 * place than before: the old watch of a descriptor goes before the new one comes. */
static int watch_fronts(struct ek_reactor *w)
{
    for (int32_t i = 0; i < EK_ROUTE_MAX_LISTENERS; i++) {
        const struct ek_front *f = ek_router_front(w->router, i);
        struct ek_accept *a = &w->accepts[i];
        if (f && a->id == f->id)
            continue;
        ek_watch_stop(&a->watch);
        a->id = 0;
    }
    for (int32_t i = 0; i < EK_ROUTE_MAX_LISTENERS; i++) {
        const struct ek_front *f = ek_router_front(w->router, i);
        struct ek_accept *a = &w->accepts[i];
        if (!f || a->id == f->id)
            continue;
        a->watch.fd = f->fd;
        int rc = ek_watch_start(w->loop, &a->watch, EK_READABLE | EK_EXCLUSIVE);
        if (rc)
            return rc;
        a->id = f->id;
        a->burst = 1;
    }
    return 0;
}

static int start_accepting(struct ek_reactor *w)
{
    ek_counter_set(&w->is_accepting, 1);
    int rc = watch_fronts(w);
    if (rc)
        stop_accepting(w);
    return rc;
}

/* Without memory or descriptors: it goes on in a while. */
static void rest_accepting(struct ek_reactor *w)
{
    stop_accepting(w);
    move_timer(&w->rest, rest_us);
}

static void on_accept(struct ek_watch *watch, int events)
{
    struct ek_accept *a = watch->owner;
    struct ek_reactor *w = a->reactor;
    const struct ek_front *f = ek_router_front(w->router, a->front);
    (void)events;
    if (!f || f->id != a->id) {
        ek_watch_stop(watch); /* it was removed just now */
        a->id = 0;
        return;
    }
    for (int i = 0; i < a->burst; i++) {
        struct ek_mail m = {.tls = f->tls};
        socklen_t n = sizeof m.peer;
        m.fd = accept4(watch->fd, (struct sockaddr *)&m.peer, &n,
                       SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (m.fd < 0) {
            /* The listener stays readable without descriptors: watching would spin. */
            if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
                errno == ENOBUFS)
                rest_accepting(w);
            a->burst = 1; /* asking for one that is not there is a call for nothing */
            return;
        }
        struct ek_reactor *to = least_busy(w);
        if (to == w || !ek_reactor_give(to, &m))
            take_connection(w, &m);
    }
    a->burst = a->burst < ACCEPTS_A_TURN ? 2 * a->burst : ACCEPTS_A_TURN;
}

static void on_rest(struct ek_timer *t)
{
    struct ek_reactor *w = t->owner;
    rearm(t);
    if (!ek_counter_get(&w->is_accepting) && !ek_reactor_is_draining(w) &&
        start_accepting(w))
        move_timer(t, rest_us);
}

/* Wakes -------------------------------------------------------------------- */

static void read_mail(struct ek_reactor *w)
{
    struct ek_mail m;
    for (;;) {
        pthread_mutex_lock(&w->mail_lock);
        bool has_mail = w->n_mail > 0;
        if (has_mail)
            m = w->mail[--w->n_mail];
        pthread_mutex_unlock(&w->mail_lock);
        if (!has_mail)
            return;
        take_connection(w, &m);
        ek_counter_add(&w->n_taken, 1);
        ek_tls_context_free(m.tls);
    }
}

/* Nothing is in hand here: what was got from the router in this turn is done with. */
static void see_changes(struct ek_reactor *w)
{
    int64_t now = ek_counter_get(&w->router->generation);
    if (now == ek_counter_get(&w->generation))
        return;
    ek_h1_drop_stale(w);
    ek_streams_drop_stale(w->streams);
    ek_streams_set(w->streams);
    ek_relay_end_removed(w);
    if (ek_counter_get(&w->is_accepting) && watch_fronts(w))
        rest_accepting(w);
    ek_counter_set(&w->generation, now);
}

static void on_wake(void *arg)
{
    struct ek_reactor *w = arg;
    see_changes(w);
    read_mail(w);
    if (!ek_reactor_is_draining(w))
        return;
    stop_accepting(w);
    ek_counter_set(&w->has_stopped, 1);
    ek_h1_close_idle(w, false);
    ek_streams_drain(w->streams);
    if (ek_counter_get(&w->router->is_closing))
        ek_relay_close_all(w);
    if (ek_counter_get(&w->router->is_ended)) {
        ek_relay_end_all(w);
        ek_loop_stop(w->loop);
    }
}

/* Life --------------------------------------------------------------------- */

void *ek_reactor_main(void *reactor)
{
    struct ek_reactor *w = reactor;
    struct ek_err err = EK_ERR_INIT;
    if (ek_loop_run(w->loop, &err))
        ek_log(EK_LOG_ERROR, "reactor_failed", "why=\"%s\"", err.text);
    return NULL;
}

static int prepare(struct ek_reactor *w, struct ek_err *err)
{
    struct ek_router *r = w->router;
    int rc = ek_loop_new(&w->loop, err);
    if (rc)
        return rc;
    ek_loop_on_wake(w->loop, on_wake, w);
    w->idle = ek_calloc(r->n_upstreams, sizeof *w->idle);
    w->n_idle = ek_calloc(r->n_upstreams, sizeof *w->n_idle);
    ek_timer_init(&w->later, w->loop, on_later, w);
    ek_timer_init(&w->tick, w->loop, on_tick, w);
    ek_timer_init(&w->rest, w->loop, on_rest, w);
    if (!w->idle || !w->n_idle || ek_timer_start(&w->later, never_us) ||
        ek_timer_start(&w->tick, never_us) || ek_timer_start(&w->rest, never_us))
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    for (size_t i = 0; i < r->n_upstreams; i++)
        ek_link_init(&w->idle[i]);
    if (ek_streams_new(&w->streams, w))
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    for (int32_t i = 0; i < EK_ROUTE_MAX_LISTENERS; i++) {
        struct ek_accept *a = &w->accepts[i];
        a->watch = (struct ek_watch){.fd = -1, .on_ready = on_accept, .owner = a};
        a->reactor = w;
        a->front = i;
    }
    if (start_accepting(w))
        return ek_err_set(err, EK_EIO, "listeners cannot be watched: %s",
                          strerror(errno));
    return 0;
}

int ek_reactor_new(struct ek_reactor **out, struct ek_router *router, int64_t index,
                   struct ek_err *err)
{
    uint64_t seed;
    struct ek_reactor *w = ek_calloc(1, sizeof *w);
    if (!w)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    w->router = router;
    w->index = index;
    pthread_mutex_init(&w->mail_lock, NULL);
    ek_link_init(&w->sessions);
    ek_link_init(&w->queue);
    ek_link_init(&w->conns);
    ek_link_init(&w->soon);
    ek_task_init(&w->log_task, write_log);
    int rc = ek_rng_secret(&seed, sizeof seed);
    if (rc)
        rc = ek_err_set(err, rc, "no random numbers");
    else
        ek_rng_init(&w->rng, seed);
    if (!rc)
        rc = prepare(w, err);
    if (rc) {
        ek_reactor_free(w);
        return rc;
    }
    *out = w;
    return 0;
}

static void drop_mail(struct ek_mail *m)
{
    close(m->fd);
    ek_tls_context_free(m->tls);
}

void ek_reactor_free(struct ek_reactor *w)
{
    if (!w)
        return;
    if (w->loop) {
        stop_accepting(w);
        ek_relay_end_all(w);
        ek_h1_close_idle(w, true);
        ek_streams_free(w->streams);
        for (size_t i = 0; i < w->n_mail; i++)
            drop_mail(&w->mail[i]);
        on_later(&w->later);
        ek_loop_free(w->loop);
    }
    pthread_mutex_destroy(&w->mail_lock);
    ek_free(w->idle);
    ek_free(w->n_idle);
    ek_free(w);
}
