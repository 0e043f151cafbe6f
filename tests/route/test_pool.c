#include "route/pool.h"
#include "testkit.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define SECOND INT64_C(1000000)

struct kit {
    struct ek_pool *pool;
    struct ek_rng rng;
    int64_t now;
};

static void kit_open(struct kit *k, const struct ek_pool_options *o)
{
    k->now = SECOND;
    ek_rng_init(&k->rng, 1);
    assert_int_equal(ek_pool_new(&k->pool, o), 0);
}

static int32_t kit_add(struct kit *k, const char *name, double weight, int32_t max)
{
    struct ek_backend_spec s = {name, "127.0.0.1:1", weight, weight, max};
    int32_t i = -1;
    assert_int_equal(ek_pool_add(k->pool, &i, &s, k->now), 0);
    return i;
}

static int kit_pick(struct kit *k, struct ek_placement *p)
{
    struct ek_pick pick = {.now_us = k->now, .rng = &k->rng};
    return ek_pool_pick(k->pool, &pick, p);
}

/* n sessions of capacity cap, none young. */
static int kit_report(struct kit *k, int32_t i, double n, double cap)
{
    struct ek_load_report r = {
        .has = EK_LOAD_ACTIVE | EK_LOAD_CAPACITY | EK_LOAD_YOUNG,
        .active_sessions = n,
        .effective_capacity = cap,
    };
    return ek_pool_report(k->pool, i, &r, k->now);
}

static double kit_room(struct kit *k, int32_t i)
{
    struct ek_backend_state s;
    assert_true(ek_pool_read(k->pool, i, k->now, &s));
    return s.room;
}

static struct ek_pool_options options(enum ek_policy policy)
{
    struct ek_pool_options o;
    ek_pool_options_default(&o);
    o.policy = policy;
    return o;
}

static void most_room_gets_the_session(void **state)
{
    (void)state;
    struct kit k;
    struct ek_pool_options o = options(EK_POLICY_EFFECTIVE_CAPACITY);
    kit_open(&k, &o);
    int32_t a = kit_add(&k, "a", 1, 0), b = kit_add(&k, "b", 1, 0);
    assert_int_equal(kit_report(&k, a, 3, 10), 0);
    assert_int_equal(kit_report(&k, b, 3, 20), 0);
    struct ek_placement p[8];
    for (int i = 0; i < 8; i++) {
        assert_int_equal(kit_pick(&k, &p[i]), 0);
        assert_int_equal(p[i].backend, b);
        assert_int_equal(p[i].reason, EK_REASON_MOST_ROOM);
        assert_true(p[i].room == 17 - i);
    }
    for (int i = 0; i < 8; i++)
        ek_placement_end(&p[i], k.now);
    assert_true(kit_room(&k, b) == 17);
    ek_pool_free(k.pool);
}

/* What was placed after the sample is not in its n; what ended again takes no room:
 * a hundred short requests between two reports leave it as it was. */
