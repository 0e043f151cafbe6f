/* The request parser alone: what is accepted, what is refused with which code, and that
 * the result does not depend on where the input was cut. */
#include "base/buf.h"
#include "net/http1.h"
#include "testkit.h"

#include <stdio.h>

enum { MAX_HEAD = 16384, MAX_BODY = 1000 };

/* One line that tells everything a handler could see, for comparisons. */
static void describe(struct ek_buf *out, const struct ek_http1 *p, size_t used)
{
    const struct ek_http_request *r = &p->request;
    int rc = ek_buf_addf(out, "phase=%d code=%d why=%s", (int)p->phase, p->code,
                         p->reason ? p->reason : "");
    if (p->phase == EK_HTTP1_DONE) {
        rc |= ek_buf_addf(out, " used=%zu %s|%s|%s|1.%d keep=%d cont=%d", used,
                          r->method, r->path, r->query, p->minor, p->is_keep_alive,
                          p->expects_continue);
        for (size_t i = 0; i < r->n_headers; i++)
            rc |= ek_buf_addf(out, "|%s=%s", r->headers[i].name, r->headers[i].value);
        rc |= ek_buf_addf(out, "|body[%zu]=", r->body_n);
        rc |= ek_buf_add(out, r->body, r->body_n);
    }
    assert_int_equal(rc, 0);
}

/* Feeds text[from,to) unless the request has ended; *used counts. */
static int feed(struct ek_http1 *p, const char *text, size_t from, size_t to,
                size_t *used)
{
    size_t n = 0;
    if (p->phase == EK_HTTP1_DONE || p->phase == EK_HTTP1_FAILED)
        return 0;
    /* Exact copies, so that AddressSanitizer sees one byte read too many. */
    char *piece = ek_exact_copy(text + from, to - from);
    int rc = ek_http1_feed(p, piece, to - from, &n);
    free(piece);
    assert_true(rc || n == to - from || p->phase >= EK_HTTP1_DONE);
    *used += n;
    return rc;
}

static void run_whole(struct ek_buf *out, const char *text, size_t n)
{
    struct ek_http1 p;
    size_t used = 0;
    ek_http1_init(&p, MAX_HEAD, MAX_BODY);
    assert_int_equal(feed(&p, text, 0, n, &used), 0);
    describe(out, &p, used);
    ek_http1_release(&p);
}

static void run_bytes(struct ek_buf *out, const char *text, size_t n)
{
    struct ek_http1 p;
    size_t used = 0;
    ek_http1_init(&p, MAX_HEAD, MAX_BODY);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(feed(&p, text, i, i + 1, &used), 0);
    describe(out, &p, used);
    ek_http1_release(&p);
}

/* In two pieces, the first of `cut` bytes. */
static void run_cut(struct ek_buf *out, const char *text, size_t n, size_t cut)
{
    struct ek_http1 p;
    size_t used = 0;
    ek_http1_init(&p, MAX_HEAD, MAX_BODY);
    assert_int_equal(feed(&p, text, 0, cut, &used), 0);
    assert_int_equal(feed(&p, text, cut, n, &used), 0);
    describe(out, &p, used);
    ek_http1_release(&p);
}

static void assert_same(const struct ek_buf *a, const struct ek_buf *b)
{
    assert_int_equal(a->len, b->len);
    assert_memory_equal(a->data, b->data, a->len);
}

static void assert_cuts_do_not_matter(const char *text, size_t n)
{
    struct ek_buf whole, other;
    ek_buf_init(&whole, 100000);
    ek_buf_init(&other, 100000);
    run_whole(&whole, text, n);
    run_bytes(&other, text, n);
    assert_same(&whole, &other);
    for (size_t cut = 1; cut < n; cut++) {
        ek_buf_reset(&other);
        run_cut(&other, text, n, cut);
        assert_same(&whole, &other);
    }
    ek_buf_release(&whole);
    ek_buf_release(&other);
}

/* Accepted --------------------------------------------------------------------- */

