/* proc.h - small files of /proc and of cgroups v2, line by line and without the heap:
 * where this process's cgroup is, and the memory that is there for it.
 *
 * Files are opened at each reading and nothing is kept. Threads: any.
 */
#ifndef EVENKEEL_BASE_PROC_H
#define EVENKEEL_BASE_PROC_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EK_CGROUP_PATH_MAX 1024

/* A file that is read; the caller's storage. */
struct ek_proc_lines {
    int fd;
    size_t n, at; /* bytes in buf, and read of them */
    char buf[4096];
    char line[EK_CGROUP_PATH_MAX + 256]; /* what is longer is cut */
};

/* dir/name. False: there is no such file, and nothing to close. */
bool ek_proc_open(struct ek_proc_lines *l, const char *dir, const char *name);
void ek_proc_close(struct ek_proc_lines *l);

/* The next line in l->line, without its end; false after the last. */
bool ek_proc_next(struct ek_proc_lines *l);

/* The text behind `key` and one space of the first line from here on that begins so;
 * NULL: none. Good until the next call. */
const char *ek_proc_find(struct ek_proc_lines *l, const char *key);

/* Digits at *p, which moves behind them and the spaces before them; false: another
 * word, or a number beyond int64. */
bool ek_proc_number(const char **p, int64_t *out);

/* The folder of this process's cgroup v2, from `proc_dir`/self/cgroup and mountinfo.
 * Errors: EK_ENOENT there is none, or its mount point is an odd path; EK_ELIMIT. */
int ek_cgroup_find(char *out, size_t cap, const char *proc_dir) EK_MUST_USE;

/* dir becomes the cgroup above it; false: there is none, and dir is of no use then. */
bool ek_cgroup_up(char *dir);

/* Bytes that this process may still take before something is killed for them: the least
 * of MemAvailable (`proc_dir`/meminfo) and, of its cgroup v2 and all above it,
 * memory.max less memory.current, pages of files and caches of the kernel
 * (inactive_file, active_file, slab_reclaimable) left out, as MemAvailable leaves them
 * out. INT64_MAX: neither can be read. Not looked at: swap, since what trains reads all
 * it holds; limits of cgroups v1. Cannot fail.
 * Source: Documentation/admin-guide/cgroup-v2.rst and proc(5) of Linux. */
int64_t ek_memory_available(const char *proc_dir);

#endif
