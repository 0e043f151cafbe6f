/* pool.c - backends come, change and go; their health. */
#include "route/pool.h"

#include "base/map.h"
#include "base/mem.h"
#include "route/pool_int.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static_assert(sizeof(struct ek_pool_row) == 16, "a pick reads one of each backend");

/* Debug builds: sessions that may be open at once. */
#define LEDGER_MAX EK_SLOTS_MAX

static const char *const policy_names[] = {
#define X(name, word) word,
    EK_POLICY_TABLE(X)
#undef X
};

int ek_policy_find(const char *word)
{
    for (int i = 0; i < EK_N_POLICIES; i++) {
        if (!strcmp(word, policy_names[i]))
            return i;
    }
    return -1;
}

const char *ek_policy_name(enum ek_policy p)
{
    return policy_names[p];
}

void ek_pool_options_default(struct ek_pool_options *o)
{
    *o = (struct ek_pool_options){
        .policy = EK_POLICY_EFFECTIVE_CAPACITY,
        .admission = EK_ADMIT_CAPACITY,
        .max_backends = 1024,
        .n_explained = 256,
        .interval_us = 1000000,
        .expiry_us = 10000000,
        .window_us = 10000000,
        .young_weight = 0.632,
        .target = 0.8,
        .safety_factor = 2,
        .hash_balance = 1.25,
        .max_failures = 5,
        .eject_us = 10000000,
    };
}

static void set_options(struct ek_pool *pool, const struct ek_pool_options *o)
{
    pool->o = *o;
    ek_shared_i32_set(&pool->policy, (int32_t)o->policy);
    ek_shared_i32_set(&pool->admission, (int32_t)o->admission);
    ek_shared_f64_set(&pool->hash_balance, o->hash_balance);
}

void ek_pool_set_options(struct ek_pool *pool, const struct ek_pool_options *o)
{
    pthread_mutex_lock(&pool->lock);
    set_options(pool, o);
    ek_shared_i32_set(&pool->must_refresh, 1);
    pthread_mutex_unlock(&pool->lock);
}

int ek_pool_new(struct ek_pool **out, const struct ek_pool_options *o)
{
    assert(o->max_backends >= 1 && o->max_backends <= EK_BACKENDS_MAX);
    size_t n = (size_t)o->max_backends;
    struct ek_pool *pool = ek_calloc(1, sizeof *pool);
    if (!pool)
        return EK_ENOMEM;
    pthread_mutex_init(&pool->lock, NULL);
    set_options(pool, o);
    pool->max_backends = o->max_backends;
    pool->n_explained = o->n_explained;
    pool->rows = ek_alloc_aligned(64, n * sizeof *pool->rows);
    pool->ranks = ek_calloc(n, sizeof *pool->ranks);
    pool->sides = ek_calloc(n, sizeof *pool->sides);
    pool->backends = ek_calloc(n, sizeof(struct ek_backend *));
    pool->explain = ek_calloc((size_t)o->n_explained, sizeof *pool->explain);
    int rc = 0;
    if (!pool->rows || !pool->ranks || !pool->sides || !pool->backends ||
        !pool->explain)
        rc = EK_ENOMEM;
    if (!rc && EK_IS_DEBUG)
        rc = ek_slots_new(&pool->ledger, LEDGER_MAX);
    if (rc) {
        ek_pool_free(pool);
        return rc;
    }
    memset(pool->rows, 0, n * sizeof *pool->rows);
    for (size_t i = 0; i < n; i++) {
        ek_shared_i32_set(&pool->rows[i].room, EK_ROOM_NONE);
        ek_shared_f32_set(&pool->ranks[i], -HUGE_VALF);
        ek_shared_f32_set(&pool->sides[i].inv_weight, 1);
    }
    ek_shared_i32_set(&pool->trust, EK_TRUST_NONE);
    ek_shared_i32_set(&pool->step, EK_ROOM_UNIT);
    pool->proxies = 1;
    pool->weight_capacity = -1;
    *out = pool;
    return 0;
}

