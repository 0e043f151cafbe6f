/* Our server's and client's end of HTTP/2, talking to each other over a socket pair. */
#include "net/client.h"
#include "net/h2_int.h"

#include <stdio.h>

enum { MAX_CALLS = 64 };

/* One stream at one end. */
struct call {
    struct ek_h2_stream *stream; /* NULL: over */
    int n_heads, status;
    bool is_last, is_websocket, is_ended, is_drained;
    size_t n_data;
    char path[64], trailer[64];
    struct ek_h2_end end;
};

struct end {
    struct ek_h2_context *context;
    struct ek_h2 *conn; /* NULL: closed */
    struct call calls[MAX_CALLS];
    int n_calls, n_over, n_changes;
    bool consumes, answers;
    char why[64];
};

struct fixture {
    struct ek_loop *loop;
    struct end server, client;
};

static struct ek_text text(const char *s)
{
    return ek_text_of(s, strlen(s));
}

static struct call *call_of(struct end *e, struct ek_h2_stream *s)
{
    for (int i = 0; i < e->n_calls; i++) {
        if (e->calls[i].stream == s)
            return &e->calls[i];
    }
    return NULL;
}

static struct end *end_of(struct ek_h2_stream *s)
{
    return ek_h2_get_user(ek_h2_connection(s));
}

static void on_head(struct ek_h2_stream *s, const struct ek_head *h, bool is_last)
{
    struct end *e = end_of(s);
    struct call *c = call_of(e, s);
    if (!c) {
        assert_true(e->n_calls < MAX_CALLS);
        c = &e->calls[e->n_calls++];
        c->stream = s;
        snprintf(c->path, sizeof c->path, "%.*s", (int)h->path.n, h->path.p);
    }
    c->n_heads++;
    c->status = h->status;
    c->is_last = is_last;
    c->is_websocket = h->is_websocket;
    if (e->answers) {
        struct ek_head a = {.status = 200, .body_bytes = -1};
        int rc = ek_h2_answer(s, &a, true);
        (void)rc;
    }
}

static void on_data(struct ek_h2_stream *s, const char *p, size_t n)
{
    struct end *e = end_of(s);
    (void)p;
    call_of(e, s)->n_data += n;
    if (e->consumes)
        ek_h2_consume(s, n);
}

static void on_end(struct ek_h2_stream *s, const struct ek_field *f, size_t n)
{
    struct call *c = call_of(end_of(s), s);
    c->is_ended = true;
    if (n > 0)
        snprintf(c->trailer, sizeof c->trailer, "%.*s=%.*s", (int)f[0].name.n,
                 f[0].name.p, (int)f[0].value.n, f[0].value.p);
}

static void on_drained(struct ek_h2_stream *s)
{
    call_of(end_of(s), s)->is_drained = true;
}

static void on_stream_closed(struct ek_h2_stream *s, const struct ek_h2_end *end)
{
    struct end *e = end_of(s);
    struct call *c = call_of(e, s);
    assert_non_null(c);
    c->end = *end;
    c->stream = NULL;
    e->n_over++;
}

static void on_change(struct ek_h2 *c)
{
    struct end *e = ek_h2_get_user(c);
    e->n_changes++;
}

static void on_closed(struct ek_h2 *c, const char *why)
{
    struct end *e = ek_h2_get_user(c);
    snprintf(e->why, sizeof e->why, "%s", why);
    e->conn = NULL;
}

static int open_end(struct fixture *f, struct end *e, int fd, bool is_server,
                    const struct ek_h2_options *o)
{
    static const struct ek_h2_handler handler = {.on_head = on_head,
                                                 .on_data = on_data,
                                                 .on_end = on_end,
                                                 .on_drained = on_drained,
                                                 .on_stream_closed = on_stream_closed,
                                                 .on_change = on_change,
                                                 .on_closed = on_closed};
    struct ek_h2_start start = {.fd = fd, .is_server = is_server, .user = e};
    int rc = ek_h2_context_new(&e->context, f->loop, &handler, o);
    if (rc) {
        close(fd);
        return rc;
    }
    return ek_h2_new(&e->conn, e->context, &start);
}

/* Both ends, connected; the loop is there already. */
static int open_both(struct fixture *f, const struct ek_h2_options *o)
{
    int fds[2];
    f->server = (struct end){.consumes = true};
    f->client = (struct end){.consumes = true};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    int rc = open_end(f, &f->server, fds[0], true, o);
    if (rc)
        close(fds[1]);
    return rc ? rc : open_end(f, &f->client, fds[1], false, o);
}

static void close_both(struct fixture *f)
{
    ek_h2_context_free(f->client.context);
    ek_h2_context_free(f->server.context);
    f->client.context = f->server.context = NULL;
}

