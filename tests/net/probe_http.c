/* probe_http.c - a server that shows scripts what the library makes of their requests.
 *
 *   probe_http [CERT KEY]     prints the address, serves until standard input ends
 *   /hold     is never answered; /aborted tells how many of them the client left
 *   /stream   five pieces;  other paths: the request back
 */
#include "net/http.h"
#include "net/tls.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct probe {
    struct ek_loop *loop;
    struct ek_watch input;
    int n_aborted;
};

static int respond_number(struct ek_http_exchange *x, int n)
{
    char text[16];
    int len = snprintf(text, sizeof text, "%d", n);
    return ek_http_respond(x, 200, "text/plain", text, (size_t)len);
}

static int respond_stream(struct ek_http_exchange *x)
{
    int rc = ek_http_begin(x, 200, "text/plain");
    for (int i = 0; i < 5 && !rc; i++)
        rc = ek_http_send(x, "piece\n", 6);
    return rc ? rc : ek_http_end(x);
}

static int respond_echo(struct ek_http_exchange *x)
{
    const struct ek_http_request *r = ek_http_get_request(x);
    int rc = ek_http_add_header(x, "X-Method", r->method);
    if (!rc)
        rc = ek_http_add_header(x, "X-Query", r->query);
    return rc ? rc : ek_http_respond(x, 200, "text/plain", r->body, r->body_n);
}

static void on_request(void *arg, struct ek_http_exchange *x)
{
    struct probe *p = arg;
    const char *path = ek_http_get_request(x)->path;
    int rc = 0;
    if (strcmp(path, "/hold") == 0)
        return;
    if (strcmp(path, "/aborted") == 0)
        rc = respond_number(x, p->n_aborted);
    else if (strcmp(path, "/stream") == 0)
        rc = respond_stream(x);
    else
        rc = respond_echo(x);
    if (rc)
        ek_http_abort(x);
}

static void on_closed(void *arg, struct ek_http_exchange *x, bool is_aborted)
{
    struct probe *p = arg;
    (void)x;
    p->n_aborted += is_aborted;
}

static void on_input(struct ek_watch *w, int events)
{
    struct probe *p = w->owner;
    char c;
    (void)events;
    if (read(w->fd, &c, 1) <= 0)
        ek_loop_stop(p->loop);
}

static int serve(struct probe *p, struct ek_tls_context *tls, struct ek_err *err)
{
    struct ek_http_handler h = {
        .on_request = on_request, .on_closed = on_closed, .arg = p};
    struct ek_http_limits limits;
    struct ek_http_server *server = NULL;
    ek_http_limits_default(&limits);
    limits.max_body_bytes = 100000;
    p->input = (struct ek_watch){.on_ready = on_input, .owner = p};
    int rc = ek_watch_start(p->loop, &p->input, EK_READABLE);
    if (!rc)
        rc = ek_http_server_new(&server, p->loop, "127.0.0.1:0", tls, &limits, &h, err);
    if (!rc) {
        puts(ek_http_server_address(server));
        fflush(stdout);
        rc = ek_loop_run(p->loop, err);
    }
    ek_http_server_free(server);
    ek_watch_stop(&p->input);
    return rc;
}

int main(int argc, char **argv)
{
    struct probe p = {0};
    struct ek_err err = EK_ERR_INIT;
    struct ek_tls_context *tls = NULL;
    int rc = ek_loop_new(&p.loop, &err);
    if (!rc && argc == 3)
        rc = ek_tls_context_new(&tls, argv[1], argv[2], &err);
    if (!rc)
        rc = serve(&p, tls, &err);
    if (rc)
        fprintf(stderr, "probe_http: %s\n", err.text);
    ek_tls_context_free(tls);
    ek_loop_free(p.loop);
    return rc ? 1 : 0;
}
