/* The whole server over the model of enginekit.h: loop, rings, engine thread, real
 * sockets. Quick enough to run under TSan. */
#include "serve/enginekit.h"
#include "serve/server.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

struct fixture {
    struct kit kit;
    struct ek_runtime rt;
    struct ek_auth auth;
    struct ek_server *server;
    pthread_t thread;
    int rc; /* of ek_server_run */
};

static void *run(void *arg)
{
    struct fixture *f = arg;
    f->rc = ek_server_run(f->server, NULL);
    return NULL;
}

static void start(struct fixture *f, const char *script, const char *key)
{
    struct ek_err err = EK_ERR_INIT;
    struct ek_server_options o;
    memset(f, 0, sizeof *f);
    kit_default(&f->rt.engine_options);
    f->rt.engine_options.max_seqs = 1;
    kit_open(&f->kit, &f->rt.engine_options);
    f->kit.script = script;
    f->kit.script_at = 2;
    f->rt.tokenizer = f->kit.tokenizer;
    f->rt.ctx = KIT_CTX;
    f->rt.longest_piece = 10;
    f->rt.ops = ek_ops_get(EK_ISA_REF);
    f->rt.kv.n_pages = KIT_PAGES;
    f->rt.engine_model = kit_model(&f->kit);
    ek_auth_init(&f->auth);
    if (key)
        assert_int_equal(ek_auth_add(&f->auth, key, NULL), 0);
    ek_server_options_default(&o);
    o.listen = "127.0.0.1:0";
    o.model_id = "few-lines";
    o.auth = &f->auth;
    o.max_queue = 1;
    if (ek_server_new(&f->server, &o, &f->rt, &err))
        fail_msg("%s", err.text);
    assert_int_equal(pthread_create(&f->thread, NULL, run, f), 0);
}

static void stop(struct fixture *f)
{
    ek_server_stop(f->server);
    pthread_join(f->thread, NULL);
    assert_int_equal(f->rc, 0);
    ek_server_free(f->server);
    ek_auth_release(&f->auth);
    kit_close(&f->kit);
}

static int open_client(const struct fixture *f)
{
    const char *colon = strrchr(ek_server_address(f->server), ':');
    struct sockaddr_in to = {.sin_family = AF_INET};
    struct timeval patience = {60, 0};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons((uint16_t)strtol(colon + 1, NULL, 10));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return fd;
}

static void send_request(int fd, const char *method, const char *path, const char *body)
{
    char text[2048];
    int n = snprintf(text, sizeof text,
                     "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                     "Authorization: Bearer k\r\nContent-Length: %zu\r\n\r\n%s",
                     method, path, strlen(body), body);
    assert_int_equal(send(fd, text, (size_t)n, MSG_NOSIGNAL), n);
}

/* All that the server still says; free() it. */
static char *read_all(int fd)
{
    size_t cap = 1 << 18, n = 0;
    char *text = malloc(cap);
    assert_non_null(text);
    for (ssize_t got; n + 1 < cap && (got = recv(fd, text + n, cap - 1 - n, 0)) > 0;)
        n += (size_t)got;
    text[n] = 0;
    close(fd);
    return text;
}

static char *ask(const struct fixture *f, const char *method, const char *path,
                 const char *body)
{
    int fd = open_client(f);
    send_request(fd, method, path, body);
    return read_all(fd);
}

static void expect(const struct fixture *f, const char *method, const char *path,
                   const char *body, const char *words)
{
    char *text = ask(f, method, path, body);
    if (!strstr(text, words))
        fail_msg("%s %s: no '%s' in: %s", method, path, words, text);
    free(text);
}

/* Polls /metrics until the line is there. */
static void wait_for(const struct fixture *f, const char *line)
{
    for (int i = 0; i < 20000; i++) {
        char *text = ask(f, "GET", "/metrics", "");
        bool is_there = strstr(text, line) != NULL;
        free(text);
        if (is_there)
            return;
        usleep(5000);
    }
    fail_msg("%s never came", line);
}

#define COMPLETE "/v1/completions"
#define RUNNING  "\nevenkeel_num_requests_running "
#define WAITING  "\nevenkeel_num_requests_waiting "
#define ENDLESS                                                                        \
    "{\"prompt\":\"hi\",\"max_tokens\":250,\"ignore_eos\":true,\"stream\":true}"

static void answers_come_whole_and_streamed(void **state)
{
    (void)state;
    struct fixture f;
    start(&f, "hello world", NULL);
    expect(&f, "POST", COMPLETE, "{\"prompt\":\"hi\"}", "\"text\":\"hello world\"");
    char *text = ask(&f, "POST", COMPLETE, "{\"prompt\":\"hi\",\"stream\":true}");
    assert_non_null(strstr(text, "text/event-stream"));
    assert_non_null(strstr(text, "\"finish_reason\":\"stop\""));
    assert_non_null(strstr(text, "data: [DONE]\n\n"));
    free(text);
    stop(&f);
}

