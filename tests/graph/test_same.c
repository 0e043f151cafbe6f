/* test_same.c - the same bits: on any number of threads, saved or recomputed, run twice,
 * and without an allocation in a step. */
#include "graphcases.h"

#define ROWS 700 /* several blocks and partial sums of everything */

/* Runs a case once; the gradients of all parameters one after the other. Caller frees. */
static float *gradients(const struct kit_case *c, const struct kit_options *o,
                        int64_t *n, float *loss)
{
    struct kit k;
    kit_open(&k, c, ROWS, o);
    ek_params_zero_grad(k.params);
    ek_mem_fail_at(1); /* no allocation in a step: this one would fail */
    kit_forward(&k);
    ek_graph_backward(k.g, 1.0f);
    assert_false(ek_mem_failed());
    ek_mem_fail_at(0);
    *n = 0;
    for (int i = 0; i < ek_params_count(k.params); i++)
        *n += ek_params_get(k.params, i)->rows * ek_params_get(k.params, i)->cols;
    float *all = ek_alloc_array((size_t)*n, sizeof *all);
    assert_non_null(all);
    int64_t at = 0;
    for (int i = 0; i < ek_params_count(k.params); i++) {
        const struct ek_param *p = ek_params_get(k.params, i);
        memcpy(all + at, p->grad, (size_t)(p->rows * p->cols) * sizeof *all);
        at += p->rows * p->cols;
    }
    *loss = (float)kit_value(&k);
    kit_close(&k);
    return all;
}

static void expect_same(const struct kit_case *c, const struct kit_options *a,
                        const struct kit_options *b)
{
    int64_t n[2];
    float loss[2];
    float *x = gradients(c, a, &n[0], &loss[0]), *y = gradients(c, b, &n[1], &loss[1]);
    assert_int_equal(n[0], n[1]);
    double size = 0;
    for (int64_t i = 0; i < n[0]; i++)
        size += fabs((double)x[i]);
    assert_true(size > 0 && isfinite(size));
    if (memcmp(x, y, (size_t)n[0] * sizeof *x) != 0 || loss[0] != loss[1])
        fail_msg("%s: other bits with %d threads%s%s", c->name, b->n_threads,
                 b->is_recomputed ? ", recomputed" : "", b->is_bf16 ? ", bf16" : "");
    ek_free(x);
    ek_free(y);
}

static void bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    static const int threads[] = {2, 3, 8, 17};
    for (size_t i = 0; i < COUNT(kit_cases); i++)
        for (size_t t = 0; t < COUNT(threads); t++)
            for (int bf16 = 0; bf16 < 2; bf16++) {
                struct kit_options o = {.n_threads = 1,
                                        .isa = ek_isa_best(),
                                        .is_bf16 = bf16,
                                        .is_training = true};
                struct kit_options more = o;
                more.n_threads = threads[t];
                expect_same(&kit_cases[i], &o, &more);
            }
}

static void recomputed_gradients_are_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(kit_cases); i++) {
        struct kit_options o = {
            .n_threads = 2, .isa = ek_isa_best(), .is_training = true};
        struct kit_options again = o;
        again.is_recomputed = true;
        expect_same(&kit_cases[i], &o, &again);
    }
}

static const struct kit_case model = {"model", case_model};

static void recomputing_saves_memory(void **state)
{
    (void)state;
    size_t saved[2];
    for (int again = 0; again < 2; again++) {
        struct kit k;
        kit_open(&k, &model, ROWS,
                 &(struct kit_options){
                     .n_threads = 1, .is_recomputed = again, .is_training = true});
        saved[again] = ek_graph_saved_bytes(k.g);
        kit_close(&k);
    }
    assert_true(saved[1] * 4 < saved[0]);
}

/* Any one operation recomputed, the others saved. */
static void each_value_may_be_recomputed_alone(void **state)
{
    (void)state;
    float *want = NULL;
    for (int at = -1; at < 60; at++) {
        struct kit k;
        struct ek_err err = EK_ERR_INIT;
        k = (struct kit){.n = 50};
        kit_fill(&k);
        assert_int_equal(ek_team_new(&k.team, 2, false, &err), 0);
        assert_int_equal(ek_params_new(&k.params, 5, &err), 0);
        struct ek_graph_options go = {
            .team = k.team, .isa = ek_isa_best(), .is_training = true, .seed = 3};
        assert_int_equal(ek_graph_new(&k.g, k.params, &go, &err), 0);
        k.axis = ek_graph_axis(k.g, "rows", k.n);
        k.ids = kit_input(&k, "ids", k.axis, 1, EK_DTYPE_I32);
        k.y = case_model(&k);
        ek_graph_output(k.g, k.y);
        if (at >= 0)
            ek_graph_keep(k.g, at, EK_KEEP_RECOMPUTE);
        assert_int_equal(ek_graph_plan(k.g, &err), 0);
        kit_bind(&k);
        ek_params_zero_grad(k.params);
        kit_forward(&k);
        ek_graph_backward(k.g, 1.0f);
        const struct ek_param *p = ek_params_get(k.params, 0);
        size_t bytes = (size_t)(p->rows * p->cols) * sizeof *p->grad;
        if (at < 0) {
            want = ek_alloc(bytes);
            assert_non_null(want);
            memcpy(want, p->grad, bytes);
        }
        assert_memory_equal(want, p->grad, bytes);
        kit_close(&k);
    }
    ek_free(want);
}

/* What a seed and a step mean: the same twice, something else for the next step. */
static void dropout_differs_by_step_and_repeats(void **state)
{
    (void)state;
    struct kit k;
    kit_open(&k, &model, ROWS,
             &(struct kit_options){.n_threads = 2, .is_training = true});
    float loss[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ek_graph_set_axis(k.g, k.axis, ROWS), 0);
        ek_graph_forward(k.g, (uint64_t)(i % 2));
        loss[i] = ek_graph_scalar(k.g, k.y);
    }
    assert_true(loss[0] == loss[2] && loss[0] != loss[1]);
    kit_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_threads),
        cmocka_unit_test(recomputed_gradients_are_the_same_bits),
        cmocka_unit_test(recomputing_saves_memory),
        cmocka_unit_test(each_value_may_be_recomputed_alone),
        cmocka_unit_test(dropout_differs_by_step_and_repeats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
