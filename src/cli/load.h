/* load.h - keel bench serve behind its options: the run, and its reports. */
#ifndef EVENKEEL_CLI_LOAD_H
#define EVENKEEL_CLI_LOAD_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* In the order of --endpoint's choices. */
enum ek_load_endpoint { EK_ENDPOINT_CHAT, EK_ENDPOINT_COMPLETIONS };

/* The flags, by their names; 0 and NULL where the table says so. */
struct ek_load_settings {
    const char *url, *model_name, *api_key_file, *ca_file, *trace, *slo, *body;
    const char *svg, *json;
    const char *api_key; /* of the environment; NULL: none */
    int endpoint;        /* enum ek_load_endpoint */
    int64_t prompt_tokens, output_tokens, max_tokens;
    int64_t concurrency, requests, duration_ms, timeout_ms, warm_up, seed;
    double rate, burstiness, scale, length_scale, temperature;
    bool ignore_eos, calibrate;
};

/* Measures and writes the reports. *is_input tells whether a failure is an input
 * file's; *is_interrupted that Ctrl-C ended the run, after which the reports were still
 * written. Errors: EK_EINVAL (a setting), those of the trace, key and report files,
 * EK_EIO when no request was answered or the server went away in the middle (the
 * reports are written first), EK_ECANCELED, EK_ENOMEM; each with its sentence. */
int ek_load_bench(const struct ek_load_settings *set, bool *is_input,
                  bool *is_interrupted, struct ek_err *err) EK_MUST_USE;

#endif
