/* relay_ws.c - what the proxy itself says in a WebSocket, where it was asked for that:
 * Pings to a side that is silent, a Close before the end. Both go between two frames,
 * so the heads of frames are followed; payloads are not looked at (net/ws_frames.h).
 *
 *   heard ──websocket_ping──> Ping to that side ──any byte of it──> heard
 *                                   └──ping_timeout──> over: by that side, "no_pong"
 *   max_age, drain, backend_drain ──> Close to both sides ──their Closes, or 3 s──>
 *   over
 */
#include "base/mem.h"
#include "net/ws_frames.h"
#include "route/relay_int.h"

#include <string.h>

/* What both sides have to answer a Close: a far client's round trip, some times
 * over. */
static const int64_t close_us = 3000000;

/* A side of the session: `in` is what comes from it. */
struct side {
    struct ek_ws_frames in;
    int64_t heard_us;  /* its last byte, or when it last took what had waited for it */
    int64_t pinged_us; /* a Ping to it without a byte since; 0: none */
    bool wants_ping;   /* one is due, and goes between two frames */
    bool wants_close;  /* likewise a Close */
    bool has_close;    /* it got ours: nothing else goes there */
};

struct ek_relay_ws {
    struct side client, backend;
    uint8_t mark[EK_WS_MARK_BYTES]; /* payload of our Pings */
    const char *why;                /* a Close is under way; NULL: none */
    int64_t close_by_us;
};

bool ek_relay_ws_open(struct ek_relay *s)
{
    const struct ek_route_config *c = ek_relay_config(s);
    if (c->websocket_ping_us <= 0 && c->max_age_us <= 0 && c->drain_us <= 0 &&
        c->backend_drain_us <= 0 && !c->counts_frames)
        return true;
    struct ek_relay_ws *w = ek_calloc(1, sizeof *w);
    if (!w)
        return false;
    w->client.in.is_masked = true;
    w->client.heard_us = w->backend.heard_us = ek_relay_now(s);
    uint64_t nonce = ek_rng_u64(&s->reactor->rng);
    memcpy(w->mark, "evenkeel", 8);
    memcpy(w->mark + 8, &nonce, 8);
    s->ws = w;
    return true;
}

static struct side *side_of(const struct ek_relay *s, bool is_client)
{
    return is_client ? &s->ws->client : &s->ws->backend;
}

void ek_relay_ws_frames(const struct ek_relay *s, uint64_t *up, uint64_t *down)
{
    *up = s->ws->client.in.n_frames;
    *down = s->ws->backend.in.n_frames;
}

const char *ek_relay_ws_why(const struct ek_relay *s)
{
    return s->ws ? s->ws->why : NULL;
}

/* Saying ------------------------------------------------------------------------- */

/* A frame of ours to that side. Errors: those of half.h's body. */
static int say(struct ek_relay *s, bool to_client, int opcode, const void *payload,
               size_t n)
{
    struct ek_half *to = to_client ? s->front : s->back;
    char frame[EK_WS_CONTROL_BYTES];
    uint64_t random = ek_rng_u64(&s->reactor->rng);
    uint8_t mask[4];
    memcpy(mask, &random, sizeof mask);
    n = ek_ws_control(frame, opcode, payload, n, to_client ? NULL : mask);
    return to->ops->body(to, frame, n);
}

/* May a frame go to that side now? What goes there comes from the other one. */
static bool is_between(const struct ek_relay *s, bool to_client)
{
    bool has_ended = to_client ? s->back_ended : s->front_ended;
    return !has_ended && !side_of(s, to_client)->has_close &&
           ek_ws_is_between(&side_of(s, !to_client)->in);
}

static bool is_wanted(const struct side *side)
{
    return side->wants_ping || side->wants_close;
}

/* Says what waits for a place between two frames, if this is one. */
static int say_waiting(struct ek_relay *s, bool to_client)
{
    struct side *side = side_of(s, to_client);
    static const uint8_t going[] = {EK_WS_GOING_AWAY >> 8, EK_WS_GOING_AWAY & 255};
    int rc;
    if (!is_wanted(side) || !is_between(s, to_client))
        return 0;
    if (side->wants_close) {
        side->has_close = true;
        rc = say(s, to_client, EK_WS_CLOSE, going, sizeof going);
    } else {
        side->pinged_us = ek_relay_now(s);
        side->in.mark = s->ws->mark;
        rc = say(s, to_client, EK_WS_PING, s->ws->mark, sizeof s->ws->mark);
        ek_counter_add(&s->reactor->counters.websocket_pings, 1);
    }
    side->wants_ping = side->wants_close = false;
    return rc;
}

/* Hearing ------------------------------------------------------------------------ */

void ek_relay_ws_heard(struct ek_relay *s, bool is_client)
{
    struct side *side = side_of(s, is_client);
    bool was_asked = side->pinged_us > 0 || side->wants_ping;
    side->heard_us = ek_relay_now(s);
    side->pinged_us = 0;
    side->wants_ping = false;
    if (was_asked)
        ek_relay_set_timer(s); /* the next Ping comes before the limit of this one */
}

