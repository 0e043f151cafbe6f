#include "route/resolve.h"

#include "base/log.h"
#include "base/mem.h"
#include "route/run_int.h"

#include <stdio.h>
#include <string.h>

enum { WHY_BYTES = 256 };

/* A name without an answer is asked for again so soon. */
static const int64_t missing_us = 2000000;

struct answer {
    struct ek_address *list; /* (n) owned */
    size_t n;
    int rc;
};

struct name {
    int32_t backend;
    char *address, *agent; /* as set, owned; NULL: needs no resolver */
    struct answer to_address, to_agent;
    char why[WHY_BYTES]; /* of the first failure; "": none */
};

enum state { IDLE, ASKED, DONE };

struct ek_resolver {
    struct ek_route *route;
    ek_resolve_fn ask;
    pthread_t thread;
    pthread_mutex_t lock; /* protects what follows */
    pthread_cond_t changed;
    enum state state;
    bool is_stopped;
    bool is_orphan; /* nobody joins the thread: it frees all of this */
    /* The thread's while ASKED, else the main thread's. */
    struct name *names; /* (n) owned */
    size_t n;
    int64_t due_us;  /* main thread's */
    bool is_hurried; /* likewise: names wait that nobody was asked for */
    bool is_missing; /* likewise: some name has no address, or had no answer */
};

/* Names ------------------------------------------------------------------------- */

static void drop_names(struct ek_resolver *s)
{
    for (size_t i = 0; i < s->n; i++) {
        struct name *name = &s->names[i];
        ek_free(name->address);
        ek_free(name->agent);
        ek_free(name->to_address.list);
        ek_free(name->to_agent.list);
    }
    ek_free(s->names);
    s->names = NULL;
    s->n = 0;
}

static int copy_name(char **out, const char *text)
{
    if (!text || !ek_address_is_name(text))
        return 0;
    *out = ek_strndup(text, strlen(text));
    return *out ? 0 : EK_ENOMEM;
}

static bool has_all(const struct ek_upstream *u)
{
    return u->n_addresses > 0 && (!u->config.agent || u->agent.n > 0);
}

/* The names of the backends in use; only_missing: of those without an address. */
static int gather(struct ek_resolver *s, bool only_missing)
{
    const struct ek_route *r = s->route;
    s->names = ek_calloc(r->router.n_upstreams + 1, sizeof *s->names);
    if (!s->names)
        return EK_ENOMEM;
    for (size_t i = 0; i < r->router.n_upstreams; i++) {
        const struct ek_upstream *u = r->backends[i].upstream;
        if (!u || r->backends[i].removed || (only_missing && has_all(u)))
            continue;
        struct name *name = &s->names[s->n++];
        name->backend = (int32_t)i;
        int rc = copy_name(&name->address, u->config.spec.address);
        if (!rc)
            rc = copy_name(&name->agent, u->config.agent);
        if (rc) {
            drop_names(s);
            return rc;
        }
        if (!name->address && !name->agent)
            s->n--;
    }
    return 0;
}

static void ask_one(struct ek_resolver *s, struct name *name, const char *text,
                    struct answer *a)
{
    struct ek_err err = EK_ERR_INIT;
    if (!text)
        return;
    a->rc = s->ask(&a->list, &a->n, text, false, &err);
    if (a->rc && !name->why[0])
        snprintf(name->why, sizeof name->why, "%.*s", WHY_BYTES - 1, err.text);
}

static void ask(struct ek_resolver *s, struct name *name)
{
    ask_one(s, name, name->address, &name->to_address);
    ask_one(s, name, name->agent, &name->to_agent);
}

/* Answers ----------------------------------------------------------------------- */

static bool has(const struct ek_address *list, size_t n, const struct ek_address *a)
{
    for (size_t i = 0; i < n; i++) {
        if (ek_address_equal(&list[i], a))
            return true;
    }
    return false;
}

/* The same addresses in whatever order: resolvers turn them. */
static bool is_same(const struct ek_address *a, size_t n_a, const struct ek_address *b,
                    size_t n_b)
{
    for (size_t i = 0; i < n_a; i++) {
        if (!has(b, n_b, &a[i]))
            return false;
    }
    return n_a == n_b;
}

static bool is_text(const char *name, const char *set)
{
    return !name || (set && strcmp(name, set) == 0);
}

static void note_failure(struct ek_resolver *s, const struct name *name)
{
    struct ek_route_place *p = &s->route->backends[name->backend];
    ek_counter_add(&s->route->n_resolve_failures, 1);
    s->is_missing = true;
    if (p->n_unresolved++ == 0)
        ek_log(EK_LOG_WARN, "backend_unresolved", "backend=\"%s\" kept=%zu why=\"%s\"",
               p->upstream->config.spec.name, p->upstream->n_addresses, name->why);
}

