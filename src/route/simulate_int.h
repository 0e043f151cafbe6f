/* simulate_int.h - the model of one run, shared by its files. */
#ifndef EVENKEEL_ROUTE_SIMULATE_INT_H
#define EVENKEEL_ROUTE_SIMULATE_INT_H

#include "route/simulate.h"

#include <evenkeel/session.h>

#define EK_SIM_STEP_US  INT64_C(200000)
#define EK_SIM_SECOND   INT64_C(1000000)
#define EK_SIM_SESSIONS 65536 /* open at once */
#define EK_SIM_LATE     8     /* reports under way from one backend to one proxy */

struct ek_sim_session {
    const struct ek_sim_class *class; /* NULL: free */
    struct ek_rng rng; /* its own: its life is the same under any policy */
    int64_t end_us, toggle_us, start_end_us;
    bool is_on;
    int32_t proxy;
    struct ek_placement placement;
    struct ek_session tracked;
};

struct ek_sim_late {
    int64_t due_us; /* 0: none */
    struct ek_load_report report;
    double agent; /* share of the weight that the tracker's agent line says */
};

/* What a proxy heard of a backend, for the rules of peers. */
struct ek_sim_heard {
    int64_t next_us; /* of the next report's sample */
    struct ek_sim_late late[EK_SIM_LATE];
    double cpu, rps; /* the latest; cpu < 0: none yet */
    double utilization;
    double agent;  /* the latest share; 1: none yet */
    double starts; /* least_rps: in about 10 s, decayed */
    int32_t open;  /* of this proxy */
};

struct ek_sim_backend {
    double cores;
    bool is_up;
    struct ek_tracker *tracker;
    int64_t cpu_us; /* used so far */
    const struct ek_sim_world *world;
    bool is_noisy, has_noise;
    int64_t noise_until_us;
    struct ek_rng noise;
    double demand; /* of its sessions, now */
    double expected,
        variance; /* of it soon, by what each session is and does: what only
                                  the oracle knows */
    int32_t n;    /* sessions */
};

struct ek_sim_proxy {
    struct ek_pool *pool;
    struct ek_rng rng;          /* decisions */
    struct ek_rng net;          /* losses */
    struct ek_sim_heard *heard; /* (backends) owned */
    double turn;                /* orca_wrr */
};

/* A start that is to come, from the arrivals or a lost host. */
struct ek_sim_start {
    int64_t at_us;
    int32_t session; /* one that reconnects; -1: a new one */
};

struct ek_sim_world {
    const struct ek_sim *s;
    const struct ek_sim_policy *policy;
    int64_t now_us;
    struct ek_rng arrivals;
    int64_t next_arrival_us;
    double rate; /* starts a second */
    uint64_t n_started;
    struct ek_sim_backend *backends; /* (n_backends) owned; those to come are down */
    int32_t n_backends;
    struct ek_sim_proxy *proxies;    /* (s->proxies) owned */
    struct ek_sim_session *sessions; /* (EK_SIM_SESSIONS) owned */
    int32_t *free_slots, n_free;     /* owned */
    int32_t *open, n_open;           /* sessions open or between two hosts, owned */
    struct ek_sim_start *again; /* (EK_SIM_SESSIONS) owned: reconnects, unordered */
    int32_t n_again;
    uint64_t n_starts, n_refused, n_misplaced; /* measured ones */
};

/* simulate_rules.c: a backend that is up, or -1: the rule refuses. */
int32_t ek_sim_choose(struct ek_sim_world *w, struct ek_sim_proxy *p,
                      const struct ek_sim_session *s);

/* simulate_model.c */
double ek_sim_class_mean(const struct ek_sim_class *c); /* cores, while it is open */
double ek_sim_class_variance(const struct ek_sim_class *c);
int64_t ek_sim_duration_us(const struct ek_sim_class *c, struct ek_rng *rng);
void ek_sim_session_begin(const struct ek_sim_world *w, struct ek_sim_session *s,
                          const struct ek_sim_class *c, uint64_t seed);
/* Mean demand of the next HORIZON, from its class and whether it is on. */
double ek_sim_session_expected(const struct ek_sim_session *s);
double ek_sim_session_demand(struct ek_sim_world *w, struct ek_sim_session *s);
int ek_sim_backend_init(struct ek_sim_backend *b, const struct ek_sim_world *w,
                        int32_t i, uint64_t seed) EK_MUST_USE;
void ek_sim_backend_step(struct ek_sim_backend *b);
double ek_sim_backend_noise(const struct ek_sim_backend *b);
int ek_sim_proxy_init(struct ek_sim_proxy *p, const struct ek_sim_world *w,
                      uint64_t seed) EK_MUST_USE;
void ek_sim_proxy_reports(struct ek_sim_proxy *p, struct ek_sim_world *w);

#endif
