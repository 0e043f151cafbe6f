#include "serve/worker.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/ring.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define REPORT_EVERY_US 50000

/* What a ring entry points to stands in its low bits, so that a cancel carries a
 * request's address without anybody reading the request: the engine may have finished
 * it, and the loop freed it, while the cancel was under way. */
enum tag {
    TAG_SUBMIT, /* struct ek_request */
    TAG_CANCEL, /* struct ek_request, only compared */
    TAG_DELTA,  /* struct ek_delta: news, or given back */
    TAG_REPORT, /* struct report: news, or given back */
    TAG_QUIT,   /* the worker itself */
    TAG_MASK = 7,
};

/* The engine's figures on their way; one is enough. */
struct report {
    struct ek_engine_stats stats;
};

struct ek_worker {
    struct ek_ring *commands; /* loop -> engine */
    struct ek_ring *news;     /* engine -> loop */
    int wake_fd;              /* eventfd the engine sleeps on */
    pthread_t thread;
    bool is_running; /* the thread was started */
    void (*on_news)(void *arg);
    void *arg;
    /* the loop's */
    int32_t max_choices;
    int32_t n_choices;
    struct ek_engine_stats stats;
    /* the engine thread's */
    struct ek_engine *engine;
    bool is_report_home; /* `report` is the engine's to fill */
    int64_t report_us;   /* when it last left */
    struct report report;
};

static void *tagged(void *p, enum tag tag)
{
    assert(((uintptr_t)p & TAG_MASK) == 0);
    return (char *)p + tag;
}

static void push(struct ek_ring *ring, void *p, enum tag tag)
{
    bool is_in = ek_ring_push(ring, tagged(p, tag));
    assert(is_in); /* sized for all there can be */
    (void)is_in;
}

static void command(struct ek_worker *w, void *p, enum tag tag)
{
    static const uint64_t one = 1;
    push(w->commands, p, tag);
    ssize_t n = write(w->wake_fd, &one, sizeof one);
    (void)n; /* fails only when the counter is full: then it is readable */
}

int ek_worker_new(struct ek_worker **out, int32_t max_choices,
                  void (*on_news)(void *arg), void *arg, struct ek_err *err)
{
    int rc = 0;
    struct ek_worker *w = ek_calloc(1, sizeof *w);
    if (!w)
        return ek_err_set(err, EK_ENOMEM, "no memory for the engine's thread");
    w->wake_fd = -1;
    w->on_news = on_news;
    w->arg = arg;
    w->max_choices = max_choices;
    w->is_report_home = true;
    /* A choice: one delta under way in either direction; a request, of at least one
     * choice: submit and cancel. */
    size_t n = (size_t)max_choices + EK_CHOICES_MAX;
    rc = ek_ring_new(&w->commands, 4 * n + 4);
    if (!rc)
        rc = ek_ring_new(&w->news, 2 * n + 4);
    if (rc) {
        rc = ek_err_set(err, rc, "no memory for the engine's rings");
        goto out;
    }
    w->wake_fd = eventfd(0, EFD_CLOEXEC);
    if (w->wake_fd < 0) {
        rc = ek_err_set(err, EK_EIO, "eventfd: %s", strerror(errno));
        goto out;
    }
    *out = w;
    w = NULL;
out:
    ek_worker_free(w);
    return rc;
}

void ek_worker_free(struct ek_worker *w)
{
    if (!w)
        return;
    if (w->is_running) {
        command(w, w, TAG_QUIT);
        pthread_join(w->thread, NULL);
    }
    ek_engine_free(w->engine);
    ek_ring_free(w->commands);
    ek_ring_free(w->news);
    if (w->wake_fd >= 0)
        close(w->wake_fd);
    ek_free(w);
}

static void report(struct ek_worker *w)
{
    if (!w->is_report_home)
        return;
    w->report.stats = *ek_engine_get_stats(w->engine);
    w->is_report_home = false;
    w->report_us = ek_clock_us();
    push(w->news, &w->report, TAG_REPORT);
    w->on_news(w->arg);
}

void ek_worker_on_delta(void *worker, struct ek_delta *delta)
{
    struct ek_worker *w = worker;
    if (delta->finish != EK_FINISH_NONE)
        report(w); /* whoever sees the end sees figures without this choice */
    push(w->news, delta, TAG_DELTA);
    w->on_news(w->arg);
}

