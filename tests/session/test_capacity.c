/* The formula, with figures worked out by hand in the comments. */
#include "session/capacity.h"
#include "session/smooth.h"
#include "sessionkit.h"
#include "testkit.h"

static struct ek_capacity_resource cpu(void)
{
    return (struct ek_capacity_resource){.used = 2.2,
                                         .total = 4,
                                         .target = 0.8,
                                         .base = 0.2,
                                         .sessions = 10,
                                         .prior_cost = 0.1,
                                         .prior_weight = 10,
                                         .factor = 2};
}

static void capacity_is_sessions_plus_room_over_cost_and_factor(void **state)
{
    (void)state;
    /* cost = (2.2 - 0.2 + 10 * 0.1) / (10 + 10) = 0.15
     * cap = 10 + (0.8 * 4 - 2.2) / (0.15 * 2) = 10 + 1 / 0.3 */
    struct ek_capacity_resource r = cpu();
    struct ek_capacity_cost c = ek_capacity_of(&r, 10);
    assert_near(c.cost, 0.15);
    assert_near(c.capacity, 13.3333333);
}

static void an_empty_server_costs_what_the_prior_says(void **state)
{
    (void)state;
    struct ek_capacity_resource r = cpu();
    r.used = r.base = r.sessions = 0;
    struct ek_capacity_cost c = ek_capacity_of(&r, 0);
    assert_near(c.cost, 0.1);
    assert_near(c.capacity, 16); /* 3.2 / 0.2 */
}

static void over_the_target_capacity_is_less_than_what_is_open(void **state)
{
    (void)state;
    struct ek_capacity_resource r = cpu();
    r.used = 4; /* cost = (3.8 + 1) / 20 = 0.24; cap = 10 - 0.8 / 0.48 */
    assert_near(ek_capacity_of(&r, 10).capacity, 8.3333333);
    r.used = 0.1; /* less than the base: the cost is not negative */
    assert_near(ek_capacity_of(&r, 10).cost, 0.05);
}

static void without_a_prior_a_resource_binds_once_it_is_used(void **state)
{
    (void)state;
    struct ek_capacity_resource r = {.total = 100, .target = 1, .factor = 1};
    assert_true(isinf(ek_capacity_of(&r, 0).capacity));
    r.used = 100; /* by nobody we know: full all the same */
    assert_near(ek_capacity_of(&r, 0).capacity, 0);
    r.sessions = 4;
    r.used = 20; /* 5 each: 80 more are 16 */
    assert_near(ek_capacity_of(&r, 4).cost, 5);
    assert_near(ek_capacity_of(&r, 4).capacity, 20);
}

static void the_auto_factor_falls_with_the_square_root_of_the_count(void **state)
{
    (void)state;
    double cv = sqrt(2); /* 2.33 * 1.41421 = 3.29512 */
    assert_near(ek_capacity_factor(2.33, cv, 10), 2.0420085);
    assert_near(ek_capacity_factor(2.33, cv, 40), 1.5210042);
    assert_near(ek_capacity_factor(2.33, cv, 100), 1.3295118);
    assert_near(ek_capacity_factor(2.33, cv, 0), 3);      /* clamped */
    assert_near(ek_capacity_factor(2.33, 0.1, 100), 1.1); /* clamped */
}

static void utilization_is_bounded(void **state)
{
    (void)state;
    assert_near(ek_capacity_utilization(20, 5), 0.25);
    assert_near(ek_capacity_utilization(8, 10), 1.25);
    assert_near(ek_capacity_utilization(0.1, 10), 10);
    assert_near(ek_capacity_utilization(0, 10), 10);
    assert_near(ek_capacity_utilization(0, 0), 1);
}

static void the_ewma_is_the_mean_of_what_it_saw(void **state)
{
    (void)state;
    struct ek_smooth s;
    ek_smooth_init(&s, false, 10 * SECOND);
    assert_near(ek_smooth_value(&s), 0);
    ek_smooth_add(&s, 5, 100);
    assert_near(ek_smooth_value(&s), 0); /* one reading has no rate */
    ek_smooth_add(&s, 5 + SECOND, 100 + 2e6);
    assert_near(ek_smooth_value(&s), 2); /* and not 2 * (1 - exp(-0.1)) */
    /* 10 s at 0.5: (e^-1 (1 - e^-0.1) * 2 + (1 - e^-1) * 0.5) / (1 - e^-1.1)
     * = (0.3678794 * 0.0951626 * 2 + 0.6321206 * 0.5) / 0.6671289 = 0.5787143 */
    ek_smooth_add(&s, 5 + 11 * SECOND, 100 + 7e6);
    assert_near(ek_smooth_value(&s), 0.5787143);
    ek_smooth_add(&s, 7, 1e9); /* time that steps back is not believed */
    assert_near(ek_smooth_value(&s), 0.5787143);
    assert_near(ek_smooth_young_weight(&s), 0.6321206);
}

