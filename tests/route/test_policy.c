#include "route/pool.h"
#include "testkit.h"

#include <math.h>
#include <stdio.h>

#define SECOND INT64_C(1000000)

/* A pool and what a test knows of it. */
struct kit {
    struct ek_pool *pool;
    struct ek_rng rng;
    int64_t now;
    int n;
};

static void kit_open(struct kit *k, enum ek_policy policy, const double *weights, int n)
{
    struct ek_pool_options o;
    ek_pool_options_default(&o);
    o.policy = policy;
    *k = (struct kit){.now = SECOND, .n = n};
    ek_rng_init(&k->rng, 7);
    assert_int_equal(ek_pool_new(&k->pool, &o), 0);
    for (int i = 0; i < n; i++) {
        char name[16];
        int32_t at;
        snprintf(name, sizeof name, "b%d", i);
        struct ek_backend_spec s = {name, "127.0.0.1:1", weights ? weights[i] : 1, 0,
                                    0};
        assert_int_equal(ek_pool_add(k->pool, &at, &s, k->now), 0);
        assert_int_equal(at, i);
    }
}

static int32_t kit_place(struct kit *k, uint64_t key, struct ek_placement *p)
{
    struct ek_pick pick = {.now_us = k->now, .key = key, .rng = &k->rng};
    return ek_pool_pick(k->pool, &pick, p) ? -1 : p->backend;
}

static void kit_report(struct kit *k, int32_t i, double n, double cap)
{
    struct ek_load_report r = {
        .has = EK_LOAD_ACTIVE | EK_LOAD_CAPACITY | EK_LOAD_YOUNG,
        .active_sessions = n,
        .effective_capacity = cap,
    };
    assert_int_equal(ek_pool_report(k->pool, i, &r, k->now), 0);
}

/* n decisions whose sessions end at once. */
static void kit_count(struct kit *k, int n, int *counts)
{
    for (int i = 0; i < n; i++) {
        struct ek_placement p;
        int32_t b = kit_place(k, (uint64_t)i, &p);
        assert_true(b >= 0);
        counts[b]++;
        ek_placement_end(&p, k->now);
    }
}

static void round_robin_is_smooth_and_weighted(void **state)
{
    (void)state;
    struct kit k;
    char turns[15];
    kit_open(&k, EK_POLICY_ROUND_ROBIN, (const double[]){5, 1, 1}, 3);
    for (int i = 0; i < 14; i++) {
        struct ek_placement p;
        turns[i] = (char)('a' + kit_place(&k, 0, &p));
        ek_placement_end(&p, k.now);
    }
    turns[14] = 0;
    assert_string_equal(turns, "aabacaaaabacaa");
    ek_pool_free(k.pool);
}

static void a_newcomer_gets_its_turn_and_not_all_it_missed(void **state)
{
    (void)state;
    struct kit k;
    int counts[2] = {0};
    kit_open(&k, EK_POLICY_ROUND_ROBIN, NULL, 2);
    ek_pool_set_up(k.pool, 1, false, k.now);
    kit_count(&k, 100, counts);
    assert_int_equal(counts[1], 0);
    ek_pool_set_up(k.pool, 1, true, k.now);
    kit_count(&k, 10, counts);
    assert_int_equal(counts[1], 5);
    ek_pool_free(k.pool);
}

static void a_backend_that_joins_is_filled_first_and_counts_are_kept(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        struct kit k;
        struct ek_placement p[6];
        struct ek_backend_state s;
        struct ek_backend_spec spec = {"c", "127.0.0.1:1", 1, 0, 0};
        int32_t c;
        kit_open(&k, round ? EK_POLICY_LEAST_SESSIONS : EK_POLICY_EFFECTIVE_CAPACITY,
                 NULL, 2);
        for (int i = 0; i < 4; i++)
            assert_true(kit_place(&k, 0, &p[i]) >= 0);
        assert_int_equal(ek_pool_add(k.pool, &c, &spec, k.now), 0);
        assert_int_equal(kit_place(&k, 0, &p[4]), c);
        assert_int_equal(kit_place(&k, 0, &p[5]), c);
        for (int32_t i = 0; i < 3; i++) {
            assert_true(ek_pool_read(k.pool, i, k.now, &s));
            assert_int_equal(s.open_sessions, 2);
        }
        for (int i = 0; i < 6; i++)
            ek_placement_end(&p[i], k.now);
        ek_pool_free(k.pool);
    }
}

