#include "base/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int set_errno(struct ek_err *err, const char *path, int code)
{
    int status = code == ENOENT || code == ENOTDIR                  ? EK_ENOENT
                 : code == EACCES || code == EPERM || code == EROFS ? EK_EPERM
                 : code == ENOMEM                                   ? EK_ENOMEM
                                                                    : EK_EIO;
    return ek_err_set(err, status, "%s: %s", path, strerror(code));
}

static bool is_dot(const char *name)
{
    return !strcmp(name, ".") || !strcmp(name, "..");
}

void ek_folder_remove(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        if (!is_dot(e->d_name))
            unlinkat(dirfd(d), e->d_name, 0);
    }
    closedir(d);
    rmdir(path);
}

int ek_folder_check(const char *path, const char *marker, struct ek_err *err)
{
    struct stat st;
    int rc = 0;
    bool has_marker = false;
    if (lstat(path, &st))
        return set_errno(err, path, errno);
    if (!S_ISDIR(st.st_mode))
        return ek_err_set(err, EK_EINVAL, "%s: is there and no folder", path);
    DIR *d = opendir(path);
    if (!d)
        return set_errno(err, path, errno);
    for (struct dirent *e = readdir(d); e && !rc; e = readdir(d)) {
        if (is_dot(e->d_name))
            continue;
        has_marker = has_marker || !strcmp(e->d_name, marker);
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
            S_ISDIR(st.st_mode))
            rc = ek_err_set(err, EK_EINVAL,
                            "%s: holds the folder '%s': expected plain files only; "
                            "remove it yourself if it is to be replaced",
                            path, e->d_name);
    }
    closedir(d);
    if (!rc && !has_marker)
        rc = ek_err_set(err, EK_EINVAL,
                        "%s: holds no %s: remove it yourself if it is to be replaced",
                        path, marker);
    return rc;
}

/* Length of a path without the slashes at its end. */
static size_t trimmed(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n;
}

/* The folder that `path` stands in: into out, "." for a bare name. */
static void find_parent(char out[4096], const char *path)
{
    size_t n = trimmed(path);
    while (n && path[n - 1] != '/')
        n--;
    snprintf(out, 4096, "%.*s", n ? (int)n : 1, n ? path : ".");
}

static void find_replaced(char out[4096], const char *path)
{
    snprintf(out, 4096, "%.*s.replaced.tmp", (int)trimmed(path), path);
}

/* Whether `name` is NAME.<thread>.tmp of a thread that lives no more. */
static bool is_left(const char *name, const char *base, size_t n)
{
    if (strncmp(name, base, n) != 0 || name[n] != '.')
        return false;
    char *end;
    long writer = strtol(name + n + 1, &end, 10);
    return end > name + n + 1 && writer > 0 && !strcmp(end, ".tmp") &&
           kill((pid_t)writer, 0) && errno == ESRCH;
}

/* Removes what dead writers of `path` left beside it. */
static void sweep(const char *path)
{
    char parent[4096], left[4096 + 256];
    find_parent(parent, path);
    size_t n = trimmed(path), start = n;
    while (start && path[start - 1] != '/')
        start--;
    DIR *d = opendir(parent);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        if (!is_left(e->d_name, path + start, n - start))
            continue;
        snprintf(left, sizeof left, "%s/%s", parent, e->d_name);
        ek_folder_remove(left);
    }
    if (d)
        closedir(d);
}

int ek_folder_out_begin(struct ek_folder_out *f, const char *path, struct ek_err *err)
{
    f->path = path;
    /* ".replaced.tmp" must fit as well. */
    int len = snprintf(f->aside, sizeof f->aside - 16, "%.*s.%ld.tmp",
                       (int)trimmed(path), path, (long)gettid());
    if (len < 0 || (size_t)len >= sizeof f->aside - 16) {
        f->aside[0] = 0;
        return ek_err_set(err, EK_ELIMIT, "%s: path is too long", path);
    }
    ek_folder_remove(f->aside); /* of a dead one with the same number */
    sweep(path);
    if (mkdir(f->aside, 0755)) {
        int code = errno;
        f->aside[0] = 0;
        return set_errno(err, path, code);
    }
    return 0;
}

/* Flushes the entries of a folder to disk: 0 or errno. */
static int flush(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int code = fsync(fd) ? errno : 0;
    close(fd);
    return code == EINVAL ? 0 : code; /* a file system without fsync of folders */
}

static int flush_parent(const char *path)
{
    char parent[4096];
    find_parent(parent, path);
    return flush(parent);
}

/* Some file systems (NFS among them) know no flags of renameat2. */
static bool lacks_flags(int code)
{
    return code == EINVAL || code == ENOSYS || code == ENOTSUP;
}

/* Without an exchange: old aside, new in, each whole under one name or the other. */
static int replace_by_two(struct ek_folder_out *f)
{
    char replaced[4096];
    find_replaced(replaced, f->path);
    ek_folder_remove(replaced); /* of a writer killed before it did: PATH is there */
    if (rename(f->path, replaced))
        return errno;
    if (!rename(f->aside, f->path))
        return 0;
    int code = errno;
    if (rename(replaced, f->path))
        return errno;
    return code;
}

/* Puts the new folder in the old one's place. The old one is removed only when the
 * change is on disk. */
static int replace(struct ek_folder_out *f)
{
    if (!renameat2(AT_FDCWD, f->aside, AT_FDCWD, f->path, RENAME_EXCHANGE)) {
        int code = flush_parent(f->path);
        ek_folder_remove(f->aside);
        return code;
    }
    if (!lacks_flags(errno))
        return errno;
    int code = replace_by_two(f);
    return code ? code : flush_parent(f->path);
}

/* Puts the new folder where none is; a rename replaces none that holds anything. */
static int place(struct ek_folder_out *f)
{
    if (!renameat2(AT_FDCWD, f->aside, AT_FDCWD, f->path, RENAME_NOREPLACE))
        return flush_parent(f->path);
    if (!lacks_flags(errno) || rename(f->aside, f->path))
        return errno;
    return flush_parent(f->path);
}

int ek_folder_out_end(struct ek_folder_out *f, bool replaces, const char *marker,
                      struct ek_err *err)
{
    struct ek_err absent; /* that nothing is there yet is no error */
    char replaced[4096];
    int code = flush(f->aside), rc = ek_folder_check(f->path, marker, &absent);
    if (!code && rc == EK_ENOENT)
        code = place(f);
    else if (!code && !rc && !replaces)
        code = EEXIST;
    else if (!code && !rc)
        code = replace(f);
    if (rc && rc != EK_ENOENT) {
        ek_folder_out_cancel(f);
        return ek_err_set(err, rc, "%s", absent.text);
    }
    if (code) {
        ek_folder_out_cancel(f);
        return set_errno(err, f->path, code);
    }
    find_replaced(replaced, f->path);
    ek_folder_remove(replaced);
    f->aside[0] = 0;
    return 0;
}

void ek_folder_out_cancel(struct ek_folder_out *f)
{
    if (!f->aside[0])
        return;
    ek_folder_remove(f->aside);
    f->aside[0] = 0;
}

void ek_folder_find(char out[4096], const char *path)
{
    struct stat st;
    find_replaced(out, path);
    if (!lstat(path, &st) || lstat(out, &st) || !S_ISDIR(st.st_mode))
        snprintf(out, 4096, "%s", path);
}
