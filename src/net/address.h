/* address.h - "HOST:PORT", "[IPV6]:PORT" or "unix:PATH" to a socket that listens or
 * connects.
 */
#ifndef EVENKEEL_NET_ADDRESS_H
#define EVENKEEL_NET_ADDRESS_H

#include "base/err.h"

#include <stdbool.h>
#include <sys/socket.h>

/* "fd@N" is a socket of this process that listens already; *fd is N then. Its socket
 * file is not ours to remove, unless ",file" stands behind.
 *
 * *fd listens, without blocking; address is what was really bound ("127.0.0.1:43817",
 * "[::]:8080", "unix:PATH"). "" as the host is every address, IPv6 and IPv4; port 0
 * takes a free one; a socket file nobody listens on any more is replaced. *unix_path
 * (ek_free) is set for a socket file and otherwise left alone.
 * Errors: EK_EINVAL, EK_EIO with the address and the system's reason, EK_ENOMEM. */
int ek_address_listen(int *fd, char address[128], char **unix_path, const char *listen,
                      struct ek_err *err) EK_MUST_USE;

/* What fd is bound to, as ek_address_listen says it. Errors: EK_EIO; EK_EINVAL: it does
 * not listen. */
int ek_address_of(char address[128], int fd) EK_MUST_USE;

struct ek_address {
    struct sockaddr_storage storage;
    socklen_t n;
};

/* May ask the resolver, and wait for it. The first address it names.
 * Errors: EK_EINVAL, EK_EIO. */
int ek_address_resolve(struct ek_address *a, const char *text,
                       struct ek_err *err) EK_MUST_USE;

/* All addresses that it names, in the resolver's order; *list is the caller's
 * (ek_free). numeric: HOST must be an address, and nobody is asked.
 * Errors: EK_EINVAL, EK_EIO, EK_ENOMEM. */
enum { EK_ADDRESS_MAX = 64 }; /* more are left out */
int ek_address_resolve_all(struct ek_address **list, size_t *n, const char *text,
                           bool numeric, struct ek_err *err) EK_MUST_USE;

/* Has it a HOST that is a name, which a resolver must be asked for? */
bool ek_address_is_name(const char *text);
bool ek_address_equal(const struct ek_address *a, const struct ek_address *b);

/* The host of a text; false: it has none (unix:PATH, bad). */
bool ek_address_host(char host[256], const char *text);

/* Begins to connect, without blocking: *fd becomes writable. speaks_first: this side
 * does, at once: TCP's last acknowledgement of the handshake goes with those bytes.
 * Errors: EK_EIO, errno says why. */
int ek_address_connect(int *fd, const struct ek_address *a,
                       bool speaks_first) EK_MUST_USE;

#endif
