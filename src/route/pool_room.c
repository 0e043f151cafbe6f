/* pool_room.c - how much room a backend has, and how far the pool's reports are
 * trusted.
 *
 *   room = min(base - pending * step, (limit - open) * 256)     1/256 session
 *   base = (capacity - n - phi * young) * slow start     a report is in force; of young
 *                                                        ones what room_left() says
 *          mean capacity a weight * weight * slow start  none is: then pending is open
 *          EK_ROOM_UNKNOWN                               nobody's is
 *
 * Room says whether a session may come; where it goes is said by headroom in
 * deviations:
 *   rank     = (headroom - pending) / sqrt(n + 1)
 *   headroom = (cores - demand) / cost - phi * young         sessions of the mean cost
 *   demand   = seen * cost + 0.7 (CPU - seen * cost) + 0.3 excess
 *   seen     = n - phi * young
 *   excess   = mean of CPU - seen * cost over six windows; less if sessions left
 * Sessions switch on and off, so the demand of n of them deviates by sqrt(n): the same
 * rank is the same chance to be overloaded, on a small backend or a large one. And of
 * what a backend's CPU differs from the mean of its sessions a part is only who happens
 * to speak: that is soon over. What lasts longer are sessions that cost more. */
#include "route/pool_int.h"

#include <math.h>

/* Found by `keel simulate`: nearly flat around these. */
#define CPU_TRUST      0.7
#define EXCESS_TRUST   0.3
#define EXCESS_WINDOWS 6
#define PRIOR_COST     0.1 /* cores of a session before one was seen, if no report tells */
#define PRIOR_SESSIONS 10 /* that it counts as */
#define LEAST_COST     1e-6

static int32_t room_of(const struct ek_pool *pool, int32_t i)
{
    const struct ek_backend *b = pool->backends[i];
    int64_t base = ek_shared_i32_get(&b->base);
    int64_t pending = ek_shared_i32_get(&b->pending);
    int64_t limit = ek_shared_i32_get(&b->limit);
    int64_t left = limit - ek_shared_i32_get(&pool->rows[i].open);
    int64_t room = base - (pending > 0 ? pending : 0) * ek_shared_i32_get(&pool->step);
    if (limit > 0) {
        if (left <= 0)
            return EK_ROOM_FULL;
        if (room > left * EK_ROOM_UNIT)
            room = left * EK_ROOM_UNIT;
    }
    return (int32_t)(room > EK_ROOM_MIN ? room : EK_ROOM_MIN);
}

/* A rank may be that of a moment ago; whoever reserves looks at the room. */
static void update_rank(struct ek_pool *pool, int32_t i)
{
    const struct ek_pool_row *row = &pool->rows[i];
    int32_t room = ek_shared_i32_get(&row->room);
    float rank =
        (float)room * ek_shared_f32_get(&row->slope) + ek_shared_f32_get(&row->offset);
    ek_shared_f32_set(&pool->ranks[i], ek_row_admits(pool, room) ? rank : -HUGE_VALF);
}

void ek_room_update(struct ek_pool *pool, int32_t i)
{
    struct ek_shared_i32 *room = &pool->rows[i].room;
    int32_t was = ek_shared_i32_get(room);
    while (was != EK_ROOM_NONE && !ek_shared_i32_swap(room, &was, room_of(pool, i)))
        ;
    update_rank(pool, i);
}

void ek_room_close(struct ek_pool *pool, int32_t i)
{
    ek_shared_i32_set(&pool->rows[i].room, EK_ROOM_NONE);
    update_rank(pool, i);
}

double ek_room_count(const struct ek_backend *b, int64_t from_us, int64_t to_us)
{
    uint32_t n = (uint32_t)ek_shared_i32_get(&b->n_placed);
    int64_t total = ek_shared_i64_get(&b->n_total);
    uint32_t kept = total < EK_RECENT ? (uint32_t)total : EK_RECENT;
    double count = 0;
    int64_t oldest = INT64_MAX;
    for (uint32_t k = 1; k <= kept; k++) {
        int64_t t = ek_shared_i64_get(&b->recent[(n - k) % EK_RECENT]);
        if (t == EK_RECENT_ENDED)
            continue;
        if (t <= from_us)
            return count;
        oldest = t;
        count += t <= to_us;
    }
    /* More than are kept: they came as fast before. */
    if (kept == EK_RECENT && count > 0 && oldest > from_us && to_us > oldest)
        count *= (double)(to_us - from_us) / (double)(to_us - oldest);
    return count;
}

