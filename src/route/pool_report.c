/* pool_report.c - reports, judged: what cannot be is dropped or capped and counted, and
 * a capacity comes out, the backend's own or one computed here. */
#include "route/pool_int.h"
#include "session/capacity.h"

#include <math.h>

#define SAME_MAX     3     /* reports alike, while sessions move, that are frozen */
#define SAME_MOVES   2     /* sessions that came or went */
#define PRIOR_WEIGHT 10    /* sessions that the fleet's cost counts as */
#define MARGIN_US    20000 /* placed so shortly before a sample: not counted there yet */

/* Each figure's bit, place and ceiling. */
static const struct figure {
    uint32_t bit;
    size_t offset;
    double most;
    bool is_signed;
} figures[] = {
#define AT(member) offsetof(struct ek_load_report, member)
    {EK_LOAD_CPU, AT(cpu_utilization), 100, false},
    {EK_LOAD_APPLICATION, AT(application_utilization), 100, false},
    {EK_LOAD_MEMORY, AT(mem_utilization), 100, false},
    {EK_LOAD_RPS, AT(rps), 1e12, false},
    {EK_LOAD_EPS, AT(eps), 1e12, false},
    {EK_LOAD_ACTIVE, AT(active_sessions), EK_CAPACITY_MAX, false},
    {EK_LOAD_YOUNG, AT(young_sessions), EK_CAPACITY_MAX, false},
    {EK_LOAD_YOUNG_WEIGHT, AT(young_weight), 1, false},
    {EK_LOAD_WINDOW, AT(window_s), 86400, false},
    {EK_LOAD_COST, AT(session_cost), 1e4, false},
    {EK_LOAD_CAPACITY, AT(effective_capacity), EK_CAPACITY_MAX, false},
    {EK_LOAD_REMAINING, AT(remaining_sessions), EK_CAPACITY_MAX, true},
    {EK_LOAD_FACTOR, AT(safety_factor), 100, false},
    {EK_LOAD_VARIATION, AT(variation), 100, false},
    {EK_LOAD_CORES, AT(cores), 1e5, false},
    {EK_LOAD_WEIGHT, AT(weight), 256, false},
    {EK_LOAD_LIMIT, AT(limit), EK_CAPACITY_MAX, false},
#undef AT
};

static uint64_t clean(struct ek_load_report *r)
{
    uint64_t n_bad = 0;
    for (size_t k = 0; k < sizeof figures / sizeof figures[0]; k++) {
        const struct figure *f = &figures[k];
        double *v = (double *)(void *)((char *)r + f->offset);
        if (!(r->has & f->bit)) {
            *v = 0;
        } else if (!isfinite(*v) || (*v < 0 && !f->is_signed)) {
            r->has &= ~f->bit;
            *v = 0;
            n_bad++;
        } else if (fabs(*v) > f->most) {
            *v = *v < 0 ? -f->most : f->most;
            n_bad++;
        }
    }
    if (r->young_sessions > r->active_sessions && r->has & EK_LOAD_ACTIVE)
        r->young_sessions = r->active_sessions;
    if (r->cores <= 0)
        r->has &= ~(uint32_t)EK_LOAD_CORES;
    if (r->age_us < 0)
        r->age_us = 0;
    return n_bad;
}

/* By the formula of session/capacity, from CPU alone. */
static double from_cpu(const struct ek_pool *pool, const struct ek_backend *b, double n)
{
    double cores = ek_backend_cores(b);
    struct ek_capacity_resource cpu = {
        .used = b->report.cpu_utilization * cores,
        .total = cores,
        .target = pool->o.target,
        .sessions = n,
        .prior_cost = pool->fleet_cost,
        .prior_weight = PRIOR_WEIGHT,
        .factor = pool->o.safety_factor,
    };
    double capacity = ek_capacity_of(&cpu, n).capacity;
    return isfinite(capacity) ? fmin(fmax(capacity, 0), EK_CAPACITY_MAX) : -1;
}

/* sessions, capacity (-1: the report does not tell). */
static void weigh(const struct ek_pool *pool, struct ek_backend *b, double n_ours)
{
    const struct ek_load_report *r = &b->report;
    double n = r->has & EK_LOAD_ACTIVE ? r->active_sessions : n_ours * pool->proxies;
    if (r->has & EK_LOAD_CAPACITY && r->has & EK_LOAD_REMAINING &&
        !(r->has & EK_LOAD_ACTIVE))
        n = fmax(r->effective_capacity - r->remaining_sessions, 0);
    b->sessions = n;
    if (r->has & EK_LOAD_CAPACITY)
        b->capacity = r->effective_capacity;
    else if (r->has & EK_LOAD_REMAINING)
        b->capacity = fmax(n + r->remaining_sessions, 0);
    else if (r->has & EK_LOAD_CPU)
        b->capacity = from_cpu(pool, b, n);
    else if (r->has & EK_LOAD_APPLICATION && r->application_utilization > 0 && n > 0)
        b->capacity = fmin(n / r->application_utilization, EK_CAPACITY_MAX);
    else
        b->capacity = -1;
}

