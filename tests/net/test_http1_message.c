/* Heads and bodies as a proxy reads them: what is understood, what is refused, that a
 * body's cut does not matter, and that what is written is read back. */
#include "net/http1.h"
#include "net/http1_message.h"
#include "testkit.h"

#include <stdio.h>

static int read_request(struct ek_http1_message *m, const char *text)
{
    size_t from = 0, n = strlen(text);
    bool is_bad;
    size_t end = ek_http1_find_end(text, n, &from, &is_bad);
    assert_int_equal(end, n);
    return ek_http1_read_request(m, text, n);
}

static int read_answer(struct ek_http1_message *m, const char *text, bool wants_ws)
{
    return ek_http1_read_answer(m, text, strlen(text), false, wants_ws);
}

static void assert_text(struct ek_text t, const char *want)
{
    assert_int_equal(t.n, strlen(want));
    assert_memory_equal(t.p, want, t.n);
}

#define WEBSOCKET                                                                      \
    "GET /c?x=1 HTTP/1.1\r\nHost: a:8\r\nConnection: keep-alive, Upgrade\r\n"          \
    "Upgrade: WebSocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"            \
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: chat\r\n\r\n"

/* RFC 9110 5.6.2 and 5.5, to the letter. */
static void a_byte_is_of_a_token_or_a_value_wherever_it_stands(void **state)
{
    (void)state;
    static const char marks[] = "!#$%&'*+-.^_`|~";
    char text[20];
    for (int c = 0; c < 256; c++) {
        bool is_letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        bool is_token =
            is_letter || (c >= '0' && c <= '9') || (c && strchr(marks, c) != NULL);
        bool is_value = c == '\t' || (c >= ' ' && c != 0x7f);
        for (size_t i = 0; i < sizeof text; i++) {
            memset(text, c & 1 ? 'x' : '~', sizeof text);
            text[i] = (char)c;
            assert_int_equal(ek_http1_is_token(text, sizeof text), is_token);
            assert_int_equal(ek_http1_is_value(text, sizeof text), is_value);
            assert_int_equal(ek_http1_is_value(text, i), true);
        }
    }
    assert_false(ek_http1_is_token(text, 0));
    assert_true(ek_http1_is_value(text, 0));
}

static void a_head_ends_where_its_empty_line_does(void **state)
{
    static const char text[] = "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nrest";
    (void)state;
    for (size_t n = 0; n < sizeof text; n++) {
        size_t from = 0, end = 0;
        bool is_bad = false;
        char *copy = ek_exact_copy(text, n);
        /* Byte by byte gives the same as at once. */
        for (size_t i = 0; i <= n && !end; i++)
            end = ek_http1_find_end(copy, i, &from, &is_bad);
        assert_false(is_bad);
        assert_int_equal(end, n >= 29 ? 29 : 0);
        free(copy);
    }
    size_t from = 0;
    bool is_bad;
    assert_int_equal(ek_http1_find_end("GET /\n", 6, &from, &is_bad), 0);
    assert_true(is_bad);
}

static void a_websocket_request_is_one_and_its_handshake_fields_stay(void **state)
{
    struct ek_http1_message m;
    (void)state;
    assert_int_equal(read_request(&m, WEBSOCKET), 0);
    assert_true(m.head.is_websocket);
    assert_text(m.head.path, "/c?x=1");
    assert_text(m.head.authority, "a:8");
    assert_text(m.head.websocket_key, "dGhlIHNhbXBsZSBub25jZQ==");
    assert_int_equal(m.head.n_fields, 2);
    assert_text(m.head.fields[1].name, "Sec-WebSocket-Protocol");
}

static void fields_that_connection_names_are_dropped_but_never_framing(void **state)
{
    struct ek_http1_message m;
    (void)state;
    assert_int_equal(read_request(&m, "POST / HTTP/1.1\r\nHost: h\r\nA: 1\r\nB: 2\r\n"
                                      "Connection: b, content-length\r\n"
                                      "Content-Length: 3\r\n\r\n"),
                     0);
    assert_int_equal(m.head.n_fields, 2);
    assert_text(m.head.fields[0].name, "A");
    assert_text(m.head.fields[1].name, "Content-Length");
    assert_int_equal(m.head.body_bytes, 3);
}

