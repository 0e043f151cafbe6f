/* rank.h - the rank of one item among all, for many queries at once; and the best items
 * of one query.
 *
 *   s_v  = h . items[v], or h . items[v] / |items[v]|          an f32 product (gemm.h)
 *   rank = 1 + #{v : s_v > s_target} + #{v < target : s_v = s_target}
 *
 * Scores are made a block of queries by a block of items, counted while they are in the
 * cache, and gone: a thread keeps a block of them, a bit an item and what one query has
 * seen; a query keeps two numbers. The score of the target and of what was seen are made
 * by the same product, bit for bit, so that they can be taken off the count. A target
 * whose score is NaN is last.
 *
 * Threads: one owner; the team works inside a call. The same numbers for any of it.
 * Cost: 2 n n_items dim, and one comparison a score. No allocation after new.
 */
#ifndef EVENKEEL_TRAIN_RANK_H
#define EVENKEEL_TRAIN_RANK_H

#include "base/err.h"
#include "base/team.h"
#include "num/cpu.h"

#include <stdbool.h>
#include <stdint.h>

struct ek_ranker_options {
    const float *items; /* (n_items, dim) borrowed; read in each call */
    int64_t n_items, dim;
    bool is_cosine;
    int64_t max_queries; /* of a call */
    int64_t max_seen;    /* of a query, at most */
    struct ek_team *team;
    enum ek_isa isa;
};

struct ek_rank_query {
    int32_t target; /* in [0, n_items) */
    const int32_t
        *seen; /* (n_seen) what else does not compete, filtered; repeats and the
                            target itself are fine. The same pointer in one call means
                            the same items, longer or shorter */
    int64_t n_seen;
};

struct ek_rank {
    int64_t filtered, unfiltered; /* 1 is the best */
};

struct ek_ranker;

/* Errors: EK_ENOMEM; EK_ELIMIT the sum of what it holds overflows. */
int ek_ranker_new(struct ek_ranker **r, const struct ek_ranker_options *o,
                  struct ek_err *err) EK_MUST_USE;
void ek_ranker_free(struct ek_ranker *r); /* NULL is fine */

/* Adds what a ranker of these options takes to *sum; its items may be NULL. False: it
 * overflows (*sum of no use). */
bool ek_ranker_bytes(size_t *sum, const struct ek_ranker_options *o) EK_MUST_USE;

/* h (n, dim), rows ld apart; out (n); n at most max_queries. */
void ek_ranker_run(struct ek_ranker *r, struct ek_rank *out, const float *h, int64_t ld,
                   const struct ek_rank_query *queries, int64_t n);

/* The best k items of h (dim), best first, at a tie the lower index; without `seen`.
 * Items whose score is NaN are left out. items, scores (k). Returns how many there are.
 * Errors, negative: EK_ENOMEM. Cost: 2 n_items dim, and log k for each that enters. */
int64_t ek_ranker_top(struct ek_ranker *r, int32_t *items, float *scores, int64_t k,
                      const float *h, const int32_t *seen, int64_t n_seen) EK_MUST_USE;

#endif
