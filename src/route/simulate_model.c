/* simulate_model.c - what is modelled: a session's life, a backend's CPU, the network
 * between a backend and a proxy. */
#include "base/mem.h"
#include "route/report.h"
#include "route/simulate_int.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

#define HORIZON_MS 20000.0 /* what the oracle looks at: most of a session's life */

double ek_sim_class_mean(const struct ek_sim_class *c)
{
    return c->cores * c->duty;
}

double ek_sim_class_variance(const struct ek_sim_class *c)
{
    return c->cores * c->cores * c->duty * (1 - c->duty);
}

static int64_t exponential_us(struct ek_rng *rng, double mean_us)
{
    return (int64_t)(-mean_us * log(1 - ek_rng_uniform(rng))) + 1;
}

int64_t ek_sim_duration_us(const struct ek_sim_class *c, struct ek_rng *rng)
{
    double ms = (double)c->duration_ms * exp(c->sigma * ek_rng_normal(rng));
    return (int64_t)(1000 * fmin(ms, (double)c->duration_max_ms)) + 1;
}

static int64_t spell_us(const struct ek_sim_session *s, struct ek_rng *rng)
{
    const struct ek_sim_class *c = s->class;
    double on = 1000 * (double)c->on_ms;
    return exponential_us(rng, s->is_on ? on : on * (1 - c->duty) / c->duty);
}

void ek_sim_session_begin(const struct ek_sim_world *w, struct ek_sim_session *s,
                          const struct ek_sim_class *c, uint64_t seed)
{
    *s = (struct ek_sim_session){.class = c, .placement = {.backend = -1}};
    ek_rng_init(&s->rng, seed);
    s->end_us = w->now_us + ek_sim_duration_us(c, &s->rng);
    s->start_end_us = w->now_us + 1000 * c->start_ms;
    s->is_on = ek_rng_uniform(&s->rng) < c->duty;
    s->toggle_us = INT64_MAX;
    if (c->speak_at_ms > 0) {
        s->is_on = false;
        s->toggle_us = 1000 * (w->s->warmup_ms + c->speak_at_ms);
    } else if (c->duty < 1 && c->duty > 0) {
        s->toggle_us = w->now_us + spell_us(s, &s->rng);
    }
}

double ek_sim_session_demand(struct ek_sim_world *w, struct ek_sim_session *s)
{
    while (w->now_us >= s->toggle_us) {
        s->is_on = !s->is_on;
        if (s->class->speak_at_ms > 0)
            s->toggle_us = INT64_MAX;
        else
            s->toggle_us += spell_us(s, &s->rng);
    }
    double start = w->now_us < s->start_end_us ? s->class->start_cores : 0;
    return start + (s->is_on ? s->class->cores : 0);
}

/* An on-off process forgets with time constant on * off / (on + off) = on * (1 -
 * duty). */
double ek_sim_session_expected(const struct ek_sim_session *s)
{
    const struct ek_sim_class *c = s->class;
    double mean = ek_sim_class_mean(c), now = s->is_on ? c->cores : 0;
    double share = (double)c->on_ms * (1 - c->duty) / HORIZON_MS;
    double weight = share > 0 ? share * (1 - exp(-1 / share)) : 0;
    return mean + weight * (now - mean);
}

static int64_t tracker_now(void *arg)
{
    return ((struct ek_sim_backend *)arg)->world->now_us;
}

static int tracker_cpu(void *arg, int64_t *us)
{
    *us = ((struct ek_sim_backend *)arg)->cpu_us;
    return 0;
}

int ek_sim_backend_init(struct ek_sim_backend *b, const struct ek_sim_world *w,
                        int32_t i, uint64_t seed)
{
    const struct ek_sim *s = w->s;
    struct ek_tracker_options o;
    /* Large ones spread among the others; those that come later alike. */
    bool is_large = floor((i + 1) * s->large_share) > floor(i * s->large_share);
    *b = (struct ek_sim_backend){.cores = is_large ? s->large_cores : s->cores,
                                 .is_up = i < s->backends,
                                 .world = w,
                                 .is_noisy = i < s->noisy};
    ek_rng_init(&b->noise, seed + 1000003 * (uint64_t)(i + 1));
    ek_tracker_options_init(&o, sizeof o);
    o.table_sessions = EK_SIM_SESSIONS;
    o.deadline_us = INT64_C(86400) * EK_SIM_SECOND;
    o.sample_us = 0;
    o.cores = b->cores;
    o.base_cores = 0;
    o.prior_cost = s->prior_cost;
    o.safety_factor = s->factor > 0 ? s->factor : EK_FACTOR_AUTO;
    o.now_us = tracker_now;
    o.cpu_us = tracker_cpu;
    o.arg = b;
    return ek_tracker_new(&b->tracker, &o, NULL, 0) ? EK_ENOMEM : 0;
}

double ek_sim_backend_noise(const struct ek_sim_backend *b)
{
    return b->has_noise ? b->world->s->noise_cores : 0;
}

/* Neighbours' CPU counts as used: the tracker takes the host's into account. What is
 * wanted beyond the cores is not done. */
void ek_sim_backend_step(struct ek_sim_backend *b)
{
    int64_t now = b->world->now_us;
    while (b->is_noisy && now >= b->noise_until_us) {
        b->has_noise = !b->has_noise;
        b->noise_until_us += exponential_us(&b->noise, 60e6);
    }
    double used = fmin(b->demand + ek_sim_backend_noise(b), b->cores);
    b->cpu_us += (int64_t)(used * EK_SIM_STEP_US);
}

