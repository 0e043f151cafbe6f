/* The event loop: timers in order, watches that may be stopped anywhere, wakes and
 * stops from other threads and from signals. */
#include "base/clock.h"
#include "base/rng.h"
#include "net/loop.h"
#include "testkit.h"

#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MANY = 200 };

struct fixture {
    struct ek_loop *loop;
    struct ek_timer timers[MANY];
    int n_fired;
    int64_t last_due_us;
    struct ek_rng rng;
    int n_again;
    struct ek_watch w[2];
    int ready[2];
    int events;
    int n_wakes;
};

static int setup(void **state)
{
    struct fixture *f = ek_calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(ek_loop_new(&f->loop, NULL), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    ek_loop_free(f->loop);
    ek_free(f);
    return 0;
}

static void stop_loop(struct ek_timer *t)
{
    ek_loop_stop(t->loop);
}

static void run_for(struct ek_loop *loop, int64_t us)
{
    struct ek_timer t;
    ek_timer_init(&t, loop, stop_loop, NULL);
    assert_int_equal(ek_timer_start(&t, us), 0);
    assert_int_equal(ek_loop_run(loop, NULL), 0);
}

/* Timers ----------------------------------------------------------------------- */

static void count_in_order(struct ek_timer *t)
{
    struct fixture *f = t->owner;
    assert_true(t->due_us >= f->last_due_us);
    assert_true(t->due_us <= ek_loop_now_us(t->loop));
    assert_int_equal(t->slot, -1);
    f->last_due_us = t->due_us;
    f->n_fired++;
}

static void timers_fire_in_order_whatever_was_moved_and_stopped(void **state)
{
    struct fixture *f = *state;
    struct ek_rng rng;
    int n_started = 0;
    ek_rng_init(&rng, 1);
    for (int i = 0; i < MANY; i++)
        ek_timer_init(&f->timers[i], f->loop, count_in_order, f);
    for (int i = 0; i < 5000; i++) {
        struct ek_timer *t = &f->timers[ek_rng_below(&rng, MANY)];
        if (ek_rng_below(&rng, 3) == 0)
            ek_timer_stop(t);
        else
            assert_int_equal(ek_timer_start(t, (int64_t)ek_rng_below(&rng, 8000)), 0);
    }
    for (int i = 0; i < MANY; i++)
        n_started += f->timers[i].slot >= 0;
    assert_true(n_started > 0 && n_started < MANY);
    run_for(f->loop, 20000);
    assert_int_equal(f->n_fired, n_started);
}

static void a_hastened_timer_is_never_put_off(void **state)
{
    struct fixture *f = *state;
    struct ek_timer *t = &f->timers[0];
    ek_timer_init(t, f->loop, count_in_order, f);
    assert_int_equal(ek_timer_start(t, INT64_MAX), 0);
    ek_timer_hasten(t, 1000000);
    int64_t due = t->due_us;
    assert_int_equal(due, ek_loop_now_us(f->loop) + 1000000);
    ek_timer_hasten(t, 2000000);
    assert_int_equal(t->due_us, due);
    ek_timer_hasten(t, 0);
    run_for(f->loop, 1000);
    assert_int_equal(f->n_fired, 1);
}

/* Each that fires moves two others, sooner or later, or stops one. */
static void shuffle(struct ek_timer *t)
{
    struct fixture *f = t->owner;
    assert_true(t->due_us <= ek_loop_now_us(t->loop));
    f->n_fired++;
    for (int i = 0; i < 2; i++) {
        struct ek_timer *other = &f->timers[ek_rng_below(&f->rng, MANY)];
        if (ek_rng_below(&f->rng, 4) == 0)
            ek_timer_stop(other);
        else
            assert_int_equal(
                ek_timer_start(other, ek_rng_below(&f->rng, 2) ? 300 : 9000), 0);
    }
}

static void no_wait_outlasts_a_timer_that_was_moved_since_the_last(void **state)
{
    struct fixture *f = *state;
    struct ek_timer *guard = &f->timers[0];
    ek_rng_init(&f->rng, 2);
    for (int i = 0; i < MANY; i++)
        ek_timer_init(&f->timers[i], f->loop, shuffle, f);
    for (int i = 0; i < 20; i++)
        assert_int_equal(ek_timer_start(&f->timers[i], 1000 * i), 0);
    run_for(f->loop, 30000);
    assert_true(f->n_fired > 0);
    /* What the last wait was set for is gone, or sooner than what is left. */
    for (int i = 0; i < MANY; i++)
        ek_timer_stop(&f->timers[i]);
    run_for(f->loop, 4000);
    ek_timer_init(guard, f->loop, stop_loop, NULL);
    assert_int_equal(ek_timer_start(guard, 3000), 0);
    run_for(f->loop, 1000);
    assert_int_equal(ek_timer_start(guard, 6000), 0);
    assert_int_equal(ek_loop_run(f->loop, NULL), 0);
    assert_true(guard->due_us <= ek_loop_now_us(f->loop));
}

static void restart_at_once(struct ek_timer *t)
{
    struct fixture *f = t->owner;
    f->n_again++;
    assert_int_equal(ek_timer_start(t, 0), 0);
}

static void a_timer_that_restarts_itself_starves_nobody(void **state)
{
    struct fixture *f = *state;
    ek_timer_init(&f->timers[0], f->loop, restart_at_once, f);
    assert_int_equal(ek_timer_start(&f->timers[0], 0), 0);
    /* One turn each, if this process is not let run for longer. */
    for (int i = 0; i < 10 && f->n_again <= 1; i++)
        run_for(f->loop, 2000);
    assert_true(f->n_again > 1);
    ek_timer_stop(&f->timers[0]);
}

static void a_far_timer_does_not_overflow(void **state)
{
    struct fixture *f = *state;
    ek_timer_init(&f->timers[0], f->loop, count_in_order, f);
    assert_int_equal(ek_timer_start(&f->timers[0], INT64_MAX), 0);
    run_for(f->loop, 1000);
    assert_int_equal(f->n_fired, 0);
    assert_int_equal(ek_timer_start(&f->timers[0], -5), 0);
    run_for(f->loop, 1000);
    assert_int_equal(f->n_fired, 1);
}

/* Watches ---------------------------------------------------------------------- */

static void read_one(struct ek_watch *w, int events)
{
    struct fixture *f = w->owner;
    char c;
    f->events |= events;
    if (events & EK_READABLE)
        f->ready[w - f->w] += read(w->fd, &c, 1) == 1;
}

static void stop_both(struct ek_watch *w, int events)
{
    struct fixture *f = w->owner;
    (void)events;
    f->ready[w - f->w]++;
    ek_watch_stop(&f->w[0]);
    ek_watch_stop(&f->w[1]);
    /* What a caller that frees its struct does to it. */
    f->w[0].on_ready = f->w[1].on_ready = NULL;
}

/* Two socket pairs; f->w watches the first ends, the second ends are returned. */
static void make_pairs(struct fixture *f, int peer[2],
                       void (*on_ready)(struct ek_watch *w, int events))
{
    for (int i = 0; i < 2; i++) {
        int fd[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
        f->w[i] = (struct ek_watch){.fd = fd[0], .on_ready = on_ready, .owner = f};
        peer[i] = fd[1];
        assert_int_equal(ek_watch_start(f->loop, &f->w[i], EK_READABLE), 0);
    }
}

static void close_pairs(struct fixture *f, const int peer[2])
{
    for (int i = 0; i < 2; i++) {
        ek_watch_stop(&f->w[i]);
        close(f->w[i].fd);
        close(peer[i]);
    }
}

static void watches_tell_what_is_ready(void **state)
{
    struct fixture *f = *state;
    int peer[2];
    make_pairs(f, peer, read_one);
    assert_int_equal(write(peer[1], "ab", 2), 2);
    for (int i = 0; i < 10 && f->ready[1] < 2; i++)
        run_for(f->loop, 2000);
    assert_int_equal(f->ready[0], 0);
    assert_int_equal(f->ready[1], 2);
    assert_int_equal(f->events, EK_READABLE);
    assert_int_equal(ek_watch_change(&f->w[0], EK_WRITABLE), 0);
    f->events = 0;
    run_for(f->loop, 1000);
    assert_int_equal(f->events, EK_WRITABLE);
    close_pairs(f, peer);
}

static void a_stopped_watch_is_not_called_even_when_it_was_ready(void **state)
{
    struct fixture *f = *state;
    int peer[2];
    make_pairs(f, peer, stop_both);
    assert_int_equal(write(peer[0], "a", 1), 1);
    assert_int_equal(write(peer[1], "a", 1), 1);
    run_for(f->loop, 2000);
    assert_int_equal(f->ready[0] + f->ready[1], 1);
    close_pairs(f, peer);
}

static void stop_on_hangup(struct ek_watch *w, int events)
{
    struct fixture *f = w->owner;
    f->events |= events;
    ek_watch_stop(w);
}

static void a_half_close_is_told_when_asked_for_and_a_full_one_always(void **state)
{
    struct fixture *f = *state;
    int peer[2];
    make_pairs(f, peer, stop_on_hangup);
    assert_int_equal(ek_watch_change(&f->w[0], EK_HANGUP), 0);
    assert_int_equal(ek_watch_change(&f->w[1], 0), 0);
    assert_int_equal(shutdown(peer[1], SHUT_WR), 0);
    run_for(f->loop, 1000);
    assert_int_equal(f->events, 0);
    assert_int_equal(shutdown(peer[0], SHUT_WR), 0);
    run_for(f->loop, 1000);
    assert_int_equal(f->events, EK_HANGUP);
    f->events = 0;
    assert_int_equal(shutdown(peer[1], SHUT_RD), 0);
    run_for(f->loop, 1000);
    assert_int_equal(f->events, EK_HANGUP);
    close_pairs(f, peer);
}

static void watching_nothing_is_an_error(void **state)
{
    struct fixture *f = *state;
    f->w[0] = (struct ek_watch){.fd = -1, .on_ready = read_one, .owner = f};
    assert_int_equal(ek_watch_start(f->loop, &f->w[0], EK_READABLE), EK_EIO);
    ek_watch_stop(&f->w[0]);
}

/* Other threads ---------------------------------------------------------------- */

struct mail {
    struct ek_loop *loop;
    int value; /* written before the wake, read after it: the eventfd orders them */
};

static void *wake_thread(void *arg)
{
    struct mail *m = arg;
    m->value = 42;
    for (int i = 0; i < 1000; i++)
        ek_loop_wake(m->loop);
    return NULL;
}

static void *stop_thread(void *arg)
{
    struct mail *m = arg;
    usleep(2000);
    m->value = 7;
    ek_loop_stop(m->loop);
    return NULL;
}

static void stop_on_wake(void *arg)
{
    struct fixture *f = arg;
    f->n_wakes++;
    ek_loop_stop(f->loop);
}

static void another_thread_wakes_the_loop(void **state)
{
    struct fixture *f = *state;
    struct mail m = {.loop = f->loop};
    pthread_t t;
    ek_loop_on_wake(f->loop, stop_on_wake, f);
    assert_int_equal(pthread_create(&t, NULL, wake_thread, &m), 0);
    assert_int_equal(ek_loop_run(f->loop, NULL), 0);
    /* The turn that sees the stop may see a later wake, too. */
    assert_in_range(f->n_wakes, 1, 2);
    assert_int_equal(m.value, 42);
    assert_int_equal(pthread_join(t, NULL), 0);
}

static void another_thread_stops_the_loop(void **state)
{
    struct fixture *f = *state;
    struct mail m = {.loop = f->loop};
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, stop_thread, &m), 0);
    assert_int_equal(ek_loop_run(f->loop, NULL), 0);
    assert_int_equal(m.value, 7);
    assert_int_equal(pthread_join(t, NULL), 0);
}

