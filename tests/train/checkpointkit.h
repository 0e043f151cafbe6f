/* checkpointkit.h - a small model with both optimizers, its numbers a function of a
 * step: what is loaded can be told to be the state of one step and of no two. */
#ifndef EVENKEEL_TESTS_CHECKPOINTKIT_H
#define EVENKEEL_TESTS_CHECKPOINTKIT_H

#include "train/checkpoint.h"

#include <math.h>
#include <stdbool.h>

struct kit {
    struct ek_params *params;
    struct ek_adamw_state *adamw;
    struct ek_adagrad_state *adagrad;
};

static inline bool kit_init(struct kit *k, int64_t rows)
{
    const struct ek_adamw_options adamw = {0.9f, 0.98f, 1e-8f, 0.1f};
    const struct ek_adagrad_options adagrad = {.eps = 1e-8f, .max_rows = 16};
    const struct ek_param_spec specs[] = {
        {.name = "items",
         .rows = rows,
         .cols = 8,
         .init = EK_INIT_NORMAL,
         .scale = 1,
         .is_table = true},
        {.name = "block.0.w", .rows = 5, .cols = 3, .init = EK_INIT_ONE},
        {.name = "block.0.b", .rows = 1, .cols = 3, .init = EK_INIT_ZERO},
    };
    *k = (struct kit){0};
    int rc = ek_params_new(&k->params, 1, NULL), id;
    for (size_t i = 0; i < sizeof specs / sizeof specs[0] && !rc; i++)
        rc = ek_params_add(k->params, &id, &specs[i], NULL);
    if (!rc)
        rc = ek_adamw_new(&k->adamw, k->params, EK_ISA_REF, &adamw, NULL);
    if (!rc)
        rc = ek_adagrad_new(&k->adagrad, k->params, EK_ISA_REF, &adagrad, NULL);
    return !rc;
}

static inline void kit_release(struct kit *k)
{
    ek_adagrad_free(k->adagrad);
    ek_adamw_free(k->adamw);
    ek_params_free(k->params);
}

/* Number i of an array of the state after `step` steps. */
static inline float kit_number(int64_t step, int array, int64_t i)
{
    return (float)((step * 7919 + array * 104729 + i * 31) % 1000003) / 16;
}

/* Calls each number of the state with what it should be; sets it, or compares: the
 * number of those that differ. */
static inline int64_t kit_each(struct kit *k, int64_t step, bool sets)
{
    int64_t differ = 0;
    for (int id = 0; id < ek_params_count(k->params); id++) {
        struct ek_param *p = ek_params_get(k->params, id);
        float *arrays[] = {p->value, ek_adamw_moment(k->adamw, id, 1),
                           ek_adamw_moment(k->adamw, id, 2),
                           ek_adagrad_sums(k->adagrad, id)};
        for (int a = 0; a < 4; a++) {
            int64_t n = a == 3 ? p->rows : p->rows * p->cols;
            for (int64_t i = 0; arrays[a] && i < n; i++) {
                float want = kit_number(step, 4 * id + a, i);
                if (sets)
                    arrays[a][i] = want;
                else
                    differ += arrays[a][i] != want;
            }
        }
    }
    return differ;
}

static inline struct ek_checkpoint kit_checkpoint(struct kit *k, int64_t step)
{
    return (struct ek_checkpoint){
        .params = k->params,
        .adamw = k->adamw,
        .adagrad = k->adagrad,
        .progress = {.epoch = step / 10,
                     .step = step % 10,
                     .steps = step,
                     .sequences = 128 * step,
                     .tokens = 1000 * step,
                     .seed = UINT64_MAX,
                     .best = step ? 0.1 * (double)step : (double)NAN,
                     .best_step = step,
                     .evals_since_best = 2,
                     .seconds = (double)step / 3,
                     .eval_due = step % 2,
                     .interval = {.loss = 0.3 * (double)step,
                                  .steps = step,
                                  .sequences = 3 * step,
                                  .tokens = 7 * step,
                                  .flops = step << 18,
                                  .seconds = (double)step / 7}},
        .config = "{\"model\": {\"kind\": \"sasrec\"}}\n",
        .data = "a log of 3 \"users\"",
    };
}

/* Puts the state of `step` into k and saves it. */
static inline int kit_save(struct kit *k, const char *folder, int64_t step,
                           struct ek_err *err)
{
    struct ek_checkpoint c = kit_checkpoint(k, step);
    (void)kit_each(k, step, true);
    ek_adamw_set_steps(k->adamw, step);
    return ek_checkpoint_save(folder, &c, err);
}

#endif
