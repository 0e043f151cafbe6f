/* h2.c - the context that connections of one loop share, and a connection's life. */
#include "net/h2.h"

#include "base/mem.h"
#include "net/h2_int.h"

#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const int64_t never_us = (int64_t)365 * 24 * 3600 * 1000 * 1000;

void ek_h2_options_default(struct ek_h2_options *o)
{
    *o = (struct ek_h2_options){
        .max_streams = 1000,
        .window_bytes = 65535,
        .max_head_bytes = 32768,
        .max_unsent_bytes = (size_t)1 << 20,
        .has_connect_protocol = true,
        .handshake_timeout_us = 10 * 1000000,
        .head_timeout_us = 10 * 1000000,
        .idle_timeout_us = 75 * 1000000,
        .send_timeout_us = 60 * 1000000,
        .stall_timeout_us = 60 * 1000000,
        .ping_timeout_us = 20 * 1000000,
        .drain_us = 1000000,
        .reset_burst = 1500,
        .reset_rate = 50,
        .frame_burst = 1000,
        .frame_rate = 200,
    };
}

/* Context ----------------------------------------------------------------------- */

static void work_off(struct ek_timer *t)
{
    struct ek_h2_context *x = t->owner;
    int rc = ek_timer_start(t, never_us);
    assert(rc == 0 && "its place in the heap was just given up");
    (void)rc;
    while (x->soon.next != &x->soon) {
        struct ek_link *l = x->soon.next;
        struct ek_h2 *c = (struct ek_h2 *)((char *)l - offsetof(struct ek_h2, soon));
        ek_link_remove(l);
        ek_h2_drive(c, c->has_more_input);
    }
}

void ek_h2_soon(struct ek_h2 *c)
{
    struct ek_h2_context *x = c->context;
    if (c->is_driving || c->soon.next != &c->soon || c->state == EK_H2_LINGER)
        return;
    ek_link_append(&x->soon, &c->soon);
    int rc = ek_timer_start(&x->later, 0);
    assert(rc == 0 && "a started timer is moved without memory");
    (void)rc;
}

static int set_options(struct ek_h2_context *x)
{
    if (nghttp2_session_callbacks_new(&x->callbacks) || nghttp2_option_new(&x->option))
        return EK_ENOMEM;
    ek_h2_set_callbacks(x->callbacks);
    nghttp2_option_set_no_auto_window_update(x->option, 1);
    /* Closed streams would be kept for priorities, which the proxy does not use. */
    nghttp2_option_set_no_closed_streams(x->option, 1);
    nghttp2_option_set_peer_max_concurrent_streams(x->option, 100);
    /* Counted here, with the resets that a peer provokes from us. */
    nghttp2_option_set_stream_reset_rate_limit(x->option, 1 << 30, 1 << 30);
    return 0;
}

int ek_h2_context_new(struct ek_h2_context **x, struct ek_loop *loop,
                      const struct ek_h2_handler *handler,
                      const struct ek_h2_options *o)
{
    struct ek_h2_context *v = ek_calloc(1, sizeof *v);
    if (!v)
        return EK_ENOMEM;
    v->loop = loop;
    v->handler = *handler;
    v->o = *o;
    ek_link_init(&v->conns);
    ek_link_init(&v->soon);
    ek_timer_init(&v->later, loop, work_off, v);
    int rc = set_options(v);
    if (!rc)
        rc = ek_timer_start(&v->later, never_us);
    if (rc) {
        ek_h2_context_free(v);
        return rc;
    }
    *x = v;
    return 0;
}

void ek_h2_context_free(struct ek_h2_context *x)
{
    if (!x)
        return;
    while (x->conns.next != &x->conns) {
        struct ek_h2 *c = (struct ek_h2 *)x->conns.next;
        ek_h2_tell_closed(c, "the server stops");
        ek_h2_free(c);
    }
    ek_timer_stop(&x->later);
    nghttp2_session_callbacks_del(x->callbacks);
    nghttp2_option_del(x->option);
    ek_free(x);
}

void ek_h2_context_set(struct ek_h2_context *x, const struct ek_h2_options *o)
{
    x->o = *o;
}

const struct ek_h2_counts *ek_h2_context_counts(const struct ek_h2_context *x)
{
    return &x->counts;
}

/* Connection -------------------------------------------------------------------- */

static void *mem_alloc(size_t n, void *arg)
{
    (void)arg;
    return ek_alloc(n);
}

static void *mem_calloc(size_t n, size_t size, void *arg)
{
    (void)arg;
    return ek_calloc(n, size);
}

static void *mem_realloc(void *p, size_t n, void *arg)
{
    (void)arg;
    return ek_realloc_array(p, n, 1);
}

static void mem_free(void *p, void *arg)
{
    (void)arg;
    ek_free(p);
}

