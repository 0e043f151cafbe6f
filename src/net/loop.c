#include "net/loop.h"

#include "base/clock.h"
#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Descriptors handled in one turn; more wait for the next, level-triggered. */
enum { BATCH = 64 };

/* Timers of the same millisecond are met by one wake. */
enum { TIMER_GRAIN_US = 1000 };

/* Invariants: timers[0,n_timers) is a binary heap on due_us and timers[i]->slot == i;
 * while the loop waits, timer_fd fires no later than the first of them is due (by
 * TIMER_GRAIN_US). */
struct ek_loop {
    int epoll_fd;
    int wake_fd;      /* eventfd: ek_loop_wake adds to it */
    int stop_fd;      /* eventfd: ek_loop_stop adds to it; no flag, because a write is
                    signal-safe and orders memory between threads */
    int timer_fd;     /* watched for edges: a settime is all that it is told */
    int64_t fires_us; /* when timer_fd does; INT64_MAX: it does not */
    bool is_stopped;
    bool is_woken;
    int64_t now_us;
    int64_t n_watched;
    void (*on_wake)(void *arg);
    void *wake_arg;
    struct ek_timer **timers; /* heap, owned; the timers are the callers' */
    int64_t n_timers;
    int64_t cap_timers;
    struct epoll_event batch[BATCH]; /* of this turn */
    int batch_next;                  /* first one not handled yet */
    int batch_end;
};

/* Timers ----------------------------------------------------------------------- */

static void put(struct ek_loop *l, int64_t slot, struct ek_timer *t)
{
    l->timers[slot] = t;
    t->slot = slot;
}