void ek_pool_free(struct ek_pool *pool)
{
    if (!pool)
        return;
    assert(ek_shared_i64_get(&pool->n_open) == 0);
    if (pool->backends) {
        for (int32_t i = 0; i < pool->max_backends; i++)
            ek_free(pool->backends[i]);
    }
    ek_slots_free(pool->ledger);
    ek_free(pool->explain);
    ek_free(pool->backends);
    ek_free(pool->sides);
    ek_free(pool->ranks);
    ek_free(pool->rows);
    pthread_mutex_destroy(&pool->lock);
    ek_free(pool);
}

int32_t ek_pool_end(const struct ek_pool *pool)
{
    return ek_shared_i32_get(&pool->end);
}

/* With the lock held. */
static int32_t find(const struct ek_pool *pool, const char *name)
{
    int32_t end = ek_pool_end(pool);
    for (int32_t i = 0; i < end; i++) {
        const struct ek_backend *b = pool->backends[i];
        if (b->is_used && !b->is_removed && !strcmp(b->name, name))
            return i;
    }
    return -1;
}

int32_t ek_pool_find(struct ek_pool *pool, const char *name)
{
    pthread_mutex_lock(&pool->lock);
    int32_t i = find(pool, name);
    pthread_mutex_unlock(&pool->lock);
    return i;
}

static int check_spec(const struct ek_backend_spec *s)
{
    if (strlen(s->name) > EK_BACKEND_NAME_MAX ||
        strlen(s->address) > EK_BACKEND_ADDR_MAX)
        return EK_ELIMIT;
    bool is_right = *s->name && isfinite(s->weight) && s->weight > 0 &&
                    isfinite(s->cores) && s->cores >= 0 && s->max_sessions >= 0;
    return is_right ? 0 : EK_EINVAL;
}

static void set_spec(struct ek_backend *b, const struct ek_backend_spec *s)
{
    memcpy(b->address, s->address, strlen(s->address) + 1);
    b->weight = s->weight;
    b->cores = s->cores;
    b->max_sessions = s->max_sessions;
}

/* A place that is free, its memory there; -1 and *rc otherwise. */
static int32_t take_place(struct ek_pool *pool, int *rc)
{
    int32_t end = ek_pool_end(pool), i = 0;
    while (i < end && pool->backends[i]->is_used)
        i++;
    *rc = i < pool->max_backends ? 0 : EK_ELIMIT;
    if (!*rc && !pool->backends[i]) {
        pool->backends[i] = ek_calloc(1, sizeof *pool->backends[i]);
        *rc = pool->backends[i] ? 0 : EK_ENOMEM;
    }
    return *rc ? -1 : i;
}

/* up_us: when it came up, or 0; below 0: it is down. */
static void fill_place(struct ek_pool *pool, int32_t i, const struct ek_backend_spec *s,
                       int64_t up_us)
{
    struct ek_backend *b = pool->backends[i];
    memset(b, 0, sizeof *b);
    memcpy(b->name, s->name, strlen(s->name) + 1);
    set_spec(b, s);
    b->is_used = true;
    b->is_up = up_us >= 0;
    b->said_weight = 1;
    b->said_limit = -1;
    b->capacity = -1;
    b->up_us = up_us;
    ek_shared_i64_set(&b->sampled_us, INT64_MIN);
    uint64_t h = ek_hash(s->name, strlen(s->name), 0);
    ek_shared_i32_set(&pool->sides[i].hash, (int32_t)(uint32_t)(h ^ h >> 32));
    if (i == ek_pool_end(pool))
        ek_shared_i32_set(&pool->end, i + 1);
}