static const struct {
    const char *text;
    const char *want; /* end of the description, from the method on */
} good[] = {
    {"GET / HTTP/1.1\r\nHost: h\r\n\r\n", "GET|/||1.1 keep=1 cont=0|host=h|body[0]="},
    {"\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
     "GET|/||1.1 keep=1 cont=0|host=h|body[0]="},
    {"GET / HTTP/1.0\r\n\r\n", "GET|/||1.0 keep=0 cont=0|body[0]="},
    {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
     "GET|/||1.0 keep=1 cont=0|connection=keep-alive|body[0]="},
    {"GET / HTTP/1.9\r\nHost: h\r\n\r\n", "GET|/||1.1 keep=1 cont=0|host=h|body[0]="},
    {"GET / HTTP/1.1\r\nHost:\r\n\r\n", "GET|/||1.1 keep=1 cont=0|host=|body[0]="},
    {"GET / HTTP/1.1\r\nhOsT:\t h:80 \t\r\nX:\r\nY: a \xc3\xa4 b\r\n\r\n",
     "GET|/||1.1 keep=1 cont=0|host=h:80|x=|y=a \xc3\xa4 b|body[0]="},
    {"GET /a%2Fb%20c%7e?x=%00&y=1?2 HTTP/1.1\r\nHost: h\r\n\r\n",
     "GET|/a/b c~|x=%00&y=1?2|1.1 keep=1 cont=0|host=h|body[0]="},
    {"GET //x HTTP/1.1\r\nHost: h\r\n\r\n",
     "GET|//x||1.1 keep=1 cont=0|host=h|body[0]="},
    {"GET http://other:1/p?q HTTP/1.1\r\nHost: h\r\n\r\n",
     "GET|/p|q|1.1 keep=1 cont=0|host=h|body[0]="},
    {"GET HTTPS://o?q HTTP/1.1\r\nHost: h\r\n\r\n",
     "GET|/|q|1.1 keep=1 cont=0|host=h|body[0]="},
    {"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
     "OPTIONS|*||1.1 keep=1 cont=0|host=h|body[0]="},
    {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
     "POST|/||1.1 keep=1 cont=0|host=h|content-length=3|body[3]=abc"},
    {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0003\r\n\r\na\r\nGET",
     "POST|/||1.1 keep=1 cont=0|host=h|content-length=0003|body[3]=a\r\n"},
    {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
     "POST|/||1.1 keep=1 cont=0|host=h|content-length=0|body[0]="},
    {"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\nx",
     "POST|/||1.1 keep=1 cont=1|host=h|expect=100-Continue|content-length=1|body[1]=x"},
    {"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx",
     "POST|/||1.0 keep=0 cont=0|expect=100-continue|content-length=1|body[1]=x"},
    {"POST / HTTP/1.1\r\nHost: h\r\nConnection: a,, close\r\n\r\n",
     "POST|/||1.1 keep=0 cont=0|host=h|connection=a,, close|body[0]="},
    {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n"
     "3\r\nabc\r\n1;a=b;c=\"d\"\r\nd\r\n00b\r\n0123456789\n\r\n0;z\r\nA: "
     "b\r\nC:\r\n\r\n",
     "POST|/||1.1 keep=1 cont=0|host=h|transfer-encoding=Chunked|body[15]="
     "abcd0123456789\n"},
    {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET",
     "POST|/||1.1 keep=1 cont=0|host=h|transfer-encoding=chunked|body[0]="},
};

static void good_requests_are_understood(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct ek_buf out;
        ek_buf_init(&out, 100000);
        run_whole(&out, good[i].text, strlen(good[i].text));
        size_t n = strlen(good[i].want);
        if (out.len < n || strcmp(out.data + out.len - n, good[i].want) != 0)
            fail_msg("%s\n gives %s\n not   %s", good[i].text, out.data, good[i].want);
        ek_buf_release(&out);
    }
}

static void good_requests_do_not_depend_on_cuts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_cuts_do_not_matter(good[i].text, strlen(good[i].text));
}

