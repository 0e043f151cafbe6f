/* sampling.h - the options by which keel generate and keel chat draw tokens. */
#ifndef EVENKEEL_CLI_SAMPLING_H
#define EVENKEEL_CLI_SAMPLING_H

#include "base/opt.h"
#include "serve/engine.h"

struct ek_sampling_settings {
    double temperature, top_p, min_p;
    int64_t top_k, max_tokens;
    int64_t seed; /* -1: a new one */
};

#define EK_SAMPLING_OPT(at, member)                                                    \
    ((at) + offsetof(struct ek_sampling_settings, member))

/* Entries of an options table; `at` is the offset of the struct
 * ek_sampling_settings. */
#define EK_OPT_SAMPLING(at, temperature_text, max_tokens_text)                         \
    {.name = "max_tokens",                                                             \
     .letter = 'n',                                                                    \
     .type = EK_OPT_INT,                                                               \
     .offset = EK_SAMPLING_OPT(at, max_tokens),                                        \
     .value = "N",                                                                     \
     .fallback = max_tokens_text,                                                      \
     .min = 1,                                                                         \
     .max = 1 << 24,                                                                   \
     .help = "tokens to write at most"},                                               \
        {.name = "temperature",                                                        \
         .type = EK_OPT_REAL,                                                          \
         .offset = EK_SAMPLING_OPT(at, temperature),                                   \
         .value = "T",                                                                 \
         .fallback = temperature_text,                                                 \
         .min = 0,                                                                     \
         .max = 100,                                                                   \
         .help = "0 always takes the likeliest token"},                                \
        {.name = "top_p",                                                              \
         .type = EK_OPT_REAL,                                                          \
         .offset = EK_SAMPLING_OPT(at, top_p),                                         \
         .value = "P",                                                                 \
         .fallback = "0.95",                                                           \
         .min = 1e-6,                                                                  \
         .max = 1,                                                                     \
         .help = "draw from the likeliest tokens that hold this much probability"},    \
        {.name = "top_k",                                                              \
         .type = EK_OPT_INT,                                                           \
         .offset = EK_SAMPLING_OPT(at, top_k),                                         \
         .value = "K",                                                                 \
         .fallback = "40",                                                             \
         .min = 0,                                                                     \
         .max = 1 << 24,                                                               \
         .help = "draw from the K likeliest tokens; 0 is all"},                        \
        {.name = "min_p",                                                              \
         .type = EK_OPT_REAL,                                                          \
         .offset = EK_SAMPLING_OPT(at, min_p),                                         \
         .value = "P",                                                                 \
         .fallback = "0.05",                                                           \
         .min = 0,                                                                     \
         .max = 1,                                                                     \
         .help = "leave out tokens less likely than P times the likeliest"},           \
    {                                                                                  \
        .name = "seed", .type = EK_OPT_INT, .offset = EK_SAMPLING_OPT(at, seed),       \
        .value = "N", .fallback = "-1", .min = -1, .max = 9007199254740992.0,          \
        .help = "seed of the draws; -1 takes a new one"                                \
    }

/* Sets how r samples and how many tokens it may take, `room` at the most; *seed is the
 * one used, which --seed can repeat. Errors: EK_EIO the kernel gives no random seed. */
int ek_sampling_apply(struct ek_request *r, uint64_t *seed,
                      const struct ek_sampling_settings *s, int64_t room,
                      struct ek_err *err) EK_MUST_USE;

#endif
