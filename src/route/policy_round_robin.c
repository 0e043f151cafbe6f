/* policy_round_robin.c - in turn, smoothly weighted: each decision gives every backend
 * its weight, and takes the sum of all weights from the one that has most. One of
 * weight 5 beside two of weight 1 is chosen as a a b a c a a.
 *
 * What a backend has is not kept but follows from the number of decisions and what was
 * taken from it: has = decisions * weight - taken. So one pick writes one row. */
#include "route/pool_int.h"

/* *has, with the next decision counted; no more than two rounds' worth (smooth turns
 * stay below), or one that was full for long would then get all. */
static int32_t richest(const struct ek_pool *pool, const struct ek_pick *p, double *has)
{
    int32_t end = ek_shared_i32_get(&pool->end), best = -1;
    double n = ek_shared_f64_get(&pool->turn_now) + 1;
    double most = 2 * ek_shared_f64_get(&pool->weight_sum);
    for (int32_t i = 0; i < end; i++) {
        const struct ek_pool_row *row = &pool->rows[i];
        if (!ek_row_admits(pool, ek_shared_i32_get(&row->room)) || ek_pick_tried(p, i))
            continue;
        double weight = 1 / (double)ek_side_inv_weight(pool, i);
        double its = n * weight - ek_shared_f64_get(&pool->sides[i].taken);
        its = its < most ? its : most;
        if (best < 0 || its > *has) {
            best = i;
            *has = its;
        }
    }
    return best;
}

struct ek_choice ek_policy_round_robin(struct ek_pool *pool, const struct ek_pick *p)
{
    double has = 0;
    int32_t i = richest(pool, p, &has);
    if (i >= 0) {
        double n = ek_shared_f64_get(&pool->turn_now) + 1;
        double weight = 1 / (double)ek_side_inv_weight(pool, i);
        double left = has - ek_shared_f64_get(&pool->weight_sum);
        ek_shared_f64_set(&pool->sides[i].taken, n * weight - left);
        ek_shared_f64_set(&pool->turn_now, n);
    }
    return (struct ek_choice){i, EK_REASON_TURN};
}
