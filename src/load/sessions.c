#include "load/sessions.h"

#include "load/sessions_int.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Descriptors that are no session; handshakes under way at once while opening, so that
 * no backlog overflows; silence before memory is looked at. */
enum { DESCRIPTORS = 64, AT_ONCE = 128, SILENCE_US = 300000, TICK_US = 100000 };
enum { LATE_US = 1000000 }; /* how long the last echoes are waited for */

/* What a frame says of itself, first in its payload. */
struct stamp {
    int64_t due_us, sent_us;
    uint32_t slot, number;
};

void ek_sessions_fail(struct ek_sessions *run, int rc)
{
    if (!run->rc)
        run->rc =
            ek_err_set(run->err, rc, "the load generator: %s", ek_status_text(rc));
    if (!run->is_over)
        ek_loop_stop(run->loop);
    run->is_over = true;
}

static void end_run(struct ek_sessions *run)
{
    if (!run->is_over)
        ek_loop_stop(run->loop);
    run->is_over = true;
}

/* on_step follows after delay_us. */
static void step_in(struct ek_sessions *run, int64_t delay_us,
                    void (*on_step)(struct ek_sessions *run))
{
    run->on_step = on_step;
    if (ek_timer_start(&run->step, delay_us))
        ek_sessions_fail(run, EK_ENOMEM);
}

static void on_step_time(struct ek_timer *t)
{
    struct ek_sessions *run = t->owner;
    run->on_step(run);
}

static bool look(struct ek_sessions *run, struct ek_process_use *u, bool has_memory)
{
    int rc = ek_processes_read(u, &run->o->processes, has_memory, run->err);
    if (rc) {
        run->rc = rc;
        end_run(run);
    }
    return !rc;
}

static bool is_churn(const struct ek_sessions *run)
{
    return run->o->mode == EK_SESSIONS_CHURN;
}

static bool counts(const struct ek_sessions *run, int64_t at_us)
{
    return run->from_us && at_us >= run->from_us && (!run->to_us || at_us < run->to_us);
}

static void count_error(struct ek_sessions_result *r, const char *text)
{
    size_t i = 0;
    while (i < r->n_errors && strncmp(r->errors[i].text, text, 159) != 0)
        i++;
    if (i == EK_SESSIONS_ERRORS)
        return;
    if (i == r->n_errors) {
        snprintf(r->errors[i].text, sizeof r->errors[i].text, "%.159s", text);
        r->n_errors++;
    }
    r->errors[i].n++;
}

/* Frames ------------------------------------------------------------------- */

int ek_slot_say(struct ek_slot *s, int64_t due_us)
{
    struct ek_sessions *run = s->run;
    size_t n = (size_t)run->o->frame_bytes;
    uint8_t *payload = run->frame + EK_WS_HEAD_MAX;
    struct stamp stamp = {due_us, ek_clock_us(), s->index, s->n_said};
    memcpy(payload, &stamp, sizeof stamp);
    memcpy(payload + sizeof stamp, run->pattern, n - sizeof stamp);
    int rc = run->talk->say(s, payload, n);
    bool is_counted = run->is_talking && counts(run, due_us);
    if (rc == EK_EAGAIN) {
        run->r->n_blocked += is_counted;
        return 0;
    }
    if (rc)
        return rc;
    s->n_said++;
    run->r->n_sent += is_counted;
    if (is_counted)
        ek_hist_add(&run->r->late, (stamp.sent_us - due_us) * 1000);
    return 0;
}

int ek_slot_heard(struct ek_slot *s, const uint8_t *payload, size_t n)
{
    struct ek_sessions *run = s->run;
    struct stamp stamp;
    int64_t now = ek_clock_us();
    bool is_right = n == (size_t)run->o->frame_bytes && s->n_heard < s->n_said;
    if (is_right) {
        memcpy(&stamp, payload, sizeof stamp);
        is_right = stamp.slot == s->index && stamp.number == s->n_heard &&
                   !memcmp(payload + sizeof stamp, run->pattern, n - sizeof stamp);
    }
    if (!is_right) {
        run->r->n_wrong++;
        return EK_EFORMAT;
    }
    s->n_heard++;
    if (s->state != EK_SLOT_OPENING && counts(run, stamp.due_us)) {
        run->r->n_echoed++;
        ek_hist_add(&run->r->trip, (now - stamp.due_us) * 1000);
    }
    bool goes_on = run->is_talking && run->o->interval_us == 0;
    return goes_on ? ek_slot_say(s, now) : 0;
}

