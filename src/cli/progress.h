/* progress.h - how far long work is: a line that is rewritten on a terminal, one JSON
 * object a few seconds apart otherwise; both on standard error. */
#ifndef EVENKEEL_CLI_PROGRESS_H
#define EVENKEEL_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct ek_progress {
    const char *what; /* "loading weights"; borrowed */
    bool is_bytes;    /* done and total are bytes, else counts */
    bool is_terminal; /* standard error is one */
    bool is_shown;    /* a line stands on the terminal now */
    int64_t from;     /* done before it began, for the rate; begin sets 0 */
    int64_t start_us;
    int64_t last_us; /* of the latest line; start_us before the first */
};

void ek_progress_begin(struct ek_progress *p, const char *what, bool is_bytes);

/* note: more to say, "perplexity 19.31"; may be NULL. Shown when the last line is old
 * enough. arg is a struct ek_progress, so that the second form is an on_progress. */
void ek_progress_show(struct ek_progress *p, int64_t done, int64_t total,
                      const char *note);
void ek_progress_bytes(void *arg, int64_t done, int64_t total);

/* Wipes the line. Any number of times. */
void ek_progress_end(struct ek_progress *p);

/* From here on Ctrl-C does not end the process at once: ek_interrupt_seen tells that it
 * came; the second one does. Work stops at the next sensible place, exit code 130. */
void ek_interrupt_catch(void);
bool ek_interrupt_seen(void);

/* The same for another signal, for work that leaves something to clean up: SIGTERM. */
void ek_interrupt_catch_also(int signal_number);

#endif