static void obey(struct ek_backend *b, const struct ek_load_report *r, int64_t now_us)
{
    if (r->state == EK_LOAD_SAYS_READY)
        b->said = EK_LOAD_SAYS_NOTHING;
    else if (r->state != EK_LOAD_SAYS_NOTHING)
        b->said = r->state;
    if (r->health != EK_LOAD_HEALTH_UNSAID) {
        bool is_down = r->health == EK_LOAD_IS_DOWN;
        if (b->said_down && !is_down)
            b->up_us = now_us;
        b->said_down = is_down;
    }
    if (r->has & EK_LOAD_WEIGHT)
        b->said_weight = r->is_whole_weight ? r->weight / b->weight : r->weight;
    if (r->has & EK_LOAD_LIMIT)
        b->said_limit = (int32_t)r->limit;
}

/* The same figures again, although sessions came or went here: they tell of the moment
 * of the first of them. */
static bool is_frozen(struct ek_backend *b, const struct ek_load_report *r,
                      int32_t open)
{
    const struct ek_load_report *old = &b->report;
    bool is_same = b->has_report && r->has == old->has &&
                   r->active_sessions == old->active_sessions &&
                   r->cpu_utilization == old->cpu_utilization &&
                   r->effective_capacity == old->effective_capacity &&
                   r->remaining_sessions == old->remaining_sessions;
    if (!is_same || !(r->has & EK_LOAD_ACTIVE)) {
        b->n_same = 0;
        b->open_when_same = open;
        return false;
    }
    int32_t moved = open - b->open_when_same;
    return ++b->n_same >= SAME_MAX - 1 && (moved >= SAME_MOVES || moved <= -SAME_MOVES);
}

/* With the lock held. */
static void take(struct ek_pool *pool, int32_t i, const struct ek_load_report *r,
                 int64_t now_us)
{
    struct ek_backend *b = pool->backends[i];
    int32_t open = ek_shared_i32_get(&pool->rows[i].open);
    int64_t sampled_us = now_us - r->age_us;
    bool was_usable = b->has_report && b->capacity >= 0 &&
                      now_us - b->report_us <= pool->o.interval_us * 2;
    if (is_frozen(b, r, open)) {
        b->n_frozen++;
        return;
    }
    if (b->has_report && sampled_us < b->report_us)
        return; /* overtaken by a later one */
    b->report = *r;
    b->report_us = sampled_us;
    b->has_report = true;
    double pending = ek_room_count(b, sampled_us - MARGIN_US, INT64_MAX);
    b->own_sessions = fmax(open - pending, 0);
    weigh(pool, b, b->own_sessions);
    ek_shared_i64_set(&b->sampled_us, sampled_us - MARGIN_US);
    ek_shared_i32_set(&b->pending, (int32_t)pending);
    if (!was_usable)
        ek_shared_i32_set(&pool->must_refresh, 1);
}

#define FIGURES_OF_LOAD                                                                \
    (EK_LOAD_CPU | EK_LOAD_APPLICATION | EK_LOAD_CAPACITY | EK_LOAD_REMAINING)

int ek_pool_report(struct ek_pool *pool, int32_t backend,
                   const struct ek_load_report *report, int64_t now_us)
{
    struct ek_load_report r = *report;
    uint64_t n_bad = clean(&r);
    bool tells_load = r.has & FIGURES_OF_LOAD;
    bool tells_else = r.state != EK_LOAD_SAYS_NOTHING ||
                      r.health != EK_LOAD_HEALTH_UNSAID ||
                      r.has & (EK_LOAD_WEIGHT | EK_LOAD_LIMIT);
    pthread_mutex_lock(&pool->lock);
    struct ek_backend *b = pool->backends[backend];
    b->n_figures += n_bad;
    if (tells_load || tells_else) {
        b->n_reports++;
        obey(b, &r, now_us);
        if (tells_load)
            take(pool, backend, &r, now_us);
        ek_room_decide(pool, backend, now_us);
        if (tells_else)
            ek_shared_i32_set(&pool->must_refresh, 1);
    } else {
        b->n_refused++;
    }
    pthread_mutex_unlock(&pool->lock);
    return tells_load || tells_else ? 0 : EK_EINVAL;
}

void ek_pool_refuse_report(struct ek_pool *pool, int32_t backend)
{
    pthread_mutex_lock(&pool->lock);
    pool->backends[backend]->n_refused++;
    pthread_mutex_unlock(&pool->lock);
}
