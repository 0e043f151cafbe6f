/* fuzz_ws_handshake.c - the WebSocket handshake of RFC 6455 as the proxy reads it: a
 * client's request or (first byte odd) a backend's answer. What is taken for a handshake
 * has what it must have, and is one again when the proxy has written it. */
#include "base/buf.h"
#include "net/http1_message.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OUT = 1 << 20 };

static void require(bool is_true)
{
    if (!is_true)
        abort();
}

/* The request goes on with a key of the proxy's, the answer comes back with the accept of
 * the client's. */
static void pass_on(const struct ek_head *request)
{
    struct ek_http1_message m;
    struct ek_head answer = {.status = 101, .body_bytes = -1, .is_websocket = true};
    struct ek_http1_form f = {.minor = 1, .is_keep_alive = true};
    struct ek_buf out;
    char key[25], accept[29] = "";
    ek_buf_init(&out, MAX_OUT);
    require(ek_websocket_key(key) == 0);
    f.websocket_key = key;
    require(ek_http1_write_request(&out, request, &f) == 0);
    require(ek_http1_read_request(&m, out.data, out.len) == 0);
    require(m.head.is_websocket && ek_text_equal(m.head.path, request->path));
    require(ek_text_equal(m.head.websocket_key, ek_text_of(key, 24)));
    ek_buf_reset(&out);
    require(ek_websocket_accept(accept, request->websocket_key.p,
                                request->websocket_key.n) == 0);
    f = (struct ek_http1_form){
        .minor = 1, .framing = EK_HTTP1_TUNNEL, .websocket_accept = accept};
    require(ek_http1_write_answer(&out, &answer, &f) == 0);
    require(ek_http1_read_answer(&m, out.data, out.len, false, true) == 0);
    require(m.head.is_websocket && m.framing == EK_HTTP1_TUNNEL);
    require(ek_text_equal(m.websocket_accept, ek_text_of(accept, 28)));
    require(ek_http1_read_answer(&m, out.data, out.len, false, false) != 0);
    ek_buf_release(&out);
}

static void take_request(const char *p, size_t n)
{
    struct ek_http1_message m;
    if (ek_http1_read_request(&m, p, n) || !m.head.is_websocket)
        return;
    require(ek_text_equal(m.head.method, ek_text_of("GET", 3)) && m.minor == 1);
    require(m.framing != EK_HTTP1_CHUNKED && m.head.body_bytes <= 0);
    require(ek_websocket_is_key(m.head.websocket_key));
    m.head.body_bytes = -1;
    pass_on(&m.head);
}

static void take_answer(const char *p, size_t n)
{
    struct ek_http1_message m;
    if (ek_http1_read_answer(&m, p, n, false, true))
        return;
    require(m.head.is_websocket == (m.head.status == 101));
    require(!m.head.is_websocket || m.framing == EK_HTTP1_TUNNEL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    size_t from = 0;
    bool is_bad;
    if (n < 2 || n > 32768)
        return 0;
    /* Memory that ends where the input does, so that one byte read too many is seen. */
    char *copy = malloc(n - 1);
    if (!copy)
        exit(1);
    memcpy(copy, data + 1, n - 1);
    size_t end = ek_http1_find_end(copy, n - 1, &from, &is_bad);
    if (end > 0 && data[0] & 1)
        take_answer(copy, end);
    else if (end > 0)
        take_request(copy, end);
    free(copy);
    return 0;
}
