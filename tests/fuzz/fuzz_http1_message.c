/* fuzz_http1_message.c - heads and bodies as the proxy reads them.
 *
 * The first byte chooses between request, answer and body, and how a body is cut. What is
 * understood must be written so that it is understood again, and a body's bytes must not
 * depend on its cut. */
#include "base/buf.h"
#include "net/http1_message.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OUT = 1 << 20 };

static void require(int is_true)
{
    if (!is_true)
        abort();
}

/* A head that was taken, written and taken again, has the same path and fields. */
static void take_request(const char *p, size_t n)
{
    struct ek_http1_message m, again;
    struct ek_http1_form f = {.minor = 1, .is_keep_alive = true};
    struct ek_buf out;
    if (ek_http1_read_request(&m, p, n))
        return;
    require(m.head.path.n > 0 && m.head.n_fields <= EK_HEAD_MAX_FIELDS);
    f.framing = m.framing;
    ek_buf_init(&out, MAX_OUT);
    require(ek_http1_write_request(&out, &m.head, &f) == 0);
    require(ek_http1_read_request(&again, out.data, out.len) == 0);
    require(ek_text_equal(m.head.path, again.head.path));
    require(ek_text_equal(m.head.method, again.head.method));
    require(m.framing == again.framing || m.framing == EK_HTTP1_NO_BODY);
    ek_buf_release(&out);
}

static void take_head(const char *p, size_t n, int is_answer)
{
    struct ek_http1_message m;
    size_t from = 0, end = 0;
    bool is_bad = false;
    for (size_t i = 1; i <= n && !end && !is_bad; i++)
        end = ek_http1_find_end(p, i, &from, &is_bad);
    if (!end)
        return;
    if (is_answer)
        require(ek_http1_read_answer(&m, p, end, n & 1, n & 2) <= 0);
    else
        take_request(p, end);
}

/* The body's bytes in pieces of `size`, or an error in *rc. */
static void gather(struct ek_buf *out, int *rc, const char *p, size_t n, size_t size,
                   int is_request)
{
    struct ek_http1_message m = {.framing = EK_HTTP1_CHUNKED};
    struct ek_http1_body b;
    struct ek_field fields[EK_HEAD_MAX_FIELDS];
    m.head.status = is_request ? 0 : 200;
    ek_http1_body_init(&b, &m);
    *rc = 0;
    for (size_t at = 0; at < n && !b.is_done && !*rc;) {
        size_t piece = size < n - at ? size : n - at, used = 0;
        struct ek_text data;
        *rc = ek_http1_body_feed(&b, p + at, piece, &used, &data);
        if (!*rc)
            require(used > 0 && ek_buf_add(out, data.p, data.n) == 0);
        at += used;
    }
    require(ek_http1_body_trailers(&b, fields) <= EK_HEAD_MAX_FIELDS);
    ek_http1_body_release(&b);
}

static void take_body(const char *p, size_t n, size_t size, int is_request)
{
    struct ek_buf whole, cut;
    int rc_whole, rc_cut;
    ek_buf_init(&whole, MAX_OUT);
    ek_buf_init(&cut, MAX_OUT);
    gather(&whole, &rc_whole, p, n, n ? n : 1, is_request);
    gather(&cut, &rc_cut, p, n, size, is_request);
    require(rc_whole == rc_cut && whole.len == cut.len);
    require(whole.len == 0 || memcmp(whole.data, cut.data, whole.len) == 0);
    ek_buf_release(&whole);
    ek_buf_release(&cut);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 1 || n > 65536)
        return 0;
    /* Memory that ends where the input does, so that one byte read too many is seen. */
    char *copy = malloc(n > 1 ? n - 1 : 1);
    if (!copy)
        exit(1);
    memcpy(copy, data + 1, n - 1);
    if (data[0] < 2)
        take_head(copy, n - 1, data[0]);
    else
        take_body(copy, n - 1, 1 + data[0] / 4, data[0] & 1);
    free(copy);
    return 0;
}