static bool is_candidate(const struct ek_backend *b)
{
    return b->is_used && !b->is_removed && b->is_up && !b->is_drained &&
           !b->is_ejected && !b->said_down && b->said != EK_LOAD_SAYS_DRAIN &&
           b->said != EK_LOAD_SAYS_MAINT && b->said_weight > 0;
}

static bool is_in_force(const struct ek_pool *pool, const struct ek_backend *b,
                        int64_t now_us)
{
    return b->has_report && now_us - b->report_us <= pool->o.expiry_us;
}

static double slow_start(const struct ek_pool *pool, const struct ek_backend *b,
                         int64_t now_us)
{
    if (pool->o.slow_start_us <= 0 || b->up_us == 0)
        return 1;
    double share = (double)(now_us - b->up_us) / (double)pool->o.slow_start_us;
    return fmin(fmax(share, EK_SLOW_START_LO), 1);
}

static int32_t to_room(double sessions)
{
    double v = floor(sessions * EK_ROOM_UNIT);
    return (int32_t)fmin(fmax(v, EK_ROOM_MIN), EK_ROOM_KNOWN - 1.0);
}

/* Sessions young at the sample, whose CPU the report has not seen. */
static double unseen(const struct ek_pool *pool, const struct ek_backend *b)
{
    const struct ek_load_report *r = &b->report;
    double phi = r->has & EK_LOAD_YOUNG_WEIGHT ? r->young_weight : pool->o.young_weight;
    double young =
        r->has & EK_LOAD_YOUNG
            ? r->young_sessions
            : pool->proxies *
                  ek_room_count(b, b->report_us - pool->o.window_us, b->report_us);
    return phi * young;
}

/* Takes the report into what the backend's sessions cost beyond the mean, once. */
static void learn_excess(const struct ek_pool *pool, struct ek_backend *b, double seen)
{
    const struct ek_load_report *r = &b->report;
    if (!(r->has & EK_LOAD_CPU) || b->report_us == b->excess_us)
        return;
    double window =
        r->has & EK_LOAD_WINDOW ? r->window_s * 1e6 : (double)pool->o.window_us;
    double keep = 1;
    if (b->excess_us != 0)
        keep = exp(-(double)(b->report_us - b->excess_us) /
                   fmax(EXCESS_WINDOWS * window, 1));
    double excess = r->cpu_utilization * ek_backend_cores(b) - seen * pool->fleet_cost;
    b->excess = keep * b->excess + (1 - keep) * excess;
    b->excess_n = keep * b->excess_n + (1 - keep) * b->sessions;
    b->excess_us = b->report_us;
}

/* The part of those that left went with them, who came since is of the mean. */
static double excess_now(const struct ek_backend *b)
{
    return b->sessions < b->excess_n ? b->excess * b->sessions / b->excess_n
                                     : b->excess;
}

/* Sessions of the mean cost that fit before all cores are busy; without a report of CPU
 * the room with its safety factor taken back. */
static double headroom(const struct ek_pool *pool, const struct ek_backend *b,
                       double young)
{
    const struct ek_load_report *r = &b->report;
    double cost = pool->fleet_cost, n = b->sessions;
    if (r->has & EK_LOAD_CPU) {
        double cores = ek_backend_cores(b);
        double mean = fmax(n - young, 0) * cost;
        double demand = mean + CPU_TRUST * (r->cpu_utilization * cores - mean) +
                        EXCESS_TRUST * excess_now(b);
        return (cores - demand) / cost - young;
    }
    double factor = r->has & EK_LOAD_FACTOR ? r->safety_factor : pool->o.safety_factor;
    return (b->capacity - n) * factor - young;
}

/* head: sessions that fit, without what is pending; n: those there. */
static void set_rank(struct ek_pool_row *row, double head, int32_t base, double n)
{
    double deviation = sqrt(fmax(n, 0) + 1);
    ek_shared_f32_set(&row->slope, (float)(1 / (deviation * EK_ROOM_UNIT)));
    ek_shared_f32_set(&row->offset,
                      (float)((head - (double)base / EK_ROOM_UNIT) / deviation));
}

