/* peaks, weigh and argmax of every variant. */
#include "kernel_test.h"

static const int64_t sizes[] = {1,   2,   7,   15,  16,  17,   33,  127,
                                128, 129, 140, 255, 256, 1000, 4097};

#define MOST 5000

static int64_t end_of(int64_t b, int64_t n)
{
    int64_t end = (b + 1) * EK_PICK_BLOCK;
    return end < n ? end : n;
}

static void fill(float *x, int64_t n, uint64_t seed)
{
    struct ek_rng rng;
    ek_rng_init(&rng, seed);
    for (int64_t i = 0; i < n; i++)
        x[i] = random_float(&rng) * 20;
}

static void check_peaks(const struct ek_ops *ops)
{
    for (size_t s = 0; s < COUNT(sizes); s++) {
        int64_t n = sizes[s], blocks = ek_pick_blocks(n);
        float *x = new_floats(n), *max = new_floats(blocks + 1);
        fill(x, n, s);
        assert_true(ops->peaks(max, x, n));
        for (int64_t b = 0; b < blocks; b++) {
            float want = -INFINITY;
            for (int64_t i = b * EK_PICK_BLOCK; i < end_of(b, n); i++)
                want = x[i] > want ? x[i] : want;
            assert_true(max[b] == want);
        }
        assert_true(max[blocks] == 0); /* not ours */
        ek_free(x);
        ek_free(max);
    }
}

static void peaks_are_the_largest_of_each_block(void **state)
{
    (void)state;
    for_each_isa(check_peaks);
}

static void check_finite(const struct ek_ops *ops)
{
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    static const float good[] = {0.0f, -0.0f, 3.4e38f, -3.4e38f, 1e-45f};
    float x[300], max[3];
    for (int64_t n = 1; n <= 300; n += 23) {
        for (int64_t at = 0; at < n; at += 3) {
            fill(x, n, 5);
            for (size_t i = 0; i < COUNT(good); i++) {
                x[at] = good[i];
                assert_true(ops->peaks(max, x, n));
            }
            for (size_t i = 0; i < COUNT(bad); i++) {
                x[at] = bad[i];
                assert_false(ops->peaks(max, x, n));
                assert_false(isnan(max[at / EK_PICK_BLOCK]));
            }
        }
    }
}

static void one_value_that_is_not_finite_is_seen_wherever_it_stands(void **state)
{
    (void)state;
    for_each_isa(check_finite);
}

static int64_t argmax(const struct ek_ops *ops, const float *x, int64_t n)
{
    float max[MOST / EK_PICK_BLOCK + 1];
    ops->peaks(max, x, n);
    return ek_peaks_argmax(x, n, max);
}

static void check_argmax(const struct ek_ops *ops)
{
    float x[400];
    for (int64_t n = 1; n <= 400; n += 7)
        for (int64_t at = 0; at < n; at += 5) {
            for (int64_t i = 0; i < n; i++)
                x[i] = i < at    ? -1.0f - (float)i
                       : i == at ? 3.0f
                                 : 3.0f - (float)(i % 2);
            assert_int_equal(argmax(ops, x, n), at); /* ties behind it lose */
            for (int64_t i = 0; i < at; i++)
                x[i] = NAN;
            assert_int_equal(argmax(ops, x, n), at);
        }
    for (int i = 0; i < 400; i++)
        x[i] = NAN;
    assert_int_equal(argmax(ops, x, 400), 0);
    x[271] = -3e38f;
    assert_int_equal(argmax(ops, x, 400), 271);
    x[272] = -3e38f;
    assert_int_equal(argmax(ops, x, 400), 271);
    float zeros[] = {-1, -0.0f, 0.0f};
    assert_int_equal(argmax(ops, zeros, 3), 1);
}

static void argmax_takes_the_lowest_index_at_ties_and_never_nan(void **state)
{
    (void)state;
    for_each_isa(check_argmax);
}

/* e: exp 4e-7 and the rounding of the difference and of 1/T. */
static void check_weigh(const struct ek_ops *ops)
{
    static const float temperatures[] = {1.0f, 0.7f, 0.05f, 3.0f};
    for (size_t s = 0; s < COUNT(sizes) * COUNT(temperatures); s++) {
        int64_t n = sizes[s / COUNT(temperatures)], blocks = ek_pick_blocks(n);
        float T = temperatures[s % COUNT(temperatures)];
        float *x = new_floats(n), *e = new_floats(n + 1), *max = new_floats(blocks + 1);
        double *sum = ek_calloc((size_t)blocks + 1, sizeof *sum);
        fill(x, n, s);
        float top = x[argmax(ops, x, n)];
        ops->weigh(e, max, sum, x, n, top, T);
        for (int64_t b = 0; b < blocks; b++) {
            double total = 0;
            float most = 0;
            for (int64_t i = b * EK_PICK_BLOCK; i < end_of(b, n); i++) {
                double z = ((double)x[i] - (double)top) / (double)T, want = exp(z);
                assert_true(fabs((double)e[i] - want) <=
                            want * (8e-7 + 4 * EPS * fabs(z)) + 1e-38);
                assert_true(x[i] != top || e[i] == 1.0f);
                most = e[i] > most ? e[i] : most;
                total += (double)e[i];
            }
            assert_true(max[b] == most);
            assert_true(fabs(sum[b] - total) <= 1e-12 * total);
        }
        assert_true(e[n] == 0 && max[blocks] == 0 && sum[blocks] == 0);
        ops->weigh(x, max, sum, x, n, top, T);
        assert_memory_equal(x, e, (size_t)n * sizeof *e);
        ek_free(x);
        ek_free(e);
        ek_free(max);
        ek_free(sum);
    }
}

static void weights_agree_with_f64_also_in_place(void **state)
{
    (void)state;
    for_each_isa(check_weigh);
}

static void check_banned(const struct ek_ops *ops)
{
    float x[200], e[200], max[2];
    double sum[2];
    for (int i = 0; i < 200; i++)
        x[i] = i == 135 || i == 3 ? 2.0f : -1e9f;
    ops->weigh(e, max, sum, x, 200, 2.0f, 0.7f);
    for (int i = 0; i < 200; i++)
        assert_true(e[i] == (i == 135 || i == 3 ? 1.0f : 0.0f));
    assert_true(sum[0] == 1 && sum[1] == 1);
}

static void what_is_far_below_weighs_nothing(void **state)
{
    (void)state;
    for_each_isa(check_banned);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peaks_are_the_largest_of_each_block),
        cmocka_unit_test(one_value_that_is_not_finite_is_seen_wherever_it_stands),
        cmocka_unit_test(argmax_takes_the_lowest_index_at_ties_and_never_nan),
        cmocka_unit_test(weights_agree_with_f64_also_in_place),
        cmocka_unit_test(what_is_far_below_weighs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
