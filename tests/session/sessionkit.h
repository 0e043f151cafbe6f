/* sessionkit.h - what the tests of session/ share: a folder of fake files, and a tracker
 * whose clock and CPU the test sets. */
#ifndef EVENKEEL_SESSIONKIT_H
#define EVENKEEL_SESSIONKIT_H

#include "testkit.h"

#include <evenkeel/session.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECOND INT64_C(1000000)

#define assert_near(a, b)                                                              \
    do {                                                                               \
        double a_ = (a), b_ = (b);                                                     \
        if (!(fabs(a_ - b_) <= 1e-6 * fmax(1, fabs(b_))))                              \
            fail_msg("%s is %.9g, must be %.9g", #a, a_, b_);                          \
    } while (0)

struct kit_dir {
    char path[64];
};

static inline void kit_dir_make(struct kit_dir *d)
{
    snprintf(d->path, sizeof d->path, "/tmp/evenkeel-test-XXXXXX");
    assert_non_null(mkdtemp(d->path));
}

static inline const char *kit_path(const struct kit_dir *d, const char *name)
{
    static _Thread_local char path[256];
    snprintf(path, sizeof path, "%s/%s", d->path, name);
    return path;
}

/* `name` may lie in a folder, which is made. */
static inline void kit_write(const struct kit_dir *d, const char *name,
                             const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", d->path, name);
    for (char *s = path + strlen(d->path) + 1; (s = strchr(s, '/')); *s++ = '/') {
        *s = 0;
        mkdir(path, 0700);
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0 && fclose(f) == 0);
}

static inline void kit_dir_remove(const struct kit_dir *d)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", d->path);
    assert_int_equal(system(command), 0);
}

struct kit_time {
    int64_t now, cpu;
    bool is_broken; /* CPU cannot be read */
};

static inline int64_t kit_now(void *arg)
{
    return ((struct kit_time *)arg)->now;
}

static inline int kit_cpu(void *arg, int64_t *us)
{
    struct kit_time *k = arg;
    *us = k->cpu;
    return k->is_broken;
}

/* Four cores and no base, so that figures come out round. */
static inline struct ek_tracker_options kit_options(struct kit_time *k)
{
    struct ek_tracker_options o;
    ek_tracker_options_init(&o, sizeof o);
    o.now_us = kit_now;
    o.cpu_us = kit_cpu;
    o.arg = k;
    o.cores = 4;
    o.base_cores = 0;
    o.sample_us = 0;
    return o;
}

static inline struct ek_tracker *kit_new(const struct ek_tracker_options *o)
{
    struct ek_tracker *t = NULL;
    char why[256] = "";
    if (ek_tracker_new(&t, o, why, sizeof why))
        fail_msg("%s", why);
    return t;
}

/* `seconds` pass in which `cores` are used; a sample at their end. */
static inline void kit_run(struct ek_tracker *t, struct kit_time *k, double seconds,
                           double cores)
{
    k->now += (int64_t)(seconds * 1e6);
    k->cpu += (int64_t)(seconds * cores * 1e6);
    assert_int_equal(ek_tracker_sample(t), 0);
}

static inline struct ek_tracker_report kit_read(struct ek_tracker *t)
{
    struct ek_tracker_report r;
    ek_tracker_read(t, &r, sizeof r);
    return r;
}

static inline void kit_begin(struct ek_tracker *t, struct ek_session *s, int n)
{
    for (int i = 0; i < n; i++)
        assert_int_equal(ek_session_begin(t, &s[i]), 0);
}

#endif
