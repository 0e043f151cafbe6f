/* test_optimizers.c - AdamW and row-wise adagrad against their formulas written out in
 * f64, and the same bits on any number of threads. */
#include "base/rng.h"
#include "testkit.h"
#include "train/adagrad.h"
#include "train/adamw.h"

#include <math.h>

static struct ek_params *new_params(bool is_table, int64_t rows, int64_t cols)
{
    struct ek_params *p = NULL;
    int id;
    assert_int_equal(ek_params_new(&p, 1, NULL), 0);
    struct ek_param_spec a = {.name = "a",
                              .rows = rows,
                              .cols = cols,
                              .init = EK_INIT_NORMAL,
                              .scale = 1,
                              .is_table = is_table};
    struct ek_param_spec b = {.name = "b",
                              .rows = 1,
                              .cols = 37,
                              .init = EK_INIT_NORMAL,
                              .scale = 1,
                              .has_no_decay = true};
    assert_int_equal(ek_params_add(p, &id, &a, NULL), 0);
    assert_int_equal(ek_params_add(p, &id, &b, NULL), 0);
    return p;
}

static struct ek_team *new_team(int n)
{
    struct ek_team *team = NULL;
    assert_int_equal(ek_team_new(&team, n, false, NULL), 0);
    return team;
}

static const struct ek_adamw_options adamw = {0.9f, 0.98f, 1e-8f, 0.1f};

static void set_grads(struct ek_params *p, uint64_t seed)
{
    struct ek_rng rng;
    ek_rng_init(&rng, seed);
    for (int i = 0; i < ek_params_count(p); i++) {
        struct ek_param *x = ek_params_get(p, i);
        for (int64_t j = 0; x->grad && j < x->rows * x->cols; j++)
            x->grad[j] = (float)ek_rng_normal(&rng);
    }
}

/* Rows known as untouched, beside the same run that knows nothing. */
static void untouched_rows_are_updated_as_by_zeros(void **state)
{
    (void)state;
    enum { ROWS = 613, COLS = 33 };
    struct ek_params *p[2];
    struct ek_adamw_state *s[2] = {NULL, NULL};
    struct ek_team *team = new_team(3);
    for (int k = 0; k < 2; k++) {
        p[k] = new_params(false, ROWS, COLS);
        assert_int_equal(ek_adamw_new(&s[k], p[k], ek_isa_best(), &adamw, NULL), 0);
    }
    struct ek_param *x = ek_params_get(p[0], 0), *y = ek_params_get(p[1], 0);
    assert_int_equal(ek_params_track(x), 0);
    for (int t = 1; t <= 5; t++) {
        ek_params_zero_grad(p[0]);
        ek_params_zero_grad(p[1]);
        assert_memory_equal(x->grad, y->grad, ROWS * COLS * sizeof(float));
        for (int r = 0; r < ROWS; r += r < 9 ? 1 : 1 + r % (3 * t)) {
            x->touched[r] = 1;
            for (int c = 0; c < COLS; c++)
                x->grad[r * COLS + c] = y->grad[r * COLS + c] = (float)(r * t - c) / 99;
        }
        double a = ek_adamw_grad_norm(s[0], team), b = ek_adamw_grad_norm(s[1], team);
        assert_true(fabs(a - b) < 1e-5 * b);
        ek_adamw_step(s[0], team, 0.01f, 0.5f);
        ek_adamw_step(s[1], team, 0.01f, 0.5f);
        assert_memory_equal(x->value, y->value, ROWS * COLS * sizeof(float));
        for (int k = 1; k <= 2; k++)
            assert_memory_equal(ek_adamw_moment(s[0], 0, k),
                                ek_adamw_moment(s[1], 0, k),
                                ROWS * COLS * sizeof(float));
    }
    for (int k = 0; k < 2; k++) {
        ek_adamw_free(s[k]);
        ek_params_free(p[k]);
    }
    ek_team_free(team);
}

