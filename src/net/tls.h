/* tls.h - TLS 1.2+ by OpenSSL 3, both sides, over non-blocking sockets, with ALPN.
 *
 * One context serves any number of connections, of any loops. Each connection keeps it:
 * whoever made it may free it while they live, so that a new certificate takes over
 * with the next connection.
 */
#ifndef EVENKEEL_NET_TLS_H
#define EVENKEEL_NET_TLS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct ek_tls_context;
struct ek_tls; /* one connection */

/* A server's. PEM files: the certificate followed by its chain, and the key without a
 * passphrase. Errors, each naming the file and OpenSSL's or the system's reason:
 * EK_ENOENT, EK_EPERM, EK_EFORMAT, EK_EINVAL (the key does not belong to the
 * certificate), EK_ENOMEM. */
int ek_tls_context_new(struct ek_tls_context **tls, const char *cert_path,
                       const char *key_path, struct ek_err *err) EK_MUST_USE;

/* A further certificate of a server's, before its first connection: clients that ask
 * for a name of it get it, a certificate for that very name before one for "*.domain".
 * Who asks for a name that none has, or for none, gets the first. Errors as above, *tls
 * unchanged. Cost: a handshake looks through all of them. */
int ek_tls_context_add(struct ek_tls_context *tls, const char *cert_path,
                       const char *key_path, struct ek_err *err) EK_MUST_USE;

/* A client's. ca_path: PEM file of the certificates to trust, NULL: the system's.
 * skips_verify: any certificate will do. Errors as above. */
int ek_tls_client_context_new(struct ek_tls_context **tls, const char *ca_path,
                              bool skips_verify, struct ek_err *err) EK_MUST_USE;
struct ek_tls_context *
ek_tls_context_ref(struct ek_tls_context *tls);       /* one more free */
void ek_tls_context_free(struct ek_tls_context *tls); /* NULL is fine */

/* What connections made from now on offer (client) or choose from (server), the dearest
 * first: "h2,http/1.1". A server starts with "http/1.1", a client with "": no ALPN. A
 * client that offers only what a server has not is refused (RFC 7301 3.2).
 * Errors: EK_ELIMIT (over 64 bytes). */
int ek_tls_context_set_alpn(struct ek_tls_context *tls, const char *names) EK_MUST_USE;

/* Connection. Of the calls that return int: 0 progress; EK_EAGAIN wait until the socket
 * is ready for *want (EK_READABLE or EK_WRITABLE of net/loop.h; a TLS read may have to
 * write and the other way round); EK_ECLOSED the peer ended or broke the protocol. */

/* A server's end. fd is borrowed. Errors: EK_ENOMEM. */
int ek_tls_new(struct ek_tls **t, struct ek_tls_context *context, int fd) EK_MUST_USE;
/* A client's end, of a client context. host: a name (SNI, and verified) or an address
 * (verified alone). Errors: EK_ENOMEM. */
int ek_tls_connect_new(struct ek_tls **t, struct ek_tls_context *context, int fd,
                       const char *host) EK_MUST_USE;
void ek_tls_free(struct ek_tls *t); /* NULL is fine */

int ek_tls_handshake(struct ek_tls *t, int *want) EK_MUST_USE;
/* After a failed handshake: did the client speak plain HTTP? */
bool ek_tls_met_http(const struct ek_tls *t);
/* After a failed call: why, a constant; "" when the peer just left. */
const char *ek_tls_reason(const struct ek_tls *t);
/* After the handshake: was this protocol agreed on? */
bool ek_tls_has_alpn(const struct ek_tls *t, const char *name);

/* cap, n >= 1; *got, *sent >= 1 on success. */
int ek_tls_read(struct ek_tls *t, void *p, size_t cap, size_t *got,
                int *want) EK_MUST_USE;
int ek_tls_write(struct ek_tls *t, const void *p, size_t n, size_t *sent,
                 int *want) EK_MUST_USE;
/* Bytes that were received wait inside: the socket will not say so again. */
bool ek_tls_has_pending(const struct ek_tls *t);
void ek_tls_end(struct ek_tls *t); /* sends close_notify if the socket takes it now */

#endif
