#include "base/rng.h"
#include "testkit.h"

#include <math.h>

/* The first outputs of xoshiro256** for the state 1, 2, 3, 4, computed by hand from the
 * recurrence of the paper: rotl(s1 * 5, 7) * 9. */
static void outputs_follow_the_papers_recurrence(void **state)
{
    (void)state;
    struct ek_rng r = {.s = {1, 2, 3, 4}};
    assert_true(ek_rng_u64(&r) == 11520); /* 2*5 = 10, rotl 7 = 1280, * 9 */
    assert_true(ek_rng_u64(&r) == 0);     /* s1 became 2 ^ 3 ^ 1 = 0 */
    assert_true(ek_rng_u64(&r) == 1509978240);
}

static void one_seed_gives_one_sequence(void **state)
{
    (void)state;
    struct ek_rng a, b, c;
    int n_same = 0;
    ek_rng_init(&a, 42);
    ek_rng_init(&b, 42);
    ek_rng_init(&c, 43);
    for (int i = 0; i < 1000; i++) {
        uint64_t x = ek_rng_u64(&a);
        assert_true(x == ek_rng_u64(&b));
        n_same += x == ek_rng_u64(&c);
    }
    assert_int_equal(n_same, 0);
    ek_rng_init(&a, 0); /* never the state that stays zero */
    assert_true(a.s[0] | a.s[1] | a.s[2] | a.s[3]);
}

static void below_is_in_range_and_even(void **state)
{
    (void)state;
    struct ek_rng r;
    ek_rng_init(&r, 1);
    for (uint64_t n = 1; n <= 20; n++) {
        int count[20] = {0};
        for (int i = 0; i < 10000; i++) {
            uint64_t x = ek_rng_below(&r, n);
            assert_true(x < n);
            count[x]++;
        }
        /* Six deviations of a binomial: a sound generator fails once in 10^7 runs, and
         * the seed is fixed. */
        double mean = 10000.0 / (double)n, slack = 6.0 * sqrt(mean) + 1.0;
        for (uint64_t i = 0; i < n; i++)
            assert_true(fabs(count[i] - mean) <= slack);
    }
    /* 3 * 2^62 is where a modulo would favour the lower third two to one. */
    int n_low = 0;
    for (int i = 0; i < 10000; i++)
        n_low += ek_rng_below(&r, UINT64_C(3) << 62) < UINT64_C(1) << 62;
    assert_in_range(n_low, 3333 - 300, 3333 + 300);
}

static void uniform_and_normal_have_their_moments(void **state)
{
    (void)state;
    enum { N = 100000 };
    struct ek_rng r;
    ek_rng_init(&r, 9);
    double u1 = 0.0, u2 = 0.0, n1 = 0.0, n2 = 0.0, n4 = 0.0;
    for (int i = 0; i < N; i++) {
        double u = ek_rng_uniform(&r), x = ek_rng_normal(&r);
        assert_true(u >= 0.0 && u < 1.0 && isfinite(x));
        u1 += u / N;
        u2 += u * u / N;
        n1 += x / N;
        n2 += x * x / N;
        n4 += x * x * x * x / N;
    }
    assert_true(fabs(u1 - 0.5) < 0.006);
    assert_true(fabs(u2 - 1.0 / 3.0) < 0.006);
    assert_true(fabs(n1) < 0.02);
    assert_true(fabs(n2 - 1.0) < 0.03);
    assert_true(fabs(n4 - 3.0) < 0.2);
}

static void secrets_fill_all_and_differ(void **state)
{
    (void)state;
    unsigned char a[300], b[300];
    memset(a, 0, sizeof a);
    memset(b, 0, sizeof b);
    assert_int_equal(ek_rng_secret(a, sizeof a), 0);
    assert_int_equal(ek_rng_secret(b, sizeof b), 0);
    assert_memory_not_equal(a, b, sizeof a);
    int n_zero = 0;
    for (size_t i = 0; i < sizeof a; i++)
        n_zero += a[i] == 0;
    assert_true(n_zero < 20);
    assert_int_equal(ek_rng_secret(a, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_follow_the_papers_recurrence),
        cmocka_unit_test(one_seed_gives_one_sequence),
        cmocka_unit_test(below_is_in_range_and_even),
        cmocka_unit_test(uniform_and_normal_have_their_moments),
        cmocka_unit_test(secrets_fill_all_and_differ),
    };
    return cmocka_run_group_tests_name("rng", tests, NULL, NULL);
}
