#include "cli/sampling.h"

int ek_sampling_apply(struct ek_request *r, uint64_t *seed,
                      const struct ek_sampling_settings *s, int64_t room,
                      struct ek_err *err)
{
    uint64_t own = (uint64_t)s->seed;
    if (s->seed < 0 && ek_rng_secret(&own, sizeof own))
        return ek_err_set(err, EK_EIO, "the kernel gives no random numbers");
    own &= ((uint64_t)1 << 53) - 1; /* what --seed can repeat */
    r->max_tokens = (int32_t)(s->max_tokens < room ? s->max_tokens : room);
    r->sampling.temperature = (float)s->temperature;
    r->sampling.top_p = (float)s->top_p;
    r->sampling.min_p = (float)s->min_p;
    r->sampling.top_k = (int32_t)s->top_k;
    r->sampling.seed = own;
    *seed = own;
    return 0;
}
