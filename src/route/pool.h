/* pool.h - the backends of a pool, what is known of each, and where the next session
 * goes. docs/design/route.md says why.
 *
 * No I/O, no clock, no thread: time and random numbers are arguments, so the proxy and
 * the simulator run the same code. Every int64_t now_us is of one monotonic clock.
 *
 * A session is placed by ek_pool_pick, which reserves room for it, and gives the room
 * back by ek_placement_end, once, whatever the way out.
 *
 * Invariants: open sessions of a backend == placements picked and not ended; never more
 * than its max_sessions; with EK_ADMIT_CAPACITY none goes to a backend that is known to
 * be full (less than one session of room). Pool freed: all placements ended.
 * Threads: any, except new and free. Nothing waits: pick and end read and write single
 * atomic figures; what is slower (reports, adding, reading for people) is behind a lock
 * that pick only ever tries.
 */
#ifndef EVENKEEL_ROUTE_POOL_H
#define EVENKEEL_ROUTE_POOL_H

#include "base/err.h"
#include "base/rng.h"
#include "route/load.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EK_BACKENDS_MAX     16384
#define EK_BACKEND_NAME_MAX 63  /* bytes of a name */
#define EK_BACKEND_ADDR_MAX 255 /* bytes of HOST:PORT, unix:PATH */
#define EK_TRIED_MAX        8   /* backends one session is tried on */
#define EK_DECISION_SHOWN   16  /* candidates an explained decision lists */

/* X(name, word of the configuration) */
#define EK_POLICY_TABLE(X)                                                             \
    X(EK_POLICY_EFFECTIVE_CAPACITY, "effective_capacity") /* most room */              \
    X(EK_POLICY_LEAST_SESSIONS, "least_sessions")         /* open / weight */          \
    X(EK_POLICY_TWO_CHOICES, "two_choices")         /* the same, of two at random */   \
    X(EK_POLICY_WEIGHTED_RANDOM, "weighted_random") /* weight * (1 - load) */          \
    X(EK_POLICY_ROUND_ROBIN, "round_robin")         /* smooth, weighted */             \
    X(EK_POLICY_HASH, "hash")                       /* of a key, with bounded load */

enum ek_policy {
#define X(name, word) name,
    EK_POLICY_TABLE(X)
#undef X
        EK_N_POLICIES
};

/* What makes a backend full. Every choice respects max_sessions and health. */
enum ek_admission {
    EK_ADMIT_CAPACITY, /* no room by its reports; unknown room admits */
    EK_ADMIT_LIMIT     /* max_sessions alone */
};

struct ek_pool_options {
    enum ek_policy policy;       /* EFFECTIVE_CAPACITY */
    enum ek_admission admission; /* CAPACITY */
    int32_t max_backends;        /* 1..EK_BACKENDS_MAX; 1024; 3 kB each */
    int32_t n_explained;         /* decisions kept for ek_pool_explain; 0..4096; 256 */
    int64_t interval_us;         /* between two reports; 1 s */
    int64_t expiry_us;           /* a report older than this says nothing; 10 s */
    int64_t slow_start_us;       /* a backend that came up gets its share slowly; 0 */
    double young_weight;         /* phi, for reports that do not say theirs; 0.632 */
    double window_us;     /* of the backends' smoothing, where they do not count their
                             young sessions; 10 s */
    double target;        /* for reports of CPU alone: share of it to fill; 0.8 */
    double safety_factor; /* likewise; 2.0 */
    double hash_balance;  /* bound of a backend's load over the mean; 1.25 */
    int32_t max_failures; /* in a row that eject a backend; 0: never; 5 */
    int64_t eject_us; /* for so long, doubled each time in a row to 16 times; 10 s */
};

void ek_pool_options_default(struct ek_pool_options *o);

/* The word's policy; -1: there is none. */
int ek_policy_find(const char *word);
const char *ek_policy_name(enum ek_policy p);

struct ek_pool;

/* Errors: EK_ENOMEM. */
int ek_pool_new(struct ek_pool **pool, const struct ek_pool_options *o) EK_MUST_USE;
void ek_pool_free(struct ek_pool *pool); /* NULL is fine */

/* From the next decision on; max_backends and n_explained stay as they are. */
void ek_pool_set_options(struct ek_pool *pool, const struct ek_pool_options *o);

