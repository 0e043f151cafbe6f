/* jagged attention of every variant against f64, forward and backward.
 *
 * Tolerance with F32 products, inputs in [-1,1): an error in a score is (D+3) ulp/2 of
 * sum|q k| alpha, and moves P by as much relatively; sums of n terms err by n ulp/2 of
 * the sum of their sizes. Rather than carry that through backward, each output is held
 * to a share of its own largest element's size: 2e-5, ten times what is seen; and to
 * 100 dB as a whole.
 *
 * With BF16 products P and dx are rounded to bf16, 2^-9 relative at most and
 * 2^-9/sqrt(3) by root mean square, 20 log10 of that is 59 dB; two such roundings meet in dq and dk
 * (P's in dx), and bf16 outputs are rounded once more: 54 dB. What cancels in a sum
 * (P dP - delta) is lost again, so 45 dB is asked for, of inputs already rounded. */
#include "jagged_naive.h"

#define SOFT .score = EK_JAGGED_SOFTMAX, .alpha = 0.25f
#define PHI  .score = EK_JAGGED_PHI, .alpha = 0.25f, .scale = 0.5f
#define MIX                                                                            \
    {                                                                                  \
        0, 1, 5, 70, 64, 17, 3, 131, -1                                                \
    }
#define GIANT                                                                          \
    {                                                                                  \
        2, 1, 520, 3, 0, 2, -1                                                         \
    }

static const int32_t any_targets[1] = {0};
static const enum ek_phi any_phis[1] = {EK_PHI_RAW};

