/* probe_proxy.c - the proxy from key=value words, for check_proxy.py:
 *   listen=127.0.0.1:0 backend=a=127.0.0.1:9001 backend=... admin=127.0.0.1:0
 *   report=/load health=/health agent=HOST:PORT (for the backends named before it)
 *   names=FILE (a resolver's, see resolve) cert=FILE key=FILE (in pairs)
 *   ca=FILE tls=1 tls_name=NAME, and any number of the members listed below.
 * It prints "listening ADDRESS admin ADDRESS" and ends on SIGTERM. */
#include "base/log.h"
#include "base/mem.h"
#include "net/address.h"
#include "route/run.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_BACKENDS = 64, MAX_CERTS = 8 };

static struct ek_route *route;
static const char *names_file; /* of resolve */

static void on_signal(int sig)
{
    (void)sig;
    ek_route_stop(route);
}

#define CONFIG(member, as)                                                             \
    {                                                                                  \
#member, offsetof(struct ek_route_config, member), as                          \
    }

static const struct number {
    const char *name;
    size_t at;
    int bytes; /* 4, 8; 1: bool */
} numbers[] = {
    CONFIG(threads, 4),
    CONFIG(max_connections, 4),
    CONFIG(max_queue, 4),
    CONFIG(queue_timeout_us, 8),
    CONFIG(retry_after_us, 8),
    CONFIG(connect_timeout_us, 8),
    CONFIG(head_timeout_us, 8),
    CONFIG(idle_timeout_us, 8),
    CONFIG(answer_timeout_us, 8),
    CONFIG(tunnel_timeout_us, 8),
    CONFIG(dead_peer_us, 8),
    CONFIG(max_age_us, 8),
    CONFIG(resolve_interval_us, 8),
    CONFIG(websocket_ping_us, 8),
    CONFIG(ping_timeout_us, 8),
    CONFIG(http2_ping_us, 8),
    CONFIG(backend_http2_ping_us, 8),
    CONFIG(counts_frames, 1),
    CONFIG(drain_us, 8),
    CONFIG(report_interval_us, 8),
    CONFIG(health_interval_us, 8),
    CONFIG(log_interval_us, 8),
    CONFIG(pool_connections, 4),
    CONFIG(logs_sessions, 1),
    CONFIG(trusts_forwarded, 1),
    CONFIG(pool.interval_us, 8),
    CONFIG(pool.eject_us, 8),
    CONFIG(pool.max_failures, 4),
};

static bool set_number(struct ek_route_config *c, const char *key, const char *value)
{
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (strcmp(numbers[i].name, key) != 0)
            continue;
        int64_t v = strtoll(value, NULL, 10);
        int32_t narrow = (int32_t)v;
        bool flag = v != 0;
        char *at = (char *)c + numbers[i].at;
        if (numbers[i].bytes == 8)
            memcpy(at, &v, sizeof v);
        else if (numbers[i].bytes == 4)
            memcpy(at, &narrow, sizeof narrow);
        else
            memcpy(at, &flag, sizeof flag);
        return true;
    }
    return false;
}

struct words {
    struct ek_route_config config;
    struct ek_route_listener listener;
    const char *certs[MAX_CERTS], *keys[MAX_CERTS];
    size_t n_keys;
    struct ek_route_backend backends[MAX_BACKENDS];
};

static bool add_backend(struct words *w, char *value)
{
    char *address = strchr(value, '=');
    if (!address || w->config.n_backends == MAX_BACKENDS)
        return false;
    *address++ = 0;
    w->backends[w->config.n_backends++] = (struct ek_route_backend){
        .spec = {.name = value, .address = address, .weight = 1}};
    return true;
}

