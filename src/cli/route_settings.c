#include "cli/route_settings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Backends ------------------------------------------------------------------------ */

/* "KEY=VALUE" of one backend. */
static int read_pair(struct ek_route_backend *b, char *pair, struct ek_err *err)
{
    char *value = strchr(pair, '='), *end = NULL;
    double v = 0;
    if (value) {
        *value++ = 0;
        v = strtod(value, &end);
    }
    bool is_number = end && end != value && !*end && isfinite(v) && v >= 0;
    if (value && strcmp(pair, "agent") == 0)
        b->agent = value;
    else if (value && strcmp(pair, "tls_name") == 0 && *value)
        b->tls_name = value;
    else if (value && strcmp(pair, "report_key_file") == 0 && *value)
        b->report_key_file = value;
    else if (value && strcmp(pair, "protocol") == 0 && strcmp(value, "http1") == 0)
        b->protocol = EK_ROUTE_HTTP1;
    else if (value && strcmp(pair, "protocol") == 0 && strcmp(value, "http2") == 0)
        b->protocol = EK_ROUTE_HTTP2;
    else if (value && strcmp(pair, "reports") == 0 && strcmp(value, "orca") == 0)
        b->reports_orca = true;
    else if (is_number && strcmp(pair, "weight") == 0 && v > 0)
        b->spec.weight = v;
    else if (is_number && strcmp(pair, "cores") == 0)
        b->spec.cores = v;
    else if (is_number && strcmp(pair, "max_sessions") == 0 && v <= 1e9)
        b->spec.max_sessions = (int32_t)v;
    else
        return ek_err_set(
            err, EK_EINVAL,
            "--backend: '%s': '%s' is none of weight=N (over 0), cores=N, "
            "max_sessions=N, protocol=http1, protocol=http2, agent=HOST:PORT, "
            "reports=orca, report_key_file=FILE, tls_name=NAME",
            b->spec.name, pair);
    return 0;
}

/* "[NAME=]HOST:PORT[,KEY=VALUE...]": text is cut up. */
static int read_backend(struct ek_route_backend *b, char *text,
                        const struct ek_route_settings *set, struct ek_err *err)
{
    char *comma = strchr(text, ',');
    if (comma)
        *comma++ = 0;
    char *name_end = strchr(text, '=');
    *b = (struct ek_route_backend){
        .spec = {.name = text,
                 .address = name_end ? name_end + 1 : text,
                 .weight = 1,
                 .max_sessions = (int32_t)set->max_sessions},
        .has_tls = set->backend_tls,
        .skips_verify = set->backend_tls_insecure,
        .tls_ca = set->backend_ca,
        .report_path = set->report_path,
        .report_key_file = set->report_key_file,
        .health_path = set->health_path,
    };
    if (name_end)
        *name_end = 0;
    int rc = 0;
    while (comma && !rc) {
        char *pair = comma;
        comma = strchr(pair, ',');
        if (comma)
            *comma++ = 0;
        rc = read_pair(b, pair, err);
    }
    return rc;
}

static int read_backends(struct ek_route_config *c, const struct ek_route_settings *set,
                         struct ek_arena *arena, struct ek_err *err)
{
    size_t n = set->backend.n;
    struct ek_route_backend *b = ek_arena_calloc(arena, n ? n : 1, sizeof *b);
    if (!b)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        char *text = ek_arena_strndup(arena, set->backend.items[i],
                                      strlen(set->backend.items[i]));
        if (!text)
            return ek_err_set(err, EK_ENOMEM, "out of memory");
        int rc = read_backend(&b[i], text, set, err);
        if (rc)
            return rc;
    }
    c->backends = b;
    c->n_backends = n;
    return 0;
}

static int read_listeners(struct ek_route_config *c,
                          const struct ek_route_settings *set, struct ek_arena *arena,
                          struct ek_err *err)
{
    bool has_none = set->listen.n + set->lists.listeners.n == 0;
    size_t n = set->listen.n + has_none;
    struct ek_route_listener *l = ek_arena_calloc(arena, n + 1, sizeof *l);
    if (!l)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        l[i].listen = set->listen.n ? set->listen.items[i] : "127.0.0.1:8000";
        int rc =
            ek_route_certificates(&l[i], "route", &set->tls_cert, &set->tls_key, err);
        if (rc)
            return rc;
    }
    c->listeners = l;
    c->n_listeners = n;
    return 0;
}