/* The frame of a session that is over if it cannot be said. */
static void say_or_end(struct ek_slot *s, int64_t due_us)
{
    int rc = s->state == EK_SLOT_OPEN ? ek_slot_say(s, due_us) : 0;
    if (!rc)
        return;
    s->run->talk->drop(s);
    ek_slot_ended(s, "the connection broke");
}

static int64_t next_due_us(const struct ek_sessions *run)
{
    return run->begin_us + run->n_due * run->o->interval_us / run->o->n;
}

static void on_alarm(struct ek_watch *w, int events)
{
    struct ek_sessions *run = w->owner;
    (void)events;
    /* A burst is one read's worth: echoes are read in between. */
    for (int i = 0; i < 64 && run->is_talking; i++) {
        int64_t due = next_due_us(run);
        if (due > ek_clock_us())
            break;
        struct ek_slot *s = &run->slots[run->next];
        run->next = run->next + 1 == (size_t)run->o->n ? 0 : run->next + 1;
        run->n_due++;
        say_or_end(s, due);
    }
    struct itimerspec at = {{0, 0}, {0, 0}}; /* of zeroes: stopped */
    if (run->is_talking) {
        int64_t due = next_due_us(run);
        at.it_value.tv_sec = due / 1000000;
        at.it_value.tv_nsec = due % 1000000 * 1000 + 1;
    }
    timerfd_settime(run->alarm.fd, TFD_TIMER_ABSTIME, &at, NULL);
}

/* Sessions ----------------------------------------------------------------- */

/* False: its connection takes no more streams for now; s is free, to be tried again. */
static bool begin(struct ek_slot *s)
{
    struct ek_sessions *run = s->run;
    char why[96];
    s->n_said = s->n_heard = 0;
    s->start_us = ek_clock_us();
    s->state = EK_SLOT_OPENING;
    int rc = run->talk->start(s);
    if (rc == EK_EBUSY && !run->busy_us)
        run->busy_us = s->start_us;
    if (rc == EK_EBUSY &&
        (is_churn(run) || s->start_us - run->busy_us < run->o->timeout_us)) {
        s->state = EK_SLOT_FREE;
        return false;
    }
    if (!rc)
        run->busy_us = 0;
    if (rc == EK_ENOMEM) {
        s->state = EK_SLOT_FREE;
        ek_sessions_fail(run, rc);
    } else if (rc) {
        snprintf(why, sizeof why, "cannot connect: %.60s",
                 rc == EK_EBUSY ? "the connections take no more streams"
                                : strerror(errno));
        ek_slot_ended(s, why);
    }
    return true;
}

void ek_slot_opened(struct ek_slot *s)
{
    struct ek_sessions *run = s->run;
    s->state = EK_SLOT_OPEN;
    run->r->n_open++;
    run->n_failed_in_row = 0;
    if (is_churn(run)) {
        run->talk->end(s);
        return;
    }
    run->n_settled++;
    run->r->n_opened++;
    ek_hist_add(&run->r->opening, (ek_clock_us() - s->start_us) * 1000);
}

/* An end that was asked for: CHURN's. */
static void count_churn(struct ek_sessions *run, const struct ek_slot *s)
{
    if (!counts(run, s->start_us))
        return;
    run->r->n_opened++;
    ek_hist_add(&run->r->opening, (ek_clock_us() - s->start_us) * 1000);
}

