/* beats of every variant, against the reference and by hand. */
#include "kernel_test.h"

#define MOST 300

/* Few distinct values, so that ties abound. */
static void fill(float *x, int64_t n, uint64_t seed)
{
    struct ek_rng rng;
    ek_rng_init(&rng, seed);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)ek_rng_below(&rng, 5) - 2;
}

static void check_counts(const struct ek_ops *ops)
{
    float x[MOST + 1];
    for (int64_t n = 0; n <= MOST; n = n < 70 ? n + 1 : n + 37) {
        fill(x, n, (uint64_t)n);
        x[n] = 9; /* not ours */
        for (int64_t split = 0; split <= n; split += 1 + split / 5)
            for (int s = -3; s <= 3; s++) {
                int64_t want = 0;
                for (int64_t i = 0; i < n; i++)
                    want += x[i] > (float)s || (i < split && x[i] == (float)s);
                assert_int_equal(ops->beats(x, n, split, (float)s), want);
            }
    }
}

static void ties_count_before_the_split_alone(void **state)
{
    (void)state;
    for_each_isa(check_counts);
}

static void check_odd(const struct ek_ops *ops)
{
    float x[100];
    for (int i = 0; i < 100; i++)
        x[i] = i % 4 ? -INFINITY : NAN;
    assert_int_equal(ops->beats(x, 100, 50, INFINITY), 25);
    assert_int_equal(ops->beats(x, 100, 0, -INFINITY), 25);
    assert_int_equal(ops->beats(x, 100, 100, -INFINITY), 100);
    assert_int_equal(ops->beats(x, 100, 31, NAN), 100);
    x[0] = -0.0f;
    assert_int_equal(ops->beats(x, 1, 0, 0.0f), 0);
    assert_int_equal(ops->beats(x, 1, 1, 0.0f), 1);
}

static void nan_never_loses(void **state)
{
    (void)state;
    for_each_isa(check_odd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ties_count_before_the_split_alone),
        cmocka_unit_test(nan_never_loses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