static int pass(struct ek_relay *s, bool is_up, const void *p, size_t n)
{
    struct ek_half *to = is_up ? s->back : s->front;
    if (n == 0 || side_of(s, !is_up)->has_close)
        return 0;
    return to->ops->body(to, p, n);
}

int ek_relay_ws_body(struct ek_relay *s, bool is_up, const char *p, size_t n)
{
    struct ek_ws_frames *in = &side_of(s, is_up)->in;
    int64_t pinged_us = side_of(s, !is_up)->pinged_us;
    bool must_wait = false;
    ek_relay_ws_heard(s, is_up);
    for (size_t used; n > 0; p += used, n -= used) {
        bool stops = is_wanted(side_of(s, !is_up));
        int rc = 0;
        switch (ek_ws_next(in, p, n, stops, &used)) {
        case EK_WS_STEP_PASS:
            rc = pass(s, is_up, p, used);
            break;
        case EK_WS_STEP_OTHER:
            rc = pass(s, is_up, in->head, in->n_kept);
            break;
        case EK_WS_STEP_KEPT:
        case EK_WS_STEP_PONG:
            break;
        }
        must_wait |= rc == EK_EAGAIN;
        if (!rc || rc == EK_EAGAIN)
            rc = say_waiting(s, !is_up);
        if (rc && rc != EK_EAGAIN)
            return rc;
    }
    if (side_of(s, !is_up)->pinged_us != pinged_us)
        ek_relay_set_timer(s);
    return must_wait ? EK_EAGAIN : 0;
}

int ek_relay_ws_ended(struct ek_relay *s, bool is_up)
{
    struct ek_ws_frames *in = &side_of(s, is_up)->in;
    int rc = pass(s, is_up, in->head, ek_ws_end(in));
    return rc == EK_EAGAIN ? 0 : rc;
}

/* Time --------------------------------------------------------------------------- */

/* A Ping has an answer only while both directions are open. */
static bool can_ping(const struct ek_relay *s)
{
    const struct ek_ws_frames *up = &s->ws->client.in, *down = &s->ws->backend.in;
    return ek_relay_config(s)->websocket_ping_us > 0 && !s->ws->why &&
           !s->front_ended && !s->back_ended && !up->is_lost && !down->is_lost &&
           !up->has_close && !down->has_close;
}

static int64_t ping_due(const struct ek_relay *s, bool is_client)
{
    const struct ek_route_config *c = ek_relay_config(s);
    const struct side *side = side_of(s, is_client);
    if (side->wants_ping)
        return INT64_MAX; /* until a frame ends */
    return side->pinged_us > 0 ? side->pinged_us + c->ping_timeout_us
                               : side->heard_us + c->websocket_ping_us;
}

int64_t ek_relay_ws_due(const struct ek_relay *s)
{
    if (!s->ws)
        return INT64_MAX;
    if (s->ws->why)
        return s->ws->close_by_us;
    if (!can_ping(s))
        return INT64_MAX;
    int64_t client = ping_due(s, true), backend = ping_due(s, false);
    return client < backend ? client : backend;
}

/* True: the session is over. */
static bool look_at(struct ek_relay *s, bool is_client)
{
    struct side *side = side_of(s, is_client);
    if (ping_due(s, is_client) > ek_relay_now(s))
        return false;
    if (side->pinged_us > 0) {
        ek_counter_add(&s->reactor->counters.websocket_ping_timeouts, 1);
        ek_relay_end_badly(s, EK_RESET_CANCEL, is_client ? "client" : "backend",
                           "no_pong");
        return true;
    }
    side->wants_ping = true;
    int rc = say_waiting(s, is_client);
    if (rc && rc != EK_EAGAIN) {
        ek_relay_end_badly(s, EK_RESET_CANCEL, is_client ? "client" : "backend",
                           "closed");
        return true;
    }
    return false;
}

bool ek_relay_ws_on_time(struct ek_relay *s)
{
    if (!s->ws)
        return false;
    if (s->ws->why) {
        if (ek_relay_now(s) < s->ws->close_by_us)
            return false;
        ek_relay_end_closed(s);
        return true;
    }
    return can_ping(s) && (look_at(s, true) || look_at(s, false));
}

/* The Close ---------------------------------------------------------------------- */

bool ek_relay_ws_close(struct ek_relay *s, const char *why)
{
    struct ek_relay_ws *w = s->ws;
    if (!w || w->why)
        return w != NULL;
    if (w->client.in.is_lost && w->backend.in.is_lost)
        return false;
    w->why = why;
    w->close_by_us = ek_relay_now(s) + close_us;
    w->client.wants_close = w->backend.wants_close = true;
    for (int to_client = 0; to_client < 2; to_client++) {
        int rc = say_waiting(s, to_client);
        if (rc && rc != EK_EAGAIN)
            w->close_by_us = 0; /* that side is gone: nothing to wait for */
    }
    return true;
}

bool ek_relay_ws_is_closed(const struct ek_relay *s)
{
    const struct ek_relay_ws *w = s->ws;
    return w && w->why && (w->client.in.has_close || s->front_ended) &&
           (w->backend.in.has_close || s->back_ended) && w->client.in.left == 0 &&
           w->backend.in.left == 0;
}
