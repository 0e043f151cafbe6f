/* fuzz_h2.c - frames and HPACK against a server's end, or (first byte odd) a client's
 * with two requests out. Whatever comes: what a handler is told keeps h2.h's order, and
 * every stream it knows ends once. */
#include "base/mem.h"
#include "net/h2.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int n_known;

/* User of a stream: 1 known, 2 its side ended. */
static char marks[3];

static void require(bool is_true)
{
    if (!is_true)
        abort();
}

static void on_head(struct ek_h2_stream *s, const struct ek_head *h, bool is_last)
{
    require(ek_h2_user_of(s) != &marks[2]);
    if (!ek_h2_user_of(s))
        n_known++;
    ek_h2_set_user_of(s, &marks[is_last ? 2 : 1]);
    require(h->n_fields <= EK_HEAD_MAX_FIELDS);
    require(h->status == 0 ? h->method.n > 0 && h->path.n > 0 : h->status >= 100);
    for (size_t i = 0; i < h->n_fields; i++) {
        require(h->fields[i].name.n > 0);
        for (size_t k = 0; k < h->fields[i].value.n; k++)
            require(!strchr("\r\n", h->fields[i].value.p[k]));
    }
    if (h->status == 0) {
        struct ek_head a = {.status = 200, .body_bytes = -1};
        int rc = ek_h2_answer(s, &a, false);
        rc = rc ? rc : ek_h2_send(s, "body", 4);
        rc = rc ? rc : ek_h2_send_end(s);
        (void)rc;
    }
}

static void on_data(struct ek_h2_stream *s, const char *p, size_t n)
{
    require(ek_h2_user_of(s) == &marks[1] && n > 0 && p);
    ek_h2_consume(s, n);
}

static void on_end(struct ek_h2_stream *s, const struct ek_field *f, size_t n)
{
    require(ek_h2_user_of(s) == &marks[1] && (n == 0 || f));
    ek_h2_set_user_of(s, &marks[2]);
}

static void on_drained(struct ek_h2_stream *s)
{
    (void)s;
}

static void on_stream_closed(struct ek_h2_stream *s, const struct ek_h2_end *e)
{
    (void)s;
    (void)e;
    n_known--;
}

static void on_closed(struct ek_h2 *c, const char *why)
{
    bool *is_open = ek_h2_get_user(c);
    (void)why;
    *is_open = false;
}

static void stop(struct ek_timer *t)
{
    ek_loop_stop(t->loop);
}

static void turn(struct ek_loop *loop)
{
    struct ek_timer t;
    struct ek_err err = EK_ERR_INIT;
    ek_timer_init(&t, loop, stop, NULL);
    require(ek_timer_start(&t, 0) == 0 && ek_loop_run(loop, &err) == 0);
}

static void open_requests(struct ek_h2 *c)
{
    struct ek_head h = {.method = {"GET", 3},
                        .scheme = {"http", 4},
                        .authority = {"a", 1},
                        .path = {"/", 1},
                        .body_bytes = -1};
    struct ek_h2_stream *s;
    for (int i = 0; i < 2; i++) {
        if (ek_h2_open(&s, c, &h, i == 0, &marks[0]) == 0) {
            ek_h2_set_user_of(s, &marks[1]);
            n_known++;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct ek_h2_handler handler = {.on_head = on_head,
                                                 .on_data = on_data,
                                                 .on_end = on_end,
                                                 .on_drained = on_drained,
                                                 .on_stream_closed = on_stream_closed,
                                                 .on_closed = on_closed};
    struct ek_loop *loop;
    struct ek_h2_context *x;
    struct ek_h2_options o;
    struct ek_h2 *c;
    bool is_open = true;
    int fds[2];
    if (size < 1 || size > 16384)
        return 0;
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    ek_h2_options_default(&o);
    o.max_head_bytes = 2048;
    require(ek_loop_new(&loop, NULL) == 0);
    require(ek_h2_context_new(&x, loop, &handler, &o) == 0);
    struct ek_h2_start start = {
        .fd = fds[0], .is_server = data[0] % 2 == 0, .user = &is_open};
    require(ek_h2_new(&c, x, &start) == 0);
    if (!start.is_server)
        open_requests(c);
    else
        require(write(fds[1], EK_H2_PREFACE, 24) == 24);
    turn(loop);
    require(write(fds[1], data + 1, size - 1) == (ssize_t)size - 1);
    for (int i = 0; i < 4 && is_open; i++)
        turn(loop);
    close(fds[1]);
    turn(loop);
    ek_h2_context_free(x);
    ek_loop_free(loop);
    require(n_known == 0 && !is_open);
    return 0;
}
