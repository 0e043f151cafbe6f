#include "load/websocket.h"

#include <string.h>

/* Bytes of the length behind the second byte, and the least it may say there. */
static size_t length_bytes(uint8_t first)
{
    return first == 126 ? 2 : first == 127 ? 8 : 0;
}

static bool is_allowed(const struct ek_ws_head *h, uint8_t first)
{
    static const uint16_t opcodes = 1u << EK_WS_CONTINUATION | 1u << EK_WS_TEXT |
                                    1u << EK_WS_BINARY | 1u << EK_WS_CLOSE |
                                    1u << EK_WS_PING | 1u << EK_WS_PONG;
    if (!(opcodes >> h->opcode & 1))
        return false;
    if (h->opcode >= EK_WS_CLOSE && (!h->is_final || h->n > 125))
        return false;
    if (first == 126)
        return h->n > 125;
    return first != 127 || (h->n > 0xffff && h->n >> 63 == 0);
}

int ek_ws_head_read(struct ek_ws_head *h, const uint8_t *p, size_t n)
{
    if (n < 2)
        return EK_EAGAIN;
    uint8_t first = p[1] & 0x7f;
    size_t n_length = length_bytes(first);
    struct ek_ws_head got = {.opcode = p[0] & 15,
                             .is_final = p[0] >> 7,
                             .is_masked = p[1] >> 7,
                             .n = n_length ? 0 : first};
    if (p[0] & 0x70)
        return EK_EFORMAT;
    got.n_head = (uint8_t)(2 + n_length + (got.is_masked ? 4 : 0));
    if (n < got.n_head)
        return EK_EAGAIN;
    for (size_t i = 0; i < n_length; i++)
        got.n = got.n << 8 | p[2 + i];
    if (got.is_masked)
        memcpy(got.mask, p + 2 + n_length, 4);
    if (!is_allowed(&got, first))
        return EK_EFORMAT;
    *h = got;
    return 0;
}

size_t ek_ws_head_write(uint8_t p[EK_WS_HEAD_MAX], const struct ek_ws_head *h)
{
    uint8_t first = (uint8_t)(h->n <= 125 ? h->n : h->n <= 0xffff ? 126 : 127);
    size_t n_length = length_bytes(first);
    p[0] = (uint8_t)((h->is_final ? 0x80 : 0) | h->opcode);
    p[1] = (uint8_t)((h->is_masked ? 0x80 : 0) | first);
    for (size_t i = 0; i < n_length; i++)
        p[2 + i] = (uint8_t)(h->n >> (8 * (n_length - 1 - i)));
    if (h->is_masked)
        memcpy(p + 2 + n_length, h->mask, 4);
    return 2 + n_length + (h->is_masked ? 4 : 0);
}

void ek_ws_mask(uint8_t *p, size_t n, const uint8_t mask[4])
{
    uint64_t wide, word;
    size_t i = 0;
    memcpy(&wide, mask, 4);
    memcpy((uint8_t *)&wide + 4, mask, 4);
    for (; i + 8 <= n; i += 8) {
        memcpy(&word, p + i, 8);
        word ^= wide;
        memcpy(p + i, &word, 8);
    }
    for (; i < n; i++)
        p[i] ^= mask[i & 3];
}

void ek_ws_reader_release(struct ek_ws_reader *r)
{
    ek_buf_release(&r->part);
}

/* Tells all whole frames of p[0,n); *used bytes were theirs. */
static int tell_frames(struct ek_ws_reader *r, uint8_t *p, size_t n, size_t *used)
{
    for (*used = 0;;) {
        struct ek_ws_head h;
        int rc = ek_ws_head_read(&h, p + *used, n - *used);
        if (rc == EK_EAGAIN)
            return 0;
        if (!rc && h.n > r->max)
            rc = EK_ELIMIT;
        if (rc)
            return rc;
        if (n - *used - h.n_head < h.n)
            return 0;
        uint8_t *payload = p + *used + h.n_head;
        *used += h.n_head + (size_t)h.n;
        if (h.is_masked)
            ek_ws_mask(payload, (size_t)h.n, h.mask);
        rc = r->on_frame(r->owner, &h, payload);
        if (rc)
            return rc;
    }
}

int ek_ws_reader_feed(struct ek_ws_reader *r, uint8_t *p, size_t n)
{
    size_t used;
    int rc;
    if (r->part.len == 0) {
        rc = tell_frames(r, p, n, &used);
        if (rc || used == n)
            return rc;
        ek_buf_init(&r->part, r->max + EK_WS_HEAD_MAX + n);
        return ek_buf_add(&r->part, p + used, n - used);
    }
    if (r->part.max < r->part.len + n)
        r->part.max = r->part.len + n; /* less than a frame, and one read */
    rc = ek_buf_add(&r->part, p, n);
    if (!rc)
        rc = tell_frames(r, (uint8_t *)r->part.data, r->part.len, &used);
    if (rc)
        return rc;
    ek_buf_consume(&r->part, used);
    if (r->part.len == 0)
        ek_buf_release(&r->part);
    return 0;
}
