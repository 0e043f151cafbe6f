/* loop.h - one thread's event loop: descriptors (epoll), timers, messages from others.
 *
 * Owner thread: the one in ek_loop_run; all calls are its own but ek_loop_wake and
 * ek_loop_stop. A turn is: wait; ready descriptors; the wake function; due timers. A
 * timer of delay 0 started by the first three therefore runs in the same turn, and one
 * started by a timer runs in the next.
 */
#ifndef EVENKEEL_NET_LOOP_H
#define EVENKEEL_NET_LOOP_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct ek_loop;

/* Interests and events. HANGUP as an interest: tell when the peer ended its sending
 * side. As an event it also means that both sides are down or the descriptor failed;
 * that is told whatever the interest. */
/* EXCLUSIVE, at start alone: of several loops that watch one listening socket, not all
 * are woken for each connection; the interest may not be changed then. */
enum { EK_READABLE = 1, EK_WRITABLE = 2, EK_HANGUP = 4, EK_EXCLUSIVE = 8 };

/* Errors: EK_ENOMEM, EK_EIO (no descriptors left). */
int ek_loop_new(struct ek_loop **loop, struct ek_err *err) EK_MUST_USE;
/* Nothing may be watched any more; NULL is fine. Timers still started are forgotten. */
void ek_loop_free(struct ek_loop *loop);

/* Runs until the end of the turn that sees ek_loop_stop; one asked for before makes it
 * return after the first turn. It may be run again afterwards. Errors: EK_EIO. */
int ek_loop_run(struct ek_loop *loop, struct ek_err *err) EK_MUST_USE;
void ek_loop_stop(struct ek_loop *loop); /* any thread, and signal-safe */

/* A watched descriptor; the struct is the caller's and stays put while watched. */
struct ek_watch {
    int fd;
    void (*on_ready)(struct ek_watch *w, int events);
    void *owner;
    /* private */
    struct ek_loop *loop; /* NULL: not watched */
    int interest;
};
/* Errors: EK_EIO (not watched then). */
int ek_watch_start(struct ek_loop *loop, struct ek_watch *w, int interest) EK_MUST_USE;
int ek_watch_change(struct ek_watch *w, int interest) EK_MUST_USE;
/* Safe inside any callback, and w may be freed right after; fd stays open. Does
 * nothing when w is not watched. */
void ek_watch_stop(struct ek_watch *w);
/* The same for a descriptor that is closed right after, its only one: the system
 * forgets it by itself, which spares a call. */
void ek_watch_forget(struct ek_watch *w);

/* A timer; the struct is the caller's and stays put while started. Starting a started
 * timer moves it, which cannot fail. */
struct ek_timer {
    void (*on_time)(struct ek_timer *t);
    void *owner;
    /* private */
    struct ek_loop *loop;
    int64_t due_us;
    int64_t slot; /* place in the heap, -1: not started */
};
void ek_timer_init(struct ek_timer *t, struct ek_loop *loop,
                   void (*on_time)(struct ek_timer *t), void *owner);
/* delay_us from the time of this turn; below 0 counts as 0. It is stopped before
 * on_time is called. Errors: EK_ENOMEM (t was not started). Cost: O(log timers). */
int ek_timer_start(struct ek_timer *t, int64_t delay_us) EK_MUST_USE;
/* A started timer comes no later than that, and no later than before. */
void ek_timer_hasten(struct ek_timer *t, int64_t delay_us);
void ek_timer_stop(struct ek_timer *t); /* t may be freed right after */

/* What ek_loop_wake makes the loop call, once for all wakes before it runs. */
void ek_loop_on_wake(struct ek_loop *loop, void (*fn)(void *arg), void *arg);
void ek_loop_wake(struct ek_loop *loop); /* any thread, and signal-safe */

int64_t ek_loop_now_us(const struct ek_loop *loop); /* time of this turn */

#endif
