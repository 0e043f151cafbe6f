/* http_exchange.c - answers: heads, whole bodies, streams. Everything here only fills
 * the connection's `out`; sending and the end of the exchange are http_conn.c's. */
#include "base/clock.h"
#include "net/http_int.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

const char *ek_http_header_get(const struct ek_http_request *r, const char *name)
{
    for (size_t i = 0; i < r->n_headers; i++) {
        if (strcmp(r->headers[i].name, name) == 0)
            return r->headers[i].value;
    }
    return NULL;
}

const struct ek_http_request *ek_http_get_request(const struct ek_http_exchange *x)
{
    return &x->conn->parser.request;
}

void ek_http_set_user(struct ek_http_exchange *x, void *user)
{
    x->user = user;
}

void *ek_http_get_user(const struct ek_http_exchange *x)
{
    return x->user;
}

/* Heads ------------------------------------------------------------------------ */

/* IMF-fixdate of RFC 9110 5.6.7; strftime would follow the locale. */
static int put_date(struct ek_buf *out)
{
    static const char days[][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char months[][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    struct timespec now;
    struct tm t;
    if (clock_gettime(CLOCK_REALTIME, &now) || !gmtime_r(&now.tv_sec, &t))
        return 0;
    return ek_buf_addf(out, "Date: %s, %02d %s %04d %02d:%02d:%02d GMT\r\n",
                       days[t.tm_wday], t.tm_mday, months[t.tm_mon], 1900 + t.tm_year,
                       t.tm_hour, t.tm_min, t.tm_sec);
}

static bool has_no_content(int code)
{
    return code < 200 || code == 204 || code == 304;
}

/* Length of the body for the head: n bytes, or a stream. */
static int put_length(struct ek_http_conn *c, int code, bool is_stream, size_t n)
{
    if (has_no_content(code))
        return 0;
    if (!is_stream)
        return ek_buf_addf(&c->out, "Content-Length: %zu\r\n", n);
    if (c->x.is_chunked)
        return ek_buf_add_str(&c->out, "Transfer-Encoding: chunked\r\n");
    return 0;
}

static const char *connection_value(const struct ek_http_conn *c)
{
    if (c->must_close || c->server->is_draining)
        return "Connection: close\r\n\r\n";
    /* HTTP/1.0 must be told; HTTP/1.1 knows. */
    return c->parser.minor == 0 ? "Connection: keep-alive\r\n\r\n" : "\r\n";
}

static int put_head(struct ek_http_conn *c, int code, const char *content_type,
                    bool is_stream, size_t n)
{
    struct ek_buf *out = &c->out;
    int rc = ek_buf_addf(out, "HTTP/1.1 %d %s\r\n", code, ek_http1_reason(code));
    if (!rc)
        rc = put_date(out);
    if (!rc && content_type)
        rc = ek_buf_addf(out, "Content-Type: %s\r\n", content_type);
    if (!rc)
        rc = put_length(c, code, is_stream, n);
    if (!rc && c->x.extra.len > 0)
        rc = ek_buf_add(out, c->x.extra.data, c->x.extra.len);
    if (!rc)
        rc = ek_buf_add_str(out, connection_value(c));
    return rc;
}

/* Framing is the server's business: two opinions on it are how answers get split. */
static bool is_framing(const char *name)
{
    return strcasecmp(name, "content-length") == 0 ||
           strcasecmp(name, "transfer-encoding") == 0 ||
           strcasecmp(name, "connection") == 0 || strcasecmp(name, "date") == 0;
}

int ek_http_add_header(struct ek_http_exchange *x, const char *name, const char *value)
{
    assert(!x->has_begun);
    if (!ek_http1_is_token(name, strlen(name)) || is_framing(name) ||
        !ek_http1_is_value(value, strlen(value)))
        return EK_EINVAL;
    return ek_buf_addf(&x->extra, "%s: %s\r\n", name, value);
}

/* Answers ---------------------------------------------------------------------- */

/* An answer that could not be written whole may not go out in part. */
static int break_off(struct ek_http_conn *c, int status)
{
    c->is_broken = true;
    ek_http_conn_soon(c);
    return status;
}

/* The wait for the reader counts from the first byte that waits. */
static void note_waiting(struct ek_http_conn *c)
{
    if (c->out.len == c->n_sent)
        c->since_us = ek_clock_us();
}

static void set_answered(struct ek_http_conn *c)
{
    c->state = EK_HTTP_ANSWERED;
    ek_http_conn_soon(c);
}

int ek_http_respond(struct ek_http_exchange *x, int code, const char *content_type,
                    const void *body, size_t n)
{
    struct ek_http_conn *c = x->conn;
    assert(!x->has_begun && code >= 200 && code <= 599);
    if (c->is_broken)
        return EK_ECLOSED;
    x->has_begun = true;
    note_waiting(c);
    int rc = put_head(c, code, content_type, false, n);
    if (!rc && !c->parser.is_head && !has_no_content(code))
        rc = ek_buf_add(&c->out, body, n);
    if (rc)
        return break_off(c, rc);
    set_answered(c);
    return 0;
}

int ek_http_begin(struct ek_http_exchange *x, int code, const char *content_type)
{
    struct ek_http_conn *c = x->conn;
    assert(!x->has_begun && code >= 200 && code <= 599);
    if (c->is_broken)
        return EK_ECLOSED;
    x->has_begun = true;
    x->has_body = !c->parser.is_head && !has_no_content(code);
    x->is_chunked = c->parser.minor > 0;
    if (!x->is_chunked && x->has_body)
        c->must_close = true; /* its end is the body's end */
    note_waiting(c);
    int rc = put_head(c, code, content_type, true, 0);
    if (rc)
        return break_off(c, rc);
    ek_http_conn_soon(c);
    return 0;
}

int ek_http_send(struct ek_http_exchange *x, const void *p, size_t n)
{
    struct ek_http_conn *c = x->conn;
    assert(x->has_begun && c->state == EK_HTTP_HANDLER);
    if (c->is_broken)
        return EK_ECLOSED;
    if (n == 0 || !x->has_body)
        return 0;
    size_t waiting = c->out.len - c->n_sent, max = c->server->limits.max_unsent_bytes;
    if (waiting > max || n > max - waiting)
        return EK_ELIMIT;
    note_waiting(c);
    int rc = ek_buf_reserve(&c->out, n + 32); /* size line and two line ends */
    if (!rc && x->is_chunked)
        rc = ek_buf_addf(&c->out, "%zx\r\n", n);
    if (!rc)
        rc = ek_buf_add(&c->out, p, n);
    if (!rc && x->is_chunked)
        rc = ek_buf_add_str(&c->out, "\r\n");
    if (rc)
        return break_off(c, rc);
    ek_http_conn_soon(c);
    return 0;
}

int ek_http_end(struct ek_http_exchange *x)
{
    struct ek_http_conn *c = x->conn;
    assert(x->has_begun && c->state == EK_HTTP_HANDLER);
    if (c->is_broken)
        return EK_ECLOSED;
    note_waiting(c);
    if (x->is_chunked && x->has_body) {
        int rc = ek_buf_add_str(&c->out, "0\r\n\r\n");
        if (rc)
            return break_off(c, rc);
    }
    set_answered(c);
    return 0;
}

void ek_http_abort(struct ek_http_exchange *x)
{
    x->conn->is_broken = true;
    ek_http_conn_soon(x->conn);
}

/* The server's own answers ----------------------------------------------------- */

static int put_error_body(const struct ek_http_server *s, struct ek_buf *body, int code,
                          const char *reason, const char **type)
{
    *type = "text/plain; charset=utf-8";
    if (!s->handler.on_error_body)
        return ek_buf_addf(body, "%s\n", reason);
    *type = s->handler.error_type;
    return s->handler.on_error_body(s->handler.arg, body, code, reason);
}

int ek_http_answer_self(struct ek_http_conn *c, int code, const char *reason)
{
    enum { MAX_ERROR_BODY = 65536 };
    struct ek_buf body;
    const char *type = NULL;
    ek_buf_init(&body, MAX_ERROR_BODY);
    int rc = 0;
    if (code == 204)
        rc = ek_buf_add_str(&c->x.extra,
                            "Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n");
    else
        rc = put_error_body(c->server, &body, code, reason, &type);
    note_waiting(c);
    if (!rc)
        rc = put_head(c, code, type, false, body.len);
    if (!rc && !c->parser.is_head)
        rc = ek_buf_add(&c->out, body.data, body.len);
    ek_buf_release(&body);
    if (!rc)
        set_answered(c);
    return rc;
}