static void a_stop_before_the_run_is_not_lost(void **state)
{
    struct fixture *f = *state;
    ek_loop_stop(f->loop);
    ek_loop_stop(f->loop);
    assert_int_equal(ek_loop_run(f->loop, NULL), 0);
    int64_t before = ek_clock_us();
    run_for(f->loop, 3000); /* and does not count twice */
    assert_true(ek_clock_us() - before >= 3000);
}

static void many_wakes_are_one_call(void **state)
{
    struct fixture *f = *state;
    ek_loop_on_wake(f->loop, stop_on_wake, f);
    for (int i = 0; i < 10; i++)
        ek_loop_wake(f->loop);
    assert_int_equal(ek_loop_run(f->loop, NULL), 0);
    assert_int_equal(f->n_wakes, 1);
}

/* A signal handler has no argument; the pointer is set before the signal is raised. */
static struct ek_loop *signal_loop;

static void on_signal(int signo)
{
    (void)signo;
    ek_loop_stop(signal_loop);
}

static void raise_signal(struct ek_timer *t)
{
    (void)t;
    raise(SIGUSR1);
}

static void a_signal_handler_may_stop_the_loop(void **state)
{
    struct fixture *f = *state;
    struct sigaction sa = {.sa_handler = on_signal}, old;
    signal_loop = f->loop;
    assert_int_equal(sigaction(SIGUSR1, &sa, &old), 0);
    ek_timer_init(&f->timers[0], f->loop, raise_signal, NULL);
    assert_int_equal(ek_timer_start(&f->timers[0], 1000), 0);
    assert_int_equal(ek_loop_run(f->loop, NULL), 0);
    assert_int_equal(sigaction(SIGUSR1, &old, NULL), 0);
}

