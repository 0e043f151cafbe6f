/* test_rope.c - rotary positions against their formula, and what they are for: a score
 * depends on the distance of two rows. Their backward is in test_ops.c. */
#include "graphkit.h"

#define N 9
#define D 6

static int case_rope(struct kit *k)
{
    int places = kit_input(k, "places", k->axis, 1, EK_DTYPE_F32);
    int y = ek_rope(k->g, kit_x(k, "x", 2 * D, 1), places, D, 50);
    return kit_loss(k, y, k->axis, 2 * D);
}

static const struct kit_case rope = {"rope", case_rope};

static void rows_are_turned_by_their_position(void **state)
{
    (void)state;
    struct kit k;
    kit_open(&k, &rope, N, &(struct kit_options){.n_threads = 2, .isa = ek_isa_best()});
    kit_forward(&k);
    const float *x = ek_params_get(k.params, ek_params_find(k.params, "x"))->value;
    const float *y = ek_graph_mat(k.g, k.y).f;
    for (int t = 0; t < N; t++)
        for (int c = 0; c < 2 * D; c += 2) {
            double a = (double)k.weights[t] * pow(50, -(double)(c % D) / D);
            double u = (double)x[t * 2 * D + c], v = (double)x[t * 2 * D + c + 1];
            assert_true(fabs((double)y[t * 2 * D + c] - (u * cos(a) - v * sin(a))) <
                        1e-6);
            assert_true(fabs((double)y[t * 2 * D + c + 1] - (v * cos(a) + u * sin(a))) <
                        1e-6);
        }
    kit_close(&k);
}

/* The product of rows 0 and 1, positions shifted by `by`. */
static double product(struct kit *k, float by)
{
    double sum = 0;
    k->weights[0] = 3.0f + by;
    k->weights[1] = 7.0f + by;
    kit_forward(k);
    const float *y = ek_graph_mat(k->g, k->y).f;
    for (int c = 0; c < D; c++)
        sum += (double)y[c] * (double)y[2 * D + c];
    return sum;
}

static void scores_depend_on_distance_alone(void **state)
{
    (void)state;
    struct kit k;
    kit_open(&k, &rope, N, &(struct kit_options){.n_threads = 1, .isa = ek_isa_best()});
    double here = product(&k, 0), there = product(&k, 1000);
    assert_true(fabs(here - there) < 1e-5);
    k.weights[1] = 8.0f; /* one farther: another score */
    kit_forward(&k);
    const float *y = ek_graph_mat(k.g, k.y).f;
    double sum = 0;
    for (int c = 0; c < D; c++)
        sum += (double)y[c] * (double)y[2 * D + c];
    assert_true(fabs(sum - here) > 1e-3);
    kit_close(&k);
}

static void what_cannot_be_turned_is_refused(void **state)
{
    (void)state;
    static const int dims[] = {0, 5, 4, 512};
    for (size_t i = 0; i < COUNT(dims); i++) {
        struct ek_err err = EK_ERR_INIT;
        struct ek_params *params;
        struct ek_team *team;
        struct ek_graph *g;
        assert_int_equal(ek_team_new(&team, 1, false, &err), 0);
        assert_int_equal(ek_params_new(&params, 1, &err), 0);
        struct ek_graph_options o = {.team = team, .isa = ek_isa_best()};
        assert_int_equal(ek_graph_new(&g, params, &o, &err), 0);
        int axis = ek_graph_axis(g, "rows", 4);
        int x = ek_graph_input(g, "x", axis, 10, EK_DTYPE_F32);
        int p = ek_graph_input(g, "p", axis, 1, EK_DTYPE_F32);
        assert_int_equal(ek_rope(g, x, p, dims[i], 100), -1);
        assert_int_equal(ek_graph_plan(g, &err), EK_EINVAL);
        assert_non_null(strstr(err.text, "rope: heads of"));
        ek_graph_free(g);
        ek_params_free(params);
        ek_team_free(team);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_turned_by_their_position),
        cmocka_unit_test(scores_depend_on_distance_alone),
        cmocka_unit_test(what_cannot_be_turned_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