static void a_length_of_18_digits_is_read_and_one_more_refused(void **state)
{
    struct ek_http1_message m;
    (void)state;
    assert_int_equal(read_request(&m, "POST / HTTP/1.1\r\nHost: h\r\n"
                                      "Content-Length: 999999999999999999\r\n\r\n"),
                     0);
    assert_int_equal(m.head.body_bytes, INT64_C(999999999999999999));
    assert_int_equal(read_request(&m, "POST / HTTP/1.1\r\nHost: h\r\n"
                                      "Content-Length: 9999999999999999999\r\n\r\n"),
                     EK_EFORMAT);
    assert_int_equal(m.code, 413);
}

static void an_absolute_target_outranks_host(void **state)
{
    struct ek_http1_message m;
    (void)state;
    assert_int_equal(
        read_request(&m, "GET http://real:1/p HTTP/1.1\r\nHost: fake\r\n\r\n"), 0);
    assert_text(m.head.authority, "real:1");
    assert_text(m.head.path, "/p");
    assert_int_equal(read_request(&m, "GET http://real HTTP/1.1\r\nHost: x\r\n\r\n"),
                     0);
    assert_text(m.head.path, "/");
    assert_int_equal(
        read_request(&m, "GET http://real/ HTTP/1.1\r\nHost: a/b c\r\n\r\n"),
        EK_EFORMAT);
    assert_int_equal(m.code, 400);
}

static void every_truncation_of_a_head_is_refused_or_not_whole(void **state)
{
    struct ek_http1_message m;
    (void)state;
    for (size_t n = 2; n < sizeof WEBSOCKET - 1; n++) {
        char *copy = ek_exact_copy(WEBSOCKET, n);
        /* As if the caller had taken it for a whole head: nothing past it is read. */
        int rc = ek_http1_read_request(&m, copy, n);
        assert_true(rc == 0 || (rc == EK_EFORMAT && m.code >= 400 && m.reason));
        rc = ek_http1_read_answer(&m, copy, n, false, false);
        assert_int_equal(rc, EK_EFORMAT);
        free(copy);
    }
}

static void an_answer_is_framed_as_its_request_and_status_say(void **state)
{
    static const struct {
        const char *head;
        enum ek_http1_framing framing;
        bool is_keep_alive;
    } table[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", EK_HTTP1_SIZED, true},
        {"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n", EK_HTTP1_CHUNKED, true},
        {"HTTP/1.1 200 OK\r\n\r\n", EK_HTTP1_TO_END, false},
        {"HTTP/1.1 204 No\r\n\r\n", EK_HTTP1_NO_BODY, true},
        {"HTTP/1.1 304 No\r\nContent-Length: 5\r\n\r\n", EK_HTTP1_NO_BODY, true},
        {"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\n", EK_HTTP1_NO_BODY, true},
        {"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", EK_HTTP1_SIZED, false},
        {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
         EK_HTTP1_SIZED, false},
    };
    struct ek_http1_message m;
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        assert_int_equal(read_answer(&m, table[i].head, false), 0);
        assert_int_equal(m.framing, table[i].framing);
        assert_int_equal(m.is_keep_alive, table[i].is_keep_alive);
    }
    assert_int_equal(
        ek_http1_read_answer(&m, table[0].head, strlen(table[0].head), true, false), 0);
    assert_int_equal(m.framing, EK_HTTP1_NO_BODY);
}

static void a_101_is_a_tunnel_if_it_was_asked_for(void **state)
{
    static const char yes[] =
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Accept: abc\r\n\r\n";
    struct ek_http1_message m;
    (void)state;
    assert_int_equal(read_answer(&m, yes, true), 0);
    assert_int_equal(m.framing, EK_HTTP1_TUNNEL);
    assert_text(m.websocket_accept, "abc");
    assert_int_equal(read_answer(&m, yes, false), EK_EFORMAT);
    assert_int_equal(m.code, 502);
}

/* Feeds `text` in pieces of `size` and gathers what came out. */
static int gather(struct ek_buf *out, struct ek_http1_body *b, const char *text,
                  size_t size)
{
    size_t n = strlen(text);
    for (size_t at = 0; at < n && !b->is_done;) {
        size_t piece = size < n - at ? size : n - at, used;
        struct ek_text data;
        char *copy = ek_exact_copy(text + at, piece);
        int rc = ek_http1_body_feed(b, copy, piece, &used, &data);
        if (!rc && data.n)
            rc = ek_buf_add(out, data.p, data.n);
        free(copy);
        if (rc)
            return rc;
        assert_true(used > 0);
        at += used;
    }
    return 0;
}

