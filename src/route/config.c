/* config.c - the lists of a configuration file, checked and appended. */
#include "route/config.h"

#include <string.h>

struct listener_keys {
    const char *listen;
    struct ek_opt_list tls_cert, tls_key;
};

struct backend_keys {
    const char *name, *address;
    double weight, cores;
    int64_t max_sessions; /* -1: as the others */
    int protocol;         /* enum ek_route_protocol */
    int tls;              /* 0: as the others, 1: off, 2: on */
    bool tls_insecure;
    const char *tls_ca, *tls_name, *report_path, *report_key_file, *agent, *health_path;
    int reports; /* 0: by path or agent, 1: orca */
};

#define TEXT(key, type_, m, shown, words)                                              \
    {                                                                                  \
        .name = (key), .type = EK_OPT_STR, .offset = offsetof(type_, m),               \
        .fallback = "", .value = (shown), .help = (words)                              \
    }

#define FILES(m, words)                                                                \
    {                                                                                  \
        .name = #m, .type = EK_OPT_LIST, .offset = offsetof(struct listener_keys, m),  \
        .value = "FILE", .help = (words)                                               \
    }
static const struct ek_opt listener_keys[] = {
    TEXT("listen", struct listener_keys, listen, "HOST:PORT",
         "address, or unix:PATH; needed"),
    FILES(tls_cert,
          "certificate chain, PEM: clients speak TLS; or a list of them, chosen "
          "by the name that a client asks for, else the first"),
    FILES(tls_key, "its private key, PEM; or the list of theirs"),
    {0},
};

#define B(key, m, shown, words) TEXT(key, struct backend_keys, m, shown, words)
#define AT(m)                   .offset = offsetof(struct backend_keys, m)
static const struct ek_opt backend_keys[] = {
    B("name", name, "NAME", "in metrics, logs and admin; default: its address"),
    B("address", address, "HOST:PORT", "or unix:PATH; needed"),
    {.name = "weight",
     .type = EK_OPT_REAL,
     AT(weight),
     .fallback = "1",
     .min = 0.001,
     .max = 1e6,
     .help = "its size where no report tells"},
    {.name = "cores",
     .type = EK_OPT_REAL,
     AT(cores),
     .fallback = "0",
     .min = 0,
     .max = 1e5,
     .help = "its CPUs, for reports of CPU alone; 0: weight stands for them"},
    {.name = "max_sessions",
     .type = EK_OPT_INT,
     AT(max_sessions),
     .fallback = "-1",
     .min = -1,
     .max = 1e9,
     .help = "of this proxy; 0: no limit; -1: as the option says"},
    {.name = "protocol",
     .type = EK_OPT_CHOICE,
     AT(protocol),
     .fallback = "http1",
     .choices = "http1|http2",
     .help = "spoken to it; http2: by prior knowledge, or ALPN under TLS"},
    {.name = "tls",
     .type = EK_OPT_CHOICE,
     AT(tls),
     .fallback = "default",
     .choices = "default|off|on",
     .help = "speak TLS to it; default: as the option says"},
    {.name = "tls_insecure",
     .type = EK_OPT_FLAG,
     AT(tls_insecure),
     .fallback = "false",
     .help = "take any certificate from it"},
    B("tls_ca", tls_ca, "FILE", "who may sign its certificate, PEM"),
    B("tls_name", tls_name, "NAME", "SNI, and the name in its certificate"),
    B("report_path", report_path, "PATH", "poll its load there; default: the option's"),
    B("report_key_file", report_key_file, "FILE",
      "key that it wants of who asks for its reports; default: the option's"),
    B("agent", agent, "HOST:PORT", "of its agent-check line"),
    B("health_path", health_path, "PATH", "default: the option's"),
    {.name = "reports",
     .type = EK_OPT_CHOICE,
     AT(reports),
     .fallback = "poll",
     .choices = "poll|orca",
     .help = "poll: by report_path or agent; orca: by gRPC, out of band"},
    {0},
};

