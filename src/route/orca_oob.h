/* orca_oob.h - reports of load out of band: a stream of gRPC to each backend that is
 * asked for it, xds.service.orca.v3.OpenRcaService/StreamCoreMetrics, on a connection
 * of its own from the main thread.
 *
 *   RESTING ──timer──> OPEN ──report──> ek_pool_report ...
 *      ^                 │
 *      └── broken: 1 s, doubled to 60 s; UNIMPLEMENTED: when the connection is gone
 */
#ifndef EVENKEEL_ROUTE_ORCA_OOB_H
#define EVENKEEL_ROUTE_ORCA_OOB_H

#include "base/err.h"
#include "net/loop.h"
#include "route/reactor.h"

struct ek_orca_oob;

/* Asks nobody yet. Errors: EK_ENOMEM. */
int ek_orca_oob_new(struct ek_orca_oob **o, struct ek_router *router,
                    struct ek_loop *loop) EK_MUST_USE;
/* From now on this backend is asked, every report_interval_us of the configuration; it
 * is not yet. Errors: EK_ENOMEM. */
int ek_orca_oob_start(struct ek_orca_oob *o, int32_t backend) EK_MUST_USE;
/* Not any more; nothing when it is not. No report of it comes afterwards. */
void ek_orca_oob_stop(struct ek_orca_oob *o, int32_t backend);
void ek_orca_oob_free(struct ek_orca_oob *o); /* NULL is fine */

#endif
