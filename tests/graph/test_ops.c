/* test_ops.c - every backward against fourth-order differences of its forward, summed in
 * f64: f' = (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h, whose error at h = 0.02 is the
 * rounding of f32, about 1e-5. */
#include "graphcases.h"

#define STEP 0.02

static double slope(struct kit *k, float *x)
{
    static const double at[] = {1, -1, 2, -2}, weight[] = {8, -8, -1, 1};
    float old = *x;
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        *x = (float)((double)old + at[i] * STEP);
        kit_forward(k);
        sum += weight[i] * kit_value(k);
    }
    *x = old;
    return sum / (12 * STEP);
}

static void check_param(struct kit *k, const struct kit_case *c, struct ek_param *p,
                        struct ek_rng *rng)
{
    int64_t n = p->rows * p->cols, tries = n < 24 ? n : 24;
    for (int64_t t = 0; t < tries; t++) {
        int64_t i = n <= tries ? t : (int64_t)ek_rng_below(rng, (uint64_t)n);
        double want = slope(k, p->value + i), got = (double)p->grad[i];
        if (!(fabs(got - want) <= 3e-4 * (1 + fabs(want))))
            fail_msg("%s: %s[%lld]: gradient %.6g, slope %.6g", c->name, p->name,
                     (long long)i, got, want);
    }
}

static void check_case(const struct kit_case *c, int64_t n, enum ek_isa isa)
{
    struct kit k;
    struct ek_rng rng;
    ek_rng_init(&rng, 1);
    kit_open(&k, c, n,
             &(struct kit_options){.n_threads = 2, .isa = isa, .is_training = true});
    ek_params_zero_grad(k.params);
    kit_forward(&k);
    ek_graph_backward(k.g, 1.0f);
    for (int i = 0; i < ek_params_count(k.params); i++)
        check_param(&k, c, ek_params_get(k.params, i), &rng);
    kit_close(&k);
}

static void every_backward_is_the_slope_of_its_forward(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(kit_cases); i++)
        for (int isa = 0; isa <= (int)ek_isa_best(); isa++)
            check_case(&kit_cases[i], 7, (enum ek_isa)isa);
}

static void one_row_has_its_gradient(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(kit_cases); i++)
        check_case(&kit_cases[i], 1, ek_isa_best());
}

/* A batch may have no row of an axis: nothing moves, nothing breaks. */
static void no_rows_are_no_gradient(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(kit_cases); i++) {
        struct kit k;
        kit_open(&k, &kit_cases[i], 5,
                 &(struct kit_options){.n_threads = 2, .isa = ek_isa_best()});
        ek_params_zero_grad(k.params);
        k.n = 0;
        memset(k.offsets, 0, KIT_MAX * sizeof *k.offsets);
        kit_forward(&k);
        ek_graph_backward(k.g, 1.0f);
        for (int p = 0; p < ek_params_count(k.params); p++) {
            struct ek_param *x = ek_params_get(k.params, p);
            for (int64_t j = 0; j < x->rows * x->cols; j++)
                assert_true(x->grad[j] == 0.0f);
        }
        kit_close(&k);
    }
}

/* Largest difference of two gradients, relative to the largest entry. */
static double distance(const struct ek_param *a, const struct ek_param *b)
{
    double far = 0, top = 0;
    for (int64_t i = 0; i < a->rows * a->cols; i++) {
        far = fmax(far, fabs((double)a->grad[i] - (double)b->grad[i]));
        top = fmax(top, fabs((double)a->grad[i]));
    }
    return top > 0 ? far / top : far;
}

static void bf16_gradients_are_near_those_of_f32(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(kit_cases); i++) {
        struct kit k[2];
        for (int j = 0; j < 2; j++) {
            kit_open(&k[j], &kit_cases[i], 300,
                     &(struct kit_options){.n_threads = 2,
                                           .isa = ek_isa_best(),
                                           .is_bf16 = j == 1,
                                           .is_training = true});
            ek_params_zero_grad(k[j].params);
            kit_forward(&k[j]);
            ek_graph_backward(k[j].g, 1.0f);
        }
        for (int p = 0; p < ek_params_count(k[0].params); p++) {
            double d =
                distance(ek_params_get(k[0].params, p), ek_params_get(k[1].params, p));
            if (!(d < 0.03))
                fail_msg("%s: %s is %.3g away in bf16", kit_cases[i].name,
                         ek_params_get(k[0].params, p)->name, d);
        }
        kit_close(&k[0]);
        kit_close(&k[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_backward_is_the_slope_of_its_forward),
        cmocka_unit_test(one_row_has_its_gradient),
        cmocka_unit_test(no_rows_are_no_gradient),
        cmocka_unit_test(bf16_gradients_are_near_those_of_f32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