/* What a name says is what differs from plain softmax over everything. */
static const struct shape shapes[] = {
    {.lq = MIX, .lk = MIX, .d = {2, 2, 16, SOFT}},
    {.lq = MIX, .lk = {3, 0, 9, 40, 66, 130, 1, 64, -1}, .d = {2, 1, 20, SOFT}},
    {.lq = MIX, .lk = MIX, .d = {2, 1, 64, SOFT, .mask = {.is_causal = true}}},
    {.lq = MIX,
     .lk = {3, 0, 9, 140, 33, 18, 1, 64, -1},
     .d = {2, 2, 32, SOFT, .mask = {.is_causal = true}}},
    {.lq = MIX, .lk = MIX, .d = {2, 2, 16, SOFT, .mask = {.window = 9}}},
    {.lq = MIX,
     .lk = MIX,
     .d = {2, 2, 16, SOFT, .mask = {.is_causal = true, .window = 20}}},
    {.lq = MIX, .lk = MIX, .d = {4, 2, 64, SOFT, .mask = {.block = 64}}},
    {.lq = MIX,
     .lk = {3, 0, 9, 140, 33, 18, 1, 64, -1},
     .d = {2, 2, 16, SOFT, .mask = {.block = 64}}},
    {.lq = MIX, .lk = MIX, .d = {2, 2, 16, SOFT, .mask = {.block = 24}}},
    {.lq = MIX, .lk = MIX, .d = {2, 2, 16, SOFT}, .has_pair = true},
    {.lq = MIX,
     .lk = MIX,
     .d = {2, 2, 16, SOFT, .mask = {.is_causal = true}},
     .has_pos = true,
     .has_time = true},
    {.lq = MIX, .lk = MIX, .d = {2, 2, 24, SOFT, .is_subtracting = true}},
    {.lq = {5, -1},
     .lk = {40, 1, 0, 66, 200, -1},
     .d = {2, 1, 16, SOFT, .is_broadcast_q = true}},
    {.lq = MIX,
     .lk = MIX,
     .d = {3, 3, 25, PHI, .phi = EK_PHI_SILU, .mask = {.is_causal = true}},
     .has_pos = true,
     .has_time = true},
    {.lq = MIX,
     .lk = MIX,
     .d = {2, 1, 16, PHI, .phi = EK_PHI_SILU,
           .mask = {.is_causal = true, .n_context = 2, .n_targets = any_targets}},
     .targets = {0, 0, 1, 7, 0, 3, 0, 20}},
    {.lq = MIX,
     .lk = MIX,
     .d = {2, 2, 16, PHI, .phi = EK_PHI_SILU,
           .mask = {.is_causal = true,
                    .window = 10,
                    .n_context = 2,
                    .n_full = 6,
                    .n_targets = any_targets}},
     .targets = {0, 0, 1, 7, 0, 3, 0, 20}},
    {.lq = MIX,
     .lk = MIX,
     .d = {2, 2, 16, SOFT,
           .mask = {.is_causal = true, .window = 10, .n_targets = any_targets}},
     .targets = {0, 1, 1, 7, 64, 3, 0, 20}},
    {.lq = MIX,
     .lk = {3, 0, 9, 40, 66, 130, 1, 64, -1},
     .d = {18, 9, 16, PHI, .phis = any_phis},
     .has_seq_scale = true},
    {.lq = MIX,
     .lk = MIX,
     .d = {2, 2, 48, PHI, .phi = EK_PHI_GELU_TANH, .mask = {.window = 30}}},
    {.lq = MIX,
     .lk = {64, 1, 5, 64, 64, 64, 64, 128, -1},
     .d = {2, 2, 64, PHI, .phi = EK_PHI_GELU_POLY}},
    {.lq = {70, -1},
     .lk = {64, 64, 1, 0, 64, -1},
     .d = {2, 1, 16, PHI, .phi = EK_PHI_GELU, .is_broadcast_q = true},
     .has_pos = true},
    {.lq = GIANT, .lk = GIANT, .d = {1, 1, 16, SOFT, .mask = {.is_causal = true}}},
    {.lq = {2, 1, 70, 3, 0, 2, -1},
     .lk = {3, 2, 1030, 1, 4, 2, -1},
     .d = {1, 1, 16, PHI, .phi = EK_PHI_SILU},
     .has_pos = true},
    {.lq = GIANT,
     .lk = GIANT,
     .d = {1, 1, 16, SOFT, .mask = {.block = 64}},
     .has_pos = true},
    /* blocks of 64, whole and not, of a tile by itself; every other one in bf16 rows */
    {.lq = MIX, .lk = MIX, .d = {2, 2, 64, SOFT, .mask = {.block = 64}}},
    {.lq = MIX, .lk = MIX, .d = {2, 2, 64, SOFT, .mask = {.block = 64}}},
    {.lq = GIANT, .lk = GIANT, .d = {1, 1, 32, SOFT, .mask = {.block = 64}}},
    {.lq = GIANT, .lk = GIANT, .d = {1, 1, 96, SOFT, .mask = {.block = 64}}},
    {.lq = MIX, .lk = MIX, .d = {3, 3, 96, SOFT, .mask = {.block = 64}}},
    {.lq = MIX, .lk = MIX, .d = {1, 1, 256, SOFT, .mask = {.block = 64}}},
    /* activations over few keys, all of them, and a sequence of too many */
    {.lq = MIX,
     .lk = {64, 1, 128, 5, 127, 40, 129, 0, -1},
     .d = {18, 9, 32, PHI, .phis = any_phis},
     .has_seq_scale = true},
    {.lq = MIX,
     .lk = {64, 1, 128, 5, 127, 40, 129, 0, -1},
     .d = {18, 9, 32, PHI, .phis = any_phis},
     .has_seq_scale = true},
    {.lq = MIX,
     .lk = {64, 1, 128, 5, 127, 40, 129, 0, -1},
     .d = {2, 1, 96, PHI, .phi = EK_PHI_SILU}},
    {.lq = {2, 1, 260, 3, 0, 2, -1},
     .lk = {64, 1, 128, 5, 127, 40, -1},
     .d = {1, 1, 256, PHI, .phi = EK_PHI_GELU_TANH}},
    /* silu under a causal mask: its own course up to 512 keys; every other in bf16 rows */
    {.lq = MIX,
     .lk = MIX,
     .d = {4, 2, 32, PHI, .phi = EK_PHI_SILU, .mask = {.is_causal = true}},
     .has_pos = true,
     .has_seq_scale = true},
    {.lq = MIX,
     .lk = MIX,
     .d = {4, 2, 64, PHI, .phi = EK_PHI_SILU, .mask = {.is_causal = true}},
     .has_pos = true},
    {.lq = {300, 1, 14, -1},
     .lk = {300, 1, 14, -1},
     .d = {1, 1, 96, PHI, .phi = EK_PHI_SILU, .mask = {.is_causal = true}}},
    {.lq = {512, 5, 260, -1},
     .lk = {512, 5, 260, -1},
     .d = {1, 1, 32, PHI, .phi = EK_PHI_SILU, .mask = {.is_causal = true}}},
    {.lq = {3, 40, -1}, .lk = {7, 70, -1}, .d = {2, 1, 256, SOFT}},
    {.lq = {3, 40, -1}, .lk = {7, 70, -1}, .d = {2, 1, 1, PHI, .phi = EK_PHI_RELU2}},
};

/* Each element within a share of the largest, all together at `db` at least. */
static void compare(const char *what, const struct shape *s, const void *got,
                    enum ek_dtype t, int64_t ld, const double *want, int64_t rows,
                    int64_t n, double share, double db)
{
    double top = 0, signal = 0, noise = 0;
    for (int64_t i = 0; i < rows * n; i++) {
        top = fabs(want[i]) > top ? fabs(want[i]) : top;
        signal += want[i] * want[i];
    }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < n; c++) {
            double x = get(got, t, r * ld + c), y = want[r * n + c];
            noise += (x - y) * (x - y);
            if (!(fabs(x - y) <= share * top))
                fail_msg("shape %d, %s[%d,%d]: %.9g, expected %.9g +- %.2g",
                         (int)(s - shapes), what, (int)r, (int)c, x, y, share * top);
        }
    if (noise > 0 && 10 * log10(signal / noise) < db)
        fail_msg("shape %d, %s: %.1f dB, expected %.1f", (int)(s - shapes), what,
                 10 * log10(signal / noise), db);
}

