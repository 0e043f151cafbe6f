/* simulate_rules.c - how peers choose, by what they know, and the oracle, which knows
 * the truth. Ties at random where the peer does so. */
#include "route/simulate_int.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *word;
    bool is_peer;
} rules[EK_SIM_N_RULES] = {[EK_SIM_POOL] = {NULL, false},
#define X(name, word, is_peer) [name] = {word, is_peer},
                           EK_SIM_RULE_TABLE(X)
#undef X
};

bool ek_sim_policy_find(struct ek_sim_policy *p, const char *word)
{
    int pool = ek_policy_find(word);
    if (pool >= 0) {
        bool is_peer = pool != EK_POLICY_EFFECTIVE_CAPACITY;
        *p = (struct ek_sim_policy){EK_SIM_POOL, (enum ek_policy)pool,
                                    ek_policy_name((enum ek_policy)pool), is_peer};
        return true;
    }
    for (int i = EK_SIM_POOL + 1; i < EK_SIM_N_RULES; i++) {
        if (!strcmp(rules[i].word, word)) {
            *p = (struct ek_sim_policy){(enum ek_sim_rule)i, EK_POLICY_LEAST_SESSIONS,
                                        rules[i].word, rules[i].is_peer};
            return true;
        }
    }
    return false;
}

/* What is least of backend i when the session comes to it. */
static double cost_of(const struct ek_sim_world *w, const struct ek_sim_proxy *p,
                      int32_t i, const struct ek_sim_session *s)
{
    const struct ek_sim_backend *b = &w->backends[i];
    const struct ek_sim_heard *h = &p->heard[i];
    double mean, variance;
    switch (w->policy->rule) {
    case EK_SIM_LEAST_RPS:
        return h->starts;
    case EK_SIM_LEAST_CONN:
        return h->open;
    case EK_SIM_LEAST_CPU:
    case EK_SIM_TWO_CPU:
        return h->cpu;
    case EK_SIM_AGENT_CAPACITY: /* as HAProxy: weight 0 has no sessions */
        return h->agent > 0 ? (h->open + 1) / (b->cores * h->agent) : HUGE_VAL;
    case EK_SIM_AGENT: /* weight: cores, by the share that is left, 1 % at least */
        return (h->open + 1) / (b->cores * fmax(1 - fmax(h->cpu, 0), 0.01));
    default:
        mean = b->expected + ek_sim_backend_noise(b) + ek_sim_class_mean(s->class);
        variance = b->variance + ek_sim_class_variance(s->class);
        return (mean - b->cores) / sqrt(fmax(variance, 1e-9));
    }
}

static int32_t random_up(const struct ek_sim_world *w, struct ek_rng *rng)
{
    for (;;) {
        int32_t i = (int32_t)ek_rng_below(rng, (uint64_t)w->n_backends);
        if (w->backends[i].is_up)
            return i;
    }
}

static int32_t least(const struct ek_sim_world *w, struct ek_sim_proxy *p,
                     const struct ek_sim_session *s)
{
    int32_t best = -1, n_ties = 0;
    double lowest = 0;
    for (int32_t i = 0; i < w->n_backends; i++) {
        if (!w->backends[i].is_up)
            continue;
        double cost = cost_of(w, p, i, s);
        if (isinf(cost) || (best >= 0 && cost > lowest))
            continue;
        n_ties = best >= 0 && cost == lowest ? n_ties + 1 : 1;
        if (n_ties == 1 || ek_rng_below(&p->rng, (uint64_t)n_ties) == 0)
            best = i;
        lowest = cost;
    }
    return best;
}

/* Weight rps / utilisation, where rps is told as sessions; a backend without a report
 * has the mean weight. By chance and not by turns, which changes nothing in the
 * mean. */
static int32_t by_weight(const struct ek_sim_world *w, struct ek_sim_proxy *p)
{
    double sum = 0, known = 0, n_known = 0, n_unknown = 0;
    for (int32_t i = 0; i < w->n_backends; i++) {
        const struct ek_sim_heard *h = &p->heard[i];
        if (!w->backends[i].is_up)
            continue;
        bool is_known = h->cpu > 0 && h->rps > 0;
        known += is_known ? h->rps / h->cpu : 0;
        n_known += is_known;
        n_unknown += !is_known;
    }
    double mean = n_known > 0 ? known / n_known : 1;
    double left = ek_rng_uniform(&p->rng) * (known + n_unknown * mean);
    int32_t last = -1;
    for (int32_t i = 0; i < w->n_backends && sum <= left; i++) {
        const struct ek_sim_heard *h = &p->heard[i];
        if (!w->backends[i].is_up)
            continue;
        sum += h->cpu > 0 && h->rps > 0 ? h->rps / h->cpu : mean;
        last = i;
    }
    return last;
}

int32_t ek_sim_choose(struct ek_sim_world *w, struct ek_sim_proxy *p,
                      const struct ek_sim_session *s)
{
    if (w->policy->rule == EK_SIM_WRR)
        return by_weight(w, p);
    if (w->policy->rule != EK_SIM_TWO_CPU)
        return least(w, p, s);
    int32_t a = random_up(w, &p->rng), b = random_up(w, &p->rng);
    return cost_of(w, p, b, s) < cost_of(w, p, a, s) ? b : a;
}
