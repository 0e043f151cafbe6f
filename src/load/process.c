#include "load/process.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

int ek_processes_parse(struct ek_processes *p, const char *text, struct ek_err *err)
{
    struct ek_processes got = {.n = 0};
    for (const char *at = text;;) {
        char *end = NULL;
        long pid = strtol(at, &end, 10);
        bool is_number = *at >= '1' && *at <= '9' && pid <= 1 << 22;
        if (!is_number || (*end && *end != ',') || got.n == EK_PROCESSES_MAX)
            return ek_err_set(err, EK_EINVAL,
                              "--pid: '%.200s' is not understood, expected 1 to %d "
                              "process ids such as 123,456",
                              text, EK_PROCESSES_MAX);
        got.pids[got.n++] = (int)pid;
        if (!*end)
            break;
        at = end + 1;
    }
    *p = got;
    return 0;
}

/* The beginning of a file of /proc as a string; false: it cannot be read. */
static bool read_proc(char *text, size_t cap, int pid, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, cap - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    return n > 0;
}

/* The sum that utime and stime of /proc/PID/stat are cut from, without their ticks. */
static bool read_cpu(int64_t *us, int pid)
{
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t))
        return false;
    *us += (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
    return true;
}

static int64_t kib(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    return at ? strtoll(at + strlen(key), NULL, 10) * 1024 : 0;
}

static bool read_memory(struct ek_process_use *u, int pid)
{
    char text[4096];
    if (!read_proc(text, sizeof text, pid, "smaps_rollup"))
        return false;
    int64_t bytes = kib(text, "\nPss_Dirty:"); /* Linux 6.0 */
    u->bytes += bytes ? bytes : kib(text, "\nPrivate_Dirty:");
    return true;
}

int ek_processes_read(struct ek_process_use *u, const struct ek_processes *p,
                      bool has_memory, struct ek_err *err)
{
    struct ek_process_use sum = {.cpu_us = 0};
    for (size_t i = 0; i < p->n; i++) {
        if (!read_cpu(&sum.cpu_us, p->pids[i]) ||
            (has_memory && !read_memory(&sum, p->pids[i])))
            return ek_err_set(err, EK_EIO,
                              "--pid: process %d has ended or may not be looked at",
                              p->pids[i]);
    }
    *u = sum;
    return 0;
}

int64_t ek_process_own_cpu_us(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (int64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 +
           u.ru_utime.tv_usec + u.ru_stime.tv_usec;
}
