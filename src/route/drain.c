/* drain.c - the end of a proxy: nobody new, what is open goes on, nothing is dropped.
 *
 *   begin ──> every reactor has stopped accepting ──> the backlogs are emptied and the
 *   listeners closed ──> no connection, no session is left, or it is late ──> over
 *
 * Invariant: a connection that the system has made for a client is somewhere in view:
 * in a backlog (the listener is open), in a mailbox (n_given > n_taken), or counted
 * (n_connections). A listener that closes resets whoever waits in its backlog; those
 * are taken first, and have as long to ask as anybody who came just before.
 */
#include "base/log.h"
#include "base/mem.h"
#include "base/notify.h"
#include "net/sock.h"
#include "route/run_int.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

/* After a drain's deadline, for sessions that are told of it: what they have to answer
 * (relay_ws.c), and a little more. */
static const int64_t close_us = 4000000;
/* For who had begun to connect: a round trip. */
static const int64_t handshake_us = 100000;

static int64_t open_sessions(const struct ek_route *r)
{
    int64_t n = 0;
    for (size_t i = 0; i < r->router.n_reactors; i++)
        n += ek_counter_get(&r->router.reactors[i]->n_sessions);
    return n;
}

void ek_route_wake_all(struct ek_route *r)
{
    for (size_t i = 0; i < r->router.n_reactors; i++)
        ek_loop_wake(r->router.reactors[i]->loop);
}

bool ek_route_keeps_paths(const struct ek_route *r)
{
    return r->is_handed_over || r->upgrade;
}

static bool is_kept(const struct ek_route *r, const struct ek_front *f)
{
    return ek_route_keeps_paths(r) && !f->is_alone;
}

/* What another process listens on, too, or will again, is left to it. */
static bool is_ours(const struct ek_route *r, const struct ek_front *f)
{
    return f->has_socket && !f->is_lent && !is_kept(r, f);
}

void ek_route_begin_drain(struct ek_route *r)
{
    int64_t limit = r->config->drain_us;
    if (ek_counter_get(&r->router.is_draining))
        return;
    r->drain_until_us = limit > 0 ? ek_loop_now_us(r->loop) + limit : INT64_MAX;
    ek_log(EK_LOG_INFO, "draining", "sessions=%lld", (long long)open_sessions(r));
    if (!r->is_handed_over) /* else the service goes on, in another process */
        ek_notify_stopping("no new sessions; it ends with its last one");
    r->close_us = ek_loop_now_us(r->loop) + handshake_us;
    for (size_t i = 0; i < EK_ROUTE_MAX_LISTENERS; i++) {
        if (r->fronts[i] && is_ours(r, r->fronts[i]))
            ek_sock_refuse_new(r->fronts[i]->fd);
    }
    ek_counter_set(&r->router.is_draining, 1);
    ek_route_tick_soon(r);
    ek_route_wake_all(r);
}

/* Listeners ---------------------------------------------------------------------- */

/* To the reactor with the fewest connections. A mailbox that is full is read soon. */
static void give(struct ek_route *r, const struct ek_mail *m)
{
    static const struct timespec pause = {0, 1000000};
    for (int i = 0; i < 1000; i++) {
        if (ek_reactor_give(ek_reactor_least(&r->router), m))
            return;
        nanosleep(&pause, NULL);
    }
    close(m->fd);
}

void ek_front_empty(struct ek_route *r, struct ek_front *f)
{
    if (!is_ours(r, f) || r->router.n_reactors == 0)
        return;
    /* The last one is accepted once no other can come. */
    ek_sock_refuse_new(f->fd);
    if (f->unix_path)
        unlink(f->unix_path);
    ek_free(f->unix_path);
    f->unix_path = NULL;
    for (;;) {
        struct ek_mail m = {.tls = f->tls};
        socklen_t n = sizeof m.peer;
        m.fd = accept4(f->fd, (struct sockaddr *)&m.peer, &n,
                       SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (m.fd >= 0)
            give(r, &m);
        else if (errno != ECONNABORTED && errno != EINTR)
            return; /* nobody waits; or no descriptor is left to take them with */
    }
}

/* The system refuses new connections then. */
static void close_fronts(struct ek_route *r)
{
    for (size_t i = 0; i < EK_ROUTE_MAX_LISTENERS; i++) {
        if (!r->fronts[i])
            continue;
        ek_front_empty(r, r->fronts[i]);
        ek_front_shut(r->fronts[i], is_kept(r, r->fronts[i]));
    }
    r->has_closed = true;
}

/* The end ------------------------------------------------------------------------ */

/* Reactors have no more to give to each other after this. */
static bool have_stopped(const struct ek_route *r)
{
    for (size_t i = 0; i < r->router.n_reactors; i++) {
        if (!ek_counter_get(&r->router.reactors[i]->has_stopped))
            return false;
    }
    return true;
}

/* While another program starts with the sockets it is open who will accept. */
static bool can_close(const struct ek_route *r)
{
    return have_stopped(r) && !r->upgrade && ek_loop_now_us(r->loop) >= r->close_us;
}

/* Nobody gives any more, so what was taken is as much as was given once no mailbox
 * holds anything; and who took counted its connection before it said so. */
static bool has_mail(const struct ek_route *r)
{
    int64_t n = 0;
    for (size_t i = 0; i < r->router.n_reactors; i++) {
        const struct ek_reactor *w = r->router.reactors[i];
        n += ek_counter_get(&w->n_given) - ek_counter_get(&w->n_taken);
    }
    return n > 0;
}

/* Connections that only send their last bytes count, too; a listener that was removed
 * just before is emptied at the end of its grace period. */
static bool is_over(const struct ek_route *r)
{
    return r->has_closed && ek_link_is_alone(&r->router.graced) && !has_mail(r) &&
           ek_counter_get(&r->router.n_connections) == 0 && open_sessions(r) == 0;
}

void ek_route_work_drain(struct ek_route *r)
{
    bool is_late = ek_loop_now_us(r->loop) >= r->drain_until_us || r->n_stops > 1;
    if (!r->has_closed && can_close(r))
        close_fronts(r);
    if (is_late && open_sessions(r) > 0)
        ek_log(EK_LOG_WARN, "drain_timeout", "sessions=%lld",
               (long long)open_sessions(r));
    if (is_late && r->n_stops <= 1 && !ek_counter_get(&r->router.is_closing)) {
        ek_counter_set(&r->router.is_closing, 1);
        r->drain_until_us = ek_loop_now_us(r->loop) + close_us;
        ek_route_wake_all(r);
        return;
    }
    if (is_late || is_over(r)) {
        ek_counter_set(&r->router.is_ended, 1);
        ek_route_wake_all(r);
        ek_loop_stop(r->loop);
    }
}
