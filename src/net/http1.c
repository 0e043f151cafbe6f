/* http1.c - framing: where the head ends, the body, chunks. The head's meaning is
 * http1_head.c. */
#include "net/http1.h"

#include "net/http1_int.h"

#include <assert.h>
#include <string.h>

/* Where the next byte belongs. */
enum step {
    HEAD_START,  /* before the request line */
    HEAD_EMPTY,  /* CR of the one empty line allowed there */
    HEAD_FIRST,  /* first byte after that empty line */
    HEAD_LINE,   /* inside a line */
    HEAD_CR,     /* CR that must be followed by LF */
    HEAD_BOL,    /* first byte of a line after the first */
    HEAD_END,    /* CR of the empty line that ends the head */
    BODY_SIZED,  /* Content-Length */
    CHUNK_SIZE,  /* hexadecimal digits */
    CHUNK_EXT,   /* after ';' */
    CHUNK_LF,    /* LF that ends the size line */
    CHUNK_DATA,  /* left bytes of it */
    CHUNK_CR,    /* CR after the data */
    CHUNK_NEXT,  /* LF after the data */
    TRAIL_BOL,   /* first byte of a trailer line */
    TRAIL_NAME,  /* field name */
    TRAIL_VALUE, /* field value */
    TRAIL_LF,    /* LF that ends a trailer line */
    TRAIL_END,   /* LF of the empty line that ends the body */
};

void ek_http1_init(struct ek_http1 *p, size_t max_head_bytes, size_t max_body_bytes)
{
    memset(p, 0, sizeof *p);
    ek_buf_init(&p->head, max_head_bytes);
    ek_buf_init(&p->body, max_body_bytes);
    p->max_line = max_head_bytes < EK_HTTP1_MAX_LINE_BYTES ? max_head_bytes
                                                           : EK_HTTP1_MAX_LINE_BYTES;
    ek_http1_reset(p);
}

void ek_http1_release(struct ek_http1 *p)
{
    ek_buf_release(&p->head);
    ek_buf_release(&p->body);
    ek_http1_reset(p);
}

static void reset_buf(struct ek_buf *b)
{
    if (b->cap > EK_HTTP1_MAX_KEPT_BYTES)
        ek_buf_release(b);
    ek_buf_reset(b);
}

void ek_http1_reset(struct ek_http1 *p)
{
    reset_buf(&p->head);
    reset_buf(&p->body);
    p->phase = EK_HTTP1_HEAD;
    p->request = (struct ek_http_request){.headers = p->headers};
    p->minor = 1;
    p->is_head = p->is_keep_alive = p->expects_continue = p->is_chunked = false;
    p->code = 0;
    p->reason = NULL;
    p->step = HEAD_START;
    p->is_line_first = true;
    p->left = 0;
    p->n_digits = 0;
    p->extra_bytes = 0;
}

bool ek_http1_is_idle(const struct ek_http1 *p)
{
    return p->phase == EK_HTTP1_HEAD && p->step == HEAD_START;
}

void ek_http1_fail(struct ek_http1 *p, int code, const char *reason)
{
    p->phase = EK_HTTP1_FAILED;
    p->code = code;
    p->reason = reason;
}

/* Head ------------------------------------------------------------------------- */

/* One byte of the head; `at` bytes of it came before. */
static void step_head(struct ek_http1 *p, unsigned char c, size_t at)
{
    if (p->is_line_first && at >= p->max_line) {
        ek_http1_fail(p, 414, "the request line is too long");
        return;
    }
    if (at >= p->head.max) {
        ek_http1_fail(p, 431, "the request line and headers are too large");
        return;
    }
    switch (p->step) {
    case HEAD_EMPTY:
    case HEAD_CR:
    case HEAD_END:
        if (c != '\n') {
            ek_http1_fail(p, 400, "a CR without LF in the head");
        } else if (p->step == HEAD_CR) {
            p->is_line_first = false;
            p->step = HEAD_BOL;
        } else if (p->step == HEAD_EMPTY) {
            p->step = HEAD_FIRST;
        } else {
            p->phase = EK_HTTP1_BODY; /* tells scan_head to stop */
        }
        return;
    default:
        break;
    }
    if (c == '\r' && p->step == HEAD_FIRST) {
        ek_http1_fail(p, 400, "more than one empty line before the request line");
    } else if (c == '\r') {
        p->step = p->step == HEAD_START ? HEAD_EMPTY
                  : p->step == HEAD_BOL ? HEAD_END
                                        : HEAD_CR;
    } else if (c == '\n') {
        ek_http1_fail(p, 400, "an LF without CR in the head");
    } else if (!ek_http1_is_value_char(c)) {
        ek_http1_fail(p, 400, "a control character in the head");
    } else {
        p->step = HEAD_LINE;
    }
}

/* After the head: is there a body, and of which form? */
static void begin_body(struct ek_http1 *p)
{
    p->phase = EK_HTTP1_BODY;
    if (p->is_chunked) {
        p->step = CHUNK_SIZE;
    } else if (p->left > p->body.max) {
        ek_http1_fail(p, 413, "the body is too large");
    } else {
        p->step = BODY_SIZED;
    }
    p->request.body = "";
    if (p->phase == EK_HTTP1_BODY && !p->is_chunked && p->left == 0)
        p->phase = EK_HTTP1_DONE;
}

