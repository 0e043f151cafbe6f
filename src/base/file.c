#include "base/file.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int set_errno(struct ek_err *err, const char *path, int code)
{
    int status;
    switch (code) {
    case ENOENT:
    case ENOTDIR:
        status = EK_ENOENT;
        break;
    case EACCES:
    case EPERM:
    case EROFS:
        status = EK_EPERM;
        break;
    case EISDIR:
        status = EK_EINVAL;
        break;
    case ENOMEM:
        status = EK_ENOMEM;
        break;
    default:
        status = EK_EIO;
    }
    return ek_err_set(err, status, "%s: %s", path, strerror(code));
}

int ek_file_open(struct ek_file *f, const char *path, struct ek_err *err)
{
    int rc = 0;
    /* Not blocking: opening a pipe would otherwise wait for its writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return set_errno(err, path, errno);
    struct stat st;
    void *p = NULL;
    if (fstat(fd, &st)) {
        rc = set_errno(err, path, errno);
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        rc = ek_err_set(err, EK_EINVAL, "%s: is %s, not a regular file", path,
                        S_ISDIR(st.st_mode) ? "a folder" : "a device or pipe");
        goto out;
    }
    if (st.st_size > 0) {
        p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            rc = set_errno(err, path, errno);
            goto out;
        }
    }
    f->data = p;
    f->size = (size_t)st.st_size;
out:
    close(fd);
    return rc;
}

void ek_file_close(struct ek_file *f)
{
    if (f->data) {
        /* munmap takes what mmap returned; the const is ours alone. */
        union {
            const unsigned char *in;
            void *out;
        } p = {.in = f->data};
        munmap(p.out, f->size);
    }
    *f = (struct ek_file){0};
}

void ek_file_forget(const struct ek_file *f)
{
    union {
        const unsigned char *in;
        void *out;
    } p = {.in = f->data};
    if (f->data)
        madvise(p.out, f->size, MADV_DONTNEED); /* a hint: failing changes nothing */
}

int ek_file_read(struct ek_buf *out, const char *path, struct ek_err *err)
{
    int is_stdin = strcmp(path, "-") == 0;
    const char *name = is_stdin ? "standard input" : path;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return set_errno(err, name, errno);
    int rc = 0;
    size_t start = out->len;
    for (;;) {
        size_t room = out->max - out->len;
        size_t want = room < 65536 ? room : 65536;
        rc = ek_buf_reserve(out, want);
        if (rc) {
            rc = ek_err_set(err, rc, "%s: %s", name, ek_status_text(rc));
            break;
        }
        /* At the ceiling one byte more is asked for, to tell the end from too much. */
        char probe;
        ssize_t got = want ? read(fd, out->data + out->len, want) : read(fd, &probe, 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            rc = set_errno(err, name, errno);
        if (got > 0 && want == 0)
            rc = ek_err_set(err, EK_ELIMIT, "%s: is larger than %zu bytes", name,
                            out->max);
        if (got <= 0 || rc)
            break;
        out->len += (size_t)got;
        out->data[out->len] = 0;
    }
    if (rc) {
        out->len = start;
        if (out->data)
            out->data[start] = 0;
    }
    if (!is_stdin)
        close(fd);
    return rc;
}

int ek_file_in_open(struct ek_file_in *f, const char *path, struct ek_err *err)
{
    bool is_stdin = strcmp(path, "-") == 0;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return set_errno(err, path, errno);
    *f = (struct ek_file_in){is_stdin ? "standard input" : path, fd};
    return 0;
}

int ek_file_in_read(struct ek_file_in *f, void *p, size_t n, size_t *got,
                    struct ek_err *err)
{
    ssize_t k;
    do
        k = read(f->fd, p, n);
    while (k < 0 && errno == EINTR);
    if (k < 0)
        return set_errno(err, f->name, errno);
    *got = (size_t)k;
    return 0;
}

void ek_file_in_close(struct ek_file_in *f)
{
    if (f->fd > STDIN_FILENO)
        close(f->fd);
    f->fd = -1;
}

static int write_all(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t put = write(fd, p, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return put < 0 ? errno : EIO;
        p += put;
        n -= (size_t)put;
    }
    return 0;
}

/* A rename would put a file in the place of a device, a pipe or the link to what a
 * process has open (/dev/stdout). Of folders it says so itself. */
static bool is_replaceable(const char *path)
{
    static const char open_ones[] = "/proc/";
    char to[sizeof open_ones - 1];
    struct stat st;
    if (lstat(path, &st))
        return true;
    if (S_ISLNK(st.st_mode)) {
        ssize_t n = readlink(path, to, sizeof to);
        if (n == sizeof to && !memcmp(to, open_ones, sizeof to))
            return false;
        if (stat(path, &st))
            return true;
    }
    return S_ISREG(st.st_mode) || S_ISDIR(st.st_mode);
}

int ek_file_out_begin(struct ek_file_out *f, const char *path, struct ek_err *err)
{
    *f = (struct ek_file_out){.path = path, .fd = -1};
    if (!is_replaceable(path))
        return ek_err_set(err, EK_EINVAL,
                          "%s: is a device or a pipe, expected the name of a file",
                          path);
    /* The thread's number: no two live writers share it. */
    int len = snprintf(f->aside, sizeof f->aside, "%s.%ld.tmp", path, (long)gettid());
    if (len < 0 || (size_t)len >= sizeof f->aside)
        return ek_err_set(err, EK_ELIMIT, "%s: path is too long", path);
    unlink(f->aside); /* a dead one's leftover; created anew, no link is followed */
    f->fd = open(f->aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    return f->fd < 0 ? set_errno(err, path, errno) : 0;
}

int ek_file_out_add(struct ek_file_out *f, const void *p, size_t n, struct ek_err *err)
{
    int code = write_all(f->fd, p, n);
    if (code)
        return set_errno(err, f->path, code);
    f->bytes += n;
    return 0;
}

int ek_file_out_end(struct ek_file_out *f, struct ek_err *err)
{
    int code = fsync(f->fd) ? errno : 0;
    if (close(f->fd) && !code)
        code = errno;
    f->fd = -1;
    if (!code && rename(f->aside, f->path))
        code = errno;
    if (!code)
        return 0;
    unlink(f->aside);
    return set_errno(err, f->path, code);
}

void ek_file_out_cancel(struct ek_file_out *f)
{
    if (f->fd < 0)
        return;
    close(f->fd);
    f->fd = -1;
    unlink(f->aside);
}

int ek_file_write_parts(const char *path, const struct ek_file_part *parts,
                        size_t n_parts, struct ek_err *err)
{
    struct ek_file_out f;
    int rc = ek_file_out_begin(&f, path, err);
    for (size_t i = 0; i < n_parts && !rc; i++)
        rc = ek_file_out_add(&f, parts[i].p, parts[i].n, err);
    if (!rc)
        return ek_file_out_end(&f, err);
    ek_file_out_cancel(&f);
    return rc;
}

int ek_file_write(const char *path, const void *p, size_t n, struct ek_err *err)
{
    struct ek_file_part whole = {p, n};
    return ek_file_write_parts(path, &whole, 1, err);
}

const char *ek_format_bytes(char out[32], uint64_t bytes)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)bytes;
    size_t i = 0;
    /* 1023.95 would be printed as 1024.0 of the smaller unit. */
    for (; v >= (i ? 1023.95 : 1024.0) && i < 6; i++)
        v /= 1024.0;
    snprintf(out, 32, i ? "%.1f %s" : "%.0f %s", v, unit[i]);
    return out;
}
