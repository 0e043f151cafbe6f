/* pool_int.h - what the files of the pool and its policies share.
 *
 *   pool.c         backends come, change and go; health
 *   pool_pick.c    a decision: the policy's choice, its reservation, its end
 *   pool_room.c    how much room a backend has, and how far reports are trusted
 *   pool_report.c  reports, judged
 *   pool_show.c    figures for people, the explain ring
 *   policy_*.c     the choice
 */
#ifndef EVENKEEL_ROUTE_POOL_INT_H
#define EVENKEEL_ROUTE_POOL_INT_H

#include "base/shared.h"
#include "base/slots.h"
#include "route/pool.h"

#include <pthread.h>

/* Room is counted in 1/256 session. Rows that cannot be chosen have one of the lowest
 * numbers, rows of which nothing is known are far above any capacity. */
#define EK_ROOM_UNIT     256
#define EK_ROOM_NONE     INT32_MIN       /* no backend, down, draining */
#define EK_ROOM_FULL     (INT32_MIN + 1) /* its limit is reached */
#define EK_ROOM_MIN      (-(1 << 29))
#define EK_ROOM_UNKNOWN  (1 << 30)
#define EK_ROOM_KNOWN    (1 << 29) /* anything below was told or computed */
#define EK_CAPACITY_MAX  1e6       /* sessions; a report of more is capped */
#define EK_RECENT        256       /* placements whose times are kept, a power of two */
#define EK_RECENT_ENDED  INT64_MIN /* in place of its time */
#define EK_REFRESH_US    100000    /* ages are looked at so often */
#define EK_PROXIES_MAX   16.0
#define EK_SLOW_START_LO 0.1 /* share of its room that a backend begins with */

/* What every pick reads of every backend: 16 bytes. */
struct ek_pool_row {
    struct ek_shared_i32 room; /* 1/256 session, or EK_ROOM_* */
    struct ek_shared_i32 open; /* sessions of ours */
    /* rank = slope * room + offset: headroom in deviations, by which backends of any
     * size compare (pool_room.c). */
    struct ek_shared_f32 slope, offset;
};

/* What some policies read beside it. */
struct ek_pool_side {
    struct ek_shared_f64 taken;      /* round_robin: what choosing it has cost */
    struct ek_shared_f32 inv_weight; /* 1 / weight in force */
    struct ek_shared_f32 chance;     /* weighted_random: weight * (1 - load) */
    struct ek_shared_i32 hash;       /* hash: of its name */
};

struct ek_backend {
    /* What a placement touches. */
    struct ek_shared_i32 base;       /* room without what follows, 1/256 session */
    struct ek_shared_i32 pending;    /* open sessions placed after sampled_us */
    struct ek_shared_i32 limit;      /* of open sessions; 0: none */
    struct ek_shared_i32 n_placed;   /* modulo 2^32: the next place in `recent` */
    struct ek_shared_i64 n_total;    /* placed ever */
    struct ek_shared_i64 sampled_us; /* the report tells of this moment; INT64_MIN: no
                                        report in force */
    struct ek_shared_i64 recent[EK_RECENT]; /* when it was placed */

    /* Under the pool's lock. */
    char name[EK_BACKEND_NAME_MAX + 1];
    char address[EK_BACKEND_ADDR_MAX + 1];
    double weight, cores;
    int32_t max_sessions;
    bool is_used, is_removed, is_up, is_drained, is_ejected;
    enum ek_load_state said; /* DRAIN, MAINT, or nothing in force */
    bool said_down;          /* by a report */
    double said_weight;      /* share of the weight; 1 */
    int32_t said_limit;      /* -1: none */
    int64_t up_us;           /* when it came up; 0: it always was */
    int32_t n_failures;      /* in a row */
    int32_t n_ejections;     /* in a row */
    int64_t ejected_until_us;
    bool has_report;
    struct ek_load_report report; /* as judged */
    int64_t report_us;            /* its sample */
    double capacity;              /* as used; < 0: unknown */
    double sessions;              /* n of the sample, all proxies' */
    double own_sessions;          /* of them ours */
    double excess;     /* cores that its sessions take beyond the mean, over minutes */
    double excess_n;   /* mean of n over the same */
    int64_t excess_us; /* of the report it holds; 0: none */
    int32_t n_same;    /* reports alike in a row */
    int32_t open_when_same; /* ours at the first of them */
    uint64_t n_failed, n_reports, n_refused, n_figures, n_frozen;
};

/* How far the reports of a pool are trusted. */
enum ek_trust { EK_TRUST_FRESH, EK_TRUST_OLD, EK_TRUST_NONE };

struct ek_explain_slot {
    struct ek_shared_flag busy;
    struct ek_decision d; /* under `busy`; number 0: none yet */
};

