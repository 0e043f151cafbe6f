/* voice.c - a voice-like backend: a WebSocket server that echoes each frame after
 * burning CPU for it, counts its sessions with libevenkeel, and tells a proxy how many
 * more it can carry.
 *
 *   voice [--host ADDRESS] [--port N] [--burn-us N] [--cores X] [--quota X]
 *         [--agent-port N] [--agent capacity|cpu] [--max-sessions N]
 *         [--prior-cost X] [--window-ms N] [--name TEXT]
 *
 *   ws://HOST:PORT/...   a session; silent ones cost nothing
 *   GET /load            the tracker's report as JSON: what `keel route` polls
 *   GET /orca            the same as a message of ORCA, for who streams it by gRPC
 *   GET /metrics         the same for Prometheus
 *   GET /frames          how many found their CPU, how many not
 *   agent-port           HAProxy's agent-check line: the share of capacity that is left
 *                        (the tracker's line), or with `--agent cpu` of idle CPU alone,
 *                        as an agent says that knows no more
 *   POST /drain          no new sessions from here on
 *   GET /...             the name
 *
 * One thread, level-triggered epoll. --cores says how much of the machine this server
 * may count on, where no cgroup says it; --quota says it and holds to it, as a cgroup
 * would: a frame for which no CPU is left is echoed without (late speech is lost, not
 * done later). Everything that has to do with the tracker is
 * marked "tracker:".
 */
#include <arpa/inet.h>
#include <errno.h>
#include <evenkeel/session.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_IN = 1 << 17, MAX_OUT = 1 << 20, MAX_EVENTS = 64 };

struct conn {
    int fd;
    bool is_open;   /* the handshake is done */
    bool is_ending; /* closed once `out` is sent */
    bool waits_to_send;
    size_t n_in, n_out;
    size_t cap_in, cap_out;
    char *in, *out;
    struct ek_session session; /* tracker: of this connection */
};

struct server {
    int epoll_fd, listen_fd, agent_fd; /* agent_fd: -1 without */
    struct ek_tracker *tracker;
    const char *name;
    bool tells_cpu;         /* the agent, no more than that */
    long burn_us;           /* of CPU that a spoken frame takes in all */
    int64_t burnt_us;       /* CPU used when the last one was done */
    double quota;           /* cores; 0: none */
    double left_us;         /* of it */
    int64_t left_at_us;     /* when that was so */
    long n_burnt, n_unpaid; /* frames */
};

/* Bytes ------------------------------------------------------------------------ */

static bool put(struct conn *c, const void *p, size_t n)
{
    if (n == 0)
        return true;
    if (c->n_out + n > MAX_OUT)
        return false;
    if (c->n_out + n > c->cap_out) {
        char *more = realloc(c->out, c->n_out + n);
        if (!more)
            return false;
        c->out = more;
        c->cap_out = c->n_out + n;
    }
    memcpy(c->out + c->n_out, p, n);
    c->n_out += n;
    return true;
}

static void close_conn(struct conn *c)
{
    ek_session_end(&c->session); /* tracker: harmless if none was begun */
    close(c->fd);
    free(c->in);
    free(c->out);
    free(c);
}

/* False: the connection is gone. */
static bool flush(struct server *s, struct conn *c)
{
    size_t sent = 0;
    while (sent < c->n_out) {
        ssize_t n = send(c->fd, c->out + sent, c->n_out - sent, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN)
            return false;
        if (n < 0)
            break;
        sent += (size_t)n;
    }
    if (sent > 0)
        memmove(c->out, c->out + sent, c->n_out - sent);
    c->n_out -= sent;
    if (c->n_out == 0) {
        free(c->out);
        c->out = NULL;
        c->cap_out = 0;
        if (c->is_ending)
            return false;
    }
    if (c->waits_to_send != (c->n_out > 0)) {
        c->waits_to_send = c->n_out > 0;
        struct epoll_event e = {.events = c->waits_to_send ? EPOLLOUT : EPOLLIN,
                                .data.ptr = c};
        epoll_ctl(s->epoll_fd, EPOLL_CTL_MOD, c->fd, &e);
    }
    return true;
}

/* HTTP ------------------------------------------------------------------------- */

