/* test_grad.c - the row operations of training: near f64, the same bits on every ISA,
 * and dropout's share. */
#include "kernel/grad.h"
#include "kernel_test.h"

#define SIZE 1003

static float x[SIZE], y[EK_ISA_COUNT][SIZE];

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
    for (int i = 0; i < SIZE; i++)
        x[i] = (float)(i - SIZE / 2) * 0.04f;
    for (int act = EK_ACT_NONE; act <= EK_ACT_TANH; act++)
        for (int isa = 0; isa <= (int)ek_isa_best(); isa++) {
            ek_grad_ops_get((enum ek_isa)isa)->act(y[isa], x, SIZE, (enum ek_act)act);
            for (int i = 0; i < SIZE; i++)
                expect_near((double)y[isa][i], exact((double)x[i], (enum ek_act)act),
                            4e-7 * fmax(1, fabs((double)x[i])));
            assert_memory_equal(y[isa], y[0], sizeof y[0]);
        }
}

static void silu_from_its_sigmoid_has_the_slope_of_silu(void **state)
{
    (void)state;
    static float s[EK_ISA_COUNT][SIZE], d[EK_ISA_COUNT][SIZE], one[SIZE], want[SIZE];
    for (int i = 0; i < SIZE; i++) {
        x[i] = (float)(i - SIZE / 2) * 0.2f;
        one[i] = 1;
    }
    for (int isa = 0; isa <= (int)ek_isa_best(); isa++) {
        const struct ek_grad_ops *ops = ek_grad_ops_get((enum ek_isa)isa);
        ops->silu(y[isa], s[isa], x, SIZE);
        ops->silu_grad(d[isa], y[isa], s[isa], one, SIZE);
        ops->act_grad(want, x, one, SIZE, EK_ACT_SILU);
        for (int i = 0; i < SIZE; i++) {
            expect_near((double)y[isa][i], exact((double)x[i], EK_ACT_SILU),
                        4e-7 * fmax(1, fabs((double)x[i])));
            expect_near((double)d[isa][i], (double)want[i], 1e-5);
        }
        assert_memory_equal(y[isa], y[0], sizeof y[0]);
        assert_memory_equal(s[isa], s[0], sizeof s[0]);
        assert_memory_equal(d[isa], d[0], sizeof d[0]);
    }
}

static void exponentials_sum_and_hidden_ones_are_zero(void **state)
{
    (void)state;
    for (int i = 0; i < SIZE; i++)
        x[i] = (float)(i % 97) * -1.5f;
    x[5] = -INFINITY;
    for (int isa = 0; isa <= (int)ek_isa_best(); isa++) {
        const struct ek_grad_ops *ops = ek_grad_ops_get((enum ek_isa)isa);
        double want = 0;
        for (int i = 0; i < SIZE; i++)
            want += exp((double)x[i] - 1);
        expect_near(ops->exp_sum(y[isa], x, 1.0f, SIZE), want, 1e-6 * want);
        assert_true(y[isa][5] == 0.0f);
        assert_memory_equal(y[isa], y[0], sizeof y[0]);
    }
}

static void scores_are_scaled_hits_hidden_and_the_greatest_found(void **state)
{
    (void)state;
    static int32_t ids[SIZE];
    for (int i = 0; i < SIZE; i++) {
        x[i] = (float)(i * 37 % 101) - 200;
        ids[i] = i * 37 % 101; /* those of 100 are the greatest */
    }
    for (int isa = 0; isa <= (int)ek_isa_best(); isa++) {
        const struct ek_grad_ops *ops = ek_grad_ops_get((enum ek_isa)isa);
        memcpy(y[isa], x, sizeof x);
        assert_true(ops->scores(y[isa], 2.0f, NULL, 100, SIZE) == -200.0f);
        memcpy(y[isa], x, sizeof x);
        assert_true(ops->scores(y[isa], 2.0f, ids, 100, SIZE) == -202.0f);
        for (int i = 0; i < SIZE; i++)
            assert_true(y[isa][i] == (ids[i] == 100 ? -INFINITY : 2 * x[i]));
        memcpy(y[isa], x, sizeof x);
        assert_true(ops->scores(y[isa], 2.0f, ids, ids[0], 1) == -INFINITY);
    }
}

