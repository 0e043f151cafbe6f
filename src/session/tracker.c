/* tracker.c - one tracker: its life and its sessions. */
#include "base/clock.h"
#include "base/mem.h"
#include "session/tracker_int.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static_assert((int)EK_SESSION_ENOMEM == EK_ENOMEM, "the header's codes are ours");
static_assert((int)EK_SESSION_EINVAL == EK_EINVAL, "the header's codes are ours");
static_assert((int)EK_SESSION_ESPACE == EK_ELIMIT, "the header's codes are ours");
static_assert((int)EK_SESSION_EIO == EK_EIO, "the header's codes are ours");
static_assert((int)EK_SESSION_EFULL == EK_EBUSY, "the header's codes are ours");
static_assert(EK_SESSION_TABLE_MAX == EK_SLOTS_MAX, "as many as the table takes");

#define LATE_CHECK_US 1000000 /* at most so often a refused begin looks for late ones */

const char *ek_tracker_version(void)
{
    return EK_VERSION;
}

const char *ek_session_status_text(int status)
{
    switch (status) {
    case EK_SESSION_ESPACE:
        return "too little space";
    case EK_SESSION_EFULL:
        return "no room for a session";
    default:
        return ek_status_text(status);
    }
}

/* The clock of sessions: the same to 4 ms, at a third of the price. */
static int64_t coarse_us(const struct ek_tracker *t)
{
    return t->o.now_us ? t->o.now_us(t->o.arg) : ek_clock_coarse_us();
}

/* ---- Sessions ---- */

static int64_t deadline_from(int64_t now, int64_t us)
{
    int64_t sum;
    return __builtin_add_overflow(now, us, &sum) ? INT64_MAX : sum;
}

/* Nobody reads reports, and forgotten sessions fill the limit: look for them. */
static bool end_late(struct ek_tracker *t, int64_t now)
{
    if (pthread_mutex_trylock(&t->lock))
        return false; /* somebody is about to */
    int64_t before = t->expired_total;
    if (now - t->swept_us >= LATE_CHECK_US)
        ek_tracker_sweep(t, now);
    bool has_ended = t->expired_total != before;
    pthread_mutex_unlock(&t->lock);
    return has_ended;
}

int ek_session_begin(struct ek_tracker *t, struct ek_session *s)
{
    int64_t now = coarse_us(t), deadline = deadline_from(now, t->o.deadline_us);
    s->tracker = t;
    s->id = ek_slots_take(t->slots, now, deadline);
    if (!s->id && end_late(t, now))
        s->id = ek_slots_take(t->slots, now, deadline);
    if (s->id)
        return 0;
    ek_slots_note_refusal(t->slots);
    return EK_SESSION_EFULL;
}

bool ek_session_end(const struct ek_session *s)
{
    return s->id && ek_slots_give(s->tracker->slots, s->id);
}

bool ek_session_extend(const struct ek_session *s, int64_t us)
{
    return s->id && us > 0 &&
           ek_slots_set_deadline(s->tracker->slots, s->id,
                                 deadline_from(coarse_us(s->tracker), us));
}

bool ek_session_is_open(const struct ek_session *s)
{
    return s->id && ek_slots_is_open(s->tracker->slots, s->id);
}

static void apply_limit(struct ek_tracker *t)
{
    ek_slots_set_limit(t->slots, t->is_draining ? 0 : t->limit);
}

int ek_tracker_set_limit(struct ek_tracker *t, int32_t max_sessions)
{
    if (max_sessions < 0 || max_sessions > t->o.table_sessions)
        return EK_SESSION_EINVAL;
    pthread_mutex_lock(&t->lock);
    t->limit = max_sessions ? max_sessions : t->o.table_sessions;
    apply_limit(t);
    pthread_mutex_unlock(&t->lock);
    return 0;
}

void ek_tracker_drain(struct ek_tracker *t, bool is_on)
{
    pthread_mutex_lock(&t->lock);
    t->was_drained |= t->is_draining && !is_on;
    t->is_draining = is_on;
    apply_limit(t);
    pthread_mutex_unlock(&t->lock);
}

/* ---- Life ---- */