static void turns(struct fixture *f, int n)
{
    for (int i = 0; i < n; i++)
        run_for(f->loop, 0);
}

static int setup(void **state)
{
    struct fixture *f = ek_calloc(1, sizeof *f);
    struct ek_h2_options o;
    ek_h2_options_default(&o);
    assert_int_equal(ek_loop_new(&f->loop, NULL), 0);
    assert_int_equal(open_both(f, &o), 0);
    turns(f, 6);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    close_both(f);
    ek_loop_free(f->loop);
    ek_free(f);
    return 0;
}

static void restart(struct fixture *f, const struct ek_h2_options *o)
{
    close_both(f);
    assert_int_equal(open_both(f, o), 0);
    turns(f, 6);
}

/* A client's request; NULL when it could not be opened (*rc says why). */
static struct call *request(struct fixture *f, const char *path, bool is_last, int *rc)
{
    struct end *e = &f->client;
    struct ek_field fields[2] = {{text("X-Mixed"), text("1")},
                                 {text("connection"), text("close")}};
    struct ek_head h = {.method = text("POST"),
                        .scheme = text("http"),
                        .authority = text("h"),
                        .path = text(path),
                        .fields = fields,
                        .n_fields = 2,
                        .body_bytes = -1};
    struct call *c = &e->calls[e->n_calls];
    *rc = e->conn ? ek_h2_open(&c->stream, e->conn, &h, is_last, NULL) : EK_ECLOSED;
    if (*rc)
        return NULL;
    e->n_calls++;
    return c;
}

static struct call *must_request(struct fixture *f, const char *path, bool is_last)
{
    int rc;
    struct call *c = request(f, path, is_last, &rc);
    assert_int_equal(rc, 0);
    return c;
}

static int answer(struct call *c, int status, bool is_last)
{
    struct ek_head h = {.status = status, .body_bytes = -1};
    return c->stream ? ek_h2_answer(c->stream, &h, is_last) : EK_ECLOSED;
}

static void heads_data_and_trailers_cross_both_ways(void **state)
{
    struct fixture *f = *state;
    struct ek_field t = {text("Grpc-Status"), text("0")};
    struct call *c = must_request(f, "/a?b", false), *s = &f->server.calls[0];
    assert_int_equal(ek_h2_send(c->stream, "up", 2), 0);
    assert_int_equal(ek_h2_send_trailers(c->stream, &t, 1), 0);
    assert_int_equal(ek_h2_send(c->stream, "x", 1), EK_ECLOSED);
    turns(f, 4);
    assert_string_equal(s->path, "/a?b");
    assert_int_equal(s->n_data, 2);
    assert_string_equal(s->trailer, "grpc-status=0");
    assert_int_equal(answer(s, 103, false), 0);
    assert_int_equal(answer(s, 200, false), 0);
    assert_int_equal(answer(s, 200, false), EK_ECLOSED);
    assert_int_equal(ek_h2_send(s->stream, "down", 4), 0);
    assert_int_equal(ek_h2_send_trailers(s->stream, &t, 1), 0);
    turns(f, 4);
    assert_int_equal(c->n_heads, 2);
    assert_int_equal(c->status, 200);
    assert_int_equal(c->n_data, 4);
    assert_string_equal(c->trailer, "grpc-status=0");
    assert_null(c->stream);
    assert_null(s->stream);
    assert_false(c->end.was_reset || s->end.was_reset);
}

static void a_writer_waits_when_its_reader_does(void **state)
{
    struct fixture *f = *state;
    static const char bytes[65536];
    struct call *c = must_request(f, "/", false), *s = &f->server.calls[0];
    f->server.consumes = false;
    turns(f, 4);
    assert_int_equal(ek_h2_send(c->stream, bytes, 60000), 0);
    assert_int_equal(ek_h2_send(c->stream, bytes, 6000), EK_EAGAIN);
    turns(f, 8);
    assert_int_equal(s->n_data, 65535);
    assert_false(c->is_drained);
    ek_h2_consume(s->stream, 65535);
    turns(f, 8);
    assert_int_equal(s->n_data, 66000);
    assert_true(c->is_drained);
    for (int i = 0; i < 15; i++)
        assert_int_equal(ek_h2_send(c->stream, bytes, sizeof bytes), EK_EAGAIN);
    assert_int_equal(ek_h2_send(c->stream, bytes, 2 * sizeof bytes), EK_ELIMIT);
}