static void take_answer(struct ek_resolver *s, const struct name *name)
{
    struct ek_route *r = s->route;
    struct ek_route_place *p = &r->backends[name->backend];
    const struct ek_upstream *u = p->upstream;
    /* It was set anew, or removed, while the thread asked. */
    if (!u || p->removed || !is_text(name->address, u->config.spec.address) ||
        !is_text(name->agent, u->config.agent))
        return;
    if (name->why[0])
        note_failure(s, name);
    else
        p->n_unresolved = 0;
    const struct answer *a = &name->to_address, *g = &name->to_agent;
    bool moves = a->n > 0 && !is_same(u->addresses, u->n_addresses, a->list, a->n);
    bool moves_agent = g->n > 0 && !has(g->list, g->n, &u->agent);
    if (!moves && !moves_agent)
        return;
    struct ek_upstream *v;
    if (ek_upstream_moved(&v, u, moves ? a->list : u->addresses,
                          moves ? a->n : u->n_addresses,
                          moves_agent ? g->list : &u->agent,
                          moves ? r->next_connection_id++ : u->connection_id)) {
        s->is_missing = true;
        return;
    }
    ek_counter_add(&r->n_address_changes, moves && u->n_addresses > 0);
    ek_log(EK_LOG_INFO, "backend_resolved", "backend=\"%s\" addresses=%zu",
           u->config.spec.name, v->n_addresses);
    ek_backends_change(r, v);
}

static void take_answers(struct ek_resolver *s)
{
    const int64_t interval_us = s->route->config->resolve_interval_us;
    int64_t next_us = interval_us > 0 ? interval_us : INT64_MAX / 2;
    s->is_missing = false;
    for (size_t i = 0; i < s->n; i++)
        take_answer(s, &s->names[i]);
    drop_names(s);
    if (s->is_missing && next_us > missing_us)
        next_us = missing_us;
    s->due_us = ek_loop_now_us(s->route->loop) + next_us;
}

/* The thread -------------------------------------------------------------------- */

static void destroy(struct ek_resolver *s)
{
    drop_names(s);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    ek_free(s);
}

static void *resolve(void *arg)
{
    struct ek_resolver *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->is_stopped) {
        if (s->state != ASKED) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        for (size_t i = 0; i < s->n && !s->is_stopped; i++) {
            pthread_mutex_unlock(&s->lock);
            ask(s, &s->names[i]);
            pthread_mutex_lock(&s->lock);
        }
        s->state = DONE;
    }
    bool is_orphan = s->is_orphan;
    pthread_mutex_unlock(&s->lock);
    if (is_orphan)
        destroy(s);
    return NULL;
}

int ek_resolver_new(struct ek_resolver **out, struct ek_route *r)
{
    struct ek_resolver *s = ek_calloc(1, sizeof *s);
    if (!s)
        return EK_ENOMEM;
    s->route = r;
    s->ask = r->config->resolve ? r->config->resolve : ek_address_resolve_all;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (pthread_create(&s->thread, NULL, resolve, s)) {
        destroy(s);
        return EK_EIO;
    }
    *out = s;
    return 0;
}

void ek_resolver_free(struct ek_resolver *s)
{
    if (!s)
        return;
    pthread_t thread = s->thread;
    pthread_mutex_lock(&s->lock);
    bool is_busy = s->state == ASKED;
    s->is_stopped = true;
    s->is_orphan = is_busy;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (is_busy) {
        pthread_detach(thread);
        return;
    }
    pthread_join(thread, NULL);
    destroy(s);
}

/* The main thread --------------------------------------------------------------- */

int ek_resolver_ask_now(struct ek_resolver *s)
{
    int rc = gather(s, false);
    if (rc)
        return rc;
    for (size_t i = 0; i < s->n; i++)
        ask(s, &s->names[i]);
    take_answers(s);
    return 0;
}

void ek_resolver_hurry(struct ek_resolver *s)
{
    if (!s)
        return;
    s->is_hurried = true;
    ek_route_tick_soon(s->route);
}

bool ek_resolver_work(struct ek_resolver *s)
{
    const struct ek_route *r = s->route;
    pthread_mutex_lock(&s->lock);
    enum state state = s->state;
    pthread_mutex_unlock(&s->lock);
    if (state == ASKED)
        return true;
    if (state == DONE)
        take_answers(s);
    bool is_due = s->is_hurried || ek_loop_now_us(r->loop) >= s->due_us;
    s->is_hurried = false;
    if (!is_due && state == IDLE)
        return false;
    if (is_due && gather(s, r->config->resolve_interval_us <= 0)) {
        s->due_us = ek_loop_now_us(r->loop) + missing_us;
        is_due = false;
    }
    pthread_mutex_lock(&s->lock);
    s->state = is_due ? ASKED : IDLE;
    if (is_due)
        pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return is_due;
}