static void *sampler(void *arg)
{
    struct ek_tracker *t = arg;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    pthread_mutex_lock(&t->lock);
    while (!t->is_over) {
        int64_t ns = until.tv_nsec + t->o.thread_us % 1000000 * 1000;
        until.tv_sec += t->o.thread_us / 1000000 + ns / 1000000000;
        until.tv_nsec = ns % 1000000000;
        while (!t->is_over && !pthread_cond_timedwait(&t->wake, &t->lock, &until)) {
        }
        (void)ek_tracker_update(t, ek_tracker_now_us(t), 0);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* What `cpu` means on this machine. */
static int find_cgroup(struct ek_tracker *t, char *why, size_t why_size)
{
    int64_t used;
    if (t->o.cgroup_dir)
        snprintf(t->cgroup, sizeof t->cgroup, "%s", t->o.cgroup_dir);
    else if (ek_cgroup_find(t->cgroup, sizeof t->cgroup, t->proc))
        t->cgroup[0] = 0;
    bool has_usage = t->cgroup[0] && !ek_cgroup_used(t->cgroup, &used);
    t->counts_cgroup =
        has_usage &&
        (t->o.cpu == EK_TRACKER_CPU_CGROUP ||
         (t->o.cpu == EK_TRACKER_CPU_AUTO && isfinite(ek_cgroup_quota(t->cgroup))));
    if (t->o.cpu != EK_TRACKER_CPU_CGROUP || t->counts_cgroup || t->o.cpu_us)
        return 0;
    if (why && why_size)
        snprintf(why, why_size, "cpu: %s has no cpu.stat with usage_usec (cgroup v2)",
                 t->cgroup[0] ? t->cgroup : "this process has no cgroup v2: it");
    return EK_EIO;
}

static void copy_options(struct ek_tracker *t, const struct ek_tracker_options *o)
{
    t->o = *o;
    snprintf(t->proc, sizeof t->proc, "%s", o->proc_dir ? o->proc_dir : "/proc");
    for (int i = 0; i < EK_ORCA_N_NAMES; i++) {
        const char *name = o->orca_names[i];
        snprintf(t->orca[i], sizeof t->orca[i], "%s",
                 name ? name : ek_orca_default_name((enum ek_tracker_orca_name)i));
    }
    t->limit = o->max_sessions ? o->max_sessions : o->table_sessions;
    t->base = fmax(o->base_cores, 0);
    t->idle_us = INT64_MAX;
    bool is_mean = o->smoothing == EK_TRACKER_MEAN;
    ek_smooth_init(&t->own, is_mean, o->window_us);
    ek_smooth_init(&t->host, is_mean, o->window_us);
    ek_smooth_init(&t->sessions, is_mean, o->window_us);
}

static void init_lock(struct ek_tracker *t)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&t->wake, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&t->lock, NULL);
}

/* The first sample, and the thread if it is wanted. */
static int start(struct ek_tracker *t, char *why, size_t why_size)
{
    int rc = ek_tracker_update(t, ek_tracker_now_us(t), 0);
    if (rc) {
        if (why && why_size)
            snprintf(why, why_size, "the CPU used so far cannot be read");
        return rc;
    }
    if (t->o.thread_us > 0) {
        t->has_thread = !pthread_create(&t->thread, NULL, sampler, t);
        if (!t->has_thread) {
            if (why && why_size)
                snprintf(why, why_size, "no thread could be started");
            return EK_EIO;
        }
    }
    return 0;
}

int ek_tracker_new(struct ek_tracker **out, const struct ek_tracker_options *options,
                   char *why, size_t why_size)
{
    struct ek_tracker_options taken;
    const struct ek_tracker_options *o = &taken;
    int rc = ek_tracker_take_options(&taken, options, why, why_size);
    if (rc)
        return rc;
    struct ek_tracker *t = ek_calloc(1, sizeof *t);
    if (t) {
        init_lock(t);
        copy_options(t, o);
        rc = ek_slots_new(&t->slots, o->table_sessions);
    }
    if (!t || rc) {
        if (why && why_size)
            snprintf(why, why_size, "no memory for a tracker of %d sessions",
                     o->table_sessions);
        ek_tracker_free(t);
        return EK_SESSION_ENOMEM;
    }
    apply_limit(t);
    rc = find_cgroup(t, why, why_size);
    if (!rc)
        rc = start(t, why, why_size);
    if (rc) {
        ek_tracker_free(t);
        return rc;
    }
    *out = t;
    return 0;
}

void ek_tracker_free(struct ek_tracker *t)
{
    if (!t)
        return;
    if (t->has_thread) {
        pthread_mutex_lock(&t->lock);
        t->is_over = true;
        pthread_cond_signal(&t->wake);
        pthread_mutex_unlock(&t->lock);
        pthread_join(t->thread, NULL);
    }
    ek_slots_free(t->slots);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
    ek_free(t);
}
