/* sampler.h - from one row of logits to one token, and to log-probabilities.
 *
 * Order of operations, x being the row:
 *   1  log-probabilities are taken from x as the model gave it
 *   2  x[id] += bias                                        logit_bias
 *   3  x[v] = x[v] / r if x[v] > 0 else x[v] * r            repetition, v in prompt or
 *                                                           answer (Keskar et al. 2019)
 *   4  x[v] -= frequency * count(v) + presence              v in the answer so far
 *   5  end tokens are taken out while the answer may not end (min_tokens,
 *      ignore_eos)
 *   6  temperature < 1e-5: the largest x, the lowest id at a tie; else p = softmax(x/T)
 *   7  min_p    keep p >= min_p * max p
 *   8  top_k    keep the k largest, ties by id
 *   9  top_p    keep the shortest prefix, in descending order, of sum >= top_p
 *               (of what 7 and 8 left, renormalised); at least one token
 *  10  one draw from what is left, renormalised
 * Owner thread: the engine's.
 */
#ifndef EVENKEEL_SERVE_SAMPLER_H
#define EVENKEEL_SERVE_SAMPLER_H

#include "base/arena.h"
#include "base/rng.h"
#include "kernel/ops.h"

#include <stdbool.h>
#include <stdint.h>

#define EK_TOP_LOGPROBS_MAX 20

struct ek_logit_bias {
    int32_t id; /* in [0,V) */
    float bias;
};

/* What a request asks for. Checked by whoever fills it in: ranges as noted. */
struct ek_sampling {
    float temperature;        /* >= 0; under 1e-5: greedy */
    float top_p;              /* (0,1]; 1: off */
    float min_p;              /* [0,1]; 0: off */
    int32_t top_k;            /* 0: off */
    float frequency_penalty;  /* 0: off */
    float presence_penalty;   /* 0: off */
    float repetition_penalty; /* > 0; 1: off */
    const struct ek_logit_bias *bias;
    int32_t n_bias;
    uint64_t seed;
};
void ek_sampling_default(struct ek_sampling *s); /* temperature 1, all else off */

/* Scratch of one thread, shared by all samplers. */
struct ek_sampler_room {
    int32_t V;
    const struct ek_ops *ops;
    float *x;     /* (V) working row, owned */
    float *e;     /* (V) weights exp((x-max)/T), owned */
    int32_t *ids; /* (V) candidates, owned */
    float *max;   /* of each block of the row or of e: kernel/pick.h, owned */
    double *sum;  /* of each block of e, owned */
};
/* Errors: EK_ENOMEM. */
int ek_sampler_room_init(struct ek_sampler_room *r, int32_t V,
                         const struct ek_ops *ops) EK_MUST_USE;
void ek_sampler_room_release(struct ek_sampler_room *r);

/* The state of one sequence. */
struct ek_sampler {
    const struct ek_sampling *how; /* borrowed */
    struct ek_rng rng;
    uint32_t *counts; /* (V) times in the answer; bit 31: in the prompt. NULL when no
                         penalty needs it */
    int32_t *seen;    /* (cap_seen) the ids with counts != 0, in order of coming */
    int32_t n_seen, cap_seen;
    const int32_t *ends; /* ids of step 5, borrowed */
    int32_t n_ends;
};

/* Memory comes from `arena` and only where a penalty is on. prompt ids lie in [0,V);
 * max_tokens is how many the answer may have. seed_offset tells the n choices of a
 * request apart. Errors: EK_ENOMEM. */
int ek_sampler_init(struct ek_sampler *s, const struct ek_sampling *how,
                    uint64_t seed_offset, int32_t V, struct ek_arena *arena,
                    const int32_t *prompt, int32_t n_prompt,
                    int32_t max_tokens) EK_MUST_USE;

/* The next token; it counts as given from now on. `has_no_end`: step 5 applies. The row
 * is not changed. Errors: EK_EFORMAT the row holds NaN or infinity: no token may come
 * of it. No allocation. */
int ek_sampler_next(struct ek_sampler *s, int32_t *id, const float *logits,
                    bool has_no_end, struct ek_sampler_room *room) EK_MUST_USE;

/* Log-probability of `id` in the row as the model gave it, and the n_top most likely
 * tokens in descending order. n_top <= min(V, EK_TOP_LOGPROBS_MAX); top may be NULL
 * with 0. All -inf for a row that holds NaN or infinity. */
struct ek_logprob {
    int32_t id;
    float logprob; /* natural log; never NaN */
};
struct ek_logprob ek_logprobs(struct ek_logprob *top, int32_t n_top,
                              const float *logits, int32_t id,
                              struct ek_sampler_room *room);

#endif
