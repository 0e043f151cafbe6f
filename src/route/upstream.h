/* upstream.h - a backend as sessions see it: its settings, its address, its TLS.
 *
 * It owns all of that, so that no configuration must live on for it, and never changes
 * once threads can see it: what is set anew is a new one in its place (backends.h), and
 * the old one is freed after a grace period. */
#ifndef EVENKEEL_ROUTE_UPSTREAM_H
#define EVENKEEL_ROUTE_UPSTREAM_H

#include "base/counter.h"
#include "net/address.h"
#include "net/tls.h"
#include "route/grace.h"
#include "route/run.h"

struct ek_upstream {
    struct ek_graced graced;
    struct ek_route_backend config; /* strings are its own */
    struct ek_address *addresses;   /* (n_addresses) owned; those of its name */
    size_t n_addresses;             /* 0: its name was not resolved yet */
    struct ek_address agent;        /* n 0: likewise */
    struct ek_counter turn;     /* addresses[turn % n] is connected to: counted up when
                                     that failed */
    struct ek_tls_context *tls; /* owned; NULL: plain */
    char *authorization;        /* owned: what asks for reports says; NULL: nothing */
    char host[256];             /* of the address; "" for a socket file */
    int32_t backend;            /* its index in the pool; -1: not there yet */
    uint32_t connection_id;     /* of address, protocol and TLS: a connection made with
                                   another one's serves no new session */
    int64_t since_us;           /* when its name came to this index */
    struct ek_counter is_removed; /* 1: no new sessions; its own go on */
    struct ek_counter is_ended;   /* 1: they end now (it may only drain) */
    char text[];                  /* what config's strings point at */
};

/* Reads certificates and key; of an address that is a name there is none until
 * resolve.h asked for it: nobody waits for a resolver here. before: the one whose place
 * it is to take, NULL: none; its addresses are kept, and where nothing
 * of a connection is set otherwise its connection_id, which else is `id`.
 * Errors: EK_EINVAL, EK_EIO and those of tls.h, naming backend and file; EK_ENOMEM. */
int ek_upstream_new(struct ek_upstream **u, const struct ek_route_backend *b,
                    const struct ek_upstream *before, uint32_t id,
                    struct ek_err *err) EK_MUST_USE;
void ek_upstream_free(struct ek_upstream *u); /* NULL is fine */

/* Opens the files that b names. Errors: as new. */
int ek_upstream_check_files(const struct ek_route_backend *b,
                            struct ek_err *err) EK_MUST_USE;

/* Is it set as b? Files that both name may hold something else by now. */
bool ek_upstream_is_set(const struct ek_upstream *u, const struct ek_route_backend *b);

/* A new one that is `u` but for its addresses, list[0,n), which are copied, and its
 * agent's: what names were resolved to anew. u's TLS is shared. Errors: EK_ENOMEM. */
int ek_upstream_moved(struct ek_upstream **out, const struct ek_upstream *u,
                      const struct ek_address *list, size_t n,
                      const struct ek_address *agent, uint32_t id) EK_MUST_USE;

/* What its name was resolved to, list[0,n), which is copied: before any thread sees u.
 * Errors: EK_ENOMEM. */
int ek_upstream_give(struct ek_upstream *u, const struct ek_address *list,
                     size_t n) EK_MUST_USE;

/* Begins to connect, as ek_address_connect, to the address whose turn it is. */
int ek_upstream_connect(int *fd, const struct ek_upstream *u) EK_MUST_USE;
/* A connection that was begun in that turn could not be made: the next one goes to the
 * next address. */
void ek_upstream_rotate(struct ek_upstream *u, int64_t turn);

/* May a connection that was made for an upstream with this id serve another session? */
static inline bool ek_upstream_keeps(const struct ek_upstream *u, uint32_t id)
{
    return u && u->connection_id == id && !ek_counter_get(&u->is_removed);
}

#endif