void ek_slot_ended(struct ek_slot *s, const char *why)
{
    struct ek_sessions *run = s->run;
    bool was_opening = s->state == EK_SLOT_OPENING;
    s->state = EK_SLOT_FREE;
    if (run->is_over)
        return;
    run->r->n_open -= !was_opening;
    if (!why) {
        count_churn(run, s);
        begin(s);
        return;
    }
    count_error(run->r, why);
    if (!was_opening) {
        run->r->n_dropped++;
        return;
    }
    run->r->n_failed++;
    run->n_failed_in_row++;
    run->n_settled += !is_churn(run);
}

/* The ten-a-second round: what takes too long, what is to be tried again. */
static void look_after(struct ek_sessions *run)
{
    int64_t now = ek_clock_us();
    for (size_t i = 0; i < run->n_begun && !run->is_over; i++) {
        struct ek_slot *s = &run->slots[i];
        bool is_under_way = s->state == EK_SLOT_OPENING || s->state == EK_SLOT_ENDING;
        if (is_under_way && now - s->start_us > run->o->timeout_us) {
            run->talk->drop(s);
            ek_slot_ended(s, s->state == EK_SLOT_OPENING ? "not answered in time"
                                                         : "not ended in time");
        }
        if (is_churn(run) && s->state == EK_SLOT_FREE)
            begin(s);
    }
    /* Nobody is there: a second lot would say the same. */
    if (is_churn(run) && run->n_failed_in_row > 20 + 2 * (uint64_t)run->o->n)
        end_run(run);
}

static void on_tick(struct ek_timer *t)
{
    struct ek_sessions *run = t->owner;
    if (run->o->is_stopped && run->o->is_stopped()) {
        run->r->is_interrupted = true;
        end_run(run);
    }
    if (is_churn(run) || run->n_settled < run->n_begun)
        look_after(run);
    if (!run->is_over && ek_timer_start(&run->tick, TICK_US))
        ek_sessions_fail(run, EK_ENOMEM);
}

/* Phases ------------------------------------------------------------------- */

static void finish(struct ek_sessions *run)
{
    if (look(run, &run->r->after, true))
        end_run(run);
}

static void wait_for_echoes(struct ek_sessions *run)
{
    bool is_done = run->r->n_echoed >= run->r->n_sent;
    if (is_done || ek_clock_us() > run->wait_until_us)
        step_in(run, SILENCE_US, finish);
    else
        step_in(run, 20000, wait_for_echoes);
}

/* What counts is over. */
static void stop_counting(struct ek_sessions *run)
{
    struct ek_process_use u;
    int64_t now = ek_clock_us();
    run->to_us = now;
    /* What came due while this thread had no processor is of the span, too; a pace that
     * it cannot keep leaves more than can be said. */
    while (run->is_talking && run->o->interval_us > 0 && next_due_us(run) < now &&
           ek_clock_us() < now + LATE_US)
        on_alarm(&run->alarm, EK_READABLE);
    run->r->span_us = now - run->from_us;
    run->r->own_cpu_us = ek_process_own_cpu_us() - run->own_cpu_us;
    if (!look(run, &u, false))
        return;
    run->r->cpu_us = u.cpu_us - run->cpu_us;
    run->is_talking = false;
    run->wait_until_us = ek_clock_us() + LATE_US;
    if (run->o->mode == EK_SESSIONS_SPEAKING)
        wait_for_echoes(run);
    else
        finish(run);
}

static void start_counting(struct ek_sessions *run)
{
    struct ek_process_use u;
    if (!look(run, &u, false))
        return;
    run->cpu_us = u.cpu_us;
    run->own_cpu_us = ek_process_own_cpu_us();
    run->from_us = ek_clock_us();
    step_in(run, run->o->duration_us, stop_counting);
}

static void start_talking(struct ek_sessions *run)
{
    run->is_talking = true;
    run->begin_us = ek_clock_us();
    step_in(run, run->o->settle_us, start_counting);
    if (run->o->interval_us > 0) {
        on_alarm(&run->alarm, EK_READABLE);
        return;
    }
    for (size_t i = 0; i < run->n_begun; i++)
        say_or_end(&run->slots[i], ek_clock_us());
}