/* Rows and columns that fill no vector and no four; what is beside them stays. */
static void rows_are_near_f64_and_the_same_on_every_isa(void **state)
{
    (void)state;
    enum { ROWS = 7, LD = 41 };
    static float a[ROWS * LD], b[ROWS * LD], dots[EK_ISA_COUNT][ROWS];
    static float stat[EK_ISA_COUNT][2 * ROWS], out[EK_ISA_COUNT][2][ROWS * LD];
    static float sums[EK_ISA_COUNT][2][LD];
    struct ek_rng rng;
    ek_rng_init(&rng, 3);
    fill_random(a, ROWS * LD, &rng);
    fill_random(b, ROWS * LD, &rng);
    for (int C = 1; C < LD; C += 3)
        for (int isa = 0; isa <= (int)ek_isa_best(); isa++) {
            const struct ek_grad_ops *ops = ek_grad_ops_get((enum ek_isa)isa);
            struct ek_norm o = {.N = ROWS, .C = C, .x = a, .ldx = LD};
            o.stat = stat[isa];
            o.gain = b;
            o.eps = 1e-3f;
            memset(out[isa], 0, sizeof out[isa]);
            memset(sums[isa], 0, sizeof sums[isa]);
            ops->row_dots(dots[isa], a, LD, b, LD, ROWS, C);
            ops->norm(out[isa][0], LD, &o);
            ops->norm_grad(out[isa][1], LD, b, LD, &o, false);
            ops->norm_grad_w(sums[isa][0], sums[isa][1], b, LD, &o);
            for (int r = 0; r < ROWS; r++) {
                double dot = 0, mean = 0, square = 0;
                for (int c = 0; c < C; c++) {
                    dot += (double)a[r * LD + c] * (double)b[r * LD + c];
                    mean += (double)a[r * LD + c] / C;
                }
                for (int c = 0; c < C; c++)
                    square += pow((double)a[r * LD + c] - mean, 2) / C;
                expect_near((double)dots[isa][r], dot, 1e-5);
                expect_near((double)stat[isa][2 * r], mean, 1e-5);
                expect_near((double)stat[isa][2 * r + 1], 1 / sqrt(square + 1e-3),
                            1e-3);
                assert_true(out[isa][0][r * LD + C] == 0.0f);
                assert_true(out[isa][1][r * LD + C] == 0.0f);
            }
            assert_memory_equal(dots[isa], dots[0], sizeof dots[0]);
            assert_memory_equal(stat[isa], stat[0], sizeof stat[0]);
            assert_memory_equal(out[isa], out[0], sizeof out[0]);
            assert_memory_equal(sums[isa], sums[0], sizeof sums[0]);
        }
}

/* Infinities have limits; what is no number stays none. */
static void activations_of_infinity_are_limits(void **state)
{
    (void)state;
    static const float at[] = {-INFINITY, -3e38f, -1e20f, INFINITY, 3e38f, NAN};
    enum { POINTS = sizeof at / sizeof *at };
    float v[POINTS], one[POINTS], slope[POINTS];
    for (int i = 0; i < POINTS; i++)
        one[i] = 1;
    for (int act = EK_ACT_RELU; act <= EK_ACT_TANH; act++)
        for (int isa = 0; isa <= (int)ek_isa_best(); isa++) {
            const struct ek_grad_ops *ops = ek_grad_ops_get((enum ek_isa)isa);
            bool is_bounded = act == EK_ACT_SIGMOID || act == EK_ACT_TANH;
            ops->act(v, at, POINTS, (enum ek_act)act);
            ops->act_grad(slope, ek_act_reads_x((enum ek_act)act) ? at : v, one, POINTS,
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
    for (int i = 0; i < SIZE; i++)
        x[i] = 1;
    const struct ek_grad_ops *ops = ek_grad_ops_get(ek_isa_best());
    ops->dropout(y[0], x, SIZE, 77, first, 0.5f, false);
    for (int i = 0; i < SIZE; i++)
        ops->dropout(y[1] + i, x + i, 1, 77, first + i, 0.5f, false);
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    ops->dropout(y[1], x, SIZE, 77, 0, 0.5f,
                 false); /* and not those of the beginning */
    assert_memory_not_equal(y[0] + 500, y[1], 400 * sizeof *x);
}

static void dropout_keeps_its_share_whole(void **state)
{
    (void)state;
    enum { ROUNDS = 200 };
    for (int i = 0; i < SIZE; i++)
        x[i] = 1;
    int64_t dropped = 0, both = 0;
    for (int r = 0; r < ROUNDS; r++) {
        for (int isa = 0; isa <= (int)ek_isa_best(); isa++) {
            ek_grad_ops_get((enum ek_isa)isa)
                ->dropout(y[isa], x, SIZE, 0x123456789abcdefu * (uint64_t)(r + 1),
                          r * SIZE, 0.25f, false);
            assert_memory_equal(y[isa], y[0], sizeof y[0]);
        }
        for (int i = 0; i < SIZE; i++) {
            assert_true(y[0][i] == 0.0f || fabsf(y[0][i] - 4.0f / 3) < 1e-6f);
            dropped += y[0][i] == 0.0f;
            both += i > 0 && y[0][i] == 0.0f && y[0][i - 1] == 0.0f;
        }
    }
    expect_near((double)dropped / (ROUNDS * SIZE), 0.25, 0.005); /* five deviations */
    expect_near((double)both / (ROUNDS * SIZE), 0.0625, 0.004);  /* neighbours alike */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_are_near_f64_and_the_same_on_every_isa),
        cmocka_unit_test(silu_from_its_sigmoid_has_the_slope_of_silu),
        cmocka_unit_test(exponentials_sum_and_hidden_ones_are_zero),
        cmocka_unit_test(scores_are_scaled_hits_hidden_and_the_greatest_found),
        cmocka_unit_test(rows_are_near_f64_and_the_same_on_every_isa),
        cmocka_unit_test(activations_of_infinity_are_limits),
        cmocka_unit_test(dropout_is_the_same_in_pieces_across_2_to_the_32),
        cmocka_unit_test(dropout_keeps_its_share_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