static void every_truncation_waits_for_more(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct ek_http1 p;
        size_t whole = 0, used = 0;
        ek_http1_init(&p, MAX_HEAD, MAX_BODY);
        assert_int_equal(feed(&p, good[i].text, 0, strlen(good[i].text), &whole), 0);
        for (size_t n = 0; n < whole; n++) {
            ek_http1_reset(&p);
            assert_int_equal(feed(&p, good[i].text, 0, n, &used), 0);
            assert_true(p.phase == EK_HTTP1_HEAD || p.phase == EK_HTTP1_BODY);
            assert_int_equal(ek_http1_is_idle(&p), n == 0);
        }
        ek_http1_release(&p);
    }
}

static void bytes_after_the_request_are_left(void **state)
{
    (void)state;
    static const char text[] =
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab"
        "GET /second HTTP/1.1\r\nHost: h\r\n\r\nrest";
    struct ek_http1 p;
    size_t used = 0;
    ek_http1_init(&p, MAX_HEAD, MAX_BODY);
    assert_int_equal(ek_http1_feed(&p, text, sizeof text - 1, &used), 0);
    assert_int_equal(p.phase, EK_HTTP1_DONE);
    assert_memory_equal(text + used, "GET /second", 11);
    ek_http1_reset(&p);
    size_t first = used;
    assert_int_equal(ek_http1_feed(&p, text + first, sizeof text - 1 - first, &used),
                     0);
    assert_int_equal(p.phase, EK_HTTP1_DONE);
    assert_string_equal(p.request.path, "/second");
    assert_int_equal(p.request.body_n, 0);
    assert_string_equal(text + first + used, "rest");
    ek_http1_release(&p);
}

/* Refused ---------------------------------------------------------------------- */

#define H  "Host: h\r\n"
#define TE H "Transfer-Encoding: chunked\r\n\r\n"
#define BAD(code, text)                                                                \
    {                                                                                  \
        code, text, sizeof(text) - 1                                                   \
    }