static void all_opened(struct ek_sessions *run)
{
    struct ek_sessions_result *r = run->r;
    if (!look(run, &r->opened, true))
        return;
    r->opening_cpu_us = r->opened.cpu_us - r->before.cpu_us;
    if (r->n_open == 0)
        end_run(run);
    else if (run->o->mode == EK_SESSIONS_IDLE)
        start_counting(run);
    else
        start_talking(run);
}

static void open_more(struct ek_sessions *run);

static void warm_opened(struct ek_sessions *run)
{
    if (!look(run, &run->r->before, true))
        return;
    run->is_warm = true;
    run->begin_us = ek_clock_us();
    run->n_first = run->n_begun;
    open_more(run);
}

/* Sessions that are due by the rate, the warm ones first; then what follows them. */
static void open_more(struct ek_sessions *run)
{
    const struct ek_sessions_options *o = run->o;
    bool is_warm = !run->is_warm;
    size_t target = (size_t)(is_warm ? o->n_warm : o->n);
    int64_t now = ek_clock_us();
    double due =
        (double)run->n_first + (double)(now - run->begin_us) / 1e6 * o->rate + 1;
    while (run->n_begun < target && (double)run->n_begun < due && !run->is_over &&
           run->n_begun - run->n_settled < AT_ONCE) {
        struct ek_slot *s = &run->slots[run->n_begun];
        if (!begin(s))
            break;
        run->n_begun++;
    }
    if (run->is_over)
        return;
    if (run->n_begun < target || run->n_settled < target) {
        step_in(run, 1000, open_more);
        return;
    }
    run->r->opening_us = now - run->begin_us;
    step_in(run, SILENCE_US, is_warm ? warm_opened : all_opened);
}

static void start_churn(struct ek_sessions *run)
{
    if (!look(run, &run->r->before, true))
        return;
    run->r->opened = run->r->before;
    step_in(run, run->o->settle_us, start_counting);
    for (size_t i = 0; i < (size_t)run->o->n && !run->is_over; i++) {
        run->n_begun++;
        begin(&run->slots[i]);
    }
}

static void start_run(struct ek_sessions *run)
{
    run->begin_us = ek_clock_us();
    if (is_churn(run))
        start_churn(run);
    else if (run->o->n_warm > 0)
        open_more(run);
    else
        warm_opened(run);
}

/* Setting up --------------------------------------------------------------- */

static int find_descriptors(const struct ek_sessions_options *o, struct ek_err *err)
{
    struct rlimit limit;
    bool is_shared = o->protocol != EK_SESSIONS_WEBSOCKET;
    rlim_t need = (rlim_t)(is_shared ? o->n_connections : o->n) + DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= need)
        return 0;
    if (limit.rlim_max < need)
        return ek_err_set(err, EK_ELIMIT,
                          "%lld sessions need %llu descriptors, the limit is %llu "
                          "(ulimit -Hn)",
                          (long long)o->n, (unsigned long long)need,
                          (unsigned long long)limit.rlim_max);
    limit.rlim_cur = need;
    if (setrlimit(RLIMIT_NOFILE, &limit))
        return ek_err_set(err, EK_EIO, "the limit of descriptors cannot be raised: %s",
                          strerror(errno));
    return 0;
}

static int check(const struct ek_sessions_options *o, struct ek_err *err)
{
    bool is_http2 = o->protocol == EK_SESSIONS_HTTP2;
    if (is_http2 && o->mode != EK_SESSIONS_CHURN)
        return ek_err_set(err, EK_EINVAL,
                          "requests of HTTP/2 come and go: --protocol http2 needs "
                          "--mode churn");
    if (o->n_warm > o->n)
        return ek_err_set(err, EK_EINVAL, "--warm-up %lld is more than --sessions %lld",
                          (long long)o->n_warm, (long long)o->n);
    if (o->path[0] != '/')
        return ek_err_set(err, EK_EINVAL, "--path: '%.200s' does not begin with /",
                          o->path);
    return find_descriptors(o, err);
}

