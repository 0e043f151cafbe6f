/* options.c - defaults, and what may not be. */
#include "session/tracker_int.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SECOND_US INT64_C(1000000)
#define YEAR_US   (366 * 24 * 3600 * SECOND_US)

static const char *const orca_names[EK_ORCA_N_NAMES] = {
    [EK_ORCA_ACTIVE_SESSIONS] = "active_sessions",
    [EK_ORCA_SESSION_COST] = "session_cost",
    [EK_ORCA_EFFECTIVE_CAPACITY] = "effective_capacity",
    [EK_ORCA_REMAINING_SESSIONS] = "remaining_sessions",
    [EK_ORCA_YOUNG_SESSIONS] = "young_sessions",
    [EK_ORCA_YOUNG_WEIGHT] = "young_weight",
    [EK_ORCA_SAFETY_FACTOR] = "safety_factor",
};

const char *ek_orca_default_name(enum ek_tracker_orca_name i)
{
    return orca_names[i];
}

/* Copies what the caller's version of the struct has of `from`, and zeroes the rest. */
static void init_sized(void *to, size_t to_size, const void *from, size_t from_size)
{
    memset(to, 0, to_size);
    memcpy(to, from, to_size < from_size ? to_size : from_size);
}

void ek_tracker_options_init(struct ek_tracker_options *o, size_t size)
{
    struct ek_tracker_options defaults = {
        .size = size,
        .table_sessions = 65536,
        .deadline_us = 20 * 60 * SECOND_US,
        .window_us = 10 * SECOND_US,
        .sample_us = SECOND_US / 2,
        .target = 0.8,
        .base_cores = EK_BASE_LEARN,
        .prior_cost = 0.1,
        .prior_weight = 10,
        .safety_factor = 2.0,
        .z = 2.33,
    };
    init_sized(o, size, &defaults, sizeof defaults);
}

void ek_tracker_resource_init(struct ek_resource_options *o, size_t size)
{
    struct ek_resource_options defaults = {.size = size, .target = 1};
    init_sized(o, size, &defaults, sizeof defaults);
}

static bool is_name(const char *s, size_t max)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                         "0123456789._-");
    return n >= 1 && n <= max && s[n] == 0;
}

static int fail(char *why, size_t why_size, const char *fmt, ...) EK_PRINTF(3, 4);
static int fail(char *why, size_t why_size, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (why && why_size)
        vsnprintf(why, why_size, fmt, args);
    va_end(args);
    return EK_EINVAL;
}

/* Puts the caller's version of a struct, whose first member is its size, over the
 * defaults in `to`. A program built with an earlier header leaves the rest as it is;
 * one built with a later header may run with this library as long as it sets nothing
 * that the library does not know. False: it does, or the size is none. */
static bool take_sized(void *to, size_t to_size, const void *from, size_t from_size)
{
    const unsigned char *p = from;
    if (from_size <= sizeof(size_t))
        return false;
    for (size_t i = to_size; i < from_size; i++) {
        if (p[i])
            return false;
    }
    memcpy(to, from, to_size < from_size ? to_size : from_size);
    return true;
}

struct bound {
    const char *name;
    double value, low, high;
};

static int check_bounds(const struct ek_tracker_options *o, char *why, size_t why_size)
{
    const struct bound bounds[] = {
        {"max_sessions", o->max_sessions, 0, o->table_sessions},
        {"table_sessions", o->table_sessions, 1, EK_SESSION_TABLE_MAX},
        {"deadline_us", (double)o->deadline_us, 1, (double)YEAR_US},
        {"window_us", (double)o->window_us, 1000, 3600e6},
        {"sample_us", (double)o->sample_us, 0, 3600e6},
        {"thread_us", (double)o->thread_us, 0, 3600e6},
        {"agent_proxies", o->agent_proxies, 0, 10000},
        {"cores", o->cores, 0, 1e6},
        {"target", o->target, 0.01, 1},
        {"base_cores", o->base_cores, -1, 1e6},
        {"prior_cost", o->prior_cost, 1e-6, 1e6},
        {"prior_weight", o->prior_weight, 1e-3, 1e6},
        {"z", o->z, 0, 10},
    };
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        const struct bound *b = &bounds[i];
        if (!(b->value >= b->low && b->value <= b->high)) /* NaN too */
            return fail(why, why_size, "%s is %g, must be %g to %g", b->name, b->value,
                        b->low, b->high);
    }
    bool is_auto = o->safety_factor == EK_FACTOR_AUTO;
    if (!is_auto && !(o->safety_factor >= 1 && o->safety_factor <= 10))
        return fail(why, why_size,
                    "safety_factor is %g, must be 1 to 10, or 0 for auto",
                    o->safety_factor);
    return 0;
}