static int open_session(struct ek_h2 *c)
{
    const struct ek_h2_context *x = c->context;
    nghttp2_mem mem = {NULL, mem_alloc, mem_free, mem_calloc, mem_realloc};
    nghttp2_settings_entry entries[5] = {
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, x->o.window_bytes},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, x->o.max_head_bytes},
    };
    size_t n = 2;
    int rv;
    /* Not NO_RFC7540_PRIORITIES: docs/design/h2.md, "Refused". */
    if (c->is_server) {
        entries[n++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS,
                                                x->o.max_streams};
        if (x->o.has_connect_protocol)
            entries[n++] =
                (nghttp2_settings_entry){NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL, 1};
        rv = nghttp2_session_server_new3(&c->session, x->callbacks, c, x->option, &mem);
    } else {
        entries[n++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_ENABLE_PUSH, 0};
        rv = nghttp2_session_client_new3(&c->session, x->callbacks, c, x->option, &mem);
    }
    if (!rv)
        rv = nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, entries, n);
    if (!rv)
        rv = nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE, 0,
                                                   EK_H2_CONNECTION_WINDOW);
    return rv ? EK_ENOMEM : 0;
}

/* Failures are harmless: a Unix socket knows none of these. */
static void set_socket_options(int fd)
{
    int on = 1, unsent_bytes = 131072;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_bytes, sizeof unsent_bytes);
}

static int take_early(struct ek_h2 *c, const char *p, size_t n)
{
    if (n == 0)
        return 0;
    c->early = ek_alloc(n);
    if (!c->early)
        return EK_ENOMEM;
    memcpy(c->early, p, n);
    c->n_early = n;
    c->has_more_input = true;
    return 0;
}

int ek_h2_new(struct ek_h2 **c, struct ek_h2_context *x,
              const struct ek_h2_start *start)
{
    struct ek_h2 *v = ek_calloc(1, sizeof *v);
    if (!v) {
        ek_tls_free(start->tls);
        close(start->fd);
        return EK_ENOMEM;
    }
    int64_t now = ek_loop_now_us(x->loop);
    v->context = x;
    v->user = start->user;
    v->is_server = start->is_server;
    v->next_id = 1;
    v->scan_left = start->is_server ? sizeof EK_H2_PREFACE - 1 : 0;
    v->tls = start->tls;
    v->state = start->tls ? EK_H2_SHAKE : EK_H2_OPEN;
    v->watch =
        (struct ek_watch){.fd = start->fd, .on_ready = ek_h2_on_ready, .owner = v};
    v->read_wants = EK_READABLE;
    v->write_wants = EK_WRITABLE;
    v->state_us = v->idle_us = v->received_us = v->taken_us = v->progress_us = now;
    ek_link_init(&v->all);
    ek_link_init(&v->soon);
    ek_link_init(&v->streams);
    ek_timer_init(&v->timer, x->loop, ek_h2_on_time, v);
    ek_buf_init(&v->out, SIZE_MAX / 4); /* held to one EK_H2_SCRATCH by h2_io.c */
    ek_buf_init(&v->head_bytes, SIZE_MAX / 4);  /* and these to max_head_bytes, */
    ek_buf_init(&v->head_slices, SIZE_MAX / 4); /* EK_HEAD_MAX_FIELDS */
    int rc = open_session(v);
    if (!rc)
        rc = take_early(v, start->bytes, start->n_bytes);
    if (!rc)
        rc = ek_timer_start(&v->timer, never_us);
    if (!rc)
        rc = ek_watch_start(x->loop, &v->watch, EK_READABLE);
    if (rc) {
        ek_h2_free(v);
        return rc;
    }
    v->due_us = now + never_us;
    ek_h2_move_timer(v);
    set_socket_options(start->fd);
    ek_link_append(&x->conns, &v->all);
    ek_counter_add(&x->counts.connections, 1);
    ek_h2_soon(v);
    *c = v;
    return 0;
}

void ek_h2_free(struct ek_h2 *c)
{
    ek_watch_stop(&c->watch);
    ek_timer_stop(&c->timer);
    ek_link_remove(&c->all);
    ek_link_remove(&c->soon);
    nghttp2_session_del(c->session);
    ek_tls_free(c->tls);
    close(c->watch.fd);
    ek_buf_release(&c->out);
    ek_buf_release(&c->head_bytes);
    ek_buf_release(&c->head_slices);
    ek_free(c->early);
    ek_free(c);
}

