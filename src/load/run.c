#include "load/run.h"

#include "base/clock.h"
#include "base/mem.h"
#include "load/answer.h"
#include "load/request.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define TICK_US 100000

/* One request under way, or a free one that keeps its memory for the next. */
struct slot {
    struct run *run;
    struct slot *next_free;
    struct ek_call call;
    struct ek_answer answer;
    struct ek_buf body; /* of the request; libcurl reads it */
    struct ek_load_item item;
    int64_t from_us; /* times are measured from here: due, or sent */
};

/* Owner thread: the loop's. */
struct run {
    const struct ek_load_options *o;
    struct ek_load_result *r;
    struct ek_client *client;
    struct ek_loop *loop;
    struct ek_err *err;
    struct ek_workload workload;
    struct slot **slots; /* owned, n_slots of concurrency */
    size_t n_slots, n_running;
    struct slot *free;
    /* The next request is written before it is due, so that sending it is quick. */
    struct slot *next;     /* NULL: there is none any more */
    struct ek_watch alarm; /* a timerfd: the loop's own timers know milliseconds */
    struct ek_timer tick;
    int64_t start_us, cpu_start_us;
    int64_t room_us;    /* when an end last made room where there was none */
    uint64_t n_in_vain; /* requests in a row that got no answer */
    bool is_over;
    int rc;
};

