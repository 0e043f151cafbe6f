#include "cli/progress.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TERMINAL_INTERVAL_US 100000
#define LOG_INTERVAL_US      5000000
#define LINE_BYTES           4096

/* A signal handler can reach nothing else. */
static volatile sig_atomic_t was_interrupted;

void ek_progress_begin(struct ek_progress *p, const char *what, bool is_bytes)
{
    int64_t now = ek_clock_us();
    *p = (struct ek_progress){.what = what,
                              .is_bytes = is_bytes,
                              .is_terminal = isatty(STDERR_FILENO) != 0,
                              .start_us = now,
                              .last_us = now};
}

static void show_line(struct ek_progress *p, int64_t done, int64_t total,
                      const char *note, double rate)
{
    char a[32], b[32], c[32];
    double left = rate > 0 ? (double)(total - done) / rate : 0;
    if (p->is_bytes)
        fprintf(stderr, "\r\033[K%s: %s of %s, %s/s, %.0f s left", p->what,
                ek_format_bytes(a, (uint64_t)done), ek_format_bytes(b, (uint64_t)total),
                ek_format_bytes(c, (uint64_t)rate), left);
    else
        fprintf(stderr, "\r\033[K%s: %lld of %lld, %.2f/s, %.0f s left", p->what,
                (long long)done, (long long)total, rate, left);
    if (note)
        fprintf(stderr, ", %s", note);
    fflush(stderr);
    p->is_shown = true;
}

static void show_json(const struct ek_progress *p, int64_t done, int64_t total,
                      const char *note, double rate, double seconds)
{
    struct ek_buf b;
    ek_buf_init(&b, LINE_BYTES);
    int rc = note ? ek_buf_add_str(&b, ",\"note\":") : 0;
    if (!rc && note)
        rc = ek_json_add_str(&b, note, strlen(note));
    fprintf(stderr,
            "{\"progress\":\"%s\",\"done\":%lld,\"total\":%lld,\"unit\":\"%s\","
            "\"seconds\":%.1f,\"seconds_left\":%.0f%.*s}\n",
            p->what, (long long)done, (long long)total, p->is_bytes ? "bytes" : "count",
            seconds, rate > 0 ? (double)(total - done) / rate : 0.0,
            rc ? 0 : (int)b.len, b.data ? b.data : "");
    ek_buf_release(&b);
}

void ek_progress_show(struct ek_progress *p, int64_t done, int64_t total,
                      const char *note)
{
    int64_t now = ek_clock_us();
    int64_t interval = p->is_terminal ? TERMINAL_INTERVAL_US : LOG_INTERVAL_US;
    double seconds = (double)(now - p->start_us) / 1e6;
    double rate = seconds > 0 ? (double)(done - p->from) / seconds : 0;
    if (now - p->last_us < interval || total < 1)
        return;
    p->last_us = now;
    if (p->is_terminal)
        show_line(p, done, total, note, rate);
    else
        show_json(p, done, total, note, rate, seconds);
}

void ek_progress_bytes(void *arg, int64_t done, int64_t total)
{
    ek_progress_show(arg, done, total, NULL);
}

void ek_progress_end(struct ek_progress *p)
{
    if (p->is_shown)
        fprintf(stderr, "\r\033[K");
    p->is_shown = false;
}

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    was_interrupted = 1;
}

void ek_interrupt_catch_also(int signal_number)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_interrupt;
    action.sa_flags = (int)SA_RESETHAND; /* the second one ends the process */
    sigaction(signal_number, &action, NULL);
}

void ek_interrupt_catch(void)
{
    ek_interrupt_catch_also(SIGINT);
}

bool ek_interrupt_seen(void)
{
    return was_interrupted != 0;
}
