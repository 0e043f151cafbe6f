#include "session/cpu.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Lines of a small file, without the heap. */
struct lines {
    int fd;
    size_t n, at; /* bytes in buf, and read of them */
    char buf[4096];
    char line[EK_CGROUP_PATH_MAX + 256]; /* what is longer is cut */
};

/* False: there is no such file. */
static bool open_lines(struct lines *l, const char *dir, const char *name)
{
    char path[EK_CGROUP_PATH_MAX + 64];
    l->n = l->at = 0;
    l->fd = -1;
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    if (n > 0 && (size_t)n < sizeof path)
        l->fd = open(path, O_RDONLY | O_CLOEXEC);
    return l->fd >= 0;
}

static void close_lines(struct lines *l)
{
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
}

static bool fill(struct lines *l)
{
    ssize_t got;
    do
        got = read(l->fd, l->buf, sizeof l->buf);
    while (got < 0 && errno == EINTR);
    l->at = 0;
    l->n = got > 0 ? (size_t)got : 0;
    return got > 0;
}

/* The next line in l->line, without its end; false after the last. */
static bool next_line(struct lines *l)
{
    size_t len = 0;
    bool is_any = false;
    while (l->at < l->n || fill(l)) {
        char c = l->buf[l->at++];
        is_any = true;
        if (c == '\n')
            break;
        if (len + 1 < sizeof l->line)
            l->line[len++] = c;
    }
    l->line[len] = 0;
    return is_any;
}

/* The text behind `key` and one space of the first line that begins so. */
static const char *find_key(struct lines *l, const char *key)
{
    size_t n = strlen(key);
    while (next_line(l)) {
        if (!strncmp(l->line, key, n) && l->line[n] == ' ')
            return l->line + n + 1;
    }
    return NULL;
}

/* Digits at *p, which moves behind them and the spaces before them. */
static bool take_number(const char **p, int64_t *out)
{
    const char *s = *p + strspn(*p, " ");
    char *end;
    if (*s < '0' || *s > '9')
        return false;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (errno)
        return false;
    *out = v;
    *p = end;
    return true;
}

/* The `index`th word of s, and its length; 0: there are fewer. */
static size_t word(const char *s, int index, const char **start)
{
    for (;; index--) {
        s += strspn(s, " ");
        size_t n = strcspn(s, " ");
        *start = s;
        if (n == 0 || index == 0)
            return n;
        s += n;
    }
}

/* mountinfo: id parent dev ROOT POINT options ... - cgroup2 ... */
static bool find_mount(char *root, char *point, size_t cap, const char *proc_dir)
{
    struct lines l;
    bool is_found = false;
    if (!open_lines(&l, proc_dir, "self/mountinfo"))
        return false;
    while (!is_found && next_line(&l)) {
        const char *kind = strstr(l.line, " - "), *r, *p;
        size_t n_r = word(l.line, 3, &r), n_p = word(l.line, 4, &p);
        if (!kind || strncmp(kind, " - cgroup2 ", 11) != 0 || n_r == 0 || n_p == 0 ||
            n_r >= cap || n_p >= cap || memchr(p, '\\', n_p))
            continue;
        memcpy(root, r, n_r);
        root[n_r] = 0;
        memcpy(point, p, n_p);
        point[n_p] = 0;
        is_found = true;
    }
    close_lines(&l);
    return is_found;
}

/* `path` as seen below `root`; "" where it lies outside (another cgroup namespace). */
static const char *below(const char *path, const char *root)
{
    size_t n = strcmp(root, "/") ? strlen(root) : 0;
    bool is_inside = !strncmp(path, root, n) && (path[n] == '/' || path[n] == 0);
    if (!is_inside || !strncmp(path, "/..", 3) || !strcmp(path + n, "/"))
        return "";
    return path + n;
}

int ek_cgroup_find(char *out, size_t cap, const char *proc_dir)
{
    char root[EK_CGROUP_PATH_MAX], point[EK_CGROUP_PATH_MAX];
    struct lines l;
    if (!find_mount(root, point, sizeof root, proc_dir) ||
        !open_lines(&l, proc_dir, "self/cgroup"))
        return EK_ENOENT;
    int rc = EK_ENOENT;
    while (rc == EK_ENOENT && next_line(&l)) {
        if (strncmp(l.line, "0::/", 4) != 0)
            continue;
        int n = snprintf(out, cap, "%s%s", point, below(l.line + 3, root));
        rc = n > 0 && (size_t)n < cap ? 0 : EK_ELIMIT;
    }
    close_lines(&l);
    return rc;
}

int ek_cgroup_used(const char *dir, int64_t *us)
{
    struct lines l;
    if (!open_lines(&l, dir, "cpu.stat"))
        return EK_EIO;
    const char *value = find_key(&l, "usage_usec");
    bool is_read = value && take_number(&value, us);
    close_lines(&l);
    return is_read ? 0 : EK_EIO;
}

static double quota_here(const char *dir)
{
    struct lines l;
    int64_t quota, period;
    double cores = (double)INFINITY;
    if (!open_lines(&l, dir, "cpu.max"))
        return cores;
    if (next_line(&l)) {
        const char *p = l.line;
        if (take_number(&p, &quota) && take_number(&p, &period) && quota > 0 &&
            period > 0)
            cores = (double)quota / (double)period;
    }
    close_lines(&l);
    return cores;
}

static bool is_cgroup(const char *dir)
{
    struct lines l;
    bool is_one = open_lines(&l, dir, "cgroup.procs");
    close_lines(&l);
    return is_one;
}

double ek_cgroup_quota(const char *dir)
{
    char at[EK_CGROUP_PATH_MAX];
    double least = quota_here(dir);
    int n = snprintf(at, sizeof at, "%s", dir);
    if (n <= 0 || (size_t)n >= sizeof at)
        return least;
    for (char *slash; (slash = strrchr(at, '/')) && slash != at;) {
        *slash = 0;
        if (!is_cgroup(at))
            break;
        least = fmin(least, quota_here(at));
    }
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
    struct lines l;
    if (!open_lines(&l, proc_dir, "stat"))
        return EK_EIO;
    const char *p = find_key(&l, "cpu");
    int64_t busy = 0, ticks;
    int field = 0, n_cores = 0;
    for (; p && field <= STEAL && take_number(&p, &ticks); field++) {
        if (field != IDLE && field != IOWAIT)
            busy += ticks;
    }
    while (next_line(&l) && !strncmp(l.line, "cpu", 3))
        n_cores++;
    close_lines(&l);
    long hz = sysconf(_SC_CLK_TCK);
    if (field <= IOWAIT || n_cores == 0 || hz <= 0)
        return EK_EIO;
    *busy_us = busy * (1000000 / hz);
    *cores = n_cores;
    return 0;
}
