/* tls_int.h - one TLS connection over a non-blocking socket, for http_conn.c.
 *
 * Every call: 0 progress, EK_EAGAIN wait until the socket is ready for *want
 * (EK_READABLE or EK_WRITABLE; a TLS read may have to write and the other way round),
 * EK_ECLOSED the peer ended or broke the protocol.
 */
#ifndef EVENKEEL_NET_TLS_INT_H
#define EVENKEEL_NET_TLS_INT_H

#include "net/tls.h"

#include <stdbool.h>
#include <stddef.h>

struct ek_tls;

/* fd is borrowed. Errors: EK_ENOMEM. */
int ek_tls_new(struct ek_tls **t, struct ek_tls_context *context, int fd) EK_MUST_USE;
void ek_tls_free(struct ek_tls *t);

int ek_tls_handshake(struct ek_tls *t, int *want) EK_MUST_USE;
/* After a failed handshake: did the client speak plain HTTP? */
bool ek_tls_met_http(const struct ek_tls *t);

/* cap, n >= 1; *got, *sent >= 1 on success. */
int ek_tls_read(struct ek_tls *t, void *p, size_t cap, size_t *got,
                int *want) EK_MUST_USE;
int ek_tls_write(struct ek_tls *t, const void *p, size_t n, size_t *sent,
                 int *want) EK_MUST_USE;
void ek_tls_end(struct ek_tls *t); /* sends close_notify if the socket takes it now */

#endif
