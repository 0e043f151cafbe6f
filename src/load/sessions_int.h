/* sessions_int.h - what the run and the protocols know of each other.
 *
 *   run (sessions.c) -- start, say, end --> protocol (sessions_websocket.c, _h2.c)
 *                    <-- opened, heard, ended --
 *
 * A slot is one session at a time:  start -> OPENING -> opened -> OPEN -> ended ->
 * FREE.
 */
#ifndef EVENKEEL_LOAD_SESSIONS_INT_H
#define EVENKEEL_LOAD_SESSIONS_INT_H

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "load/sessions.h"
#include "load/websocket.h"
#include "net/address.h"
#include "net/grpc.h"
#include "net/sock.h"

struct ek_slot;

struct ek_talk {
    /* Begins a session. Errors: EK_EBUSY (later), EK_EIO, EK_ENOMEM; nothing is told
     * of it then. */
    int (*start)(struct ek_slot *s);
    /* Sends one frame. payload is written over; room for EK_WS_HEAD_MAX bytes lies
     * before it. EK_EAGAIN: the last one has not left yet. EK_EIO, EK_ECLOSED,
     * EK_ENOMEM: the session is over, which is not told: the caller ends it. */
    int (*say)(struct ek_slot *s, uint8_t *payload, size_t n);
    /* Ends it in order: `ended` follows, perhaps from inside. */
    void (*end)(struct ek_slot *s);
    /* Ends it at once, and nothing is told. */
    void (*drop)(struct ek_slot *s);
};

enum ek_slot_state { EK_SLOT_FREE, EK_SLOT_OPENING, EK_SLOT_OPEN, EK_SLOT_ENDING };

struct ek_slot {
    struct ek_sessions *run;
    enum ek_slot_state state;
    uint32_t index;
    uint32_t n_said, n_heard; /* frames: what was sent and came back */
    int64_t start_us;
    /* A WebSocket's. */
    struct ek_watch watch;
    struct ek_sock sock;
    struct ek_buf out; /* of a frame what the socket did not take; of a handshake all
                          that came of its answer */
    struct ek_ws_reader reader;
    char key[25];
    enum { EK_WS_CONNECTS, EK_WS_TLS, EK_WS_SHAKES, EK_WS_TALKS } step;
    /* A stream's. */
    struct ek_h2_stream *stream;
    struct ek_grpc_reader messages;
    int status;      /* of HTTP; 0: no answer's head yet */
    int grpc_status; /* -1: none yet */
    bool is_full;    /* on_drained is to come */
};

/* Connections of HTTP/2. */
struct ek_lane {
    struct ek_sessions *run;
    struct ek_h2 *h2; /* NULL: none */
};

struct ek_sessions {
    const struct ek_sessions_options *o;
    struct ek_sessions_result *r;
    struct ek_err *err;
    const struct ek_talk *talk;
    struct ek_loop *loop;
    struct ek_address address;
    char host[256]; /* of TLS */
    const char *authority;
    struct ek_tls_context *tls; /* NULL: plain */
    struct ek_h2_context *h2;   /* NULL: WebSockets */
    struct ek_lane *lanes;      /* (n_connections) owned */
    struct ek_slot *slots;      /* (n) owned */
    size_t n_first;             /* of slots begun before begin_us */
    size_t n_begun;             /* of slots, in order */
    size_t n_settled;           /* of those opened or failed */
    uint64_t n_failed_in_row;
    struct ek_rng rng;
    struct ek_watch alarm; /* timerfd: frames are due between milliseconds */
    struct ek_timer step, tick;
    void (*on_step)(struct ek_sessions *run); /* phase: what the step timer does */
    bool is_warm;                             /* the first n_warm are open */
    bool is_talking;                          /* frames are due */
    size_t next;                              /* slot whose frame is due next */
    int64_t begin_us;                         /* of the opening, or of the talk */
    int64_t n_due;                            /* frames since begin_us */
    int64_t from_us, to_us;                   /* what counts; 0: not yet */
    int64_t wait_until_us;
    int64_t busy_us;            /* since when no stream could be opened; 0: it could */
    int64_t cpu_us, own_cpu_us; /* at from_us */
    bool is_over;
    int rc;
    uint8_t *scratch; /* EK_SESSIONS_SCRATCH bytes to read into, owned */
    uint8_t *frame;   /* EK_WS_HEAD_MAX, then the payload that is sent next; owned */
    uint8_t *pattern; /* (frame_bytes) what a payload is behind its stamps; owned */
};

enum { EK_SESSIONS_SCRATCH = 65536 };

extern const struct ek_talk ek_talk_websocket, ek_talk_h2;

/* Protocol to run. why: a sentence without the session, NULL for an end that was asked
 * for. heard: not 0, the session is over, which is not told: the caller ends it. The
 * slot may be another session afterwards. */
void ek_slot_opened(struct ek_slot *s);
int ek_slot_heard(struct ek_slot *s, const uint8_t *payload, size_t n) EK_MUST_USE;
void ek_slot_ended(struct ek_slot *s, const char *why);
/* Sends the next frame of s, due then. Errors: as say. */
int ek_slot_say(struct ek_slot *s, int64_t due_us) EK_MUST_USE;

/* Out of memory, the loop fails: the run ends with that. */
void ek_sessions_fail(struct ek_sessions *run, int rc);

/* HTTP/2: begun with the run, ended before its loop. Errors: EK_ENOMEM. */
int ek_lanes_new(struct ek_sessions *run) EK_MUST_USE;
void ek_lanes_free(struct ek_sessions *run);

#endif