static void begin_body(struct ek_http1_body *b, bool is_request)
{
    struct ek_http1_message m = {.framing = EK_HTTP1_CHUNKED};
    m.head.status = is_request ? 0 : 200;
    ek_http1_body_init(b, &m);
}

static void a_chunked_body_does_not_depend_on_its_cut(void **state)
{
    static const char text[] =
        "4\r\nWiki\r\n00006\r\npedia \r\nE\r\nin \r\n\r\nchunks.\r\n"
        "0\r\nGrpc-Status: 0\r\nContent-Length: 9\r\nB: 2\r\n\r\n";
    (void)state;
    for (size_t size = 1; size < sizeof text; size++) {
        struct ek_http1_body b;
        struct ek_field fields[EK_HEAD_MAX_FIELDS];
        struct ek_buf out;
        ek_buf_init(&out, 1000);
        begin_body(&b, true);
        assert_int_equal(gather(&out, &b, text, size), 0);
        assert_true(b.is_done);
        assert_string_equal(out.data, "Wikipedia in \r\n\r\nchunks.");
        assert_int_equal(ek_http1_body_trailers(&b, fields), 2); /* framing left out */
        assert_text(fields[0].value, "0");
        assert_text(fields[1].name, "B");
        ek_buf_release(&out);
        ek_http1_body_release(&b);
    }
}

static void chunks_that_two_could_read_in_two_ways_are_refused(void **state)
{
    static const char *const bad[] = {
        "\r\n",
        "g\r\n",
        "1\nx\r\n",
        "1 \r\nx",
        "1\r\nxx",
        "0x1\r\nx",
        "-1\r\nx",
        "1\r\nx\n0",
        "0\r\nbad\r\n\r\n",
        "0\r\n: x\r\n\r\n",
        "1\r\rx",
        "0\r\nA : b\r\n\r\n",
        "0\r\nA: \x01\r\n\r\n",
        "11111111111111111\r\n",
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct ek_http1_body b;
        struct ek_buf out;
        ek_buf_init(&out, 1000);
        begin_body(&b, true);
        assert_int_equal(gather(&out, &b, bad[i], 1), EK_EFORMAT);
        ek_buf_release(&out);
        ek_http1_body_release(&b);
    }
    struct ek_http1_body b;
    struct ek_buf out;
    ek_buf_init(&out, 1000);
    begin_body(&b, true);
    assert_int_equal(gather(&out, &b, "1;a\r\nx\r\n0\r\n\r\n", 3), EK_EFORMAT);
    ek_http1_body_release(&b);
    begin_body(&b, false); /* a backend may send them: they go no further */
    assert_int_equal(gather(&out, &b, "1;a\r\nx\r\n0\r\n\r\n", 3), 0);
    assert_true(b.is_done);
    ek_http1_body_release(&b);
    ek_buf_release(&out);
}

static void trailers_have_their_limit(void **state)
{
    struct ek_http1_body b;
    struct ek_buf out, text;
    (void)state;
    ek_buf_init(&out, 1000);
    ek_buf_init(&text, 20000);
    assert_int_equal(ek_buf_add_str(&text, "0\r\n"), 0);
    for (int i = 0; i < 2000; i++)
        assert_int_equal(ek_buf_add_str(&text, "A: bcd\r\n"), 0);
    begin_body(&b, true);
    assert_int_equal(gather(&out, &b, text.data, 100), EK_ELIMIT);
    ek_http1_body_release(&b);
    ek_buf_release(&text);
    ek_buf_release(&out);
}

static void trailers_survive_any_failed_allocation(void **state)
{
    (void)state;
    EK_EACH_FAILURE (k) {
        struct ek_http1_body b;
        struct ek_text data;
        size_t used = 0;
        static const char text[] = "0\r\nA: b\r\n\r\n";
        begin_body(&b, true);
        ek_assert_rc(ek_http1_body_feed(&b, text, sizeof text - 1, &used, &data));
        ek_http1_body_release(&b);
    }
}

