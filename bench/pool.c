/* pool.c - cost of a decision: a pick and its end, over pools of several sizes.
 *
 *   bench_pool [--rounds N]
 *
 * All backends report, rooms differ as they do in use. Each round is a batch of
 * decisions; best and median, thread CPU time. */
#include "route/pool.h"

#include "args.h"

#include <time.h>

enum { DECISIONS = 500 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void must(bool fact, const char *what)
{
    if (fact)
        return;
    fprintf(stderr, "bench_pool: %s failed\n", what);
    exit(1);
}

static struct ek_pool *make(enum ek_policy policy, int n, struct ek_rng *rng)
{
    struct ek_pool_options o;
    struct ek_pool *pool = NULL;
    ek_pool_options_default(&o);
    o.policy = policy;
    must(!ek_pool_new(&pool, &o), "ek_pool_new");
    for (int i = 0; i < n; i++) {
        char name[16];
        int32_t b;
        snprintf(name, sizeof name, "b%d", i);
        struct ek_backend_spec s = {name, "127.0.0.1:1", 1 + i % 2, 0, 0};
        must(!ek_pool_add(pool, &b, &s, 1), "ek_pool_add");
        struct ek_load_report r = {.has = EK_LOAD_ACTIVE | EK_LOAD_CAPACITY |
                                          EK_LOAD_YOUNG,
                                   .active_sessions = (double)ek_rng_below(rng, 20),
                                   .effective_capacity = 100};
        must(!ek_pool_report(pool, b, &r, 1), "ek_pool_report");
    }
    return pool;
}

static void run(enum ek_policy policy, int n_backends, int n_rounds)
{
    static double seconds[BENCH_MAX_ROUNDS];
    struct ek_rng rng;
    ek_rng_init(&rng, 1);
    struct ek_pool *pool = make(policy, n_backends, &rng);
    for (int r = 0; r < n_rounds; r++) {
        double start = now_s();
        for (int i = 0; i < DECISIONS; i++) {
            struct ek_placement p;
            struct ek_pick pick = {
                .now_us = 1000 + i, .key = ek_rng_u64(&rng), .rng = &rng};
            must(!ek_pool_pick(pool, &pick, &p), "ek_pool_pick");
            ek_placement_end(&p, pick.now_us);
        }
        seconds[r] = now_s() - start;
    }
    bench_sort(seconds, (size_t)n_rounds);
    printf("%-20s %8d %10.0f %10.0f\n", ek_policy_name(policy), n_backends,
           1e9 * seconds[0] / DECISIONS, 1e9 * seconds[n_rounds / 2] / DECISIONS);
    ek_pool_free(pool);
}

int main(int argc, char **argv)
{
    struct bench_args args = {.n_rounds = 101};
    if (!bench_take(&args, argc, argv) || args.json) {
        fprintf(stderr, "usage: bench_pool [--rounds N]   (1 to %d)\n",
                BENCH_MAX_ROUNDS);
        return 2;
    }
    printf("%-20s %8s %10s %10s\n", "policy", "backends", "best ns", "median");
    for (int n = 10; n <= 1000; n *= 10) {
        for (int policy = 0; policy < EK_N_POLICIES; policy++)
            run((enum ek_policy)policy, n, args.n_rounds);
    }
    return 0;
}
