/* probe_h2.c - an HTTP/2 server that shows scripts what the library makes of theirs.
 *
 *   probe_h2 [CERT KEY] [NAME=NUMBER...]    prints the port, serves until its input ends
 *   /hold      takes the body's bytes and keeps them: no window is opened
 *   /big       8 MiB, as the windows allow      /trailers    a body and trailers
 *   /only      trailers alone                   /reset       RST_STREAM(11) after its head
 *   /early     an answer, then RST_STREAM(0)    /drain       drains the connection
 *   /counts    what was counted, as JSON        a WebSocket, other paths: the body back
 * Names: max_streams, max_head, idle, stall, ping, handshake, head (ms), resets, frames.
 */
#include "base/mem.h"
#include "net/h2.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BIG = 8 << 20, PIECE = 16384 };

struct probe {
    struct ek_loop *loop;
    struct ek_watch input, listener;
    struct ek_h2_context *h2;
    struct ek_tls_context *tls;
    int n_held, n_closed, n_aborted;
};

/* One request's state. */
struct call {
    struct probe *probe;
    size_t n_left; /* of /big */
    bool is_held;
};

static const struct ek_text none;

static struct ek_text text(const char *s)
{
    return ek_text_of(s, strlen(s));
}

static void give_up_if(struct ek_h2_stream *s, int rc)
{
    if (!rc || rc == EK_EAGAIN)
        return;
    ek_free(ek_h2_user_of(s));
    ek_h2_reset(s, EK_H2_INTERNAL_ERROR);
}

static int answer(struct ek_h2_stream *s, int status, bool is_last)
{
    struct ek_field f = {text("X-Probe"), text("h2")}; /* lowered on the way */
    struct ek_head h = {
        .status = status, .fields = &f, .n_fields = 1, .body_bytes = -1};
    return ek_h2_answer(s, &h, is_last);
}

static int send_trailers(struct ek_h2_stream *s)
{
    struct ek_field f[2] = {{text("grpc-status"), text("0")}, {text("x-empty"), none}};
    return ek_h2_send_trailers(s, f, 2);
}

static int send_big(struct ek_h2_stream *s)
{
    static const char zeros[PIECE];
    struct call *call = ek_h2_user_of(s);
    int rc = 0;
    while (rc == 0 && call->n_left > 0) {
        rc = ek_h2_send(s, zeros, PIECE);
        if (!rc || rc == EK_EAGAIN)
            call->n_left -= PIECE;
    }
    return call->n_left > 0 ? rc : ek_h2_send_end(s);
}

static int send_counts(struct ek_h2_stream *s, const struct probe *p)
{
    const struct ek_h2_counts *n = ek_h2_context_counts(p->h2);
    char out[1024];
    int at = snprintf(out, sizeof out, "{\"held\": %d, \"closed\": %d, \"aborted\": %d",
                      p->n_held, p->n_closed, p->n_aborted);
#define X(name, help)                                                                  \
    at += snprintf(out + at, sizeof out - (size_t)at, ", \"" #name "\": %" PRId64,     \
                   ek_counter_get(&n->name));
    EK_H2_COUNT_TABLE(X)
#undef X
    int rc = ek_h2_send(s, out, (size_t)at);
    if (!rc || rc == EK_EAGAIN)
        rc = ek_h2_send(s, "}", 1);
    return rc && rc != EK_EAGAIN ? rc : ek_h2_send_end(s);
}

static int serve(struct ek_h2_stream *s, const struct ek_head *h, struct call *call)
{
    int rc = 0;
    if (ek_text_is(h->path, "/only"))
        return answer(s, 200, true);
    if (!ek_text_is(h->path, "/hold"))
        rc = answer(s, h->is_websocket ? 101 : 200, false);
    else
        call->is_held = true;
    call->probe->n_held += call->is_held;
    if (ek_text_is(h->path, "/big")) {
        call->n_left = BIG;
        return rc ? rc : send_big(s);
    }
    if (ek_text_is(h->path, "/counts"))
        return rc ? rc : send_counts(s, call->probe);
    if (ek_text_is(h->path, "/trailers")) {
        rc = rc ? rc : ek_h2_send(s, "body", 4);
        return rc && rc != EK_EAGAIN ? rc : send_trailers(s);
    }
    if (ek_text_is(h->path, "/drain"))
        ek_h2_drain(ek_h2_connection(s));
    return rc;
}

static void on_head(struct ek_h2_stream *s, const struct ek_head *h, bool is_last)
{
    struct call *call = ek_calloc(1, sizeof *call);
    call->probe = ek_h2_get_user(ek_h2_connection(s));
    ek_h2_set_user_of(s, call);
    if (ek_text_is(h->path, "/reset")) {
        int rc = answer(s, 200, false);
        (void)rc;
        ek_free(call);
        ek_h2_reset(s, EK_H2_ENHANCE_YOUR_CALM);
        return;
    }
    if (ek_text_is(h->path, "/early")) {
        int rc = answer(s, 200, true);
        (void)rc;
        ek_free(call);
        ek_h2_finish(s, EK_H2_NO_ERROR);
        return;
    }
    int rc = serve(s, h, call);
    if (rc == 0 && is_last && !call->is_held && call->n_left == 0) {
        rc = ek_h2_send_end(s);
        rc = rc == EK_ECLOSED ? 0 : rc;
    }
    give_up_if(s, rc);
}

