/* simulate.h - the pool against modelled backends, step by step.
 *
 * Deterministic: the same configuration and seed give the same figures. What decides is
 * the pool (pool.h) and what reports is the tracker (evenkeel/session.h), the code that
 * runs in production; modelled are sessions, CPU and the network between.
 * docs/design/simulate.md draws the model.
 */
#ifndef EVENKEEL_ROUTE_SIMULATE_H
#define EVENKEEL_ROUTE_SIMULATE_H

#include "base/buf.h"
#include "base/err.h"
#include "base/opt.h"
#include "route/pool.h"

#define EK_SIM_POLICIES_MAX 16
#define EK_SIM_PHASES       3 /* steady, after the scale-out, after the loss */

/* X(name, word, is_peer): ways of choosing that are none of the pool's. */
#define EK_SIM_RULE_TABLE(X)                                                           \
    X(EK_SIM_LEAST_RPS, "least_rps", true)     /* fewest starts in 10 s */             \
    X(EK_SIM_LEAST_CONN, "least_conn", true)   /* fewest sessions, cores ignored */    \
    X(EK_SIM_LEAST_CPU, "least_cpu", true)     /* least reported CPU */                \
    X(EK_SIM_TWO_CPU, "two_choices_cpu", true) /* the better of two by it */           \
    X(EK_SIM_WRR, "orca_wrr", true)            /* weights n / utilisation */           \
    X(EK_SIM_AGENT, "agent_least_conn", true)  /* n / (cores * 1 - CPU) */             \
    X(EK_SIM_AGENT_CAPACITY, "agent_capacity",                                         \
      false)                          /* n / (cores * what the          \
                                     tracker's agent line says), none at 0 % */              \
    X(EK_SIM_ORACLE, "oracle", false) /* true means, at once */

enum ek_sim_rule {
    EK_SIM_POOL, /* the policy of the pool */
#define X(name, word, is_peer) name,
    EK_SIM_RULE_TABLE(X)
#undef X
        EK_SIM_N_RULES
};

/* One way of choosing, which a run measures. */
struct ek_sim_policy {
    enum ek_sim_rule rule;
    enum ek_policy pool; /* rule POOL */
    const char *name;
    bool is_peer; /* what others do: not ours, not the oracle */
};

/* The policy of that word, the pool's or of the table above. False: there is none. */
bool ek_sim_policy_find(struct ek_sim_policy *p, const char *word);

/* Sessions of one kind. */
struct ek_sim_class {
    double share;            /* of starts */
    double cores;            /* while on */
    double duty;             /* share of the time that it is on */
    int64_t on_ms;           /* mean spell */
    int64_t duration_ms;     /* median, lognormal */
    double sigma;            /* of its logarithm */
    int64_t duration_max_ms; /* then it is cut off */
    double start_cores;      /* more, for the first start_ms */
    int64_t start_ms;
    int64_t speak_at_ms; /* silent until then (from the end of the warm-up), then on; 0:
                            on and off as duty says */
};

struct ek_sim {
    int64_t backends;
    double large_share; /* of them with large_cores */
    double cores, large_cores;
    int64_t noisy;      /* of them with neighbours that take CPU now and then */
    double noise_cores; /* so much, in spells of a minute, half of the time */
    double load;        /* mean demand / cores; 0: arrivals */
    double arrivals;    /* starts a second */
    struct ek_opt_items sessions;  /* struct ek_sim_class */
    int64_t interval_ms, delay_ms; /* of reports */
    double loss;                   /* share of reports that do not arrive */
    double factor;                 /* the tracker's safety factor; 0: auto */
    double prior_cost;             /* the tracker's, cores of a session */
    int64_t proxies;
    int admission; /* 0 everything is placed, 1 full is refused */
    int64_t warmup_ms, phase_ms;
    int64_t scale_out;     /* backends that come at the second phase */
    double scale_out_load; /* arrivals from then on, over those before */
    int64_t lost;          /* backends lost at the third phase, whose sessions reconnect
                              within reconnect_ms */
    int64_t reconnect_ms;
    int64_t seeds, seed;
    struct ek_opt_list policies; /* words; empty: all */
};

extern const struct ek_opt ek_sim_keys[]; /* of struct ek_sim */

/* What the table of keys cannot say. *key: which one is wrong. Adds the default classes
 * and policies where none are named. Errors: EK_EINVAL, EK_ENOMEM. */
int ek_sim_check(struct ek_sim *s, const char **key, struct ek_arena *arena,
                 struct ek_err *err) EK_MUST_USE;

/* Of one run. */
struct ek_sim_result {
    double overloaded[EK_SIM_PHASES]; /* share of session-time at a backend whose demand
                                         is over its cores */
    double peak;                      /* highest demand / cores of a backend */
    double refused;                   /* share of starts */
    double misplaced; /* share of starts placed where the backend itself knew no room
                         while another had some */
};

/* demand / cores of each backend, a sample a second; for pictures. */
struct ek_sim_trace {
    float *at; /* (n_seconds, n_backends) owned; NULL: not asked for */
    size_t n_seconds, n_backends;
};

/* One seed. trace may be NULL. Errors: EK_ENOMEM, EK_ELIMIT (more sessions than a model
 * of this size holds). Cost: about 20 ms a simulated minute of 500 sessions. */
int ek_sim_run(struct ek_sim_result *out, struct ek_sim_trace *trace,
               const struct ek_sim *s, const struct ek_sim_policy *policy,
               uint64_t seed, struct ek_err *err) EK_MUST_USE;
void ek_sim_trace_release(struct ek_sim_trace *trace);

struct ek_sim_mean {
    double mean, error; /* standard error over the seeds */
};

struct ek_sim_row {
    struct ek_sim_policy policy;
    struct ek_sim_mean overloaded[EK_SIM_PHASES], peak, refused, misplaced;
    struct ek_sim_mean ratio[EK_SIM_PHASES]; /* overloaded / the best peer's, paired by
                                                seed */
    double gap[EK_SIM_PHASES]; /* share closed of what lies between the best peer and
                                  the oracle; NAN: one of them was not run */
};

struct ek_sim_table {
    struct ek_sim_row rows[EK_SIM_POLICIES_MAX];
    size_t n_rows;
    int best_peer[EK_SIM_PHASES]; /* row; -1: none was run */
};

/* All policies, all seeds. on_run (may be NULL) is told after each run, 1..n. */
int ek_sim_measure(struct ek_sim_table *t, const struct ek_sim *s,
                   void (*on_run)(void *arg, int64_t n_done, int64_t n_runs), void *arg,
                   struct ek_err *err) EK_MUST_USE;

/* The table as one JSON object, and as text for a terminal. */
int ek_sim_json(struct ek_buf *out, const struct ek_sim *s,
                const struct ek_sim_table *t) EK_MUST_USE;
int ek_sim_text(struct ek_buf *out, const struct ek_sim *s,
                const struct ek_sim_table *t) EK_MUST_USE;

/* Two pictures: bars of overloaded session-time with their errors; demand / cores of
 * every backend over time, a panel a policy. Errors: those of ek_buf_add. */
int ek_sim_svg_bars(struct ek_buf *out, const struct ek_sim_table *t) EK_MUST_USE;
int ek_sim_svg_traces(struct ek_buf *out, const struct ek_sim *s,
                      const struct ek_sim_trace *traces,
                      const struct ek_sim_policy *policies, size_t n) EK_MUST_USE;

#endif
