/* test_plan.c - places never overlap in life, and what building refuses. */
#include "graph/graph_int.h"
#include "graphcases.h"

static void random_pieces(struct ek_piece *p, int n, struct ek_rng *rng)
{
    for (int i = 0; i < n; i++) {
        int first = (int)ek_rng_below(rng, 40);
        p[i] = (struct ek_piece){.bytes = 64 * (ek_rng_below(rng, 30) + 1),
                                 .first = first,
                                 .last = first + (int)ek_rng_below(rng, 12)};
    }
}

/* Every byte of every step has one owner at most: a map of all of them. */
static void living_pieces_never_share_a_byte(void **state)
{
    (void)state;
    enum { N = 60, STEPS = 52 };
    static short owner[STEPS][N * 30];
    struct ek_rng rng;
    ek_rng_init(&rng, 2);
    for (int round = 0; round < 200; round++) {
        struct ek_piece p[N];
        int order[N];
        random_pieces(p, N, &rng);
        size_t end = ek_place(p, N, order), least = 0;
        memset(owner, -1, sizeof owner);
        for (int i = 0; i < N; i++) {
            assert_true(p[i].offset % 64 == 0 && p[i].offset + p[i].bytes <= end);
            for (int s = p[i].first; s <= p[i].last; s++)
                for (size_t b = p[i].offset / 64; b < (p[i].offset + p[i].bytes) / 64;
                     b++) {
                    assert_int_equal(owner[s][b], -1);
                    owner[s][b] = (short)i;
                }
        }
        for (int s = 0; s < STEPS; s++) {
            size_t live = 0;
            for (int i = 0; i < N; i++)
                live += p[i].first <= s && s <= p[i].last ? p[i].bytes : 0;
            least = live > least ? live : least;
        }
        assert_true(end <= least * 3 / 2); /* near what no placement can beat */
    }
}

/* Random chains of operations with fan-out: the gradient of the arena's plan is that of
 * a plan in which nothing is ever reused. */
static int random_graph(struct kit *k)
{
    struct ek_rng rng;
    ek_rng_init(&rng, (uint64_t)k->n);
    int v[40], n = 0;
    v[n++] = kit_x(k, "x", 8, 1);
    v[n++] = kit_x(k, "z", 8, 1);
    while (n < 30) {
        int a = v[ek_rng_below(&rng, (uint64_t)n)],
            b = v[ek_rng_below(&rng, (uint64_t)n)];
        int w = kit_param(k, "w", 8, 8, 0.5f);
        int y = -1;
        switch (ek_rng_below(&rng, 6)) {
        case 0:
            y = ek_linear(k->g, a, w, -1, EK_ACT_TANH);
            break;
        case 1:
            y = ek_layer_norm(k->g, a, -1, -1, 1e-2f);
            break;
        case 2:
            y = ek_mul(k->g, ek_activate(k->g, a, EK_ACT_SIGMOID), b);
            break;
        case 3:
            y = ek_residual(k->g, a, b, 0.1f);
            break;
        case 4:
            y = ek_concat(k->g,
                          (int[]){ek_graph_columns(k->g, v[2 < n ? 2 : 0], 0, 3),
                                  ek_graph_columns(k->g, v[n - 1], 3, 5)},
                          2);
            break;
        default:
            y = ek_activate(k->g, a, EK_ACT_SILU);
        }
        v[n++] = y;
        if (ek_rng_below(&rng, 3) == 0)
            ek_graph_keep(k->g, v[n - 1], EK_KEEP_RECOMPUTE);
    }
    return kit_loss(k, v[n - 1], k->axis, 8);
}

static const struct kit_case random_case = {"random", random_graph};

