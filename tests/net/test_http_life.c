/* The server over real sockets: time limits, clients that leave, ceilings, start, drain
 * and end, failed allocations. */
#include "net/http_fixture.h"

#include <sys/resource.h>
#include <sys/un.h>

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

/* A byte each sixth of the limit; true when the request was answered. */
static bool is_slow_body_answered(struct fixture *f, int64_t limit_us)
{
    f->limits.body_timeout_us = limit_us;
    restart(f);
    client_send(&f->c, "POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\n");
    for (int i = 0; i < 8; i++) {
        run_for(f->loop, limit_us / 6);
        send(f->c.fd, "x", 1, MSG_NOSIGNAL);
    }
    return client_wait(&f->c, f->loop, "\r\n\r\n/b");
}

static void a_stalled_body_gets_408_and_a_slow_one_does_not(void **state)
{
    struct fixture *f = *state;
    /* On a loaded machine this client can be slower than it means to be. */
    int64_t limit_us = 60000;
    while (!is_slow_body_answered(f, limit_us) && limit_us < 4000000)
        limit_us *= 4;
    assert_true(client_has(&f->c, "\r\n\r\n/b"));
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
    client_send(&f->c, GET("/big"));
    for (int i = 0; i < 1000 && f->n_aborted == 0; i++)
        run_for(f->loop, 2000);
    assert_int_equal(f->n_aborted, 1);
    assert_int_equal(ek_http_server_connections(f->server), 0);
}

/* Much slower than the limit in sum, but never silent for that long; the bytes it got. */
static size_t read_slowly(struct fixture *f, int64_t limit_us)
{
    char piece[65536];
    size_t total = 0;
    f->limits.send_timeout_us = limit_us;
    restart(f);
    client_send(&f->c, GET("/big"));
    while (total < BIG) {
        run_for(f->loop, 2500);
        ssize_t n = recv(f->c.fd, piece, sizeof piece, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            break;
        if (n > 0)
            total += (size_t)n;
    }
    run_for(f->loop, 2000);
    return total;
}

static void a_slow_reader_gets_a_large_answer_whole(void **state)
{
    struct fixture *f = *state;
    size_t total = 0;
    int n_closed = 0, n_aborted = 0;
    /* As above: a loaded machine may need a longer limit. */
    for (int64_t us = 150000; total < BIG && us < 10000000; us *= 4) {
        n_closed = f->n_closed;
        n_aborted = f->n_aborted;
        total = read_slowly(f, us);
    }
    assert_true(total >= BIG);
    assert_int_equal(f->n_closed - n_closed, 1);
    assert_int_equal(f->n_aborted - n_aborted, 0);
}

/* Clients that leave ----------------------------------------------------------- */

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

static int64_t cpu_us(const struct rusage *u)
{
    return (int64_t)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) * 1000000 +
           u->ru_utime.tv_usec + u->ru_stime.tv_usec;
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
    run_for(f->loop, 90000);
    getrusage(RUSAGE_SELF, &after);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_true(cpu_us(&after) - cpu_us(&before) < 30000); /* a spin takes all 90 ms */
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
    expect_end(f);
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

static void no_host_means_every_address(void **state)
{
    static const char *const listens[] = {":0", "0.0.0.0:0", "localhost:0"};
    struct fixture *f = *state;
    struct ek_http_handler h = {
        .on_request = on_request, .on_closed = on_closed, .arg = f};
    for (size_t i = 0; i < 3; i++) {
        ek_http_server_free(f->server);
        f->server = NULL;
        client_close(&f->c);
        assert_int_equal(ek_http_server_new(&f->server, f->loop, listens[i], NULL,
                                            &f->limits, &h, NULL),
                         0);
        const char *address = ek_http_server_address(f->server);
        assert_null(strstr(address, ":0"));
        if (strncmp(address, "[::1]", 5) == 0)
            continue; /* localhost may be that; the client speaks IPv4 */
        client_open(&f->c, address);
        client_send(&f->c, GET("/any"));
        expect(f, "\r\n\r\n/any");
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

/* Failure ---------------------------------------------------------------------- */

static void try_to_answer(void *arg, struct ek_http_exchange *x)
{
    struct fixture *f = arg;
    static const char piece[300];
    f->n_requests++;
    ek_http_set_user(x, f);
    int rc = ek_http_add_header(x, "X-Y", "z");
    if (!rc)
        rc = ek_http_begin(x, 200, "text/plain");
    for (int i = 0; i < 10 && !rc; i++)
        rc = ek_http_send(x, piece, sizeof piece);
    if (!rc)
        rc = ek_http_end(x);
    /* After a failure the exchange is over; giving up again must do no harm. */
    if (rc)
        ek_http_abort(x);
}

/* Serves one POST and one malformed request while allocation k fails somewhere. The
 * server outlives it: a second client is answered. */
static void serve_with_failure(struct fixture *f, uint64_t k, bool *is_over)
{
    struct ek_http_handler h = {
        .on_request = try_to_answer, .on_closed = on_closed, .arg = f};
    struct ek_http_server *s = NULL;
    struct client c;
    ek_mem_fail_at(k);
    int rc = ek_http_server_new(&s, f->loop, "127.0.0.1:0", NULL, &f->limits, &h, NULL);
    ek_assert_rc(rc);
    if (rc)
        return;
    client_open(&c, ek_http_server_address(s));
    client_send(&c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
                    "GET / HTTP/1.1\r\n\r\n");
    for (int i = 0; i < 5; i++)
        run_for(f->loop, 100);
    *is_over = !ek_mem_failed();
    ek_mem_fail_at(0);
    client_take(&c);
    if (*is_over) {
        assert_true(client_has(&c, "\r\n0\r\n\r\nHTTP/1.1 400 "));
    }
    client_close(&c);
    client_open(&c, ek_http_server_address(s));
    client_send(&c, GET("/again"));
    assert_true(client_wait(&c, f->loop, "\r\n0\r\n\r\n"));
    client_close(&c);
    ek_http_server_free(s);
    assert_int_equal(f->n_requests, f->n_closed);
}

static void a_failed_allocation_costs_at_most_its_connection(void **state)
{
    struct fixture *f = *state;
    bool is_over = false;
    uint64_t k = 1;
    while (!is_over)
        serve_with_failure(f, k++, &is_over);
    assert_true(k > 8);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
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
        T(no_host_means_every_address),
        T(a_port_in_use_is_refused_with_a_sentence),
        T(a_unix_socket_serves_is_removed_and_replaces_a_dead_one),
        T(a_failed_allocation_costs_at_most_its_connection),
    };
    return cmocka_run_group_tests_name("net/http_life", tests, NULL, NULL);
}
