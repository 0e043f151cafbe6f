/* The elementwise operations of every variant. */
#include "kernel_test.h"

static const int64_t sizes[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64, 80, 129, 576};

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(glu_agrees_with_f64_also_in_place),
        cmocka_unit_test(glu_saturates_without_nan),
        cmocka_unit_test(add_is_exact_and_stays_in_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
