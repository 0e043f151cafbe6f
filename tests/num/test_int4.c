/* test_int4.c - groups of 32 to 4 bits: the cost told is the cost, and no greater than
 * the usual writers'; grids come back exactly; scales are what can be stored. */
#include "base/rng.h"
#include "num/float.h"
#include "num/int4.h"
#include "num/quant.h"
#include "num_test.h"

static const enum ek_int4_kind kinds[] = {EK_INT4_Q4_0, EK_INT4_Q4_1, EK_INT4_SYM,
                                          EK_INT4_ZERO};

static float uniform(struct ek_rng *r)
{
    return (float)ek_rng_below(r, 1 << 20) / (1 << 19) - 1.0f;
}

static void random_group(float x[32], struct ek_rng *r, float scale)
{
    for (int k = 0; k < 32; k++)
        x[k] = scale * (uniform(r) + uniform(r) + uniform(r));
}

static float value(const struct ek_int4 *g, enum ek_int4_kind kind, int k)
{
    if (kind == EK_INT4_Q4_1)
        return g->d * (float)g->q[k] + g->m;
    return g->d * (float)(g->q[k] - g->zero);
}

static double cost(const struct ek_int4 *g, enum ek_int4_kind kind, const float *x,
                   const float *v)
{
    double sum = 0;
    for (int k = 0; k < 32; k++) {
        double e = (double)x[k] - (double)value(g, kind, k);
        sum += (v ? (double)v[k] : 1.0) * e * e;
    }
    return sum;
}

static void expect_storable(const struct ek_int4 *g, enum ek_int4_kind kind)
{
    bool is_f16 = kind == EK_INT4_Q4_0 || kind == EK_INT4_Q4_1;
    float d = is_f16 ? ek_f16_to_f32(ek_f32_to_f16(g->d))
                     : ek_bf16_to_f32(ek_f32_to_bf16(g->d));
    assert_true(d == g->d && isfinite(d));
    assert_true(kind == EK_INT4_Q4_0 || g->d >= 0);
    if (kind == EK_INT4_Q4_1)
        assert_true(ek_f16_to_f32(ek_f32_to_f16(g->m)) == g->m);
    else
        assert_true(g->zero >= 0 && g->zero <= 15 && g->m == -(float)g->zero * g->d);
    assert_true(kind == EK_INT4_ZERO || kind == EK_INT4_Q4_1 || g->zero == 8);
    for (int k = 0; k < 32; k++)
        assert_in_range(g->q[k], 0, 15);
}

static void what_is_stored_can_be_and_costs_what_is_told(void **state)
{
    (void)state;
    struct ek_rng r;
    ek_rng_init(&r, 3);
    for (int i = 0; i < 4000; i++) {
        enum ek_int4_kind kind = kinds[i % 4];
        float x[32], v[32];
        struct ek_int4 g;
        random_group(x, &r, i % 7 ? 0.02f : 30.0f);
        for (int k = 0; k < 32; k++) {
            x[k] += i % 3 ? 0.0f : 0.5f;
            v[k] = uniform(&r) + 1.0f;
        }
        float told = ek_int4_fit(&g, kind, x, i % 2 ? v : NULL);
        double real = cost(&g, kind, x, i % 2 ? v : NULL), total = 0;
        for (int k = 0; k < 32; k++)
            total += i % 2 ? (double)v[k] / 32 : 1.0 / 32;
        expect_storable(&g, kind);
        /* Weights are scaled to a mean of 1. */
        assert_true(fabs((double)told * total - real) <= 1e-3 * real + 1e-12);
    }
}