static void reservations_end_with_their_sessions(void **state)
{
    (void)state;
    struct kit k;
    struct ek_pool_options o = options(EK_POLICY_EFFECTIVE_CAPACITY);
    kit_open(&k, &o);
    int32_t a = kit_add(&k, "a", 1, 0);
    assert_int_equal(kit_report(&k, a, 0, 5), 0);
    for (int i = 0; i < 1000; i++) {
        struct ek_placement p;
        assert_int_equal(kit_pick(&k, &p), 0);
        assert_true(p.room == 5);
        ek_placement_end(&p, ++k.now);
    }
    struct ek_placement open[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(kit_pick(&k, &open[i]), 0);
    assert_true(kit_room(&k, a) == 1);
    k.now += SECOND;
    assert_int_equal(kit_report(&k, a, 4, 5), 0); /* now they are counted there */
    assert_true(kit_room(&k, a) == 1);
    for (int i = 0; i < 4; i++)
        ek_placement_end(&open[i], k.now);
    assert_true(kit_room(&k, a) == 1); /* until the next report */
    ek_pool_free(k.pool);
}

static void young_sessions_are_weighed_as_the_report_says(void **state)
{
    (void)state;
    struct kit k;
    struct ek_pool_options o = options(EK_POLICY_EFFECTIVE_CAPACITY);
    kit_open(&k, &o);
    int32_t a = kit_add(&k, "a", 1, 0);
    struct ek_load_report r = {
        .has = EK_LOAD_ACTIVE | EK_LOAD_CAPACITY | EK_LOAD_YOUNG | EK_LOAD_YOUNG_WEIGHT,
        .active_sessions = 6,
        .effective_capacity = 16,
        .young_sessions = 4,
        .young_weight = 0.5,
    };
    assert_int_equal(ek_pool_report(k.pool, a, &r, k.now), 0);
    assert_true(kit_room(&k, a) == 8);
    r.has &= ~(uint32_t)EK_LOAD_YOUNG_WEIGHT;
    assert_int_equal(ek_pool_report(k.pool, a, &r, k.now), 0);
    assert_true(fabs(kit_room(&k, a) - (10 - 4 * o.young_weight)) < 0.01);
    ek_pool_free(k.pool);
}

static void young_sessions_take_no_room_of_what_is_not_cpu(void **state)
{
    (void)state;
    struct kit k;
    struct ek_pool_options o = options(EK_POLICY_EFFECTIVE_CAPACITY);
    kit_open(&k, &o);
    int32_t a = kit_add(&k, "a", 64, 0);
    struct ek_load_report r = {
        .has = EK_LOAD_ACTIVE | EK_LOAD_CAPACITY | EK_LOAD_YOUNG | EK_LOAD_YOUNG_WEIGHT,
        .active_sessions = 6,
        .effective_capacity = 16,
        .young_sessions = 4,
        .young_weight = 0.5,
        .binds_elsewhere = true,
    };
    assert_int_equal(ek_pool_report(k.pool, a, &r, k.now), 0);
    assert_true(kit_room(&k, a) == 10);
    /* 64 cores that are idle leave enough for them, none do not. */
    r.has |= EK_LOAD_CPU | EK_LOAD_COST;
    r.session_cost = 0.1;
    assert_int_equal(ek_pool_report(k.pool, a, &r, k.now), 0);
    assert_true(kit_room(&k, a) == 10);
    r.cpu_utilization = 2;
    assert_int_equal(ek_pool_report(k.pool, a, &r, k.now), 0);
    assert_true(kit_room(&k, a) == 8);
    ek_pool_free(k.pool);
}

static void full_backends_are_refused_while_none_has_room(void **state)
{
    (void)state;
    struct kit k;
    struct ek_pool_options o = options(EK_POLICY_EFFECTIVE_CAPACITY);
    kit_open(&k, &o);
    struct ek_placement p;
    assert_int_equal(kit_pick(&k, &p), EK_ENOENT);
    int32_t a = kit_add(&k, "a", 1, 0);
    assert_int_equal(kit_report(&k, a, 10, 10.9), 0);
    assert_int_equal(kit_pick(&k, &p), EK_EBUSY);
    ek_placement_end(&p, k.now); /* nothing was placed: harmless */
    assert_int_equal(kit_report(&k, a, 10, 11), 0);
    assert_int_equal(kit_pick(&k, &p), 0);
    ek_pool_set_drain(k.pool, a, true);
    struct ek_placement q;
    assert_int_equal(kit_pick(&k, &q), EK_ENOENT);
    ek_placement_end(&p, k.now);
    struct ek_pool_totals t;
    ek_pool_read_totals(k.pool, k.now, &t);
    assert_int_equal(t.open_sessions, 0);
    assert_int_equal(t.full_total, 1);
    assert_int_equal(t.down_total, 2);
    ek_pool_free(k.pool);
}

static void a_limit_holds_and_frees_at_once(void **state)
{
    (void)state;
    for (int policy = 0; policy < EK_N_POLICIES; policy++) {
        for (int admission = 0; admission < 2; admission++) {
            struct kit k;
            struct ek_pool_options o = options((enum ek_policy)policy);
            o.admission = (enum ek_admission)admission;
            kit_open(&k, &o);
            kit_add(&k, "a", 1, 2);
            kit_add(&k, "b", 3, 3);
            struct ek_placement p[6];
            for (int i = 0; i < 5; i++)
                assert_int_equal(kit_pick(&k, &p[i]), 0);
            assert_int_equal(kit_pick(&k, &p[5]), EK_EBUSY);
            ek_placement_end(&p[2], k.now);
            assert_int_equal(kit_pick(&k, &p[2]), 0);
            for (int i = 0; i < 5; i++)
                ek_placement_end(&p[i], k.now);
            ek_pool_free(k.pool);
        }
    }
}

static void a_tried_backend_is_not_chosen_again(void **state)
{
    (void)state;
    for (int policy = 0; policy < EK_N_POLICIES; policy++) {
        struct kit k;
        struct ek_pool_options o = options((enum ek_policy)policy);
        kit_open(&k, &o);
        int32_t tried[3];
        for (int i = 0; i < 3; i++) {
            char name[16];
            snprintf(name, sizeof name, "b%d", i);
            kit_add(&k, name, 1, 0);
        }
        bool seen[3] = {false};
        for (int n = 0; n <= 3; n++) {
            struct ek_pick pick = {
                .now_us = k.now, .tried = tried, .n_tried = n, .rng = &k.rng};
            struct ek_placement p;
            int rc = ek_pool_pick(k.pool, &pick, &p);
            assert_int_equal(rc, n < 3 ? 0 : EK_ENOENT);
            if (rc)
                break;
            assert_false(seen[p.backend]);
            seen[p.backend] = true;
            tried[n] = p.backend;
            ek_placement_end(&p, k.now);
        }
        ek_pool_free(k.pool);
    }
}

static void old_reports_degrade_and_never_block(void **state)
{
    (void)state;
    struct kit k;
    struct ek_pool_options o = options(EK_POLICY_EFFECTIVE_CAPACITY);
    kit_open(&k, &o);
    int32_t a = kit_add(&k, "a", 1, 0), b = kit_add(&k, "b", 1, 0);
    struct ek_placement p;
    assert_int_equal(kit_pick(&k, &p), 0);
    assert_int_equal(p.reason, EK_REASON_LEAST_SESSIONS);
    assert_true(isnan(p.room));
    ek_placement_end(&p, k.now);
    assert_int_equal(kit_report(&k, a, 0, 4), 0);
    assert_int_equal(kit_report(&k, b, 0, 400), 0);
    static const struct {
        int64_t age_us;
        enum ek_reason reason;
    } ages[] = {{0, EK_REASON_MOST_ROOM},
                {2 * SECOND, EK_REASON_MOST_ROOM},
                {2 * SECOND + 1, EK_REASON_TWO_CHOICES},
                {10 * SECOND, EK_REASON_TWO_CHOICES},
                {10 * SECOND + 1, EK_REASON_LEAST_SESSIONS}};
    int64_t start = k.now;
    for (size_t i = 0; i < sizeof ages / sizeof ages[0]; i++) {
        struct ek_pool_totals t;
        k.now = start + ages[i].age_us;
        ek_pool_read_totals(k.pool, k.now, &t); /* ages are looked at */
        assert_int_equal(kit_pick(&k, &p), 0);
        assert_int_equal(p.reason, ages[i].reason);
        ek_placement_end(&p, k.now);
    }
    ek_pool_free(k.pool);
}

/* One backend without reports is judged by what the others carry for their weight. */
static void a_silent_backend_gets_the_mean_share(void **state)
{
    (void)state;
    struct kit k;
    struct ek_pool_options o = options(EK_POLICY_EFFECTIVE_CAPACITY);
    kit_open(&k, &o);
    int32_t a = kit_add(&k, "a", 1, 0), b = kit_add(&k, "b", 1, 0);
    int32_t c = kit_add(&k, "c", 2, 0);
    assert_int_equal(kit_report(&k, a, 0, 10), 0);
    assert_int_equal(kit_report(&k, b, 0, 20), 0);
    struct ek_pool_totals t;
    ek_pool_read_totals(k.pool, k.now, &t);
    assert_true(kit_room(&k, c) == 30);
    struct ek_placement p;
    assert_int_equal(kit_pick(&k, &p), 0);
    assert_int_equal(p.backend, c);
    assert_true(kit_room(&k, c) == 29);
    ek_placement_end(&p, k.now);
    assert_true(kit_room(&k, c) == 30);
    ek_pool_free(k.pool);
}

static void other_proxies_starts_are_expected(void **state)
{
    (void)state;
    struct kit k;
    struct ek_pool_options o = options(EK_POLICY_EFFECTIVE_CAPACITY);
    kit_open(&k, &o);
    int32_t a = kit_add(&k, "a", 1, 0);
    struct ek_placement p[10], q;
    for (int i = 0; i < 10; i++)
        assert_int_equal(kit_pick(&k, &p[i]), 0);
    k.now += SECOND;
    assert_int_equal(kit_report(&k, a, 40, 100), 0); /* 10 of them ours */
    struct ek_pool_totals t;
    ek_pool_read_totals(k.pool, k.now, &t);
    assert_true(t.proxies == 4);
    assert_int_equal(kit_pick(&k, &q), 0);
    assert_true(kit_room(&k, a) == 56);
    ek_placement_end(&q, k.now);
    for (int i = 0; i < 10; i++)
        ek_placement_end(&p[i], k.now);
    ek_pool_free(k.pool);
}

static void impossible_figures_are_dropped_capped_and_counted(void **state)
{
    (void)state;
    struct kit k;
    struct ek_pool_options o = options(EK_POLICY_EFFECTIVE_CAPACITY);
    kit_open(&k, &o);
    int32_t a = kit_add(&k, "a", 1, 0);
    assert_int_equal(kit_report(&k, a, 1, 9), 0);
    static const double bad[] = {(double)NAN, -1, (double)INFINITY, -(double)INFINITY};
    for (int i = 0; i < 4; i++) {
        struct ek_load_report r = {.has = EK_LOAD_CAPACITY,
                                   .effective_capacity = bad[i]};
        assert_int_equal(ek_pool_report(k.pool, a, &r, k.now), EK_EINVAL);
    }
    assert_true(kit_room(&k, a) == 8);
    assert_int_equal(kit_report(&k, a, 0, 1e300), 0);
    assert_true(kit_room(&k, a) == 1e6);
    struct ek_load_report lost = {.has = EK_LOAD_REMAINING | EK_LOAD_ACTIVE,
                                  .active_sessions = 5,
                                  .remaining_sessions = -1e18};
    assert_int_equal(ek_pool_report(k.pool, a, &lost, k.now), 0);
    assert_true(kit_room(&k, a) <= 0);
    struct ek_backend_state s;
    assert_true(ek_pool_read(k.pool, a, k.now, &s));
    assert_int_equal(s.reports_refused, 4);
    assert_int_equal(s.figures_refused, 6);
    ek_pool_free(k.pool);
}

static void a_frozen_report_ages(void **state)
{
    (void)state;
    struct kit k;
    struct ek_pool_options o = options(EK_POLICY_EFFECTIVE_CAPACITY);
    kit_open(&k, &o);
    int32_t a = kit_add(&k, "a", 1, 0);
    struct ek_placement p[12];
    for (int i = 0; i < 12; i++) {
        assert_int_equal(kit_report(&k, a, 0, 100), 0);
        assert_int_equal(kit_pick(&k, &p[i]), 0);
        k.now += SECOND;
    }
    struct ek_backend_state s;
    assert_true(ek_pool_read(k.pool, a, k.now, &s));
    assert_true(s.reports_frozen >= 8);
    assert_true(s.report_age_us >= 9 * SECOND);
    for (int i = 0; i < 12; i++)
        ek_placement_end(&p[i], k.now);
    /* An idle one may say the same for ever. */
    for (int i = 0; i < 20; i++, k.now += SECOND)
        assert_int_equal(kit_report(&k, a, 0, 50), 0);
    assert_true(ek_pool_read(k.pool, a, k.now, &s));
    assert_int_equal(s.report_age_us, SECOND);
    ek_pool_free(k.pool);
}

static void a_report_of_cpu_alone_gives_a_capacity(void **state)
{
    (void)state;
    struct kit k;
    struct ek_pool_options o = options(EK_POLICY_EFFECTIVE_CAPACITY);
    kit_open(&k, &o);
    int32_t a = kit_add(&k, "a", 4, 0); /* 4 cores */
    struct ek_load_report r = {.has = EK_LOAD_CPU, .cpu_utilization = 0.3};
    assert_int_equal(ek_pool_report(k.pool, a, &r, k.now), 0);
    /* (0.8 * 4 - 1.2) / (cost * 2) with cost = (1.2 + 10 * 0.1) / (0 + 10) = 0.22 */
    assert_true(fabs(kit_room(&k, a) - 2 / 0.44) < 0.01);
    ek_pool_free(k.pool);
}

static void an_agents_words_are_obeyed(void **state)
{
    (void)state;
    struct kit k;
    struct ek_pool_options o = options(EK_POLICY_LEAST_SESSIONS);
    kit_open(&k, &o);
    int32_t a = kit_add(&k, "a", 1, 0);
    struct ek_load_report r = {.state = EK_LOAD_SAYS_DRAIN};
    struct ek_placement p[3];
    assert_int_equal(ek_pool_report(k.pool, a, &r, k.now), 0);
    assert_int_equal(kit_pick(&k, &p[0]), EK_ENOENT);
    r = (struct ek_load_report){.has = EK_LOAD_WEIGHT | EK_LOAD_LIMIT,
                                .state = EK_LOAD_SAYS_READY,
                                .weight = 0.5,
                                .limit = 2};
    assert_int_equal(ek_pool_report(k.pool, a, &r, k.now), 0);
    assert_int_equal(kit_pick(&k, &p[0]), 0);
    assert_int_equal(kit_pick(&k, &p[1]), 0);
    assert_int_equal(kit_pick(&k, &p[2]), EK_EBUSY);
    r = (struct ek_load_report){.health = EK_LOAD_IS_DOWN};
    assert_int_equal(ek_pool_report(k.pool, a, &r, k.now), 0);
    assert_int_equal(kit_pick(&k, &p[2]), EK_ENOENT);
    ek_placement_end(&p[0], k.now);
    ek_placement_end(&p[1], k.now);
    ek_pool_free(k.pool);
}

static void a_newcomer_is_given_its_share_slowly(void **state)
{
    (void)state;
    struct kit k;
    struct ek_pool_options o = options(EK_POLICY_EFFECTIVE_CAPACITY);
    o.slow_start_us = 10 * SECOND;
    kit_open(&k, &o);
    int32_t a = kit_add(&k, "a", 1, 0);
    assert_int_equal(kit_report(&k, a, 10, 100), 0);
    k.now += SECOND;
    int32_t b = kit_add(&k, "b", 1, 0);
    for (int i = 0; i <= 12; i++, k.now += SECOND) {
        assert_int_equal(kit_report(&k, a, 10, 100), 0);
        assert_int_equal(kit_report(&k, b, 0, 100), 0);
        double share = fmin(fmax(i / 10.0, 0.1), 1);
        assert_true(fabs(kit_room(&k, b) - 100 * share) < 0.1);
        assert_true(kit_room(&k, a) == 90);
    }
    ek_pool_free(k.pool);
}

static void failures_in_a_row_eject_but_never_the_last(void **state)
{
    (void)state;
    struct kit k;
    struct ek_pool_options o = options(EK_POLICY_ROUND_ROBIN);
    kit_open(&k, &o);
    int32_t a = kit_add(&k, "a", 1, 0), b = kit_add(&k, "b", 1, 0);
    struct ek_placement p;
    for (int i = 0; i < 5; i++)
        ek_pool_note(k.pool, a, false, k.now);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(kit_pick(&k, &p), 0);
        assert_int_equal(p.backend, b);
        ek_placement_end(&p, k.now);
        ek_pool_note(k.pool, b, false, k.now);
    }
    k.now += 10 * SECOND;
    bool seen[2] = {false};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(kit_pick(&k, &p), 0);
        seen[p.backend] = true;
        ek_placement_end(&p, k.now);
    }
    assert_true(seen[a] && seen[b]);
    ek_pool_free(k.pool);
}

