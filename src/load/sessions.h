/* sessions.h - many long sessions at once against one address, whatever proxy or server
 * listens there: WebSockets, gRPC bidi streams, HTTP/2 requests.
 *
 *   IDLE      opened at a rate and held, silent
 *   SPEAKING  each says a frame every interval and gets it back: round trips. Open
 *   loop:
 *             the times are fixed beforehand and a trip begins when its frame was due,
 *             so that a stall of anybody is in the numbers of all it delayed. interval
 *             0: each says the next frame when the last came back
 *   CHURN     so many at a time are opened and ended
 *
 * What came back is compared: number and order of the frames of each session, and every
 * byte. What a peer does wrong is counted, never an error of the run.
 */
#ifndef EVENKEEL_LOAD_SESSIONS_H
#define EVENKEEL_LOAD_SESSIONS_H

#include "base/buf.h"
#include "load/hist.h"
#include "load/process.h"
#include "net/loop.h"

#include <stdbool.h>
#include <stdint.h>

/* In the order of the choices of keel bench route. */
enum ek_sessions_mode { EK_SESSIONS_IDLE, EK_SESSIONS_SPEAKING, EK_SESSIONS_CHURN };
enum ek_sessions_protocol {
    EK_SESSIONS_WEBSOCKET,
    EK_SESSIONS_GRPC, /* /echo.Echo/Chat, or path; opened when its first message is back */
    EK_SESSIONS_HTTP2 /* GET, without a body; CHURN alone */
};

enum { EK_SESSIONS_FRAME_MIN = 24, EK_SESSIONS_FRAME_MAX = 65536 };

struct ek_sessions_options {
    const char *address; /* HOST:PORT, unix:PATH */
    const char *path;    /* of each request */
    const char *host;    /* what the requests call it; NULL: the address */
    enum ek_sessions_mode mode;
    enum ek_sessions_protocol protocol;
    int64_t n;             /* sessions; of CHURN: at once */
    int64_t n_warm;        /* of them opened before memory is looked at first */
    int64_t n_connections; /* of HTTP/2, 1..n; WebSockets have one each */
    double rate;           /* opened a second */
    int64_t frame_bytes;   /* of a payload */
    int64_t interval_us;
    int64_t settle_us;             /* of SPEAKING and CHURN, before what counts */
    int64_t duration_us;           /* what counts; of IDLE: held */
    int64_t timeout_us;            /* for a session to be opened */
    bool has_tls;                  /* any certificate will do */
    uint64_t seed;                 /* of masks */
    struct ek_processes processes; /* looked at */
    bool (*is_stopped)(void);      /* asked ten times a second */
};

#define EK_SESSIONS_ERRORS 8

struct ek_sessions_error {
    char text[160];
    uint64_t n;
};

struct ek_sessions_result {
    uint64_t n_opened;  /* answered as they should be; of CHURN: ended so, too, and only
                           those that began where it counts */
    uint64_t n_failed;  /* not opened */
    uint64_t n_dropped; /* ended by others after they were opened */
    uint64_t n_open;    /* at the end */
    /* SPEAKING: frames due where it counts. */
    uint64_t n_sent, n_echoed; /* sent - echoed: lost, or a second late */
    uint64_t n_blocked;        /* not sent when due, the last one had not left yet */
    uint64_t n_wrong; /* any time: what came back was not what was due back; ends that
                           session */
    struct ek_hist opening;       /* to open one; of CHURN: and to end it */
    struct ek_hist trip;          /* of a frame, from when it was due */
    struct ek_hist late;          /* how long after it was due a frame was sent */
    int64_t opening_us;           /* for all of them */
    int64_t span_us;              /* what counts */
    int64_t own_cpu_us;           /* this process's, in that time */
    struct ek_process_use before; /* the first warm ones are open */
    struct ek_process_use opened; /* all are */
    struct ek_process_use after;  /* at the end, everything silent again */
    int64_t cpu_us;               /* of the processes, in span_us */
    int64_t opening_cpu_us;       /* theirs between before and opened */
    struct ek_sessions_error errors[EK_SESSIONS_ERRORS]; /* the first kinds */
    size_t n_errors;
    bool is_interrupted; /* is_stopped said so */
};

/* Fills *r, which the caller zeroed. Errors: EK_EINVAL, EK_EIO (address, TLS, a process
 * that ended), EK_ELIMIT (descriptors; the sentence says how many), EK_ENOMEM. */
int ek_sessions_run(struct ek_sessions_result *r, const struct ek_sessions_options *o,
                    struct ek_err *err) EK_MUST_USE;

/* What was measured, as a table or as one JSON object; members are only ever added.
 * Errors: those of ek_buf_add. */
int ek_sessions_table(struct ek_buf *out, const struct ek_sessions_options *o,
                      const struct ek_sessions_result *r) EK_MUST_USE;
int ek_sessions_json(struct ek_buf *out, const struct ek_sessions_options *o,
                     const struct ek_sessions_result *r) EK_MUST_USE;

#endif
