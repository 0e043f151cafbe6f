/* simulate_run.c - one run: starts, steps, ends, and what is measured of them.
 *
 *   warm-up | steady | + scale_out backends, more starts | - lost backends, reconnects
 *
 * A step: starts that are due, ends, demand of every session, CPU of every backend, the
 * trackers' samples (once a second), reports. */
#include "base/mem.h"
#include "route/simulate_int.h"

#include <assert.h>
#include <math.h>

/* Sums of one phase. */
struct tally {
    double session_s, overloaded_s;
};

struct run {
    struct ek_sim_world w;
    struct tally tally[EK_SIM_PHASES];
    double peak;
    struct ek_sim_trace *trace; /* may be NULL */
    int phase;                  /* -1: warm-up */
};

static int alloc(struct ek_sim_world *w)
{
    w->backends = ek_calloc((size_t)w->n_backends, sizeof *w->backends);
    w->proxies = ek_calloc((size_t)w->s->proxies, sizeof *w->proxies);
    w->sessions = ek_calloc(EK_SIM_SESSIONS, sizeof *w->sessions);
    w->free_slots = ek_calloc(EK_SIM_SESSIONS, sizeof *w->free_slots);
    w->open = ek_calloc(EK_SIM_SESSIONS, sizeof *w->open);
    w->again = ek_calloc(EK_SIM_SESSIONS, sizeof *w->again);
    bool has_all = w->backends && w->proxies && w->sessions && w->free_slots &&
                   w->open && w->again;
    return has_all ? 0 : EK_ENOMEM;
}

static void close_world(struct ek_sim_world *w)
{
    for (int32_t k = 0; w->open && k < w->n_open; k++) {
        struct ek_sim_session *s = &w->sessions[w->open[k]];
        ek_placement_end(&s->placement, w->now_us);
        (void)ek_session_end(&s->tracked);
    }
    for (int64_t k = 0; w->proxies && k < w->s->proxies; k++) {
        ek_pool_free(w->proxies[k].pool);
        ek_free(w->proxies[k].heard);
    }
    for (int32_t i = 0; w->backends && i < w->n_backends; i++)
        ek_tracker_free(w->backends[i].tracker);
    ek_free(w->again);
    ek_free(w->open);
    ek_free(w->free_slots);
    ek_free(w->sessions);
    ek_free(w->proxies);
    ek_free(w->backends);
}

/* Starts a second that make the demand asked for. */
static double rate_of(const struct ek_sim *s, double cores)
{
    const struct ek_sim_class *classes = s->sessions.items;
    double shares = 0, work = 0;
    struct ek_rng rng;
    ek_rng_init(&rng, 1);
    if (s->load <= 0)
        return s->arrivals;
    for (size_t i = 0; i < s->sessions.n; i++) {
        const struct ek_sim_class *c = &classes[i];
        double seconds = 0;
        for (int k = 0; k < 10000; k++)
            seconds += (double)ek_sim_duration_us(c, &rng) / 1e10;
        shares += c->share;
        work += c->share * (seconds * ek_sim_class_mean(c) +
                            c->start_cores * (double)c->start_ms / 1000);
    }
    return s->load * cores * shares / work;
}

static int open_world(struct ek_sim_world *w, const struct ek_sim *s,
                      const struct ek_sim_policy *policy, uint64_t seed)
{
    double cores = 0;
    *w = (struct ek_sim_world){.s = s,
                               .policy = policy,
                               .now_us = EK_SIM_SECOND,
                               .n_backends = (int32_t)(s->backends + s->scale_out)};
    int rc = alloc(w);
    for (int32_t i = 0; !rc && i < w->n_backends; i++) {
        rc = ek_sim_backend_init(&w->backends[i], w, i, seed);
        cores += w->backends[i].is_up ? w->backends[i].cores : 0;
    }
    for (int64_t k = 0; !rc && k < s->proxies; k++)
        rc = ek_sim_proxy_init(&w->proxies[k], w, seed * 131 + (uint64_t)k);
    if (rc)
        return rc;
    for (int32_t i = 0; i < EK_SIM_SESSIONS; i++)
        w->free_slots[i] = EK_SIM_SESSIONS - 1 - i;
    w->n_free = EK_SIM_SESSIONS;
    w->rate = rate_of(s, cores);
    ek_rng_init(&w->arrivals, seed);
    w->next_arrival_us = w->now_us;
    return 0;
}