static void what_is_written_is_read_back(void **state)
{
    struct ek_http1_message m, back;
    (void)state;
    EK_EACH_FAILURE (k) {
        struct ek_buf out;
        struct ek_http1_form f = {.minor = 1, .is_keep_alive = true};
        ek_buf_init(&out, 2000);
        int rc = ek_http1_read_request(&m, WEBSOCKET, sizeof WEBSOCKET - 1);
        assert_int_equal(rc, 0);
        f.websocket_key = "dGhlIHNhbXBsZSBub25jZQ==";
        rc = ek_http1_write_request(&out, &m.head, &f);
        ek_assert_rc(rc);
        if (!rc) {
            assert_int_equal(ek_http1_read_request(&back, out.data, out.len), 0);
            assert_true(back.head.is_websocket);
            assert_int_equal(back.head.n_fields, m.head.n_fields);
            assert_true(ek_text_equal(back.head.path, m.head.path));
        }
        ek_buf_release(&out);
    }
}

static void a_body_that_may_be_there_and_is_not_has_length_0(void **state)
{
    struct ek_head post = {.method = {"POST", 4}, .path = {"/", 1}, .body_bytes = -1};
    struct ek_head ok = {.status = 200, .body_bytes = -1};
    struct ek_http1_form f = {.minor = 1, .is_keep_alive = true};
    struct ek_buf out;
    (void)state;
    ek_buf_init(&out, 2000);
    assert_int_equal(ek_http1_write_request(&out, &post, &f), 0);
    assert_non_null(strstr(out.data, "Content-Length: 0\r\n"));
    ek_buf_reset(&out);
    assert_int_equal(ek_http1_write_answer(&out, &ok, &f), 0);
    assert_non_null(strstr(out.data, "Content-Length: 0\r\n"));
    f.is_head_method = true;
    ek_buf_reset(&out);
    assert_int_equal(ek_http1_write_answer(&out, &ok, &f), 0);
    assert_null(strstr(out.data, "Content-Length"));
    ek_buf_release(&out);
}

static void the_accept_of_rfc_6455_comes_out(void **state)
{
    char accept[29], key[25];
    (void)state;
    assert_int_equal(ek_websocket_accept(accept, "dGhlIHNhbXBsZSBub25jZQ==", 24), 0);
    assert_string_equal(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_int_equal(ek_websocket_key(key), 0);
    assert_true(ek_websocket_is_key(ek_text_of(key, strlen(key))));
    assert_false(ek_websocket_is_key(ek_text_of("dGhlIHNhbXBsZSBub25jZQ=", 23)));
    assert_false(ek_websocket_is_key(ek_text_of("dGhlIHNhbXBsZSBub25j-Q==", 24)));
}

static void members_of_a_list_are_found(void **state)
{
    struct ek_text list = ek_text_of(" a ,, b,c\t", 10), member;
    (void)state;
    assert_true(ek_text_next_member(&list, &member));
    assert_text(member, "a");
    assert_true(ek_text_next_member(&list, &member));
    assert_text(member, "b");
    assert_true(ek_text_next_member(&list, &member));
    assert_text(member, "c");
    assert_false(ek_text_next_member(&list, &member));
    assert_true(ek_text_has_member(ek_text_of("x, WebSocket", 12), "websocket"));
    assert_false(ek_text_has_member(ek_text_of("", 0), "websocket"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_byte_is_of_a_token_or_a_value_wherever_it_stands),
        cmocka_unit_test(a_head_ends_where_its_empty_line_does),
        cmocka_unit_test(a_websocket_request_is_one_and_its_handshake_fields_stay),
        cmocka_unit_test(fields_that_connection_names_are_dropped_but_never_framing),
        cmocka_unit_test(a_length_of_18_digits_is_read_and_one_more_refused),
        cmocka_unit_test(an_absolute_target_outranks_host),
        cmocka_unit_test(every_truncation_of_a_head_is_refused_or_not_whole),
        cmocka_unit_test(an_answer_is_framed_as_its_request_and_status_say),
        cmocka_unit_test(a_101_is_a_tunnel_if_it_was_asked_for),
        cmocka_unit_test(a_chunked_body_does_not_depend_on_its_cut),
        cmocka_unit_test(chunks_that_two_could_read_in_two_ways_are_refused),
        cmocka_unit_test(trailers_have_their_limit),
        cmocka_unit_test(trailers_survive_any_failed_allocation),
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(a_body_that_may_be_there_and_is_not_has_length_0),
        cmocka_unit_test(the_accept_of_rfc_6455_comes_out),
        cmocka_unit_test(members_of_a_list_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