static void least_sessions_fill_by_weight(void **state)
{
    (void)state;
    struct kit k;
    struct ek_placement p[70];
    int counts[3] = {0};
    kit_open(&k, EK_POLICY_LEAST_SESSIONS, (const double[]){4, 2, 1}, 3);
    for (int i = 0; i < 70; i++)
        counts[kit_place(&k, 0, &p[i])]++;
    assert_int_equal(counts[0], 40);
    assert_int_equal(counts[1], 20);
    assert_int_equal(counts[2], 10);
    for (int i = 0; i < 70; i++)
        ek_placement_end(&p[i], k.now);
    ek_pool_free(k.pool);
}

static void two_choices_spread_far_better_than_one(void **state)
{
    (void)state;
    struct kit k;
    struct ek_placement p[1000];
    int counts[10] = {0};
    kit_open(&k, EK_POLICY_TWO_CHOICES, NULL, 10);
    for (int i = 0; i < 1000; i++)
        counts[kit_place(&k, 0, &p[i])]++;
    for (int i = 0; i < 10; i++)
        assert_in_range(counts[i], 95, 105); /* one choice: 70 to 130 */
    for (int i = 0; i < 1000; i++)
        ek_placement_end(&p[i], k.now);
    ek_pool_free(k.pool);
}

static void weighted_random_follows_weight_and_load(void **state)
{
    (void)state;
    struct kit k;
    int counts[3] = {0};
    kit_open(&k, EK_POLICY_WEIGHTED_RANDOM, (const double[]){1, 1, 2}, 3);
    struct ek_load_report r = {.has = EK_LOAD_CPU, .cpu_utilization = 0.5};
    assert_int_equal(ek_pool_report(k.pool, 1, &r, k.now), 0);
    kit_count(&k, 7000, counts);
    assert_in_range(counts[0], 1850, 2150);
    assert_in_range(counts[1], 900, 1100);
    assert_in_range(counts[2], 3800, 4200);
    ek_pool_free(k.pool);
}

static void a_key_keeps_its_backend_when_others_come_and_go(void **state)
{
    (void)state;
    struct kit k;
    int32_t home[500];
    int n_moved = 0;
    kit_open(&k, EK_POLICY_HASH, (const double[]){1, 1, 2, 1}, 4);
    for (uint64_t key = 0; key < 500; key++) {
        struct ek_placement p;
        home[key] = kit_place(&k, key * 77, &p);
        assert_int_equal(p.reason, EK_REASON_HASH);
        ek_placement_end(&p, k.now);
    }
    int at_2 = 0;
    for (int i = 0; i < 500; i++)
        at_2 += home[i] == 2;
    assert_in_range(at_2, 150, 250); /* 2/5 of them */
    ek_pool_set_up(k.pool, 1, false, k.now);
    for (uint64_t key = 0; key < 500; key++) {
        struct ek_placement p;
        int32_t now = kit_place(&k, key * 77, &p);
        n_moved += now != home[key];
        assert_true(home[key] == 1 || now == home[key]);
        ek_placement_end(&p, k.now);
    }
    assert_true(n_moved > 50 && n_moved < 150);
    ek_pool_free(k.pool);
}

static void one_key_for_all_stays_within_the_bound(void **state)
{
    (void)state;
    struct kit k;
    struct ek_placement p[100];
    int counts[4] = {0};
    kit_open(&k, EK_POLICY_HASH, NULL, 4);
    for (int i = 0; i < 100; i++) {
        counts[kit_place(&k, 1, &p[i])]++;
        for (int b = 0; b < 4; b++)
            assert_true(counts[b] <= ceil(1.25 * (i + 1) / 4));
    }
    for (int i = 0; i < 100; i++)
        ek_placement_end(&p[i], k.now);
    ek_pool_free(k.pool);
}

