/* The server over real sockets: connections, limits, time, clients that leave. */
#include "base/mem.h"
#include "net/client.h"

#include <stdio.h>
#include <sys/resource.h>
#include <sys/un.h>

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

static void answer_stream(struct ek_http_exchange *x)
{
    assert_int_equal(ek_http_begin(x, 200, "text/plain"), 0);
    assert_int_equal(ek_http_send(x, "one,", 4), 0);
    assert_int_equal(ek_http_send(x, "", 0), 0);
    assert_int_equal(ek_http_send(x, "two", 3), 0);
    assert_int_equal(ek_http_end(x), 0);
}

static void on_request(void *arg, struct ek_http_exchange *x)
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
        size_t n = (size_t)3 << 20;
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

static void on_closed(void *arg, struct ek_http_exchange *x, bool is_aborted)
{
    struct fixture *f = arg;
    assert_ptr_equal(ek_http_get_user(x), f);
    f->n_closed++;
    f->n_aborted += is_aborted;
    if (f->held == x)
        f->held = NULL;
}

static void start_server(struct fixture *f)
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

static int setup(void **state)
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

static int teardown(void **state)
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
static void restart(struct fixture *f)
{
    client_close(&f->c);
    start_server(f);
    client_open(&f->c, ek_http_server_address(f->server));
}

static void expect(struct fixture *f, const char *text)
{
    if (!client_wait(&f->c, f->loop, text))
        fail_msg("no '%s' in: %s", text, f->c.got.len ? f->c.got.data : "(nothing)");
}

