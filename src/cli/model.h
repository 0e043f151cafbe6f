/* model.h - the options of every verb that runs a model, and opening one with a
 * progress line. */
#ifndef EVENKEEL_CLI_MODEL_H
#define EVENKEEL_CLI_MODEL_H

#include "base/opt.h"
#include "serve/runtime.h"

struct ek_model_settings {
    int64_t threads, ctx;
    int weights, kv_dtype; /* places in their choices */
    int prefill_weights, decode_weights, weights_rule;
};

/* What --weights may be, in the order of enum ek_lm_weights. */
#define EK_WEIGHTS_CHOICES "keep|f32|bf16|fp8|int8|int4"

/* What --prefill-weights and --decode-weights may be. */
#define EK_PHASE_WEIGHTS_CHOICES "same|" EK_WEIGHTS_CHOICES

/* What --kv-dtype may be; ek_model_kv_dtype knows the order. */
#define EK_KV_DTYPE_CHOICES "bf16|f32|fp8"

/* Entries of an options table; `at` is the offset of the struct ek_model_settings. */
#define EK_OPT_MODEL_THREADS(at)                                                       \
    {                                                                                  \
        .name = "threads", .letter = 't', .type = EK_OPT_INT,                          \
        .offset = (at) + offsetof(struct ek_model_settings, threads), .value = "N",    \
        .fallback = "0", .min = 0, .max = 256,                                         \
        .help = "threads that compute; 0: one a physical core"                         \
    }
#define EK_OPT_MODEL_CTX(at)                                                           \
    {                                                                                  \
        .name = "ctx", .letter = 'c', .type = EK_OPT_INT,                              \
        .offset = (at) + offsetof(struct ek_model_settings, ctx), .value = "TOKENS",   \
        .fallback = "0", .min = 0, .max = 1048560,                                     \
        .help = "tokens of prompt and answer together; 0: what the model was made "    \
                "for, at most 8192"                                                    \
    }
#define EK_OPT_MODEL_WEIGHTS(at)                                                       \
    {                                                                                  \
        .name = "weights", .type = EK_OPT_CHOICE,                                      \
        .offset = (at) + offsetof(struct ek_model_settings, weights),                  \
        .fallback = "keep", .choices = EK_WEIGHTS_CHOICES,                             \
        .help = "format to compute with; keep: the nearest to each tensor's own"       \
    }
#define EK_OPT_MODEL_PHASE_WEIGHTS(at)                                                 \
    {.name = "prefill_weights",                                                        \
     .type = EK_OPT_CHOICE,                                                            \
     .offset = (at) + offsetof(struct ek_model_settings, prefill_weights),             \
     .fallback = "same",                                                               \
     .choices = EK_PHASE_WEIGHTS_CHOICES,                                              \
     .help = "format for prompts, as a second copy in memory where it differs; "       \
             "same: as weights"},                                                      \
        {.name = "decode_weights",                                                     \
         .type = EK_OPT_CHOICE,                                                        \
         .offset = (at) + offsetof(struct ek_model_settings, decode_weights),          \
         .fallback = "same",                                                           \
         .choices = EK_PHASE_WEIGHTS_CHOICES,                                          \
         .help = "format for answers, embedding and head; same: as weights"},          \
    {                                                                                  \
        .name = "weights_rule", .type = EK_OPT_CHOICE,                                 \
        .offset = (at) + offsetof(struct ek_model_settings, weights_rule),             \
        .fallback = "phase", .choices = "phase|tokens",                                \
        .help =                                                                        \
            "with two formats; phase: prompts take one and answers the other, and "    \
            "an answer never depends on the batch; tokens: each step takes the "       \
            "faster one for its number of tokens, as measured at start, and "          \
            "answers may depend on the batch in the last digits"                       \
    }
#define EK_OPT_MODEL_KV_DTYPE(at)                                                      \
    {                                                                                  \
        .name = "kv_dtype", .type = EK_OPT_CHOICE,                                     \
        .offset = (at) + offsetof(struct ek_model_settings, kv_dtype),                 \
        .fallback = "fp8", .choices = EK_KV_DTYPE_CHOICES,                             \
        .help = "format of keys and values; fp8 is e4m3, half the bytes of bf16"       \
    }

enum ek_dtype ek_model_kv_dtype(const struct ek_model_settings *s);

/* Sets what the settings say in o, the rest to one sequence at a time. */
void ek_model_options(struct ek_runtime_options *o, const char *path,
                      const struct ek_model_settings *s);

/* "1 token 5.1 and 9.0 ms; ... ; prefill weights from 16 tokens on", what an open
 * runtime measured; "" when it did not. Returns out. */
const char *ek_model_crossover_text(char *out, size_t cap, const struct ek_runtime *rt);

/* ek_runtime_open with a progress line on standard error. */
int ek_model_open(struct ek_runtime *rt, const struct ek_runtime_options *o,
                  struct ek_err *err) EK_MUST_USE;

#endif
