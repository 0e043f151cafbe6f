/* run.h - a server under load: requests are sent as a workload says, and what their
 * clients see is counted.
 *
 * Open loop (a rate, or a trace's times): requests are sent when they are due, whether
 * or not earlier ones were answered, and every time is measured from when a request was
 * due. A server that stalls, or a client that is late, is seen in the numbers instead
 * of thinning out the load ("coordinated omission"). Closed loop: so many requests are
 * always under way, and times are measured from sending.
 */
#ifndef EVENKEEL_LOAD_RUN_H
#define EVENKEEL_LOAD_RUN_H

#include "load/client.h"
#include "load/hist.h"
#include "load/prompt.h"
#include "load/workload.h"

#include <jansson.h>

struct ek_load_slo { /* ms; 0: not asked for */
    double ttft_ms, tpot_ms, e2e_ms;
};

struct ek_load_options {
    const char *model;
    bool is_chat; /* /v1/chat/completions, else /v1/completions */
    bool ignore_eos;
    double temperature;
    const json_t *extra; /* object, members of each request's body; NULL: none */
    struct ek_workload_options workload;
    double block_tokens; /* of a hash of the trace */
    struct ek_prompt_scale scale;
    bool is_open;
    int64_t concurrency; /* closed loop: kept under way; open: the most under way, what
                             is due waits and its waiting counts */
    int64_t duration_us; /* no request is sent or due after it; 0: no end */
    struct ek_load_slo slo;
    bool (*is_stopped)(void); /* asked ten times a second */
    /* Told ten times a second; may be NULL. */
    void (*on_tick)(void *arg, uint64_t n_done, uint64_t n_running, int64_t us);
    void *tick_arg;
};

#define EK_LOAD_ERRORS 8

struct ek_load_error {
    char text[256];
    uint64_t n;
};

struct ek_load_result {
    uint64_t n_sent;
    uint64_t n_ok;         /* whole answers of status 200 */
    uint64_t n_empty;      /* of those: without any text, in no distribution but e2e */
    uint64_t n_429, n_503; /* refused */
    uint64_t n_failed;     /* all others that ended */
    uint64_t n_unfinished; /* cut off by Ctrl-C */
    uint64_t n_no_usage;   /* of n_ok: answers that told no usage */
    uint64_t n_shortened;  /* of n_sent: max_tokens cut the trace's lengths */
    uint64_t n_good;       /* of n_ok: within the SLO */
    uint64_t peak;         /* most under way at once */
    /* Tokens of n_ok, as the server counts them; answers without usage count their
     * events with text. */
    int64_t n_prompt, n_output, n_cached;
    int64_t n_prompt_asked, n_output_asked; /* of n_ok, as wanted */
    int64_t span_us;                        /* from the first request to the last end */
    int64_t cpu_us;                         /* this process's, in that time */
    struct ek_hist ttft;                    /* to the first text */
    struct ek_hist first;                   /* to the first event of any kind */
    struct ek_hist
        tpot;           /* (e2e - ttft) / (n_output - 1), answers of 2 tokens or more */
    struct ek_hist itl; /* every gap between two events with text */
    struct ek_hist e2e; /* to the end of the answer */
    struct ek_hist late; /* open loop: how far behind its schedule the client sent */
    struct ek_load_error errors[EK_LOAD_ERRORS]; /* the first kinds */
    size_t n_errors;
    bool is_interrupted; /* is_stopped said so */
    bool is_server_gone; /* EK_LOAD_GONE requests in a row got no answer */
};

#define EK_LOAD_GONE 20

/* Sends the whole workload and fills *r, which the caller zeroed. What servers do wrong
 * is counted, not an error. Errors: EK_ENOMEM, EK_EIO (the loop), EK_ELIMIT (a prompt
 * over 64 MiB); *r is then as far as it came. */
int ek_load_run(struct ek_load_result *r, struct ek_client *client,
                struct ek_loop *loop, const struct ek_load_options *o,
                struct ek_err *err) EK_MUST_USE;

/* Finds out what a prompt of words costs in tokens: two short answers, the second to a
 * prompt of about n_tokens (at most 2048). Errors: EK_EIO (the server's sentence, or it
 * tells no usage), EK_ECANCELED, EK_ENOMEM. */
int ek_load_calibrate(struct ek_prompt_scale *scale, struct ek_client *client,
                      const struct ek_load_options *o, int64_t n_tokens,
                      struct ek_err *err) EK_MUST_USE;

/* The first model the server lists (model[0,cap)), and its max_model_len or 0. With
 * `wanted` not NULL that one, listed or not. Errors: EK_EIO, EK_EFORMAT, EK_ECANCELED,
 * EK_ENOMEM. */
int ek_load_find_model(char *model, size_t cap, int64_t *max_len,
                       struct ek_client *client, const char *wanted,
                       struct ek_err *err) EK_MUST_USE;

#endif
