/* sample.c - what a tracker learns each time it looks: late sessions, begins, CPU. */
#include "base/clock.h"
#include "session/tracker_int.h"

#include <math.h>

int64_t ek_tracker_now_us(const struct ek_tracker *t)
{
    return t->o.now_us ? t->o.now_us(t->o.arg) : ek_clock_us();
}

void ek_tracker_sweep(struct ek_tracker *t, int64_t now)
{
    t->expired_total +=
        ek_slots_sweep(t->slots, now, now - t->o.window_us, &t->n_young);
    t->swept_us = now;
}

/* CPU used so far, and the cores there are. */
static int read_cpu(struct ek_tracker *t, int64_t *used)
{
    t->cores = t->o.cores;
    if (t->cores <= 0) {
        t->cores = ek_cpu_affinity();
        if (t->cgroup[0])
            t->cores = fmin(t->cores, ek_cgroup_quota(t->cgroup));
    }
    if (t->o.cpu_us)
        return t->o.cpu_us(t->o.arg, used) ? EK_EIO : 0;
    return t->counts_cgroup ? ek_cgroup_used(t->cgroup, used) : ek_cpu_used(used);
}

/* What a session's CPU varies by, and the CPU without any. */
static void learn(struct ek_tracker *t, int64_t now, double used, double n)
{
    double dt = (double)(now - t->sampled_us), n_mean = (n + t->n_last) / 2;
    if (n_mean >= 0.5) {
        double load = fmax(0, (used - t->used_us) / dt - t->base);
        ek_variation_add(&t->variation, now - t->sampled_us, n_mean, load / n_mean);
    }
    if (t->o.base_cores < 0 && t->idle_us <= now - t->o.window_us)
        t->base = (used - t->idle_used_us) / (double)(now - t->idle_us);
}

/* begun_total grows by what the slots' count did: it goes around after 2^28. */
static double count(struct ek_tracker *t)
{
    int32_t n;
    uint32_t takes;
    ek_slots_count(t->slots, &n, &takes);
    if (n > 0 || takes != t->takes)
        t->idle_us = INT64_MAX;
    t->begun_total += (takes - t->takes) & EK_SLOTS_TAKES_MASK;
    t->takes = takes;
    t->n_open = n;
    return n;
}

static int sample(struct ek_tracker *t, int64_t now, double n)
{
    int64_t used, busy;
    int rc = read_cpu(t, &used);
    if (rc || (t->has_sample && now <= t->sampled_us))
        return rc;
    if (t->o.uses_host && !ek_cpu_host(t->proc, &busy, &t->host_cores))
        ek_smooth_add(&t->host, now, (double)busy);
    if (t->has_sample)
        t->served_us += (n + t->n_last) / 2 * (double)(now - t->sampled_us);
    ek_smooth_add(&t->sessions, now, t->served_us);
    ek_smooth_add(&t->own, now, (double)used);
    if (n == 0 && t->idle_us == INT64_MAX) {
        t->idle_us = now;
        t->idle_used_us = (double)used;
    }
    if (t->has_sample)
        learn(t, now, (double)used, n);
    t->n_last = n;
    t->used_us = (double)used;
    t->sampled_us = now;
    t->has_sample = true;
    return 0;
}

int ek_tracker_update(struct ek_tracker *t, int64_t now, int64_t sample_us)
{
    ek_tracker_sweep(t, now);
    double n = count(t);
    bool is_due = !t->has_sample || now - t->sampled_us >= sample_us;
    return is_due ? sample(t, now, n) : 0;
}

int ek_tracker_sample(struct ek_tracker *t)
{
    pthread_mutex_lock(&t->lock);
    int rc = ek_tracker_update(t, ek_tracker_now_us(t), 0);
    pthread_mutex_unlock(&t->lock);
    return rc;
}
