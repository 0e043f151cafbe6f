/* policy_two_choices.c - of two backends at random the one with fewer open sessions for
 * its weight: what is left of least_sessions when nobody may scan, and safe against
 * herds when figures are old (Mitzenmacher, "How useful is old information?", 2000). */
#include "route/pool_int.h"

static float load_of(const struct ek_pool *pool, int32_t i)
{
    return (float)(ek_shared_i32_get(&pool->rows[i].open) + 1) *
           ek_side_inv_weight(pool, i);
}

struct ek_choice ek_policy_two_choices(struct ek_pool *pool, const struct ek_pick *p)
{
    int32_t a = ek_pool_random_row(pool, p);
    int32_t b = a < 0 ? a : ek_pool_random_row(pool, p);
    if (b >= 0 && load_of(pool, b) < load_of(pool, a))
        a = b;
    return (struct ek_choice){a, EK_REASON_TWO_CHOICES};
}
