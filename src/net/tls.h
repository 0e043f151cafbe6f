/* tls.h - server-side TLS 1.2+ by OpenSSL 3. */
#ifndef EVENKEEL_NET_TLS_H
#define EVENKEEL_NET_TLS_H

#include "base/err.h"

struct ek_tls_context;

/* PEM files. Errors: EK_ENOENT, EK_EFORMAT, EK_EINVAL (key does not belong to the
 * certificate), naming the file and OpenSSL's reason. */
int ek_tls_context_new(struct ek_tls_context **tls, const char *cert_path,
                       const char *key_path, struct ek_err *err) EK_MUST_USE;
void ek_tls_context_free(struct ek_tls_context *tls);

#endif
