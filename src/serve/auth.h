/* auth.h - API keys: which ones are good, compared in a time that tells nothing. */
#ifndef EVENKEEL_SERVE_AUTH_H
#define EVENKEEL_SERVE_AUTH_H

#include "base/buf.h"
#include "base/err.h"
#include "serve/prefix.h"

#include <stdbool.h>

struct ek_auth {
    struct ek_buf keys; /* one a line; empty: everybody may */
};

void ek_auth_init(struct ek_auth *a);
void ek_auth_release(struct ek_auth *a); /* wipes the keys */

/* Adds the keys of a file, one a line, blank lines and those that begin with '#' left
 * out. Errors: those of ek_file_read; EK_EINVAL no key in it. */
int ek_auth_add_file(struct ek_auth *a, const char *path,
                     struct ek_err *err) EK_MUST_USE;

/* Errors: EK_EINVAL empty or with a line end, EK_ENOMEM. */
int ek_auth_add(struct ek_auth *a, const char *key, struct ek_err *err) EK_MUST_USE;

/* True when no key is set, or `authorization` (the header's value, may be NULL) is
 * "Bearer <a good key>". The time depends on the length presented and the number of
 * keys, not on how much of a key agrees. */
bool ek_auth_allows(const struct ek_auth *a, const char *authorization);

/* Whose prefixes a request that ek_auth_allows may share: 128 bits of SHA-256 over the
 * API key it came with (where keys are set) and its cache_salt (NULL: none), each with
 * its length and whether it is there, so that no key and salt can give another pair's.
 * {0,0} where there is neither. Errors: EK_ENOMEM. */
int ek_auth_salt(struct ek_salt *salt, const struct ek_auth *a,
                 const char *authorization, const char *cache_salt) EK_MUST_USE;

#endif