/* Against the writers that take the range as it is. */
static void the_cost_is_at_most_that_of_the_usual_writers(void **state)
{
    (void)state;
    struct ek_rng r;
    ek_rng_init(&r, 4);
    double ours = 0, usual = 0;
    for (int i = 0; i < 2000; i++) {
        float x[32], y[32];
        unsigned char bytes[20];
        struct ek_int4 g;
        enum ek_int4_kind kind = i % 2 ? EK_INT4_Q4_1 : EK_INT4_Q4_0;
        enum ek_dtype t = i % 2 ? EK_DTYPE_Q4_1 : EK_DTYPE_Q4_0;
        random_group(x, &r, 0.05f);
        ek_quant_from_f32(bytes, t, x, 32);
        ek_quant_to_f32(y, t, bytes, 32);
        double theirs = 0;
        for (int k = 0; k < 32; k++)
            theirs += pow((double)x[k] - (double)y[k], 2);
        ek_int4_fit(&g, kind, x, NULL);
        double mine = cost(&g, kind, x, NULL);
        assert_true(mine <= theirs * 1.000001);
        ours += mine;
        usual += theirs;
    }
    assert_true(ours < 0.9 * usual);
}

static void a_group_on_a_grid_comes_back_exactly(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(kinds); i++) {
        float x[32];
        struct ek_int4 g;
        int zero = kinds[i] == EK_INT4_ZERO ? 3 : 8;
        for (int k = 0; k < 32; k++)
            x[k] = 0.03125f * (float)(k % 16 - zero);
        assert_true(ek_int4_fit(&g, kinds[i], x, NULL) == 0);
        for (int k = 0; k < 32; k++)
            assert_true(value(&g, kinds[i], k) == x[k]);
    }
}

static void groups_of_one_value_are_kept(void **state)
{
    (void)state;
    static const float values[] = {0, 1, -1, 0.1f, -3e-5f, 1e-30f, 20000.0f};
    for (size_t i = 0; i < COUNT(kinds) * COUNT(values); i++) {
        enum ek_int4_kind kind = kinds[i % 4];
        float x[32], want = values[i / 4];
        struct ek_int4 g;
        for (int k = 0; k < 32; k++)
            x[k] = want;
        ek_int4_fit(&g, kind, x, NULL);
        expect_storable(&g, kind);
        /* One rounding of the scale to 8 bits, or f16's smallest step of 15. */
        for (int k = 0; k < 32; k++)
            assert_true(fabsf(value(&g, kind, k) - want) <=
                        0x1p-8f * fabsf(want) + 0x1p-21f);
    }
}

static void weights_move_the_error_to_where_it_weighs_little(void **state)
{
    (void)state;
    struct ek_rng r;
    ek_rng_init(&r, 5);
    for (size_t i = 0; i < COUNT(kinds); i++) {
        double heavy = 0, plain = 0;
        for (int n = 0; n < 200; n++) {
            float x[32], v[32];
            struct ek_int4 a, b;
            random_group(x, &r, 1);
            for (int k = 0; k < 32; k++)
                v[k] = k % 8 ? 0.01f : 5.0f;
            ek_int4_fit(&a, kinds[i], x, v);
            ek_int4_fit(&b, kinds[i], x, NULL);
            heavy += cost(&a, kinds[i], x, v);
            plain += cost(&b, kinds[i], x, v);
        }
        assert_true(heavy < 0.85 * plain);
    }
}

static void weights_of_zero_mean_none(void **state)
{
    (void)state;
    float x[32], v[32] = {0};
    struct ek_int4 a, b;
    struct ek_rng r;
    ek_rng_init(&r, 6);
    random_group(x, &r, 1);
    ek_int4_fit(&a, EK_INT4_Q4_1, x, v);
    ek_int4_fit(&b, EK_INT4_Q4_1, x, NULL);
    assert_memory_equal(&a, &b, sizeof a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_stored_can_be_and_costs_what_is_told),
        cmocka_unit_test(the_cost_is_at_most_that_of_the_usual_writers),
        cmocka_unit_test(a_group_on_a_grid_comes_back_exactly),
        cmocka_unit_test(groups_of_one_value_are_kept),
        cmocka_unit_test(weights_move_the_error_to_where_it_weighs_little),
        cmocka_unit_test(weights_of_zero_mean_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
