/* rmsnorm, the elementwise operations, softmax, argmax and top-k of every variant. */
#include "kernel_test.h"

static const int64_t sizes[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64, 80, 129, 576};

/* A sum of C squares in 16 lanes errs by C/16 + 1 roundings, halved by the root; two
 * products and a sum follow: below 2e-6 for every C here. */
static void check_rmsnorm(const struct ek_ops *ops)
{
    for (size_t i = 0; i < COUNT(sizes) * 6; i++) {
        int64_t C = sizes[i / 6], N = (int64_t[]){0, 1, 3}[i % 3], ld = C + 3;
        float offset = i % 6 < 3 ? 0.0f : 1.0f, eps = 1e-5f;
        struct ek_rng rng;
        ek_rng_init(&rng, i);
        float *x = new_floats(N * ld), *y = new_floats(N * ld), *gain = new_floats(C);
        fill_random(x, N * ld, &rng);
        fill_random(gain, C, &rng);
        ops->rmsnorm(y, ld, x, ld, gain, offset, eps, N, C);
        for (int64_t n = 0; n < N; n++) {
            double sum = 0;
            for (int64_t c = 0; c < C; c++)
                sum += (double)x[n * ld + c] * (double)x[n * ld + c];
            double rstd = 1 / sqrt(sum / (double)C + (double)eps);
            for (int64_t c = 0; c < C; c++) {
                double want =
                    (double)x[n * ld + c] * rstd * ((double)gain[c] + (double)offset);
                /* gain + offset may cancel: its rounding counts against |gain| + 1 */
                double bound =
                    2e-6 * fabs(want) + 2 * EPS * fabs((double)x[n * ld + c] * rstd);
                assert_true(fabs((double)y[n * ld + c] - want) <= bound);
            }
            for (int64_t c = C; c < ld; c++)
                assert_true(y[n * ld + c] == 0);
        }
        ops->rmsnorm(x, ld, x, ld, gain, offset, eps, N, C); /* in place */
        for (int64_t n = 0; n < N; n++)
            assert_memory_equal(x + n * ld, y + n * ld, (size_t)C * sizeof *x);
        ek_free(x);
        ek_free(y);
        ek_free(gain);
    }
}

static void rmsnorm_agrees_with_f64_also_in_place(void **state)
{
    (void)state;
    for_each_isa(check_rmsnorm);
}

static void check_rmsnorm_scale(const struct ek_ops *ops)
{
    float zero[20] = {0}, y[20], gain[20], huge[20];
    for (int c = 0; c < 20; c++) {
        gain[c] = 1;
        huge[c] = 1e18f; /* squares at 1e36, their sum below f32's end */
    }
    ops->rmsnorm(y, 20, zero, 20, gain, 0, 1e-6f, 1, 20);
    for (int c = 0; c < 20; c++)
        assert_true(y[c] == 0);
    ops->rmsnorm(y, 20, huge, 20, gain, 0, 1e-6f, 1, 20);
    for (int c = 0; c < 20; c++)
        expect_near((double)y[c], 1, 1e-6);
}

static void rmsnorm_keeps_zeros_zero_and_large_values_finite(void **state)
{
    (void)state;
    for_each_isa(check_rmsnorm_scale);
}

static double gated(double x, enum ek_glu_kind kind)
{
    if (kind == EK_GLU_SILU)
        return x / (1 + exp(-x));
    double z = sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
    return x / 2 * (1 + tanh(z));
}

/* exp errs by 4e-7 relatively; its argument's rounding adds |x| ulp/2, and for gelu the
 * cubic's, three times that at the most. Where ref cancels in 1 + tanh the error is
 * absolute: 2 ulp/2 of x. */
static void check_glu(const struct ek_ops *ops)
{
    for (size_t i = 0; i < 2 * COUNT(sizes); i++) {
        int64_t n = sizes[i / 2];
        enum ek_glu_kind kind = i % 2 ? EK_GLU_GELU_TANH : EK_GLU_SILU;
        struct ek_rng rng;
        ek_rng_init(&rng, i);
        float *gate = new_floats(n), *up = new_floats(n), *y = new_floats(n + 1);
        for (int64_t j = 0; j < n; j++)
            gate[j] = random_float(&rng) * (j % 3 ? 4 : 30);
        fill_random(up, n, &rng);
        ops->glu(y, gate, up, n, kind);
        for (int64_t j = 0; j < n; j++) {
            double x = (double)gate[j], want = gated(x, kind) * (double)up[j];
            double bound = (6e-7 + 6 * fabs(x) * EPS) * fabs(want) +
                           3 * EPS * fabs(x * (double)up[j]);
            assert_true(fabs((double)y[j] - want) <= bound);
        }
        assert_true(y[n] == 0);
        ops->glu(gate, gate, up, n, kind);
        assert_memory_equal(gate, y, (size_t)n * sizeof *y);
        ek_free(gate);
        ek_free(up);
        ek_free(y);
    }
}

static void glu_agrees_with_f64_also_in_place(void **state)
{
    (void)state;
    for_each_isa(check_glu);
}

static void check_glu_ends(const struct ek_ops *ops)
{
    float gate[] = {-1e4f, 1e4f, -88, -104, 0, NAN, -1e30f, 1e30f}, up[8], y[8];
    for (int i = 0; i < 8; i++)
        up[i] = 1;
    for (int kind = EK_GLU_SILU; kind <= EK_GLU_GELU_TANH; kind++) {
        ops->glu(y, gate, up, 8, (enum ek_glu_kind)kind);
        assert_true(y[0] == 0 && y[1] == 1e4f && fabsf(y[2]) < 1e-30f &&
                    fabsf(y[3]) < 1e-30f && y[4] == 0 && isnan(y[5]) && y[6] == 0 &&
                    y[7] == 1e30f);
    }
}

static void glu_saturates_without_nan(void **state)
{
    (void)state;
    for_each_isa(check_glu_ends);
}

static void check_add(const struct ek_ops *ops)
{
    for (size_t i = 0; i < COUNT(sizes); i++) {
        int64_t n = sizes[i];
        float *x = new_floats(n), *y = new_floats(n + 1);
        for (int64_t j = 0; j < n; j++) {
            x[j] = (float)j + 0.5f;
            y[j] = -2.0f * (float)j;
        }
        ops->add(y, x, n);
        ops->add(y, x, 0);
        for (int64_t j = 0; j < n; j++)
            assert_true(y[j] == 0.5f - (float)j);
        assert_true(y[n] == 0);
        ek_free(x);
        ek_free(y);
    }
}

static void add_is_exact_and_stays_in_bounds(void **state)
{
    (void)state;
    for_each_isa(check_add);
}

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
        cmocka_unit_test(rmsnorm_agrees_with_f64_also_in_place),
        cmocka_unit_test(rmsnorm_keeps_zeros_zero_and_large_values_finite),
        cmocka_unit_test(glu_agrees_with_f64_also_in_place),
        cmocka_unit_test(glu_saturates_without_nan),
        cmocka_unit_test(add_is_exact_and_stays_in_bounds),
        cmocka_unit_test(softmax_agrees_with_f64_also_in_place),
        cmocka_unit_test(softmax_gives_masked_values_nothing),
        cmocka_unit_test(argmax_takes_the_lowest_index_at_ties_and_never_nan),
        cmocka_unit_test(top_k_equals_a_stable_sort),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
