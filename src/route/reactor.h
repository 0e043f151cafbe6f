/* reactor.h - one thread of the proxy: its loop, its connections, its sessions; and
 * what all threads share and only read.
 *
 * Invariant: what lives in a reactor is touched by its thread alone, but the counters
 * (base/counter.h) and the mailbox (its lock).
 * What dies in a turn of the loop is freed at its end: callbacks may look at it still.
 */
#ifndef EVENKEEL_ROUTE_REACTOR_H
#define EVENKEEL_ROUTE_REACTOR_H

#include "base/counter.h"
#include "base/link.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/shared.h"
#include "net/address.h"
#include "net/loop.h"
#include "net/tls.h"
#include "route/front.h"
#include "route/half.h"
#include "route/upstream.h"

#include <pthread.h>

enum {
    EK_REACTOR_READ_BYTES = 65536,   /* one read; also what a slow direction holds */
    EK_REACTOR_MAILBOX = 256,        /* connections handed over and not yet taken */
    EK_ROUTE_MAX_HEAD_BYTES = 32768, /* as net.md */
};

/* While the proxy drains: what a client has to ask in that could not know. Envoy's
 * drain_timeout is as long; RFC 9113 6.8 wants a round trip at least. */
#define EK_ROUTE_FRESH_US INT64_C(5000000)

/* X(name, help): counters of a reactor, evenkeel_route_<name>_total. */
#define EK_ROUTE_COUNTERS(X)                                                           \
    X(connections, "client connections accepted")                                      \
    X(connections_refused, "client connections over the limit")                        \
    X(sessions, "sessions begun")                                                      \
    X(websockets, "of them, WebSockets")                                               \
    X(bad_requests, "requests refused as malformed or ambiguous")                      \
    X(late_heads, "requests whose head did not come in time")                          \
    X(queued, "sessions that waited for room")                                         \
    X(refused, "sessions refused for want of room")                                    \
    X(retries, "tries on another backend")                                             \
    X(connects, "connections made to backends")                                        \
    X(connect_failures, "connections to backends that failed")                         \
    X(reused, "sessions on a pooled connection to a backend")                          \
    X(bad_answers, "answers of backends that broke HTTP")                              \
    X(client_aborts, "sessions that the client broke off")                             \
    X(backend_aborts, "sessions that the backend broke off")                           \
    X(bytes_up, "bytes of bodies and tunnels from clients")                            \
    X(bytes_down, "bytes of bodies and tunnels to clients")                            \
    X(waits, "times a side had to wait for a slow one")                                \
    X(websocket_pings, "Pings of the proxy's own in WebSockets")                       \
    X(websocket_ping_timeouts, "WebSockets ended because a Ping was not answered")

struct ek_route_counters {
#define X(name, help) struct ek_counter name;
    EK_ROUTE_COUNTERS(X)
#undef X
};

/* What all threads read. The main thread alone writes, and what it takes away lives on
 * for a grace period (grace.h): whatever was got from here may be looked at until the
 * end of the turn of the loop, and not kept. */
struct ek_router {
    struct ek_shared_ptr config; /* struct ek_route_config; ek_router_config */
    struct ek_pool *pool;
    struct ek_shared_ptr *upstreams; /* (n_upstreams) struct ek_upstream, by the pool's
                                        index; ek_router_upstream */
    size_t n_upstreams;              /* pool.max_backends */
    struct ek_counter generation;    /* how often something was changed */
    struct ek_link graced;           /* struct ek_graced.link, oldest first */
    struct ek_shared_ptr
        fronts[EK_ROUTE_MAX_LISTENERS]; /* struct ek_front; NULL: none */
    struct ek_reactor **reactors;
    size_t n_reactors;
    struct ek_counter n_connections; /* of clients, all threads */
    struct ek_counter n_waiting;     /* sessions in the queues */
    struct ek_counter next_id;       /* of sessions */
    struct ek_counter is_draining;   /* 1: no new connections */
    struct ek_counter
        is_closing;             /* 1: every session ends, those told by a Close soon */
    struct ek_counter is_ended; /* 1: every session ends now */
};

static inline const struct ek_route_config *ek_router_config(const struct ek_router *r)
{
    return ek_shared_ptr_get(&r->config);
}

static inline const struct ek_front *ek_router_front(const struct ek_router *r,
                                                     int32_t at)
{
    return ek_shared_ptr_get(&r->fronts[at]);
}

