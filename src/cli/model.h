/* model.h - the options of every verb that runs a model, and opening one with a
 * progress line. */
#ifndef EVENKEEL_CLI_MODEL_H
#define EVENKEEL_CLI_MODEL_H

#include "base/opt.h"
#include "serve/runtime.h"

struct ek_model_settings {
    int64_t threads, ctx;
    int weights, kv_dtype; /* places in their choices */
};

/* What --weights may be, in the order of enum ek_lm_weights. */
#define EK_WEIGHTS_CHOICES "keep|f32|bf16|fp8|int8|int4"

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
#define EK_OPT_MODEL_KV_DTYPE(at)                                                      \
    {                                                                                  \
        .name = "kv_dtype", .type = EK_OPT_CHOICE,                                     \
        .offset = (at) + offsetof(struct ek_model_settings, kv_dtype),                 \
        .fallback = "bf16", .choices = EK_KV_DTYPE_CHOICES,                            \
        .help = "format of keys and values"                                            \
    }

enum ek_dtype ek_model_kv_dtype(const struct ek_model_settings *s);

/* Sets what the settings say in o, the rest to one sequence at a time. */
void ek_model_options(struct ek_runtime_options *o, const char *path,
                      const struct ek_model_settings *s);

/* ek_runtime_open with a progress line on standard error. */
int ek_model_open(struct ek_runtime *rt, const struct ek_runtime_options *o,
                  struct ek_err *err) EK_MUST_USE;

#endif