/* The CPU that young sessions will use is taken off where the CPU bounds the capacity.
 * Where something else does, all of whose use is counted already, they may first have
 * what CPU that leaves over. */
static double room_left(const struct ek_pool *pool, const struct ek_backend *b,
                        double young, double head)
{
    const struct ek_load_report *r = &b->report;
    double left = b->capacity - b->sessions;
    if (!r->binds_elsewhere)
        return left - young;
    if (!(r->has & EK_LOAD_CPU))
        return left;
    double factor = r->has & EK_LOAD_FACTOR ? r->safety_factor : pool->o.safety_factor;
    return fmin(left, fmax(head / factor, left - young));
}

static void set_base_from_report(const struct ek_pool *pool, int32_t i, double slow)
{
    struct ek_backend *b = pool->backends[i];
    double young = unseen(pool, b);
    learn_excess(pool, b, fmax(b->sessions - young, 0));
    double head = headroom(pool, b, young);
    double room = room_left(pool, b, young, head);
    /* A share of all it can carry, and not of what is left of that. */
    int32_t base = to_room(room - (1 - slow) * b->capacity);
    ek_shared_i32_set(&b->base, base);
    set_rank(&pool->rows[i], head - (1 - slow) * (head + b->sessions), base,
             b->sessions);
}

static void set_base_from_others(const struct ek_pool *pool, int32_t i, double slow)
{
    struct ek_backend *b = pool->backends[i];
    int32_t open = ek_shared_i32_get(&pool->rows[i].open), base = EK_ROOM_UNKNOWN;
    double room = pool->weight_capacity * b->weight * b->said_weight * slow;
    if (pool->weight_capacity >= 0)
        base = to_room(room);
    ek_shared_i64_set(&b->sampled_us, INT64_MIN);
    ek_shared_i32_set(&b->pending, open);
    ek_shared_i32_set(&b->base, base);
    set_rank(&pool->rows[i], room * pool->o.safety_factor, base, open * pool->proxies);
}

/* base and rank; without a report all that is open is pending. */
static void set_base(struct ek_pool *pool, int32_t i, int64_t now_us)
{
    struct ek_backend *b = pool->backends[i];
    double slow = slow_start(pool, b, now_us);
    if (is_in_force(pool, b, now_us) && b->capacity >= 0)
        set_base_from_report(pool, i, slow);
    else
        set_base_from_others(pool, i, slow);
}

static void set_weight(struct ek_pool *pool, int32_t i, int64_t now_us)
{
    struct ek_backend *b = pool->backends[i];
    struct ek_pool_side *side = &pool->sides[i];
    double weight = b->weight * slow_start(pool, b, now_us);
    weight *= b->said_weight > 0 ? b->said_weight : 1;
    double was = 1 / (double)ek_side_inv_weight(pool, i);
    ek_shared_f32_set(&side->inv_weight, (float)(1 / weight));
    /* What it has in the round does not jump when its weight changes. */
    double now = 1 / (double)ek_side_inv_weight(pool, i);
    if (was != now)
        ek_shared_f64_set(&side->taken,
                          ek_shared_f64_get(&side->taken) +
                              (now - was) * ek_shared_f64_get(&pool->turn_now));
    double load = 0;
    if (is_in_force(pool, b, now_us)) {
        if (b->report.has & EK_LOAD_CPU)
            load = b->report.cpu_utilization;
        else if (b->report.has & EK_LOAD_APPLICATION)
            load = b->report.application_utilization;
    }
    ek_shared_f32_set(&side->chance, (float)(weight * fmax(1 - load, 0)));
}

void ek_room_decide(struct ek_pool *pool, int32_t i, int64_t now_us)
{
    struct ek_backend *b = pool->backends[i];
    struct ek_pool_row *row = &pool->rows[i];
    if (b->is_ejected && now_us >= b->ejected_until_us) {
        b->is_ejected = false;
        b->up_us = now_us;
    }
    bool is_new = ek_shared_i32_get(&row->room) == EK_ROOM_NONE;
    if (!is_candidate(b)) {
        ek_room_close(pool, i);
        return;
    }
    int32_t limit = b->max_sessions;
    if (b->said_limit >= 0 && (limit == 0 || b->said_limit < limit))
        limit = b->said_limit > 0 ? b->said_limit : 1;
    ek_shared_i32_set(&b->limit, limit);
    set_weight(pool, i, now_us);
    set_base(pool, i, now_us);
    if (is_new) { /* starts at the present round, with nothing to catch up */
        double weight = 1 / (double)ek_side_inv_weight(pool, i);
        ek_shared_f64_set(&pool->sides[i].taken,
                          weight * ek_shared_f64_get(&pool->turn_now));
        ek_shared_i32_publish(&row->room, room_of(pool, i));
        update_rank(pool, i);
    } else {
        ek_room_update(pool, i);
    }
}

