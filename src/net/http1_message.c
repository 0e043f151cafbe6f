/* http1_message.c - heads; bodies are http1_body.c, writing is http1_write.c. */
#include "net/http1_message.h"

#include "net/http1.h"
#include "net/http1_int.h"

#include <string.h>

enum { MAX_LENGTH_DIGITS = 18 }; /* of Content-Length: fits int64_t */

size_t ek_http1_find_end(const char *p, size_t n, size_t *from, bool *is_bad)
{
    size_t line = *from; /* where the line under way begins */
    *is_bad = false;
    while (line < n) {
        const char *lf = memchr(p + line, '\n', n - line);
        if (!lf)
            break;
        size_t at = (size_t)(lf - p);
        if (at == line || p[at - 1] != '\r') {
            *is_bad = true;
            return 0;
        }
        bool is_empty = at - 1 == line;
        line = at + 1;
        if (is_empty && line > 2)
            return line;
    }
    *from = line;
    return 0;
}

/* Lines -------------------------------------------------------------------- */

static int refuse(struct ek_http1_message *m, int code, const char *reason)
{
    m->code = code;
    m->reason = reason;
    return EK_EFORMAT;
}

/* The next line of *rest without its CR LF; the head is whole, so there is one. */
static struct ek_text next_line(struct ek_text *rest)
{
    const char *lf = memchr(rest->p, '\n', rest->n);
    size_t n = lf ? (size_t)(lf - rest->p) + 1 : rest->n;
    struct ek_text line = ek_text_of(rest->p, n >= 2 ? n - 2 : 0);
    *rest = ek_text_of(rest->p + n, rest->n - n);
    return line;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* "name: value"; NULL, or what is wrong. */
static const char *read_line(struct ek_field *f, struct ek_text line)
{
    const char *colon = memchr(line.p, ':', line.n);
    size_t n = colon ? (size_t)(colon - line.p) : 0;
    if (!colon || !ek_http1_is_token(line.p, n))
        return line.n && is_space(line.p[0]) ? "a header line is folded"
                                             : "a header line is not NAME: VALUE";
    const char *s = colon + 1, *end = line.p + line.n;
    while (s < end && is_space(*s))
        s++;
    while (end > s && is_space(end[-1]))
        end--;
    f->name = ek_text_of(line.p, n);
    f->value = ek_text_of(s, (size_t)(end - s));
    if (!ek_http1_is_value(s, (size_t)(end - s)))
        return "a control character in a header";
    if (ek_text_is_disguised(f->name))
        return "a header's name has an underscore where a framing header has a hyphen";
    return NULL;
}

static int read_lines(struct ek_http1_message *m, struct ek_text rest)
{
    struct ek_text line;
    size_t n = 0;
    while ((line = next_line(&rest)).n > 0) {
        if (n == EK_HEAD_MAX_FIELDS)
            return refuse(m, 431, "too many headers");
        const char *wrong = read_line(&m->fields[n++], line);
        if (wrong)
            return refuse(m, 400, wrong);
    }
    m->head.fields = m->fields;
    m->head.n_fields = n;
    return 0;
}

/* Fields ------------------------------------------------------------------- */

/* What the fields of one connection said. */
struct seen {
    int n_host, n_length, n_coding, n_key, n_accept, n_version;
    bool has_close, has_keep, has_upgrade; /* of Connection */
    bool has_websocket;                    /* of Upgrade */
    bool names_others;                     /* Connection names fields */
    struct ek_text host;
};

static int read_length(struct ek_http1_message *m, struct ek_text v)
{
    int64_t length = 0;
    if (v.n == 0)
        return refuse(m, 400, "Content-Length is not a number");
    for (size_t i = 0; i < v.n; i++) {
        if (!is_digit(v.p[i]))
            return refuse(m, 400, "Content-Length is not a number");
        if (i >= MAX_LENGTH_DIGITS)
            return refuse(m, 413, "Content-Length is absurd");
        length = length * 10 + (v.p[i] - '0');
    }
    m->head.body_bytes = length;
    return 0;
}

static void read_connection(struct seen *seen, struct ek_text list)
{
    struct ek_text member;
    while (ek_text_next_member(&list, &member)) {
        if (ek_text_is(member, "close"))
            seen->has_close = true;
        else if (ek_text_is(member, "keep-alive"))
            seen->has_keep = true;
        else if (ek_text_is(member, "upgrade"))
            seen->has_upgrade = true;
        else
            seen->names_others = true;
    }
}

/* Notes what matters here; *is_ours: the field goes no further. */
static int note_field(struct ek_http1_message *m, struct seen *seen,
                      const struct ek_field *f, bool *is_ours)
{
    struct ek_text name = f->name;
    *is_ours = true;
    if (ek_text_is(name, "host")) {
        seen->n_host++;
        seen->host = f->value;
        *is_ours = m->head.status == 0;
    } else if (ek_text_is(name, "connection")) {
        read_connection(seen, f->value);
    } else if (ek_text_is(name, "content-length")) {
        seen->n_length++;
        *is_ours = false;
        return read_length(m, f->value);
    } else if (ek_text_is(name, "transfer-encoding")) {
        seen->n_coding++;
        if (!ek_text_is(f->value, "chunked"))
            return refuse(m, 501, "no transfer coding but \"chunked\" is known here");
    } else if (ek_text_is(name, "upgrade")) {
        seen->has_websocket |= ek_text_has_member(f->value, "websocket");
    } else if (ek_text_is(name, "sec-websocket-key")) {
        seen->n_key++;
        m->head.websocket_key = f->value;
    } else if (ek_text_is(name, "sec-websocket-accept")) {
        seen->n_accept++;
        m->websocket_accept = f->value;
    } else if (ek_text_is(name, "te")) {
        *is_ours = !ek_text_is(f->value, "trailers");
    } else {
        *is_ours = ek_text_is(name, "keep-alive") ||
                   ek_text_is(name, "proxy-connection") ||
                   ek_text_is(name, "http2-settings");
        if (ek_text_is(name, "sec-websocket-version"))
            seen->n_version++;
        else if (ek_text_is(name, "expect"))
            m->head.expects_continue = ek_text_is(f->value, "100-continue");
    }
    return 0;
}

/* RFC 9110 7.6.1: fields that Connection names go no further; framing stays. */
static void drop_named(struct ek_http1_message *m, struct ek_text list)
{
    struct ek_text member;
    while (ek_text_next_member(&list, &member)) {
        size_t kept = 0;
        for (size_t i = 0; i < m->head.n_fields; i++) {
            struct ek_text name = m->fields[i].name;
            if (!ek_text_same(name, member) || ek_text_is_framing(name))
                m->fields[kept++] = m->fields[i];
        }
        m->head.n_fields = kept;
    }
}

static int sort_fields(struct ek_http1_message *m, struct seen *seen)
{
    struct ek_text connection[8];
    size_t kept = 0, n_connection = 0;
    for (size_t i = 0; i < m->head.n_fields; i++) {
        bool is_ours;
        int rc = note_field(m, seen, &m->fields[i], &is_ours);
        if (rc)
            return rc;
        if (ek_text_is(m->fields[i].name, "connection")) {
            if (n_connection == sizeof connection / sizeof connection[0])
                return refuse(m, 400, "Connection is given too often");
            connection[n_connection++] = m->fields[i].value;
        }
        if (!is_ours)
            m->fields[kept++] = m->fields[i];
    }
    m->head.n_fields = kept;
    for (size_t i = 0; i < n_connection && seen->names_others; i++)
        drop_named(m, connection[i]);
    if (seen->n_length > 1)
        return refuse(m, 400, "Content-Length is given more than once");
    if (seen->n_coding > 1)
        return refuse(m, 400, "Transfer-Encoding is given more than once");
    if (seen->n_coding && seen->n_length)
        return refuse(m, 400, "both Content-Length and Transfer-Encoding are given");
    if (seen->n_coding && m->minor == 0)
        return refuse(m, 400, "Transfer-Encoding in HTTP/1.0");
    m->is_keep_alive = !seen->has_close && (m->minor > 0 || seen->has_keep);
    m->framing = seen->n_coding            ? EK_HTTP1_CHUNKED
                 : m->head.body_bytes >= 0 ? EK_HTTP1_SIZED
                                           : EK_HTTP1_NO_BODY;
    return 0;
}

/* Requests ----------------------------------------------------------------- */

static bool is_version(struct ek_text v)
{
    return v.n == 8 && memcmp(v.p, "HTTP/", 5) == 0 && is_digit(v.p[5]) &&
           v.p[6] == '.' && is_digit(v.p[7]);
}

/* "http://host:1/p?q": its authority counts and Host does not (RFC 9112 3.2.2). */
static bool split_url(struct ek_head *h, struct ek_text target)
{
    size_t scheme = 0;
    if (target.n > 7 && ek_text_is(ek_text_of(target.p, 7), "http://"))
        scheme = 7;
    else if (target.n > 8 && ek_text_is(ek_text_of(target.p, 8), "https://"))
        scheme = 8;
    if (scheme == 0)
        return false;
    const char *s = target.p + scheme, *end = target.p + target.n, *at = s;
    while (at < end && *at != '/' && *at != '?')
        at++;
    h->authority = ek_text_of(s, (size_t)(at - s));
    h->path = at < end ? ek_text_of(at, (size_t)(end - at)) : ek_text_of("/", 1);
    return h->authority.n > 0 && h->path.p[0] == '/';
}

static int read_target(struct ek_http1_message *m, struct ek_text target)
{
    struct ek_head *h = &m->head;
    if (target.n == 0 || !ek_text_is_visible(target, "#"))
        return refuse(m, 400, "the request target has a character it may not have");
    h->path = target;
    if (ek_text_is_path(target, h->method))
        return 0;
    if (!split_url(h, target))
        return refuse(m, 400, "the request target is neither a path nor an http URL");
    return 0;
}

static int read_request_line(struct ek_http1_message *m, struct ek_text line)
{
    static const char form[] = "the request line is not METHOD TARGET HTTP/1.1";
    const char *target = memchr(line.p, ' ', line.n);
    const char *end = line.p + line.n;
    const char *version =
        target ? memchr(target + 1, ' ', (size_t)(end - target - 1)) : NULL;
    if (line.n > EK_HTTP1_MAX_LINE_BYTES)
        return refuse(m, 414, "the request line is too long");
    if (!version || !ek_http1_is_token(line.p, (size_t)(target - line.p)))
        return refuse(m, 400, form);
    struct ek_text v = ek_text_of(version + 1, (size_t)(end - version - 1));
    if (!is_version(v))
        return refuse(m, 400, form);
    if (v.p[5] != '1')
        return refuse(m, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    m->minor = v.p[7] == '0' ? 0 : 1;
    m->head.method = ek_text_of(line.p, (size_t)(target - line.p));
    if (ek_text_equal(m->head.method, ek_text_of("CONNECT", 7)))
        return refuse(m, 501, "CONNECT is not served here");
    return read_target(m, ek_text_of(target + 1, (size_t)(version - target - 1)));
}

/* RFC 6455 4.2.1. A request that asks for it in half is an ordinary one. */
static int read_handshake(struct ek_http1_message *m, const struct seen *seen)
{
    if (!seen->has_upgrade || !seen->has_websocket || m->minor == 0 ||
        !ek_text_equal(m->head.method, ek_text_of("GET", 3)))
        return 0;
    if (m->framing == EK_HTTP1_CHUNKED || m->head.body_bytes > 0)
        return refuse(m, 400, "a WebSocket handshake has no body");
    if (seen->n_key != 1 || !ek_websocket_is_key(m->head.websocket_key))
        return refuse(m, 400, "Sec-WebSocket-Key is not one base64 of 16 bytes");
    if (seen->n_version != 1)
        return refuse(m, 400, "Sec-WebSocket-Version must be given exactly once");
    m->head.is_websocket = true;
    return 0;
}

static void begin(struct ek_http1_message *m)
{
    memset(m, 0, offsetof(struct ek_http1_message, fields));
    m->head.body_bytes = -1;
    m->minor = 1;
}

int ek_http1_read_request(struct ek_http1_message *m, const char *p, size_t n)
{
    struct ek_text rest = ek_text_of(p, n);
    struct seen seen = {0};
    begin(m);
    if (n > 2 && p[0] == '\r')
        rest = ek_text_of(p + 2, n - 2);
    int rc = read_request_line(m, next_line(&rest));
    if (!rc)
        rc = read_lines(m, rest);
    if (!rc)
        rc = sort_fields(m, &seen);
    if (rc)
        return rc;
    if (seen.n_host > 1 || (seen.n_host == 0 && m->minor > 0))
        return refuse(m, 400, "Host must be given exactly once");
    if (!m->head.authority.p)
        m->head.authority = seen.host;
    /* Host is looked at also where the target outranks it (RFC 9112 3.2). */
    if (!ek_text_is_authority(m->head.authority) ||
        (seen.n_host > 0 && !ek_text_is_authority(seen.host)))
        return refuse(m, 400, "Host is not HOST or HOST:PORT");
    return read_handshake(m, &seen);
}

/* Answers ------------------------------------------------------------------ */

static int read_status_line(struct ek_http1_message *m, struct ek_text line)
{
    if (line.n < 12 || !is_version(ek_text_of(line.p, 8)) || line.p[5] != '1' ||
        line.p[8] != ' ' || (line.n > 12 && line.p[12] != ' ') ||
        !is_digit(line.p[9]) || !is_digit(line.p[10]) || !is_digit(line.p[11]) ||
        !ek_http1_is_value(line.p, line.n))
        return refuse(m, 502, "the status line is not HTTP/1.1 CODE REASON");
    m->minor = line.p[7] == '0' ? 0 : 1;
    m->head.status =
        (line.p[9] - '0') * 100 + (line.p[10] - '0') * 10 + line.p[11] - '0';
    if (m->head.status < 100 || m->head.status > 599)
        return refuse(m, 502, "the status is not 100 to 599");
    return 0;
}

static void frame_answer(struct ek_http1_message *m, bool is_head_method)
{
    int status = m->head.status;
    if (is_head_method || status < 200 || status == 204 || status == 304)
        m->framing = EK_HTTP1_NO_BODY;
    else if (m->framing == EK_HTTP1_NO_BODY)
        m->framing = EK_HTTP1_TO_END;
    if (m->framing == EK_HTTP1_TO_END)
        m->is_keep_alive = false;
}

int ek_http1_read_answer(struct ek_http1_message *m, const char *p, size_t n,
                         bool is_head_method, bool wants_websocket)
{
    struct ek_text rest = ek_text_of(p, n);
    struct seen seen = {0};
    begin(m);
    int rc = read_status_line(m, next_line(&rest));
    if (!rc)
        rc = read_lines(m, rest);
    if (!rc)
        rc = sort_fields(m, &seen);
    if (rc) {
        m->code = 502;
        return rc;
    }
    frame_answer(m, is_head_method);
    if (m->head.status != 101)
        return 0;
    if (!wants_websocket || !seen.has_upgrade || !seen.has_websocket ||
        seen.n_accept != 1)
        return refuse(m, 502, "101 without a WebSocket that was asked for");
    m->head.is_websocket = true;
    m->framing = EK_HTTP1_TUNNEL;
    return 0;
}

/* Trailers ----------------------------------------------------------------- */

int ek_http1_read_trailers(struct ek_field fields[EK_HEAD_MAX_FIELDS], size_t *n,
                           const char *p, size_t len)
{
    struct ek_text rest = ek_text_of(p, len);
    *n = 0;
    while (rest.n > 0) {
        struct ek_text line = next_line(&rest);
        if (*n == EK_HEAD_MAX_FIELDS || read_line(&fields[*n], line))
            return EK_EFORMAT;
        if (!ek_text_is_framing(fields[*n].name) &&
            !ek_text_is(fields[*n].name, "connection"))
            (*n)++;
    }
    return 0;
}