void ek_h2_tell_closed(struct ek_h2 *c, const char *why)
{
    struct ek_h2_end e = {
        .code = EK_H2_INTERNAL_ERROR, .was_reset = true, .is_lost = true};
    if (c->is_told)
        return;
    e.why = c->why;
    c->is_told = true;
    if (c->state < EK_H2_CLOSING)
        c->state = EK_H2_CLOSING;
    while (c->streams.next != &c->streams) {
        struct ek_h2_stream *s = (struct ek_h2_stream *)c->streams.next;
        e.is_refused = !c->is_server && !s->is_open; /* its head never left */
        ek_h2_stream_over(s, &e);
    }
    c->context->handler.on_closed(c, why);
}

void ek_h2_fail(struct ek_h2 *c, uint32_t code, const char *why,
                struct ek_counter *counter)
{
    if (c->state >= EK_H2_CLOSING)
        return;
    if (counter)
        ek_counter_add(counter, 1);
    c->why = why;
    c->state = EK_H2_CLOSING;
    c->state_us = ek_loop_now_us(c->context->loop);
    c->is_goaway = true;
    if (nghttp2_session_terminate_session(c->session, code))
        c->is_mute = true;
    ek_h2_soon(c);
}

void ek_h2_close(struct ek_h2 *c, enum ek_h2_code code, const char *why)
{
    ek_h2_fail(c, code, why, NULL);
}

void ek_h2_drain(struct ek_h2 *c)
{
    if (c->was_drained || c->state >= EK_H2_CLOSING)
        return;
    c->was_drained = true;
    int rv = c->is_server ? nghttp2_submit_shutdown_notice(c->session)
                          : nghttp2_submit_goaway(c->session, NGHTTP2_FLAG_NONE, 0,
                                                  NGHTTP2_NO_ERROR, NULL, 0);
    if (rv) {
        ek_h2_fail(c, EK_H2_INTERNAL_ERROR, "out of memory", NULL);
        return;
    }
    c->is_goaway = true;
    c->is_draining = c->is_server;
    c->drain_us = ek_loop_now_us(c->context->loop);
    ek_h2_move_timer(c);
    ek_h2_soon(c);
}

void *ek_h2_get_user(const struct ek_h2 *c)
{
    return c->user;
}

struct ek_h2_context *ek_h2_get_context(const struct ek_h2 *c)
{
    return c->context;
}

int ek_h2_get_fd(const struct ek_h2 *c)
{
    return c->watch.fd;
}

int32_t ek_h2_streams(const struct ek_h2 *c)
{
    return c->n_streams;
}

bool ek_h2_can_open(const struct ek_h2 *c)
{
    if (c->is_server || c->is_goaway || c->state >= EK_H2_CLOSING ||
        !nghttp2_session_check_request_allowed(c->session))
        return false;
    uint32_t max = 100; /* what RFC 9113 6.5.2 calls the least to expect */
    if (c->is_ready)
        max = nghttp2_session_get_remote_settings(
            c->session, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
    return (uint32_t)c->n_streams < max;
}

bool ek_h2_is_ready(const struct ek_h2 *c)
{
    return c->is_ready;
}

bool ek_h2_has_connect(const struct ek_h2 *c)
{
    return c->is_ready &&
           nghttp2_session_get_remote_settings(
               c->session, NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL) == 1;
}

bool ek_h2_is_leaving(const struct ek_h2 *c)
{
    return c->is_goaway || c->state >= EK_H2_CLOSING;
}

/* Streams ----------------------------------------------------------------------- */

struct ek_h2_stream *ek_h2_stream_new(struct ek_h2 *c)
{
    struct ek_h2_stream *s = ek_calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->conn = c;
    ek_link_append(&c->streams, &s->all);
    if (c->n_streams++ == 0)
        c->received_us = ek_loop_now_us(c->context->loop); /* silence begins here */
    return s;
}

void ek_h2_stream_free(struct ek_h2_stream *s)
{
    struct ek_h2 *c = s->conn;
    if (s->unsent)
        c->n_unsent--;
    ek_link_remove(&s->all);
    if (--c->n_streams == 0)
        c->idle_us = ek_loop_now_us(c->context->loop);
    ek_free(s->unsent);
    ek_free(s->trailers);
    ek_free(s);
}

void ek_h2_stream_over(struct ek_h2_stream *s, const struct ek_h2_end *e)
{
    struct ek_h2 *c = s->conn;
    /* Calls of the handler on s from here on must find it over. */
    s->is_ending = s->is_ended = s->has_ended = true;
    if (s->is_known) {
        s->is_known = false;
        c->context->handler.on_stream_closed(s, e);
    }
    ek_h2_stream_free(s);
}

struct ek_h2 *ek_h2_connection(const struct ek_h2_stream *s)
{
    return s->conn;
}

int32_t ek_h2_stream_id(const struct ek_h2_stream *s)
{
    return s->id;
}

void ek_h2_set_user_of(struct ek_h2_stream *s, void *user)
{
    s->user = user;
}

void *ek_h2_user_of(const struct ek_h2_stream *s)
{
    return s->user;
}
