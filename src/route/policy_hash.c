/* policy_hash.c - the same key to the same backend, as long as that one is not over the
 * bound: load <= hash_balance * mean, for its weight.
 *
 * Rendezvous hashing: each backend draws a number from (key, its name), the highest
 * wins; one that goes moves its own keys only, and a key that finds its backend full
 * goes to the same next one every time. There is no ring to keep in step among threads.
 * With weights the draw is weight / -ln(u) (Thaler & Ravishankar 1998; Schindelhauer &
 * Schomaker 2005 for the weights). */
#include "base/rng.h"
#include "route/pool_int.h"

#include <math.h>

static float draw(const struct ek_pool *pool, uint64_t key, int32_t i, bool is_weighted)
{
    uint64_t h = (uint64_t)(uint32_t)ek_shared_i32_get(&pool->sides[i].hash);
    /* 24 bits and a half: within (0, 1). */
    float u = ((float)(ek_mix64(key ^ h * UINT64_C(0x9e3779b97f4a7c15)) >> 40) + 0.5f) *
              0x1p-24f;
    return is_weighted ? -1 / (ek_side_inv_weight(pool, i) * logf(u)) : u;
}

struct ek_choice ek_policy_hash(struct ek_pool *pool, const struct ek_pick *p)
{
    int32_t end = ek_shared_i32_get(&pool->end), own = -1, best = -1;
    bool is_weighted = ek_shared_i32_get(&pool->is_weighted);
    float own_draw = -1, best_draw = -1;
    /* open / weight may come to this with the next session. */
    double sum = fmax(ek_shared_f64_get(&pool->weight_sum), 1e-9);
    double mean = (double)(ek_shared_i64_get(&pool->n_open) + 1) / sum;
    float bound = (float)(ek_shared_f64_get(&pool->hash_balance) * mean);
    for (int32_t i = 0; i < end; i++) {
        const struct ek_pool_row *row = &pool->rows[i];
        int32_t room = ek_shared_i32_get(&row->room);
        if (!ek_row_is_up(room))
            continue;
        float d = draw(pool, p->key, i, is_weighted);
        if (d > own_draw) {
            own_draw = d;
            own = i;
        }
        if (d <= best_draw || !ek_row_admits(pool, room))
            continue;
        /* open < ceil(bound * weight): one may be there however small its share. */
        if ((float)ek_shared_i32_get(&row->open) * ek_side_inv_weight(pool, i) <
                bound &&
            !ek_pick_tried(p, i)) {
            best_draw = d;
            best = i;
        }
    }
    if (best < 0) /* those below the bound are full or were tried */
        return ek_policy_least_sessions(pool, p);
    return (struct ek_choice){best, best == own ? EK_REASON_HASH : EK_REASON_HASH_NEXT};
}
