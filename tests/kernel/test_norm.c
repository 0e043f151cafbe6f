/* rmsnorm of every variant. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rmsnorm_agrees_with_f64_also_in_place),
        cmocka_unit_test(rmsnorm_keeps_zeros_zero_and_large_values_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
