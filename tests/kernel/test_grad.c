/* test_grad.c - the row operations of training: near f64, the same bits on every ISA,
 * and dropout's share. */
#include "kernel/grad.h"
#include "kernel_test.h"

#define N 1003

static float x[N], y[EK_ISA_COUNT][N];

static double exact(double v, enum ek_act act)
{
    switch (act) {
    case EK_ACT_RELU:
        return v > 0 ? v : 0;
    case EK_ACT_SILU:
        return v / (1 + exp(-v));
    case EK_ACT_GELU:
        return v / 2 * (1 + tanh(sqrt(2 / acos(-1.0)) * (v + 0.044715 * v * v * v)));
    case EK_ACT_SIGMOID:
        return 1 / (1 + exp(-v));
    case EK_ACT_TANH:
        return tanh(v);
    default:
        return v;
    }
}

static void activations_are_near_f64_and_the_same_on_every_isa(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++)
        x[i] = (float)(i - N / 2) * 0.04f;
    for (int act = EK_ACT_NONE; act <= EK_ACT_TANH; act++)
        for (int isa = 0; isa <= (int)ek_isa_best(); isa++) {
            ek_grad_ops_get((enum ek_isa)isa)->act(y[isa], x, N, (enum ek_act)act);
            for (int i = 0; i < N; i++)
                expect_near((double)y[isa][i], exact((double)x[i], (enum ek_act)act),
                            4e-7 * fmax(1, fabs((double)x[i])));
            assert_memory_equal(y[isa], y[0], sizeof y[0]);
        }
}

static void exponentials_sum_and_hidden_ones_are_zero(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++)
        x[i] = (float)(i % 97) * -1.5f;
    x[5] = -INFINITY;
    for (int isa = 0; isa <= (int)ek_isa_best(); isa++) {
        const struct ek_grad_ops *ops = ek_grad_ops_get((enum ek_isa)isa);
        double want = 0;
        for (int i = 0; i < N; i++)
            want += exp((double)x[i] - 1);
        expect_near(ops->exp_sum(y[isa], x, 1.0f, N), want, 1e-6 * want);
        assert_true(y[isa][5] == 0.0f);
        assert_true(ops->max(x, N) == 0.0f);
        assert_memory_equal(y[isa], y[0], sizeof y[0]);
    }
}

/* Infinities have limits; what is no number stays none. */
static void activations_of_infinity_are_limits(void **state)
{
    (void)state;
    static const float at[] = {-INFINITY, -3e38f, -1e20f, INFINITY, 3e38f, NAN};
    enum { SIZE = sizeof at / sizeof *at };
    float v[SIZE], one[SIZE], slope[SIZE];
    for (int i = 0; i < SIZE; i++)
        one[i] = 1;
    for (int act = EK_ACT_RELU; act <= EK_ACT_TANH; act++)
        for (int isa = 0; isa <= (int)ek_isa_best(); isa++) {
            const struct ek_grad_ops *ops = ek_grad_ops_get((enum ek_isa)isa);
            bool is_bounded = act == EK_ACT_SIGMOID || act == EK_ACT_TANH;
            ops->act(v, at, SIZE, (enum ek_act)act);
            ops->act_grad(slope, ek_act_reads_x((enum ek_act)act) ? at : v, one, SIZE,
                          (enum ek_act)act);
            for (int i = 0; i < 5; i++) {
                double low = act == EK_ACT_TANH ? -1 : 0;
                double high = is_bounded ? 1 : (double)at[i];
                assert_true(i < 3 ? fabs((double)v[i] - low) < 1e-30
                                  : (double)v[i] == high);
                expect_near((double)slope[i], i < 3 || is_bounded ? 0 : 1, 1e-30);
            }
            assert_true(isnan(v[5]));
        }
}

static void dropout_is_the_same_in_pieces_across_2_to_the_32(void **state)
{
    (void)state;
    const int64_t first = (INT64_C(1) << 32) - 500;
    for (int i = 0; i < N; i++)
        x[i] = 1;
    const struct ek_grad_ops *ops = ek_grad_ops_get(ek_isa_best());
    ops->dropout(y[0], x, N, 77, first, 0.5f, false);
    for (int i = 0; i < N; i++)
        ops->dropout(y[1] + i, x + i, 1, 77, first + i, 0.5f, false);
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    ops->dropout(y[1], x, N, 77, 0, 0.5f, false); /* and not those of the beginning */
    assert_memory_not_equal(y[0] + 500, y[1], 400 * sizeof *x);
}

static void dropout_keeps_its_share_whole(void **state)
{
    (void)state;
    enum { ROUNDS = 200 };
    for (int i = 0; i < N; i++)
        x[i] = 1;
    int64_t dropped = 0, both = 0;
    for (int r = 0; r < ROUNDS; r++) {
        for (int isa = 0; isa <= (int)ek_isa_best(); isa++) {
            ek_grad_ops_get((enum ek_isa)isa)
                ->dropout(y[isa], x, N, 0x123456789abcdefu * (uint64_t)(r + 1), r * N,
                          0.25f, false);
            assert_memory_equal(y[isa], y[0], sizeof y[0]);
        }
        for (int i = 0; i < N; i++) {
            assert_true(y[0][i] == 0.0f || fabsf(y[0][i] - 4.0f / 3) < 1e-6f);
            dropped += y[0][i] == 0.0f;
            both += i > 0 && y[0][i] == 0.0f && y[0][i - 1] == 0.0f;
        }
    }
    expect_near((double)dropped / (ROUNDS * N), 0.25, 0.005); /* five deviations */
    expect_near((double)both / (ROUNDS * N), 0.0625, 0.004);  /* neighbours alike */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_are_near_f64_and_the_same_on_every_isa),
        cmocka_unit_test(exponentials_sum_and_hidden_ones_are_zero),
        cmocka_unit_test(activations_of_infinity_are_limits),
        cmocka_unit_test(dropout_is_the_same_in_pieces_across_2_to_the_32),
        cmocka_unit_test(dropout_keeps_its_share_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
