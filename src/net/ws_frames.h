/* ws_frames.h - where frames of a WebSocket begin and end (RFC 6455 5.2), in bytes that
 * pass by in pieces of any size. Heads are read, payloads are not: but a Pong's that
 * may answer a Ping of ours, which is kept back until that is known.
 *
 *   bytes ──> ek_ws_next ──> PASS   go on, as they are
 *                            KEPT   may be our Pong: kept in `head`
 *                            OTHER  what was kept is not: it goes on now
 *                            PONG   it is: nobody else sees it
 *
 * Not a parser that enforces the protocol: bytes that break it pass like all others,
 * and the frames behind them are unknown from there on (is_lost).
 * Owner thread: one. No call allocates or fails.
 */
#ifndef EVENKEEL_NET_WS_FRAMES_H
#define EVENKEEL_NET_WS_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    EK_WS_CLOSE = 8,
    EK_WS_PING = 9,
    EK_WS_PONG = 10,
    EK_WS_GOING_AWAY = 1001, /* status of a Close: the server goes down, or so */
    EK_WS_MARK_BYTES = 16,   /* payload of a Ping of ours */
    EK_WS_CONTROL_BYTES =
        2 + 4 + EK_WS_MARK_BYTES, /* a control frame of ours at most */
};

enum ek_ws_step { EK_WS_STEP_PASS, EK_WS_STEP_KEPT, EK_WS_STEP_OTHER, EK_WS_STEP_PONG };

/* One direction. Zero but for is_masked: at its beginning. */
struct ek_ws_frames {
    uint64_t left;       /* bytes to come of the payload under way */
    uint64_t n_frames;   /* begun, without our Pongs */
    const uint8_t *mark; /* (EK_WS_MARK_BYTES) of our Pings; NULL: none was sent */
    uint8_t
        head[EK_WS_CONTROL_BYTES]; /* of the frame that begins; is_kept: all of it */
    uint8_t n_head;                /* bytes there of a frame under way */
    uint8_t n_kept;                /* after OTHER: head[0,n_kept) goes on */
    bool is_masked;                /* from a client: RFC 6455 5.3 */
    bool is_kept;                  /* `head` was not passed on */
    bool is_lost;                  /* frames are unknown from here on */
    bool has_close;                /* a Close began: nothing may follow it */
};

/* Looks at p[0,n), n >= 1; *used of them have been dealt with as the answer says (0 is
 * possible with OTHER). stops: PASS ends where a frame does, so that one of ours can be
 * put there. */
enum ek_ws_step ek_ws_next(struct ek_ws_frames *f, const char *p, size_t n, bool stops,
                           size_t *used);

/* A frame may be put here: none is under way, none is unknown, and no Close came. */
bool ek_ws_is_between(const struct ek_ws_frames *f);

/* The direction ended: how many bytes of f->head go on before the end. */
size_t ek_ws_end(struct ek_ws_frames *f);

/* A whole control frame, n <= EK_WS_MARK_BYTES bytes of payload; mask: of a client's,
 * NULL: a server's. Returns its length. */
size_t ek_ws_control(char out[EK_WS_CONTROL_BYTES], int opcode, const void *payload,
                     size_t n, const uint8_t mask[4]);

#endif
