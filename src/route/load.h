/* load.h - what a backend says of its load, whatever way it said it.
 *
 * Decoders (report.h) fill it from ORCA, from the tracker's JSON or from HAProxy's
 * agent line; the simulator fills it from a tracker; the pool (pool.h) alone judges it.
 * Invariant: a member is 0 where its bit is not in `has`.
 */
#ifndef EVENKEEL_ROUTE_LOAD_H
#define EVENKEEL_ROUTE_LOAD_H

#include <stdbool.h>
#include <stdint.h>

/* Bits of ek_load_report.has. */
enum {
    EK_LOAD_CPU = 1 << 0,
    EK_LOAD_APPLICATION = 1 << 1,
    EK_LOAD_MEMORY = 1 << 2,
    EK_LOAD_RPS = 1 << 3,
    EK_LOAD_EPS = 1 << 4,
    EK_LOAD_ACTIVE = 1 << 5,
    EK_LOAD_YOUNG = 1 << 6,
    EK_LOAD_YOUNG_WEIGHT = 1 << 7,
    EK_LOAD_COST = 1 << 8,
    EK_LOAD_CAPACITY = 1 << 9,
    EK_LOAD_REMAINING = 1 << 10,
    EK_LOAD_FACTOR = 1 << 11,
    EK_LOAD_CORES = 1 << 12,
    EK_LOAD_WEIGHT = 1 << 13,
    EK_LOAD_LIMIT = 1 << 14,
    EK_LOAD_VARIATION = 1 << 15,
    EK_LOAD_WINDOW = 1 << 16
};

/* What a report asks of its backend's state, beside figures. */
enum ek_load_state {
    EK_LOAD_SAYS_NOTHING,
    EK_LOAD_SAYS_READY, /* takes back a drain or maintenance that a report asked for */
    EK_LOAD_SAYS_DRAIN, /* no new sessions */
    EK_LOAD_SAYS_MAINT  /* the same: out of service until it says ready */
};

enum ek_load_health { EK_LOAD_HEALTH_UNSAID, EK_LOAD_IS_UP, EK_LOAD_IS_DOWN };

struct ek_load_report {
    uint32_t has;             /* EK_LOAD_* */
    enum ek_load_state state; /* of administration */
    enum ek_load_health health;
    int64_t age_us;                 /* of the figures when they were sent; 0: unsaid */
    double cpu_utilization;         /* share of its cores, smoothed; may exceed 1 */
    double application_utilization; /* sessions / capacity; may exceed 1 */
    double mem_utilization;         /* 0..1 */
    double rps, eps;                /* requests, errors per second */
    double active_sessions;         /* n, at the sample */
    double young_sessions; /* of them, younger than the window of its smoothing */
    double window_s;       /* of its smoothing, s */
    double young_weight;   /* share of a young one that the CPU has not seen, 0..1 */
    double session_cost;   /* cores of a session */
    double effective_capacity; /* sessions in all */
    double remaining_sessions; /* capacity - n; negative: overloaded */
    double safety_factor;      /* f, within the capacity above */
    double variation;          /* of a session's CPU: deviation / mean */
    double cores;              /* that it may use */
    double weight;             /* share of its configured weight; 0: no new sessions */
    bool is_whole_weight;      /* weight is the weight itself, 0..256, and no share */
    double limit;              /* sessions that this proxy may have there */
    bool binds_elsewhere;      /* what bounds the capacity is not the CPU */
};

#endif
