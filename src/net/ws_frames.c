#include "net/ws_frames.h"

#include <assert.h>
#include <string.h>

enum { FIN = 0x80, MASKED = 0x80, OPCODE = 0x0f, LENGTH = 0x7f };

/* Bytes of the head, once its first two are there. */
static size_t head_bytes(const struct ek_ws_frames *f)
{
    unsigned length = f->head[1] & LENGTH;
    return 2 +
           (length == 127   ? 8U
            : length == 126 ? 2U
                            : 0U) +
           (f->is_masked ? 4U : 0U);
}

/* Can a frame begin with these two? */
static bool is_frame(const struct ek_ws_frames *f)
{
    bool is_control = (f->head[0] & 0x08) != 0;
    bool has_mask = (f->head[1] & MASKED) != 0;
    return has_mask == f->is_masked &&
           (!is_control || ((f->head[0] & FIN) && (f->head[1] & LENGTH) <= 125));
}

static void begin_frame(struct ek_ws_frames *f)
{
    unsigned length = f->head[1] & LENGTH, n = length == 127   ? 8
                                               : length == 126 ? 2
                                                               : 0;
    f->left = n ? 0 : length;
    for (unsigned i = 0; i < n; i++)
        f->left = f->left << 8 | f->head[2 + i];
    f->is_lost = f->left >> 63 != 0;
    f->has_close |= (f->head[0] & OPCODE) == EK_WS_CLOSE;
    f->n_head = 0;
    f->n_frames++;
}

/* A byte of a head joined the others. */
static void look_at_head(struct ek_ws_frames *f)
{
    if (f->n_head == 2 && !is_frame(f))
        f->is_lost = true;
    else if (f->n_head >= 2 && f->n_head == head_bytes(f))
        begin_frame(f);
}

bool ek_ws_is_between(const struct ek_ws_frames *f)
{
    return f->left == 0 && f->n_head == 0 && !f->is_lost && !f->has_close;
}

static bool is_marked(const struct ek_ws_frames *f)
{
    const uint8_t *mask = f->head + 2, *payload = mask + (f->is_masked ? 4 : 0);
    for (size_t i = 0; i < EK_WS_MARK_BYTES; i++) {
        if ((payload[i] ^ (f->is_masked ? mask[i % 4] : 0)) != f->mark[i])
            return false;
    }
    return true;
}

/* What was kept goes on. */
static enum ek_ws_step let_go(struct ek_ws_frames *f)
{
    f->is_kept = false;
    f->n_kept = f->n_head;
    return EK_WS_STEP_OTHER;
}

/* Bytes of a frame that may be our Pong: as long as its head and length say so. */
static enum ek_ws_step keep(struct ek_ws_frames *f, const char *p, size_t n,
                            size_t *used)
{
    size_t whole = 2 + (f->is_masked ? 4U : 0U) + EK_WS_MARK_BYTES;
    enum ek_ws_step step = EK_WS_STEP_KEPT;
    size_t i = 0;
    while (i < n && step == EK_WS_STEP_KEPT) {
        f->head[f->n_head++] = (uint8_t)p[i++];
        bool is_ours =
            f->n_head < 2 || (is_frame(f) && (f->head[1] & LENGTH) == EK_WS_MARK_BYTES);
        if (!is_ours) {
            step = let_go(f);
            look_at_head(f);
        } else if (f->n_head == whole) {
            step = is_marked(f) ? EK_WS_STEP_PONG : let_go(f);
            f->n_frames += step == EK_WS_STEP_OTHER;
            f->is_kept = false;
            f->n_head = 0;
        }
    }
    *used = i;
    return step;
}

enum ek_ws_step ek_ws_next(struct ek_ws_frames *f, const char *p, size_t n, bool stops,
                           size_t *used)
{
    size_t i = 0;
    while (i < n && !f->is_lost) {
        if (f->is_kept)
            return keep(f, p, n, used);
        if (f->left > 0) {
            size_t k = f->left < n - i ? (size_t)f->left : n - i;
            f->left -= k;
            i += k;
        } else if (f->n_head == 0 && f->mark && (uint8_t)p[i] == (FIN | EK_WS_PONG)) {
            f->is_kept = i == 0; /* what is before it goes on first */
            if (i > 0)
                break;
            continue;
        } else {
            f->head[f->n_head++] = (uint8_t)p[i++];
            look_at_head(f);
        }
        if (stops && ek_ws_is_between(f))
            break;
    }
    *used = f->is_lost ? n : i;
    return EK_WS_STEP_PASS;
}

size_t ek_ws_end(struct ek_ws_frames *f)
{
    size_t n = f->is_kept ? f->n_head : 0;
    f->is_kept = false;
    f->is_lost = true;
    return n;
}

size_t ek_ws_control(char out[EK_WS_CONTROL_BYTES], int opcode, const void *payload,
                     size_t n, const uint8_t mask[4])
{
    const uint8_t *p = payload;
    size_t at = 2;
    assert(n <= EK_WS_MARK_BYTES);
    out[0] = (char)(FIN | opcode);
    out[1] = (char)((mask ? MASKED : 0) | (int)n);
    if (mask) {
        memcpy(out + at, mask, 4);
        at += 4;
    }
    for (size_t i = 0; i < n; i++)
        out[at++] = (char)(p[i] ^ (mask ? mask[i % 4] : 0));
    return at;
}