static void ties_are_broken_at_random(void **state)
{
    (void)state;
    struct kit k;
    int counts[5] = {0};
    kit_open(&k, EK_POLICY_EFFECTIVE_CAPACITY, NULL, 5);
    for (int32_t i = 0; i < 5; i++)
        kit_report(&k, i, 0, i == 2 ? 5 : 9);
    kit_count(&k, 4000, counts);
    for (int i = 0; i < 5; i++)
        assert_in_range(counts[i], i == 2 ? 0 : 900, i == 2 ? 0 : 1100);
    ek_pool_free(k.pool);
}

/* Random reports, placements and ends: as long as any backend is known to have room, no
 * session goes to one that is known to be full; and when it says that all are full, they
 * are. Room is told by the pool before each decision. */
static void never_onto_a_full_backend_while_another_has_room(void **state)
{
    (void)state;
    for (int policy = 0; policy < EK_N_POLICIES; policy++) {
        struct kit k;
        static struct ek_placement p[400];
        int n_full = 0;
        kit_open(&k, (enum ek_policy)policy, NULL, 12);
        struct ek_rng dice;
        ek_rng_init(&dice, 99);
        for (int step = 0; step < 4000; step++) {
            k.now += (int64_t)ek_rng_below(&dice, 20000);
            int32_t b = (int32_t)ek_rng_below(&dice, 12);
            struct ek_backend_state s;
            struct ek_placement *at = &p[ek_rng_below(&dice, 400)];
            if (ek_rng_below(&dice, 4) == 0) {
                assert_true(ek_pool_read(k.pool, b, k.now, &s));
                kit_report(&k, b, s.open_sessions, 5 + (double)ek_rng_below(&dice, 20));
            } else if (at->pool) {
                ek_placement_end(at, k.now);
            } else {
                double room[12], most = 0;
                struct ek_pool_totals t;
                ek_pool_read_totals(k.pool, k.now, &t);
                for (int32_t i = 0; i < 12; i++) {
                    assert_true(ek_pool_read(k.pool, i, k.now, &s));
                    room[i] = isnan(s.room) ? 1 : s.room;
                    most = fmax(most, room[i]);
                }
                int32_t chosen = kit_place(&k, (uint64_t)step, at);
                assert_true(chosen >= 0 ? room[chosen] >= 1 : most < 1);
                n_full += chosen < 0;
            }
        }
        assert_true(n_full > 10); /* it was tight */
        for (int i = 0; i < 400; i++)
            ek_placement_end(&p[i], k.now);
        ek_pool_free(k.pool);
    }
}

static uint64_t run_of(enum ek_policy policy, uint64_t seed)
{
    struct kit k;
    struct ek_placement p[200];
    uint64_t trail = 0;
    kit_open(&k, policy, (const double[]){1, 2, 1, 4, 1}, 5);
    ek_rng_init(&k.rng, seed);
    for (int i = 0; i < 200; i++) {
        if (i % 40 == 20) {
            for (int32_t b = 0; b < 5; b++)
                kit_report(&k, b, i / 5.0, 60);
        }
        k.now += SECOND / 3;
        trail = trail * 31 + (uint64_t)kit_place(&k, (uint64_t)i, &p[i]);
    }
    for (int i = 0; i < 200; i++)
        ek_placement_end(&p[i], k.now);
    ek_pool_free(k.pool);
    return trail;
}

/* Two backends of 0.02 and 0.04 cores whose sessions take 0.001 each: the larger has room
 * for 18, the smaller for 8. What a session costs is what they say, and not the 0.1 cores
 * of a backend that says nothing: by those both would be full many times over. */
static void small_sessions_are_placed_by_what_they_cost(void **state)
{
    (void)state;
    struct kit k;
    struct ek_placement p;
    kit_open(&k, EK_POLICY_EFFECTIVE_CAPACITY, NULL, 2);
    for (int i = 0; i < 2; i++) {
        double n = i ? 22 : 12;
        struct ek_load_report r = {
            .has = EK_LOAD_ACTIVE | EK_LOAD_CAPACITY | EK_LOAD_YOUNG | EK_LOAD_CPU |
                   EK_LOAD_CORES | EK_LOAD_COST,
            .active_sessions = n,
            .effective_capacity = n + 5,
            .cores = i ? 0.04 : 0.02,
            .cpu_utilization = n * 0.001 / (i ? 0.04 : 0.02),
            .session_cost = 0.001,
        };
        assert_int_equal(ek_pool_report(k.pool, i, &r, k.now), 0);
    }
    assert_int_equal(kit_place(&k, 0, &p), 1);
    ek_placement_end(&p, k.now);
    ek_pool_free(k.pool);
}

