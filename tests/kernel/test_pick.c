/* softmax, argmax and top-k of every variant. */
#include "kernel_test.h"

static const int64_t sizes[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64, 80, 129, 576};

/* p: exp 4e-7, the difference's rounding |x-max| ulp/2 and the last product. The log of
 * the sum: the same relative errors, absolute; plus 1/T rounded times max. */
static void check_softmax(const struct ek_ops *ops)
{
    static const float temperatures[] = {1.0f, 0.7f, 0.05f, 3.0f};
    for (size_t i = 0; i < COUNT(sizes) * COUNT(temperatures); i++) {
        int64_t n = sizes[i / COUNT(temperatures)];
        float T = temperatures[i % COUNT(temperatures)];
        struct ek_rng rng;
        ek_rng_init(&rng, i);
        float *x = new_floats(n), *p = new_floats(n + 1);
        double max = -HUGE_VAL, sum = 0;
        for (int64_t j = 0; j < n; j++) {
            x[j] = random_float(&rng) * 20;
            max = (double)x[j] > max ? (double)x[j] : max;
        }
        for (int64_t j = 0; j < n; j++)
            sum += exp(((double)x[j] - max) / (double)T);
        double lse = ops->softmax(p, x, n, T);
        assert_true(fabs(lse - (max / (double)T + log(sum))) <=
                    1e-6 + 2 * EPS * fabs(lse));
        for (int64_t j = 0; j < n; j++) {
            double z = ((double)x[j] - max) / (double)T, want = exp(z) / sum;
            double bound = want * (8e-7 + 4 * EPS * fabs(z)) + 1e-38;
            assert_true(fabs((double)p[j] - want) <= bound);
        }
        assert_true(p[n] == 0);
        ops->softmax(x, x, n, T);
        assert_memory_equal(x, p, (size_t)n * sizeof *p);
        ek_free(x);
        ek_free(p);
    }
}

static void softmax_agrees_with_f64_also_in_place(void **state)
{
    (void)state;
    for_each_isa(check_softmax);
}

static void check_softmax_mask(const struct ek_ops *ops)
{
    float x[37], p[37];
    for (int i = 0; i < 37; i++)
        x[i] = i == 35 || i == 3 ? 2.0f : -INFINITY;
    double lse = ops->softmax(p, x, 37, 1);
    assert_true(fabs(lse - (2 + log(2.0))) < 1e-6);
    for (int i = 0; i < 37; i++)
        assert_true(p[i] == (i == 35 || i == 3 ? 0.5f : 0.0f));
}

static void softmax_gives_masked_values_nothing(void **state)
{
    (void)state;
    for_each_isa(check_softmax_mask);
}

static void check_argmax(const struct ek_ops *ops)
{
    float x[100];
    for (int64_t n = 1; n <= 100; n += 3)
        for (int64_t at = 0; at < n; at += 5) {
            for (int64_t i = 0; i < n; i++)
                x[i] = i < at    ? -1.0f - (float)i
                       : i == at ? 3.0f
                                 : 3.0f - (float)(i % 2);
            assert_int_equal(ops->argmax(x, n), at); /* ties behind it lose */
            for (int64_t i = 0; i < at; i++)
                x[i] = NAN;
            assert_int_equal(ops->argmax(x, n), at);
        }
    for (int i = 0; i < 100; i++)
        x[i] = NAN;
    assert_int_equal(ops->argmax(x, 100), 0);
    x[71] = -INFINITY;
    assert_int_equal(ops->argmax(x, 100), 71);
    x[72] = -INFINITY;
    assert_int_equal(ops->argmax(x, 100), 71);
    float zeros[] = {-1, -0.0f, 0.0f};
    assert_int_equal(ops->argmax(zeros, 3), 1);
}

static void argmax_takes_the_lowest_index_at_ties_and_never_nan(void **state)
{
    (void)state;
    for_each_isa(check_argmax);
}

static void top_k_equals_a_stable_sort(void **state)
{
    (void)state;
    struct ek_rng rng;
    ek_rng_init(&rng, 12);
    float x[200];
    for (int64_t n = 1; n <= 200; n += 13)
        for (int64_t k = 1; k <= n; k += 1 + k / 3) {
            int32_t ids[200];
            float values[200];
            bool used[200] = {false};
            for (int64_t i = 0; i < n; i++) /* many ties, some NaN */
                x[i] = ek_rng_below(&rng, 9) ? (float)ek_rng_below(&rng, 20) : NAN;
            ek_top_k(ids, values, k, x, n);
            for (int64_t j = 0; j < k; j++) {
                int64_t best = -1; /* the first unused that nothing unused exceeds */
                for (int64_t i = 0; i < n; i++)
                    if (!used[i] && (best < 0 || x[i] > x[best] ||
                                     (isnan(x[best]) && !isnan(x[i]))))
                        best = i;
                used[best] = true;
                assert_int_equal(ids[j], best);
                assert_memory_equal(&values[j], &x[best], sizeof *x);
            }
        }
    int32_t id = 7;
    ek_top_k(&id, NULL, 0, x, 200);
    assert_int_equal(id, 7);
    ek_top_k(&id, NULL, 1, x, 200);
    assert_int_equal(id, ek_ops_get(EK_ISA_REF)->argmax(x, 200));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_agrees_with_f64_also_in_place),
        cmocka_unit_test(softmax_gives_masked_values_nothing),
        cmocka_unit_test(argmax_takes_the_lowest_index_at_ties_and_never_nan),
        cmocka_unit_test(top_k_equals_a_stable_sort),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