static void on_data(struct ek_h2_stream *s, const char *p, size_t n)
{
    const struct call *call = ek_h2_user_of(s);
    if (call->is_held)
        return;
    ek_h2_consume(s, n);
    give_up_if(s, ek_h2_send(s, p, n));
}

static void on_end(struct ek_h2_stream *s, const struct ek_field *trailers, size_t n)
{
    const struct call *call = ek_h2_user_of(s);
    if (!call->is_held && call->n_left == 0) {
        int rc = ek_h2_send_trailers(s, trailers, n);
        give_up_if(s, rc == EK_ECLOSED ? 0 : rc);
    }
}

static void on_drained(struct ek_h2_stream *s)
{
    const struct call *call = ek_h2_user_of(s);
    if (call->n_left > 0)
        give_up_if(s, send_big(s));
}

static void on_stream_closed(struct ek_h2_stream *s, const struct ek_h2_end *e)
{
    struct call *call = ek_h2_user_of(s);
    call->probe->n_held -= call->is_held;
    call->probe->n_closed++;
    call->probe->n_aborted += e->was_reset;
    ek_free(call);
}

static void on_closed(struct ek_h2 *c, const char *why)
{
    (void)c;
    fprintf(stderr, "closed: %s\n", why);
}

static void on_accept(struct ek_watch *w, int events)
{
    struct probe *p = w->owner;
    struct ek_h2_start start = {.is_server = true, .user = p};
    struct ek_h2 *c;
    (void)events;
    start.fd = accept4(w->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (start.fd < 0)
        return;
    if (p->tls && ek_tls_new(&start.tls, p->tls, start.fd))
        abort();
    if (ek_h2_new(&c, p->h2, &start))
        abort();
}

static void on_input(struct ek_watch *w, int events)
{
    struct probe *p = w->owner;
    char c;
    (void)events;
    if (read(w->fd, &c, 1) <= 0)
        ek_loop_stop(p->loop);
}

static int open_listener(struct probe *p)
{
    struct sockaddr_in sa = {.sin_family = AF_INET};
    socklen_t n = sizeof sa;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof sa) || listen(fd, 511) ||
        getsockname(fd, (struct sockaddr *)&sa, &n))
        return EK_EIO;
    p->listener = (struct ek_watch){.fd = fd, .on_ready = on_accept, .owner = p};
    printf("%d\n", ntohs(sa.sin_port));
    fflush(stdout);
    return ek_watch_start(p->loop, &p->listener, EK_READABLE);
}

static void set(struct ek_h2_options *o, const char *word)
{
    static const char *const names[] = {"max_streams", "max_head", "idle",
                                        "stall",       "ping",     "handshake",
                                        "head",        "resets",   "frames"};
    const char *eq = strchr(word, '=');
    size_t i = 0;
    while (i < 9 && strncmp(word, names[i], (size_t)(eq - word)) != 0)
        i++;
    uint32_t v = (uint32_t)strtoul(eq + 1, NULL, 10);
    int64_t us = (int64_t)v * 1000;
    uint32_t *counts[] = {&o->max_streams, &o->max_head_bytes};
    int64_t *times[] = {&o->idle_timeout_us, &o->stall_timeout_us, &o->ping_interval_us,
                        &o->handshake_timeout_us, &o->head_timeout_us};
    if (i < 2)
        *counts[i] = v;
    else if (i < 7)
        *times[i - 2] = us;
    else if (i == 7)
        o->reset_burst = v;
    else
        o->frame_burst = v;
    if (i == 4)
        o->ping_timeout_us = us;
}

int main(int argc, char **argv)
{
    static const struct ek_h2_handler handler = {.on_head = on_head,
                                                 .on_data = on_data,
                                                 .on_end = on_end,
                                                 .on_drained = on_drained,
                                                 .on_stream_closed = on_stream_closed,
                                                 .on_closed = on_closed};
    struct probe p = {0};
    struct ek_err err = EK_ERR_INIT;
    struct ek_h2_options o;
    int first = argc > 2 && !strchr(argv[1], '=') ? 3 : 1;
    ek_h2_options_default(&o);
    for (int i = first; i < argc; i++)
        set(&o, argv[i]);
    int rc = ek_loop_new(&p.loop, &err);
    if (!rc && first == 3)
        rc = ek_tls_context_new(&p.tls, argv[1], argv[2], &err);
    if (!rc && p.tls)
        rc = ek_tls_context_set_alpn(p.tls, "h2");
    if (!rc)
        rc = ek_h2_context_new(&p.h2, p.loop, &handler, &o);
    p.input = (struct ek_watch){.on_ready = on_input, .owner = &p};
    if (!rc)
        rc = ek_watch_start(p.loop, &p.input, EK_READABLE);
    if (!rc)
        rc = open_listener(&p);
    if (!rc)
        rc = ek_loop_run(p.loop, &err);
    if (rc)
        fprintf(stderr, "probe_h2: %s\n", err.text);
    ek_watch_stop(&p.input);
    ek_watch_stop(&p.listener);
    close(p.listener.fd);
    ek_h2_context_free(p.h2);
    ek_tls_context_free(p.tls);
    ek_loop_free(p.loop);
    return rc ? 1 : 0;
}