const struct ek_opt ek_route_list_keys[] = {
    {.name = "listeners",
     .type = EK_OPT_ITEMS,
     .offset = offsetof(struct ek_route_lists, listeners),
     .item_keys = listener_keys,
     .item_size = sizeof(struct listener_keys),
     .help = "where clients connect, beside --listen"},
    {.name = "backends",
     .type = EK_OPT_ITEMS,
     .offset = offsetof(struct ek_route_lists, backends),
     .item_keys = backend_keys,
     .item_size = sizeof(struct backend_keys),
     .help = "where sessions go, beside --backend"},
    {0},
};

static const char *or_null(const char *s)
{
    return *s ? s : NULL;
}

static const char *or_else(const char *s, const char *other)
{
    return *s ? s : other;
}

bool ek_route_is_address(const char *s)
{
    const char *colon = strrchr(s, ':');
    long port = 0;
    if (!strncmp(s, "unix:", 5))
        return s[5] != 0;
    if (!colon || colon == s || !colon[1])
        return false;
    for (const char *p = colon + 1; *p; p++) {
        port = 10 * port + (*p - '0');
        if (*p < '0' || *p > '9' || port > 65535)
            return false;
    }
    return true;
}

static int check_address(const char *place, const char *key, const char *value,
                         struct ek_err *err)
{
    if (ek_route_is_address(value))
        return 0;
    if (!*value)
        return ek_err_set(err, EK_EINVAL,
                          "%s: %s: is missing, expected HOST:PORT or unix:PATH", place,
                          key);
    return ek_err_set(err, EK_EINVAL,
                      "%s: %s: '%.200s' is no address, expected HOST:PORT or unix:PATH",
                      place, key, value);
}

static int check_path(const char *place, const char *key, const char *value,
                      struct ek_err *err)
{
    if (!*value || *value == '/')
        return 0;
    return ek_err_set(err, EK_EINVAL,
                      "%s: %s: '%.200s' is no path, expected one from / on", place, key,
                      value);
}

static int check_length(const char *place, const char *key, const char *value,
                        size_t most, struct ek_err *err)
{
    size_t n = strlen(value);
    if (n <= most)
        return 0;
    return ek_err_set(err, EK_EINVAL, "%s: %s: %zu bytes, expected at most %zu", place,
                      key, n, most);
}

int ek_route_certificates(struct ek_route_listener *l, const char *place,
                          const struct ek_opt_list *certs,
                          const struct ek_opt_list *keys, struct ek_err *err)
{
    if (certs->n != keys->n && (certs->n == 0 || keys->n == 0))
        return ek_err_set(err, EK_EINVAL,
                          "%s: %s: is missing, tls_cert and tls_key belong together",
                          place, certs->n ? "tls_key" : "tls_cert");
    if (certs->n != keys->n)
        return ek_err_set(
            err, EK_EINVAL,
            "%s: tls_key: %zu of them, expected %zu: one for each tls_cert", place,
            keys->n, certs->n);
    if (certs->n > EK_ROUTE_MAX_CERTIFICATES)
        return ek_err_set(err, EK_EINVAL,
                          "%s: tls_cert: %zu of them, expected at most %d", place,
                          certs->n, EK_ROUTE_MAX_CERTIFICATES);
    l->tls_certs = certs->items;
    l->tls_keys = keys->items;
    l->n_tls = certs->n;
    return 0;
}

static int add_listeners(struct ek_route_config *c, const struct ek_opt_items *list,
                         struct ek_arena *arena, struct ek_err *err)
{
    const struct listener_keys *keys = list->items;
    size_t n = c->n_listeners, n_all = n + list->n;
    struct ek_route_listener *all = ek_arena_calloc(arena, n_all + 1, sizeof *all);
    if (!all)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    if (n)
        memcpy(all, c->listeners, n * sizeof *all);
    for (size_t i = 0; i < list->n; i++) {
        const struct listener_keys *k = &keys[i];
        int rc = check_address(list->places[i], "listen", k->listen, err);
        if (rc)
            return rc;
        rc = ek_route_certificates(&all[n + i], list->places[i], &k->tls_cert,
                                   &k->tls_key, err);
        if (rc)
            return rc;
        all[n + i].listen = k->listen;
    }
    c->listeners = all;
    c->n_listeners = n_all;
    return 0;
}

