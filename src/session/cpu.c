#include "session/cpu.h"

#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int ek_cgroup_used(const char *dir, int64_t *us)
{
    struct ek_proc_lines l;
    if (!ek_proc_open(&l, dir, "cpu.stat"))
        return EK_EIO;
    const char *value = ek_proc_find(&l, "usage_usec");
    bool is_read = value && ek_proc_number(&value, us);
    ek_proc_close(&l);
    return is_read ? 0 : EK_EIO;
}

static double quota_here(const char *dir)
{
    struct ek_proc_lines l;
    int64_t quota, period;
    double cores = (double)INFINITY;
    if (!ek_proc_open(&l, dir, "cpu.max"))
        return cores;
    if (ek_proc_next(&l)) {
        const char *p = l.line;
        if (ek_proc_number(&p, &quota) && ek_proc_number(&p, &period) && quota > 0 &&
            period > 0)
            cores = (double)quota / (double)period;
    }
    ek_proc_close(&l);
    return cores;
}

double ek_cgroup_quota(const char *dir)
{
    char at[EK_CGROUP_PATH_MAX];
    double least = quota_here(dir);
    int n = snprintf(at, sizeof at, "%s", dir);
    if (n <= 0 || (size_t)n >= sizeof at)
        return least;
    while (ek_cgroup_up(at))
        least = fmin(least, quota_here(at));
    return least;
}

int ek_cpu_used(int64_t *us)
{
    struct timespec t;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t))
        return EK_EIO;
    *us = (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
    return 0;
}

double ek_cpu_affinity(void)
{
    cpu_set_t set;
    long n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
    if (n <= 0) /* more than 1024 cores */
        n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (double)n : 1;
}

/* cpu user nice system idle iowait irq softirq steal guest guest_nice: ticks; guest is
 * in user already. */
int ek_cpu_host(const char *proc_dir, int64_t *busy_us, double *cores)
{
    enum { IDLE = 3, IOWAIT = 4, STEAL = 7 };
    struct ek_proc_lines l;
    if (!ek_proc_open(&l, proc_dir, "stat"))
        return EK_EIO;
    const char *p = ek_proc_find(&l, "cpu");
    int64_t busy = 0, ticks;
    int field = 0, n_cores = 0;
    for (; p && field <= STEAL && ek_proc_number(&p, &ticks); field++) {
        if (field != IDLE && field != IOWAIT)
            busy += ticks;
    }
    while (ek_proc_next(&l) && !strncmp(l.line, "cpu", 3))
        n_cores++;
    ek_proc_close(&l);
    long hz = sysconf(_SC_CLK_TCK);
    if (field <= IOWAIT || n_cores == 0 || hz <= 0)
        return EK_EIO;
    *busy_us = busy * (1000000 / hz);
    *cores = n_cores;
    return 0;
}
