/* h1.h - halves of sessions on connections of HTTP/1.1. */
#ifndef EVENKEEL_ROUTE_H1_H
#define EVENKEEL_ROUTE_H1_H

#include "route/reactor.h"

#include <sys/socket.h>

struct ek_h1;

/* A client's connection that was accepted. fd is taken in any case. tls NULL: plain.
 * Errors: EK_ENOMEM, EK_EIO. */
int ek_h1_accept(struct ek_reactor *w, int fd, struct ek_tls_context *tls,
                 const struct sockaddr_storage *peer) EK_MUST_USE;

/* A half towards that upstream, on an idle connection or on a new one. The first
 * call to it is ops->head. *is_connected: it need not wait to be.
 * Errors: EK_ENOMEM, EK_EIO (not connected; errno). */
int ek_h1_open(struct ek_half **half, struct ek_reactor *w, int32_t upstream,
               bool *is_connected) EK_MUST_USE;

/* Closes connections that carry no session: those of clients that wait for a request,
 * but for those that never had one, which get a moment, and those kept to backends.
 * all: the others, too (their sessions were ended). */
void ek_h1_close_idle(struct ek_reactor *w, bool all);

/* Closes those kept to backends that are gone, or are reached otherwise now. */
void ek_h1_drop_stale(struct ek_reactor *w);

#endif