static int set_up_tls(struct ek_sessions *run, struct ek_err *err)
{
    if (!run->o->has_tls)
        return 0;
    int rc = ek_tls_client_context_new(&run->tls, NULL, true, err);
    if (!rc && run->o->protocol != EK_SESSIONS_WEBSOCKET)
        rc = ek_tls_context_set_alpn(run->tls, "h2");
    return rc;
}

static int set_up_loop(struct ek_sessions *run, struct ek_err *err)
{
    int rc = ek_loop_new(&run->loop, err);
    if (rc)
        return rc;
    ek_timer_init(&run->step, run->loop, on_step_time, run);
    ek_timer_init(&run->tick, run->loop, on_tick, run);
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (fd < 0)
        return ek_err_set(err, EK_EIO, "no timer: %s", strerror(errno));
    run->alarm = (struct ek_watch){.fd = fd, .on_ready = on_alarm, .owner = run};
    rc = ek_watch_start(run->loop, &run->alarm, EK_READABLE);
    if (!rc && run->o->protocol != EK_SESSIONS_WEBSOCKET)
        rc = ek_lanes_new(run);
    if (!rc)
        rc = ek_timer_start(&run->tick, TICK_US);
    return rc ? ek_err_set(err, rc, "the load generator: %s", ek_status_text(rc)) : 0;
}

static int set_up(struct ek_sessions *run, struct ek_err *err)
{
    const struct ek_sessions_options *o = run->o;
    size_t n_frame = (size_t)o->frame_bytes;
    int rc = ek_address_resolve(&run->address, o->address, err);
    if (rc)
        return rc;
    if (!ek_address_host(run->host, o->address))
        snprintf(run->host, sizeof run->host, "localhost");
    run->authority = o->host                                ? o->host
                     : strncmp(o->address, "unix:", 5) != 0 ? o->address
                                                            : "localhost";
    run->talk = o->protocol == EK_SESSIONS_WEBSOCKET ? &ek_talk_websocket : &ek_talk_h2;
    ek_rng_init(&run->rng, o->seed);
    run->slots = ek_calloc((size_t)o->n, sizeof *run->slots);
    run->scratch = ek_alloc(EK_SESSIONS_SCRATCH);
    run->frame = ek_alloc(EK_WS_HEAD_MAX + n_frame);
    run->pattern = ek_alloc(n_frame);
    if (!run->slots || !run->scratch || !run->frame || !run->pattern)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    for (size_t i = 0; i < n_frame; i++)
        run->pattern[i] = (uint8_t)ek_rng_u64(&run->rng);
    for (size_t i = 0; i < (size_t)o->n; i++) {
        run->slots[i].run = run;
        run->slots[i].index = (uint32_t)i;
        run->slots[i].sock.fd = -1;
    }
    rc = set_up_tls(run, err);
    return rc ? rc : set_up_loop(run, err);
}

static void tear_down(struct ek_sessions *run)
{
    run->is_over = true;
    for (size_t i = 0; run->slots && i < run->n_begun; i++) {
        if (run->slots[i].state != EK_SLOT_FREE)
            run->talk->drop(&run->slots[i]);
    }
    ek_lanes_free(run);
    if (run->loop) {
        ek_timer_stop(&run->step);
        ek_timer_stop(&run->tick);
        ek_watch_stop(&run->alarm);
        if (run->alarm.fd > 0)
            close(run->alarm.fd);
        ek_loop_free(run->loop);
    }
    ek_tls_context_free(run->tls);
    ek_free(run->slots);
    ek_free(run->scratch);
    ek_free(run->frame);
    ek_free(run->pattern);
}

int ek_sessions_run(struct ek_sessions_result *r, const struct ek_sessions_options *o,
                    struct ek_err *err)
{
    struct ek_sessions run = {.o = o, .r = r, .err = err};
    int rc = check(o, err);
    if (!rc)
        rc = set_up(&run, err);
    if (!rc) {
        step_in(&run, 0, start_run);
        rc = ek_loop_run(run.loop, err);
    }
    if (!rc)
        rc = run.rc;
    tear_down(&run);
    return rc;
}