static int read_key(struct ek_route_config *c, const char *key, struct ek_err *err)
{
    static const struct {
        const char *prefix;
        enum ek_route_key key;
    } kinds[] = {{"header:", EK_ROUTE_KEY_HEADER},
                 {"cookie:", EK_ROUTE_KEY_COOKIE},
                 {"query:", EK_ROUTE_KEY_QUERY}};
    c->key = EK_ROUTE_KEY_CLIENT;
    if (!key)
        return 0;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t n = strlen(kinds[i].prefix);
        if (strncmp(key, kinds[i].prefix, n) == 0 && key[n]) {
            c->key = kinds[i].key;
            c->key_name = key + n;
            return 0;
        }
    }
    return ek_err_set(err, EK_EINVAL,
                      "--key: '%s' is none of header:NAME, cookie:NAME, query:NAME",
                      key);
}

static int read_policy(struct ek_route_config *c, const char *word, struct ek_err *err)
{
    int policy = ek_policy_find(word);
    if (policy < 0)
        return ek_err_set(err, EK_EINVAL,
                          "--policy: '%s' is none of effective_capacity, "
                          "least_sessions, two_choices, weighted_random, round_robin, "
                          "hash",
                          word);
    c->pool.policy = (enum ek_policy)policy;
    return 0;
}

static bool is_off(const char *text)
{
    return !text || strcmp(text, "off") == 0;
}

static void read_values(struct ek_route_config *c, const struct ek_route_settings *set)
{
    c->pool.admission = (enum ek_admission)set->admission;
    c->pool.interval_us = set->report_interval * 1000;
    c->pool.expiry_us = set->report_expiry * 1000;
    c->pool.slow_start_us = set->slow_start * 1000;
    c->admin = is_off(set->admin) ? NULL : set->admin;
    c->via = is_off(set->via) ? NULL : set->via;
    c->threads = (int32_t)set->threads;
    c->max_connections = (int32_t)set->max_connections;
    c->max_queue = (int32_t)set->max_queue;
    c->pool_connections = (int32_t)set->pool_connections;
    c->queue_timeout_us = set->queue_timeout * 1000;
    c->retry_after_us = set->retry_after * 1000;
    c->connect_timeout_us = set->connect_timeout * 1000;
    c->answer_timeout_us = set->answer_timeout * 1000;
    c->head_timeout_us = set->head_timeout * 1000;
    c->idle_timeout_us = set->idle_timeout * 1000;
    c->tunnel_timeout_us = set->tunnel_timeout * 1000;
    c->resolve_interval_us = set->resolve_interval * 1000;
    c->websocket_ping_us = set->websocket_ping * 1000;
    c->http2_ping_us = set->http2_ping * 1000;
    c->backend_http2_ping_us = set->backend_http2_ping * 1000;
    c->ping_timeout_us = set->ping_timeout * 1000;
    c->counts_frames = set->log_frames;
    c->dead_peer_us = set->dead_peer * 1000;
    c->max_age_us = set->max_age * 1000;
    c->drain_us = set->drain * 1000;
    c->backend_drain_us = set->backend_drain * 1000;
    c->report_interval_us = set->report_interval * 1000;
    c->health_interval_us = set->health_interval * 1000;
    c->log_interval_us = set->log_interval * 1000;
    c->log_level = (enum ek_log_level)set->log_level;
    c->logs_sessions = set->log_sessions;
    c->trusts_forwarded = set->trust_forwarded;
}

/* The lists of the file, behind what flags named. */
static int read_lists(struct ek_route_config *c, const struct ek_route_settings *set,
                      struct ek_arena *arena, struct ek_err *err)
{
    const struct ek_route_backend common = {
        .spec = {.max_sessions = (int32_t)set->max_sessions},
        .has_tls = set->backend_tls,
        .skips_verify = set->backend_tls_insecure,
        .tls_ca = set->backend_ca,
        .report_path = set->report_path,
        .report_key_file = set->report_key_file,
        .health_path = set->health_path,
    };
    return ek_route_config_add(c, &set->lists, &common, arena, err);
}

int ek_route_settings_read(struct ek_route_config *c,
                           const struct ek_route_settings *set, struct ek_arena *arena,
                           struct ek_err *err)
{
    ek_route_config_default(c);
    read_values(c, set);
    int rc = read_policy(c, set->policy, err);
    if (!rc)
        rc = read_key(c, set->key, err);
    if (!rc)
        rc = read_listeners(c, set, arena, err);
    if (!rc)
        rc = read_backends(c, set, arena, err);
    if (!rc)
        rc = read_lists(c, set, arena, err);
    return rc ? rc : ek_route_check(c, err);
}
