/* relay_int.h - what relay.c (a session's course) and relay_end.c (its ways out)
 * share. */
#ifndef EVENKEEL_ROUTE_RELAY_INT_H
#define EVENKEEL_ROUTE_RELAY_INT_H

#include "route/relay.h"

#define EK_RELAY_NEVER_US (INT64_C(1) << 60)

static inline const struct ek_route_config *ek_relay_config(const struct ek_relay *s)
{
    return ek_router_config(s->reactor->router);
}

static inline int64_t ek_relay_now(const struct ek_relay *s)
{
    return ek_loop_now_us(s->reactor->loop);
}

/* A timer of a reactor that is always started: moving it cannot fail. */
static inline void ek_relay_move_timer(struct ek_timer *t, int64_t delay_us)
{
    int rc = ek_timer_start(t, delay_us);
    (void)rc;
}

/* Ways out: s is over, and freed at the end of the turn (on_end). */
void ek_relay_on_end(struct ek_task *t);
void ek_relay_end_well(struct ek_relay *s, const char *by);
/* Both halves are reset with this code. */
void ek_relay_end_badly(struct ek_relay *s, uint32_t code, const char *by,
                        const char *why);
/* An open session that the proxy itself ends. message: plain ASCII, constant. */
void ek_relay_end_ours(struct ek_relay *s, const char *why, const char *message);
/* A WebSocket whose sides were told by a Close, as ek_relay_ws_why says. */
void ek_relay_end_closed(struct ek_relay *s);
/* Before the answer's head: with an answer of our own. */
void ek_relay_refuse(struct ek_relay *s, int status, const char *why);

/* relay.c. Sets the timer of an open session to what is due next. */
void ek_relay_set_timer(struct ek_relay *s);

/* relay_ws.c: of a WebSocket whose frames are followed (s->ws). */
/* Begins to follow them where the configuration asks for it. False: no memory. */
bool ek_relay_ws_open(struct ek_relay *s);
/* Bytes of one direction, on to the other half. 0, EK_EAGAIN, and the errors of its
 * ops. */
int ek_relay_ws_body(struct ek_relay *s, bool is_up, const char *p,
                     size_t n) EK_MUST_USE;
/* That direction ends: what was kept of it goes on first. */
int ek_relay_ws_ended(struct ek_relay *s, bool is_up) EK_MUST_USE;
/* That side lives: it said something, or took what had waited for it. */
void ek_relay_ws_heard(struct ek_relay *s, bool is_client);
/* When it wants to be called; INT64_MAX: never, or s->ws is NULL. True: s is over. */
int64_t ek_relay_ws_due(const struct ek_relay *s);
bool ek_relay_ws_on_time(struct ek_relay *s);
/* Says Close (1001) to both sides, and ends s when they have answered or a while later.
 * False: frames are not followed, or unknown; nothing was done. why: constant. */
bool ek_relay_ws_close(struct ek_relay *s, const char *why);
bool ek_relay_ws_is_closed(const struct ek_relay *s); /* both sides answered */
/* Why a Close was said; NULL: none was, or s->ws is NULL. */
const char *ek_relay_ws_why(const struct ek_relay *s);
void ek_relay_ws_frames(const struct ek_relay *s, uint64_t *up, uint64_t *down);

/* Parts of them. */
void ek_relay_free_request(struct ek_relay *s);
void ek_relay_leave_queue(struct ek_relay *s);
void ek_relay_give_back(struct ek_relay *s);
/* Empties *half, which hears nothing more of the session; NULL stays NULL. */
struct ek_half *ek_relay_let_go(struct ek_half **half);

#endif
