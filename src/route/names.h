/* names.h - names that are asked for once, by who must know before it goes on: a reload,
 * a check.
 *
 * A resolver may hang for longer than anybody can wait, so threads of their own ask, for
 * all names at once (64 at a time), and those that hang are left behind when the time is
 * over: a name costs the others nothing.
 */
#ifndef EVENKEEL_ROUTE_NAMES_H
#define EVENKEEL_ROUTE_NAMES_H

#include "route/run.h"

enum { EK_NAME_WHY_BYTES = 256 };

struct ek_name {
    const char *text;        /* in: an address with a name (net/address.h); borrowed */
    struct ek_address *list; /* out: (n) the caller's (ek_free) */
    size_t n;                /* 0: why says why not */
    char why[EK_NAME_WHY_BYTES];
};

/* Asks for names[0,n), all together for limit_us at most. ask: NULL: the system's
 * resolver. Errors: EK_ENOMEM, EK_EIO (no thread); those of a name are in it. */
int ek_names_ask(struct ek_name *names, size_t n, ek_resolve_fn ask,
                 int64_t limit_us) EK_MUST_USE;

#endif
