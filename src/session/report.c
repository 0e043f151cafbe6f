/* report.c - the figures of one moment. */
#include "session/tracker_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double cpu_now(const struct ek_tracker *t)
{
    double own = ek_smooth_value(&t->own);
    if (!t->o.uses_host || t->host_cores <= 0)
        return own;
    /* What is left is the lesser of our own room and the machine's. */
    double left = t->host_cores - ek_smooth_value(&t->host);
    return fmax(own, t->cores - fmax(left, 0));
}

static void bind_if_least(struct ek_tracker_report *r, double capacity,
                          const char *name)
{
    if (capacity >= r->effective_capacity)
        return;
    r->effective_capacity = fmax(capacity, 0);
    snprintf(r->binding, sizeof r->binding, "%s", name);
}

static void fill_cpu(const struct ek_tracker *t, struct ek_tracker_report *r, double n)
{
    r->cores = t->cores;
    r->own_cores = ek_smooth_value(&t->own);
    r->cpu_cores = cpu_now(t);
    r->base_cores = t->base;
    r->mean_sessions = ek_smooth_value(&t->sessions);
    r->cpu_utilization = r->cpu_cores / r->cores;
    r->variation = ek_variation_cv(&t->variation);
    r->safety_factor = t->o.safety_factor;
    if (t->o.safety_factor == EK_FACTOR_AUTO)
        r->safety_factor = ek_capacity_factor(t->o.z, r->variation, n);
    struct ek_capacity_resource cpu = {
        .used = r->cpu_cores,
        .total = r->cores,
        .target = t->o.target,
        .base = r->base_cores,
        .sessions = r->mean_sessions,
        .prior_cost = t->o.prior_cost,
        .prior_weight = t->o.prior_weight,
        .factor = r->safety_factor,
    };
    struct ek_capacity_cost c = ek_capacity_of(&cpu, n);
    r->session_cost = c.cost;
    if (t->o.cpu != EK_TRACKER_CPU_NONE)
        bind_if_least(r, c.capacity, "cpu");
}

static void fill_resource(const struct ek_tracker *t, struct ek_snapshot *s, int32_t i,
                          double n)
{
    const struct ek_resource *x = &t->resources[i];
    struct ek_capacity_resource in = {
        .used = x->used,
        .total = x->total,
        .target = x->o.target,
        .base = x->o.base,
        .sessions = n,
        .prior_cost = x->o.prior_cost,
        .prior_weight = t->o.prior_weight,
        .factor = x->o.safety_factor > 0 ? x->o.safety_factor : s->r.safety_factor,
    };
    struct ek_capacity_cost c = ek_capacity_of(&in, n);
    s->names[i] = x->name;
    s->resources[i] = (struct ek_resource_report){
        .used = x->used,
        .total = x->total,
        .session_cost = c.cost,
        .capacity = fmin(fmax(c.capacity, 0), (double)s->r.session_limit),
    };
    bind_if_least(&s->r, c.capacity, x->name);
}

static void fill(struct ek_tracker *t, struct ek_snapshot *s, int64_t now)
{
    struct ek_tracker_report *r = &s->r;
    double n = t->n_open;
    r->now_us = now;
    r->age_us = t->has_sample ? now - t->sampled_us : INT64_MAX;
    r->active_sessions = (int64_t)n;
    r->young_sessions = t->n_young;
    r->session_limit = t->is_draining ? 0 : t->limit;
    r->begun_total = t->begun_total;
    r->expired_total = t->expired_total;
    r->refused_total = (int64_t)ek_slots_refusals(t->slots);
    r->window_us = t->o.window_us;
    r->smoothing = t->o.smoothing;
    r->young_weight = ek_smooth_young_weight(&t->own);
    r->is_draining = t->is_draining;
    s->was_drained = t->was_drained;
    r->effective_capacity = (double)INFINITY;
    bind_if_least(r, (double)r->session_limit, "sessions");
    fill_cpu(t, r, n);
    s->n_resources = t->n_resources;
    for (int32_t i = 0; i < t->n_resources; i++)
        fill_resource(t, s, i, n);
    r->remaining_sessions = r->effective_capacity - n;
    r->utilization = ek_capacity_utilization(r->effective_capacity, n);
}

void ek_tracker_snapshot(struct ek_tracker *t, struct ek_snapshot *s)
{
    memset(s, 0, sizeof *s);
    pthread_mutex_lock(&t->lock);
    int64_t now = ek_tracker_now_us(t);
    /* A sample that fails shows as age_us, which grows. */
    (void)ek_tracker_update(t, now, t->o.sample_us);
    fill(t, s, now);
    pthread_mutex_unlock(&t->lock);
}

static void copy_sized(void *to, size_t to_size, const void *from, size_t from_size)
{
    size_t n = to_size < from_size ? to_size : from_size;
    memcpy(to, from, n);
    memset((char *)to + n, 0, to_size - n);
}

void ek_tracker_read(struct ek_tracker *t, struct ek_tracker_report *r, size_t size)
{
    struct ek_snapshot s;
    ek_tracker_snapshot(t, &s);
    copy_sized(r, size, &s.r, sizeof s.r);
}

int ek_tracker_read_resource(struct ek_tracker *t, int id, struct ek_resource_report *r,
                             size_t size)
{
    struct ek_snapshot s;
    ek_tracker_snapshot(t, &s);
    if (id < 0 || id >= s.n_resources)
        return EK_SESSION_EINVAL;
    copy_sized(r, size, &s.resources[id], sizeof s.resources[id]);
    return 0;
}
