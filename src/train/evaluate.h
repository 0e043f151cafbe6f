/* evaluate.h - full ranking: every item is scored for every sample, and the rank of the
 * one that came is counted (rank.h).
 *
 *   recall@k = [rank <= k]   ndcg@k = [rank <= k] / log2(rank + 1)   mrr@k = [..] / rank
 *
 * filtered: items that the user has in the rows before the target do not compete (the
 * target itself always does); unfiltered: all do. Both come from one pass. A score that
 * is not a number counts as the worst.
 * Click head, over the same samples: log loss in natural units over the entropy of the
 * base rate (1: no better than knowing the rate), and the area under the ROC curve,
 * ties counted half.
 *
 * Threads: one owner, that of the model. The same numbers for any number of threads and
 * any batch; between ISAs scores differ by rounding.
 */
#ifndef EVENKEEL_TRAIN_EVALUATE_H
#define EVENKEEL_TRAIN_EVALUATE_H

#include "base/buf.h"
#include "base/err.h"
#include "rec/model.h"
#include "train/loader.h"

#include <stdint.h>

#define EK_EVAL_CUTS 5
extern const int ek_eval_cuts[EK_EVAL_CUTS]; /* 5 10 20 50 200 */

/* Means over the samples. */
struct ek_ranking {
    double recall[EK_EVAL_CUTS], ndcg[EK_EVAL_CUTS], mrr[EK_EVAL_CUTS];
};

struct ek_evaluation {
    int64_t samples; /* ranked: one a user, or, split by time, one a row */
    struct ek_ranking filtered, unfiltered;
    double normalised_entropy,
        auc; /* of the click head; NAN: none, or one class only */
    double seconds, forward_seconds;
};

struct ek_train_data; /* train/data.h */

struct ek_evaluate {
    struct ek_rec *model; /* a forward graph, for batches of this ceiling; borrowed */
    const struct ek_rec_config *config;
    struct ek_params *params;
    const struct ek_train_data *data; /* NULL: ek_recommend without a log */
    enum ek_part part;                /* VALID or TEST */
    int64_t batch;                    /* sequences of a forward pass */
    struct ek_team *team;
    enum ek_isa isa;
    bool (*should_stop)(void *arg); /* asked behind each batch; NULL: never stops */
    void *arg;
};

/* Errors: EK_EINVAL the part has no sample, or a batch that the model refuses;
 * EK_ECANCELED should_stop said so; EK_ENOMEM.
 * Cost: a forward pass of every sample, and 2 samples n_items dim. */
int ek_evaluate_run(const struct ek_evaluate *o, struct ek_evaluation *out,
                    struct ek_err *err) EK_MUST_USE;

/* Adds what ek_evaluate_run would hold beside model and parameters to *sum; needs no
 * memory of either. Errors: EK_EINVAL the part has no sample, EK_ELIMIT the sum
 * overflows, EK_ENOMEM. */
int ek_evaluate_measure(size_t *sum, const struct ek_evaluate *o,
                        struct ek_err *err) EK_MUST_USE;

/* {"recall@5": ..., ..., "mrr@200": ...} */
int ek_ranking_json(struct ek_buf *out, const struct ek_ranking *r) EK_MUST_USE;

/* What somebody did, in the order of time. */
struct ek_history {
    int64_t n; /* >= 1; the model reads the latest max_length */
    const int32_t *items;
    const int64_t *times; /* (n) microseconds; NULL: unknown, as if all at once */
    int64_t row;          /* of the log where items[0] is, for its columns; -1: unknown,
                             numbers are 0 and categories none */
};

/* The k best items behind a history, best first, at a tie the lower index; without the
 * history's own when is_filtered. items and scores (k). *n: how many there are.
 * Errors: EK_EINVAL an empty history, an item out of range; EK_ENOMEM. */
int ek_recommend(const struct ek_evaluate *o, const struct ek_history *history,
                 bool is_filtered, int32_t *items, float *scores, int64_t k, int64_t *n,
                 struct ek_err *err) EK_MUST_USE;

/* --- parts, for tests ----------------------------------------------------------- */

/* Adds what a rank is worth, in the order of ek_eval_cuts. */
void ek_ranking_add(struct ek_ranking *r, int64_t rank);

struct ek_click {
    float logit;
    bool is_click;
};

/* Of n clicks, which are sorted. *auc, *entropy: NAN when all are of one class. */
void ek_click_measure(struct ek_click *clicks, int64_t n, double *entropy, double *auc);

#endif
