/* relay_log.c - the records of a session: start, every minute, end. */
#include "route/relay_int.h"

#include <stdio.h>

static const char *kind_of(const struct ek_relay *s)
{
    return s->is_websocket ? "websocket" : s->is_grpc ? "grpc" : "http";
}

static const char *backend_of(const struct ek_relay *s)
{
    return s->placement.pool
               ? ek_router_upstream(s->reactor->router, s->placement.backend)
                     ->config.spec.name
               : "-";
}

static double seconds_of(const struct ek_relay *s)
{
    return (double)(ek_loop_now_us(s->reactor->loop) - s->begun_us) / 1e6;
}

static bool is_wanted(const struct ek_relay *s)
{
    return ek_router_config(s->reactor->router)->logs_sessions;
}

/* Written at the end of the turn, with those of other sessions. */
static struct ek_log_lines *gathered(const struct ek_relay *s)
{
    ek_reactor_soon(s->reactor, &s->reactor->log_task);
    return &s->reactor->log;
}

void ek_relay_log_start(const struct ek_relay *s)
{
    if (is_wanted(s))
        ek_log_add(
            gathered(s), EK_LOG_INFO, "session_start",
            "session=%llu kind=%s backend=\"%s\" reason=%s room=%.1f wait_ms=%.1f "
            "status=%d",
            (unsigned long long)s->id, kind_of(s), backend_of(s),
            ek_reason_name(s->placement.reason), s->placement.room, seconds_of(s) * 1e3,
            s->status);
}

enum { FRAMES_BYTES = 80 };

/* " frames_up=1 frames_down=2", or "" where they are not followed. */
static const char *frames_of(char out[FRAMES_BYTES], const struct ek_relay *s)
{
    uint64_t up, down;
    out[0] = 0;
    if (s->ws) {
        ek_relay_ws_frames(s, &up, &down);
        snprintf(out, FRAMES_BYTES, " frames_up=%llu frames_down=%llu",
                 (unsigned long long)up, (unsigned long long)down);
    }
    return out;
}

void ek_relay_log_minute(const struct ek_relay *s)
{
    char frames[FRAMES_BYTES];
    if (is_wanted(s))
        ek_log_add(gathered(s), EK_LOG_INFO, "session_open",
                   "session=%llu kind=%s backend=\"%s\" reason=%s seconds=%.1f "
                   "bytes_up=%llu bytes_down=%llu%s",
                   (unsigned long long)s->id, kind_of(s), backend_of(s),
                   ek_reason_name(s->placement.reason), seconds_of(s),
                   (unsigned long long)s->bytes_up, (unsigned long long)s->bytes_down,
                   frames_of(frames, s));
}

void ek_relay_log_end(const struct ek_relay *s, const char *by, const char *why)
{
    char frames[FRAMES_BYTES];
    if (is_wanted(s))
        ek_log_add(gathered(s), EK_LOG_INFO, "session_end",
                   "session=%llu kind=%s backend=\"%s\" reason=%s seconds=%.3f "
                   "bytes_up=%llu bytes_down=%llu%s status=%d by=%s why=\"%s\"",
                   (unsigned long long)s->id, kind_of(s), backend_of(s),
                   s->placement.pool ? ek_reason_name(s->placement.reason) : "-",
                   seconds_of(s), (unsigned long long)s->bytes_up,
                   (unsigned long long)s->bytes_down, frames_of(frames, s), s->status,
                   by, why);
}