static void a_removed_backend_keeps_its_sessions_until_they_end(void **state)
{
    (void)state;
    struct kit k;
    struct ek_pool_options o = options(EK_POLICY_LEAST_SESSIONS);
    kit_open(&k, &o);
    int32_t a = kit_add(&k, "a", 1, 0);
    struct ek_placement p, q;
    assert_int_equal(kit_pick(&k, &p), 0);
    ek_pool_remove(k.pool, a);
    assert_int_equal(ek_pool_find(k.pool, "a"), -1);
    assert_false(ek_pool_reap(k.pool, a));
    assert_int_equal(kit_pick(&k, &q), EK_ENOENT);
    int32_t again = kit_add(&k, "a", 1, 0); /* the name is free, the place is not */
    assert_int_not_equal(again, a);
    ek_placement_end(&p, k.now);
    assert_true(ek_pool_reap(k.pool, a));
    assert_int_equal(kit_add(&k, "c", 1, 0), a);
    ek_pool_free(k.pool);
}

static void a_placed_backend_gets_no_session_before_it_is_up(void **state)
{
    (void)state;
    struct kit k;
    struct ek_pool_options o = options(EK_POLICY_LEAST_SESSIONS);
    kit_open(&k, &o);
    int32_t a = kit_add(&k, "a", 1, 0), b = -1;
    struct ek_backend_spec s = {"a", "127.0.0.1:2", 8, 0, 0};
    assert_int_equal(ek_pool_place(k.pool, &b, &s), 0);
    assert_int_not_equal(a, b);
    struct ek_placement p[6];
    for (int i = 0; i < 6; i++) {
        assert_int_equal(kit_pick(&k, &p[i]), 0);
        assert_int_equal(p[i].backend, i < 3 ? a : b);
        if (i == 2) { /* the old one of this name goes, the new one comes */
            ek_pool_remove(k.pool, a);
            ek_pool_set_up(k.pool, b, true, k.now);
            assert_int_equal(ek_pool_find(k.pool, "a"), b);
        }
    }
    for (int i = 0; i < 6; i++)
        ek_placement_end(&p[i], k.now);
    assert_true(ek_pool_reap(k.pool, a));
    ek_pool_free(k.pool);
}