struct sums {
    double capacity, capacity_weight; /* of fresh reports */
    double all, own;                  /* sessions, by fresh reports that count them */
    double weight, least, most;
    double cpu, cpu_sessions; /* cores in use and sessions, by reports of CPU */
    double per_core, n_cost;  /* sessions a core, by reports that say what one costs */
    int32_t n_up, n_fresh, n_usable;
};

static void add_up(struct sums *s, const struct ek_pool *pool,
                   const struct ek_backend *b, int64_t now_us)
{
    double weight = b->weight * b->said_weight;
    s->n_up++;
    s->weight += weight;
    s->least = fmin(s->least, weight);
    s->most = fmax(s->most, weight);
    if (!is_in_force(pool, b, now_us) || b->capacity < 0)
        return;
    s->n_usable++;
    s->capacity += b->capacity;
    s->capacity_weight += weight;
    if (now_us - b->report_us > 2 * pool->o.interval_us)
        return;
    s->n_fresh++;
    if (b->report.has & EK_LOAD_CPU) {
        s->cpu += b->report.cpu_utilization * ek_backend_cores(b);
        s->cpu_sessions += b->sessions;
    }
    if ((b->report.has & EK_LOAD_COST) && b->report.session_cost > 0) {
        s->per_core += 1 / fmax(b->report.session_cost, LEAST_COST);
        s->n_cost++;
    }
    if (b->report.has & EK_LOAD_ACTIVE) {
        s->all += b->sessions;
        s->own += b->own_sessions;
    }
}

static void set_shares(struct ek_pool *pool, const struct sums *s)
{
    pool->n_up = s->n_up;
    ek_shared_i32_set(&pool->n_candidates, s->n_up);
    pool->n_fresh = s->n_fresh;
    pool->n_usable = s->n_usable;
    pool->weight_capacity =
        s->capacity_weight > 0 ? s->capacity / s->capacity_weight : -1;
    /* A session on its way is counted on one side only: a few per cent are no proxy. */
    double proxies = s->own >= 5 ? s->all / s->own : 1;
    pool->proxies = proxies < 1.15 ? 1 : fmin(proxies, EK_PROXIES_MAX);
    ek_shared_i32_set(&pool->step, (int32_t)(pool->proxies * EK_ROOM_UNIT));
    ek_shared_i32_set(&pool->trust,
                      2 * s->n_fresh >= s->n_up && s->n_fresh > 0     ? EK_TRUST_FRESH
                      : 2 * s->n_usable >= s->n_up && s->n_usable > 0 ? EK_TRUST_OLD
                                                                      : EK_TRUST_NONE);
    /* What backends say holds their application's own prior. The harmonic mean: one
     * that says too much changes little. */
    double prior = s->n_cost > 0 ? s->n_cost / s->per_core : PRIOR_COST;
    pool->fleet_cost =
        (s->cpu + PRIOR_SESSIONS * prior) / (s->cpu_sessions + PRIOR_SESSIONS);
    ek_shared_f64_set(&pool->weight_sum, s->weight);
    ek_shared_i32_set(&pool->is_weighted, s->n_up > 0 && s->most > s->least);
}

void ek_room_refresh(struct ek_pool *pool, int64_t now_us)
{
    struct sums s = {.least = HUGE_VAL};
    int32_t end = ek_pool_end(pool);
    ek_shared_i32_set(&pool->must_refresh, 0);
    ek_shared_i64_set(&pool->refresh_us, now_us + EK_REFRESH_US);
    for (int32_t i = 0; i < end; i++) {
        if (is_candidate(pool->backends[i]))
            add_up(&s, pool, pool->backends[i], now_us);
    }
    set_shares(pool, &s);
    for (int32_t i = 0; i < end; i++)
        ek_room_decide(pool, i, now_us);
}