static void reset_codes_pass_unchanged(void **state)
{
    struct fixture *f = *state;
    for (uint32_t code = 0; code <= 0xd; code++) {
        struct call *c = must_request(f, "/", false);
        turns(f, 4);
        struct call *s = &f->server.calls[f->server.n_calls - 1];
        if (code % 2)
            ek_h2_reset(c->stream, code);
        else
            ek_h2_reset(s->stream, code);
        turns(f, 4);
        struct call *told = code % 2 ? s : c;
        assert_null(told->stream);
        assert_true(told->end.was_reset);
        assert_int_equal(told->end.code, code);
        assert_int_equal(told->end.is_refused, !(code % 2) && code == 7);
        (code % 2 ? c : s)->stream = NULL;
    }
    assert_int_equal(ek_h2_streams(f->client.conn), 0);
    assert_int_equal(ek_h2_streams(f->server.conn), 0);
}

static void a_finished_answer_then_reset_no_error_keeps_the_answer(void **state)
{
    struct fixture *f = *state;
    struct call *c = must_request(f, "/", false), *s = &f->server.calls[0];
    turns(f, 4);
    assert_int_equal(answer(s, 200, false), 0);
    assert_int_equal(ek_h2_send(s->stream, "all", 3), 0);
    assert_int_equal(ek_h2_send_end(s->stream), 0);
    ek_h2_finish(s->stream, EK_H2_NO_ERROR);
    s->stream = NULL;
    turns(f, 4);
    assert_int_equal(c->n_data, 3);
    assert_true(c->is_ended);
    assert_null(c->stream);
    assert_true(c->end.was_reset);
    assert_int_equal(c->end.code, EK_H2_NO_ERROR);
}

static void the_peers_stream_limit_is_kept(void **state)
{
    struct fixture *f = *state;
    struct ek_h2_options o;
    int rc;
    ek_h2_options_default(&o);
    o.max_streams = 2;
    restart(f, &o);
    struct call *c = must_request(f, "/", false);
    must_request(f, "/", false);
    assert_false(ek_h2_can_open(f->client.conn));
    assert_null(request(f, "/", false, &rc));
    assert_int_equal(rc, EK_EBUSY);
    int before = f->client.n_changes;
    ek_h2_reset(c->stream, EK_H2_CANCEL);
    c->stream = NULL;
    turns(f, 4);
    assert_true(f->client.n_changes > before);
    assert_true(ek_h2_can_open(f->client.conn));
}

static void a_websocket_is_opened_only_where_the_peer_takes_it(void **state)
{
    struct fixture *f = *state;
    struct ek_head h = {.method = text("GET"),
                        .scheme = text("http"),
                        .authority = text("h"),
                        .path = text("/"),
                        .is_websocket = true,
                        .body_bytes = -1};
    struct ek_h2_options o;
    struct ek_h2_stream *stream;
    assert_true(ek_h2_has_connect(f->client.conn));
    struct call *c = &f->client.calls[f->client.n_calls++];
    assert_int_equal(ek_h2_open(&c->stream, f->client.conn, &h, false, NULL), 0);
    turns(f, 4);
    struct call *s = &f->server.calls[0];
    assert_true(s->is_websocket);
    assert_int_equal(answer(s, 101, false), 0);
    turns(f, 4);
    assert_int_equal(c->status, 101);
    assert_true(c->is_websocket);
    ek_h2_options_default(&o);
    o.has_connect_protocol = false;
    restart(f, &o);
    assert_int_equal(ek_h2_open(&stream, f->client.conn, &h, false, NULL), EK_EUNSUP);
}

static void a_drain_ends_when_its_streams_have(void **state)
{
    struct fixture *f = *state;
    struct call *c = must_request(f, "/", true);
    turns(f, 4);
    ek_h2_drain(f->server.conn);
    turns(f, 4);
    assert_true(ek_h2_is_leaving(f->client.conn));
    assert_false(ek_h2_can_open(f->client.conn));
    assert_int_equal(answer(&f->server.calls[0], 200, true), 0);
    turns(f, 4);
    assert_int_equal(c->status, 200);
    for (int i = 0; i < 1000 && (f->client.conn || f->server.conn); i++)
        run_for(f->loop, 20000);
    assert_null(f->client.conn);
    assert_null(f->server.conn);
    assert_string_equal(f->client.why, "");
}