/* Both of 4 cores and as many sessions. */
static void say_cpu(struct kit *k, double n, double first, double second)
{
    const double cpu[2] = {first, second};
    k->now += SECOND;
    for (int32_t i = 0; i < 2; i++) {
        struct ek_load_report r = {
            .has = EK_LOAD_ACTIVE | EK_LOAD_CAPACITY | EK_LOAD_YOUNG | EK_LOAD_CPU |
                   EK_LOAD_CORES | EK_LOAD_WINDOW,
            .active_sessions = n,
            .effective_capacity = 40,
            .cpu_utilization = cpu[i] / 4,
            .cores = 4,
            .window_s = 2,
        };
        assert_int_equal(ek_pool_report(k->pool, i, &r, k->now), 0);
    }
}

static void costly_sessions_are_remembered_while_they_are_silent(void **state)
{
    (void)state;
    struct kit k;
    int counts[2] = {0};
    kit_open(&k, EK_POLICY_EFFECTIVE_CAPACITY, NULL, 2);
    for (int i = 0; i < 30; i++)
        say_cpu(&k, 10, 3, 1);
    say_cpu(&k, 10, 2, 2);
    kit_count(&k, 20, counts);
    assert_int_equal(counts[0], 0);
    /* They left, others came: in the end nothing is held against those. */
    say_cpu(&k, 1, 0.2, 0.2);
    kit_count(&k, 20, counts);
    assert_int_equal(counts[0], 0);
    for (int i = 0; i < 300; i++)
        say_cpu(&k, 0, 0, 0);
    say_cpu(&k, 10, 2.01, 2);
    say_cpu(&k, 10, 1.9, 2);
    kit_count(&k, 20, counts);
    assert_int_equal(counts[0], 20);
    ek_pool_free(k.pool);
}

static void the_same_seed_decides_the_same(void **state)
{
    (void)state;
    for (int policy = 0; policy < EK_N_POLICIES; policy++)
        assert_true(run_of((enum ek_policy)policy, 3) ==
                    run_of((enum ek_policy)policy, 3));
    assert_true(run_of(EK_POLICY_TWO_CHOICES, 3) != run_of(EK_POLICY_TWO_CHOICES, 4));
}

static void policies_are_found_by_their_words(void **state)
{
    (void)state;
    for (int i = 0; i < EK_N_POLICIES; i++)
        assert_int_equal(ek_policy_find(ek_policy_name((enum ek_policy)i)), i);
    assert_int_equal(ek_policy_find("least_conn"), -1);
    assert_string_equal(ek_reason_name(EK_REASON_HASH_NEXT), "hash_next");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_robin_is_smooth_and_weighted),
        cmocka_unit_test(a_newcomer_gets_its_turn_and_not_all_it_missed),
        cmocka_unit_test(a_backend_that_joins_is_filled_first_and_counts_are_kept),
        cmocka_unit_test(least_sessions_fill_by_weight),
        cmocka_unit_test(two_choices_spread_far_better_than_one),
        cmocka_unit_test(weighted_random_follows_weight_and_load),
        cmocka_unit_test(a_key_keeps_its_backend_when_others_come_and_go),
        cmocka_unit_test(one_key_for_all_stays_within_the_bound),
        cmocka_unit_test(ties_are_broken_at_random),
        cmocka_unit_test(never_onto_a_full_backend_while_another_has_room),
        cmocka_unit_test(small_sessions_are_placed_by_what_they_cost),
        cmocka_unit_test(costly_sessions_are_remembered_while_they_are_silent),
        cmocka_unit_test(the_same_seed_decides_the_same),
        cmocka_unit_test(policies_are_found_by_their_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
