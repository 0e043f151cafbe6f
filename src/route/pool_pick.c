/* pool_pick.c - a decision: the policy's choice, its reservation, and its end. */
#include "route/pool_int.h"

#include <assert.h>
#include <math.h>

#define RACES_MAX 16 /* choices lost to other threads before a pick calls it full */
#define DRAWS_MAX 16

static struct ek_choice (*const policies[])(struct ek_pool *,
                                            const struct ek_pick *) = {
    [EK_POLICY_EFFECTIVE_CAPACITY] = ek_policy_effective_capacity,
    [EK_POLICY_LEAST_SESSIONS] = ek_policy_least_sessions,
    [EK_POLICY_TWO_CHOICES] = ek_policy_two_choices,
    [EK_POLICY_WEIGHTED_RANDOM] = ek_policy_weighted_random,
    [EK_POLICY_ROUND_ROBIN] = ek_policy_round_robin,
    [EK_POLICY_HASH] = ek_policy_hash,
};

int32_t ek_pool_random_row(const struct ek_pool *pool, const struct ek_pick *p)
{
    int32_t end = ek_pool_end(pool);
    if (end == 0)
        return -1;
    int32_t i = 0;
    for (int k = 0; k < DRAWS_MAX; k++) {
        i = (int32_t)ek_rng_below(p->rng, (uint64_t)end);
        if (ek_row_admits(pool, ek_shared_i32_get(&pool->rows[i].room)) &&
            !ek_pick_tried(p, i))
            return i;
    }
    /* Few admit: the next one from here. */
    for (int32_t k = 0; k < end; k++, i = i + 1 < end ? i + 1 : 0) {
        if (ek_row_admits(pool, ek_shared_i32_get(&pool->rows[i].room)) &&
            !ek_pick_tried(p, i))
            return i;
    }
    return -1;
}

/* Nobody waits: who finds the lock taken decides by the rows as they are. */
static void refresh_if_due(struct ek_pool *pool, int64_t now_us)
{
    if (now_us < ek_shared_i64_get(&pool->refresh_us) &&
        !ek_shared_i32_get(&pool->must_refresh))
        return;
    if (pthread_mutex_trylock(&pool->lock))
        return;
    ek_room_refresh(pool, now_us);
    pthread_mutex_unlock(&pool->lock);
}

/* Takes room of row i, if it still is there; *before is what it was. */
static bool take_room(struct ek_pool *pool, int32_t i, int32_t *before)
{
    struct ek_shared_i32 *room = &pool->rows[i].room;
    int32_t step = ek_shared_i32_get(&pool->step), was = ek_shared_i32_observe(room);
    int32_t now;
    do {
        if (!ek_row_admits(pool, was))
            return false;
        now = was - step > EK_ROOM_MIN ? was - step : EK_ROOM_MIN;
    } while (!ek_shared_i32_swap(room, &was, now));
    *before = was;
    return true;
}

static double sessions_of(int32_t room)
{
    return room < EK_ROOM_KNOWN ? (double)room / EK_ROOM_UNIT : (double)NAN;
}

static bool reserve(struct ek_pool *pool, const struct ek_pick *p,
                    const struct ek_choice *c, struct ek_placement *out)
{
    int32_t i = c->backend, before;
    struct ek_pool_row *row = &pool->rows[i];
    ek_shared_i32_observe(&row->room); /* what backends[i] holds is written */
    struct ek_backend *b = pool->backends[i];
    if (!ek_shared_i32_add_below(&row->open, ek_shared_i32_get(&b->limit)))
        return false;
    if (!take_room(pool, i, &before)) {
        ek_shared_i32_add(&row->open, -1);
        return false;
    }
    uint32_t turn = (uint32_t)ek_shared_i32_add(&b->n_placed, 1);
    ek_shared_i64_set(&b->recent[turn % EK_RECENT], p->now_us);
    ek_shared_i64_add(&b->n_total, 1);
    ek_shared_i32_add(&b->pending, 1);
    ek_shared_i64_add(&pool->n_open, 1);
    ek_shared_i64_add(&pool->n_placed, 1);
    ek_room_update(pool, i);
    *out = (struct ek_placement){.pool = pool,
                                 .backend = i,
                                 .reason = c->reason,
                                 .turn = turn,
                                 .room = sessions_of(before),
                                 .placed_us = p->now_us};
    if (pool->ledger) {
        out->ledger = ek_slots_take(pool->ledger, p->now_us, INT64_MAX);
        assert(out->ledger);
    }
    return true;
}

