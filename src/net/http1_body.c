/* http1_body.c - a body as it streams: lengths, chunks, trailers. */
#include "net/http1_int.h"
#include "net/http1_message.h"

#include <string.h>

enum { MAX_DIGITS = 16, MAX_EXTRA_BYTES = 8192, MAX_TRAILER_BYTES = 8192 };

/* Where the next byte of the chunked form belongs. */
enum step { SIZE, EXTENSION, SIZE_LF, DATA, DATA_CR, DATA_LF, LINE, LINE_LF, END_LF };

void ek_http1_body_init(struct ek_http1_body *b, const struct ek_http1_message *m)
{
    *b = (struct ek_http1_body){.framing = m->framing,
                                .is_request = m->head.status == 0};
    ek_buf_init(&b->text, MAX_TRAILER_BYTES);
    if (m->framing == EK_HTTP1_SIZED)
        b->left = (uint64_t)m->head.body_bytes;
    b->is_done = m->framing == EK_HTTP1_NO_BODY ||
                 (m->framing == EK_HTTP1_SIZED && b->left == 0);
}

void ek_http1_body_release(struct ek_http1_body *b)
{
    ek_buf_release(&b->text);
    *b = (struct ek_http1_body){0};
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int step_size(struct ek_http1_body *b, char c)
{
    int digit = hex_value(c);
    if (digit >= 0) {
        if (++b->n_digits > MAX_DIGITS || b->left > UINT64_MAX / 16)
            return EK_EFORMAT;
        b->left = b->left * 16 + (uint64_t)digit;
        return 0;
    }
    if (b->n_digits == 0 || (c != '\r' && (c != ';' || b->is_request)))
        return EK_EFORMAT;
    b->step = c == '\r' ? SIZE_LF : EXTENSION;
    return 0;
}

static int step_extension(struct ek_http1_body *b, char c)
{
    if (c == '\r')
        b->step = SIZE_LF;
    else if (!ek_http1_is_value_char((unsigned char)c))
        return EK_EFORMAT;
    else if (++b->n_extra > MAX_EXTRA_BYTES)
        return EK_ELIMIT;
    return 0;
}

/* One byte of a trailer line, CR and LF kept; its form is looked at in the end. */
static int step_line(struct ek_http1_body *b, char c)
{
    bool is_first = b->text.len == 0 || b->text.data[b->text.len - 1] == '\n';
    if (c == '\r' && is_first) {
        b->step = END_LF;
        return 0;
    }
    if (c == '\r')
        b->step = LINE_LF;
    else if (!ek_http1_is_value_char((unsigned char)c))
        return EK_EFORMAT;
    return ek_buf_add_char(&b->text, c);
}

static int end_trailers(struct ek_http1_body *b)
{
    struct ek_field fields[EK_HEAD_MAX_FIELDS];
    size_t n;
    b->is_done = true;
    int rc = ek_http1_read_trailers(fields, &n, b->text.data, b->text.len);
    b->has_trailers = n > 0;
    return rc;
}

static int step_line_end(struct ek_http1_body *b, char c)
{
    if (c != (b->step == DATA_CR ? '\r' : '\n'))
        return EK_EFORMAT;
    switch (b->step) {
    case SIZE_LF:
        b->n_digits = 0;
        b->step = b->left > 0 ? DATA : LINE;
        return 0;
    case DATA_CR:
        b->step = DATA_LF;
        return 0;
    case DATA_LF:
        b->step = SIZE;
        return 0;
    case LINE_LF:
        b->step = LINE;
        return ek_buf_add_char(&b->text, c);
    default:
        return end_trailers(b);
    }
}

static int step_chunked(struct ek_http1_body *b, char c)
{
    switch (b->step) {
    case SIZE:
        return step_size(b, c);
    case EXTENSION:
        return step_extension(b, c);
    case LINE:
        return step_line(b, c);
    default:
        return step_line_end(b, c);
    }
}

static void take_data(struct ek_http1_body *b, const char *p, size_t n, size_t *used,
                      struct ek_text *data)
{
    size_t take = n;
    if (b->framing == EK_HTTP1_SIZED || b->framing == EK_HTTP1_CHUNKED) {
        take = b->left < n ? (size_t)b->left : n;
        b->left -= take;
        if (b->left == 0 && b->framing == EK_HTTP1_CHUNKED)
            b->step = DATA_CR;
        else
            b->is_done = b->left == 0 && b->framing == EK_HTTP1_SIZED;
    }
    *data = ek_text_of(p, take);
    *used += take;
}

int ek_http1_body_feed(struct ek_http1_body *b, const char *p, size_t n, size_t *used,
                       struct ek_text *data)
{
    *used = 0;
    *data = ek_text_of(p, 0);
    while (*used < n && !b->is_done) {
        if (b->framing != EK_HTTP1_CHUNKED || b->step == DATA) {
            take_data(b, p + *used, n - *used, used, data);
            return 0;
        }
        int rc = step_chunked(b, p[(*used)++]);
        if (rc)
            return rc;
    }
    return 0;
}

size_t ek_http1_body_trailers(const struct ek_http1_body *b,
                              struct ek_field fields[EK_HEAD_MAX_FIELDS])
{
    size_t n;
    if (!b->has_trailers ||
        ek_http1_read_trailers(fields, &n, b->text.data, b->text.len))
        return 0;
    return n;
}