static bool set_backends(struct words *w, const char *key, const char *value)
{
    for (size_t i = 0; i < w->config.n_backends; i++) {
        struct ek_route_backend *b = &w->backends[i];
        if (strcmp(key, "report") == 0)
            b->report_path = value;
        else if (strcmp(key, "health") == 0)
            b->health_path = value;
        else if (strcmp(key, "agent") == 0)
            b->agent = value;
        else if (strcmp(key, "max") == 0)
            b->spec.max_sessions = (int32_t)strtol(value, NULL, 10);
        else if (strcmp(key, "ca") == 0)
            b->tls_ca = value;
        else if (strcmp(key, "tls_name") == 0)
            b->tls_name = value;
        else if (strcmp(key, "tls") == 0)
            b->has_tls = value[0] == '1';
        else if (strcmp(key, "orca") == 0)
            b->reports_orca = value[0] == '1';
        else if (strcmp(key, "h2") == 0)
            b->protocol = value[0] == '1' ? EK_ROUTE_HTTP2 : EK_ROUTE_HTTP1;
        else
            return false;
    }
    return true;
}

static bool take(struct words *w, char *word)
{
    char *value = strchr(word, '=');
    if (!value)
        return false;
    *value++ = 0;
    if (strcmp(word, "backend") == 0)
        return add_backend(w, value);
    if (strcmp(word, "listen") == 0)
        w->listener.listen = value;
    else if (strcmp(word, "names") == 0)
        names_file = value;
    else if (strcmp(word, "admin") == 0)
        w->config.admin = value;
    else if (strcmp(word, "cert") == 0 && w->listener.n_tls < MAX_CERTS)
        w->certs[w->listener.n_tls++] = value;
    else if (strcmp(word, "key") == 0 && w->n_keys < MAX_CERTS)
        w->keys[w->n_keys++] = value;
    else
        return set_number(&w->config, word, value) || set_backends(w, word, value);
    return true;
}

/* names=FILE: a resolver that reads it each time, lines of "NAME ADDRESS". A line "NAME
 * wait" makes it wait as long as the file says so. */

static int find_name(struct ek_address *list, size_t *n, const char *host,
                     const char *port)
{
    char line[256], name[128], value[128], text[160];
    FILE *f = fopen(names_file, "r");
    int rc = 0;
    *n = 0;
    while (f && fgets(line, sizeof line, f) && *n < EK_ADDRESS_MAX) {
        if (sscanf(line, "%127s %127s", name, value) != 2 || strcmp(name, host) != 0)
            continue;
        if (strcmp(value, "wait") == 0) {
            rc = EK_EAGAIN;
            break;
        }
        snprintf(text, sizeof text, "%s:%s", value, port);
        if (ek_address_resolve(&list[*n], text, NULL) == 0)
            ++*n;
    }
    if (f)
        fclose(f);
    return rc;
}

static int resolve(struct ek_address **list, size_t *n, const char *text, bool numeric,
                   struct ek_err *err)
{
    char host[256];
    (void)numeric;
    if (!ek_address_host(host, text))
        return ek_err_set(err, EK_EINVAL, "%s: no name", text);
    *list = ek_calloc(EK_ADDRESS_MAX, sizeof **list);
    while (find_name(*list, n, host, strrchr(text, ':') + 1) == EK_EAGAIN)
        usleep(10000);
    if (*n > 0)
        return 0;
    ek_free(*list);
    *list = NULL;
    return ek_err_set(err, EK_EIO, "%s: no such name", text);
}

int main(int argc, char **argv)
{
    static struct words w;
    struct ek_err err = EK_ERR_INIT;
    w.listener.listen = "127.0.0.1:0";
    w.listener.tls_certs = w.certs;
    w.listener.tls_keys = w.keys;
    ek_route_config_default(&w.config);
    w.config.listeners = &w.listener;
    w.config.n_listeners = 1;
    w.config.backends = w.backends;
    for (int i = 1; i < argc; i++) {
        if (!take(&w, argv[i])) {
            fprintf(stderr, "probe_proxy: %s is not understood\n", argv[i]);
            return 2;
        }
    }
    w.config.resolve = names_file ? resolve : NULL;
    if (ek_route_new(&route, &w.config, &err)) {
        fprintf(stderr, "probe_proxy: %s\n", err.text);
        return 1;
    }
    signal(SIGTERM, on_signal);
    printf("listening %s admin %s\n", ek_route_address(route), ek_route_admin(route));
    fflush(stdout);
    int rc = ek_route_run(route, &err);
    if (rc)
        fprintf(stderr, "probe_proxy: %s\n", err.text);
    ek_route_free(route);
    return rc ? 1 : 0;
}
