/* http_fixture.h - a server on loopback with a handler of a few paths, for the tests of
 * the HTTP server. /hold is kept in `held`; the others are answered at once. */
#ifndef EVENKEEL_TESTS_NET_HTTP_FIXTURE_H
#define EVENKEEL_TESTS_NET_HTTP_FIXTURE_H

#include "base/mem.h"
#include "net/client.h"

#include <stdio.h>

/* More than the kernel holds for a connection. */
enum { BIG = 12 << 20 };

struct fixture {
    struct ek_loop *loop;
    struct ek_http_server *server;
    struct ek_http_limits limits;
    struct client c;
    struct ek_http_exchange *held; /* /hold keeps it here */
    int n_requests;
    int n_closed;
    int n_aborted;
    char path[256];
    char query[256];
    char body[256];
    size_t body_n;
};

static inline void answer_stream(struct ek_http_exchange *x)
{
    assert_int_equal(ek_http_begin(x, 200, "text/plain"), 0);
    assert_int_equal(ek_http_send(x, "one,", 4), 0);
    assert_int_equal(ek_http_send(x, "", 0), 0);
    assert_int_equal(ek_http_send(x, "two", 3), 0);
    assert_int_equal(ek_http_end(x), 0);
}

static inline void on_request(void *arg, struct ek_http_exchange *x)
{
    struct fixture *f = arg;
    const struct ek_http_request *r = ek_http_get_request(x);
    f->n_requests++;
    snprintf(f->path, sizeof f->path, "%s", r->path);
    snprintf(f->query, sizeof f->query, "%s", r->query);
    snprintf(f->body, sizeof f->body, "%s", r->body);
    f->body_n = r->body_n;
    ek_http_set_user(x, f);
    if (strcmp(r->path, "/hold") == 0) {
        f->held = x;
    } else if (strcmp(r->path, "/stream") == 0) {
        answer_stream(x);
    } else if (strcmp(r->path, "/abort") == 0) {
        ek_http_abort(x);
    } else if (strcmp(r->path, "/empty") == 0) {
        assert_int_equal(ek_http_respond(x, 204, NULL, NULL, 0), 0);
    } else if (strcmp(r->path, "/big") == 0) {
        size_t n = BIG;
        char *p = ek_calloc(n, 1);
        memset(p, 'x', n);
        p[n - 1] = '!';
        assert_int_equal(ek_http_respond(x, 200, "text/plain", p, n), 0);
        ek_free(p);
    } else {
        assert_int_equal(ek_http_add_header(x, "X-Path", r->path), 0);
        assert_int_equal(
            ek_http_respond(x, 200, "text/plain", r->path, strlen(r->path)), 0);
    }
}

static inline void on_closed(void *arg, struct ek_http_exchange *x, bool is_aborted)
{
    struct fixture *f = arg;
    assert_ptr_equal(ek_http_get_user(x), f);
    f->n_closed++;
    f->n_aborted += is_aborted;
    if (f->held == x)
        f->held = NULL;
}

static inline void start_server(struct fixture *f)
{
    struct ek_err err = EK_ERR_INIT;
    struct ek_http_handler h = {
        .on_request = on_request, .on_closed = on_closed, .arg = f};
    ek_http_server_free(f->server);
    f->server = NULL;
    assert_int_equal(ek_http_server_new(&f->server, f->loop, "127.0.0.1:0", NULL,
                                        &f->limits, &h, &err),
                     0);
}

static inline int setup(void **state)
{
    struct fixture *f = ek_calloc(1, sizeof *f);
    struct ek_err err = EK_ERR_INIT;
    assert_non_null(f);
    f->c.fd = -1;
    assert_int_equal(ek_loop_new(&f->loop, &err), 0);
    ek_http_limits_default(&f->limits);
    start_server(f);
    client_open(&f->c, ek_http_server_address(f->server));
    *state = f;
    return 0;
}

static inline int teardown(void **state)
{
    struct fixture *f = *state;
    client_close(&f->c);
    ek_http_server_free(f->server);
    ek_loop_free(f->loop);
    assert_int_equal(f->n_closed, f->n_requests);
    ek_free(f);
    return 0;
}

/* A new server with f->limits, and a client of it. */
static inline void restart(struct fixture *f)
{
    client_close(&f->c);
    start_server(f);
    client_open(&f->c, ek_http_server_address(f->server));
}

static inline void expect(struct fixture *f, const char *text)
{
    if (!client_wait(&f->c, f->loop, text))
        fail_msg("no '%s' in: %s", text, f->c.got.len ? f->c.got.data : "(nothing)");
}

static inline void expect_end(struct fixture *f)
{
    assert_true(client_wait(&f->c, f->loop, NULL));
    assert_false(f->c.is_reset);
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: h\r\n\r\n"

/* Has the handler hold an exchange of f->c in f->held. */
static inline void hold(struct fixture *f)
{
    client_send(&f->c, GET("/hold"));
    for (int i = 0; i < 1000 && !f->held; i++)
        run_for(f->loop, 500);
    assert_non_null(f->held);
}

#endif