static void sift_up(struct ek_loop *l, struct ek_timer *t)
{
    int64_t i = t->slot;
    while (i > 0 && l->timers[(i - 1) / 2]->due_us > t->due_us) {
        put(l, i, l->timers[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    put(l, i, t);
}

static void sift_down(struct ek_loop *l, struct ek_timer *t)
{
    int64_t i = t->slot;
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child >= l->n_timers)
            break;
        if (child + 1 < l->n_timers &&
            l->timers[child + 1]->due_us < l->timers[child]->due_us)
            child++;
        if (l->timers[child]->due_us >= t->due_us)
            break;
        put(l, i, l->timers[child]);
        i = child;
    }
    put(l, i, t);
}

void ek_timer_init(struct ek_timer *t, struct ek_loop *loop,
                   void (*on_time)(struct ek_timer *t), void *owner)
{
    *t =
        (struct ek_timer){.on_time = on_time, .owner = owner, .loop = loop, .slot = -1};
}

static int grow_timers(struct ek_loop *l)
{
    if (l->n_timers < l->cap_timers)
        return 0;
    int64_t cap = l->cap_timers ? 2 * l->cap_timers : 16;
    struct ek_timer **p =
        ek_realloc_array(l->timers, (size_t)cap, sizeof(struct ek_timer *));
    if (!p)
        return EK_ENOMEM;
    l->timers = p;
    l->cap_timers = cap;
    return 0;
}

int ek_timer_start(struct ek_timer *t, int64_t delay_us)
{
    struct ek_loop *l = t->loop;
    if (t->slot < 0) {
        int rc = grow_timers(l);
        if (rc)
            return rc;
        put(l, l->n_timers++, t);
    }
    if (delay_us < 0)
        delay_us = 0;
    t->due_us = delay_us > INT64_MAX - l->now_us ? INT64_MAX : l->now_us + delay_us;
    sift_up(l, t);
    sift_down(l, t);
    return 0;
}

void ek_timer_hasten(struct ek_timer *t, int64_t delay_us)
{
    assert(t->slot >= 0);
    if (t->due_us - t->loop->now_us <= delay_us)
        return;
    int rc = ek_timer_start(t, delay_us);
    (void)rc; /* moving it cannot fail */
}

void ek_timer_stop(struct ek_timer *t)
{
    struct ek_loop *l = t->loop;
    if (t->slot < 0)
        return;
    assert(l->timers[t->slot] == t);
    struct ek_timer *last = l->timers[--l->n_timers];
    if (last != t) {
        put(l, t->slot, last);
        sift_up(l, last);
        sift_down(l, last);
    }
    t->slot = -1;
}

/* At most as many as there are now: a timer that starts itself again with delay 0
 * must not keep the descriptors waiting. */
static void run_timers(struct ek_loop *l)
{
    for (int64_t left = l->n_timers; left > 0 && l->n_timers > 0; left--) {
        struct ek_timer *t = l->timers[0];
        if (t->due_us > l->now_us)
            break;
        ek_timer_stop(t);
        t->on_time(t);
    }
}

/* A time-out of epoll_wait would be a timer that the system starts and stops for each
 * wait. timer_fd is set when the first timer comes before it fires, and else left: what
 * was stopped or moved meanwhile costs one wake for nothing.
 * Returns the time-out: 0 when a timer is due, -1 otherwise. */
static int arm_timer(struct ek_loop *l)
{
    if (l->n_timers == 0 || l->timers[0]->due_us > INT64_MAX - TIMER_GRAIN_US)
        return -1;
    int64_t due_us = l->timers[0]->due_us;
    if (due_us <= l->now_us)
        return 0;
    int64_t at_us = (due_us + TIMER_GRAIN_US - 1) / TIMER_GRAIN_US * TIMER_GRAIN_US;
    if (at_us >= l->fires_us)
        return -1;
    struct itimerspec t = {
        .it_value = {.tv_sec = at_us / 1000000, .tv_nsec = at_us % 1000000 * 1000}};
    int rc = timerfd_settime(l->timer_fd, TFD_TIMER_ABSTIME, &t, NULL);
    assert(rc == 0); /* no time is too far or over */
    (void)rc;
    l->fires_us = at_us;
    return -1;
}

/* Descriptors ------------------------------------------------------------------ */

static uint32_t to_epoll(int interest)
{
    uint32_t e = 0;
    if (interest & EK_READABLE)
        e |= EPOLLIN;
    if (interest & EK_WRITABLE)
        e |= EPOLLOUT;
    if (interest & EK_HANGUP)
        e |= EPOLLRDHUP;
    if (interest & EK_EXCLUSIVE)
        e |= EPOLLEXCLUSIVE;
    return e;
}

/* A failed descriptor is also called ready for what was asked, so that code that only
 * reads or only writes meets the error there. */
static int from_epoll(uint32_t e, int interest)
{
    int events = 0;
    if (e & EPOLLIN)
        events |= EK_READABLE;
    if (e & EPOLLOUT)
        events |= EK_WRITABLE;
    if (e & EPOLLRDHUP)
        events |= EK_HANGUP;
    if (e & (EPOLLHUP | EPOLLERR))
        events |= EK_HANGUP | (interest & (EK_READABLE | EK_WRITABLE));
    return events;
}

static int epoll_set(struct ek_loop *l, int op, struct ek_watch *w, int interest)
{
    struct epoll_event e = {.events = to_epoll(interest), .data.ptr = w};
    return epoll_ctl(l->epoll_fd, op, w->fd, &e) ? EK_EIO : 0;
}

int ek_watch_start(struct ek_loop *loop, struct ek_watch *w, int interest)
{
    int rc = epoll_set(loop, EPOLL_CTL_ADD, w, interest);
    if (rc)
        return rc;
    w->loop = loop;
    w->interest = interest;
    loop->n_watched++;
    return 0;
}

int ek_watch_change(struct ek_watch *w, int interest)
{
    assert(w->loop);
    if (interest == w->interest)
        return 0;
    int rc = epoll_set(w->loop, EPOLL_CTL_MOD, w, interest);
    if (!rc)
        w->interest = interest;
    return rc;
}

void ek_watch_stop(struct ek_watch *w)
{
    struct ek_loop *l = w->loop;
    if (!l)
        return;
    epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
    ek_watch_forget(w);
}

void ek_watch_forget(struct ek_watch *w)
{
    struct ek_loop *l = w->loop;
    if (!l)
        return;
    /* Events of this turn that still wait must not reach a struct that may be gone. */
    for (int i = l->batch_next; i < l->batch_end; i++) {
        if (l->batch[i].data.ptr == w)
            l->batch[i].data.ptr = NULL;
    }
    w->loop = NULL;
    l->n_watched--;
}

/* The loop --------------------------------------------------------------------- */

/* Our own are told from watches by pointing at their descriptor. */
static int add_own(struct ek_loop *l, int *fd, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = fd};
    return *fd < 0 || epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, *fd, &e) ? EK_EIO : 0;
}

