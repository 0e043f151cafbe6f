/* relay_int.h - what relay.c (a session's course) and relay_end.c (its ways out) share. */
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
/* Before the answer's head: with an answer of our own. */
void ek_relay_refuse(struct ek_relay *s, int status, const char *why);

/* Parts of them. */
void ek_relay_free_request(struct ek_relay *s);
void ek_relay_leave_queue(struct ek_relay *s);
void ek_relay_give_back(struct ek_relay *s);
/* Empties *half, which hears nothing more of the session; NULL stays NULL. */
struct ek_half *ek_relay_let_go(struct ek_half **half);

#endif
