/* pool_show.c - the pool's figures for people, metrics and tests; the explain ring. */
#include "route/pool_int.h"

#include <math.h>
#include <string.h>

static const char *const reason_names[] = {
#define X(name, word) word,
    EK_REASON_TABLE(X)
#undef X
};

const char *ek_reason_name(enum ek_reason r)
{
    return reason_names[r];
}

static double sessions_of(int32_t room)
{
    if (room == EK_ROOM_FULL)
        return 0;
    return room < EK_ROOM_KNOWN ? (double)room / EK_ROOM_UNIT : (double)NAN;
}

static void read_backend(const struct ek_pool *pool, int32_t i, int64_t now_us,
                         struct ek_backend_state *out)
{
    const struct ek_backend *b = pool->backends[i];
    int32_t room = ek_shared_i32_get(&pool->rows[i].room);
    bool is_in_force = b->has_report && now_us - b->report_us <= pool->o.expiry_us;
    int32_t limit = ek_shared_i32_get(&b->limit);
    double slow = pool->o.slow_start_us > 0 && b->up_us != 0
                      ? (double)(now_us - b->up_us) / (double)pool->o.slow_start_us
                      : 1;
    *out = (struct ek_backend_state){
        .weight = b->weight * b->said_weight,
        .cores = b->report.has & EK_LOAD_CORES ? b->report.cores : b->cores,
        .max_sessions = limit,
        .is_up = b->is_up && !b->said_down,
        .is_draining = b->is_drained || b->is_removed ||
                       b->said == EK_LOAD_SAYS_DRAIN || b->said == EK_LOAD_SAYS_MAINT,
        .is_ejected = b->is_ejected,
        .is_removed = b->is_removed,
        .has_report = is_in_force,
        .open_sessions = ek_shared_i32_get(&pool->rows[i].open),
        .placed_total = (uint64_t)ek_shared_i64_get(&b->n_total),
        .failures_total = b->n_failed,
        .reports_total = b->n_reports,
        .reports_refused = b->n_refused,
        .figures_refused = b->n_figures,
        .reports_frozen = b->n_frozen,
        .report_age_us = b->has_report ? now_us - b->report_us : -1,
        .report = b->report,
        .effective_capacity =
            is_in_force && b->capacity >= 0 ? b->capacity : (double)NAN,
        .pending = (double)ek_shared_i32_get(&b->pending) * pool->proxies,
        .room = room == EK_ROOM_NONE ? 0 : sessions_of(room),
        .slow_start = fmin(fmax(slow, EK_SLOW_START_LO), 1),
    };
    memcpy(out->name, b->name, sizeof out->name);
    memcpy(out->address, b->address, sizeof out->address);
}

bool ek_pool_read(struct ek_pool *pool, int32_t backend, int64_t now_us,
                  struct ek_backend_state *out)
{
    bool is_there = false;
    pthread_mutex_lock(&pool->lock);
    if (backend >= 0 && backend < ek_pool_end(pool) &&
        pool->backends[backend]->is_used) {
        read_backend(pool, backend, now_us, out);
        is_there = true;
    }
    pthread_mutex_unlock(&pool->lock);
    return is_there;
}

void ek_pool_read_totals(struct ek_pool *pool, int64_t now_us,
                         struct ek_pool_totals *out)
{
    pthread_mutex_lock(&pool->lock);
    ek_room_refresh(pool, now_us);
    *out = (struct ek_pool_totals){
        .n_up = pool->n_up,
        .n_fresh = pool->n_fresh,
        .n_usable = pool->n_usable,
        .open_sessions = ek_shared_i64_get(&pool->n_open),
        .placed_total = (uint64_t)ek_shared_i64_get(&pool->n_placed),
        .full_total = (uint64_t)ek_shared_i64_get(&pool->n_full),
        .down_total = (uint64_t)ek_shared_i64_get(&pool->n_down),
        .proxies = pool->proxies,
    };
    int32_t end = ek_pool_end(pool);
    for (int32_t i = 0; i < end; i++) {
        int32_t room = ek_shared_i32_get(&pool->rows[i].room);
        out->n_backends += pool->backends[i]->is_used;
        if (room > 0 && room < EK_ROOM_KNOWN)
            out->room += sessions_of(room);
    }
    pthread_mutex_unlock(&pool->lock);
}

/* All candidates when they are few; else the chosen one and those behind it. */
static void show_rows(const struct ek_pool *pool, struct ek_decision *d)
{
    int32_t end = ek_pool_end(pool), n = 0;
    int32_t first = end > EK_DECISION_SHOWN && d->backend >= 0 ? d->backend : 0;
    for (int32_t k = 0; k < end && n < EK_DECISION_SHOWN; k++) {
        int32_t i = first + k < end ? first + k : first + k - end;
        int32_t room = ek_shared_i32_get(&pool->rows[i].room);
        if (!ek_row_is_up(room))
            continue;
        d->rows[n++] = (struct ek_decision_row){
            i, ek_shared_i32_get(&pool->rows[i].open), (float)sessions_of(room)};
    }
    d->n_shown = n;
}

void ek_pool_note_decision(struct ek_pool *pool, const struct ek_pick *p,
                           const struct ek_choice *c, double room)
{
    if (pool->n_explained == 0)
        return;
    uint64_t number = (uint64_t)ek_shared_i64_add(&pool->n_decisions, 1) + 1;
    struct ek_explain_slot *s = &pool->explain[number % (uint64_t)pool->n_explained];
    if (!ek_shared_flag_take(&s->busy))
        return;
    s->d.number = number;
    s->d.session = p->session;
    s->d.now_us = p->now_us;
    s->d.reason = c->reason;
    s->d.backend = c->backend;
    s->d.room = room;
    s->d.n_candidates = ek_shared_i32_get(&pool->n_candidates);
    show_rows(pool, &s->d);
    ek_shared_flag_give(&s->busy);
}

size_t ek_pool_explain(struct ek_pool *pool, struct ek_decision *out, size_t max)
{
    uint64_t newest = (uint64_t)ek_shared_i64_get(&pool->n_decisions);
    uint64_t n_slots = (uint64_t)pool->n_explained;
    size_t n = 0;
    for (uint64_t k = 0; k < n_slots && k < newest && n < max; k++) {
        uint64_t number = newest - k;
        struct ek_explain_slot *s = &pool->explain[number % n_slots];
        if (!ek_shared_flag_take(&s->busy))
            continue;
        if (s->d.number == number)
            out[n++] = s->d;
        ek_shared_flag_give(&s->busy);
    }
    return n;
}
