/* tls.h - server-side TLS 1.2+ by OpenSSL 3, ALPN "http/1.1".
 *
 * One context serves any number of connections of one loop; it must outlive the servers
 * that were given it.
 */
#ifndef EVENKEEL_NET_TLS_H
#define EVENKEEL_NET_TLS_H

#include "base/err.h"

struct ek_tls_context;

/* PEM files: the certificate followed by its chain, and the key without a passphrase.
 * Errors, each naming the file and OpenSSL's or the system's reason: EK_ENOENT,
 * EK_EPERM, EK_EFORMAT, EK_EINVAL (the key does not belong to the certificate),
 * EK_ENOMEM. */
int ek_tls_context_new(struct ek_tls_context **tls, const char *cert_path,
                       const char *key_path, struct ek_err *err) EK_MUST_USE;
void ek_tls_context_free(struct ek_tls_context *tls); /* NULL is fine */

#endif
