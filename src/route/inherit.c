#include "route/inherit.h"

#include "net/address.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_LENT = sizeof EK_INHERITED_LENT - 1 };

static void add(struct ek_inherited *in, long fd, const char *name, size_t n,
                bool is_lent)
{
    if (in->n == EK_INHERITED_MAX || fd < 0 || fd > 1 << 20 ||
        n > EK_INHERITED_NAME_MAX || fcntl((int)fd, F_SETFD, FD_CLOEXEC))
        return;
    struct ek_inherited_socket *s = &in->sockets[in->n++];
    s->fd = (int)fd;
    s->is_lent = is_lent;
    memcpy(s->listen, name, n);
    s->listen[n] = 0;
}

static void read_ours(struct ek_inherited *in)
{
    const char *text = getenv("EVENKEEL_SOCKETS");
    const char *ready = getenv("EVENKEEL_READY_FD");
    for (const char *line = text; line && *line;) {
        size_t n = strcspn(line, "\n");
        char *end;
        long fd = strtol(line, &end, 10);
        if (end > line && *end == ' ' && (size_t)(end - line) < n) {
            const char *name = end + 1;
            bool is_lent = strncmp(name, EK_INHERITED_LENT, N_LENT) == 0;
            name += is_lent ? N_LENT : 0;
            add(in, fd, name, n - (size_t)(name - line), is_lent);
        }
        line += n + (line[n] == '\n');
    }
    if (ready)
        in->ready_fd = (int)strtol(ready, NULL, 10);
    if (in->ready_fd >= 0 && fcntl(in->ready_fd, F_SETFD, FD_CLOEXEC))
        in->ready_fd = -1;
}

/* sd_listen_fds(3). */
static void read_systemd(struct ek_inherited *in)
{
    const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
    if (!pid || !fds || strtol(pid, NULL, 10) != (long)getpid())
        return;
    long n = strtol(fds, NULL, 10);
    for (int fd = 3; fd < 3 + n && fd < 3 + EK_INHERITED_MAX; fd++) {
        char name[128];
        if (ek_address_of(name, fd) == 0)
            add(in, fd, name, strlen(name), true);
    }
}

void ek_inherited_read(struct ek_inherited *in)
{
    static const char *const names[] = {"EVENKEEL_SOCKETS", "EVENKEEL_READY_FD",
                                        "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"};
    in->n = 0;
    in->ready_fd = -1;
    read_ours(in);
    read_systemd(in);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
}

/* ":443" is bound to every address, which reads "[::]:443" or "0.0.0.0:443". */
static bool is_bound_so(const char *bound, const char *listen)
{
    if (strcmp(bound, listen) == 0)
        return true;
    const char *port = strrchr(bound, ':');
    return listen[0] == ':' && port && strcmp(port, listen) == 0 &&
           (strncmp(bound, "[::]:", 5) == 0 || strncmp(bound, "0.0.0.0:", 8) == 0);
}

const char *ek_inherited_find(struct ek_inherited *in, char out[EK_INHERITED_AT],
                              const char *listen)
{
    for (size_t i = 0; in && i < in->n; i++) {
        struct ek_inherited_socket *s = &in->sockets[i];
        if (s->fd < 0 || !is_bound_so(s->listen, listen))
            continue;
        snprintf(out, EK_INHERITED_AT, "fd@%d%s", s->fd, s->is_lent ? "" : ",file");
        s->fd = -1;
        return out;
    }
    return listen;
}

size_t ek_inherited_end(struct ek_inherited *in, const char *why)
{
    char ready[8 + EK_INHERITED_MAX * 12] = "ready";
    size_t n_left = 0, at = strlen(ready);
    for (size_t i = 0; i < in->n; i++) {
        int fd = in->sockets[i].fd;
        if (fd < 0)
            continue;
        at += (size_t)snprintf(ready + at, sizeof ready - at, " %d", fd);
        close(fd);
        in->sockets[i].fd = -1;
        n_left++;
    }
    if (in->ready_fd >= 0) {
        const char *text = why ? why : ready;
        ssize_t n = write(in->ready_fd, text, strlen(text));
        (void)n; /* an old proxy that is gone needs no answer */
        close(in->ready_fd);
        in->ready_fd = -1;
    }
    return n_left;
}
