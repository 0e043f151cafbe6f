/* upgrade.c - a new process takes over: it is started with the listening sockets, and
 * once it says that it is ready this one drains. If it does not, this one goes on.
 *
 *   NONE ──SIGUSR2──> STARTED ──"ready"──> drains; the new one accepts
 *     ^                  │
 *     └── its end, another text, or 60 s: why is logged
 */
#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "route/inherit.h"
#include "route/run_int.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { MAX_ENV_BYTES = 1 << 20, MAX_SAID_BYTES = 2048 };
static const int64_t limit_us = 60000000;

/* One that is starting. */
struct ek_upgrade {
    struct ek_route *route;
    pid_t pid;
    struct ek_watch said; /* the pipe that it speaks into */
    struct ek_buf text;
    struct ek_timer timer;
    bool leaves_admin; /* the new one has no use for that socket */
};

static void end(struct ek_upgrade *u)
{
    ek_watch_stop(&u->said);
    if (u->said.fd >= 0)
        close(u->said.fd);
    ek_timer_stop(&u->timer);
    ek_buf_release(&u->text);
    u->route->upgrade = NULL;
    ek_free(u);
}

static void fail(struct ek_upgrade *u, const char *why)
{
    ek_log(EK_LOG_ERROR, "upgrade_failed", "pid=%lld why=\"%s\"", (long long)u->pid,
           why);
    struct ek_route *r = u->route;
    kill(u->pid, SIGTERM);
    r->dead_pid = u->pid;
    end(u);
    if (r->reloads_later)
        ek_route_reload(r);
    r->reloads_later = false;
}

static void take_back(struct ek_upgrade *u, long fd)
{
    struct ek_route *r = u->route;
    if (r->admin && ek_http_server_fd(r->admin) == fd)
        u->leaves_admin = true;
    for (size_t i = 0; i < EK_ROUTE_MAX_LISTENERS; i++) {
        if (r->fronts[i] && r->fronts[i]->fd == fd)
            r->fronts[i]->is_alone = true;
    }
}

/* "ready", and the sockets that it has no use for: who waits in a backlog of theirs is
 * still ours. */
static bool is_ready(struct ek_upgrade *u)
{
    const struct ek_buf *text = &u->text;
    static const char word[] = "ready";
    if (text->len < sizeof word - 1 || memcmp(text->data, word, sizeof word - 1) != 0)
        return false;
    const char *at = text->data + sizeof word - 1;
    while (*at == ' ') {
        char *end;
        long fd = strtol(at, &end, 10);
        if (end == at)
            return false;
        take_back(u, fd);
        at = end;
    }
    return *at == 0;
}

static void on_said(struct ek_watch *w, int events)
{
    struct ek_upgrade *u = w->owner;
    char bytes[512];
    ssize_t n = read(w->fd, bytes, sizeof bytes);
    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0 && ek_buf_add(&u->text, bytes, (size_t)n) == 0 &&
        u->text.len < MAX_SAID_BYTES / 2)
        return; /* its end is awaited */
    if (!is_ready(u)) {
        fail(u, u->text.len > 0 ? u->text.data : "it ended before it was ready");
        return;
    }
    struct ek_route *r = u->route;
    ek_log(EK_LOG_INFO, "upgraded", "pid=%lld", (long long)u->pid);
    r->is_handed_over = true;
    if (r->reloads_later)
        kill(u->pid, SIGHUP); /* it may have read the configuration before */
    if (r->admin && !u->leaves_admin)
        ek_http_server_keep_path(r->admin);
    end(u);
    ek_http_server_free(r->admin);
    r->admin = NULL;
    ek_route_begin_drain(r); /* no stop of somebody's: one of those may still come */
}

static void on_late(struct ek_timer *t)
{
    fail(t->owner, "it was not ready in time");
}

/* Starting it -------------------------------------------------------------------- */

static bool is_ours(const char *word)
{
    return strncmp(word, "EVENKEEL_SOCKETS=", 17) == 0 ||
           strncmp(word, "EVENKEEL_READY_FD=", 18) == 0 ||
           strncmp(word, "LISTEN_", 7) == 0;
}

/* "FD LISTEN" a line. */
static int name_sockets(struct ek_buf *out, const struct ek_route *r)
{
    int rc = ek_buf_add_str(out, "EVENKEEL_SOCKETS=");
    for (size_t i = 0; i < EK_ROUTE_MAX_LISTENERS && !rc; i++) {
        const struct ek_front *f = r->fronts[i];
        if (f)
            rc = ek_buf_addf(out, "%d %s%s\n", f->fd,
                             f->is_lent ? EK_INHERITED_LENT : "", f->listen);
    }
    if (!rc && r->admin)
        rc = ek_buf_addf(out, "%d %s\n", ek_http_server_fd(r->admin), r->config->admin);
    return rc ? rc : ek_buf_add_char(out, 0);
}

