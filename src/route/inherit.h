/* inherit.h - listening sockets that a process was started with: by a proxy that it is
 * to replace (upgrade.h), or by systemd's socket activation.
 *
 *   EVENKEEL_SOCKETS    a line each: "FD LISTEN" or "FD lent LISTEN", LISTEN as it was
 *                       configured; lent: its socket file is whoever's started us
 *   EVENKEEL_READY_FD   where the old proxy hears "ready", or "ready FD FD ..." with the
 *                       sockets that its configuration has not, or why not
 *   LISTEN_PID, LISTEN_FDS   descriptors from 3 on; what they are bound to is their name;
 *                       lent
 */
#ifndef EVENKEEL_ROUTE_INHERIT_H
#define EVENKEEL_ROUTE_INHERIT_H

#include <stdbool.h>
#include <stddef.h>

enum { EK_INHERITED_MAX = 65, EK_INHERITED_NAME_MAX = 255, EK_INHERITED_AT = 24 };

#define EK_INHERITED_LENT "lent "

struct ek_inherited {
    struct ek_inherited_socket {
        int fd; /* -1: taken */
        bool is_lent;
        char listen[EK_INHERITED_NAME_MAX + 1];
    } sockets[EK_INHERITED_MAX];
    size_t n;
    int ready_fd; /* -1: nobody waits */
};

/* Takes them out of the environment, which is changed: before any thread starts. */
void ek_inherited_read(struct ek_inherited *in);

/* What to open for `listen`, as ek_address_listen takes it: "fd@N" or "fd@N,file" of a
 * socket that was inherited for it, which then is the caller's, or `listen` itself.
 * in: NULL is fine. */
const char *ek_inherited_find(struct ek_inherited *in, char out[EK_INHERITED_AT],
                              const char *listen);

/* Tells the old proxy: that this one is ready (why NULL), and behind that word the
 * descriptors of what nobody took; or why it will not be. What nobody took is closed.
 * Returns how many were. */
size_t ek_inherited_end(struct ek_inherited *in, const char *why);

#endif
