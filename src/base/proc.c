#include "base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool ek_proc_open(struct ek_proc_lines *l, const char *dir, const char *name)
{
    char path[EK_CGROUP_PATH_MAX + 64];
    l->n = l->at = 0;
    l->fd = -1;
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    if (n > 0 && (size_t)n < sizeof path)
        l->fd = open(path, O_RDONLY | O_CLOEXEC);
    return l->fd >= 0;
}

void ek_proc_close(struct ek_proc_lines *l)
{
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
}

static bool fill(struct ek_proc_lines *l)
{
    ssize_t got;
    do
        got = read(l->fd, l->buf, sizeof l->buf);
    while (got < 0 && errno == EINTR);
    l->at = 0;
    l->n = got > 0 ? (size_t)got : 0;
    return got > 0;
}

bool ek_proc_next(struct ek_proc_lines *l)
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

const char *ek_proc_find(struct ek_proc_lines *l, const char *key)
{
    size_t n = strlen(key);
    while (ek_proc_next(l)) {
        if (!strncmp(l->line, key, n) && l->line[n] == ' ')
            return l->line + n + 1;
    }
    return NULL;
}

bool ek_proc_number(const char **p, int64_t *out)
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
    struct ek_proc_lines l;
    bool is_found = false;
    if (!ek_proc_open(&l, proc_dir, "self/mountinfo"))
        return false;
    while (!is_found && ek_proc_next(&l)) {
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
    ek_proc_close(&l);
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
    struct ek_proc_lines l;
    if (!find_mount(root, point, sizeof root, proc_dir) ||
        !ek_proc_open(&l, proc_dir, "self/cgroup"))
        return EK_ENOENT;
    int rc = EK_ENOENT;
    while (rc == EK_ENOENT && ek_proc_next(&l)) {
        if (strncmp(l.line, "0::/", 4) != 0)
            continue;
        int n = snprintf(out, cap, "%s%s", point, below(l.line + 3, root));
        rc = n > 0 && (size_t)n < cap ? 0 : EK_ELIMIT;
    }
    ek_proc_close(&l);
    return rc;
}

static bool is_cgroup(const char *dir)
{
    struct ek_proc_lines l;
    bool is_one = ek_proc_open(&l, dir, "cgroup.procs");
    ek_proc_close(&l);
    return is_one;
}

bool ek_cgroup_up(char *dir)
{
    char *slash = strrchr(dir, '/');
    if (!slash || slash == dir)
        return false;
    *slash = 0;
    return is_cgroup(dir);
}

/* The number that a file of one line holds; false: another word, as "max" is. */
static bool read_number(const char *dir, const char *name, int64_t *out)
{
    struct ek_proc_lines l;
    if (!ek_proc_open(&l, dir, name))
        return false;
    const char *p = l.line;
    bool is_read = ek_proc_next(&l) && ek_proc_number(&p, out);
    ek_proc_close(&l);
    return is_read;
}

/* The number behind a key of a file; `fallback` where there is none. */
static int64_t key_number(const char *dir, const char *name, const char *key,
                          int64_t fallback)
{
    struct ek_proc_lines l;
    int64_t n = fallback;
    if (!ek_proc_open(&l, dir, name))
        return fallback;
    const char *p = ek_proc_find(&l, key);
    if (!p || !ek_proc_number(&p, &n))
        n = fallback;
    ek_proc_close(&l);
    return n;
}

/* What is left below the memory.max of one cgroup. Pages of files and the kernel's
 * caches count as free, as they do in MemAvailable: they go before anything is killed. */
static int64_t room_here(const char *dir)
{
    static const char *const spare[] = {"inactive_file", "active_file",
                                        "slab_reclaimable"};
    int64_t max, used;
    if (!read_number(dir, "memory.max", &max) ||
        !read_number(dir, "memory.current", &used))
        return INT64_MAX;
    for (size_t i = 0; i < sizeof spare / sizeof *spare; i++) {
        int64_t n = key_number(dir, "memory.stat", spare[i], 0);
        used = used > n ? used - n : 0;
    }
    return max > used ? max - used : 0;
}

int64_t ek_memory_available(const char *proc_dir)
{
    char dir[EK_CGROUP_PATH_MAX];
    int64_t kib = key_number(proc_dir, "meminfo", "MemAvailable:", -1);
    int64_t least = kib < 0 || kib > INT64_MAX / 1024 ? INT64_MAX : kib * 1024;
    if (ek_cgroup_find(dir, sizeof dir, proc_dir))
        return least;
    do {
        int64_t room = room_here(dir);
        least = room < least ? room : least;
    } while (ek_cgroup_up(dir));
    return least;
}