static void the_ewma_does_not_depend_on_how_often_it_is_fed(void **state)
{
    (void)state;
    struct ek_smooth often, rarely;
    ek_smooth_init(&often, false, 10 * SECOND);
    ek_smooth_init(&rarely, false, 10 * SECOND);
    for (int i = 0; i <= 300; i++) {
        ek_smooth_add(&often, i * SECOND / 10, i * 0.7e5);
        if (i % 150 == 0)
            ek_smooth_add(&rarely, i * SECOND / 10, i * 0.7e5);
    }
    assert_near(ek_smooth_value(&often), 0.7);
    assert_near(ek_smooth_value(&rarely), 0.7);
}

static void the_sliding_mean_forgets_what_left_the_window(void **state)
{
    (void)state;
    struct ek_smooth s;
    ek_smooth_init(&s, true, 10 * SECOND);
    ek_smooth_add(&s, 0, 0);
    ek_smooth_add(&s, 4 * SECOND, 8e6); /* 2 cores for 4 s */
    assert_near(ek_smooth_value(&s), 2);
    ek_smooth_add(&s, 10 * SECOND, 8e6); /* then none */
    assert_near(ek_smooth_value(&s), 0.8);
    /* The window of 13 s begins at 3 s, within the busy time: 1 s of 2 cores is left. */
    ek_smooth_add(&s, 13 * SECOND, 8e6);
    assert_near(ek_smooth_value(&s), 0.2);
    ek_smooth_add(&s, 14 * SECOND, 8e6);
    assert_near(ek_smooth_value(&s), 0);
    ek_smooth_add(&s, 100 * SECOND, 8e6 + 43e6); /* a gap longer than the window */
    assert_near(ek_smooth_value(&s), 0.5);
    assert_near(ek_smooth_young_weight(&s), 0.5);
}

static void the_sliding_mean_bears_readings_of_any_density(void **state)
{
    (void)state;
    struct ek_smooth s;
    ek_smooth_init(&s, true, 10 * SECOND);
    for (int i = 0; i < 100000; i++) {
        ek_smooth_add(&s, i * INT64_C(1000), i < 90000 ? 0 : (i - 90000) * 1e3);
        assert_true(s.n <= 40);
    }
    /* The edge is interpolated between points a 32nd of the window apart. */
    assert_true(fabs(ek_smooth_value(&s) - 1) < 0.5 / 32);
}

static void variation_starts_at_the_prior_and_is_then_measured(void **state)
{
    (void)state;
    struct ek_variation v = {0, 0, 0, 0};
    assert_near(ek_variation_cv(&v), sqrt(2));
    ek_variation_add(&v, SECOND, 4, 0.1);
    assert_near(ek_variation_cv(&v), sqrt(2));
    /* 60 s later: keep = e^-1. x - mean = 0.2, squared times 4 = 0.16;
     * square = 0.6321206 * 0.16 = 0.1011393, its weight 0.6321206.
     * mean: weights 0.0165286 * e^-1 = 0.0060805 of 0.1 and 0.6321206 of 0.3, so
     * 0.1 + 0.6321206 / 0.6382011 * 0.2 = 0.2980945
     * CV^2 = 0.1011393 / 0.0888603 + 0.3678794 * 2 = 1.1381825 + 0.7357589 */
    ek_variation_add(&v, 60 * SECOND, 4, 0.3);
    assert_near(ek_variation_cv(&v), sqrt(1.1381825 + 0.7357589));
    for (int i = 0; i < 2000; i++) /* a constant load has none */
        ek_variation_add(&v, SECOND, 4, 0.3);
    assert_true(ek_variation_cv(&v) < 0.001);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(capacity_is_sessions_plus_room_over_cost_and_factor),
        cmocka_unit_test(an_empty_server_costs_what_the_prior_says),
        cmocka_unit_test(over_the_target_capacity_is_less_than_what_is_open),
        cmocka_unit_test(without_a_prior_a_resource_binds_once_it_is_used),
        cmocka_unit_test(the_auto_factor_falls_with_the_square_root_of_the_count),
        cmocka_unit_test(utilization_is_bounded),
        cmocka_unit_test(the_ewma_is_the_mean_of_what_it_saw),
        cmocka_unit_test(the_ewma_does_not_depend_on_how_often_it_is_fed),
        cmocka_unit_test(the_sliding_mean_forgets_what_left_the_window),
        cmocka_unit_test(the_sliding_mean_bears_readings_of_any_density),
        cmocka_unit_test(variation_starts_at_the_prior_and_is_then_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
