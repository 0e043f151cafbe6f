#include "base/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
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

/* Removes the plain files of a folder and the folder itself; others stay, and no link is
 * followed. */
static void remove_flat(const char *path)
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

int ek_folder_out_begin(struct ek_folder_out *f, const char *path, struct ek_err *err)
{
    size_t n = strlen(path);
    f->path = path;
    while (n > 1 && path[n - 1] == '/')
        n--;
    int len = snprintf(f->aside, sizeof f->aside, "%.*s.%ld.tmp", (int)n, path,
                       (long)gettid());
    if (len < 0 || (size_t)len >= sizeof f->aside) {
        f->aside[0] = 0;
        return ek_err_set(err, EK_ELIMIT, "%s: path is too long", path);
    }
    remove_flat(f->aside); /* a dead one's leftover */
    if (mkdir(f->aside, 0755)) {
        int code = errno;
        f->aside[0] = 0;
        return set_errno(err, path, code);
    }
    return 0;
}

/* Some file systems (NFS among them) know no flags of renameat2. */
static bool lacks_flags(int code)
{
    return code == EINVAL || code == ENOSYS || code == ENOTSUP;
}

/* Puts the new folder in the old one's place. */
static int replace(struct ek_folder_out *f)
{
    if (!renameat2(AT_FDCWD, f->aside, AT_FDCWD, f->path, RENAME_EXCHANGE)) {
        remove_flat(f->aside);
        return 0;
    }
    if (!lacks_flags(errno))
        return errno;
    remove_flat(f->path); /* the new one is whole: a moment without either */
    return rename(f->aside, f->path) ? errno : 0;
}

/* Puts the new folder where none is; a rename replaces no folder that holds anything. */
static int place(struct ek_folder_out *f)
{
    if (!renameat2(AT_FDCWD, f->aside, AT_FDCWD, f->path, RENAME_NOREPLACE))
        return 0;
    if (!lacks_flags(errno))
        return errno;
    return rename(f->aside, f->path) ? errno : 0;
}

int ek_folder_out_end(struct ek_folder_out *f, bool replaces, const char *marker,
                      struct ek_err *err)
{
    struct ek_err absent; /* that nothing is there yet is no error */
    int code = 0, rc = ek_folder_check(f->path, marker, &absent);
    if (rc == EK_ENOENT)
        code = place(f);
    else if (!rc && !replaces)
        code = EEXIST;
    else if (!rc)
        code = replace(f);
    if (rc && rc != EK_ENOENT) {
        ek_folder_out_cancel(f);
        return ek_err_set(err, rc, "%s", absent.text);
    }
    if (code) {
        ek_folder_out_cancel(f);
        return set_errno(err, f->path, code);
    }
    f->aside[0] = 0;
    return 0;
}

void ek_folder_out_cancel(struct ek_folder_out *f)
{
    if (!f->aside[0])
        return;
    remove_flat(f->aside);
    f->aside[0] = 0;
}