/* Whether the backend itself would say that it has no room, and another that it has. */
static bool is_misplaced(struct ek_sim_world *w, int32_t chosen)
{
    struct ek_tracker_report r;
    ek_tracker_read(w->backends[chosen].tracker, &r, sizeof r);
    if (r.remaining_sessions >= 1)
        return false;
    for (int32_t i = 0; i < w->n_backends; i++) {
        if (!w->backends[i].is_up)
            continue;
        ek_tracker_read(w->backends[i].tracker, &r, sizeof r);
        if (r.remaining_sessions >= 1)
            return true;
    }
    return false;
}

static int32_t pick(struct ek_sim_world *w, struct ek_sim_session *s)
{
    struct ek_sim_proxy *p = &w->proxies[s->proxy];
    struct ek_pick how = {.now_us = w->now_us, .key = w->n_started, .rng = &p->rng};
    int32_t chosen = -1;
    int rc = EK_EBUSY;
    if (w->policy->rule == EK_SIM_POOL)
        rc = ek_pool_pick(p->pool, &how, &s->placement);
    else if ((chosen = ek_sim_choose(w, p, s)) >= 0)
        rc = ek_pool_pick_at(p->pool, chosen, &how, &s->placement);
    return rc ? -1 : s->placement.backend;
}

/* The session goes to a backend, or nowhere: then it is over. */
static bool place(struct run *r, struct ek_sim_session *s)
{
    struct ek_sim_world *w = &r->w;
    int32_t i = pick(w, s);
    w->n_starts += r->phase >= 0;
    if (i < 0) {
        w->n_refused += r->phase >= 0;
        return false;
    }
    if (r->phase >= 0)
        w->n_misplaced += is_misplaced(w, i);
    struct ek_sim_heard *h = &w->proxies[s->proxy].heard[i];
    struct ek_sim_backend *b = &w->backends[i];
    h->open++;
    h->starts++;
    b->n++;
    b->expected += ek_sim_class_mean(s->class);
    b->variance += ek_sim_class_variance(s->class);
    (void)ek_session_begin(b->tracker, &s->tracked);
    return true;
}

static void leave(struct ek_sim_world *w, struct ek_sim_session *s)
{
    int32_t i = s->placement.backend;
    if (i < 0)
        return;
    struct ek_sim_backend *b = &w->backends[i];
    w->proxies[s->proxy].heard[i].open--;
    b->n--;
    b->expected -= ek_sim_session_expected(s);
    b->variance -= ek_sim_class_variance(s->class);
    (void)ek_session_end(&s->tracked);
    ek_placement_end(&s->placement, w->now_us);
}

static void drop(struct ek_sim_world *w, int32_t slot)
{
    w->sessions[slot].class = NULL;
    w->free_slots[w->n_free++] = slot;
}

static const struct ek_sim_class *draw_class(struct ek_sim_world *w)
{
    const struct ek_sim_class *classes = w->s->sessions.items;
    double sum = 0;
    for (size_t i = 0; i < w->s->sessions.n; i++)
        sum += classes[i].share;
    double left = ek_rng_uniform(&w->arrivals) * sum;
    size_t i = 0;
    while (i + 1 < w->s->sessions.n && (left -= classes[i].share) >= 0)
        i++;
    return &classes[i];
}

static int start_new(struct run *r)
{
    struct ek_sim_world *w = &r->w;
    if (w->n_free == 0)
        return EK_ELIMIT;
    int32_t slot = w->free_slots[--w->n_free];
    struct ek_sim_session *s = &w->sessions[slot];
    const struct ek_sim_class *c = draw_class(w);
    ek_sim_session_begin(w, s, c, ek_rng_u64(&w->arrivals));
    s->proxy = (int32_t)ek_rng_below(&w->arrivals, (uint64_t)w->s->proxies);
    w->n_started++;
    if (place(r, s))
        w->open[w->n_open++] = slot;
    else
        drop(w, slot);
    return 0;
}