static int check_strings(const struct ek_tracker_options *o, char *why, size_t why_size)
{
    const char *dirs[] = {o->cgroup_dir, o->proc_dir};
    for (int i = 0; i < 2; i++) {
        if (dirs[i] && strlen(dirs[i]) >= EK_CGROUP_PATH_MAX)
            return fail(why, why_size, "%s is longer than %d bytes",
                        i ? "proc_dir" : "cgroup_dir", EK_CGROUP_PATH_MAX - 1);
    }
    const int n_names = (int)(sizeof o->orca_names / sizeof o->orca_names[0]);
    for (int i = EK_ORCA_N_NAMES; i < n_names; i++) {
        if (o->orca_names[i])
            return fail(why, why_size, "orca_names[%d]: there are %d names", i,
                        EK_ORCA_N_NAMES);
    }
    for (int i = 0; i < EK_ORCA_N_NAMES; i++) {
        const char *name = o->orca_names[i];
        if (name && *name && !is_name(name, EK_ORCA_NAME_MAX))
            return fail(why, why_size,
                        "orca_names[%d] must be 1 to %d letters, digits and . _ -", i,
                        EK_ORCA_NAME_MAX);
        for (int k = 0; name && *name && k < EK_ORCA_N_NAMES; k++) {
            const char *other = o->orca_names[k] ? o->orca_names[k] : orca_names[k];
            if (k != i && !strcmp(name, other))
                return fail(why, why_size, "orca_names: '%s' is there twice", name);
        }
    }
    return 0;
}

static int check(const struct ek_tracker_options *o, char *why, size_t why_size)
{
    if (o->cpu < EK_TRACKER_CPU_AUTO || o->cpu > EK_TRACKER_CPU_NONE)
        return fail(why, why_size, "cpu is %d, no enum ek_tracker_cpu", (int)o->cpu);
    if (o->smoothing != EK_TRACKER_EWMA && o->smoothing != EK_TRACKER_MEAN)
        return fail(why, why_size, "smoothing is %d, no enum ek_tracker_smoothing",
                    (int)o->smoothing);
    int rc = check_bounds(o, why, why_size);
    return rc ? rc : check_strings(o, why, why_size);
}

int ek_tracker_take_options(struct ek_tracker_options *to,
                            const struct ek_tracker_options *from, char *why,
                            size_t why_size)
{
    ek_tracker_options_init(to, sizeof *to);
    if (!take_sized(to, sizeof *to, from, from->size))
        return fail(why, why_size,
                    "options of %zu bytes where this library (%s) knows %zu: call "
                    "ek_tracker_options_init first, or update the library",
                    from->size, ek_tracker_version(), sizeof *to);
    to->size = sizeof *to;
    return check(to, why, why_size);
}

static bool is_within(double v, double low, double high)
{
    return v >= low && v <= high; /* false for NaN */
}

int ek_resource_take_options(struct ek_resource_options *to,
                             const struct ek_resource_options *from)
{
    ek_tracker_resource_init(to, sizeof *to);
    if (!take_sized(to, sizeof *to, from, from->size))
        return EK_EINVAL;
    to->size = sizeof *to;
    bool is_good =
        to->name && is_name(to->name, EK_RESOURCE_NAME_MAX) &&
        strcmp(to->name, "cpu") != 0 && strcmp(to->name, "sessions") != 0 &&
        is_within(to->total, 1e-300, 1e300) && is_within(to->target, 0.01, 1) &&
        is_within(to->prior_cost, 0, 1e300) && is_within(to->base, 0, 1e300) &&
        (to->safety_factor == 0 || is_within(to->safety_factor, 1, 10));
    return is_good ? 0 : EK_EINVAL;
}