static void expect_end(struct fixture *f)
{
    assert_true(client_wait(&f->c, f->loop, NULL));
    assert_false(f->c.is_reset);
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: h\r\n\r\n"

static void a_request_is_answered_and_the_connection_kept(void **state)
{
    struct fixture *f = *state;
    client_send(&f->c, "GET /a%20b?q=%20 HTTP/1.1\r\nHost: h\r\n\r\n");
    expect(f, "\r\n\r\n/a b");
    assert_string_equal(f->query, "q=%20");
    assert_true(client_has(&f->c, "HTTP/1.1 200 OK\r\nDate: "));
    assert_true(client_has(&f->c, "Content-Length: 4\r\n"));
    assert_true(client_has(&f->c, "X-Path: /a b\r\n"));
    assert_false(client_has(&f->c, "Connection:"));
    client_send(&f->c, GET("/second"));
    expect(f, "\r\n\r\n/second");
    assert_int_equal(f->n_aborted, 0);
    assert_int_equal(ek_http_server_connections(f->server), 1);
}

static void requests_sent_ahead_are_answered_in_order(void **state)
{
    struct fixture *f = *state;
    client_send(&f->c, GET("/1") "POST /stream HTTP/1.1\r\nHost: h\r\nContent-Length: "
                                 "3\r\n\r\nabc" GET("/2") GET("/3"));
    expect(f, "\r\n\r\n/3");
    const char *at1 = strstr(f->c.got.data, "\r\n\r\n/1");
    const char *at2 = strstr(f->c.got.data, "4\r\none,\r\n3\r\ntwo\r\n0\r\n\r\n");
    const char *at3 = strstr(f->c.got.data, "\r\n\r\n/2");
    assert_true(at1 && at2 && at3 && at1 < at2 && at2 < at3);
    assert_int_equal(f->n_requests, 4);
}

static void a_request_sent_ahead_waits_while_the_handler_holds_the_first(void **state)
{
    struct fixture *f = *state;
    client_send(&f->c, GET("/hold") GET("/next"));
    while (!f->held)
        run_for(f->loop, 500);
    run_for(f->loop, 5000);
    assert_int_equal(f->n_requests, 1);
    assert_int_equal(ek_http_respond(f->held, 200, "text/plain", "held", 4), 0);
    expect(f, "\r\n\r\n/next");
    assert_true(client_has(&f->c, "\r\n\r\nheld"));
}

static void head_has_the_length_and_no_body(void **state)
{
    struct fixture *f = *state;
    client_send(&f->c, "HEAD /abc HTTP/1.1\r\nHost: h\r\n\r\n");
    expect(f, "\r\n\r\n");
    assert_true(client_has(&f->c, "Content-Length: 4\r\n"));
    assert_false(client_has(&f->c, "\r\n\r\n/abc"));
    client_send(&f->c, "HEAD /stream HTTP/1.1\r\nHost: h\r\n\r\n" GET("/last"));
    expect(f, "\r\n\r\n/last");
    assert_false(client_has(&f->c, "one,"));
}

static void no_content_has_neither_length_nor_body(void **state)
{
    struct fixture *f = *state;
    client_send(&f->c, GET("/empty") GET("/last"));
    expect(f, "\r\n\r\n/last");
    assert_memory_equal(f->c.got.data, "HTTP/1.1 204 No Content\r\n", 25);
    assert_null(strstr(f->c.got.data, "Content-Length: 0"));
}

static void http_10_closes_after_the_answer(void **state)
{
    struct fixture *f = *state;
    client_send(&f->c, "GET /old HTTP/1.0\r\n\r\n");
    expect_end(f);
    assert_true(client_has(&f->c, "Connection: close\r\n\r\n/old"));
}

static void http_10_keep_alive_is_granted_by_name(void **state)
{
    struct fixture *f = *state;
    client_send(&f->c, "GET /old HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
    expect(f, "Connection: keep-alive\r\n\r\n/old");
    client_send(&f->c, "GET /next HTTP/1.0\r\n\r\n");
    expect_end(f);
    assert_true(client_has(&f->c, "\r\n\r\n/next"));
}

static void http_10_streams_until_close(void **state)
{
    struct fixture *f = *state;
    client_send(&f->c, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    expect_end(f);
    assert_true(client_has(&f->c, "Connection: close\r\n\r\none,two"));
    assert_false(client_has(&f->c, "chunked"));
}

static void connection_close_is_honoured(void **state)
{
    struct fixture *f = *state;
    client_send(&f->c, "GET / HTTP/1.1\r\nHost: h\r\nConnection: x, CLOSE\r\n\r\n");
    expect_end(f);
    assert_true(client_has(&f->c, "Connection: close\r\n\r\n/"));
}

static void a_chunked_body_arrives_whole(void **state)
{
    struct fixture *f = *state;
    client_send(&f->c, "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n"
                       "\r\n3;x=\"y\"\r\nabc\r\n00A\r\n0123456789\r\n0\r\nT: v\r\n"
                       "\r\n" GET("/last"));
    expect(f, "\r\n\r\n/c");
    expect(f, "\r\n\r\n/last");
    assert_int_equal(f->n_requests, 2);
}

static void expect_continue_is_answered_before_the_body(void **state)
{
    struct fixture *f = *state;
    client_send(&f->c, "POST /e HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
                       "Content-Length: 5\r\n\r\n");
    expect(f, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_int_equal(f->n_requests, 0);
    client_send(&f->c, "hello");
    expect(f, "\r\n\r\n/e");
    assert_string_equal(f->body, "hello");
}

static void expect_continue_with_a_body_too_large_is_refused_at_once(void **state)
{
    struct fixture *f = *state;
    client_send(&f->c, "POST /e HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
                       "Content-Length: 99999999999\r\n\r\n");
    expect(f, "HTTP/1.1 413 ");
    assert_false(client_has(&f->c, "100 Continue"));
    assert_int_equal(f->n_requests, 0);
}

static void options_star_is_answered_by_the_server(void **state)
{
    struct fixture *f = *state;
    client_send(&f->c, "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n" GET("/last"));
    expect(f, "\r\n\r\n/last");
    assert_true(client_has(&f->c, "HTTP/1.1 204 No Content\r\n"));
    assert_true(client_has(&f->c, "Allow: GET, HEAD"));
    assert_int_equal(f->n_requests, 1);
}

/* Refusals --------------------------------------------------------------------- */

static void a_malformed_request_gets_400_and_the_end(void **state)
{
    struct fixture *f = *state;
    client_send(&f->c, GET("/ok") "GET /x HTTP/1.1\nHost: h\n\n");
    expect_end(f);
    assert_true(client_has(&f->c, "\r\n\r\n/ok"));
    assert_true(client_has(&f->c, "HTTP/1.1 400 Bad Request\r\n"));
    assert_true(client_has(&f->c, "an LF without CR"));
}

static void a_body_too_large_is_refused_and_the_answer_is_not_lost(void **state)
{
    struct fixture *f = *state;
    static char junk[100000];
    f->limits.max_body_bytes = 1000;
    restart(f);
    client_send(&f->c, "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n");
    client_send_bytes(&f->c, junk, sizeof junk);
    expect(f, "HTTP/1.1 413 Content Too Large\r\n");
    expect_end(f);
    assert_int_equal(f->n_requests, 0);
}

static void a_chunked_body_too_large_is_refused(void **state)
{
    struct fixture *f = *state;
    f->limits.max_body_bytes = 10;
    restart(f);
    client_send(&f->c, "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n"
                       "\r\n8\r\n12345678\r\n8\r\n12345678\r\n0\r\n\r\n");
    expect(f, "HTTP/1.1 413 ");
    assert_int_equal(f->n_requests, 0);
}

static void a_long_target_gets_414_and_many_headers_431(void **state)
{
    struct fixture *f = *state;
    char line[9000];
    memset(line, 'a', sizeof line - 1);
    line[sizeof line - 1] = 0;
    client_send(&f->c, "GET /");
    client_send(&f->c, line);
    expect(f, "HTTP/1.1 414 ");
    restart(f);
    client_send(&f->c, "GET / HTTP/1.1\r\nHost: h\r\n");
    for (int i = 0; i < 4; i++) {
        client_send(&f->c, "X: ");
        client_send(&f->c, line);
        client_send(&f->c, "\r\n");
    }
    expect(f, "HTTP/1.1 431 ");
}

static int json_body(void *arg, struct ek_buf *out, int code, const char *reason)
{
    (void)arg;
    return ek_buf_addf(out, "{\"code\":%d,\"why\":\"%s\"}", code, reason);
}

static void error_bodies_may_be_the_handlers(void **state)
{
    struct fixture *f = *state;
    struct ek_http_handler h = {.on_request = on_request,
                                .on_closed = on_closed,
                                .arg = f,
                                .on_error_body = json_body,
                                .error_type = "application/json"};
    ek_http_server_free(f->server);
    client_close(&f->c);
    assert_int_equal(ek_http_server_new(&f->server, f->loop, "127.0.0.1:0", NULL,
                                        &f->limits, &h, NULL),
                     0);
    client_open(&f->c, ek_http_server_address(f->server));
    client_send(&f->c, "BREW / HTTP/1.1\r\nHost: h\r\n\r\n");
    expect(f, "{\"code\":501,\"why\":\"the method is not known here\"}");
    assert_true(client_has(&f->c, "Content-Type: application/json\r\n"));
}

static void a_bad_answer_header_is_refused(void **state)
{
    struct fixture *f = *state;
    client_send(&f->c, GET("/hold"));
    while (!f->held)
        run_for(f->loop, 500);
    assert_int_equal(ek_http_add_header(f->held, "X", "a\r\nSet-Cookie: b"), EK_EINVAL);
    assert_int_equal(ek_http_add_header(f->held, "X Y", "a"), EK_EINVAL);
    assert_int_equal(ek_http_add_header(f->held, "content-length", "1"), EK_EINVAL);
    assert_int_equal(ek_http_add_header(f->held, "Retry-After", "1"), 0);
    assert_int_equal(ek_http_respond(f->held, 429, "text/plain", "later", 5), 0);
    expect(f, "Retry-After: 1\r\n\r\nlater");
}

/* Time ------------------------------------------------------------------------- */

static void a_slow_head_gets_408(void **state)
{
    struct fixture *f = *state;
    f->limits.head_timeout_us = 30000;
    restart(f);
    for (int i = 0; i < 20 && !f->c.is_ended; i++) {
        /* A byte now and then does not help: the head is timed as a whole. */
        send(f->c.fd, "G", 1, MSG_NOSIGNAL);
        run_for(f->loop, 5000);
        client_take(&f->c);
    }
    assert_true(client_has(&f->c, "HTTP/1.1 408 Request Timeout\r\n"));
    assert_int_equal(f->n_requests, 0);
}

static void a_stalled_body_gets_408_and_a_slow_one_does_not(void **state)
{
    struct fixture *f = *state;
    f->limits.body_timeout_us = 60000;
    restart(f);
    client_send(&f->c, "POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\n");
    for (int i = 0; i < 8; i++) {
        run_for(f->loop, 10000);
        client_send(&f->c, "x");
    }
    expect(f, "\r\n\r\n/b");
    client_send(&f->c, "POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\nx");
    expect(f, "HTTP/1.1 408 ");
}

static void an_idle_connection_is_closed_without_a_word(void **state)
{
    struct fixture *f = *state;
    f->limits.idle_timeout_us = 20000;
    restart(f);
    expect_end(f);
    assert_int_equal(f->c.got.len, 0);
}

static void a_reader_that_takes_nothing_is_closed(void **state)
{
    struct fixture *f = *state;
    f->limits.send_timeout_us = 40000;
    restart(f);
    int small = 4096;
    setsockopt(f->c.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    for (int i = 0; i < 4; i++)
        client_send(&f->c, GET("/big"));
    for (int i = 0; i < 1000 && f->n_aborted == 0; i++)
        run_for(f->loop, 2000);
    assert_int_equal(f->n_aborted, 1);
    assert_int_equal(ek_http_server_connections(f->server), 0);
}

static void a_slow_reader_gets_a_large_answer_whole(void **state)
{
    struct fixture *f = *state;
    client_send(&f->c, GET("/big"));
    expect(f, "!");
    assert_int_equal(f->n_aborted, 0);
    assert_true(client_has(&f->c, "Content-Length: 3145728\r\n"));
}

/* Clients that leave ----------------------------------------------------------- */

static void hold(struct fixture *f)
{
    client_send(&f->c, GET("/hold"));
    for (int i = 0; i < 1000 && !f->held; i++)
        run_for(f->loop, 500);
    assert_non_null(f->held);
}

static void a_client_that_leaves_while_held_aborts_the_exchange(void **state)
{
    struct fixture *f = *state;
    hold(f);
    client_close(&f->c);
    run_for(f->loop, 0);
    run_for(f->loop, 0);
    assert_int_equal(f->n_aborted, 1);
    assert_null(f->held);
}

static void a_client_that_leaves_mid_stream_aborts_the_exchange(void **state)
{
    struct fixture *f = *state;
    hold(f);
    assert_int_equal(ek_http_begin(f->held, 200, "text/event-stream"), 0);
    assert_int_equal(ek_http_send(f->held, "data: x\n\n", 9), 0);
    expect(f, "data: x");
    client_close(&f->c);
    run_for(f->loop, 0);
    run_for(f->loop, 0);
    assert_int_equal(f->n_aborted, 1);
}

static void a_reset_while_held_aborts_the_exchange(void **state)
{
    struct fixture *f = *state;
    struct linger l = {.l_onoff = 1, .l_linger = 0};
    hold(f);
    setsockopt(f->c.fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
    client_close(&f->c);
    run_for(f->loop, 0);
    run_for(f->loop, 0);
    assert_int_equal(f->n_aborted, 1);
}

static void a_half_closed_client_still_gets_an_answer_given_at_once(void **state)
{
    struct fixture *f = *state;
    client_send(&f->c, GET("/1") GET("/2") GET("/big"));
    shutdown(f->c.fd, SHUT_WR);
    expect_end(f);
    assert_true(client_has(&f->c, "\r\n\r\n/1"));
    assert_true(client_has(&f->c, "\r\n\r\n/2"));
    assert_true(client_has(&f->c, "!"));
    assert_int_equal(f->n_aborted, 0);
}

static void an_abort_closes_the_connection(void **state)
{
    struct fixture *f = *state;
    client_send(&f->c, GET("/abort"));
    assert_true(client_wait(&f->c, f->loop, NULL));
    assert_int_equal(f->n_aborted, 1);
    hold((restart(f), f));
    ek_http_abort(f->held);
    assert_non_null(f->held); /* on_closed comes from the loop, not from the call */
    assert_int_equal(ek_http_respond(f->held, 200, NULL, "", 0), EK_ECLOSED);
    assert_true(client_wait(&f->c, f->loop, NULL));
    assert_int_equal(f->n_aborted, 2);
}

static void a_client_gone_in_the_middle_of_a_request_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    client_send(&f->c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nab");
    run_for(f->loop, 3000);
    assert_int_equal(ek_http_server_connections(f->server), 1);
    client_close(&f->c);
    run_for(f->loop, 3000);
    assert_int_equal(ek_http_server_connections(f->server), 0);
    assert_int_equal(f->n_requests, 0);
}

/* Ceilings --------------------------------------------------------------------- */

static void unsent_bytes_have_a_ceiling(void **state)
{
    struct fixture *f = *state;
    static char piece[60000];
    f->limits.max_unsent_bytes = 100000;
    restart(f);
    hold(f);
    assert_int_equal(ek_http_begin(f->held, 200, "text/plain"), 0);
    int rc = 0, n = 0;
    while (rc == 0 && n < 10000) {
        rc = ek_http_send(f->held, piece, sizeof piece);
        run_for(f->loop, 0);
        n++;
    }
    assert_int_equal(rc, EK_ELIMIT);
    ek_http_abort(f->held);
    run_for(f->loop, 0);
    assert_int_equal(f->n_aborted, 1);
}

static void pieces_larger_than_the_socket_arrive_in_order(void **state)
{
    struct fixture *f = *state;
    hold(f);
    assert_int_equal(ek_http_begin(f->held, 200, "text/plain"), 0);
    char line[32];
    for (int i = 0; i < 100000; i++) {
        int n = snprintf(line, sizeof line, "%d,", i);
        assert_int_equal(ek_http_send(f->held, line, (size_t)n), 0);
    }
    assert_int_equal(ek_http_end(f->held), 0);
    expect(f, "\r\n0\r\n\r\n");
    char *at = strstr(f->c.got.data, "\r\n\r\n") + 4;
    for (int i = 0; i < 100000; i++) {
        char want[48];
        int n = snprintf(line, sizeof line, "%d,", i);
        int m = snprintf(want, sizeof want, "%x\r\n%s\r\n", n, line);
        assert_memory_equal(at, want, m);
        at += m;
    }
}

static void connections_over_the_limit_are_closed(void **state)
{
    struct fixture *f = *state;
    struct client extra;
    f->limits.max_connections = 1;
    restart(f);
    run_for(f->loop, 1000);
    client_open(&extra, ek_http_server_address(f->server));
    assert_true(client_wait(&extra, f->loop, NULL));
    client_send(&f->c, GET("/still"));
    expect(f, "\r\n\r\n/still");
    client_close(&extra);
}

/* Without descriptors the backlog waits, the loop does not spin, and accepting goes on
 * when there are some again. */
static void running_out_of_descriptors_is_survived(void **state)
{
    struct fixture *f = *state;
    struct rlimit old, low;
    client_send(&f->c, GET("/first"));
    expect(f, "/first");
    struct client late;
    client_open(&late, ek_http_server_address(f->server));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = old;
    low.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    run_for(f->loop, 50000);
    getrusage(RUSAGE_SELF, &after);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    int64_t used_us = (after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000000 +
                      (after.ru_utime.tv_usec - before.ru_utime.tv_usec);
    assert_true(used_us < 25000);
    client_send(&late, GET("/late"));
    assert_true(client_wait(&late, f->loop, "\r\n\r\n/late"));
    client_close(&late);
}

/* Life ------------------------------------------------------------------------- */

static void drain_finishes_what_is_under_way(void **state)
{
    struct fixture *f = *state;
    struct client idle;
    client_open(&idle, ek_http_server_address(f->server));
    hold(f);
    assert_int_equal(ek_http_server_connections(f->server), 2);
    ek_http_server_drain(f->server);
    assert_int_equal(ek_http_server_connections(f->server), 1);
    assert_true(client_wait(&idle, f->loop, NULL));
    assert_int_equal(ek_http_respond(f->held, 200, "text/plain", "bye", 3), 0);
    expect(f, "Connection: close\r\n\r\nbye");
    client_close(&f->c);
    run_for(f->loop, 2000);
    assert_int_equal(ek_http_server_connections(f->server), 0);
    client_close(&idle);
}

static void free_ends_held_exchanges_as_aborted(void **state)
{
    struct fixture *f = *state;
    hold(f);
    ek_http_server_free(f->server);
    f->server = NULL;
    assert_int_equal(f->n_aborted, 1);
}

static void addresses_that_cannot_be_are_refused_with_a_sentence(void **state)
{
    static const struct {
        const char *listen;
        int status;
        const char *text;
    } bad[] = {
        {"8080", EK_EINVAL, "8080: not HOST:PORT"},
        {"", EK_EINVAL, "not HOST:PORT"},
        {"h:", EK_EINVAL, "not HOST:PORT"},
        {"h:70000", EK_EINVAL, "not HOST:PORT"},
        {"h:-1", EK_EINVAL, "not HOST:PORT"},
        {"::1:80", EK_EINVAL, "not HOST:PORT"},
        {"[::1:80", EK_EINVAL, "not HOST:PORT"},
        {"192.0.2.1:0", EK_EIO, "192.0.2.1:0: Cannot assign requested address"},
        {"unix:", EK_EINVAL, "1 to 107 bytes"},
        {"unix:/nowhere/x", EK_EIO, "/nowhere/x: No such file or directory"},
    };
    struct fixture *f = *state;
    struct ek_http_handler h = {.on_request = on_request, .on_closed = on_closed};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct ek_http_server *s = NULL;
        struct ek_err err = EK_ERR_INIT;
        assert_int_equal(
            ek_http_server_new(&s, f->loop, bad[i].listen, NULL, &f->limits, &h, &err),
            bad[i].status);
        assert_null(s);
        if (!strstr(err.text, bad[i].text))
            fail_msg("'%s' is not in: %s", bad[i].text, err.text);
    }
}

static void a_port_in_use_is_refused_with_a_sentence(void **state)
{
    struct fixture *f = *state;
    struct ek_http_server *s = NULL;
    struct ek_err err = EK_ERR_INIT;
    struct ek_http_handler h = {.on_request = on_request, .on_closed = on_closed};
    assert_int_equal(ek_http_server_new(&s, f->loop, ek_http_server_address(f->server),
                                        NULL, &f->limits, &h, &err),
                     EK_EIO);
    assert_non_null(strstr(err.text, "Address already in use"));
}

static void a_unix_socket_serves_is_removed_and_replaces_a_dead_one(void **state)
{
    struct fixture *f = *state;
    char path[64], listen[80];
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    struct ek_http_handler h = {
        .on_request = on_request, .on_closed = on_closed, .arg = f};
    snprintf(path, sizeof path, "/tmp/ek_http_%d.sock", (int)getpid());
    snprintf(listen, sizeof listen, "unix:%s", path);
    snprintf(sa.sun_path, sizeof sa.sun_path, "%s", path);
    int dead = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(dead, (struct sockaddr *)&sa, sizeof sa), 0);
    close(dead);
    client_close(&f->c);
    ek_http_server_free(f->server);
    f->server = NULL;
    assert_int_equal(
        ek_http_server_new(&f->server, f->loop, listen, NULL, &f->limits, &h, NULL), 0);
    assert_string_equal(ek_http_server_address(f->server), listen);
    struct ek_http_server *second = NULL;
    assert_int_equal(
        ek_http_server_new(&second, f->loop, listen, NULL, &f->limits, &h, NULL),
        EK_EIO);
    run_for(f->loop, 1000);
    f->c = (struct client){.fd = socket(AF_UNIX, SOCK_STREAM, 0)};
    ek_buf_init(&f->c.got, 100000);
    assert_int_equal(connect(f->c.fd, (struct sockaddr *)&sa, sizeof sa), 0);
    hold(f);
    assert_int_equal(ek_http_respond(f->held, 200, "text/plain", "unix", 4), 0);
    expect(f, "\r\n\r\nunix");
    hold(f);
    client_close(&f->c);
    run_for(f->loop, 1000);
    assert_int_equal(f->n_aborted, 1);
    ek_http_server_free(f->server);
    f->server = NULL;
    assert_int_equal(access(path, F_OK), -1);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_request_is_answered_and_the_connection_kept),
        T(requests_sent_ahead_are_answered_in_order),
        T(a_request_sent_ahead_waits_while_the_handler_holds_the_first),
        T(head_has_the_length_and_no_body),
        T(no_content_has_neither_length_nor_body),
        T(http_10_closes_after_the_answer),
        T(http_10_keep_alive_is_granted_by_name),
        T(http_10_streams_until_close),
        T(connection_close_is_honoured),
        T(a_chunked_body_arrives_whole),
        T(expect_continue_is_answered_before_the_body),
        T(expect_continue_with_a_body_too_large_is_refused_at_once),
        T(options_star_is_answered_by_the_server),
        T(a_malformed_request_gets_400_and_the_end),
        T(a_body_too_large_is_refused_and_the_answer_is_not_lost),
        T(a_chunked_body_too_large_is_refused),
        T(a_long_target_gets_414_and_many_headers_431),
        T(error_bodies_may_be_the_handlers),
        T(a_bad_answer_header_is_refused),
        T(a_slow_head_gets_408),
        T(a_stalled_body_gets_408_and_a_slow_one_does_not),
        T(an_idle_connection_is_closed_without_a_word),
        T(a_reader_that_takes_nothing_is_closed),
        T(a_slow_reader_gets_a_large_answer_whole),
        T(a_client_that_leaves_while_held_aborts_the_exchange),
        T(a_client_that_leaves_mid_stream_aborts_the_exchange),
        T(a_reset_while_held_aborts_the_exchange),
        T(a_half_closed_client_still_gets_an_answer_given_at_once),
        T(an_abort_closes_the_connection),
        T(a_client_gone_in_the_middle_of_a_request_leaves_nothing),
        T(unsent_bytes_have_a_ceiling),
        T(pieces_larger_than_the_socket_arrive_in_order),
        T(connections_over_the_limit_are_closed),
        T(running_out_of_descriptors_is_survived),
        T(drain_finishes_what_is_under_way),
        T(free_ends_held_exchanges_as_aborted),
        T(addresses_that_cannot_be_are_refused_with_a_sentence),
        T(a_port_in_use_is_refused_with_a_sentence),
        T(a_unix_socket_serves_is_removed_and_replaces_a_dead_one),
    };
    return cmocka_run_group_tests_name("net/http_server", tests, NULL, NULL);
}
