/* front.h - a listener as the threads see it: its socket and its certificates. Like an
 * upstream it never changes once shown: with renewed certificates another one takes its
 * place, which listens on the same socket.
 */
#ifndef EVENKEEL_ROUTE_FRONT_H
#define EVENKEEL_ROUTE_FRONT_H

#include "net/tls.h"
#include "route/grace.h"
#include "route/run.h"

struct ek_front {
    struct ek_graced graced;
    int64_t id; /* of its socket, from 1: another one's is watched anew */
    int fd;
    struct ek_tls_context *tls; /* owned; NULL: plain */
    char address[128];          /* really bound */
    /* The main thread's alone. */
    struct ek_route *route; /* whose it was, once another took its place */
    bool has_socket;        /* it closes fd; else another front of this id does */
    bool is_lent;           /* whoever started this process keeps the socket, too */
    bool is_alone;          /* nobody else listens there, or will: not even a process
                               that takes over */
    char *unix_path;        /* owned: removed when it closes; NULL: TCP */
    char listen[];          /* as configured */
};

/* Loads the certificates, and opens the socket: before's (of the same `listen`; it
 * becomes its own by ek_front_take), or a new one at `address`. Errors: those of
 * ek_tls_context_new and ek_address_listen. */
int ek_front_new(struct ek_front **f, const struct ek_route_listener *l,
                 const struct ek_front *before, const char *address, int64_t id,
                 struct ek_err *err) EK_MUST_USE;
/* The certificates alone are opened, and closed. Errors: as new. */
int ek_front_check_files(const struct ek_route_listener *l,
                         struct ek_err *err) EK_MUST_USE;
/* f, made from `before`, owns the socket from now on. */
void ek_front_take(struct ek_front *f, struct ek_front *before);
/* Closes the socket if it is its own: nobody watches it any more. keeps_path: another
 * process listens at its socket file. */
void ek_front_shut(struct ek_front *f, bool keeps_path);
void ek_front_free(struct ek_front *f); /* NULL is fine */

#endif