/* That backend as it is set now. Never NULL to who has a placement there. */
static inline const struct ek_upstream *ek_router_upstream(const struct ek_router *r,
                                                           int32_t backend)
{
    return ek_shared_ptr_get(&r->upstreams[backend]);
}

/* As ek_upstream_rotate. */
static inline void ek_router_rotate(const struct ek_router *r, int32_t backend,
                                    int64_t turn)
{
    struct ek_upstream *u = ek_shared_ptr_get(&r->upstreams[backend]);
    if (u)
        ek_upstream_rotate(u, turn);
}

/* Something to be done at the end of the turn, from a clean stack. */
struct ek_task {
    struct ek_link link; /* alone: not asked for */
    void (*run)(struct ek_task *t);
};

struct ek_reactor {
    struct ek_router *router; /* borrowed */
    struct ek_loop *loop;
    pthread_t thread;
    int64_t index;
    struct ek_rng rng;
    struct ek_link sessions;      /* struct ek_relay.link */
    struct ek_link queue;         /* struct ek_relay.waiting, oldest first */
    struct ek_link conns;         /* struct ek_h1.link: all that are alive */
    struct ek_link *idle;         /* (n_upstreams) struct ek_h1.group: unused ones */
    int32_t *n_idle;              /* (n_upstreams) */
    struct ek_streams *streams;   /* connections of HTTP/2; owned */
    struct ek_link soon;          /* struct ek_task.link: called at the turn's end */
    struct ek_timer later;        /* works `soon` off; always started */
    struct ek_timer tick;         /* looks at the queue; always started */
    struct ek_timer rest;         /* after EMFILE; always started */
    bool is_running;              /* its thread was started */
    struct ek_counter generation; /* of the router, as last seen with nothing in hand */
    struct ek_counter is_accepting; /* 1: it watches the listeners */
    struct ek_counter has_stopped;  /* 1: the proxy drains, and it never will again */
    struct ek_counter n_given; /* connections put into its mailbox, by any thread */
    struct ek_counter n_taken; /* of them, taken out of it, counted by then */
    struct ek_accept {
        struct ek_watch watch;
        struct ek_reactor *reactor;
        int64_t id;    /* of the front that is watched; 0: none is */
        int32_t front; /* its place in the router */
        int32_t burst; /* connections taken in the next turn at most: as many as there
                          were */
    } accepts[EK_ROUTE_MAX_LISTENERS];
    struct ek_counter n_sessions; /* open ones */
    struct ek_counter n_conns;    /* of clients */
    struct ek_route_counters counters;
    struct ek_log_lines log;   /* records of sessions, of this turn */
    struct ek_task log_task;   /* writes them */
    pthread_mutex_t mail_lock; /* protects the two below */
    struct ek_mail {
        int fd;
        struct ek_tls_context *tls; /* counted; NULL: plain */
        struct sockaddr_storage peer;
    } mail[EK_REACTOR_MAILBOX];
    size_t n_mail;
    char read[EK_REACTOR_READ_BYTES];       /* where reads land */
    char write[EK_REACTOR_READ_BYTES + 64]; /* where a chunk is put together */
};

static inline void ek_task_init(struct ek_task *t, void (*run)(struct ek_task *t))
{
    ek_link_init(&t->link);
    t->run = run;
}

/* Asks for it, once; cannot fail. */
void ek_reactor_soon(struct ek_reactor *w, struct ek_task *t);

/* Errors: EK_ENOMEM, EK_EIO. */
int ek_reactor_new(struct ek_reactor **w, struct ek_router *router, int64_t index,
                   struct ek_err *err) EK_MUST_USE;
/* Its thread has ended. */
void ek_reactor_free(struct ek_reactor *w);
/* The thread's function: runs until the router drains and all is over. */
void *ek_reactor_main(void *reactor);

/* The one with the fewest clients, those that are under way to it counted: what was
 * given a moment ago is seen by whoever gives next. Any thread. */
struct ek_reactor *ek_reactor_least(const struct ek_router *r);
/* Puts a connection into its mailbox; m->tls is counted for it. Any thread. False:
 * there is no room, m is still the caller's. */
bool ek_reactor_give(struct ek_reactor *to, const struct ek_mail *m);

/* May a client's connection be kept? */
static inline bool ek_reactor_is_draining(const struct ek_reactor *w)
{
    return ek_counter_get(&w->router->is_draining) != 0;
}

#endif
