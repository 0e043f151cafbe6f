/* The server over real sockets: requests, answers, refusals. */
#include "net/http_fixture.h"

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

static void many_requests_sent_ahead_are_all_answered(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 200; i++)
        client_send(&f->c, GET("/x"));
    client_send(&f->c, GET("/last"));
    expect(f, "\r\n\r\n/last");
    assert_int_equal(f->n_requests, 201);
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

static void a_body_that_came_with_its_head_needs_no_continue(void **state)
{
    struct fixture *f = *state;
    client_send(&f->c, "POST /e HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
                       "Content-Length: 5\r\n\r\nhel");
    run_for(f->loop, 1000);
    client_send(&f->c, "lo");
    expect(f, "\r\n\r\n/e");
    assert_false(client_has(&f->c, "100 Continue"));
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
    /* A client that sends all before it reads is not reset either. */
    for (int i = 0; i < 20; i++) {
        client_send_bytes(&f->c, junk, sizeof junk);
        run_for(f->loop, 200);
    }
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

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_request_is_answered_and_the_connection_kept),
        T(requests_sent_ahead_are_answered_in_order),
        T(many_requests_sent_ahead_are_all_answered),
        T(a_request_sent_ahead_waits_while_the_handler_holds_the_first),
        T(head_has_the_length_and_no_body),
        T(no_content_has_neither_length_nor_body),
        T(http_10_closes_after_the_answer),
        T(http_10_keep_alive_is_granted_by_name),
        T(http_10_streams_until_close),
        T(connection_close_is_honoured),
        T(a_chunked_body_arrives_whole),
        T(expect_continue_is_answered_before_the_body),
        T(a_body_that_came_with_its_head_needs_no_continue),
        T(expect_continue_with_a_body_too_large_is_refused_at_once),
        T(options_star_is_answered_by_the_server),
        T(a_malformed_request_gets_400_and_the_end),
        T(a_body_too_large_is_refused_and_the_answer_is_not_lost),
        T(a_chunked_body_too_large_is_refused),
        T(a_long_target_gets_414_and_many_headers_431),
        T(error_bodies_may_be_the_handlers),
        T(a_bad_answer_header_is_refused),
    };
    return cmocka_run_group_tests_name("net/http_server", tests, NULL, NULL);
}
