#include "route/upstream.h"

#include "base/mem.h"

#include <stddef.h>
#include <string.h>

/* The strings of a backend's settings. */
static const size_t strings[] = {
    offsetof(struct ek_route_backend, spec.name),
    offsetof(struct ek_route_backend, spec.address),
    offsetof(struct ek_route_backend, tls_ca),
    offsetof(struct ek_route_backend, tls_name),
    offsetof(struct ek_route_backend, report_path),
    offsetof(struct ek_route_backend, agent),
    offsetof(struct ek_route_backend, health_path),
};
enum { N_STRINGS = sizeof strings / sizeof strings[0] };

static const char **string_at(const struct ek_route_backend *b, size_t k)
{
    return (const char **)(void *)((char *)(uintptr_t)b + strings[k]);
}

static struct ek_upstream *copy(const struct ek_route_backend *b)
{
    size_t bytes = 0;
    for (size_t k = 0; k < N_STRINGS; k++)
        bytes += *string_at(b, k) ? strlen(*string_at(b, k)) + 1 : 0;
    struct ek_upstream *u = ek_calloc(1, sizeof *u + bytes);
    if (!u)
        return NULL;
    char *at = u->text;
    u->config = *b;
    u->backend = -1;
    for (size_t k = 0; k < N_STRINGS; k++) {
        const char *s = *string_at(b, k);
        if (!s)
            continue;
        size_t n = strlen(s) + 1;
        memcpy(at, s, n);
        *string_at(&u->config, k) = at;
        at += n;
    }
    return u;
}

static bool is_same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool connects_alike(const struct ek_route_backend *a,
                           const struct ek_route_backend *b)
{
    return a->protocol == b->protocol && a->has_tls == b->has_tls &&
           a->skips_verify == b->skips_verify && is_same(a->tls_ca, b->tls_ca) &&
           is_same(a->tls_name, b->tls_name);
}

static int open_tls(struct ek_upstream *u, struct ek_err *err)
{
    const struct ek_route_backend *b = &u->config;
    int rc = ek_tls_client_context_new(&u->tls, b->tls_ca, b->skips_verify, err);
    return !rc && b->protocol == EK_ROUTE_HTTP2 ? ek_tls_context_set_alpn(u->tls, "h2")
                                                : rc;
}

int ek_upstream_new(struct ek_upstream **out, const struct ek_route_backend *b,
                    const struct ek_upstream *before, uint32_t id, struct ek_err *err)
{
    struct ek_upstream *u = copy(b);
    int rc = 0;
    if (!u)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    u->connection_id = id;
    if (!ek_address_host(u->host, b->spec.address))
        u->host[0] = 0;
    if (before) {
        u->address = before->address;
        u->backend = before->backend;
        u->since_us = before->since_us;
        if (connects_alike(b, &before->config))
            u->connection_id = before->connection_id;
    } else {
        rc = ek_address_resolve(&u->address, b->spec.address, err);
    }
    if (!rc && b->agent)
        rc = ek_address_resolve(&u->agent, b->agent, err);
    if (!rc && b->has_tls)
        rc = open_tls(u, err);
    if (rc) {
        ek_err_prefix(err, "backend '%s'", b->spec.name);
        ek_upstream_free(u);
        return rc;
    }
    *out = u;
    return 0;
}

int ek_upstream_moved(struct ek_upstream **out, const struct ek_upstream *u,
                      const struct ek_address *address, uint32_t id)
{
    struct ek_upstream *v = copy(&u->config);
    if (!v)
        return EK_ENOMEM;
    v->address = *address;
    v->agent = u->agent;
    v->connection_id = id;
    v->backend = u->backend;
    v->since_us = u->since_us;
    memcpy(v->host, u->host, sizeof v->host);
    if (u->tls)
        v->tls = ek_tls_context_ref(u->tls);
    *out = v;
    return 0;
}

void ek_upstream_free(struct ek_upstream *u)
{
    if (!u)
        return;
    ek_tls_context_free(u->tls);
    ek_free(u);
}