static bool answer(struct conn *c, const char *status, const char *type,
                   const char *body, size_t n)
{
    char head[512];
    int k = snprintf(head, sizeof head,
                     "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n",
                     status, type, n);
    return put(c, head, (size_t)k) && put(c, body, n);
}

/* The value of a header in the NUL-terminated head, or "". */
static void find_header(char *value, size_t cap, const char *head, const char *name)
{
    value[0] = 0;
    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line, "\r\n")) {
        line += 2;
        size_t n = strlen(name);
        if (strncasecmp(line, name, n) != 0 || line[n] != ':')
            continue;
        line += n + 1 + strspn(line + n + 1, " ");
        size_t len = strcspn(line, "\r");
        if (len < cap) {
            memcpy(value, line, len);
            value[len] = 0;
        }
        return;
    }
}

static void make_accept(char accept[32], const char *key)
{
    char text[128];
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    int k = snprintf(text, sizeof text, "%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key);
    EVP_Digest(text, (size_t)k, sum, &n, EVP_sha1(), NULL);
    EVP_EncodeBlock((unsigned char *)accept, sum, (int)n);
}

static bool open_session(struct server *s, struct conn *c, const char *key)
{
    char accept[32], head[512];
    if (ek_session_begin(s->tracker, &c->session)) { /* tracker: full, or draining */
        static const char full[] = "full\n";
        return answer(c, "503 Service Unavailable\r\nRetry-After: 1", "text/plain",
                      full, sizeof full - 1);
    }
    make_accept(accept, key);
    int k = snprintf(head, sizeof head,
                     "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                     "Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n"
                     "X-Backend: %s\r\n\r\n",
                     accept, s->name);
    c->is_open = true;
    return put(c, head, (size_t)k);
}

/* tracker: what a balancer asks for. */
static bool answer_report(struct server *s, struct conn *c, enum ek_tracker_encoding e)
{
    char text[EK_TRACKER_ENCODED_MAX];
    size_t n = 0;
    if (ek_tracker_encode(s->tracker, e, text, sizeof text, &n))
        return false;
    return answer(c, "200 OK", ek_tracker_encoding_type(e), text, n);
}

static bool answer_frames(struct server *s, struct conn *c)
{
    char text[64];
    int n = snprintf(text, sizeof text, "{\"burnt\":%ld,\"unpaid\":%ld}", s->n_burnt,
                     s->n_unpaid);
    return answer(c, "200 OK", "application/json", text, (size_t)n);
}

static bool take_request(struct server *s, struct conn *c, const char *head)
{
    char key[64], upgrade[64];
    find_header(upgrade, sizeof upgrade, head, "upgrade");
    find_header(key, sizeof key, head, "sec-websocket-key");
    if (strcasestr(upgrade, "websocket") && key[0])
        return open_session(s, c, key);
    if (strncmp(head, "GET /load ", 10) == 0)
        return answer_report(s, c, EK_TRACKER_JSON);
    if (strncmp(head, "GET /orca ", 10) == 0)
        return answer_report(s, c, EK_TRACKER_ORCA_PROTO);
    if (strncmp(head, "GET /frames ", 12) == 0)
        return answer_frames(s, c);
    if (strncmp(head, "GET /metrics ", 13) == 0)
        return answer_report(s, c, EK_TRACKER_PROMETHEUS);
    if (strncmp(head, "POST /drain ", 12) == 0)
        ek_tracker_drain(s->tracker, true);
    return answer(c, "200 OK", "text/plain", s->name, strlen(s->name));
}

/* WebSocket -------------------------------------------------------------------- */

static int64_t clock_us(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* A quarter of a second's quota may be saved up. */
static bool can_pay(struct server *s)
{
    if (s->quota <= 0)
        return true;
    int64_t now = clock_us(CLOCK_MONOTONIC);
    double most = s->quota * 250000;
    if (most < (double)s->burn_us)
        most = (double)s->burn_us;
    s->left_us += s->quota * (double)(now - s->left_at_us);
    s->left_us = s->left_us < most ? s->left_us : most;
    s->left_at_us = now;
    if (s->left_us < (double)s->burn_us)
        return false;
    s->left_us -= (double)s->burn_us;
    return true;
}

/* What was used since the last frame (receiving, sending, reports) is part of this one's:
 * so that all CPU is under the quota, as in a cgroup. */
static void burn(struct server *s)
{
    if (!can_pay(s)) {
        s->n_unpaid++;
        return;
    }
    s->n_burnt++;
    int64_t until = s->burnt_us + s->burn_us;
    while ((s->burnt_us = clock_us(CLOCK_THREAD_CPUTIME_ID)) < until)
        continue;
}

static bool put_frame(struct conn *c, unsigned char first, const char *p, size_t n)
{
    unsigned char head[10] = {first};
    size_t k = 2;
    if (n < 126) {
        head[1] = (unsigned char)n;
    } else if (n < 65536) {
        head[1] = 126;
        head[2] = (unsigned char)(n >> 8);
        head[3] = (unsigned char)n;
        k = 4;
    } else {
        head[1] = 127;
        for (int i = 0; i < 8; i++)
            head[2 + i] = (unsigned char)((uint64_t)n >> (56 - 8 * i));
        k = 10;
    }
    return put(c, head, k) && put(c, p, n);
}

/* Takes one frame from p[0,n): its length, 0: not whole yet, -1: give up. */
static long take_frame(struct server *s, struct conn *c, unsigned char *p, size_t n)
{
    if (n < 2)
        return 0;
    size_t k = 2;
    uint64_t len = p[1] & 127;
    size_t extra = len == 126 ? 2 : len == 127 ? 8 : 0;
    if (!(p[1] & 128))
        return -1; /* clients mask */
    if (n < k + extra + 4)
        return 0;
    if (extra)
        len = 0;
    for (size_t i = 0; i < extra; i++)
        len = len << 8 | p[k++];
    if (len > MAX_IN - 14)
        return -1;
    const unsigned char *mask = p + k;
    k += 4;
    if (n < k + len)
        return 0;
    for (uint64_t i = 0; i < len; i++)
        p[k + i] ^= mask[i & 3];
    int opcode = p[0] & 15;
    unsigned char first = opcode == 9 ? 0x8a : p[0]; /* ping: pong */
    if (opcode <= 2)
        burn(s); /* somebody speaks */
    if (opcode != 10 && !put_frame(c, first, (char *)p + k, (size_t)len))
        return -1;
    c->is_ending |= opcode == 8;
    return (long)(k + len);
}

/* Everything whole in c->in. False: the connection is to be closed. */
static bool take_input(struct server *s, struct conn *c)
{
    size_t used = 0;
    while (used < c->n_in && !c->is_ending) {
        char *p = c->in + used;
        if (c->is_open) {
            long n = take_frame(s, c, (unsigned char *)p, c->n_in - used);
            if (n < 0)
                return false;
            if (n == 0)
                break;
            used += (size_t)n;
            continue;
        }
        char *end = memmem(p, c->n_in - used, "\r\n\r\n", 4);
        if (!end)
            break;
        end[2] = 0;
        if (!take_request(s, c, p))
            return false;
        used = (size_t)(end - c->in) + 4;
    }
    memmove(c->in, c->in + used, c->n_in - used);
    c->n_in -= used;
    if (c->n_in == 0) {
        free(c->in);
        c->in = NULL;
        c->cap_in = 0;
    }
    return true;
}

static bool read_input(struct conn *c)
{
    if (c->cap_in - c->n_in < 2048) {
        if (c->cap_in >= MAX_IN)
            return false;
        size_t cap = c->cap_in ? 2 * c->cap_in : 4096;
        char *more = realloc(c->in, cap);
        if (!more)
            return false;
        c->in = more;
        c->cap_in = cap;
    }
    ssize_t n = recv(c->fd, c->in + c->n_in, c->cap_in - c->n_in, 0);
    if (n < 0)
        return errno == EAGAIN;
    c->n_in += (size_t)n;
    return n > 0;
}

static void on_ready(struct server *s, struct conn *c, uint32_t events)
{
    bool is_fine = true;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        is_fine = read_input(c) && take_input(s, c);
    if (!is_fine || !flush(s, c))
        close_conn(c);
}

/* Life ------------------------------------------------------------------------- */

static void accept_all(struct server *s)
{
    for (;;) {
        int on = 1;
        int fd = accept4(s->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        struct conn *c = calloc(1, sizeof *c);
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        if (!c || epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &e)) {
            free(c);
            close(fd);
            continue;
        }
        c->fd = fd;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
}

/* At least 1 %: 0 would take the server out. */
static size_t tell_idle_cpu(struct server *s, char *text, size_t size)
{
    struct ek_tracker_report r;
    ek_tracker_read(s->tracker, &r, sizeof r);
    double idle = r.cpu_utilization < 0.99 ? 100 * (1 - r.cpu_utilization) : 1;
    return (size_t)snprintf(text, size, "%.0f%%\n", idle);
}

/* tracker: HAProxy asks by connecting. */
static void answer_agent(struct server *s)
{
    char text[EK_TRACKER_ENCODED_MAX];
    size_t n = 0;
    int fd = accept4(s->agent_fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    int rc = 0;
    if (s->tells_cpu)
        n = tell_idle_cpu(s, text, sizeof text);
    else
        rc = ek_tracker_encode(s->tracker, EK_TRACKER_AGENT, text, sizeof text, &n);
    if (!rc && send(fd, text, n, MSG_NOSIGNAL) < 0)
        perror("voice: agent");
    close(fd);
}

static int listen_on(const char *host, int port)
{
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t n = sizeof a;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || inet_pton(AF_INET, host, &a.sin_addr) != 1 ||
        bind(fd, (struct sockaddr *)&a, n) || listen(fd, 1024) ||
        getsockname(fd, (struct sockaddr *)&a, &n)) {
        perror("voice");
        exit(1);
    }
    printf("listening %s:%d\n", host, ntohs(a.sin_port));
    fflush(stdout);
    return fd;
}

static void watch(struct server *s, int fd, void *owner)
{
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = owner};
    if (fd >= 0 && epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &e)) {
        perror("voice");
        exit(1);
    }
}

static void run(struct server *s)
{
    struct epoll_event batch[MAX_EVENTS];
    watch(s, s->listen_fd, NULL);
    watch(s, s->agent_fd, s);
    for (;;) {
        int n = epoll_wait(s->epoll_fd, batch, MAX_EVENTS, -1);
        for (int i = 0; i < n; i++) {
            if (batch[i].data.ptr == s)
                answer_agent(s);
            else if (batch[i].data.ptr)
                on_ready(s, batch[i].data.ptr, batch[i].events);
            else
                accept_all(s);
        }
        if (n < 0 && errno != EINTR)
            return;
    }
}

int main(int argc, char **argv)
{
    struct server s = {.name = "voice", .agent_fd = -1};
    struct ek_tracker_options o;
    const char *host = "127.0.0.1";
    char why[200];
    int port = 0, agent_port = 0;
    ek_tracker_options_init(&o, sizeof o); /* tracker */
    o.prior_cost = 0.01;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--port") == 0)
            port = (int)strtol(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--agent-port") == 0)
            agent_port = (int)strtol(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--agent") == 0 && strcmp(argv[i + 1], "cpu") == 0)
            s.tells_cpu = true;
        else if (strcmp(argv[i], "--agent") == 0 &&
                 strcmp(argv[i + 1], "capacity") == 0)
            s.tells_cpu = false;
        else if (strcmp(argv[i], "--host") == 0)
            host = argv[i + 1];
        else if (strcmp(argv[i], "--burn-us") == 0)
            s.burn_us = strtol(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--cores") == 0)
            o.cores = strtod(argv[i + 1], NULL);
        else if (strcmp(argv[i], "--quota") == 0)
            o.cores = s.quota = strtod(argv[i + 1], NULL);
        else if (strcmp(argv[i], "--prior-cost") == 0)
            o.prior_cost = strtod(argv[i + 1], NULL);
        else if (strcmp(argv[i], "--window-ms") == 0)
            o.window_us = 20 * (o.sample_us = strtol(argv[i + 1], NULL, 10) * 50);
        else if (strcmp(argv[i], "--max-sessions") == 0)
            o.max_sessions = (int32_t)strtol(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--name") == 0)
            s.name = argv[i + 1];
        else
            return fprintf(stderr, "voice: %s is not understood\n", argv[i]), 2;
    }
    if (ek_tracker_new(&s.tracker, &o, why, sizeof why))
        return fprintf(stderr, "voice: %s\n", why), 1;
    s.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    s.left_at_us = clock_us(CLOCK_MONOTONIC);
    s.listen_fd = listen_on(host, port);
    if (agent_port > 0)
        s.agent_fd = listen_on(host, agent_port);
    run(&s);
    return 1;
}
