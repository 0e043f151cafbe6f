/* policy_least_sessions.c - fewest open sessions for its weight, the next one included:
 * of two empty backends the larger. Ties at random. */
#include "route/pool_int.h"

#include <math.h>

struct ek_choice ek_policy_least_sessions(struct ek_pool *pool, const struct ek_pick *p)
{
    int32_t end = ek_shared_i32_get(&pool->end), room = ek_least_room(pool);
    int32_t best = -1, n_ties = 0;
    float least = HUGE_VALF;
    for (int32_t i = 0; i < end; i++) {
        const struct ek_pool_row *row = &pool->rows[i];
        float load =
            (float)(ek_shared_i32_get(&row->open) + 1) * ek_side_inv_weight(pool, i);
        if (load > least || ek_shared_i32_get(&row->room) < room || ek_pick_tried(p, i))
            continue;
        n_ties = load == least ? n_ties + 1 : 1;
        /* The k-th of k ties stays with chance 1/k: each of them in the end. */
        if (n_ties == 1 || ek_rng_below(p->rng, (uint64_t)n_ties) == 0)
            best = i;
        least = load;
    }
    return (struct ek_choice){best, EK_REASON_LEAST_SESSIONS};
}