static void adamw_is_its_formula(void **state)
{
    (void)state;
    for (int isa = 0; isa <= (int)ek_isa_best(); isa++) {
        struct ek_params *p = new_params(false, 3, 11);
        struct ek_team *team = new_team(2);
        struct ek_adamw_state *s = NULL;
        assert_int_equal(ek_adamw_new(&s, p, (enum ek_isa)isa, &adamw, NULL), 0);
        double w[2][37], m[2][37] = {{0}}, v[2][37] = {{0}};
        int n[2] = {33, 37};
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < n[i]; j++)
                w[i][j] = (double)ek_params_get(p, i)->value[j];
        for (int t = 1; t <= 5; t++) {
            set_grads(p, (uint64_t)t);
            double squares = 0;
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < n[i]; j++) {
                    double g = (double)ek_params_get(p, i)->grad[j];
                    squares += g * g;
                    g *= 0.5;
                    m[i][j] = 0.9 * m[i][j] + 0.1 * g;
                    v[i][j] = 0.98 * v[i][j] + 0.02 * g * g;
                    double mh = m[i][j] / (1 - pow(0.9, t));
                    double vh = v[i][j] / (1 - pow(0.98, t));
                    w[i][j] -= 0.01 * ((i ? 0 : 0.1) * w[i][j]) +
                               0.01 * mh / (sqrt(vh) + 1e-8);
                }
            assert_true(fabs(ek_adamw_grad_norm(s, team) - sqrt(squares)) < 1e-5);
            ek_adamw_step(s, team, 0.01f, 0.5f);
        }
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < n[i]; j++)
                assert_true(fabs((double)ek_params_get(p, i)->value[j] - w[i][j]) <
                            2e-6 * (1 + fabs(w[i][j])));
        assert_int_equal(ek_adamw_steps(s), 5);
        assert_non_null(ek_adamw_moment(s, 0, 1));
        ek_adamw_free(s);
        ek_team_free(team);
        ek_params_free(p);
    }
}

enum { ROWS = 50, COLS = 19, N = 400, BAGS = 30 };

struct batch {
    int32_t ids[N], row_of[N];
    float grad[2][N * COLS];
    struct ek_row_grad sources[2];
};

static void fill_batch(struct batch *b, uint64_t seed)
{
    struct ek_rng rng;
    ek_rng_init(&rng, seed);
    for (int i = 0; i < N; i++) {
        b->ids[i] = (int32_t)ek_rng_below(&rng, ROWS / 2) - 1; /* half never come */
        b->row_of[i] = (int32_t)ek_rng_below(&rng, BAGS);
    }
    for (int i = 0; i < 2 * N * COLS; i++)
        b->grad[i / (N * COLS)][i % (N * COLS)] = (float)ek_rng_normal(&rng);
    b->sources[0] = (struct ek_row_grad){
        .ids = b->ids, .grad = b->grad[0], .n = N, .ld = COLS, .scale = 2};
    b->sources[1] = (struct ek_row_grad){.ids = b->ids,
                                         .row_of = b->row_of,
                                         .grad = b->grad[1],
                                         .n = N - 7,
                                         .ld = COLS,
                                         .scale = -1};
}

/* The formula in f64: duplicates summed first, then one square a row. */
static void reference(double *w, double *m, const struct batch *b,
                      const struct ek_adagrad_options *o, double lr)
{
    double sum[ROWS][COLS] = {{0}};
    bool is_there[ROWS] = {false};
    for (int s = 0; s < 2; s++)
        for (int64_t i = 0; i < b->sources[s].n; i++) {
            if (b->ids[i] < 0)
                continue;
            const float *g = b->sources[s].grad + (s ? b->row_of[i] : i) * COLS;
            is_there[b->ids[i]] = true;
            for (int c = 0; c < COLS; c++)
                sum[b->ids[i]][c] += (double)b->sources[s].scale * (double)g[c];
        }
    for (int r = 0; r < ROWS; r++) {
        if (!is_there[r])
            continue;
        double square = 0, norm = 0, l2 = (double)o->l2;
        for (int c = 0; c < COLS; c++)
            square += pow(sum[r][c] + l2 * w[r * COLS + c], 2);
        m[r] += square / COLS;
        double mult = lr / (sqrt(m[r]) + (double)o->eps);
        double keep = l2 > 0 ? 1 - mult * l2 : 1 - lr * (double)o->decay;
        for (int c = 0; c < COLS; c++) {
            w[r * COLS + c] = keep * w[r * COLS + c] - mult * sum[r][c];
            norm += w[r * COLS + c] * w[r * COLS + c];
        }
        norm = sqrt(norm);
        for (int c = 0; o->max_norm > 0 && norm > (double)o->max_norm && c < COLS; c++)
            w[r * COLS + c] *= (double)o->max_norm / norm;
    }
}

