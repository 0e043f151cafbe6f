/* test_rope.c - rotary positions against their formula, and what they are for: a score
 * depends on the distance of two rows; and fused with the product before them. Their
 * backward is in test_ops.c. */
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

/* x W, rope, attention one after another, or fused. */
static int block_attention(struct kit *k, bool is_fused)
{
    const struct ek_block o = {.heads = 2, .kv_heads = 1, .dim = 6, .base = 100};
    int edges = kit_axis(k, "edges", k->n + 1);
    int offsets = kit_input(k, "offsets", edges, 1, EK_DTYPE_I64);
    int places = kit_input(k, "places", k->axis, 1, EK_DTYPE_F32);
    k->offsets[k->n] = k->n;
    int x = kit_x(k, "x", 5, 1), w = kit_param(k, "w", 5, 24, 0.5f);
    int b = kit_param(k, "b", 1, 24, 0.5f), y;
    if (is_fused) {
        y = ek_block_attention(k->g, x, w, b, places, offsets, &o);
    } else {
        int z = ek_rope(k->g, ek_linear(k->g, x, w, b, EK_ACT_NONE), places, 6, 100);
        y = ek_jagged_attention(k->g, ek_graph_columns(k->g, z, 0, 12),
                                ek_graph_columns(k->g, z, 12, 6),
                                ek_graph_columns(k->g, z, 18, 6), offsets, offsets,
                                &(struct ek_attention){.heads = 2,
                                                       .kv_heads = 1,
                                                       .dim = 6,
                                                       .score = EK_JAGGED_SOFTMAX,
                                                       .alpha = 1.0f / sqrtf(6),
                                                       .scale = 1,
                                                       .mask = {.block = 64},
                                                       .out_axis = -1,
                                                       .pos = -1,
                                                       .time = -1,
                                                       .t_query = -1,
                                                       .t_key = -1,
                                                       .seq_scale = -1,
                                                       .targets = -1});
    }
    return kit_loss(k, y, k->axis, 12);
}

static int case_fused(struct kit *k)
{
    return block_attention(k, true);
}

static int case_composed(struct kit *k)
{
    return block_attention(k, false);
}

static void expect_close(const char *what, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-5f * (1 + fabsf(b[i]))))
            fail_msg("%s[%d]: %g, composed %g", what, (int)i, (double)a[i],
                     (double)b[i]);
}

static void fused_block_attention_is_its_three_operations(void **state)
{
    (void)state;
    static const struct kit_case cases[] = {{"fused", case_fused},
                                            {"composed", case_composed}};
    for (int again = 0; again < 2; again++) {
        struct kit k[2];
        for (int i = 0; i < 2; i++) {
            kit_open(&k[i], &cases[i], 150,
                     &(struct kit_options){
                         .n_threads = 2, .isa = ek_isa_best(), .is_recomputed = again});
            ek_params_zero_grad(k[i].params);
            kit_forward(&k[i]);
            ek_graph_backward(k[i].g, 1.0f);
        }
        expect_close("y", ek_graph_mat(k[0].g, k[0].y).f,
                     ek_graph_mat(k[1].g, k[1].y).f, 150 * 12);
        for (int p = 0; p < ek_params_count(k[0].params); p++) {
            const struct ek_param *a = ek_params_get(k[0].params, p);
            const struct ek_param *b = ek_params_get(k[1].params, p);
            assert_string_equal(a->name, b->name);
            expect_close(a->name, a->grad, b->grad, a->rows * a->cols);
        }
        kit_close(&k[0]);
        kit_close(&k[1]);
    }
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
        cmocka_unit_test(fused_block_attention_is_its_three_operations),
        cmocka_unit_test(what_cannot_be_turned_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