/* Applies what the loop asked for. Returns false when it asked to end. A delta comes
 * back while the next step computes; the token of that step leaves here then, and not
 * with the one after it. */
static bool obey(struct ek_worker *w)
{
    bool has_back = false;
    for (;;) {
        char *entry = ek_ring_pop(w->commands);
        if (!entry)
            break;
        enum tag tag = (enum tag)((uintptr_t)entry & TAG_MASK);
        void *p = entry - tag;
        switch (tag) {
        case TAG_SUBMIT:
            ek_engine_submit(w->engine, p);
            break;
        case TAG_CANCEL:
            ek_engine_cancel(w->engine, p);
            break;
        case TAG_DELTA:
            ek_engine_give_back(w->engine, p);
            has_back = true;
            break;
        case TAG_REPORT:
            w->is_report_home = true;
            break;
        case TAG_QUIT:
        case TAG_MASK:
            return false;
        }
    }
    if (has_back)
        ek_engine_flush(w->engine);
    return true;
}

/* Until there is a command or a deadline is due. */
static void sleep_until_due(struct ek_worker *w)
{
    struct pollfd p = {.fd = w->wake_fd, .events = POLLIN};
    int64_t wake_us = ek_engine_wake_us(w->engine);
    int timeout_ms = -1;
    if (wake_us < INT64_MAX) {
        int64_t ms = (wake_us - ek_clock_us() + 999) / 1000;
        timeout_ms = ms < 0 ? 0 : ms < 60000 ? (int)ms : 60000;
    }
    uint64_t n;
    if (poll(&p, 1, timeout_ms) > 0) {
        ssize_t got = read(w->wake_fd, &n, sizeof n);
        (void)got; /* only resets the counter */
    }
}

static bool is_stale(const struct ek_worker *w)
{
    const struct ek_engine_stats *now = ek_engine_get_stats(w->engine);
    const struct ek_engine_stats *then = &w->report.stats;
    return now->n_running != then->n_running || now->n_waiting != then->n_waiting ||
           (now->n_steps != then->n_steps &&
            ek_clock_us() - w->report_us > REPORT_EVERY_US);
}

static void *serve(void *arg)
{
    struct ek_worker *w = arg;
    while (obey(w)) {
        bool has_moved = ek_engine_step(w->engine);
        if (w->is_report_home && is_stale(w))
            report(w);
        if (!has_moved)
            sleep_until_due(w);
    }
    return NULL;
}

int ek_worker_start(struct ek_worker *w, struct ek_engine *e, struct ek_err *err)
{
    w->engine = e;
    w->stats = w->report.stats = *ek_engine_get_stats(e);
    int code = pthread_create(&w->thread, NULL, serve, w);
    if (code) {
        w->engine = NULL;
        return ek_err_set(err, EK_EIO, "the engine's thread could not be started: %s",
                          strerror(code));
    }
    w->is_running = true;
    return 0;
}

int ek_worker_submit(struct ek_worker *w, struct ek_request *r)
{
    if (w->n_choices >= w->max_choices)
        return EK_EBUSY;
    w->n_choices += r->n; /* at most EK_CHOICES_MAX - 1 over */
    command(w, r, TAG_SUBMIT);
    return 0;
}

void ek_worker_cancel(struct ek_worker *w, struct ek_request *r)
{
    command(w, r, TAG_CANCEL);
}

void ek_worker_give_back(struct ek_worker *w, struct ek_delta *delta)
{
    command(w, delta, TAG_DELTA);
}

struct ek_delta *ek_worker_next(struct ek_worker *w)
{
    for (;;) {
        char *entry = ek_ring_pop(w->news);
        if (!entry)
            return NULL;
        enum tag tag = (enum tag)((uintptr_t)entry & TAG_MASK);
        void *p = entry - tag;
        if (tag == TAG_REPORT) {
            w->stats = ((struct report *)p)->stats;
            command(w, p, TAG_REPORT);
            continue;
        }
        struct ek_delta *d = p;
        w->n_choices -= d->finish != EK_FINISH_NONE;
        return d;
    }
}

int32_t ek_worker_choices(const struct ek_worker *w)
{
    return w->n_choices;
}

const struct ek_engine_stats *ek_worker_stats(const struct ek_worker *w)
{
    return &w->stats;
}
