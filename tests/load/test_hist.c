/* test_hist.c - distributions against all values sorted. */
#include "base/rng.h"
#include "load/hist.h"
#include "testkit.h"

#include <math.h>

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static struct ek_hist *new_hist(void)
{
    struct ek_hist *h = ek_calloc(1, sizeof *h);
    assert_non_null(h);
    return h;
}

static void an_empty_distribution_is_all_zero(void **state)
{
    (void)state;
    struct ek_hist *h = new_hist();
    assert_true(ek_hist_mean(h) == 0.0 && ek_hist_quantile(h, 0.5) == 0.0);
    assert_int_equal(ek_hist_between(h, -1.0, 1e300), 0);
    ek_free(h);
}

static void small_values_have_buckets_of_their_own(void **state)
{
    (void)state;
    struct ek_hist *h = new_hist();
    for (int64_t v = 0; v < 512; v++)
        ek_hist_add(h, v);
    for (int64_t v = 0; v < 512; v++) {
        assert_true(ek_hist_quantile(h, (double)(v + 1) / 512.0) == (double)v);
        assert_int_equal(ek_hist_between(h, (double)v, (double)v + 1.0), 1);
    }
    ek_free(h);
}

static void any_quantile_is_within_0_2_percent_of_the_nearest_rank(void **state)
{
    (void)state;
    enum { N = 5000 };
    static int64_t all[N];
    struct ek_hist *h = new_hist();
    struct ek_rng rng;
    double sum = 0.0;
    ek_rng_init(&rng, 7);
    for (size_t i = 0; i < N; i++) {
        all[i] = (int64_t)exp(ek_rng_uniform(&rng) * 30.0);
        sum += (double)all[i];
        ek_hist_add(h, all[i]);
    }
    qsort(all, N, sizeof all[0], by_value);
    for (int k = 0; k <= 1000; k++) {
        double q = k / 1000.0;
        size_t rank = (size_t)fmax(ceil(q * N), 1.0);
        double want = (double)all[rank - 1], got = ek_hist_quantile(h, q);
        assert_true(fabs(got - want) <= 0.002 * want);
    }
    assert_int_equal(h->n, N);
    assert_int_equal(h->min, all[0]);
    assert_int_equal(h->max, all[N - 1]);
    assert_true(fabs(ek_hist_mean(h) - sum / N) <= 1e-9 * sum);
    assert_true(ek_hist_quantile(h, 1.0) == (double)all[N - 1]);
    ek_free(h);
}

static void merging_is_recording_both(void **state)
{
    (void)state;
    struct ek_hist *a = new_hist(), *b = new_hist(), *both = new_hist();
    struct ek_rng rng;
    ek_rng_init(&rng, 3);
    ek_hist_merge(a, b);
    assert_int_equal(a->n, 0);
    for (int i = 0; i < 1000; i++) {
        int64_t v = (int64_t)ek_rng_below(&rng, 1 << 30);
        ek_hist_add(i % 3 ? a : b, v);
        ek_hist_add(both, v);
    }
    ek_hist_merge(a, b);
    assert_memory_equal(a->counts, both->counts, sizeof a->counts);
    assert_true(a->n == both->n && a->min == both->min && a->max == both->max);
    ek_free(a);
    ek_free(b);
    ek_free(both);
}

static void values_out_of_range_are_kept_at_the_ends(void **state)
{
    (void)state;
    struct ek_hist *h = new_hist();
    ek_hist_add(h, -5);
    ek_hist_add(h, INT64_MAX);
    assert_int_equal(h->min, 0);
    assert_true(h->max == INT64_MAX);
    assert_true(ek_hist_quantile(h, 0.1) == 0.0);
    assert_true(ek_hist_quantile(h, 1.0) == (double)INT64_MAX);
    ek_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_distribution_is_all_zero),
        cmocka_unit_test(small_values_have_buckets_of_their_own),
        cmocka_unit_test(any_quantile_is_within_0_2_percent_of_the_nearest_rank),
        cmocka_unit_test(merging_is_recording_both),
        cmocka_unit_test(values_out_of_range_are_kept_at_the_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
