/* websocket.h - frames of a WebSocket (RFC 6455 5), both ends: heads, masks, and a
 * stream of bytes cut into whole frames. No extensions, and a message in several frames
 * is several frames here.
 */
#ifndef EVENKEEL_LOAD_WEBSOCKET_H
#define EVENKEEL_LOAD_WEBSOCKET_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ek_ws_opcode {
    EK_WS_CONTINUATION = 0,
    EK_WS_TEXT = 1,
    EK_WS_BINARY = 2,
    EK_WS_CLOSE = 8,
    EK_WS_PING = 9,
    EK_WS_PONG = 10,
};

enum { EK_WS_HEAD_MAX = 14 };

struct ek_ws_head {
    uint64_t n;     /* bytes of the payload */
    uint8_t opcode; /* enum ek_ws_opcode */
    bool is_final, is_masked;
    uint8_t mask[4]; /* where is_masked */
    uint8_t n_head;  /* bytes of the head itself */
};

/* The head at p[0,n). Errors: EK_EAGAIN (it goes on behind n); EK_EFORMAT: reserved
 * bits or opcodes, a length in more bytes than it needs, a control frame that is long
 * or in parts. */
int ek_ws_head_read(struct ek_ws_head *h, const uint8_t *p, size_t n) EK_MUST_USE;
/* Writes h, whose n_head counts for nothing; returns its bytes. */
size_t ek_ws_head_write(uint8_t p[EK_WS_HEAD_MAX], const struct ek_ws_head *h);
/* Masks or unmasks in place. */
void ek_ws_mask(uint8_t *p, size_t n, const uint8_t mask[4]);

/* Cuts bytes into frames; what is not a whole frame yet is kept, nothing between
 * two. */
struct ek_ws_reader {
    struct ek_buf part;
    size_t max; /* bytes of a payload */
    /* A whole frame, its payload unmasked. EK_WS_HEAD_MAX bytes before the payload are
     * the head's and may be written over, as far as n_head goes. Not 0: feed ends with
     * that. */
    int (*on_frame)(void *owner, const struct ek_ws_head *h, uint8_t *payload);
    void *owner;
};

void ek_ws_reader_release(struct ek_ws_reader *r); /* one of zeroes is fine, too */
/* p[0,n) is written over. Errors: those of head_read, EK_ELIMIT (a payload over max),
 * EK_ENOMEM, what on_frame returned; nothing more is to be fed then. */
int ek_ws_reader_feed(struct ek_ws_reader *r, uint8_t *p, size_t n) EK_MUST_USE;

#endif
