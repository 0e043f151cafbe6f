/* loop.h - one thread's event loop: descriptors (epoll), timers, messages from others.
 *
 * Owner thread: the one in ek_loop_run; all calls are its own but ek_loop_wake and
 * ek_loop_stop.
 */
#ifndef EVENKEEL_NET_LOOP_H
#define EVENKEEL_NET_LOOP_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct ek_loop;

enum { EK_READABLE = 1, EK_WRITABLE = 2 };

int ek_loop_new(struct ek_loop **loop, struct ek_err *err) EK_MUST_USE;
void ek_loop_free(struct ek_loop *loop); /* nothing may be watched any more */

/* Runs until ek_loop_stop. Errors: EK_EIO. */
int ek_loop_run(struct ek_loop *loop, struct ek_err *err) EK_MUST_USE;
void ek_loop_stop(struct ek_loop *loop); /* any thread, and signal-safe */

/* A watched descriptor; the struct is the caller's and stays put while watched. */
struct ek_watch {
    int fd;
    void (*on_ready)(struct ek_watch *w, int events);
    void *owner;
    /* private */
    struct ek_loop *loop;
    int interest;
    bool is_dead;
};
int ek_watch_start(struct ek_loop *loop, struct ek_watch *w, int interest) EK_MUST_USE;
int ek_watch_change(struct ek_watch *w, int interest) EK_MUST_USE;
void ek_watch_stop(struct ek_watch *w); /* safe inside any callback; fd stays open */

/* A timer; the struct is the caller's. Starting a started timer moves it. */
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
int ek_timer_start(struct ek_timer *t, int64_t delay_us) EK_MUST_USE;
void ek_timer_stop(struct ek_timer *t);

/* What ek_loop_wake makes the loop call, once for any number of wakes before it runs. */
void ek_loop_on_wake(struct ek_loop *loop, void (*fn)(void *arg), void *arg);
void ek_loop_wake(struct ek_loop *loop); /* any thread, and signal-safe */

int64_t ek_loop_now_us(const struct ek_loop *loop); /* time of this turn */

#endif