/* The environment with two words more; out holds them. *env: ek_free. */
static int make_env(char ***env, struct ek_buf *out, const struct ek_route *r, int fd)
{
    size_t n = 0, kept = 0;
    while (environ[n])
        n++;
    char **all = ek_calloc(n + 3, sizeof(char *));
    int rc = all ? name_sockets(out, r) : EK_ENOMEM;
    size_t ready = out->len;
    if (!rc)
        rc = ek_buf_addf(out, "EVENKEEL_READY_FD=%d", fd);
    if (!rc)
        rc = ek_buf_add_char(out, 0);
    if (rc) {
        ek_free(all);
        return rc;
    }
    for (size_t i = 0; i < n; i++) {
        if (!is_ours(environ[i]))
            all[kept++] = environ[i];
    }
    all[kept++] = out->data;
    all[kept] = out->data + ready;
    *env = all;
    return 0;
}

/* Descriptors that are closed on exec, but for these. */
static int pass(posix_spawn_file_actions_t *actions, const struct ek_route *r, int fd)
{
    int e = posix_spawn_file_actions_adddup2(actions, fd, fd);
    for (size_t i = 0; i < EK_ROUTE_MAX_LISTENERS && !e; i++) {
        if (r->fronts[i])
            e = posix_spawn_file_actions_adddup2(actions, r->fronts[i]->fd,
                                                 r->fronts[i]->fd);
    }
    if (!e && r->admin)
        e = posix_spawn_file_actions_adddup2(actions, ek_http_server_fd(r->admin),
                                             ek_http_server_fd(r->admin));
    return e;
}

/* errno, or 0. */
static int spawn(struct ek_upgrade *u, int fd)
{
    const struct ek_route *r = u->route;
    posix_spawn_file_actions_t actions;
    struct ek_buf words;
    char **env = NULL;
    ek_buf_init(&words, MAX_ENV_BYTES);
    if (make_env(&env, &words, r, fd)) {
        ek_buf_release(&words);
        return ENOMEM;
    }
    int e = posix_spawn_file_actions_init(&actions);
    if (!e) {
        e = pass(&actions, r, fd);
        if (!e)
            e = posix_spawnp(&u->pid, r->host.argv[0], &actions, NULL, r->host.argv,
                             env);
        posix_spawn_file_actions_destroy(&actions);
    }
    ek_free(env);
    ek_buf_release(&words);
    return e;
}

static int start(struct ek_upgrade *u)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC))
        return errno;
    int flags = fcntl(fds[0], F_GETFL);
    fcntl(fds[0], F_SETFL, flags | O_NONBLOCK);
    u->said.fd = fds[0];
    int e = spawn(u, fds[1]);
    close(fds[1]);
    if (!e && (ek_watch_start(u->route->loop, &u->said, EK_READABLE) ||
               ek_timer_start(&u->timer, limit_us)))
        e = ENOMEM;
    return e;
}

void ek_route_begin_upgrade(struct ek_route *r)
{
    const char *why = !r->host.argv ? "it is not known how this one was started"
                      : r->upgrade  ? "one is under way"
                      : ek_counter_get(&r->router.is_draining) ? "the proxy is draining"
                                                               : NULL;
    struct ek_upgrade *u = why ? NULL : ek_calloc(1, sizeof *u);
    if (!u) {
        ek_log(EK_LOG_ERROR, "upgrade_failed", "why=\"%s\"",
               why ? why : "out of memory");
        return;
    }
    u->route = r;
    u->said = (struct ek_watch){.fd = -1, .on_ready = on_said, .owner = u};
    ek_buf_init(&u->text, MAX_SAID_BYTES);
    ek_timer_init(&u->timer, r->loop, on_late, u);
    r->upgrade = u;
    int e = start(u);
    if (e && u->pid > 0) {
        fail(u, strerror(e));
    } else if (e) {
        ek_log(EK_LOG_ERROR, "upgrade_failed", "why=\"%s: %s\"", r->host.argv[0],
               strerror(e));
        end(u);
    } else {
        ek_log(EK_LOG_INFO, "upgrading", "pid=%lld", (long long)u->pid);
    }
}

void ek_route_work_upgrade(struct ek_route *r)
{
    if (r->dead_pid > 0 && waitpid(r->dead_pid, NULL, WNOHANG) != 0)
        r->dead_pid = 0;
}

void ek_route_end_upgrade(struct ek_route *r)
{
    if (r->upgrade)
        end(r->upgrade);
}