struct ek_pool {
    struct ek_pool_options o;          /* under the lock; what decisions read of it: */
    int32_t max_backends, n_explained; /* never change */
    struct ek_shared_i32 policy, admission;
    struct ek_shared_f64 hash_balance;
    struct ek_pool_row *rows;    /* (max_backends) */
    struct ek_shared_f32 *ranks; /* (max_backends) rank of a row that admits, -HUGE_VALF
                                     of one that does not: what a decision scans */
    struct ek_pool_side *sides;  /* (max_backends) */
    struct ek_backend **backends; /* (max_backends) NULL: never used; memory of one
                                     that went is kept for the next */
    struct ek_shared_i32 end;     /* rows beyond were never used */
    struct ek_shared_i32 trust;   /* enum ek_trust */
    struct ek_shared_i32 step;    /* room that a placement takes: 256 * proxies */
    struct ek_shared_i32 must_refresh;
    struct ek_shared_i32 n_candidates; /* rows up at the last refresh */
    struct ek_shared_i64 refresh_us;   /* when ages are looked at next */
    struct ek_shared_i64 n_open, n_placed, n_full, n_down, n_decisions;
    struct ek_shared_f64 turn_now;    /* round_robin: decisions */
    struct ek_shared_f64 weight_sum;  /* of candidates */
    struct ek_shared_i32 is_weighted; /* their weights differ */
    struct ek_explain_slot *explain;  /* (n_explained) */
    struct ek_slots *ledger;          /* debug builds; else NULL */

    pthread_mutex_t lock;   /* backends' cold halves, and: */
    double proxies;         /* all sessions / ours */
    double fleet_cost;      /* cores of a session, over all reports of CPU */
    double weight_capacity; /* sessions a unit of weight; < 0: unknown */
    int32_t n_fresh, n_usable, n_up;
};

/* A choice before it is reserved. */
struct ek_choice {
    int32_t backend; /* -1: none */
    enum ek_reason reason;
};

static inline float ek_side_inv_weight(const struct ek_pool *pool, int32_t i)
{
    return ek_shared_f32_get(&pool->sides[i].inv_weight);
}

static inline bool ek_row_is_up(int32_t room)
{
    return room != EK_ROOM_NONE;
}

/* The room from which on a session may be put there. */
static inline int32_t ek_least_room(const struct ek_pool *pool)
{
    return ek_shared_i32_get(&pool->admission) == EK_ADMIT_CAPACITY ? EK_ROOM_UNIT
                                                                    : EK_ROOM_FULL + 1;
}

static inline bool ek_row_admits(const struct ek_pool *pool, int32_t room)
{
    return room >= ek_least_room(pool);
}

static inline double ek_backend_cores(const struct ek_backend *b)
{
    return b->report.has & EK_LOAD_CORES ? b->report.cores
           : b->cores > 0                ? b->cores
                                         : b->weight;
}

static inline bool ek_pick_tried(const struct ek_pick *p, int32_t backend)
{
    for (int i = 0; i < p->n_tried; i++) {
        if (p->tried[i] == backend)
            return true;
    }
    return false;
}

/* A row that admits and was not tried, chosen evenly; -1: none. */
int32_t ek_pool_random_row(const struct ek_pool *pool, const struct ek_pick *p);

/* The policies: a row that admits, or -1. They read rows and reserve nothing. */
struct ek_choice ek_policy_effective_capacity(struct ek_pool *, const struct ek_pick *);
struct ek_choice ek_policy_least_sessions(struct ek_pool *, const struct ek_pick *);
struct ek_choice ek_policy_two_choices(struct ek_pool *, const struct ek_pick *);
struct ek_choice ek_policy_weighted_random(struct ek_pool *, const struct ek_pick *);
struct ek_choice ek_policy_round_robin(struct ek_pool *, const struct ek_pick *);
struct ek_choice ek_policy_hash(struct ek_pool *, const struct ek_pick *);

/* pool_room.c: the row's room from its counters, if it is a candidate, and its rank.
 * close: no candidate any more. Any thread. */
void ek_room_update(struct ek_pool *pool, int32_t i);
void ek_room_close(struct ek_pool *pool, int32_t i);

/* The next three with the lock held. decide: whether it is a candidate, then its room.
 * refresh: ages, trust, shares, every row. count: of `recent`, placed within (from, to]
 * and open. */
void ek_room_decide(struct ek_pool *pool, int32_t i, int64_t now_us);
void ek_room_refresh(struct ek_pool *pool, int64_t now_us);
double ek_room_count(const struct ek_backend *b, int64_t from_us, int64_t to_us);

/* pool_show.c: keeps the decision; nothing when the ring has none or its slot is
 * read. */
void ek_pool_note_decision(struct ek_pool *pool, const struct ek_pick *p,
                           const struct ek_choice *c, double room);

#endif