/* ---- Backends ---- */

struct ek_backend_spec {
    const char *name;     /* unique in the pool; copied */
    const char *address;  /* copied; the pool only shows it */
    double weight;        /* > 0; relative size where no report tells; 1 */
    double cores;         /* for reports of CPU alone; 0: unknown, the weight serves */
    int32_t max_sessions; /* of this proxy; 0: no limit */
};

/* *backend is its index in [0, max_backends), given again only after it was reaped. It
 * starts up: set its health before or after. Errors: EK_EINVAL (the name is there),
 * EK_ELIMIT (max_backends, a string too long), EK_ENOMEM; unchanged. */
int ek_pool_add(struct ek_pool *pool, int32_t *backend, const struct ek_backend_spec *s,
                int64_t now_us) EK_MUST_USE;

/* The same, but it starts down: no session comes before ek_pool_set_up, which is time
 * to get ready for them. Its name may be that of one which is removed before that.
 * Errors: as add, but for a name that is there. */
int ek_pool_place(struct ek_pool *pool, int32_t *backend,
                  const struct ek_backend_spec *s) EK_MUST_USE;

/* Changes weight, cores, max_sessions, address: a reload keeps sessions and reports. */
int ek_pool_update(struct ek_pool *pool, int32_t backend,
                   const struct ek_backend_spec *s) EK_MUST_USE;

/* Its index, or -1. One that is being removed is not found. */
int32_t ek_pool_find(struct ek_pool *pool, const char *name);

/* No candidate any more. It is gone when its sessions have ended: reap, tried until it
 * says true, frees its index. Not before nobody reports on it and every thread that was
 * picking when it was removed is done with that pick. */
void ek_pool_remove(struct ek_pool *pool, int32_t backend);
bool ek_pool_reap(struct ek_pool *pool, int32_t backend);

/* Health checks' verdict. Up after down starts the slow start. */
void ek_pool_set_up(struct ek_pool *pool, int32_t backend, bool is_up, int64_t now_us);

/* An operator's drain; a report's own drain is kept apart from it. */
void ek_pool_set_drain(struct ek_pool *pool, int32_t backend, bool drains);

/* Passive health: whether a session could be opened there. max_failures in a row eject
 * it for a while. A backend whose ejection would leave none stays. */
void ek_pool_note(struct ek_pool *pool, int32_t backend, bool is_ok, int64_t now_us);

/* A report that arrived at now_us; it tells of now_us - age_us. What cannot be is
 * refused or capped, and counted:
 *   not finite, negative, capacity over 1e6 ...   the figure is dropped or capped
 *   figures that stand still while sessions come and go   "frozen": it ages on
 * Errors: EK_EINVAL: nothing in it could be used (counted). */
int ek_pool_report(struct ek_pool *pool, int32_t backend,
                   const struct ek_load_report *r, int64_t now_us) EK_MUST_USE;

/* A report that no decoder understood: counted as refused. */
void ek_pool_refuse_report(struct ek_pool *pool, int32_t backend);

/* ---- Decisions ---- */

struct ek_pick {
    int64_t now_us;
    uint64_t key;     /* policy hash: hash of header, cookie or query; else ignored */
    uint64_t session; /* for explain: the caller's number; 0: none */
    const int32_t *tried; /* (n_tried) backends that refused this session */
    int n_tried;          /* 0..EK_TRIED_MAX */
    struct ek_rng *rng;   /* the caller's thread's */
};

/* X(name, word) why this backend */
#define EK_REASON_TABLE(X)                                                             \
    X(EK_REASON_MOST_ROOM, "most_room")           /* reports are fresh: argmax */      \
    X(EK_REASON_TWO_CHOICES, "two_choices")       /* they are old: better of two */    \
    X(EK_REASON_LEAST_SESSIONS, "least_sessions") /* no reports: open / weight */      \
    X(EK_REASON_RANDOM, "weighted_random")                                             \
    X(EK_REASON_TURN, "round_robin")                                                   \
    X(EK_REASON_HASH, "hash")           /* the key's own backend */                    \
    X(EK_REASON_HASH_NEXT, "hash_next") /* that one is full: next on the ring */       \
    X(EK_REASON_RESUMED, "resumed")     /* its session was there before */             \
    X(EK_REASON_FULL, "full")           /* none: all are full */                       \
    X(EK_REASON_DOWN, "none_up")        /* none: no backend is up */

