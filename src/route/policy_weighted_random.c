/* policy_weighted_random.c - at random, by weight * (1 - load): load is the CPU or the
 * utilisation that a fresh report tells, 0 without one. When all are loaded to the full
 * by their own account, by weight alone. */
#include "route/pool_int.h"

static double chance_of(const struct ek_pool *pool, const struct ek_pick *p, int32_t i,
                        bool by_weight)
{
    const struct ek_pool_row *row = &pool->rows[i];
    if (!ek_row_admits(pool, ek_shared_i32_get(&row->room)) || ek_pick_tried(p, i))
        return 0;
    return by_weight ? 1 / (double)ek_side_inv_weight(pool, i)
                     : (double)ek_shared_f32_get(&pool->sides[i].chance);
}

static int32_t draw(const struct ek_pool *pool, const struct ek_pick *p, bool by_weight)
{
    int32_t end = ek_shared_i32_get(&pool->end), last = -1;
    double sum = 0;
    for (int32_t i = 0; i < end; i++)
        sum += chance_of(pool, p, i, by_weight);
    double left = ek_rng_uniform(p->rng) * sum;
    for (int32_t i = 0; i < end; i++) {
        double chance = chance_of(pool, p, i, by_weight);
        if (chance <= 0)
            continue;
        last = i;
        left -= chance;
        if (left < 0)
            break;
    }
    return last;
}

struct ek_choice ek_policy_weighted_random(struct ek_pool *pool,
                                           const struct ek_pick *p)
{
    int32_t i = draw(pool, p, false);
    return (struct ek_choice){i >= 0 ? i : draw(pool, p, true), EK_REASON_RANDOM};
}
