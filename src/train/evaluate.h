/* evaluate.h - full ranking: every item is scored for every user, and the rank of the
 * one that came is counted.
 *
 *   rank = 1 + #{v : s_v > s_target} + #{v < target : s_v = s_target}
 *   recall@k = [rank <= k]   ndcg@k = [rank <= k] / log2(rank + 1)   mrr@k = [..] / rank
 *
 * filtered: items that the user has in the rows before the target do not compete (the
 * target itself always does); unfiltered: all do. Both come from one pass: scores are
 * made a block of users by a block of items (matmul) and only counted, never sorted or
 * kept. Cost: 2 users items dim, and one comparison a score. The same numbers for any
 * number of threads.
 */
#ifndef EVENKEEL_TRAIN_EVALUATE_H
#define EVENKEEL_TRAIN_EVALUATE_H

#include "base/err.h"
#include "rec/model.h"
#include "train/loader.h"

#include <stdint.h>

#define EK_EVAL_CUTS 5
extern const int ek_eval_cuts[EK_EVAL_CUTS]; /* 5 10 20 50 200 */

struct ek_ranking {
    double recall[EK_EVAL_CUTS], ndcg[EK_EVAL_CUTS], mrr[EK_EVAL_CUTS];
};

struct ek_evaluation {
    int64_t users; /* samples ranked */
    struct ek_ranking filtered, unfiltered;
    double normalised_entropy, auc; /* of the click head; NAN: none */
    double seconds, forward_seconds;
};

struct ek_evaluate {
    struct ek_rec *model; /* a forward graph; borrowed */
    const struct ek_rec_config *config;
    struct ek_params *params;
    const struct ek_events *events;
    const struct ek_split *split;
    enum ek_part part; /* VALID or TEST */
    int64_t batch;     /* sequences of a forward pass */
    struct ek_team *team;
    enum ek_isa isa;
};

/* Errors: EK_EINVAL the part has no sample; EK_ENOMEM. */
int ek_evaluate_run(const struct ek_evaluate *o, struct ek_evaluation *out,
                    struct ek_err *err) EK_MUST_USE;

/* The k best items behind a history, best first; without the history's own items when
 * is_filtered. items and scores (k). *n: how many there are. Errors: EK_EINVAL an item
 * out of range, EK_ENOMEM. */
int ek_recommend(const struct ek_evaluate *o, const int32_t *history, int64_t length,
                 bool is_filtered, int32_t *items, float *scores, int64_t k, int64_t *n,
                 struct ek_err *err) EK_MUST_USE;

#endif