/* One variant and type of rows, beside `want`'s formulas on the same inputs. */
static void check_kernel(const struct ek_ops *ops, const struct shape *base,
                         const struct naive *want, enum ek_dtype dtype,
                         enum ek_dtype products)
{
    struct shape s = *base;
    struct jagged f;
    s.d.dtype = dtype;
    s.d.products = products;
    setup(&f, &s, 1);
    run_forward(&f, ops);
    const bool is_exact = products == EK_DTYPE_F32 && dtype == EK_DTYPE_F32;
    const double share = is_exact ? 2e-5 : 2e-2, db = is_exact ? 100 : 45;
    const int64_t H = f.d.H, HD = H * f.d.D, KD = (int64_t)f.d.K * f.d.D;
    compare("o", base, f.a.o, dtype, f.a.ldo, want->o, f.n_o, HD, share, db);
    for (int64_t i = 0; f.a.lse && i < f.n_o * H; i++)
        if (want->lse[i] > -1e30)
            expect_near((double)f.a.lse[i], want->lse[i], is_exact ? 1e-5 : 1e-3);
        else
            assert_true(f.a.lse[i] == -INFINITY);
    run_backward(&f, ops);
    compare("dq", base, f.a.dq, dtype, f.a.ldq, want->dq, f.n_q, HD, share, db);
    compare("dk", base, f.a.dk, dtype, f.a.ldk, want->dk, f.n_k, KD, share, db);
    compare("dv", base, f.a.dv, dtype, f.a.ldv, want->dv, f.n_k, KD, share, db);
    if (f.a.dpair)
        compare("dpair", base, f.a.dpair, EK_DTYPE_F32, f.n_pair, want->dpair, H,
                f.n_pair, share, db);
    if (f.a.dpos)
        compare("dpos", base, f.a.dpos, EK_DTYPE_F32, 1, want->dpos, 2 * f.bias.N - 1,
                1, share, db);
    if (f.a.dtime)
        compare("dtime", base, f.a.dtime, EK_DTYPE_F32, 1, want->dtime,
                EK_JAGGED_BUCKETS, 1, share, db);
    teardown(&f);
}

/* The plain variant has no code of its own for most shapes in bf16. */
static bool is_plain_enough(const struct ek_ops *ops, size_t shape)
{
    return ops->isa != EK_ISA_REF || shape < 8;
}

/* The formulas once a shape, for every variant; in bf16 for
 * both types of rows, whose values are the same numbers. */
static void check_shapes(bool is_exact)
{
    for (size_t i = 0; i < COUNT(shapes); i++) {
        struct shape s = shapes[i];
        struct jagged f;
        s.d.dtype = EK_DTYPE_F32;
        s.d.products = is_exact ? EK_DTYPE_F32 : EK_DTYPE_BF16;
        setup(&f, &s, 1);
        naive_run(&f, true);
        for (int isa = EK_ISA_REF; isa <= (int)ek_isa_best(); isa++) {
            const struct ek_ops *ops = ek_ops_get((enum ek_isa)isa);
            if (!is_exact && !is_plain_enough(ops, i))
                continue;
            check_kernel(ops, &shapes[i], &f.x, EK_DTYPE_F32, s.d.products);
            if (!is_exact)
                check_kernel(ops, &shapes[i], &f.x, EK_DTYPE_BF16,
                             i % 2 ? EK_DTYPE_BF16 : EK_DTYPE_F32);
        }
        teardown(&f);
    }
}

static void f32_is_the_formula(void **state)
{
    (void)state;
    check_shapes(true);
}

static void bf16_products_and_rows_keep_45_db(void **state)
{
    (void)state;
    check_shapes(false);
}

/* Large scores: softmax by its largest, activations far out. */
static void check_large(const struct ek_ops *ops)
{
    struct shape s = {
        .lq = MIX, .lk = MIX, .d = {2, 2, 16, SOFT, .mask = {.is_causal = true}}};
    s.amplitude = 12;
    s.d.dtype = s.d.products = EK_DTYPE_F32;
    struct jagged f;
    setup(&f, &s, 3);
    naive_run(&f, true);
    run_forward(&f, ops);
    run_backward(&f, ops);
    compare("o", shapes, f.a.o, EK_DTYPE_F32, f.a.ldo, f.x.o, f.n_o, 32, 1e-4, 90);
    compare("dq", shapes, f.a.dq, EK_DTYPE_F32, f.a.ldq, f.x.dq, f.n_q, 32, 1e-4, 80);
    teardown(&f);
}

static void scores_of_hundreds_stay_finite(void **state)
{
    (void)state;
    for (int isa = EK_ISA_REF; isa <= (int)ek_isa_best(); isa++)
        check_large(ek_ops_get((enum ek_isa)isa));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_is_the_formula),
        cmocka_unit_test(bf16_products_and_rows_keep_45_db),
        cmocka_unit_test(scores_of_hundreds_stay_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
