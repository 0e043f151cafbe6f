/* run_int.h - what the main thread of the proxy holds: run.c, admin.c, probe.c. */
#ifndef EVENKEEL_ROUTE_RUN_INT_H
#define EVENKEEL_ROUTE_RUN_INT_H

#include "net/http.h"
#include "route/reactor.h"

enum { EK_ROUTE_MAX_BODY_BYTES = 64 << 20 }; /* of an administrator's answer */
enum { EK_N_PROBES = 3 };                    /* of one backend: report, agent, health */

/* A place of a backend, by its index in the pool. */
struct ek_route_place {
    struct ek_upstream *upstream;         /* owned; what the router shows; NULL: free */
    struct ek_probe *probes[EK_N_PROBES]; /* owned; NULL: not asked so */
    bool is_down;                         /* by what was asked */
    int32_t n_unresolved; /* times in a row that its name was not resolved */
    int64_t removed;      /* generation of its removal; 0: it is in use */
    int64_t end_us;       /* draining or removed: when its sessions are ended;
                             INT64_MAX: never */
};

/* A configuration that is not in force any more. */
struct ek_route_held {
    struct ek_graced graced;
    struct ek_route_host host;
    const struct ek_route_config *c;
};

struct ek_route {
    struct ek_router router;
    const struct ek_route_config *config; /* the one in force; borrowed */
    struct ek_loop *loop;                 /* the main thread's */
    struct ek_http_server *admin;         /* NULL: none */
    struct ek_route_place *backends;      /* (n_upstreams of the router) */
    int32_t n_removed;                    /* of them, draining */
    int32_t n_limited;                    /* those in use with an end_us */
    uint32_t next_connection_id;
    struct ek_front *fronts[EK_ROUTE_MAX_LISTENERS]; /* owned; what the router shows */
    int64_t next_front_id;
    struct ek_orca_oob *orca;     /* owned */
    struct ek_resolver *resolver; /* owned */
    struct ek_counter n_resolve_failures, n_address_changes;
    struct ek_watch stop;       /* eventfd: ek_route_stop adds to it */
    struct ek_watch again;      /* eventfd: ek_route_reload adds to it */
    struct ek_watch over;       /* eventfd: ek_route_upgrade adds to it */
    struct ek_upgrade *upgrade; /* a new process that is starting; NULL: none */
    int64_t dead_pid;           /* one that failed, to be waited for; 0: none */
    bool reloads_later;         /* asked for while another program starts */
    bool is_handed_over;        /* another process has the sockets */
    struct ek_timer tick;   /* on_tick: what nothing else tells of; always started */
    int64_t drain_until_us; /* INT64_MAX: however long it takes */
    int n_stops;
    int64_t close_us; /* a drain: when the listeners may be closed */
    bool has_closed;  /* and they are */
    int64_t begun_us;
    struct ek_route_host host; /* read NULL: none */
    uint64_t n_reloads, n_reloads_refused;
    int64_t loaded_s; /* when the configuration was read, in UNIX time */
};

/* admin.c. Errors: those of ek_http_server_new. */
int ek_route_open_admin(struct ek_route *r, struct ek_err *err) EK_MUST_USE;

/* probe.c: polls of reports, agent-checks and health checks of a backend, as it is set.
 * Errors: EK_ENOMEM; some are asked then, until stopped. */
int ek_route_start_probes(struct ek_route *r, int32_t backend) EK_MUST_USE;
void ek_route_stop_probes(struct ek_route *r, int32_t backend);

/* backends.c: the places of the backends and the pool, empty at first. Errors:
 * EK_ENOMEM. */
int ek_backends_open(struct ek_route *r) EK_MUST_USE;
/* The threads have ended, and r->orca. */
void ek_backends_close(struct ek_route *r);
/* A new one, u (taken in any case): it is asked from now on, and gets sessions once
 * ek_pool_set_up says so. Errors: EK_ELIMIT, EK_ENOMEM, naming it. */
int ek_backends_place(struct ek_route *r, struct ek_upstream *u,
                      struct ek_err *err) EK_MUST_USE;
/* u, which is taken, comes in place of the one it was made from: sessions, reports and
 * counters stay. refresh: nothing but its TLS is new, what is being asked goes on. */
void ek_backends_change(struct ek_route *r, struct ek_upstream *u);
void ek_backends_refresh(struct ek_route *r, struct ek_upstream *u);
/* No new sessions. Once its own have ended, or been ended after limit_us (0: no limit),
 * it is gone: work sees to it, called now and then. */
void ek_backends_remove(struct ek_route *r, int32_t backend, int64_t limit_us);
void ek_backends_work(struct ek_route *r);
/* One in use drains, or does not any more. limit_us: then its sessions are ended; < 0:
 * they may go on for as long as they like. */
void ek_backends_drain(struct ek_route *r, int32_t backend, bool is_on,
                       int64_t limit_us);
/* Reports out of band come at the interval that is set now. */
void ek_backends_ask_anew(struct ek_route *r);

/* reload.c: the host's configuration, applied; logged and counted. out and errors: as
 * ek_route_apply. */
int ek_route_read_again(struct ek_route *r, struct ek_buf *out,
                        struct ek_err *err) EK_MUST_USE;
/* drain.c: no new connections; sessions may go on for config->drain_us. Again: nothing.
 * work, called now and then from then on, stops the loop when it is over. */
void ek_route_begin_drain(struct ek_route *r);
void ek_route_work_drain(struct ek_route *r);
void ek_route_wake_all(struct ek_route *r);
/* Socket files are another process's, or will be: one that is starting has them,
 * too. */
bool ek_route_keeps_paths(const struct ek_route *r);
/* No reactor watches f: clients that wait in its backlog go to reactors, for closing it
 * would reset them. */
void ek_front_empty(struct ek_route *r, struct ek_front *f);
/* run.c: there is something to wait for: the main thread looks again in 50 ms. */
void ek_route_tick_soon(struct ek_route *r);

/* upgrade.c: starts a new process, or logs why not; work reaps one that failed. */
void ek_route_begin_upgrade(struct ek_route *r);
void ek_route_work_upgrade(struct ek_route *r);
void ek_route_end_upgrade(struct ek_route *r);

/* f, or NULL, in this place of the router, instead of what was there. */
void ek_fronts_show(struct ek_route *r, size_t at, struct ek_front *f);

/* Shared pointers are to what some thread may write; this one nobody does. */
static inline void *ek_route_share(const struct ek_route_config *c)
{
    return (void *)(uintptr_t)c;
}

#endif