static void options_set_anew_hold_from_the_next_decision_on(void **state)
{
    (void)state;
    struct kit k;
    struct ek_pool_options o = options(EK_POLICY_EFFECTIVE_CAPACITY);
    kit_open(&k, &o);
    int32_t a = kit_add(&k, "a", 1, 0);
    assert_int_equal(kit_report(&k, a, 4, 4), 0);
    struct ek_placement p;
    assert_int_equal(kit_pick(&k, &p), EK_EBUSY);
    o.admission = EK_ADMIT_LIMIT;
    o.policy = EK_POLICY_ROUND_ROBIN;
    ek_pool_set_options(k.pool, &o);
    assert_int_equal(kit_pick(&k, &p), 0);
    assert_int_equal(p.reason, EK_REASON_TURN);
    ek_placement_end(&p, k.now);
    ek_pool_free(k.pool);
}

static void decisions_can_be_explained(void **state)
{
    (void)state;
    struct kit k;
    struct ek_pool_options o = options(EK_POLICY_EFFECTIVE_CAPACITY);
    o.n_explained = 4;
    kit_open(&k, &o);
    int32_t a = kit_add(&k, "a", 1, 0), b = kit_add(&k, "b", 1, 0);
    kit_report(&k, a, 0, 3);
    kit_report(&k, b, 0, 9);
    struct ek_placement p[6];
    for (int i = 0; i < 6; i++)
        assert_int_equal(kit_pick(&k, &p[i]), 0);
    struct ek_decision d[8];
    assert_int_equal(ek_pool_explain(k.pool, d, 8), 4);
    assert_int_equal(d[0].number, 6);
    assert_int_equal(d[0].reason, EK_REASON_MOST_ROOM);
    assert_int_equal(d[0].backend, b);
    assert_true(d[0].room == 4);
    assert_int_equal(d[0].n_candidates, 2);
    assert_int_equal(d[0].n_shown, 2);
    assert_true(d[0].rows[0].room == 3);
    for (int i = 0; i < 6; i++)
        ek_placement_end(&p[i], k.now);
    ek_pool_free(k.pool);
}

