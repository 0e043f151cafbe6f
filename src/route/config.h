/* config.h - the lists of a proxy's configuration file: where clients connect, where
 * sessions go. What is one value each is an option of `keel route` (cli/verb_route.c),
 * a flag and a key of the file alike.
 *
 *   backends:
 *     - name: a
 *       address: 10.0.0.1:9001
 *       cores: 4
 *   listeners:
 *     - listen: 0.0.0.0:443
 *       tls_cert: voice.pem
 *       tls_key: voice.key
 */
#ifndef EVENKEEL_ROUTE_CONFIG_H
#define EVENKEEL_ROUTE_CONFIG_H

#include "base/opt.h"
#include "route/run.h"

struct ek_route_lists {
    struct ek_opt_items listeners, backends;
};

/* Keys of a verb whose settings begin with a struct ek_route_lists. */
extern const struct ek_opt ek_route_list_keys[];

/* Of one listener: a handshake looks through them. */
enum { EK_ROUTE_MAX_CERTIFICATES = 256 };

/* The certificates and keys that were named, in pairs; the lists are borrowed. place:
 * how a sentence begins. Errors: EK_EINVAL, *l unchanged. */
int ek_route_certificates(struct ek_route_listener *l, const char *place,
                          const struct ek_opt_list *certs,
                          const struct ek_opt_list *keys,
                          struct ek_err *err) EK_MUST_USE;

/* HOST:PORT with a port up to 65535, or unix:PATH. */
bool ek_route_is_address(const char *s);

/* Appends the lists to those of *c; the arrays are the arena's, strings are borrowed.
 * common: what a backend has that does not say its own (report_path, health_path, TLS,
 * max_sessions). A backend without a name is named by its address; names are compared
 * over all of them. Errors: EK_EINVAL with file:line:column, the key, its value and
 * what would be right; EK_ENOMEM; *c unchanged. */
int ek_route_config_add(struct ek_route_config *c, const struct ek_route_lists *lists,
                        const struct ek_route_backend *common, struct ek_arena *arena,
                        struct ek_err *err) EK_MUST_USE;

#endif