static int64_t cpu_us(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (int64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 +
           u.ru_utime.tv_usec + u.ru_stime.tv_usec;
}

static void end_run(struct run *run)
{
    if (!run->is_over)
        ek_loop_stop(run->loop); /* once: a second would end the loop's next run */
    run->is_over = true;
}

static void fail_run(struct run *run, int rc)
{
    if (!run->rc)
        run->rc =
            ek_err_set(run->err, rc, "the load generator: %s", ek_status_text(rc));
    end_run(run);
}

static void on_gap(void *arg, int64_t us)
{
    ek_hist_add(&((struct run *)arg)->r->itl, us * 1000);
}

static int on_data(struct ek_call *call, const char *p, size_t n, int64_t now_us)
{
    struct slot *s = call->owner;
    struct ek_err err = EK_ERR_INIT;
    int rc = ek_answer_feed(&s->answer, p, n, now_us, &err);
    if (rc)
        snprintf(call->why, sizeof call->why, "%.255s", err.text);
    return rc;
}

static void count_error(struct ek_load_result *r, const char *text)
{
    size_t i = 0;
    while (i < r->n_errors && strncmp(r->errors[i].text, text, 255) != 0)
        i++;
    if (i == EK_LOAD_ERRORS)
        return;
    if (i == r->n_errors) {
        snprintf(r->errors[i].text, sizeof r->errors[i].text, "%.255s", text);
        r->n_errors++;
    }
    r->errors[i].n++;
}

static bool is_within(double limit_ms, double us)
{
    return limit_ms <= 0.0 || us <= limit_ms * 1000.0;
}

/* A whole answer of status 200. */
static void count_answer(struct run *run, const struct slot *s, int64_t end_us)
{
    struct ek_load_result *r = run->r;
    const struct ek_answer *a = &s->answer;
    const struct ek_load_slo *slo = &run->o->slo;
    int64_t n_output = a->n_output >= 0 ? a->n_output : (int64_t)a->n_texts;
    double e2e = (double)(end_us - s->from_us), ttft = 0.0, tpot = 0.0;
    r->n_ok++;
    r->n_no_usage += a->n_output < 0;
    r->n_prompt += a->n_prompt >= 0 ? a->n_prompt : 0;
    r->n_cached += a->n_cached >= 0 ? a->n_cached : 0;
    r->n_output += n_output;
    r->n_prompt_asked += s->item.n_in;
    r->n_output_asked += s->item.n_out;
    ek_hist_add(&r->e2e, (int64_t)(e2e * 1000.0));
    if (a->first_event_us)
        ek_hist_add(&r->first, (a->first_event_us - s->from_us) * 1000);
    if (!a->first_text_us) {
        r->n_empty++;
        return;
    }
    ttft = (double)(a->first_text_us - s->from_us);
    ek_hist_add(&r->ttft, (int64_t)(ttft * 1000.0));
    if (n_output > 1) {
        tpot = (e2e - ttft) / (double)(n_output - 1);
        ek_hist_add(&r->tpot, (int64_t)(tpot * 1000.0));
    }
    r->n_good += is_within(slo->ttft_ms, ttft) && is_within(slo->tpot_ms, tpot) &&
                 is_within(slo->e2e_ms, e2e);
}

static void count_end(struct run *run, const struct slot *s, int64_t now_us)
{
    struct ek_load_result *r = run->r;
    const struct ek_call *call = &s->call;
    struct ek_err err = EK_ERR_INIT;
    run->n_in_vain = call->status ? 0 : run->n_in_vain + 1;
    if (!call->rc && call->status == 200) {
        if (!ek_answer_end(&s->answer, &err)) {
            count_answer(run, s, s->answer.done_us ? s->answer.done_us : now_us);
            return;
        }
    } else {
        ek_call_explain(call, &err);
    }
    if (!call->rc && call->status == 429)
        r->n_429++;
    else if (!call->rc && call->status == 503)
        r->n_503++;
    else
        r->n_failed++;
    count_error(r, err.text);
}

static struct slot *take_slot(struct run *run)
{
    struct slot *s = run->free;
    if (s) {
        run->free = s->next_free;
        return s;
    }
    s = ek_calloc(1, sizeof *s);
    if (!s || ek_call_init(&s->call)) {
        ek_free(s);
        return NULL;
    }
    s->run = run;
    ek_answer_init(&s->answer);
    ek_buf_init(&s->body, EK_REQUEST_BYTES_MAX);
    run->slots[run->n_slots++] = s;
    return s;
}

/* Writes the next request, if there is one. */
static void prepare(struct run *run)
{
    struct ek_load_item item;
    run->next = NULL;
    if (run->is_over || !ek_workload_next(&run->workload, &item))
        return;
    if (run->o->is_open && run->o->duration_us && item.at_us >= run->o->duration_us)
        return;
    struct slot *s = take_slot(run);
    int rc = s ? ek_request_write(&s->body, run->o, &item) : EK_ENOMEM;
    if (rc) {
        fail_run(run, rc);
        return;
    }
    s->item = item;
    run->next = s;
}

static void pump(struct run *run);

static void on_end(struct ek_call *call)
{
    struct slot *s = call->owner;
    struct run *run = s->run;
    int64_t now_us = ek_clock_us();
    if (run->n_running == (size_t)run->o->concurrency)
        run->room_us = now_us;
    run->r->span_us = now_us - run->start_us;
    run->n_running--;
    count_end(run, s, now_us);
    s->next_free = run->free;
    run->free = s;
    if (run->n_in_vain >= EK_LOAD_GONE) {
        run->r->is_server_gone = true;
        end_run(run);
    }
    pump(run);
}

/* Sends the next request and prepares the one behind it. */
static void send_next(struct run *run, int64_t now_us)
{
    struct slot *s = run->next;
    int64_t due_us = run->start_us + s->item.at_us;
    s->from_us = run->o->is_open ? due_us : now_us;
    if (run->o->is_open) {
        int64_t could_us = due_us > run->room_us ? due_us : run->room_us;
        ek_hist_add(&run->r->late, (now_us - could_us) * 1000);
    }
    ek_answer_reset(&s->answer);
    s->answer.on_gap = on_gap;
    s->answer.arg = run;
    s->call.path = ek_request_path(run->o);
    s->call.body = &s->body;
    s->call.on_data = on_data;
    s->call.on_end = on_end;
    s->call.owner = s;
    int rc = ek_client_start(run->client, &s->call);
    if (rc) {
        fail_run(run, rc);
        return;
    }
    run->r->n_sent++;
    run->r->n_shortened += s->item.is_shortened;
    run->n_running++;
    if (run->n_running > run->r->peak)
        run->r->peak = run->n_running;
    prepare(run);
}

static void set_alarm(struct run *run, int64_t at_us)
{
    struct itimerspec when = {
        .it_value = {.tv_sec = at_us / 1000000, .tv_nsec = at_us % 1000000 * 1000}};
    timerfd_settime(run->alarm.fd, TFD_TIMER_ABSTIME, &when, NULL);
}

/* Sends what may be sent now; sets the alarm for what is not due yet. */
static void pump(struct run *run)
{
    while (!run->is_over && run->next && run->n_running < (size_t)run->o->concurrency) {
        int64_t now_us = ek_clock_us();
        int64_t due_us = run->start_us + run->next->item.at_us;
        if (run->o->is_open && due_us > now_us) {
            set_alarm(run, due_us);
            break;
        }
        if (!run->o->is_open && run->o->duration_us &&
            now_us - run->start_us >= run->o->duration_us) {
            run->next = NULL;
            break;
        }
        send_next(run, now_us);
    }
    if (!run->next && run->n_running == 0)
        end_run(run);
}

static void on_alarm(struct ek_watch *w, int events)
{
    uint64_t n;
    (void)events;
    if (read(w->fd, &n, sizeof n) > 0)
        pump(w->owner);
}

static void on_tick(struct ek_timer *t)
{
    struct run *run = t->owner;
    const struct ek_load_options *o = run->o;
    if (o->is_stopped && o->is_stopped()) {
        run->r->is_interrupted = true;
        end_run(run);
        return;
    }
    int rc = ek_client_check(run->client);
    if (rc) {
        fail_run(run, rc);
        return;
    }
    if (o->on_tick)
        o->on_tick(o->tick_arg, run->r->n_sent - run->n_running, run->n_running,
                   ek_clock_us() - run->start_us);
    if (ek_timer_start(t, TICK_US))
        fail_run(run, EK_ENOMEM);
}

static int open_run(struct run *run)
{
    run->slots = ek_calloc((size_t)run->o->concurrency + 1, sizeof(struct slot *));
    run->alarm.fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    run->alarm.on_ready = on_alarm;
    run->alarm.owner = run;
    ek_timer_init(&run->tick, run->loop, on_tick, run);
    if (!run->slots || ek_timer_start(&run->tick, TICK_US))
        return ek_err_set(run->err, EK_ENOMEM, "the load generator: out of memory");
    if (run->alarm.fd < 0 || ek_watch_start(run->loop, &run->alarm, EK_READABLE))
        return ek_err_set(run->err, EK_EIO, "the load generator: %s", strerror(errno));
    return 0;
}

static void close_run(struct run *run)
{
    ek_timer_stop(&run->tick);
    ek_watch_stop(&run->alarm);
    if (run->alarm.fd >= 0)
        close(run->alarm.fd);
    for (size_t i = 0; i < run->n_slots; i++) {
        struct slot *s = run->slots[i];
        ek_call_release(&s->call);
        ek_answer_release(&s->answer);
        ek_buf_release(&s->body);
        ek_free(s);
    }
    ek_free(run->slots);
}

int ek_load_run(struct ek_load_result *r, struct ek_client *client,
                struct ek_loop *loop, const struct ek_load_options *o,
                struct ek_err *err)
{
    struct run run = {
        .o = o, .r = r, .client = client, .loop = loop, .err = err, .alarm.fd = -1};
    ek_workload_init(&run.workload, &o->workload);
    int rc = open_run(&run);
    if (rc)
        goto out;
    prepare(&run);
    run.start_us = run.room_us = ek_clock_us();
    run.cpu_start_us = cpu_us();
    pump(&run);
    rc = ek_loop_run(loop, err);
    if (!rc)
        rc = run.rc;
    r->cpu_us = cpu_us() - run.cpu_start_us;
    r->n_unfinished = run.n_running;
    if (r->is_interrupted)
        r->span_us = ek_clock_us() - run.start_us;
out:
    close_run(&run);
    return rc;
}
