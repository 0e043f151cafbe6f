/* sock.h - bytes of a connected socket, plain or TLS, without blocking.
 *
 * Every call: 0 progress; EK_EAGAIN wait until it is ready for *want (EK_READABLE or
 * EK_WRITABLE; under TLS a read may have to write and the other way round); EK_ECLOSED
 * the peer ended its side in order (reads); EK_EIO the connection failed.
 */
#ifndef EVENKEEL_NET_SOCK_H
#define EVENKEEL_NET_SOCK_H

#include "net/loop.h"
#include "net/tls.h"

#include <stdbool.h>
#include <stddef.h>

struct ek_sock {
    int fd;             /* -1: none */
    struct ek_tls *tls; /* owned; NULL: plain */
};

/* cap, n >= 1; *got, *sent >= 1 on success. */
int ek_sock_read(struct ek_sock *s, void *p, size_t cap, size_t *got,
                 int *want) EK_MUST_USE;
int ek_sock_write(struct ek_sock *s, const void *p, size_t n, size_t *sent,
                  int *want) EK_MUST_USE;
/* Has the system bytes of the peer's that nobody read? Closing over them would be a
 * reset to the peer. */
bool ek_sock_has_bytes(const struct ek_sock *s);
/* Ends our side; the peer's may go on. */
void ek_sock_shut(struct ek_sock *s);
/* is_reset: the peer learns that it broke (RST), not that it ended. */
void ek_sock_close(struct ek_sock *s, bool is_reset);

/* A peer that acknowledges nothing for so long is found: probes while silent, a limit
 * on what is sent. Nothing happens for socket files. dead_us <= 0: left alone. What a
 * listening socket is told, by this or the next, its connections inherit. */
void ek_sock_find_dead(int fd, int64_t dead_us);
/* A listening socket that will be closed: who begins to connect from now on is not
 * answered, tries again after a second and finds it closed, and those who have
 * connected can be accepted to the last. Of every process that listens on it. */
void ek_sock_refuse_new(int fd);
/* Small pieces leave at once, however much waits to be acknowledged. */
void ek_sock_send_at_once(int fd);

#endif
