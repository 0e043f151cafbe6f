/* perplexity.h - how well a model predicts a text, and how far its predictions are from
 * another's.
 *
 * The text's n ids are cut into n/ctx chunks of ctx that do not overlap; what is left
 * over is dropped. Each chunk is a sequence of its own. Where the tokenizer adds BOS,
 * it takes the place of a chunk's first id. Of a chunk the second half is scored: the
 * prediction at positions [ctx/2, ctx-1) of the id that follows, ctx - ctx/2 - 1 of
 * them. That is the method of llama.cpp's perplexity tool.
 *
 *   nll = -ln p(next);  perplexity = exp(mean nll);  its standard error = perplexity *
 *   sqrt((mean nll^2 - (mean nll)^2) / (n - 1))
 *   KL  = sum_v p(v) (ln p(v) - ln q(v)), p the reference, q the model; per position
 * Accumulation: f64, in the order of the text whatever the team.
 */
#ifndef EVENKEEL_LM_PERPLEXITY_H
#define EVENKEEL_LM_PERPLEXITY_H

#include "lm/model.h"

struct ek_score {
    int64_t n;       /* positions scored */
    double nll;      /* sum over them */
    double nll_sq;   /* sum of squares */
    double ref_nll;  /* sum of the reference's; 0 without one */
    double kl;       /* sum; 0 without a reference */
    double kl_sq;    /* sum of squares */
    double kl_max;   /* largest of one position */
    int64_t n_agree; /* positions where both find the same id most likely */
};

/* Adds one position: the row x (V) before id `next`; ref (V) is the reference's row or
 * NULL. Cost: O(V) exponentials. */
void ek_score_add(struct ek_score *s, const float *x, const float *ref, int64_t V,
                  int32_t next);

double ek_score_perplexity(const struct ek_score *s); /* NaN when n == 0 */
double ek_score_error(const struct ek_score *s);      /* of the perplexity; 0: n < 2 */

struct ek_perplexity_model {
    struct ek_lm *lm;
    struct ek_kv *kv; /* at least ceil(ctx / EK_PAGE_TOKENS) pages, used from 0 on */
};

struct ek_perplexity {
    struct ek_perplexity_model model;
    struct ek_perplexity_model ref; /* lm NULL: none; the same vocabulary size */
    struct ek_team *team;           /* the one both were loaded with */
    int32_t max_batch_tokens;       /* what both were loaded with */
    int32_t ctx;                    /* >= 4, <= the models' own */
    int32_t bos;                    /* -1: none is put first */
    const int32_t *ids;             /* in [0,V) */
    int64_t n_ids;                  /* >= ctx */
    /* After each chunk; false stops with EK_ECANCELED. May be NULL. */
    bool (*on_chunk)(void *arg, int64_t done, int64_t total, const struct ek_score *s);
    void *arg;
};

/* Scores the whole text into *s. Errors: EK_EINVAL ctx or n_ids out of range, with the
 * numbers; EK_ENOMEM; EK_ECANCELED (*s holds the chunks done). */
int ek_perplexity_run(struct ek_score *s, const struct ek_perplexity *job,
                      struct ek_err *err) EK_MUST_USE;

#endif
