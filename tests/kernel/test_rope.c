/* rotary embedding: frequencies against the published formulas written out here, and
 * the rotation of every variant in both pairings. */
#include "kernel_test.h"

static const double pi = 3.14159265358979323846;

static double plain(int i, int R, double base)
{
    return 1 / pow(base, (double)(2 * i) / R);
}

static void expect_freq(const struct ek_rope *r, int i, double want)
{
    if (!(fabs(r->inv_freq[i] - want) <= 1e-12 * want))
        fail_msg("inv_freq[%d] = %.15g, expected %.15g", i, r->inv_freq[i], want);
}

static void unscaled_and_linear_frequencies(void **state)
{
    (void)state;
    struct ek_rope_options o = {.n_dims = 64, .base = 100000, .factor = 8};
    struct ek_rope r;
    ek_rope_init(&r, &o);
    assert_true(r.mscale == 1);
    for (int i = 0; i < 32; i++)
        expect_freq(&r, i, plain(i, 64, 100000));
    o.scaling = EK_ROPE_LINEAR;
    ek_rope_init(&r, &o);
    for (int i = 0; i < 32; i++)
        expect_freq(&r, i, plain(i, 64, 100000) / 8);
}

/* Llama 3.1's rope_scaling, in wavelengths as its model card's code states it. */
static void llama3_frequencies_follow_the_model_card(void **state)
{
    (void)state;
    struct ek_rope_options o = {.n_dims = 128,
                                .base = 500000,
                                .scaling = EK_ROPE_LLAMA3,
                                .factor = 8,
                                .original_ctx = 8192,
                                .low_freq_factor = 1,
                                .high_freq_factor = 4};
    struct ek_rope r;
    int kept = 0, divided = 0, between = 0;
    ek_rope_init(&r, &o);
    for (int i = 0; i < 64; i++) {
        double f = plain(i, 128, 500000), wavelength = 2 * pi / f, want;
        if (wavelength < 8192.0 / 4) {
            want = f;
            kept++;
        } else if (wavelength > 8192.0 / 1) {
            want = f / 8;
            divided++;
        } else {
            double smooth = (8192 / wavelength - 1) / (4 - 1);
            want = (1 - smooth) * f / 8 + smooth * f;
            between++;
        }
        expect_freq(&r, i, want);
    }
    assert_true(kept > 20 && divided > 20 && between > 2);
    assert_true(r.mscale == 1);
}

/* YaRN (Peng et al. 2023, 3.2): by the number of turns each dimension makes in the old
 * context; ends rounded outward to whole dimensions as every implementation does. */
static void yarn_frequencies_follow_the_paper(void **state)
{
    (void)state;
    struct ek_rope_options o = {.n_dims = 64,
                                .base = 50000,
                                .scaling = EK_ROPE_YARN,
                                .factor = 32,
                                .original_ctx = 4096,
                                .beta_fast = 32,
                                .beta_slow = 1};
    struct ek_rope r;
    ek_rope_init(&r, &o);
    /* the dimension that turns b times: 4096 f / 2 pi = b */
    double low = floor(64 * log(4096 / (32 * 2 * pi)) / (2 * log(50000)));
    double high = ceil(64 * log(4096 / (1 * 2 * pi)) / (2 * log(50000)));
    assert_true(low == 8 && high == 20);
    for (int i = 0; i < 32; i++) {
        double f = plain(i, 64, 50000), keep;
        if (i <= low)
            keep = 1;
        else if (i >= high)
            keep = 0;
        else
            keep = 1 - (i - low) / (high - low);
        expect_freq(&r, i, f * keep + f / 32 * (1 - keep));
    }
    expect_near((double)r.mscale, 0.1 * log(32) + 1, 1e-6);
    o.mscale = 0.75;
    ek_rope_init(&r, &o);
    expect_near((double)r.mscale, 0.75, 0);
}

