/* fuzz_ws_frames.c - a WebSocket's bytes, whole and in pieces: what goes on is the same,
 * and is what came less whole Pongs of ours.
 *
 * The first byte says who speaks and the size of the pieces. */
#include "net/ws_frames.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 16 };

static const uint8_t mark[EK_WS_MARK_BYTES] = "evenkeel1234567";

static void require(int is_true)
{
    if (!is_true)
        abort();
}

struct out {
    char bytes[MAX_BYTES];
    size_t n, n_pongs;
    uint64_t n_frames;
};

static void gather(struct out *o, const char *p, size_t n, size_t piece, int kind)
{
    struct ek_ws_frames f = {.is_masked = kind & 1, .mark = mark};
    *o = (struct out){.n = 0};
    for (size_t at = 0; at < n;) {
        size_t k = piece < n - at ? piece : n - at, used = 0;
        switch (ek_ws_next(&f, p + at, k, kind & 2, &used)) {
        case EK_WS_STEP_PASS:
            memcpy(o->bytes + o->n, p + at, used);
            o->n += used;
            break;
        case EK_WS_STEP_OTHER:
            memcpy(o->bytes + o->n, f.head, f.n_kept);
            o->n += f.n_kept;
            break;
        case EK_WS_STEP_PONG:
            o->n_pongs++;
            break;
        case EK_WS_STEP_KEPT:
            break;
        }
        require(used <= k && o->n <= n);
        at += used;
    }
    size_t kept = ek_ws_end(&f);
    memcpy(o->bytes + o->n, f.head, kept);
    o->n += kept;
    o->n_frames = f.n_frames;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct out whole, cut;
    if (n < 1 || n > MAX_BYTES)
        return 0;
    const char *p = (const char *)data + 1;
    int kind = data[0] & 3;
    gather(&whole, p, n - 1, n, kind & 1);
    gather(&cut, p, n - 1, 1U + (data[0] >> 2), kind);
    require(whole.n == cut.n && memcmp(whole.bytes, cut.bytes, whole.n) == 0);
    require(whole.n_pongs == cut.n_pongs && whole.n_frames == cut.n_frames);
    size_t each = 2 + (kind & 1 ? 4U : 0U) + EK_WS_MARK_BYTES;
    require(whole.n + whole.n_pongs * each == n - 1);
    return 0;
}