static int check_backend(const struct backend_keys *k, const char *place,
                         struct ek_err *err)
{
    int rc = check_address(place, "address", k->address, err);
    if (!rc)
        rc = check_length(place, "address", k->address, EK_BACKEND_ADDR_MAX, err);
    if (!rc)
        rc = check_length(place, "name", *k->name ? k->name : k->address,
                          EK_BACKEND_NAME_MAX, err);
    if (!rc && *k->agent)
        rc = check_address(place, "agent", k->agent, err);
    if (!rc)
        rc = check_path(place, "report_path", k->report_path, err);
    if (!rc)
        rc = check_path(place, "health_path", k->health_path, err);
    return rc;
}

static struct ek_route_backend make_backend(const struct backend_keys *k,
                                            const struct ek_route_backend *common)
{
    return (struct ek_route_backend){
        .spec = {.name = or_else(k->name, k->address),
                 .address = k->address,
                 .weight = k->weight,
                 .cores = k->cores,
                 .max_sessions = k->max_sessions < 0 ? common->spec.max_sessions
                                                     : (int32_t)k->max_sessions},
        .protocol = (enum ek_route_protocol)k->protocol,
        .has_tls = k->tls ? k->tls == 2 : common->has_tls,
        .skips_verify = k->tls_insecure || common->skips_verify,
        .tls_ca = or_else(k->tls_ca, common->tls_ca),
        .tls_name = or_else(k->tls_name, common->tls_name),
        /* One way suffices: an agent of its own stands for the common path. */
        .report_path = *k->agent ? or_null(k->report_path)
                                 : or_else(k->report_path, common->report_path),
        .report_key_file = or_else(k->report_key_file, common->report_key_file),
        .agent = or_else(k->agent, common->agent),
        .health_path = or_else(k->health_path, common->health_path),
        .reports_orca = k->reports == 1,
    };
}

/* n of all came from elsewhere, the rest from the list. */
static int check_twins(const struct ek_route_backend *all, size_t i, size_t n,
                       const struct ek_opt_items *list, struct ek_err *err)
{
    for (size_t k = 0; k < i; k++) {
        if (!strcmp(all[k].spec.name, all[i].spec.name))
            return ek_err_set(err, EK_EINVAL,
                              "%s: name: '%s' is there twice, first at %s",
                              list->places[i - n], all[i].spec.name,
                              k < n ? "--backend" : list->places[k - n]);
    }
    return 0;
}

static int add_backends(struct ek_route_config *c, const struct ek_opt_items *list,
                        const struct ek_route_backend *common, struct ek_arena *arena,
                        struct ek_err *err)
{
    const struct backend_keys *keys = list->items;
    size_t n = c->n_backends;
    struct ek_route_backend *all = ek_arena_calloc(arena, n + list->n + 1, sizeof *all);
    if (!all)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    if (n)
        memcpy(all, c->backends, n * sizeof *all);
    for (size_t i = 0; i < list->n; i++) {
        int rc = check_backend(&keys[i], list->places[i], err);
        if (rc)
            return rc;
        all[n + i] = make_backend(&keys[i], common);
        rc = check_twins(all, n + i, n, list, err);
        if (rc)
            return rc;
    }
    c->backends = all;
    c->n_backends = n + list->n;
    return 0;
}

int ek_route_config_add(struct ek_route_config *c, const struct ek_route_lists *lists,
                        const struct ek_route_backend *common, struct ek_arena *arena,
                        struct ek_err *err)
{
    struct ek_route_config made = *c;
    int rc = add_listeners(&made, &lists->listeners, arena, err);
    if (!rc)
        rc = add_backends(&made, &lists->backends, common, arena, err);
    if (!rc)
        *c = made;
    return rc;
}