static int start_due(struct run *r)
{
    struct ek_sim_world *w = &r->w;
    int64_t step_end = w->now_us;
    int rc = 0;
    while (!rc && w->next_arrival_us <= step_end) {
        w->now_us = w->next_arrival_us;
        rc = start_new(r);
        double gap = -log(1 - ek_rng_uniform(&w->arrivals)) / w->rate;
        w->next_arrival_us += (int64_t)fmin(gap * 1e6, 1e15) + 1; /* 30 years */
    }
    w->now_us = step_end;
    for (int32_t k = 0; k < w->n_again;) {
        if (w->again[k].at_us > w->now_us) {
            k++;
            continue;
        }
        int32_t slot = w->again[k].session;
        w->again[k] = w->again[--w->n_again];
        struct ek_sim_session *s = &w->sessions[slot];
        assert(s->class); /* it is between two hosts, and so not dropped */
        s->start_end_us = w->now_us + 1000 * s->class->start_ms;
        if (place(r, s))
            w->open[w->n_open++] = slot;
        else
            drop(w, slot);
    }
    return rc;
}

static void end_and_sum(struct ek_sim_world *w)
{
    for (int32_t i = 0; i < w->n_backends; i++)
        w->backends[i].demand = w->backends[i].expected = 0;
    for (int32_t k = 0; k < w->n_open;) {
        struct ek_sim_session *s = &w->sessions[w->open[k]];
        if (w->now_us >= s->end_us) {
            leave(w, s);
            drop(w, w->open[k]);
            w->open[k] = w->open[--w->n_open];
            continue;
        }
        struct ek_sim_backend *b = &w->backends[s->placement.backend];
        b->demand += ek_sim_session_demand(w, s);
        b->expected += ek_sim_session_expected(s);
        k++;
    }
}

static void step_backends(struct run *r)
{
    struct ek_sim_world *w = &r->w;
    bool is_second = w->now_us % EK_SIM_SECOND == 0;
    for (int32_t i = 0; i < w->n_backends; i++) {
        struct ek_sim_backend *b = &w->backends[i];
        ek_sim_backend_step(b);
        if (is_second)
            (void)ek_tracker_sample(b->tracker);
        if (!b->is_up || r->phase < 0)
            continue;
        double share = (b->demand + ek_sim_backend_noise(b)) / b->cores;
        double seconds = b->n * (double)EK_SIM_STEP_US / 1e6;
        r->tally[r->phase].session_s += seconds;
        r->tally[r->phase].overloaded_s += share > 1 ? seconds : 0;
        r->peak = fmax(r->peak, share);
    }
    for (int64_t k = 0; k < w->s->proxies; k++) {
        for (int32_t i = 0; i < w->n_backends; i++)
            w->proxies[k].heard[i].starts *= exp(-(double)EK_SIM_STEP_US / 10e6);
    }
}

static void set_up(struct ek_sim_world *w, int32_t i, bool is_up)
{
    w->backends[i].is_up = is_up;
    for (int64_t k = 0; k < w->s->proxies; k++)
        ek_pool_set_up(w->proxies[k].pool, i, is_up, w->now_us);
}

/* The last of those there at the start go, their sessions come again. */
static void lose_hosts(struct ek_sim_world *w)
{
    const struct ek_sim *s = w->s;
    for (int64_t k = 0; k < s->lost; k++)
        set_up(w, (int32_t)(s->backends - 1 - k), false);
    for (int32_t k = 0; k < w->n_open;) {
        struct ek_sim_session *x = &w->sessions[w->open[k]];
        if (w->backends[x->placement.backend].is_up) {
            k++;
            continue;
        }
        leave(w, x);
        double wait = ek_rng_uniform(&x->rng) * 1000 * (double)s->reconnect_ms;
        w->again[w->n_again++] =
            (struct ek_sim_start){w->now_us + (int64_t)wait, w->open[k]};
        w->open[k] = w->open[--w->n_open];
    }
}

