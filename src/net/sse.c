#include "net/sse.h"

#include <assert.h>
#include <string.h>

int ek_sse_begin(struct ek_http_exchange *x)
{
    int rc = ek_http_add_header(x, "Cache-Control", "no-cache");
    if (!rc)
        rc = ek_http_add_header(x, "X-Accel-Buffering", "no");
    return rc ? rc : ek_http_begin(x, 200, "text/event-stream");
}

static int add_line(struct ek_buf *out, const char *p, size_t n)
{
    int rc = ek_buf_add(out, "data: ", 6);
    if (!rc)
        rc = ek_buf_add(out, p, n);
    return rc ? rc : ek_buf_add_char(out, '\n');
}

static size_t line_length(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n && p[i] != '\n' && p[i] != '\r')
        i++;
    return i;
}

/* Takes back what was appended after `len`. */
static int undo(struct ek_buf *out, size_t len, int rc)
{
    out->len = len;
    if (out->data)
        out->data[len] = 0;
    return rc;
}

int ek_sse_add(struct ek_buf *out, const char *p, size_t n)
{
    size_t before = out->len;
    for (;;) {
        size_t line = line_length(p, n);
        int rc = add_line(out, p, line);
        if (rc)
            return undo(out, before, rc);
        if (line == n)
            break;
        size_t end = p[line] == '\r' && line + 1 < n && p[line + 1] == '\n' ? 2 : 1;
        p += line + end;
        n -= line + end;
    }
    int rc = ek_buf_add_char(out, '\n');
    return rc ? undo(out, before, rc) : 0;
}

int ek_sse_add_comment(struct ek_buf *out, const char *text)
{
    assert(!strpbrk(text, "\r\n"));
    return ek_buf_addf(out, ": %s\n\n", text);
}