int ek_pool_add(struct ek_pool *pool, int32_t *backend, const struct ek_backend_spec *s,
                int64_t now_us)
{
    int rc = check_spec(s);
    if (rc)
        return rc;
    pthread_mutex_lock(&pool->lock);
    int32_t i = -1;
    if (find(pool, s->name) >= 0)
        rc = EK_EINVAL;
    else
        i = take_place(pool, &rc);
    if (!rc) {
        /* The first backends of a pool are no newcomers among others. */
        fill_place(pool, i, s, pool->n_up > 0 ? now_us : 0);
        ek_room_refresh(pool, now_us);
        *backend = i;
    }
    pthread_mutex_unlock(&pool->lock);
    return rc;
}

int ek_pool_place(struct ek_pool *pool, int32_t *backend,
                  const struct ek_backend_spec *s)
{
    int rc = check_spec(s);
    if (rc)
        return rc;
    pthread_mutex_lock(&pool->lock);
    int32_t i = take_place(pool, &rc);
    if (!rc) {
        fill_place(pool, i, s, -1);
        *backend = i;
    }
    pthread_mutex_unlock(&pool->lock);
    return rc;
}

int ek_pool_update(struct ek_pool *pool, int32_t backend,
                   const struct ek_backend_spec *s)
{
    int rc = check_spec(s);
    if (rc)
        return rc;
    pthread_mutex_lock(&pool->lock);
    set_spec(pool->backends[backend], s);
    ek_shared_i32_set(&pool->must_refresh, 1);
    pthread_mutex_unlock(&pool->lock);
    return 0;
}

void ek_pool_remove(struct ek_pool *pool, int32_t backend)
{
    pthread_mutex_lock(&pool->lock);
    pool->backends[backend]->is_removed = true;
    ek_room_close(pool, backend);
    ek_shared_i32_set(&pool->must_refresh, 1);
    pthread_mutex_unlock(&pool->lock);
}

bool ek_pool_reap(struct ek_pool *pool, int32_t backend)
{
    pthread_mutex_lock(&pool->lock);
    struct ek_backend *b = pool->backends[backend];
    bool is_gone = b->is_removed && ek_shared_i32_get(&pool->rows[backend].open) == 0;
    if (is_gone)
        b->is_used = false;
    pthread_mutex_unlock(&pool->lock);
    return is_gone;
}

void ek_pool_set_up(struct ek_pool *pool, int32_t backend, bool is_up, int64_t now_us)
{
    pthread_mutex_lock(&pool->lock);
    struct ek_backend *b = pool->backends[backend];
    if (is_up && !b->is_up)
        b->up_us = now_us;
    b->is_up = is_up;
    ek_room_decide(pool, backend, now_us);
    ek_shared_i32_set(&pool->must_refresh, 1);
    pthread_mutex_unlock(&pool->lock);
}

void ek_pool_set_drain(struct ek_pool *pool, int32_t backend, bool drains)
{
    pthread_mutex_lock(&pool->lock);
    pool->backends[backend]->is_drained = drains;
    if (drains)
        ek_room_close(pool, backend);
    ek_shared_i32_set(&pool->must_refresh, 1);
    pthread_mutex_unlock(&pool->lock);
}

static void eject(struct ek_pool *pool, int32_t backend, int64_t now_us)
{
    struct ek_backend *b = pool->backends[backend];
    bool is_last = pool->n_up <= 1; /* better one that may fail than none */
    b->n_failures = 0;
    if (is_last || b->is_ejected)
        return;
    int doublings = b->n_ejections < 4 ? b->n_ejections : 4;
    b->is_ejected = true;
    b->ejected_until_us = now_us + (pool->o.eject_us << doublings);
    b->n_ejections++;
    ek_room_refresh(pool, now_us);
}

void ek_pool_note(struct ek_pool *pool, int32_t backend, bool is_ok, int64_t now_us)
{
    pthread_mutex_lock(&pool->lock);
    struct ek_backend *b = pool->backends[backend];
    if (is_ok) {
        b->n_failures = 0;
        b->n_ejections = 0;
    } else {
        b->n_failed++;
        b->n_failures++;
        if (pool->o.max_failures > 0 && b->n_failures >= pool->o.max_failures)
            eject(pool, backend, now_us);
    }
    pthread_mutex_unlock(&pool->lock);
}
