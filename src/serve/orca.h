/* orca.h - the server's load as a stream of gRPC, for balancers that ask out of band:
 * xds.service.orca.v3.OpenRcaService/StreamCoreMetrics, on connections of HTTP/2 that
 * come to the server's own port. Nothing else is spoken over HTTP/2: a request of
 * another kind is told to use HTTP/1.1, another call that it is not implemented.
 *
 * Owner thread: the loop's.
 */
#ifndef EVENKEEL_SERVE_ORCA_H
#define EVENKEEL_SERVE_ORCA_H

#include "net/h2.h"
#include "net/loop.h"

struct ek_orca;

/* put: a report behind gRPC's five bytes. Errors: those of the tracker. */
typedef int ek_orca_put_fn(void *arg, char *out, size_t size, size_t *n);

/* Whether who sent this Authorization may know the load; NULL: it sent none. */
typedef bool ek_orca_allows_fn(void *arg, const char *authorization);

/* arg is that of both. Errors: EK_ENOMEM. */
int ek_orca_new(struct ek_orca **o, struct ek_loop *loop, ek_orca_put_fn *put,
                ek_orca_allows_fn *allows, void *arg) EK_MUST_USE;
void ek_orca_free(struct ek_orca *o); /* closes its connections; NULL is fine */
void ek_orca_drain(struct ek_orca *o);

/* As ek_http_handler.on_http2 hands it over: fd and tls are taken. Errors: EK_ENOMEM,
 * EK_EIO, EK_ELIMIT: 128 connections are open. */
int ek_orca_take(struct ek_orca *o, int fd, struct ek_tls *tls, const char *p,
                 size_t n) EK_MUST_USE;

#endif
