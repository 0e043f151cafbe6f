#include "route/upstream.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"

#include <errno.h>
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
    offsetof(struct ek_route_backend, report_key_file),
};
enum { MAX_KEY_BYTES = 4096 };
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

bool ek_upstream_is_set(const struct ek_upstream *u, const struct ek_route_backend *b)
{
    const struct ek_route_backend *c = &u->config;
    for (size_t k = 0; k < N_STRINGS; k++) {
        if (!is_same(*string_at(c, k), *string_at(b, k)))
            return false;
    }
    return connects_alike(c, b) && c->reports_orca == b->reports_orca &&
           c->spec.weight == b->spec.weight && c->spec.cores == b->spec.cores &&
           c->spec.max_sessions == b->spec.max_sessions;
}

/* "Bearer KEY" of the file's first line. The key is in no sentence. */
static int read_key(struct ek_upstream *u, const char *path, struct ek_err *err)
{
    struct ek_buf text;
    ek_buf_init(&text, MAX_KEY_BYTES);
    int rc = ek_file_read(&text, path, err);
    size_t n = rc || !text.data ? 0 : strcspn(text.data, "\r\n");
    for (size_t i = 0; i < n && !rc; i++) {
        if (text.data[i] <= ' ' || text.data[i] == 0x7f)
            rc = ek_err_set(
                err, EK_EINVAL,
                "report_key_file: %s: byte %zu of its first line belongs into "
                "no key",
                path, i + 1);
    }
    if (!rc && n == 0)
        rc = ek_err_set(err, EK_EINVAL,
                        "report_key_file: %s: its first line is empty, "
                        "expected a key",
                        path);
    if (!rc && !(u->authorization = ek_alloc(n + sizeof "Bearer ")))
        rc = ek_err_set(err, EK_ENOMEM, "out of memory");
    if (!rc) {
        memcpy(u->authorization, "Bearer ", 7);
        memcpy(u->authorization + 7, text.data, n);
        u->authorization[7 + n] = 0;
    }
    ek_buf_release(&text);
    return rc;
}

static int open_tls(struct ek_upstream *u, struct ek_err *err)
{
    const struct ek_route_backend *b = &u->config;
    int rc = ek_tls_client_context_new(&u->tls, b->tls_ca, b->skips_verify, err);
    return !rc && b->protocol == EK_ROUTE_HTTP2 ? ek_tls_context_set_alpn(u->tls, "h2")
                                                : rc;
}

static int set_addresses(struct ek_upstream *u, const struct ek_address *list, size_t n)
{
    u->addresses = ek_calloc(n + 1, sizeof *u->addresses);
    if (!u->addresses)
        return EK_ENOMEM;
    if (n > 0)
        memcpy(u->addresses, list, n * sizeof *list);
    u->n_addresses = n;
    return 0;
}

int ek_upstream_give(struct ek_upstream *u, const struct ek_address *list, size_t n)
{
    ek_free(u->addresses);
    u->n_addresses = 0;
    return set_addresses(u, list, n);
}

/* What needs no resolver. */
static int read_addresses(struct ek_upstream *u, struct ek_err *err)
{
    const char *text = u->config.spec.address;
    if (ek_address_is_name(text))
        return 0;
    return ek_address_resolve_all(&u->addresses, &u->n_addresses, text, true, err);
}

static int read_agent(struct ek_upstream *u, const struct ek_upstream *before,
                      struct ek_err *err)
{
    const char *text = u->config.agent;
    if (before && is_same(text, before->config.agent))
        u->agent = before->agent;
    else if (text && !ek_address_is_name(text))
        return ek_address_resolve(&u->agent, text, err);
    return 0;
}

static int open_files(struct ek_upstream *u, struct ek_err *err)
{
    int rc = u->config.has_tls ? open_tls(u, err) : 0;
    if (!rc && u->config.report_key_file)
        rc = read_key(u, u->config.report_key_file, err);
    return rc;
}

int ek_upstream_check_files(const struct ek_route_backend *b, struct ek_err *err)
{
    struct ek_upstream *u = copy(b);
    int rc = u ? open_files(u, err) : ek_err_set(err, EK_ENOMEM, "out of memory");
    ek_upstream_free(u);
    if (rc)
        ek_err_prefix(err, "backend '%s'", b->spec.name);
    return rc;
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
        u->backend = before->backend;
        u->since_us = before->since_us;
        if (connects_alike(b, &before->config))
            u->connection_id = before->connection_id;
        rc = set_addresses(u, before->addresses, before->n_addresses);
    } else {
        rc = read_addresses(u, err);
    }
    if (!rc)
        rc = read_agent(u, before, err);
    if (!rc)
        rc = open_files(u, err);
    if (rc) {
        ek_err_prefix(err, "backend '%s'", b->spec.name);
        ek_upstream_free(u);
        return rc;
    }
    *out = u;
    return 0;
}

int ek_upstream_moved(struct ek_upstream **out, const struct ek_upstream *u,
                      const struct ek_address *list, size_t n,
                      const struct ek_address *agent, uint32_t id)
{
    struct ek_upstream *v = copy(&u->config);
    if (!v)
        return EK_ENOMEM;
    if (set_addresses(v, list, n)) {
        ek_upstream_free(v);
        return EK_ENOMEM;
    }
    v->agent = *agent;
    v->connection_id = id;
    v->backend = u->backend;
    v->since_us = u->since_us;
    memcpy(v->host, u->host, sizeof v->host);
    if (u->authorization &&
        !(v->authorization = ek_strndup(u->authorization, strlen(u->authorization)))) {
        ek_upstream_free(v);
        return EK_ENOMEM;
    }
    if (u->tls)
        v->tls = ek_tls_context_ref(u->tls);
    *out = v;
    return 0;
}

int ek_upstream_connect(int *fd, const struct ek_upstream *u)
{
    if (u->n_addresses == 0) {
        errno = EADDRNOTAVAIL;
        return EK_EIO;
    }
    uint64_t turn = (uint64_t)ek_counter_get(&u->turn);
    return ek_address_connect(fd, &u->addresses[turn % u->n_addresses], true);
}

/* Two threads that saw the same failure rotate once, or twice at worst. */
void ek_upstream_rotate(struct ek_upstream *u, int64_t turn)
{
    if (ek_counter_get(&u->turn) == turn)
        ek_counter_share(&u->turn, 1);
}

void ek_upstream_free(struct ek_upstream *u)
{
    if (!u)
        return;
    ek_tls_context_free(u->tls);
    ek_free(u->addresses);
    ek_free(u->authorization);
    ek_free(u);
}
