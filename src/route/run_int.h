/* run_int.h - what the main thread of the proxy holds: run.c, admin.c, probe.c. */
#ifndef EVENKEEL_ROUTE_RUN_INT_H
#define EVENKEEL_ROUTE_RUN_INT_H

#include "net/http.h"
#include "route/reactor.h"

struct ek_route {
    struct ek_router router;
    const struct ek_route_config *config;
    struct ek_loop *loop;         /* the main thread's */
    struct ek_http_server *admin; /* NULL: none */
    struct ek_probe *probes;      /* (n_probes) */
    size_t n_probes;
    struct ek_orca_oob *orca; /* owned */
    struct ek_watch stop;     /* eventfd: ek_route_stop adds to it */
    struct ek_timer tick;     /* looks whether a drain is over */
    int64_t drain_until_us;   /* INT64_MAX: however long it takes */
    int n_stops;
    int64_t begun_us;
};

/* admin.c. Errors: those of ek_http_server_new. */
int ek_route_open_admin(struct ek_route *r, struct ek_err *err) EK_MUST_USE;

/* probe.c: polls of reports, agent-checks and health checks of every backend.
 * Errors: EK_ENOMEM, EK_EINVAL, EK_EIO (an agent's address). */
int ek_route_start_probes(struct ek_route *r, struct ek_err *err) EK_MUST_USE;
void ek_route_stop_probes(struct ek_route *r);

#endif
