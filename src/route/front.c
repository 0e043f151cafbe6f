#include "route/front.h"

#include "base/mem.h"
#include "net/address.h"
#include "net/sock.h"

#include <string.h>
#include <unistd.h>

static int open_certificates(struct ek_front *f, const struct ek_route_listener *l,
                             struct ek_err *err)
{
    if (l->n_tls == 0)
        return 0;
    int rc = ek_tls_context_new(&f->tls, l->tls_certs[0], l->tls_keys[0], err);
    for (size_t i = 1; i < l->n_tls && !rc; i++)
        rc = ek_tls_context_add(f->tls, l->tls_certs[i], l->tls_keys[i], err);
    return rc ? rc : ek_tls_context_set_alpn(f->tls, "h2,http/1.1");
}

int ek_front_check_files(const struct ek_route_listener *l, struct ek_err *err)
{
    struct ek_front f = {.fd = -1};
    int rc = open_certificates(&f, l, err);
    ek_tls_context_free(f.tls);
    if (rc)
        ek_err_prefix(err, "listener '%s'", l->listen);
    return rc;
}

static int open_socket(struct ek_front *f, const char *address, struct ek_err *err)
{
    int rc = ek_address_listen(&f->fd, f->address, &f->unix_path, address, err);
    f->has_socket = rc == 0;
    if (!rc)
        ek_sock_send_at_once(f->fd);
    return rc;
}

/* Inherited, and not from a proxy that this one replaces: inherit.h. */
static bool is_lent(const char *address)
{
    return strncmp(address, "fd@", 3) == 0 && !strchr(address, ',');
}

int ek_front_new(struct ek_front **out, const struct ek_route_listener *l,
                 const struct ek_front *before, const char *address, int64_t id,
                 struct ek_err *err)
{
    size_t n = strlen(l->listen) + 1;
    struct ek_front *f = ek_calloc(1, sizeof *f + n);
    if (!f)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    memcpy(f->listen, l->listen, n);
    f->id = before ? before->id : id;
    f->fd = before ? before->fd : -1;
    f->is_lent = before ? before->is_lent : is_lent(address);
    if (before)
        memcpy(f->address, before->address, sizeof f->address);
    int rc = open_certificates(f, l, err);
    if (rc)
        ek_err_prefix(err, "listener '%s'", l->listen);
    else if (!before)
        rc = open_socket(f, address, err);
    if (rc) {
        ek_front_free(f);
        return rc;
    }
    *out = f;
    return 0;
}

void ek_front_take(struct ek_front *f, struct ek_front *before)
{
    f->has_socket = before->has_socket;
    f->unix_path = before->unix_path;
    before->has_socket = false;
    before->unix_path = NULL;
}

void ek_front_shut(struct ek_front *f, bool keeps_path)
{
    if (f->has_socket)
        close(f->fd);
    f->has_socket = false;
    if (f->unix_path && !keeps_path)
        unlink(f->unix_path);
    ek_free(f->unix_path);
    f->unix_path = NULL;
}

void ek_front_free(struct ek_front *f)
{
    if (!f)
        return;
    ek_front_shut(f, false);
    ek_tls_context_free(f->tls);
    ek_free(f);
}