static void health_and_metrics_do_not_wait_for_a_step(void **state)
{
    (void)state;
    struct fixture f;
    start(&f, NULL, NULL);
    pthread_mutex_lock(&f.kit.gate); /* the engine is inside a step until we say so */
    int fd = open_client(&f);
    send_request(fd, "POST", COMPLETE, "{\"prompt\":\"hi\",\"max_tokens\":3}");
    expect(&f, "GET", "/health", "", "200 OK");
    expect(&f, "GET", "/metrics", "", "evenkeel_build_info");
    expect(&f, "GET", "/v1/models", "", "few-lines");
    expect(&f, "POST", "/tokenize", "{\"prompt\":\"hi\"}", "\"count\":2");
    pthread_mutex_unlock(&f.kit.gate);
    char *text = read_all(fd);
    assert_non_null(strstr(text, "\"finish_reason\":\"length\""));
    free(text);
    stop(&f);
}

static void a_full_queue_refuses_and_a_client_that_leaves_makes_room(void **state)
{
    (void)state;
    struct fixture f;
    start(&f, NULL, NULL);
    pthread_mutex_lock(&f.kit.gate);
    int running = open_client(&f);
    send_request(running, "POST", COMPLETE, ENDLESS);
    int waiting = open_client(&f);
    send_request(waiting, "POST", COMPLETE, ENDLESS);
    wait_for(&f, WAITING "2"); /* the engine cannot report yet that one runs */
    char *text = ask(&f, "POST", COMPLETE, ENDLESS);
    assert_non_null(strstr(text, "429 "));
    assert_non_null(strstr(text, "Retry-After: "));
    assert_non_null(strstr(text, "RateLimitError"));
    free(text);
    close(running);
    close(waiting);
    pthread_mutex_unlock(&f.kit.gate);
    wait_for(&f, RUNNING "0");
    wait_for(&f, WAITING "0");
    wait_for(&f, "\nevenkeel_kv_pages_free 40");
    expect(&f, "POST", COMPLETE, "{\"prompt\":\"hi\",\"max_tokens\":3}", "200 OK");
    stop(&f);
}

static void a_stop_lets_answers_finish(void **state)
{
    (void)state;
    struct fixture f;
    start(&f, NULL, NULL);
    pthread_mutex_lock(&f.kit.gate);
    int fd = open_client(&f);
    send_request(fd, "POST", COMPLETE, ENDLESS);
    wait_for(&f, WAITING "1");
    ek_server_stop(f.server);
    pthread_mutex_unlock(&f.kit.gate);
    pthread_join(f.thread, NULL);
    char *text = read_all(fd);
    assert_non_null(strstr(text, "\"finish_reason\":\"length\""));
    assert_non_null(strstr(text, "data: [DONE]\n\n"));
    free(text);
    ek_server_free(f.server);
    ek_auth_release(&f.auth);
    kit_close(&f.kit);
}

static void a_second_stop_cancels(void **state)
{
    (void)state;
    struct fixture f;
    start(&f, NULL, NULL);
    pthread_mutex_lock(&f.kit.gate);
    int fd = open_client(&f);
    send_request(fd, "POST", COMPLETE, "{\"prompt\":\"hi\",\"max_tokens\":250}");
    wait_for(&f, WAITING "1");
    ek_server_stop(f.server);
    ek_server_stop(f.server);
    pthread_mutex_unlock(&f.kit.gate);
    stop(&f);
    free(read_all(fd));
}

static void a_key_guards_what_costs(void **state)
{
    (void)state;
    struct fixture f;
    start(&f, NULL, "another");
    static const char *const guarded[] = {"/v1/models", "/metrics"};
    for (size_t i = 0; i < 2; i++)
        expect(&f, "GET", guarded[i], "", "401 ");
    expect(&f, "POST", COMPLETE, "{\"prompt\":\"hi\"}", "AuthenticationError");
    expect(&f, "POST", "/tokenize", "{\"prompt\":\"hi\"}", "WWW-Authenticate: Bearer");
    expect(&f, "GET", "/health", "", "200 OK");
    expect(&f, "GET", "/", "", "<!doctype html>");
    stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_come_whole_and_streamed),
        cmocka_unit_test(health_and_metrics_do_not_wait_for_a_step),
        cmocka_unit_test(a_full_queue_refuses_and_a_client_that_leaves_makes_room),
        cmocka_unit_test(a_stop_lets_answers_finish),
        cmocka_unit_test(a_second_stop_cancels),
        cmocka_unit_test(a_key_guards_what_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