/* None was chosen: full, or nobody there? */
static struct ek_choice nobody(struct ek_pool *pool, const struct ek_pick *p)
{
    int32_t end = ek_pool_end(pool);
    for (int32_t i = 0; i < end; i++) {
        if (ek_row_is_up(ek_shared_i32_get(&pool->rows[i].room)) &&
            !ek_pick_tried(p, i)) {
            ek_shared_i64_add(&pool->n_full, 1);
            return (struct ek_choice){-1, EK_REASON_FULL};
        }
    }
    ek_shared_i64_add(&pool->n_down, 1);
    return (struct ek_choice){-1, EK_REASON_DOWN};
}

static int finish(struct ek_pool *pool, const struct ek_pick *p,
                  const struct ek_choice *c, const struct ek_placement *out)
{
    ek_pool_note_decision(pool, p, c, c->backend >= 0 ? out->room : (double)NAN);
    return c->backend >= 0 ? 0 : c->reason == EK_REASON_FULL ? EK_EBUSY : EK_ENOENT;
}

int ek_pool_pick(struct ek_pool *pool, const struct ek_pick *p,
                 struct ek_placement *out)
{
    struct ek_choice c = {-1, EK_REASON_FULL};
    assert(p->n_tried >= 0 && p->n_tried <= EK_TRIED_MAX);
    *out = (struct ek_placement){.backend = -1};
    refresh_if_due(pool, p->now_us);
    for (int k = 0; k < RACES_MAX; k++) {
        c = policies[ek_shared_i32_get(&pool->policy)](pool, p);
        if (c.backend < 0 || reserve(pool, p, &c, out))
            break;
        c.backend = -1;
    }
    if (c.backend < 0)
        c = nobody(pool, p);
    return finish(pool, p, &c, out);
}

int ek_pool_pick_at(struct ek_pool *pool, int32_t backend, const struct ek_pick *p,
                    struct ek_placement *out)
{
    struct ek_choice c = {backend, EK_REASON_RESUMED};
    assert(backend >= 0 && backend < pool->max_backends);
    *out = (struct ek_placement){.backend = -1};
    refresh_if_due(pool, p->now_us);
    int32_t room = ek_shared_i32_get(&pool->rows[backend].room);
    if (!ek_row_is_up(room))
        c = (struct ek_choice){-1, EK_REASON_DOWN};
    else if (!reserve(pool, p, &c, out))
        c = (struct ek_choice){-1, EK_REASON_FULL};
    return finish(pool, p, &c, out);
}

void ek_placement_end(struct ek_placement *p, int64_t now_us)
{
    (void)now_us;
    struct ek_pool *pool = p->pool;
    if (!pool)
        return;
    if (pool->ledger) {
        bool is_first = ek_slots_give(pool->ledger, p->ledger);
        assert(is_first);
        (void)is_first;
    }
    struct ek_backend *b = pool->backends[p->backend];
    struct ek_shared_i64 *time = &b->recent[p->turn % EK_RECENT];
    int64_t placed = p->placed_us;
    /* Unless a later placement of the same moment has its place. */
    if ((uint32_t)ek_shared_i32_get(&b->n_placed) - p->turn <= EK_RECENT)
        (void)ek_shared_i64_swap(time, &placed, EK_RECENT_ENDED);
    if (p->placed_us > ek_shared_i64_get(&b->sampled_us))
        ek_shared_i32_add(&b->pending, -1);
    int32_t open = ek_shared_i32_add(&pool->rows[p->backend].open, -1);
    assert(open > 0);
    (void)open;
    ek_shared_i64_add(&pool->n_open, -1);
    ek_room_update(pool, p->backend);
    *p = (struct ek_placement){.backend = -1};
}