static int feed_head(struct ek_http1 *p, const char *data, size_t n, size_t *used)
{
    size_t i = 0;
    while (i < n && p->phase == EK_HTTP1_HEAD) {
        step_head(p, (unsigned char)data[i], p->head.len + i);
        i++;
    }
    *used = i;
    if (p->phase == EK_HTTP1_FAILED)
        return 0;
    int rc = ek_buf_add(&p->head, data, i);
    if (rc)
        return rc;
    if (p->phase == EK_HTTP1_BODY) {
        p->phase = EK_HTTP1_HEAD;
        ek_http1_parse_head(p);
        if (p->phase == EK_HTTP1_HEAD)
            begin_body(p);
    }
    return 0;
}

/* Body ------------------------------------------------------------------------- */

static int hex_value(unsigned char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void step_size(struct ek_http1 *p, unsigned char c)
{
    enum { MAX_DIGITS = 16 }; /* leading zeros count: they must end, too */
    int digit = hex_value(c);
    if (digit >= 0) {
        if (++p->n_digits > MAX_DIGITS) {
            ek_http1_fail(p, 400, "a chunk size has too many digits");
            return;
        }
        bool is_absurd = p->left > UINT64_MAX / 16;
        p->left = p->left * 16 + (uint64_t)digit;
        if (is_absurd || p->left > p->body.max - p->body.len)
            ek_http1_fail(p, 413, "the body is too large");
    } else if (p->n_digits > 0 && c == ';') {
        p->step = CHUNK_EXT;
    } else if (p->n_digits > 0 && c == '\r') {
        p->step = CHUNK_LF;
    } else {
        ek_http1_fail(p, 400, "a chunk size is not hexadecimal digits");
    }
}

static void step_extension(struct ek_http1 *p, unsigned char c)
{
    if (c == '\r')
        p->step = CHUNK_LF;
    else if (!ek_http1_is_value_char(c))
        ek_http1_fail(p, 400, "a control character in a chunk extension");
    else if (++p->extra_bytes > EK_HTTP1_MAX_EXTENSION_BYTES)
        ek_http1_fail(p, 400, "the chunk extensions are too large");
}

static void end_size_line(struct ek_http1 *p)
{
    p->n_digits = 0;
    if (p->left > 0) {
        p->step = CHUNK_DATA;
    } else {
        p->step = TRAIL_BOL;
        p->extra_bytes = 0;
    }
}

static void step_trailer(struct ek_http1 *p, unsigned char c)
{
    if (++p->extra_bytes > p->head.max) {
        ek_http1_fail(p, 431, "the trailers are too large");
    } else if (p->step == TRAIL_BOL && c == '\r') {
        p->step = TRAIL_END;
    } else if (p->step == TRAIL_VALUE && c == '\r') {
        p->step = TRAIL_LF;
    } else if (p->step == TRAIL_NAME && c == ':') {
        p->step = TRAIL_VALUE;
    } else if (p->step == TRAIL_VALUE && ek_http1_is_value_char(c)) {
        return;
    } else if (p->step != TRAIL_VALUE && ek_http1_is_token_char(c)) {
        p->step = TRAIL_NAME;
    } else {
        ek_http1_fail(p, 400, "a trailer is not NAME: VALUE");
    }
}

/* A line end inside the chunked form: c must be `want`. */
static void step_line_end(struct ek_http1 *p, unsigned char c, unsigned char want)
{
    if (c != want) {
        ek_http1_fail(p, 400, "a chunk is not ended by CR LF");
        return;
    }
    switch (p->step) {
    case CHUNK_LF:
        end_size_line(p);
        break;
    case CHUNK_CR:
        p->step = CHUNK_NEXT;
        break;
    case CHUNK_NEXT:
        p->step = CHUNK_SIZE;
        break;
    case TRAIL_LF:
        p->step = TRAIL_BOL;
        break;
    default:
        assert(p->step == TRAIL_END);
        p->phase = EK_HTTP1_DONE;
    }
}

static void step_chunked(struct ek_http1 *p, unsigned char c)
{
    switch (p->step) {
    case CHUNK_SIZE:
        step_size(p, c);
        break;
    case CHUNK_EXT:
        step_extension(p, c);
        break;
    case TRAIL_BOL:
    case TRAIL_NAME:
    case TRAIL_VALUE:
        step_trailer(p, c);
        break;
    default:
        step_line_end(p, c, p->step == CHUNK_CR ? '\r' : '\n');
    }
}

static int feed_body(struct ek_http1 *p, const char *data, size_t n, size_t *used)
{
    size_t i = 0;
    while (i < n && p->phase == EK_HTTP1_BODY) {
        if (p->step != BODY_SIZED && p->step != CHUNK_DATA) {
            step_chunked(p, (unsigned char)data[i++]);
            continue;
        }
        size_t take = p->left < n - i ? (size_t)p->left : n - i;
        int rc = ek_buf_add(&p->body, data + i, take);
        if (rc)
            return rc;
        i += take;
        p->left -= take;
        if (p->left == 0 && p->step == CHUNK_DATA)
            p->step = CHUNK_CR;
        else if (p->left == 0)
            p->phase = EK_HTTP1_DONE;
    }
    *used = i;
    if (p->phase == EK_HTTP1_DONE && p->body.data) {
        p->request.body = p->body.data;
        p->request.body_n = p->body.len;
    }
    return 0;
}

int ek_http1_feed(struct ek_http1 *p, const char *data, size_t n, size_t *used)
{
    assert(p->phase == EK_HTTP1_HEAD || p->phase == EK_HTTP1_BODY);
    size_t head = 0, body = 0;
    int rc = 0;
    if (p->phase == EK_HTTP1_HEAD)
        rc = feed_head(p, data, n, &head);
    if (!rc && p->phase == EK_HTTP1_BODY)
        rc = feed_body(p, data + head, n - head, &body);
    if (!rc)
        *used = head + body;
    return rc;
}