static int open_own(struct ek_loop *l)
{
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    l->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    l->stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    l->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    int rc = l->epoll_fd < 0 ? EK_EIO : add_own(l, &l->wake_fd, EPOLLIN);
    if (!rc)
        rc = add_own(l, &l->stop_fd, EPOLLIN);
    return rc ? rc : add_own(l, &l->timer_fd, EPOLLIN | EPOLLET);
}

int ek_loop_new(struct ek_loop **loop, struct ek_err *err)
{
    struct ek_loop *l = ek_calloc(1, sizeof *l);
    if (!l)
        return ek_err_set(err, EK_ENOMEM, "event loop: out of memory");
    l->now_us = ek_clock_us();
    l->fires_us = INT64_MAX;
    if (open_own(l)) {
        int rc = ek_err_set(err, EK_EIO, "event loop: %s", strerror(errno));
        ek_loop_free(l);
        return rc;
    }
    *loop = l;
    return 0;
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

void ek_loop_free(struct ek_loop *loop)
{
    if (!loop)
        return;
    assert(loop->n_watched == 0);
    close_fd(loop->timer_fd);
    close_fd(loop->stop_fd);
    close_fd(loop->wake_fd);
    close_fd(loop->epoll_fd);
    ek_free(loop->timers);
    ek_free(loop);
}

/* An eventfd at its maximum refuses to grow, which is as good: it is readable. */
static void signal_fd(int fd)
{
    int saved = errno;
    uint64_t one = 1;
    ssize_t n = write(fd, &one, sizeof one);
    (void)n;
    errno = saved;
}

static bool drain_fd(int fd)
{
    uint64_t count;
    return read(fd, &count, sizeof count) == sizeof count;
}

void ek_loop_stop(struct ek_loop *loop)
{
    signal_fd(loop->stop_fd);
}

void ek_loop_wake(struct ek_loop *loop)
{
    signal_fd(loop->wake_fd);
}

void ek_loop_on_wake(struct ek_loop *loop, void (*fn)(void *arg), void *arg)
{
    loop->on_wake = fn;
    loop->wake_arg = arg;
}

int64_t ek_loop_now_us(const struct ek_loop *loop)
{
    return loop->now_us;
}

static void run_batch(struct ek_loop *l, int n)
{
    l->batch_next = 0;
    l->batch_end = n;
    while (l->batch_next < l->batch_end) {
        struct epoll_event e = l->batch[l->batch_next++];
        if (!e.data.ptr)
            continue;
        if (e.data.ptr == &l->wake_fd) {
            l->is_woken = drain_fd(l->wake_fd);
        } else if (e.data.ptr == &l->stop_fd) {
            l->is_stopped = drain_fd(l->stop_fd);
        } else if (e.data.ptr == &l->timer_fd) {
            l->fires_us = INT64_MAX;
        } else {
            struct ek_watch *w = e.data.ptr;
            w->on_ready(w, from_epoll(e.events, w->interest));
        }
    }
    l->batch_end = 0;
}

int ek_loop_run(struct ek_loop *loop, struct ek_err *err)
{
    loop->now_us = ek_clock_us();
    loop->is_stopped = false;
    while (!loop->is_stopped) {
        int n = epoll_wait(loop->epoll_fd, loop->batch, BATCH, arm_timer(loop));
        if (n < 0 && errno != EINTR)
            return ek_err_set(err, EK_EIO, "event loop: %s", strerror(errno));
        loop->now_us = ek_clock_us();
        run_batch(loop, n < 0 ? 0 : n);
        if (loop->is_woken) {
            loop->is_woken = false;
            if (loop->on_wake)
                loop->on_wake(loop->wake_arg);
        }
        run_timers(loop);
    }
    return 0;
}