/* beta_fast = beta_slow = 1 (Kimi K2): one whole dimension wide, or none at all. */
static void yarn_with_equal_betas_has_no_division_by_zero(void **state)
{
    (void)state;
    struct ek_rope_options o = {.n_dims = 64,
                                .base = 50000,
                                .scaling = EK_ROPE_YARN,
                                .factor = 64,
                                .original_ctx = 4096,
                                .beta_fast = 1,
                                .beta_slow = 1};
    struct ek_rope r;
    ek_rope_init(&r, &o);
    for (int i = 0; i < 32; i++)
        expect_freq(&r, i, plain(i, 64, 50000) / (i < 20 ? 1 : 64));
    /* A context that ends on a whole dimension: low == high. */
    o.base = exp(1);
    o.original_ctx = 2 * pi * exp(1);
    ek_rope_init(&r, &o);
    for (int i = 0; i < 32; i++)
        assert_true(isfinite(r.inv_freq[i]) && r.inv_freq[i] > 0);
}

static void the_table_holds_cos_and_sin_of_f64_angles(void **state)
{
    (void)state;
    struct ek_rope_options o = {.n_dims = 32,
                                .base = 10000,
                                .scaling = EK_ROPE_YARN,
                                .factor = 4,
                                .original_ctx = 1024,
                                .beta_fast = 32,
                                .beta_slow = 1};
    struct ek_rope r;
    ek_rope_init(&r, &o);
    int32_t pos[] = {0, 1, 4095, 131071};
    float cs[4 * 32];
    ek_rope_table(cs, &r, pos, 4);
    for (int t = 0; t < 4; t++)
        for (int i = 0; i < 16; i++) {
            double a = pos[t] * r.inv_freq[i], m = (double)r.mscale;
            expect_near((double)cs[t * 32 + 2 * i], m * cos(a), 1.5e-7);
            expect_near((double)cs[t * 32 + 2 * i + 1], m * sin(a), 1.5e-7);
        }
}

/* Two products and a sum in f32: 2 ulp of |u| + |v|, each at most 1 here. */
static void check_rotation(const struct ek_ops *ops)
{
    static const int rotary[] = {2, 6, 16, 30, 32, 64, 80, 128};
    for (size_t i = 0; i < 2 * COUNT(rotary); i++) {
        int R = rotary[i / 2], T = 3, H = 2, D = R + (i % 4 ? 0 : 5), ld = H * D + 3;
        struct ek_rope_options o = {
            .n_dims = R, .base = 10000, .is_interleaved = i % 2 == 0};
        struct ek_rope r;
        struct ek_rng rng;
        int32_t pos[] = {0, 17, 100000};
        ek_rng_init(&rng, i);
        ek_rope_init(&r, &o);
        float *cs = new_floats(T * R), *x = new_floats(T * ld), *y = new_floats(T * ld);
        fill_random(x, T * ld, &rng);
        memcpy(y, x, (size_t)(T * ld) * sizeof *x);
        ek_rope_table(cs, &r, pos, T);
        ops->rope(y, ld, cs, &r, T, H, D);
        for (int t = 0; t < T; t++)
            for (int j = 0; j < R / 2; j++) {
                double a = pos[t] * r.inv_freq[j];
                for (int h = 0; h < H; h++) {
                    int64_t head = (int64_t)t * ld + (int64_t)h * D;
                    int64_t u = head + (o.is_interleaved ? 2 * j : j);
                    int64_t v = u + (o.is_interleaved ? 1 : R / 2);
                    double x0 = (double)x[u], x1 = (double)x[v];
                    expect_near((double)y[u], x0 * cos(a) - x1 * sin(a), 5e-7);
                    expect_near((double)y[v], x0 * sin(a) + x1 * cos(a), 5e-7);
                    x[u] = y[u];
                    x[v] = y[v];
                }
            }
        /* what was not rotated is as it was */
        assert_memory_equal(x, y, (size_t)(T * ld) * sizeof *x);
        ek_free(cs);
        ek_free(x);
        ek_free(y);
    }
}

static void both_pairings_rotate_and_leave_the_rest_alone(void **state)
{
    (void)state;
    for_each_isa(check_rotation);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unscaled_and_linear_frequencies),
        cmocka_unit_test(llama3_frequencies_follow_the_model_card),
        cmocka_unit_test(yarn_frequencies_follow_the_paper),
        cmocka_unit_test(yarn_with_equal_betas_has_no_division_by_zero),
        cmocka_unit_test(the_table_holds_cos_and_sin_of_f64_angles),
        cmocka_unit_test(both_pairings_rotate_and_leave_the_rest_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