/* A proxy that ends drains at each of its wakes; the client is one that stays. */
static void a_drain_that_is_asked_for_again_begins_nothing_anew(void **state)
{
    static const char bytes[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                                "\0\0\0\4\0\0\0\0\0"
                                "\0\0\6\1\5\0\0\0\1\x82\x86\x84\x01\x01h";
    struct fixture *f = *state;
    struct ek_h2_options o;
    int fds[2];
    close_both(f);
    f->server = (struct end){.consumes = true};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    ek_h2_options_default(&o);
    o.drain_us = 0;
    assert_int_equal(open_end(f, &f->server, fds[0], true, &o), 0);
    assert_int_equal(write(fds[1], bytes, sizeof bytes - 1), sizeof bytes - 1);
    turns(f, 4);
    assert_int_equal(f->server.n_calls, 1);
    ek_h2_drain(f->server.conn);
    turns(f, 4); /* the second GOAWAY has left */
    o.drain_us = INT64_C(3600) * 1000000;
    ek_h2_context_set(f->server.context, &o);
    ek_h2_drain(f->server.conn);
    turns(f, 4);
    assert_int_equal(answer(&f->server.calls[0], 200, true), 0);
    turns(f, 4);
    assert_null(f->server.conn);
    close(fds[1]);
}

/* What was never looked at may be tried elsewhere; what was lost may not. */
static void streams_tell_whether_they_may_be_tried_elsewhere(void **state)
{
    struct fixture *f = *state;
    struct call *seen = must_request(f, "/", false);
    turns(f, 4);
    struct call *unsent = must_request(f, "/", false);
    ek_h2_close(f->server.conn, EK_H2_NO_ERROR, "test");
    turns(f, 6);
    assert_null(seen->stream);
    assert_null(unsent->stream);
    assert_true(seen->end.was_reset);
    assert_false(seen->end.is_refused);
    assert_true(unsent->end.is_refused);
}

static void streams_of_a_lost_connection_are_told(void **state)
{
    struct fixture *f = *state;
    struct call *c = must_request(f, "/", false);
    turns(f, 4);
    ek_h2_context_free(f->server.context);
    f->server.context = NULL;
    assert_true(f->server.calls[0].end.is_lost);
    turns(f, 4);
    assert_true(c->end.is_lost);
    assert_false(c->end.is_refused);
    assert_null(f->client.conn);
    assert_int_equal(f->client.n_over, 1);
}

/* Without checks: any of it may fail. */
static void some_life(struct fixture *f)
{
    struct ek_field t = {text("a"), text("b")};
    static const char bytes[20000];
    int rc;
    turns(f, 4);
    struct call *c = request(f, "/", false, &rc);
    if (c) {
        rc = ek_h2_send(c->stream, bytes, sizeof bytes);
        rc = ek_h2_send_trailers(c->stream, &t, 1);
    }
    turns(f, 4);
    c = request(f, "/x", true, &rc);
    turns(f, 4);
    for (int i = 0; i < f->server.n_calls; i++) {
        struct call *s = &f->server.calls[i];
        rc = answer(s, 200, false);
        if (s->stream)
            rc = ek_h2_send(s->stream, bytes, sizeof bytes);
        if (s->stream)
            rc = ek_h2_send_trailers(s->stream, &t, 1);
    }
    turns(f, 6);
    (void)rc;
}

static void any_failed_allocation_ends_streams_and_connections_once(void **state)
{
    struct fixture *f = *state;
    struct ek_h2_options o;
    ek_h2_options_default(&o);
    EK_EACH_FAILURE (k) {
        close_both(f);
        if (open_both(f, &o) == 0)
            some_life(f);
        bool has_failed = ek_mem_failed();
        close_both(f);
        assert_int_equal(f->client.n_over, f->client.n_calls);
        assert_int_equal(f->server.n_over, f->server.n_calls);
        if (!has_failed)
            assert_int_equal(f->client.n_calls, 2);
    }
    ek_mem_fail_at(0);
    restart(f, &o);
}

static void a_connection_whose_ids_ran_out_serves_its_last_stream(void **state)
{
    struct fixture *f = *state;
    int rc;
    f->server.answers = true;
    assert_int_equal(
        nghttp2_session_set_next_stream_id(f->client.conn->session, INT32_MAX), 0);
    assert_true(ek_h2_can_open(f->client.conn));
    struct call *c = must_request(f, "/last", true);
    assert_false(ek_h2_can_open(f->client.conn)); /* so another one is made */
    assert_null(request(f, "/over", true, &rc));
    assert_int_equal(rc, EK_EBUSY);
    turns(f, 8);
    assert_int_equal(c->status, 200);
    assert_false(c->end.was_reset);
    assert_int_equal(f->server.n_calls, 1);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(heads_data_and_trailers_cross_both_ways),
        T(a_writer_waits_when_its_reader_does),
        T(reset_codes_pass_unchanged),
        T(a_finished_answer_then_reset_no_error_keeps_the_answer),
        T(the_peers_stream_limit_is_kept),
        T(a_websocket_is_opened_only_where_the_peer_takes_it),
        T(a_drain_ends_when_its_streams_have),
        T(a_drain_that_is_asked_for_again_begins_nothing_anew),
        T(streams_tell_whether_they_may_be_tried_elsewhere),
        T(streams_of_a_lost_connection_are_told),
        T(a_connection_whose_ids_ran_out_serves_its_last_stream),
        T(any_failed_allocation_ends_streams_and_connections_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
