/* policy_effective_capacity.c - the backend with the most room: what it says it can
 * carry, less what was placed there since.
 *
 * While reports are fresh the best of all; when they are old the better of two at
 * random, because old figures would send everybody to the same backend; without them
 * the fewest sessions for its weight. */
#include "route/pool_int.h"

#include <float.h>

static float rank_of(const struct ek_pool *pool, int32_t i)
{
    return ek_shared_f32_get(&pool->ranks[i]);
}

/* The k-th of the rows whose rank is `most`. */
static int32_t find_tie(const struct ek_pool *pool, const struct ek_pick *p, float most,
                        int32_t k)
{
    int32_t end = ek_shared_i32_get(&pool->end);
    for (int32_t i = 0; i < end; i++) {
        if (rank_of(pool, i) == most && !ek_pick_tried(p, i) && k-- == 0)
            return i;
    }
    return -1; /* another thread changed it meanwhile */
}

/* The loop that a decision costs: a load and a comparison a backend. */
static struct ek_choice most_room(struct ek_pool *pool, const struct ek_pick *p)
{
    int32_t end = ek_shared_i32_get(&pool->end), best = -1, n_ties = 0;
    float most = -FLT_MAX; /* over -HUGE_VALF */
    for (int32_t i = 0; i < end; i++) {
        float rank = rank_of(pool, i);
        if (rank < most || ek_pick_tried(p, i))
            continue;
        n_ties = rank == most ? n_ties + 1 : 1;
        best = rank == most && best >= 0 ? best : i;
        most = rank;
    }
    if (n_ties > 1) {
        int32_t k = (int32_t)ek_rng_below(p->rng, (uint64_t)n_ties);
        int32_t tie = k > 0 ? find_tie(pool, p, most, k) : best;
        best = tie >= 0 ? tie : best;
    }
    return (struct ek_choice){best, EK_REASON_MOST_ROOM};
}

static struct ek_choice better_of_two(struct ek_pool *pool, const struct ek_pick *p)
{
    int32_t a = ek_pool_random_row(pool, p);
    int32_t b = a < 0 ? a : ek_pool_random_row(pool, p);
    if (b >= 0 && rank_of(pool, b) > rank_of(pool, a))
        a = b;
    return (struct ek_choice){a, EK_REASON_TWO_CHOICES};
}

struct ek_choice ek_policy_effective_capacity(struct ek_pool *pool,
                                              const struct ek_pick *p)
{
    switch (ek_shared_i32_get(&pool->trust)) {
    case EK_TRUST_FRESH:
        return most_room(pool, p);
    case EK_TRUST_OLD:
        return better_of_two(pool, p);
    default:
        return ek_policy_least_sessions(pool, p);
    }
}