/* Failure ---------------------------------------------------------------------- */

static void a_failed_allocation_leaves_the_loop_as_it_was(void **state)
{
    (void)state;
    EK_EACH_FAILURE (k) {
        struct ek_loop *loop = NULL;
        struct ek_timer t[20];
        int rc = ek_loop_new(&loop, NULL), n = 0;
        for (int i = 0; i < 20 && !rc; i++) {
            ek_timer_init(&t[i], loop, stop_loop, NULL);
            rc = ek_timer_start(&t[i], 0);
            n += rc == 0;
        }
        ek_assert_rc(rc);
        for (int i = 0; i < n; i++)
            assert_int_equal(t[i].slot >= 0, 1);
        if (n > 0)
            assert_int_equal(ek_loop_run(loop, NULL), 0);
        ek_loop_free(loop);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(timers_fire_in_order_whatever_was_moved_and_stopped),
        T(a_hastened_timer_is_never_put_off),
        T(a_timer_that_restarts_itself_starves_nobody),
        T(no_wait_outlasts_a_timer_that_was_moved_since_the_last),
        T(a_far_timer_does_not_overflow),
        T(watches_tell_what_is_ready),
        T(a_stopped_watch_is_not_called_even_when_it_was_ready),
        T(a_half_close_is_told_when_asked_for_and_a_full_one_always),
        T(watching_nothing_is_an_error),
        T(another_thread_wakes_the_loop),
        T(another_thread_stops_the_loop),
        T(a_stop_before_the_run_is_not_lost),
        T(many_wakes_are_one_call),
        T(a_signal_handler_may_stop_the_loop),
        T(a_failed_allocation_leaves_the_loop_as_it_was),
    };
    return cmocka_run_group_tests_name("net/loop", tests, NULL, NULL);
}