static void random_graphs_have_the_slopes_of_their_forward(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 40; n++) {
        struct kit k;
        kit_open(&k, &random_case, n,
                 &(struct kit_options){
                     .n_threads = 1, .isa = ek_isa_best(), .is_training = true});
        ek_params_zero_grad(k.params);
        kit_forward(&k);
        ek_graph_backward(k.g, 1.0f);
        for (int i = 0; i < ek_params_count(k.params); i++) {
            struct ek_param *p = ek_params_get(k.params, i);
            float old = p->value[0], at[2];
            for (int s = 0; s < 2; s++) {
                p->value[0] = old + (s ? -0.005f : 0.005f);
                kit_forward(&k);
                at[s] = (float)kit_value(&k);
            }
            p->value[0] = old;
            double want = ((double)at[0] - (double)at[1]) / 0.01;
            if (!(fabs((double)p->grad[0] - want) < 0.03 * (1 + fabs(want))))
                fail_msg("graph %d, %s: gradient %g, slope %g", (int)n, p->name,
                         (double)p->grad[0], want);
        }
        kit_close(&k);
    }
}

static int build_all(struct ek_params **params, struct ek_graph **g,
                     struct ek_team *team, uint64_t max_bytes, struct ek_err *err)
{
    struct kit k = {.n = 9, .team = team};
    struct ek_graph_options go = {.team = team, .max_bytes = max_bytes};
    int rc = ek_params_new(&k.params, 5, err);
    *params = rc ? NULL : k.params;
    if (rc)
        return rc;
    rc = ek_graph_new(&k.g, k.params, &go, err);
    if (rc)
        return rc;
    *g = k.g;
    k.axis = ek_graph_axis(k.g, "rows", k.n);
    k.ids = kit_input(&k, "ids", k.axis, 1, EK_DTYPE_I32);
    (void)case_model(&k);
    return ek_graph_plan(k.g, err);
}

static void building_survives_any_failed_allocation(void **state)
{
    (void)state;
    struct ek_team *team = NULL;
    assert_int_equal(ek_team_new(&team, 1, false, NULL), 0);
    EK_EACH_FAILURE (k) {
        struct ek_params *params = NULL;
        struct ek_graph *g = NULL;
        int rc = build_all(&params, &g, team, 0, NULL);
        ek_assert_rc(rc);
        ek_graph_free(g);
        ek_params_free(params);
    }
    ek_team_free(team);
}

static void an_arena_over_its_ceiling_is_refused_in_words(void **state)
{
    (void)state;
    struct ek_team *team = NULL;
    struct ek_params *params = NULL;
    struct ek_graph *g = NULL;
    struct ek_err err = EK_ERR_INIT;
    assert_int_equal(ek_team_new(&team, 1, false, NULL), 0);
    assert_int_equal(build_all(&params, &g, team, 1000, &err), EK_ELIMIT);
    assert_non_null(strstr(err.text, "the ceiling is 1000"));
    ek_graph_free(g);
    ek_params_free(params);
    ek_team_free(team);
}

static int wrong_columns(struct kit *k)
{
    return ek_linear(k->g, kit_x(k, "x", 5, 1), kit_param(k, "w", 6, 3, 1), -1,
                     EK_ACT_NONE);
}

static int wrong_rows(struct kit *k)
{
    int other = ek_graph_axis(k->g, "other", 4);
    int y = kit_input(k, "labels", other, 5, EK_DTYPE_F32);
    return ek_add(k->g, kit_x(k, "x", 5, 1), y, 1);
}

static int wrong_share(struct kit *k)
{
    return ek_dropout(k->g, kit_x(k, "x", 5, 1), 1.0f);
}

static int wrong_type(struct kit *k)
{
    return ek_scale(k->g, k->ids, 2);
}

static int wrong_parameter(struct kit *k)
{
    (void)kit_param(k, "w", 6, 3, 1);
    return kit_param(k, "w", 3, 6, 1);
}

static int wrong_view(struct kit *k)
{
    return ek_graph_columns(k->g, kit_x(k, "x", 5, 1), 3, 3);
}

static int wrong_weight(struct kit *k)
{
    int w = ek_graph_param(
        k->g, &(struct ek_param_spec){
                  .name = "items", .rows = 5, .cols = 3, .is_table = true});
    return ek_linear(k->g, kit_x(k, "x", 5, 1), w, -1, EK_ACT_NONE);
}

