#include "route/resolve.h"

#include "base/log.h"
#include "base/mem.h"
#include "route/names.h"
#include "route/run_int.h"

#include <stdio.h>
#include <string.h>

/* A name without an answer is asked for again so soon. */
static const int64_t missing_us = 2000000;

/* So long sessions wait for names at start, and answers that are there for one that is
 * not: the system's resolver gives a silent server up by then. */
static const int64_t first_us = 5000000, again_us = 20000000;

/* The names of a backend, by their place in those asked; -1: it needs no resolver. */
struct place {
    int32_t backend, address, agent;
};

enum state { IDLE, ASKED, DONE };

struct ek_resolver {
    struct ek_route *route;
    ek_resolve_fn ask; /* NULL: the system's */
    pthread_t thread;
    pthread_mutex_t lock; /* protects what follows */
    pthread_cond_t changed;
    enum state state;
    bool is_stopped;
    bool is_orphan; /* nobody joins the thread: it frees all of this */
    /* The thread's while ASKED, else the main thread's. */
    struct place *places;  /* (n) owned */
    struct ek_name *names; /* (n_names) owned, with their texts and lists */
    size_t n, n_names;
    int64_t due_us;  /* main thread's */
    bool is_hurried; /* likewise: names wait that nobody was asked for */
    bool is_missing; /* likewise: some name has no address, or had no answer */
};

/* Names ------------------------------------------------------------------------- */

static void drop_names(struct ek_resolver *s)
{
    for (size_t i = 0; i < s->n_names; i++) {
        ek_free((void *)(uintptr_t)s->names[i].text);
        ek_free(s->names[i].list);
    }
    ek_free(s->names);
    ek_free(s->places);
    s->names = NULL;
    s->places = NULL;
    s->n = s->n_names = 0;
}

static int add_name(int32_t *place, struct ek_resolver *s, const char *text)
{
    *place = -1;
    if (!text || !ek_address_is_name(text))
        return 0;
    char *own = ek_strndup(text, strlen(text));
    if (!own)
        return EK_ENOMEM;
    *place = (int32_t)s->n_names;
    s->names[s->n_names++].text = own;
    return 0;
}

static bool has_all(const struct ek_upstream *u)
{
    return u->n_addresses > 0 && (!u->config.agent || u->agent.n > 0);
}

/* The names of the backends in use; only_missing: of those without an address. */
static int gather(struct ek_resolver *s, bool only_missing)
{
    const struct ek_route *r = s->route;
    s->places = ek_calloc(r->router.n_upstreams + 1, sizeof *s->places);
    s->names = ek_calloc(2 * r->router.n_upstreams + 1, sizeof *s->names);
    int rc = s->places && s->names ? 0 : EK_ENOMEM;
    for (size_t i = 0; !rc && i < r->router.n_upstreams; i++) {
        const struct ek_upstream *u = r->backends[i].upstream;
        if (!u || r->backends[i].removed || (only_missing && has_all(u)))
            continue;
        struct place *p = &s->places[s->n];
        p->backend = (int32_t)i;
        rc = add_name(&p->address, s, u->config.spec.address);
        if (!rc)
            rc = add_name(&p->agent, s, u->config.agent);
        s->n += p->address >= 0 || p->agent >= 0;
    }
    if (rc)
        drop_names(s);
    return rc;
}

/* What cannot be asked for has an answer that says so. */
static void ask(struct ek_resolver *s, int64_t limit_us)
{
    int rc = ek_names_ask(s->names, s->n_names, s->ask, limit_us);
    for (size_t i = 0; rc && i < s->n_names; i++)
        snprintf(s->names[i].why, sizeof s->names[i].why, "%s", ek_status_text(rc));
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

static const struct ek_name *get_name(const struct ek_resolver *s, int32_t place)
{
    static const struct ek_name none = {0};
    return place < 0 ? &none : &s->names[place];
}

static void note_failure(struct ek_resolver *s, const struct place *place,
                         const char *why)
{
    struct ek_route_place *p = &s->route->backends[place->backend];
    ek_counter_add(&s->route->n_resolve_failures, 1);
    s->is_missing = true;
    if (p->n_unresolved++ == 0)
        ek_log(EK_LOG_WARN, "backend_unresolved", "backend=\"%s\" kept=%zu why=\"%s\"",
               p->upstream->config.spec.name, p->upstream->n_addresses, why);
}

static void take_answer(struct ek_resolver *s, const struct place *place)
{
    struct ek_route *r = s->route;
    struct ek_route_place *p = &r->backends[place->backend];
    const struct ek_upstream *u = p->upstream;
    const struct ek_name *a = get_name(s, place->address);
    const struct ek_name *g = get_name(s, place->agent);
    /* It was set anew, or removed, while the thread asked. */
    if (!u || p->removed || !is_text(a->text, u->config.spec.address) ||
        !is_text(g->text, u->config.agent))
        return;
    if (a->why[0] || g->why[0])
        note_failure(s, place, a->why[0] ? a->why : g->why);
    else
        p->n_unresolved = 0;
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
        take_answer(s, &s->places[i]);
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
        pthread_mutex_unlock(&s->lock);
        ask(s, again_us);
        pthread_mutex_lock(&s->lock);
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
    s->ask = r->config->resolve;
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
    ask(s, first_us);
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