static const struct {
    int code;
    const char *text;
    size_t n;
} bad[] = {
    /* request line */
    BAD(400, "\n"),
    BAD(400, "\r\n\r\nGET / HTTP/1.1\r\n" H "\r\n"),
    BAD(400, "\rGET / HTTP/1.1\r\n"),
    BAD(400, "GET\r\n\r\n"),
    BAD(400, "GET /\r\n\r\n"),
    BAD(400, " GET / HTTP/1.1\r\n" H "\r\n"),
    BAD(400, "GET  / HTTP/1.1\r\n" H "\r\n"),
    BAD(400, "GET /  HTTP/1.1\r\n" H "\r\n"),
    BAD(400, "GET / HTTP/1.1 \r\n" H "\r\n"),
    BAD(400, "GET\t/\tHTTP/1.1\r\n" H "\r\n"),
    BAD(400, "GET http://host: \r\n\r\n"), /* an empty version was read past */
    BAD(400, "GET / http/1.1\r\n" H "\r\n"),
    BAD(400, "GET / HTTP/1.10\r\n" H "\r\n"),
    BAD(400, "GET / HTTP/11\r\n" H "\r\n"),
    BAD(400, "GET / HTTP/1,1\r\n" H "\r\n"),
    BAD(400, "GET / HTCPCP/1.0\r\n" H "\r\n"),
    BAD(400, "G(T / HTTP/1.1\r\n" H "\r\n"),
    BAD(400, "GET / HTTP/1.1\n" H "\r\n"),
    BAD(400, "GET / HTTP/1.1\rHost: h\r\n\r\n"),
    BAD(400, "GET /\0 HTTP/1.1\r\n" H "\r\n"),
    BAD(400, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), /* a TLS ClientHello */
    BAD(505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    BAD(505, "GET / HTTP/0.9\r\n" H "\r\n"),
    BAD(505, "GET / HTTP/2.0\r\n" H "\r\n"),
    BAD(501, "get / HTTP/1.1\r\n" H "\r\n"),
    BAD(501, "BREW / HTTP/1.1\r\n" H "\r\n"),
    BAD(501, "TRACE / HTTP/1.1\r\n" H "\r\n"),
    BAD(501, "CONNECT h:80 HTTP/1.1\r\n" H "\r\n"),
    BAD(501, "GETGETGETGETGETGETGETGETGETGETGET / HTTP/1.1\r\n" H "\r\n"),
    /* target */
    BAD(400, "GET * HTTP/1.1\r\n" H "\r\n"),
    BAD(400, "GET a HTTP/1.1\r\n" H "\r\n"),
    BAD(400, "GET ?q HTTP/1.1\r\n" H "\r\n"),
    BAD(400, "GET ftp://h/ HTTP/1.1\r\n" H "\r\n"),
    BAD(400, "GET http:///x HTTP/1.1\r\n" H "\r\n"),
    BAD(400, "GET http://u@h/x HTTP/1.1\r\n" H "\r\n"),
    BAD(400, "GET /a#b HTTP/1.1\r\n" H "\r\n"),
    BAD(400, "GET /\xc3\xa4 HTTP/1.1\r\n" H "\r\n"),
    BAD(400, "GET /% HTTP/1.1\r\n" H "\r\n"),
    BAD(400, "GET /%2 HTTP/1.1\r\n" H "\r\n"),
    BAD(400, "GET /%2?a HTTP/1.1\r\n" H "\r\n"),
    BAD(400, "GET /%zz HTTP/1.1\r\n" H "\r\n"),
    BAD(400, "GET /%0x HTTP/1.1\r\n" H "\r\n"),
    BAD(400, "GET /%00 HTTP/1.1\r\n" H "\r\n"),
    /* fields */
    BAD(400, "GET / HTTP/1.1\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" H H "\r\n"),
    BAD(400, "GET / HTTP/1.0\r\n" H H "\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nHost: u@h\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nHost : h\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\nHost\t: h\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" H "X: a\r\n folded\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n Host: h\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" H ": empty\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" H "no colon\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" H "X(Y): a\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" H "X: a\0b\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" H "X: a\x01\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" H "X: a\x7f\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" H "X: a\rb\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" H "X: a\nY: b\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" H "X: a\r\r\n\r\n"),
    BAD(400, "GET / HTTP/1.1\r\n" H "\rX"),
    BAD(417, "POST / HTTP/1.1\r\n" H "Expect: 200-ok\r\n\r\n"),
    /* length: what smuggling is made of */
    BAD(400,
        "POST / HTTP/1.1\r\n" H "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc"),
    BAD(400,
        "POST / HTTP/1.1\r\n" H "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc"),
    BAD(400, "POST / HTTP/1.1\r\n" H "Content-Length: 3, 3\r\n\r\nabc"),
    BAD(400, "POST / HTTP/1.1\r\n" H "Content-Length: +3\r\n\r\nabc"),
    BAD(400, "POST / HTTP/1.1\r\n" H "Content-Length: -3\r\n\r\nabc"),
    BAD(400, "POST / HTTP/1.1\r\n" H "Content-Length: 0x3\r\n\r\nabc"),
    BAD(400, "POST / HTTP/1.1\r\n" H "Content-Length: 3 3\r\n\r\nabc"),
    BAD(400, "POST / HTTP/1.1\r\n" H "Content-Length: 3.0\r\n\r\nabc"),
    BAD(400, "POST / HTTP/1.1\r\n" H "Content-Length:\r\n\r\nabc"),
    BAD(400, "POST / HTTP/1.1\r\n" H
             "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" H
             "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" H
             "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked, gzip\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked, chunked\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: xchunked\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked;a=b\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: identity\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding:\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" H "Transfer-Encoding : chunked\r\n\r\n"),
    BAD(400, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    BAD(501, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: gzip, chunked\r\n\r\n"),
    BAD(501, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: , chunked\r\n\r\n"),
    BAD(413, "POST / HTTP/1.1\r\n" H "Content-Length: 1001\r\n\r\n"),
    BAD(413, "POST / HTTP/1.1\r\n" H "Content-Length: 18446744073709551616\r\n\r\n"),
    BAD(413, "POST / HTTP/1.1\r\n" H
             "Content-Length: 99999999999999999999999999999999999999\r\n\r\n"),
    /* chunks */
    BAD(400, "POST / HTTP/1.1\r\n" TE "\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" TE ";x\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" TE "0x3\r\nabc\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" TE "+3\r\nabc\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" TE "-3\r\nabc\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" TE " 3\r\nabc\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" TE "3 \r\nabc\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" TE "3 ;x\r\nabc\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" TE "3\nabc\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" TE "3\rabc\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" TE "3;a\nb\r\nabc\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" TE "3;a\x01\r\nabc\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" TE "3\r\nabcd\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" TE "3\r\nabc\n0\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" TE "3\r\nabc0\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" TE "3\r\nabc\r0\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" TE "00000000000000003\r\nabc\r\n"),
    BAD(413, "POST / HTTP/1.1\r\n" TE "3E9\r\n"),
    BAD(413, "POST / HTTP/1.1\r\n" TE "fffffffffffffffff\r\n"),
    BAD(413, "POST / HTTP/1.1\r\n" TE "8000000000000000\r\n"),
    BAD(413, "POST / HTTP/1.1\r\n" TE "3\r\nabc\r\nffffffffffffffff\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" TE "0\r\nbad trailer\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" TE "0\r\n: x\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" TE "0\r\nA: b\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" TE "0\r\nA: b\r\n c\r\n\r\n"),
    BAD(400, "POST / HTTP/1.1\r\n" TE "0\r\n\rx"),
};

static void bad_requests_get_their_code(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct ek_http1 p;
        size_t used = 0;
        ek_http1_init(&p, MAX_HEAD, MAX_BODY);
        assert_int_equal(feed(&p, bad[i].text, 0, bad[i].n, &used), 0);
        if (p.phase != EK_HTTP1_FAILED || p.code != bad[i].code || !p.reason)
            fail_msg("%zu: %s\n phase %d, code %d (%s), not %d", i, bad[i].text,
                     (int)p.phase, p.code, p.reason ? p.reason : "", bad[i].code);
        ek_http1_release(&p);
    }
}

static void bad_requests_do_not_depend_on_cuts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_cuts_do_not_matter(bad[i].text, bad[i].n);
}

/* Limits ----------------------------------------------------------------------- */

/* Code for `head`, n times `piece`, then `tail`; 0 when it is accepted or waits. */
static int code_of(const char *head, const char *piece, size_t n, const char *tail)
{
    struct ek_buf b;
    struct ek_http1 p;
    size_t used = 0;
    ek_buf_init(&b, (size_t)1 << 24);
    ek_http1_init(&p, MAX_HEAD, MAX_BODY);
    assert_int_equal(ek_buf_add_str(&b, head), 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(ek_buf_add_str(&b, piece), 0);
    assert_int_equal(ek_buf_add_str(&b, tail), 0);
    assert_int_equal(feed(&p, b.data, 0, b.len, &used), 0);
    int code = p.code;
    if (tail[0] && !code)
        assert_int_equal(p.phase, EK_HTTP1_DONE);
    ek_http1_release(&p);
    ek_buf_release(&b);
    return code;
}

static void the_request_line_has_a_limit_of_its_own(void **state)
{
    static const char tail[] = " HTTP/1.1\r\n" H "\r\n";
    (void)state;
    size_t fits = EK_HTTP1_MAX_LINE_BYTES - strlen("GET / HTTP/1.1\r\n");
    assert_int_equal(code_of("GET /", "a", fits, tail), 0);
    assert_int_equal(code_of("GET /", "a", fits + 1, tail), 414);
    assert_int_equal(code_of("GET /", "a", 10000, ""), 414);
}

static void the_head_has_a_limit(void **state)
{
    static const char start[] = "GET / HTTP/1.1\r\n" H "X: ";
    (void)state;
    size_t fits = MAX_HEAD - strlen(start) - 4;
    assert_int_equal(code_of(start, "a", fits, "\r\n\r\n"), 0);
    assert_int_equal(code_of(start, "a", fits + 1, "\r\n\r\n"), 431);
    assert_int_equal(code_of(start, "a", 100000, ""), 431);
}

static void headers_have_a_count_limit(void **state)
{
    static const char start[] = "GET / HTTP/1.1\r\n" H;
    (void)state;
    assert_int_equal(code_of(start, "a:b\r\n", EK_HTTP1_MAX_HEADERS - 1, "\r\n"), 0);
    assert_int_equal(code_of(start, "a:b\r\n", EK_HTTP1_MAX_HEADERS, "\r\n"), 431);
}

static void a_chunked_body_has_the_limit_in_sum(void **state)
{
    static const char start[] = "POST / HTTP/1.1\r\n" TE;
    (void)state;
    assert_int_equal(code_of(start, "a\r\n0123456789\r\n", 100, "0\r\n\r\n"), 0);
    assert_int_equal(code_of(start, "a\r\n0123456789\r\n", 100, "1\r\n"), 413);
}

static void extensions_and_trailers_have_limits_in_sum(void **state)
{
    static const char start[] = "POST / HTTP/1.1\r\n" TE;
    (void)state;
    assert_int_equal(code_of(start, "1;abcdefgh\r\nx\r\n", 900, "0\r\n\r\n"), 0);
    assert_int_equal(code_of(start, "1;abcdefghij\r\nx\r\n", 900, "0\r\n\r\n"), 400);
    assert_int_equal(
        code_of("POST / HTTP/1.1\r\n" TE "0\r\n", "a: b\r\n", 2000, "\r\n"), 0);
    assert_int_equal(
        code_of("POST / HTTP/1.1\r\n" TE "0\r\n", "a: b\r\n", 4000, "\r\n"), 431);
    assert_int_equal(code_of("POST / HTTP/1.1\r\n" TE "0\r\n", "a", 20000, ""), 431);
}

/* Failure ---------------------------------------------------------------------- */

static void a_failed_allocation_is_reported_and_reset_recovers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        const char *text = good[i].text;
        EK_EACH_FAILURE (k) {
            struct ek_http1 p;
            size_t used = 0;
            ek_http1_init(&p, MAX_HEAD, MAX_BODY);
            int rc = 0;
            for (size_t at = 0; !rc && at < strlen(text); at += 7) {
                size_t end = at + 7 < strlen(text) ? at + 7 : strlen(text);
                rc = feed(&p, text, at, end, &used);
            }
            ek_assert_rc(rc);
            ek_http1_reset(&p);
            used = 0;
            assert_int_equal(feed(&p, text, 0, strlen(text), &used), 0);
            assert_int_equal(p.phase, EK_HTTP1_DONE);
            ek_http1_release(&p);
        }
    }
}

static void reset_gives_large_buffers_back(void **state)
{
    struct ek_http1 p;
    size_t used = 0;
    char head[128];
    size_t n = EK_HTTP1_MAX_KEPT_BYTES * 2;
    char *body = calloc(n, 1);
    (void)state;
    ek_http1_init(&p, MAX_HEAD, n);
    int m = snprintf(head, sizeof head,
                     "POST / HTTP/1.1\r\n" H "Content-Length: %zu\r\n\r\n", n);
    assert_int_equal(ek_http1_feed(&p, head, (size_t)m, &used), 0);
    assert_int_equal(ek_http1_feed(&p, body, n, &used), 0);
    assert_int_equal(p.phase, EK_HTTP1_DONE);
    assert_int_equal(p.request.body_n, n);
    ek_http1_reset(&p);
    assert_int_equal(p.body.cap, 0);
    assert_true(p.head.cap > 0);
    ek_http1_release(&p);
    free(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_requests_are_understood),
        cmocka_unit_test(good_requests_do_not_depend_on_cuts),
        cmocka_unit_test(every_truncation_waits_for_more),
        cmocka_unit_test(bytes_after_the_request_are_left),
        cmocka_unit_test(bad_requests_get_their_code),
        cmocka_unit_test(bad_requests_do_not_depend_on_cuts),
        cmocka_unit_test(the_request_line_has_a_limit_of_its_own),
        cmocka_unit_test(the_head_has_a_limit),
        cmocka_unit_test(headers_have_a_count_limit),
        cmocka_unit_test(a_chunked_body_has_the_limit_in_sum),
        cmocka_unit_test(extensions_and_trailers_have_limits_in_sum),
        cmocka_unit_test(a_failed_allocation_is_reported_and_reset_recovers),
        cmocka_unit_test(reset_gives_large_buffers_back),
    };
    return cmocka_run_group_tests_name("net/http1", tests, NULL, NULL);
}