static void enter_phase(struct run *r, int phase)
{
    struct ek_sim_world *w = &r->w;
    r->phase = phase;
    if (phase == 1) {
        for (int64_t k = 0; k < w->s->scale_out; k++)
            set_up(w, (int32_t)(w->s->backends + k), true);
        w->rate *= w->s->scale_out_load;
    } else if (phase == 2) {
        lose_hosts(w);
    }
}

static void draw(struct run *r)
{
    const struct ek_sim_world *w = &r->w;
    struct ek_sim_trace *t = r->trace;
    int64_t second = (w->now_us - 1000 * w->s->warmup_ms) / EK_SIM_SECOND;
    if (!t || r->phase < 0 || w->now_us % EK_SIM_SECOND || second < 0 ||
        (size_t)second >= t->n_seconds)
        return;
    for (int32_t i = 0; i < w->n_backends; i++) {
        const struct ek_sim_backend *b = &w->backends[i];
        t->at[(size_t)second * t->n_backends + (size_t)i] =
            b->is_up ? (float)((b->demand + ek_sim_backend_noise(b)) / b->cores) : -1;
    }
}

static int steps(struct run *r)
{
    struct ek_sim_world *w = &r->w;
    const struct ek_sim *s = w->s;
    int64_t end = 1000 * (s->warmup_ms + EK_SIM_PHASES * s->phase_ms);
    int rc = 0;
    while (!rc && w->now_us + EK_SIM_STEP_US <= end) {
        w->now_us += EK_SIM_STEP_US;
        int64_t measured = w->now_us - 1000 * s->warmup_ms;
        int phase = measured <= 0 ? -1 : (int)((measured - 1) / (1000 * s->phase_ms));
        if (phase != r->phase)
            enter_phase(r, phase);
        rc = start_due(r);
        end_and_sum(w);
        step_backends(r);
        for (int64_t k = 0; k < s->proxies; k++)
            ek_sim_proxy_reports(&w->proxies[k], w);
        draw(r);
    }
    return rc;
}

void ek_sim_trace_release(struct ek_sim_trace *trace)
{
    ek_free(trace->at);
    *trace = (struct ek_sim_trace){NULL, 0, 0};
}

static int open_trace(struct ek_sim_trace *t, const struct ek_sim *s)
{
    t->n_seconds = (size_t)(EK_SIM_PHASES * s->phase_ms / 1000);
    t->n_backends = (size_t)(s->backends + s->scale_out);
    size_t n;
    t->at = ek_mul_size(&n, t->n_seconds, t->n_backends) ? ek_calloc(n, sizeof *t->at)
                                                         : NULL;
    return t->at ? 0 : EK_ENOMEM;
}

int ek_sim_run(struct ek_sim_result *out, struct ek_sim_trace *trace,
               const struct ek_sim *s, const struct ek_sim_policy *policy,
               uint64_t seed, struct ek_err *err)
{
    struct run r = {.phase = -1, .trace = trace};
    int rc = open_world(&r.w, s, policy, seed);
    if (!rc && trace)
        rc = open_trace(trace, s);
    if (!rc)
        rc = steps(&r);
    if (!rc) {
        double starts = fmax((double)r.w.n_starts, 1);
        for (int k = 0; k < EK_SIM_PHASES; k++)
            out->overloaded[k] =
                r.tally[k].overloaded_s / fmax(r.tally[k].session_s, 1e-9);
        out->peak = r.peak;
        out->refused = (double)r.w.n_refused / starts;
        out->misplaced = (double)r.w.n_misplaced / starts;
    }
    close_world(&r.w);
    if (rc && trace)
        ek_sim_trace_release(trace);
    if (rc == EK_ELIMIT)
        return ek_err_set(err, rc, "over %d sessions are open at once, expected fewer",
                          EK_SIM_SESSIONS);
    return rc ? ek_err_set(err, rc, "%s", ek_status_text(rc)) : 0;
}
