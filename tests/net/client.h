/* client.h - what the tests of the HTTP server share: a loop that runs in steps and raw
 * clients on loopback in the same thread, so that each test decides who acts when. */
#ifndef EVENKEEL_TESTS_NET_CLIENT_H
#define EVENKEEL_TESTS_NET_CLIENT_H

#include "base/buf.h"
#include "base/clock.h"
#include "net/http.h"
#include "testkit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct client {
    int fd;
    struct ek_buf got; /* all that arrived */
    bool is_ended;     /* the server closed its side */
    bool is_reset;
};

static void stop_on_time(struct ek_timer *t)
{
    ek_loop_stop(t->loop);
}

/* Lets the loop run for a while. */
static inline void run_for(struct ek_loop *loop, int64_t us)
{
    struct ek_timer t;
    struct ek_err err = EK_ERR_INIT;
    ek_timer_init(&t, loop, stop_on_time, NULL);
    assert_int_equal(ek_timer_start(&t, us), 0);
    assert_int_equal(ek_loop_run(loop, &err), 0);
}

static inline void client_open(struct client *c, const char *address)
{
    struct sockaddr_in sa = {.sin_family = AF_INET};
    const char *colon = strrchr(address, ':');
    *c = (struct client){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    assert_true(c->fd >= 0);
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sa.sin_port = htons((uint16_t)strtol(colon + 1, NULL, 10));
    assert_int_equal(connect(c->fd, (struct sockaddr *)&sa, sizeof sa), 0);
    ek_buf_init(&c->got, (size_t)64 << 20);
}

static inline void client_close(struct client *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    ek_buf_release(&c->got);
}

static inline void client_send_bytes(struct client *c, const char *p, size_t n)
{
    assert_int_equal(send(c->fd, p, n, MSG_NOSIGNAL), n);
}

static inline void client_send(struct client *c, const char *text)
{
    client_send_bytes(c, text, strlen(text));
}

/* Takes what is there without waiting. */
static inline void client_take(struct client *c)
{
    char buf[65536];
    ssize_t n;
    while ((n = recv(c->fd, buf, sizeof buf, MSG_DONTWAIT)) > 0)
        assert_int_equal(ek_buf_add(&c->got, buf, (size_t)n), 0);
    if (n == 0)
        c->is_ended = true;
    else if (errno != EAGAIN)
        c->is_ended = c->is_reset = true;
}

static inline bool client_has(const struct client *c, const char *text)
{
    return c->got.len > 0 && memmem(c->got.data, c->got.len, text, strlen(text));
}

/* Runs the loop until `text` arrived (NULL: the server ended); false after 120 s. */
static inline bool client_wait(struct client *c, struct ek_loop *loop, const char *text)
{
    int64_t end = ek_clock_us() + 120 * 1000000;
    while (ek_clock_us() < end) {
        run_for(loop, 500);
        client_take(c);
        if (text ? client_has(c, text) : c->is_ended)
            return true;
        if (c->is_ended)
            return false;
    }
    return false;
}

#endif