static void a_pool_survives_any_failed_allocation(void **state)
{
    (void)state;
    EK_EACH_FAILURE (n) {
        struct ek_pool_options o = options(EK_POLICY_EFFECTIVE_CAPACITY);
        struct ek_pool *pool = NULL;
        struct ek_backend_spec s = {"a", "127.0.0.1:1", 1, 0, 0};
        int32_t i;
        int rc = ek_pool_new(&pool, &o);
        if (!rc)
            rc = ek_pool_add(pool, &i, &s, SECOND);
        ek_assert_rc(rc);
        ek_pool_free(pool);
    }
}

/* ---- Threads: four that place and end, one that reports, one that takes away ---- */

enum { THREADS = 4, ROUNDS = 3000, HELD = 32, LIMIT = 20 };

struct crew {
    struct ek_pool *pool;
    int32_t backends[3];
    atomic_bool is_over;
};

static void *placer(void *arg)
{
    struct crew *c = arg;
    struct ek_placement held[HELD] = {{0}};
    struct ek_rng rng;
    ek_rng_init(&rng, (uint64_t)(uintptr_t)&rng);
    for (int i = 0; i < ROUNDS; i++) {
        struct ek_placement *p = &held[ek_rng_below(&rng, HELD)];
        struct ek_pick pick = {.now_us = SECOND + i * 100, .rng = &rng};
        if (p->pool)
            ek_placement_end(p, pick.now_us);
        else if (ek_pool_pick(c->pool, &pick, p) && p->pool)
            abort();
    }
    for (int i = 0; i < HELD; i++)
        ek_placement_end(&held[i], SECOND);
    return NULL;
}

