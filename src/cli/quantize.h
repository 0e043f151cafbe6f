/* quantize.h - keel quantize in parts: verb_quantize.c runs, quantize_text.c sends
 * texts through models, quantize_print.c tells. */
#ifndef EVENKEEL_CLI_QUANTIZE_H
#define EVENKEEL_CLI_QUANTIZE_H

#include "lm/perplexity.h"
#include "lm/quantize.h"

struct ek_quantize_settings {
    int to, embed, head; /* places in their choices */
    bool symmetric, asymmetric, force, json, quiet;
    const char *calibrate, *check; /* files, or NULL */
    int64_t ctx, max_bytes, threads;
};

/* Runs IN over the text of settings->calibrate. */
int ek_quantize_calibrate(struct ek_calibration *c, const char *in,
                          const struct ek_quantize_settings *set, struct ek_team *team,
                          struct ek_err *err) EK_MUST_USE;

/* Runs IN and OUT over the text of settings->check, IN as the reference; each in the
 * formats of its own tensors, keys and values in f32. */
int ek_quantize_check(struct ek_score *s, const char *in, const char *out,
                      const struct ek_quantize_settings *set, struct ek_team *team,
                      struct ek_err *err) EK_MUST_USE;

/* What there is to tell; the optional parts may be NULL. */
struct ek_quantize_result {
    const char *in, *out;
    const struct ek_quantize_settings *set;
    const struct ek_quantize_report *report;
    const struct ek_calibration *calibration;
    const struct ek_score *score;
    double seconds; /* of rounding and writing */
};

/* A table, or one JSON object; false: standard output failed. */
bool ek_quantize_print(const struct ek_quantize_result *r) EK_MUST_USE;

#endif