enum ek_reason {
#define X(name, word) name,
    EK_REASON_TABLE(X)
#undef X
        EK_N_REASONS
};
const char *ek_reason_name(enum ek_reason r);

/* A session's room at a backend. Lies where the caller likes; moved, not copied. */
struct ek_placement {
    struct ek_pool *pool; /* NULL: none, or ended */
    int32_t backend;
    enum ek_reason reason;
    uint32_t turn;   /* private: of its backend's placements */
    double room;     /* sessions it had room for before this one; NAN: unknown */
    uint64_t ledger; /* private: debug builds' entry */
    int64_t placed_us;
};

/* Chooses by the pool's policy and reserves. Errors: EK_EBUSY: candidates are there and
 * all are full (queue or refuse); EK_ENOENT: none is up, or all were tried. *out is
 * then none. Cost: O(backends), below 2 us for 1,000; no allocation. */
int ek_pool_pick(struct ek_pool *pool, const struct ek_pick *p,
                 struct ek_placement *out) EK_MUST_USE;

/* Reserves at this backend if it is up and has room: for a resumed session whose place
 * is known. Errors as pick. */
int ek_pool_pick_at(struct ek_pool *pool, int32_t backend, const struct ek_pick *p,
                    struct ek_placement *out) EK_MUST_USE;

/* Gives the room back and empties *p; an empty one is left alone, so every way out may
 * call it. */
void ek_placement_end(struct ek_placement *p, int64_t now_us);

/* ---- For people, metrics and tests ---- */

struct ek_backend_state {
    char name[EK_BACKEND_NAME_MAX + 1];
    char address[EK_BACKEND_ADDR_MAX + 1];
    double weight, cores;
    int32_t max_sessions;
    bool is_up, is_draining, is_ejected, is_removed; /* draining: for either reason */
    bool has_report;                                 /* one that has not expired */
    int32_t open_sessions;                           /* of this proxy */
    uint64_t placed_total;                           /* sessions ever placed here */
    uint64_t failures_total;                         /* ek_pool_note said no */
    uint64_t reports_total, reports_refused, figures_refused, reports_frozen;
    int64_t report_age_us;        /* of its sample; -1: never */
    struct ek_load_report report; /* the latest, as judged */
    double effective_capacity;    /* as used: reported, or computed from CPU */
    double pending;    /* sessions placed since the sample and the unseen part of young
                          ones, others' proxies included */
    double room;       /* sessions; NAN: unknown */
    double slow_start; /* 0.1..1 */
};

/* False when there is no such backend. */
bool ek_pool_read(struct ek_pool *pool, int32_t backend, int64_t now_us,
                  struct ek_backend_state *out);

struct ek_pool_totals {
    int32_t n_backends, n_up;  /* up: candidates */
    int32_t n_fresh, n_usable; /* of them with a report younger than two intervals,
                                    and than expiry */
    int64_t open_sessions;
    uint64_t placed_total;
    uint64_t full_total, down_total; /* picks that found none */
    double proxies;                  /* all sessions / ours, by the reports; >= 1 */
    double room;                     /* sum over candidates where known */
};
void ek_pool_read_totals(struct ek_pool *pool, int64_t now_us,
                         struct ek_pool_totals *out);

/* One past the highest index in use; for loops over ek_pool_read. */
int32_t ek_pool_end(const struct ek_pool *pool);

struct ek_decision {
    uint64_t number; /* 1, 2, ... of the pool */
    uint64_t session;
    int64_t now_us;
    enum ek_reason reason;
    int32_t backend; /* -1: none */
    double room;     /* as in the placement */
    int32_t n_candidates;
    int32_t n_shown; /* all of them, or the chosen one and the next after it */
    struct ek_decision_row {
        int32_t backend;
        int32_t open_sessions;
        float room; /* NAN: unknown */
    } rows[EK_DECISION_SHOWN];
};

/* The latest decisions, newest first; returns how many (<= max). A decision that is
 * being written at this moment is left out. */
size_t ek_pool_explain(struct ek_pool *pool, struct ek_decision *out, size_t max);

#endif
