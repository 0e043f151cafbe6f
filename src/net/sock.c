#include "net/sock.h"

#include <errno.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

static int outcome(int want_now, int *want)
{
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        return EK_EIO;
    *want = want_now;
    return EK_EAGAIN;
}

int ek_sock_read(struct ek_sock *s, void *p, size_t cap, size_t *got, int *want)
{
    if (s->tls) {
        int rc = ek_tls_read(s->tls, p, cap, got, want);
        return rc == EK_ECLOSED && ek_tls_reason(s->tls)[0] ? EK_EIO : rc;
    }
    ssize_t n = recv(s->fd, p, cap, 0);
    if (n < 0)
        return outcome(EK_READABLE, want);
    if (n == 0)
        return EK_ECLOSED;
    *got = (size_t)n;
    *want = EK_READABLE;
    return 0;
}

int ek_sock_write(struct ek_sock *s, const void *p, size_t n, size_t *sent, int *want)
{
    if (s->tls) {
        int rc = ek_tls_write(s->tls, p, n, sent, want);
        return rc == EK_ECLOSED ? EK_EIO : rc;
    }
    ssize_t k = send(s->fd, p, n, MSG_NOSIGNAL);
    if (k < 0)
        return outcome(EK_WRITABLE, want);
    *sent = (size_t)k;
    *want = EK_WRITABLE;
    return 0;
}

bool ek_sock_has_bytes(const struct ek_sock *s)
{
    char byte;
    return recv(s->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

void ek_sock_shut(struct ek_sock *s)
{
    if (s->tls)
        ek_tls_end(s->tls);
    shutdown(s->fd, SHUT_WR);
}

void ek_sock_close(struct ek_sock *s, bool is_reset)
{
    if (s->fd < 0)
        return;
    if (s->tls && !is_reset)
        ek_tls_end(s->tls);
    ek_tls_free(s->tls);
    s->tls = NULL;
    if (is_reset) {
        const struct linger now = {.l_onoff = 1, .l_linger = 0};
        setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }
    close(s->fd);
    s->fd = -1;
}

void ek_sock_send_at_once(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void ek_sock_refuse_new(int fd)
{
    /* Classic BPF over the TCP header: byte 13 has the flags, 2 is SYN. */
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 13),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0),
        BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
    };
    const struct sock_fprog program = {sizeof code / sizeof code[0], code};
    int family = 0;
    socklen_t n = sizeof family;
    if (!getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &n) && family != AF_UNIX)
        setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

static int seconds(int64_t us)
{
    return us < 1000000 ? 1 : us > 3600000000 ? 3600 : (int)(us / 1000000);
}

void ek_sock_find_dead(int fd, int64_t dead_us)
{
    int family = 0;
    socklen_t n = sizeof family;
    if (dead_us <= 0 || getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &n) ||
        family == AF_UNIX)
        return;
    /* Half of the time in silence, then probes at a sixth each. */
    int on = 1, idle = seconds(dead_us / 2), interval = seconds(dead_us / 6), count = 3;
    unsigned limit_ms = (unsigned)seconds(dead_us) * 1000;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof limit_ms);
}