static int loss_of_a_part(struct kit *k)
{
    int a = kit_param(k, "a", 1, 1, 1), b = kit_param(k, "b", 1, 1, 1);
    int both = ek_concat(k->g, (int[]){ek_scale(k->g, a, 1), ek_scale(k->g, b, 1)}, 2);
    int y = ek_graph_columns(k->g, both, 0, 1);
    ek_graph_loss(k->g, y);
    return y;
}

static int wrong_loss(struct kit *k)
{
    int x = kit_x(k, "x", 5, 1);
    ek_graph_loss(k->g, x);
    return x;
}

static int wide_table(struct kit *k)
{
    return kit_x(k, "x", 4097, 1);
}

static int seventeen_lookups(struct kit *k)
{
    int x = -1, table = kit_param(k, "x", k->n, 4, 1);
    for (int i = 0; i < 17; i++)
        x = ek_lookup(k->g, table, k->ids, 1);
    return x;
}

static void faults_of_building_are_told_by_the_plan(void **state)
{
    (void)state;
    static const struct {
        int (*build)(struct kit *k);
        const char *text;
    } cases[] = {{wrong_columns, "linear: 'lookup0' has 5 columns of f32, expected 6"},
                 {wrong_rows, "add: rows of 'lookup0' and 'labels'"},
                 {wrong_share, "dropout: 1 is no share"},
                 {wrong_type, "scale: 'ids' has 1 columns of i32, expected 1 of f32"},
                 {wrong_parameter, "parameter 'w': (3,6) here, (6,3) before"},
                 {wrong_view, "columns 3 to 6 of 'lookup0'"},
                 {wrong_weight, "linear: 'items' is a table"},
                 {wide_table, "lookup: 'x' has 4097 columns; expected at most 4096"},
                 {seventeen_lookups, "lookup: 'x' is looked up too often: 17 sources"},
                 {loss_of_a_part, "is no scalar made by an operation"},
                 {wrong_loss, "loss: 'lookup0' is no scalar"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct kit k = {.n = 4};
        struct ek_err err = EK_ERR_INIT;
        assert_int_equal(ek_team_new(&k.team, 1, false, NULL), 0);
        assert_int_equal(ek_params_new(&k.params, 5, NULL), 0);
        struct ek_graph_options go = {.team = k.team};
        assert_int_equal(ek_graph_new(&k.g, k.params, &go, NULL), 0);
        k.axis = ek_graph_axis(k.g, "rows", k.n);
        k.ids = kit_input(&k, "ids", k.axis, 1, EK_DTYPE_I32);
        (void)ek_scale(k.g, cases[i].build(&k), 1); /* faults are sticky */
        assert_int_equal(ek_graph_plan(k.g, &err), EK_EINVAL);
        if (!strstr(err.text, cases[i].text))
            fail_msg("'%s' lacks '%s'", err.text, cases[i].text);
        kit_close(&k);
    }
}

/* A billion columns of two billion rows: no number of bytes. */
static int too_wide(struct kit *k)
{
    int axis = ek_graph_axis(k->g, "many", INT32_MAX);
    return ek_scale(k->g, ek_graph_input(k->g, "wide", axis, INT32_MAX, EK_DTYPE_F32),
                    1.0f);
}

/* Each a number, their sum none: all live to the end. */
static int too_many(struct kit *k)
{
    int axis = ek_graph_axis(k->g, "many", INT32_MAX), v = -1;
    int x = ek_graph_input(k->g, "x", axis, INT32_MAX / 4, EK_DTYPE_F32);
    for (int i = 0; i < 9; i++)
        ek_graph_output(k->g, v = ek_scale(k->g, x, 1.0f));
    return v;
}

static void sizes_that_overflow_are_refused_by_the_plan(void **state)
{
    (void)state;
    int (*const build[])(struct kit *) = {too_wide, too_many};
    for (size_t i = 0; i < COUNT(build); i++) {
        struct kit k = {.n = 4};
        struct ek_err err = EK_ERR_INIT;
        assert_int_equal(ek_team_new(&k.team, 1, false, NULL), 0);
        assert_int_equal(ek_params_new(&k.params, 5, NULL), 0);
        struct ek_graph_options go = {.team = k.team, .is_deferred = true};
        assert_int_equal(ek_graph_new(&k.g, k.params, &go, NULL), 0);
        (void)build[i](&k);
        assert_int_equal(ek_graph_plan(k.g, &err), EK_ELIMIT);
        assert_string_equal(err.text,
                            "graph: a step takes more bytes than a number can "
                            "tell; shorten the batch");
        kit_close(&k);
    }
}

/* --- taken later ---------------------------------------------------------------------------- */

/* The kit's model at once or declared, then taken; its parameters and its plan. */
static void taken_later_is_the_same_as_at_once(void **state)
{
    (void)state;
    struct ek_params *params[2];
    struct ek_graph *g[2];
    struct ek_team *team = NULL;
    assert_int_equal(ek_team_new(&team, 1, false, NULL), 0);
    for (int later = 0; later < 2; later++) {
        struct kit k = {.n = 9, .team = team};
        struct ek_graph_options go = {.team = team, .is_deferred = later};
        assert_int_equal(ek_params_new(&k.params, 5, NULL), 0);
        if (later)
            ek_params_defer(k.params);
        assert_int_equal(ek_graph_new(&k.g, k.params, &go, NULL), 0);
        k.axis = ek_graph_axis(k.g, "rows", k.n);
        k.ids = kit_input(&k, "ids", k.axis, 1, EK_DTYPE_I32);
        (void)case_model(&k);
        assert_int_equal(ek_graph_plan(k.g, NULL), 0);
        params[later] = k.params;
        g[later] = k.g;
    }
    size_t sum[2] = {0, 0};
    for (int i = 0; i < ek_params_count(params[1]); i++) {
        assert_null(ek_params_get(params[1], i)->value);
        assert_null(ek_params_get(params[1], i)->grad);
        assert_true(ek_param_bytes(&sum[1], ek_params_get(params[1], i)));
    }
    assert_int_equal(ek_params_take(params[1], NULL), 0);
    assert_int_equal(ek_graph_take(g[1], NULL), 0);
    assert_int_equal(ek_graph_arena_bytes(g[0]), ek_graph_arena_bytes(g[1]));
    assert_int_equal(ek_params_count(params[0]), ek_params_count(params[1]));
    for (int i = 0; i < ek_params_count(params[0]); i++) {
        const struct ek_param *a = ek_params_get(params[0], i),
                              *b = ek_params_get(params[1], i);
        size_t bytes = (size_t)(a->rows * a->cols) * sizeof(float);
        assert_memory_equal(a->value, b->value, bytes);
        assert_int_equal(!a->grad, !b->grad);
        assert_true(ek_param_bytes(&sum[0], a));
    }
    assert_int_equal(sum[0], sum[1]);
    for (int i = 0; i < 2; i++) {
        ek_graph_free(g[i]);
        ek_params_free(params[i]);
    }
    ek_team_free(team);
}

static void a_parameters_sum_that_overflows_is_refused(void **state)
{
    (void)state;
    size_t sum = 0;
    const struct ek_param wide = {.rows = INT32_MAX, .cols = INT64_MAX / 4};
    const struct ek_param large = {.rows = INT32_MAX, .cols = INT32_MAX / 4};
    assert_false(ek_param_bytes(&sum, &wide));
    sum = SIZE_MAX - 1;
    assert_false(ek_param_bytes(&sum, &large));
}

/* --- a step's seams ------------------------------------------------------------------------- */

static const struct kit_case model = {"model", case_model};

struct reduced {
    int n[16];
};

static void note_reduced(void *arg, int param, struct ek_param *p)
{
    struct reduced *r = arg;
    r->n[param]++;
    assert_true(p->grad && p->place == EK_PLACE_WHOLE);
    p->grad[0] = 42; /* nobody adds to it afterwards */
}

static void each_dense_gradient_is_reduced_once_when_complete(void **state)
{
    (void)state;
    struct kit k;
    struct reduced r = {{0}};
    kit_open(&k, &model, 20,
             &(struct kit_options){.n_threads = 1, .is_training = true});
    ek_graph_on_reduce(k.g, note_reduced, &r);
    ek_params_zero_grad(k.params);
    kit_forward(&k);
    ek_graph_backward(k.g, 1.0f);
    for (int i = 0; i < ek_params_count(k.params); i++) {
        assert_int_equal(r.n[i], 1);
        assert_true(ek_params_get(k.params, i)->grad[0] == 42.0f);
    }
    kit_close(&k);
}

static void explain_counts_what_an_operation_does(void **state)
{
    (void)state;
    struct kit k;
    kit_open(&k, &model, 20,
             &(struct kit_options){.n_threads = 1, .is_training = true});
    ek_graph_profile(k.g, true);
    ek_params_zero_grad(k.params);
    kit_forward(&k);
    ek_graph_backward(k.g, 1.0f);
    int64_t forward = 0, backward = 0, n_linear = 0;
    for (int i = 0; i < ek_graph_rows(k.g); i++) {
        struct ek_graph_row row;
        ek_graph_explain(k.g, i, &row);
        assert_true(row.ms >= 0 && row.bytes >= 0);
        if (strcmp(row.op, "linear") != 0)
            continue;
        n_linear++;
        assert_string_equal(row.region, "all");
        *(strcmp(row.phase, "forward") == 0 ? &forward : &backward) += row.flops;
    }
    assert_int_equal(n_linear, 6);
    assert_int_equal(forward, 2 * 20 * (16 * 32 + 32 * 16 + 16));
    assert_int_equal(backward, 2 * forward);
    assert_int_equal(ek_graph_flops(k.g), 3 * (forward + 2 * 20 * 8 * 16));
    kit_close(&k);
}

static void a_fault_names_its_operation_and_row(void **state)
{
    (void)state;
    struct kit k;
    struct ek_graph_fault fault;
    kit_open(&k, &model, 20,
             &(struct kit_options){.n_threads = 1, .is_training = true});
    kit_forward(&k);
    assert_false(ek_graph_find_fault(k.g, &fault));
    ek_params_get(k.params, ek_params_find(k.params, "x"))->value[13 * 16 + 2] = NAN;
    kit_forward(&k);
    assert_true(ek_graph_find_fault(k.g, &fault));
    assert_string_equal(fault.op, "lookup");
    assert_int_equal(fault.row, 13);
    assert_int_equal(fault.col, 2);
    kit_close(&k);
}

static void rows_over_the_ceiling_are_refused(void **state)
{
    (void)state;
    struct kit k;
    kit_open(&k, &model, 20, &(struct kit_options){.n_threads = 1});
    assert_int_equal(ek_graph_set_axis(k.g, k.axis, 21), EK_ELIMIT);
    assert_int_equal(ek_graph_set_axis(k.g, k.axis, -1), EK_ELIMIT);
    kit_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(living_pieces_never_share_a_byte),
        cmocka_unit_test(random_graphs_have_the_slopes_of_their_forward),
        cmocka_unit_test(building_survives_any_failed_allocation),
        cmocka_unit_test(sizes_that_overflow_are_refused_by_the_plan),
        cmocka_unit_test(taken_later_is_the_same_as_at_once),
        cmocka_unit_test(a_parameters_sum_that_overflows_is_refused),
        cmocka_unit_test(an_arena_over_its_ceiling_is_refused_in_words),
        cmocka_unit_test(faults_of_building_are_told_by_the_plan),
        cmocka_unit_test(each_dense_gradient_is_reduced_once_when_complete),
        cmocka_unit_test(explain_counts_what_an_operation_does),
        cmocka_unit_test(a_fault_names_its_operation_and_row),
        cmocka_unit_test(rows_over_the_ceiling_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
