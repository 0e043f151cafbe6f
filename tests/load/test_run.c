/* test_run.c - whole runs against a server in the same loop, with every allocation
 * failing in turn: of the server's, too, whose clients then see it misbehave. */
#include "load/run.h"
#include "net/http.h"
#include "testkit.h"

#include <stdio.h>

static const char answer[] =
    "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
    "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n"
    "data: {\"choices\":[{\"delta\":{\"content\":\" you\"}}]}\n\n"
    "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2}}\n\n"
    "data: [DONE]\n\n";

struct fixture {
    struct ek_loop *loop;
    struct ek_http_server *server;
    struct ek_client *client;
    struct ek_load_options o;
    struct ek_load_result *r;
    uint64_t n_requests;
    uint64_t stop_at; /* request that is never answered, and that stops the run */
};

static bool is_stopped_now;

static bool is_stopped(void)
{
    return is_stopped_now;
}

/* Failures of the server are part of the game: it hangs up on its client. */
static void on_request(void *arg, struct ek_http_exchange *x)
{
    struct fixture *f = arg;
    if (++f->n_requests == f->stop_at) {
        is_stopped_now = true;
        return;
    }
    int rc = ek_http_begin(x, 200, "text/event-stream");
    if (!rc)
        rc = ek_http_send(x, answer, 100);
    if (!rc)
        rc = ek_http_send(x, answer + 100, strlen(answer) - 100);
    if (!rc)
        rc = ek_http_end(x);
    if (rc)
        ek_http_abort(x);
}

static void on_closed(void *arg, struct ek_http_exchange *x, bool is_aborted)
{
    (void)arg, (void)x, (void)is_aborted;
}

/* Everything but the result, which outlives it. */
static int open_fixture(struct fixture *f, struct ek_err *err)
{
    struct ek_http_handler h = {
        .on_request = on_request, .on_closed = on_closed, .arg = f};
    struct ek_http_limits limits;
    char url[256];
    f->o = (struct ek_load_options){.model = "m",
                                    .is_chat = true,
                                    .scale = {1.0, 0.0},
                                    .concurrency = 3,
                                    .is_stopped = is_stopped,
                                    .workload = {.prompt_tokens = 7,
                                                 .output_tokens = 2,
                                                 .length_scale = 1.0,
                                                 .time_scale = 1.0,
                                                 .n_max = 5}};
    is_stopped_now = false;
    ek_http_limits_default(&limits);
    int rc = ek_loop_new(&f->loop, err);
    if (!rc)
        rc = ek_http_server_new(&f->server, f->loop, "127.0.0.1:0", NULL, &limits, &h,
                                err);
    if (rc)
        return rc;
    snprintf(url, sizeof url, "http://%s", ek_http_server_address(f->server));
    struct ek_client_options o = {.url = url, .timeout_ms = 20000, .max_kept = 8};
    return ek_client_new(&f->client, f->loop, &o, err);
}

static void close_fixture(struct fixture *f)
{
    ek_client_free(f->client);
    ek_http_server_free(f->server);
    ek_loop_free(f->loop);
}

static struct ek_load_result *new_result(void)
{
    struct ek_load_result *r = calloc(1, sizeof *r);
    assert_non_null(r);
    return r;
}

static void every_request_is_sent_and_measured_once(void **state)
{
    (void)state;
    for (int is_open = 0; is_open < 2; is_open++) {
        struct fixture f = {.r = new_result()};
        assert_int_equal(open_fixture(&f, NULL), 0);
        f.o.is_open = is_open;
        f.o.workload.rate = is_open ? 1000.0 : 0.0;
        /* A second run on the same client and loop is as good as the first. */
        for (uint64_t i = 1; i <= 2; i++) {
            assert_int_equal(ek_load_run(f.r, f.client, f.loop, &f.o, NULL), 0);
            assert_int_equal(f.r->n_ok, 5 * i);
            assert_int_equal(f.n_requests, 5 * i);
        }
        assert_int_equal(f.r->n_sent, 10);
        assert_int_equal(f.r->n_output, 20);
        assert_int_equal(f.r->n_prompt, 90);
        assert_int_equal(f.r->ttft.n, 10);
        assert_int_equal(f.r->itl.n, 10);
        assert_int_equal(f.r->late.n, is_open ? 10 : 0);
        assert_true(f.r->peak >= 1 && f.r->peak <= 3);
        close_fixture(&f);
        free(f.r);
    }
}

static void a_stopped_run_counts_what_was_under_way(void **state)
{
    (void)state;
    struct fixture f = {.r = new_result(), .stop_at = 4};
    assert_int_equal(open_fixture(&f, NULL), 0);
    f.o.concurrency = 1;
    assert_int_equal(ek_load_run(f.r, f.client, f.loop, &f.o, NULL), 0);
    assert_true(f.r->is_interrupted);
    assert_int_equal(f.r->n_ok, 3);
    assert_int_equal(f.r->n_unfinished, 1);
    assert_int_equal(f.r->n_sent, 4);
    close_fixture(&f);
    free(f.r);
}

static void a_run_survives_any_failed_allocation(void **state)
{
    (void)state;
    EK_EACH_FAILURE (k) {
        struct fixture f = {.r = new_result()};
        int rc = open_fixture(&f, NULL);
        if (!rc)
            rc = ek_load_run(f.r, f.client, f.loop, &f.o, NULL);
        /* An allocation of the server's, or of an answer's, fails that request. */
        assert_true(rc == 0 || (rc == EK_ENOMEM && ek_mem_failed()));
        if (!rc && ek_mem_failed())
            assert_int_equal(f.r->n_ok + f.r->n_failed, 5);
        if (!ek_mem_failed())
            assert_int_equal(f.r->n_ok, 5);
        close_fixture(&f);
        free(f.r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_is_sent_and_measured_once),
        cmocka_unit_test(a_stopped_run_counts_what_was_under_way),
        cmocka_unit_test(a_run_survives_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
