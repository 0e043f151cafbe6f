/* fuzz_grpc.c - any bytes as gRPC's messages, whole and cut into pieces (the first byte
 * says how long): the same messages and the same end come of both. The same bytes as
 * deadline, status and message of a call. */
#include "net/grpc.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MESSAGE = 4096, MAX_OUT = 1 << 20 };

static void require(bool is_true)
{
    if (!is_true)
        abort();
}

/* Messages behind their lengths, and the error in *rc: EK_EAGAIN if all were sound. */
static void gather(struct ek_buf *out, int *rc, const char *p, size_t n, size_t piece)
{
    struct ek_grpc_reader r;
    struct ek_text m;
    ek_grpc_reader_init(&r, MAX_MESSAGE);
    *rc = EK_EAGAIN;
    for (size_t at = 0; at < n && *rc == EK_EAGAIN; at += piece) {
        size_t take = piece < n - at ? piece : n - at;
        *rc = ek_grpc_reader_add(&r, p + at, take);
        while (*rc == 0 && (*rc = ek_grpc_reader_next(&r, &m)) == 0) {
            require(m.n <= MAX_MESSAGE);
            require(ek_buf_add(out, &m.n, sizeof m.n) == 0);
            require(ek_buf_add(out, m.p, m.n) == 0);
        }
    }
    ek_grpc_reader_release(&r);
}

static void take_words(const char *p, size_t n)
{
    struct ek_field f[2] = {{ek_text_of("grpc-timeout", 12), ek_text_of(p, n)},
                            {ek_text_of("grpc-status", 11), ek_text_of(p, n)}};
    struct ek_head h = {.fields = f, .n_fields = 1, .body_bytes = -1};
    char text[256], out[100];
    require(ek_grpc_timeout_us(&h) >= 0);
    require(ek_grpc_status_in(&f[1], 1) >= -1);
    size_t k = n < sizeof text ? n : sizeof text - 1;
    memcpy(text, p, k);
    text[k] = 0;
    ek_grpc_escape(out, sizeof out, text);
    for (const char *c = out; *c; c++)
        require(*c >= ' ' && *c <= '~');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct ek_buf whole, cut;
    int rc_whole, rc_cut;
    if (n < 2 || n > MAX_MESSAGE)
        return 0;
    ek_buf_init(&whole, MAX_OUT);
    ek_buf_init(&cut, MAX_OUT);
    gather(&whole, &rc_whole, (const char *)data + 1, n - 1, n - 1);
    gather(&cut, &rc_cut, (const char *)data + 1, n - 1, 1 + data[0] % 32);
    require(rc_whole == rc_cut && whole.len == cut.len);
    require(whole.len == 0 || memcmp(whole.data, cut.data, whole.len) == 0);
    ek_buf_release(&whole);
    ek_buf_release(&cut);
    take_words((const char *)data + 1, n - 1);
    return 0;
}
