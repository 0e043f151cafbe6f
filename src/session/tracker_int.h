/* tracker_int.h - the inside of a tracker: tracker.c owns it, options.c checks what it
 * is made from, sample.c looks, report.c computes, encode.c and orca.c write.
 */
#ifndef EVENKEEL_SESSION_TRACKER_INT_H
#define EVENKEEL_SESSION_TRACKER_INT_H

#include "base/slots.h"
#include "session/capacity.h"
#include "session/cpu.h"
#include "session/smooth.h"

#include <evenkeel/session.h>
#include <pthread.h>

#define EK_ORCA_NAME_MAX 64

struct ek_resource {
    char name[EK_RESOURCE_NAME_MAX + 1];
    struct ek_resource_options o; /* its name is not used */
    double used, total;
};

/* `slots`, and `o` as far as begin needs it, are any thread's; the rest is `lock`'s. */
struct ek_tracker {
    struct ek_slots *slots;
    struct ek_tracker_options
        o; /* as given, strings are below; never written after new */
    char cgroup[EK_CGROUP_PATH_MAX]; /* "": none */
    char proc[EK_CGROUP_PATH_MAX];
    char orca[EK_ORCA_N_NAMES][EK_ORCA_NAME_MAX + 1]; /* "": left out */
    bool counts_cgroup;                               /* CPU is the cgroup's */

    pthread_mutex_t lock; /* all below; begin tries it only at the limit */
    pthread_cond_t wake;  /* of the thread, with lock: is_over */
    pthread_t thread;
    bool has_thread, is_over;
    int32_t limit; /* while not draining */
    bool is_draining, was_drained;
    int64_t sampled_us; /* of the latest sample of CPU */
    bool has_sample;
    int64_t swept_us;
    int64_t idle_us;     /* without a session since then; INT64_MAX: not idle */
    double idle_used_us; /* CPU at idle_us */
    uint32_t takes;      /* of slots, when last seen: modulo 2^28 */
    int64_t begun_total, expired_total;
    int32_t n_open, n_young; /* when last looked */
    double cores, host_cores;
    double base;      /* learned or given */
    double used_us;   /* CPU at the latest sample */
    double served_us; /* session-time so far: the integral of n */
    double n_last;    /* n at the latest sample */
    struct ek_smooth own, host, sessions;
    struct ek_variation variation;
    struct ek_resource resources[EK_RESOURCE_MAX];
    int32_t n_resources;
};

/* One moment of a tracker. */
struct ek_snapshot {
    struct ek_tracker_report r;
    bool was_drained; /* a drain ended in this process */
    int32_t n_resources;
    const char *names[EK_RESOURCE_MAX]; /* of the tracker's, which never change */
    struct ek_resource_report resources[EK_RESOURCE_MAX];
};

/* sample.c; the last two with the lock. Update ends late sessions, counts, and reads
 * CPU when the last sample is sample_us old. Errors: EK_EIO CPU cannot be read. */
int64_t ek_tracker_now_us(const struct ek_tracker *t);
void ek_tracker_sweep(struct ek_tracker *t, int64_t now_us);
int ek_tracker_update(struct ek_tracker *t, int64_t now_us, int64_t sample_us);

/* report.c. Updates, too; takes the lock. */
void ek_tracker_snapshot(struct ek_tracker *t, struct ek_snapshot *s);

/* options.c. The caller's options, of any version of the header, over the defaults, and
 * checked. Errors: EK_EINVAL, with a sentence. */
int ek_tracker_take_options(struct ek_tracker_options *to,
                            const struct ek_tracker_options *from, char *why,
                            size_t why_size) EK_MUST_USE;
int ek_resource_take_options(struct ek_resource_options *to,
                             const struct ek_resource_options *from) EK_MUST_USE;
const char *ek_orca_default_name(enum ek_tracker_orca_name i);

#endif