static void adagrad_is_its_formula(void **state)
{
    (void)state;
    static const struct ek_adagrad_options options[] = {
        {.eps = 1e-8f, .max_rows = 2 * N},
        {.eps = 1e-3f, .l2 = 0.3f, .max_rows = 2 * N},
        {.eps = 1e-3f, .decay = 0.3f, .max_norm = 2, .max_rows = 2 * N}};
    static struct batch b;
    for (int k = 0; k < 3; k++) {
        struct ek_params *p = new_params(true, ROWS, COLS);
        struct ek_team *team = new_team(3);
        struct ek_adagrad_state *s = NULL;
        double w[ROWS * COLS], m[ROWS] = {0};
        float first[ROWS * COLS];
        const struct ek_param *table = ek_params_get(p, 0);
        memcpy(first, table->value, sizeof first);
        for (int i = 0; i < ROWS * COLS; i++)
            w[i] = (double)first[i];
        assert_int_equal(ek_adagrad_new(&s, p, ek_isa_best(), &options[k], NULL), 0);
        for (int t = 0; t < 4; t++) {
            fill_batch(&b, (uint64_t)t);
            reference(w, m, &b, &options[k], 0.05);
            ek_adagrad_step(s, team, 0, b.sources, 2, 0.05f, 1);
        }
        for (int i = 0; i < ROWS * COLS; i++)
            assert_true(fabs((double)table->value[i] - w[i]) < 1e-5 * (1 + fabs(w[i])));
        for (int r = 0; r < ROWS; r++)
            assert_true(fabs((double)ek_adagrad_sums(s, 0)[r] - m[r]) <
                        1e-5 * (1 + m[r]));
        assert_memory_equal(table->value + ROWS / 2 * COLS, first + ROWS / 2 * COLS,
                            sizeof first / 2);
        assert_null(ek_adagrad_sums(s, 1));
        ek_adagrad_free(s);
        ek_team_free(team);
        ek_params_free(p);
    }
}

/* A large table, so that ids have more bits than a bucket; one id very often. */
static void adagrad_is_the_same_bits_on_any_threads(void **state)
{
    (void)state;
    enum { V = 70001, E = 9000, D = 16 };
    static int32_t ids[E];
    static float grad[E * D], want[V * D];
    static const int threads[] = {1, 2, 3, 8, 17};
    struct ek_rng rng;
    ek_rng_init(&rng, 4);
    for (int i = 0; i < E; i++)
        ids[i] = ek_rng_below(&rng, 3) ? (int32_t)ek_rng_below(&rng, V) : 256;
    for (int i = 0; i < E * D; i++)
        grad[i] = (float)ek_rng_normal(&rng);
    for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++) {
        struct ek_params *p = new_params(true, V, D);
        struct ek_team *team = new_team(threads[t]);
        struct ek_adagrad_state *s = NULL;
        struct ek_adagrad_options o = {.eps = 1e-8f, .max_rows = E};
        struct ek_row_grad source = {
            .ids = ids, .grad = grad, .n = E, .ld = D, .scale = 1};
        assert_int_equal(ek_adagrad_new(&s, p, ek_isa_best(), &o, NULL), 0);
        ek_mem_fail_at(1); /* a step allocates nothing */
        ek_adagrad_step(s, team, 0, &source, 1, 0.1f, 0.5f);
        assert_false(ek_mem_failed());
        ek_mem_fail_at(0);
        if (t == 0)
            memcpy(want, ek_params_get(p, 0)->value, sizeof want);
        assert_memory_equal(want, ek_params_get(p, 0)->value, sizeof want);
        ek_adagrad_free(s);
        ek_team_free(team);
        ek_params_free(p);
    }
}

static void optimizers_survive_any_failed_allocation(void **state)
{
    (void)state;
    struct ek_params *p = new_params(true, 5, 4);
    struct ek_adagrad_options o = {.eps = 1e-8f, .max_rows = 10};
    EK_EACH_FAILURE (k) {
        struct ek_adamw_state *s = NULL;
        int rc = ek_adamw_new(&s, p, EK_ISA_REF, &adamw, NULL);
        ek_assert_rc(rc);
        ek_adamw_free(s);
    }
    EK_EACH_FAILURE (k) {
        struct ek_adagrad_state *s = NULL;
        int rc = ek_adagrad_new(&s, p, EK_ISA_REF, &o, NULL);
        ek_assert_rc(rc);
        ek_adagrad_free(s);
    }
    ek_params_free(p);
}

static void options_out_of_range_are_refused(void **state)
{
    (void)state;
    struct ek_params *p = new_params(true, 5, 4);
    struct ek_adamw_state *a = NULL;
    struct ek_adagrad_state *s = NULL;
    struct ek_adamw_options bad = adamw;
    bad.beta2 = 1;
    assert_int_equal(ek_adamw_new(&a, p, EK_ISA_REF, &bad, NULL), EK_EINVAL);
    struct ek_adagrad_options both = {.eps = 1e-8f, .l2 = 1, .decay = 1, .max_rows = 1};
    assert_int_equal(ek_adagrad_new(&s, p, EK_ISA_REF, &both, NULL), EK_EINVAL);
    ek_params_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_is_its_formula),
        cmocka_unit_test(untouched_rows_are_updated_as_by_zeros),
        cmocka_unit_test(adagrad_is_its_formula),
        cmocka_unit_test(adagrad_is_the_same_bits_on_any_threads),
        cmocka_unit_test(optimizers_survive_any_failed_allocation),
        cmocka_unit_test(options_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
