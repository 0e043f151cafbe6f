/* calibrate.h - how strongly each input channel of each matrix is driven by a text.
 *
 * A column's rounding errors reach the output times what goes into that column. Of
 * every input of a block's matrices the mean square over a text's tokens is collected:
 *
 *   m[k] = mean over tokens t of x[t,k]^2
 *
 * The first position of a chunk does not count: its activations are a hundred times
 * those of all others in most models, and say nothing about text. The text is cut into
 * chunks of ctx tokens, each with an empty context and BOS in place of its first id
 * where the tokenizer adds one; the rest behind the last whole chunk is a chunk too.
 * Accumulation: f64, in the order of the text; the same bits with any team.
 */
#ifndef EVENKEEL_LM_CALIBRATE_H
#define EVENKEEL_LM_CALIBRATE_H

#include "lm/model.h"

struct ek_calibration {
    double *sums; /* owned: per layer the inputs of q|k|v, o, gate|up, down */
    float *means; /* owned, the same order */
    int32_t n_layers, C, HD, F;
    int64_t n_tokens; /* counted */
};

enum ek_calibration_input {
    EK_CALIBRATION_QKV,  /* (C) */
    EK_CALIBRATION_O,    /* (HD) */
    EK_CALIBRATION_GLU,  /* (C) gate and up */
    EK_CALIBRATION_DOWN, /* (F) */
};

struct ek_calibrate {
    struct ek_lm *lm;         /* with one copy of its weights */
    struct ek_kv *kv;         /* at least ceil(ctx / EK_PAGE_TOKENS) pages, from 0 on */
    int32_t max_batch_tokens; /* what it was loaded with */
    int32_t ctx;              /* >= 2, at most the model's */
    int32_t bos;              /* -1: none is put first */
    const int32_t *ids;       /* in [0,V) */
    int64_t n_ids;            /* >= 2 */
    bool (*on_chunk)(void *arg, int64_t done, int64_t total); /* false stops; or NULL */
    void *arg;
};

/* Errors: EK_EINVAL ctx or n_ids out of range, with the numbers; EK_ENOMEM;
 * EK_ECANCELED. On error *c is zeroed. */
int ek_calibrate_run(struct ek_calibration *c, const struct ek_calibrate *job,
                     struct ek_err *err) EK_MUST_USE;
void ek_calibration_release(struct ek_calibration *c);

/* The means of an input, each finite and not negative. */
const float *ek_calibration_get(const struct ek_calibration *c, int32_t layer,
                                enum ek_calibration_input in);

#endif