static void *reporter(void *arg)
{
    struct crew *c = arg;
    struct ek_decision d[16];
    for (int i = 0; !c->is_over; i++) {
        int32_t b = c->backends[i % 3];
        struct ek_load_report r = {.has = EK_LOAD_ACTIVE | EK_LOAD_CAPACITY,
                                   .active_sessions = i % 7,
                                   .effective_capacity = 12};
        struct ek_backend_state s;
        if (ek_pool_report(c->pool, b, &r, SECOND + i))
            abort();
        ek_pool_set_drain(c->pool, c->backends[2], i % 8 < 2);
        ek_pool_note(c->pool, b, i % 3 == 0, SECOND + i);
        if (ek_pool_read(c->pool, b, SECOND + i, &s) && s.open_sessions > LIMIT)
            abort();
        (void)ek_pool_explain(c->pool, d, 16);
    }
    return NULL;
}

static void threads_never_pass_a_limit_and_leave_nothing(void **state)
{
    (void)state;
    for (int policy = 0; policy < EK_N_POLICIES; policy++) {
        struct kit k;
        struct crew c = {0};
        struct ek_pool_options o = options((enum ek_policy)policy);
        pthread_t threads[THREADS], other;
        kit_open(&k, &o);
        for (int i = 0; i < 3; i++)
            c.backends[i] = kit_add(&k, (const char *[]){"a", "b", "c"}[i], 1, LIMIT);
        c.pool = k.pool;
        assert_int_equal(pthread_create(&other, NULL, reporter, &c), 0);
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, placer, &c), 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        c.is_over = true;
        pthread_join(other, NULL);
        struct ek_pool_totals t;
        ek_pool_read_totals(k.pool, 2 * SECOND, &t);
        assert_int_equal(t.open_sessions, 0);
        ek_pool_free(k.pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(most_room_gets_the_session),
        cmocka_unit_test(reservations_end_with_their_sessions),
        cmocka_unit_test(young_sessions_are_weighed_as_the_report_says),
        cmocka_unit_test(young_sessions_take_no_room_of_what_is_not_cpu),
        cmocka_unit_test(full_backends_are_refused_while_none_has_room),
        cmocka_unit_test(a_limit_holds_and_frees_at_once),
        cmocka_unit_test(a_tried_backend_is_not_chosen_again),
        cmocka_unit_test(old_reports_degrade_and_never_block),
        cmocka_unit_test(a_silent_backend_gets_the_mean_share),
        cmocka_unit_test(other_proxies_starts_are_expected),
        cmocka_unit_test(impossible_figures_are_dropped_capped_and_counted),
        cmocka_unit_test(a_frozen_report_ages),
        cmocka_unit_test(a_report_of_cpu_alone_gives_a_capacity),
        cmocka_unit_test(an_agents_words_are_obeyed),
        cmocka_unit_test(a_newcomer_is_given_its_share_slowly),
        cmocka_unit_test(failures_in_a_row_eject_but_never_the_last),
        cmocka_unit_test(a_removed_backend_keeps_its_sessions_until_they_end),
        cmocka_unit_test(a_placed_backend_gets_no_session_before_it_is_up),
        cmocka_unit_test(options_set_anew_hold_from_the_next_decision_on),
        cmocka_unit_test(decisions_can_be_explained),
        cmocka_unit_test(a_pool_survives_any_failed_allocation),
        cmocka_unit_test(threads_never_pass_a_limit_and_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