int ek_sim_proxy_init(struct ek_sim_proxy *p, const struct ek_sim_world *w,
                      uint64_t seed)
{
    const struct ek_sim *s = w->s;
    struct ek_pool_options o;
    ek_rng_init(&p->rng, seed ^ 0x5eed);
    ek_rng_init(&p->net, seed ^ 0x0e7);
    ek_pool_options_default(&o);
    o.policy = w->policy->pool;
    o.max_backends = w->n_backends;
    o.n_explained = 0;
    o.interval_us = 1000 * s->interval_ms;
    o.expiry_us = 5 * o.interval_us > o.expiry_us ? 5 * o.interval_us : o.expiry_us;
    bool refuses = s->admission && w->policy->rule == EK_SIM_POOL &&
                   w->policy->pool == EK_POLICY_EFFECTIVE_CAPACITY;
    o.admission = refuses ? EK_ADMIT_CAPACITY : EK_ADMIT_LIMIT;
    p->heard = ek_calloc((size_t)w->n_backends, sizeof *p->heard);
    int rc = p->heard ? ek_pool_new(&p->pool, &o) : EK_ENOMEM;
    for (int32_t i = 0; !rc && i < w->n_backends; i++) {
        char name[16];
        int32_t at;
        snprintf(name, sizeof name, "b%d", i);
        struct ek_backend_spec spec = {name, name, w->backends[i].cores,
                                       w->backends[i].cores, 0};
        rc = ek_pool_add(p->pool, &at, &spec, w->now_us);
        if (rc)
            break;
        assert(at == i);
        ek_pool_set_up(p->pool, i, w->backends[i].is_up, w->now_us);
        /* Proxies do not ask in step. */
        p->heard[i].next_us =
            w->now_us + (int64_t)ek_rng_below(&p->net, (uint64_t)o.interval_us);
        p->heard[i].cpu = -1;
        p->heard[i].agent = 1;
    }
    return rc;
}

static void hear(struct ek_sim_proxy *p, struct ek_sim_world *w, int32_t i,
                 const struct ek_sim_late *late)
{
    const struct ek_load_report *r = &late->report;
    p->heard[i].agent = late->agent;
    p->heard[i].cpu = r->cpu_utilization;
    p->heard[i].utilization = r->application_utilization;
    p->heard[i].rps = r->rps;
    int rc = ek_pool_report(p->pool, i, r, w->now_us);
    assert(!rc);
    (void)rc;
}

/* The line that HAProxy would be told, read as it reads it. */
static double agent_share(struct ek_sim_backend *b)
{
    char line[EK_TRACKER_ENCODED_MAX];
    size_t n = 0;
    struct ek_load_report r = {.weight = 1};
    int rc = ek_tracker_encode(b->tracker, EK_TRACKER_AGENT, line, sizeof line, &n);
    rc = rc ? rc : ek_report_agent(&r, line, n);
    assert(!rc);
    (void)rc;
    return r.weight;
}

static struct ek_load_report say(struct ek_sim_backend *b)
{
    struct ek_tracker_report t;
    ek_tracker_read(b->tracker, &t, sizeof t);
    return (struct ek_load_report){
        .has = EK_LOAD_CPU | EK_LOAD_APPLICATION | EK_LOAD_RPS | EK_LOAD_ACTIVE |
               EK_LOAD_YOUNG | EK_LOAD_YOUNG_WEIGHT | EK_LOAD_COST | EK_LOAD_CAPACITY |
               EK_LOAD_REMAINING | EK_LOAD_FACTOR | EK_LOAD_CORES | EK_LOAD_VARIATION |
               EK_LOAD_WINDOW,
        .cpu_utilization = t.cpu_utilization,
        .application_utilization = t.utilization,
        .rps = (double)t.active_sessions,
        .active_sessions = (double)t.active_sessions,
        .young_sessions = (double)t.young_sessions,
        .young_weight = t.young_weight,
        .window_s = (double)t.window_us / 1e6,
        .session_cost = t.session_cost,
        .effective_capacity = t.effective_capacity,
        .remaining_sessions = t.remaining_sessions,
        .safety_factor = t.safety_factor,
        .variation = t.variation,
        .cores = t.cores,
    };
}

/* A full line drops the report: the network is worse than what is told. */
static void send(struct ek_sim_heard *h, const struct ek_sim_late *late)
{
    for (int k = 0; k < EK_SIM_LATE; k++) {
        if (h->late[k].due_us == 0) {
            h->late[k] = *late;
            return;
        }
    }
}

void ek_sim_proxy_reports(struct ek_sim_proxy *p, struct ek_sim_world *w)
{
    const struct ek_sim *s = w->s;
    for (int32_t i = 0; i < w->n_backends; i++) {
        struct ek_sim_heard *h = &p->heard[i];
        if (w->now_us >= h->next_us) {
            h->next_us += 1000 * s->interval_ms;
            bool is_lost = ek_rng_uniform(&p->net) < s->loss;
            if (w->backends[i].is_up && !is_lost) {
                struct ek_sim_late late = {.due_us = w->now_us + 1000 * s->delay_ms,
                                           .report = say(&w->backends[i]),
                                           .agent = 1};
                if (w->policy->rule == EK_SIM_AGENT_CAPACITY)
                    late.agent = agent_share(&w->backends[i]);
                send(h, &late);
            }
        }
        for (int k = 0; k < EK_SIM_LATE; k++) {
            if (h->late[k].due_us > 0 && w->now_us >= h->late[k].due_us) {
                h->late[k].due_us = 0;
                if (w->backends[i].is_up)
                    hear(p, w, i, &h->late[k]);
            }
        }
    }
}
