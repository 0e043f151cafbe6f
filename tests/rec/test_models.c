/* test_models.c - what every model promises, whatever its formulas: causal, the same bits
 * in any batch and on any threads, gradients that are slopes, learning, refusals. */
#include "kernel/grad.h"
#include "reckit.h"

#define STEP 0.01

/* sasrec and hstu, dot and cosine; hstu with and without times, by ceiling and length. */
#define VARIANTS 5
static struct ek_rec_config variant(int i)
{
    struct ek_rec_config c = rk_config(i < 2 ? EK_REC_SASREC : EK_REC_HSTU);
    c.is_cosine = i % 2;
    c.has_times = i >= 3;
    c.norm = i == 4 ? EK_REC_LENGTH : EK_REC_CEILING;
    return c;
}

static void a_later_item_changes_no_earlier_row(void **state)
{
    (void)state;
    for (int v = 0; v < VARIANTS; v++) {
        struct reckit k;
        struct ek_rec_config c = variant(v);
        float before[MAX_T * MAX_D];
        rk_open(&k, &c, (struct frame_how){0});
        rk_forward(&k);
        memcpy(before, rk_h(&k), (size_t)(k.b.T * c.dim) * sizeof *before);
        int64_t at = k.offsets[2] + 5; /* in the middle of the third sequence */
        k.items[at] = (k.items[at] + 1) % N_ITEMS;
        rk_forward(&k);
        const float *h = rk_h(&k);
        size_t row = (size_t)c.dim * sizeof *h;
        for (int64_t t = 0; t < k.b.T; t++)
            if (t == at)
                assert_memory_not_equal(h + t * c.dim, before + t * c.dim, row);
            else if (t < at || t >= k.offsets[3])
                assert_memory_equal(h + t * c.dim, before + t * c.dim, row);
        rk_close(&k);
    }
}

static void a_sequence_has_the_same_bits_alone_and_in_a_batch(void **state)
{
    (void)state;
    for (int v = 0; v < 2 * VARIANTS; v++) {
        struct reckit k;
        struct ek_rec_config c = variant(v / 2);
        float all[MAX_T * MAX_D];
        rk_open(&k, &c, (struct frame_how){.n_threads = 2, .is_bf16 = v % 2});
        rk_forward(&k);
        memcpy(all, rk_h(&k), (size_t)(k.b.T * c.dim) * sizeof *all);
        int64_t at = 0;
        for (size_t s = 0; s < COUNT(rk_lengths); s++) {
            rk_fill(&k, s, s + 1);
            rk_forward(&k);
            size_t n = (size_t)(rk_lengths[s] * c.dim);
            assert_memory_equal(rk_h(&k), all + at, n * sizeof *all);
            at += (int64_t)n;
        }
        rk_close(&k);
    }
}

/* All dense gradients after one step, one behind the other; the caller frees. */
static float *gradients(const struct ek_rec_config *c, int n_threads, size_t *n)
{
    struct reckit k;
    rk_open(&k, c, (struct frame_how){.n_threads = n_threads, .is_training = true});
    ek_params_zero_grad(k.params);
    ek_mem_fail_at(1); /* a step allocates nothing: this would fail */
    rk_forward(&k);
    ek_graph_backward(ek_rec_graph(k.m), 1.0f);
    assert_false(ek_mem_failed());
    ek_mem_fail_at(0);
    *n = 0;
    for (int i = 0; i < ek_params_count(k.params); i++)
        *n += (size_t)(ek_params_get(k.params, i)->rows *
                       ek_params_get(k.params, i)->cols);
    float *all = ek_alloc_array(*n, sizeof *all), *at = all;
    assert_non_null(all);
    for (int i = 0; i < ek_params_count(k.params); i++) {
        const struct ek_param *p = ek_params_get(k.params, i);
        memcpy(at, p->grad, (size_t)(p->rows * p->cols) * sizeof *at);
        at += p->rows * p->cols;
    }
    rk_close(&k);
    return all;
}

static void gradients_are_the_same_bits_on_any_threads(void **state)
{
    (void)state;
    static const int threads[] = {2, 3, 8};
    for (int v = 0; v < VARIANTS; v++) {
        struct ek_rec_config c = variant(v);
        size_t n, n_more;
        c.dropout = 0.3;
        float *one = gradients(&c, 1, &n);
        for (size_t i = 0; i < COUNT(threads); i++) {
            float *more = gradients(&c, threads[i], &n_more);
            assert_int_equal(n, n_more);
            assert_memory_equal(one, more, n * sizeof *one);
            ek_free(more);
        }
        ek_free(one);
    }
}

/* --- slopes ---------------------------------------------------------------------------- */

static double loss_at(struct reckit *k, float *x, double value)
{
    float old = *x;
    *x = (float)value;
    rk_forward(k);
    *x = old;
    return (double)ek_graph_scalar(ek_rec_graph(k->m), ek_rec_loss(k->m));
}

/* Fourth-order differences of the loss: rounding leaves about 1e-4. */
static double slope(struct reckit *k, float *x)
{
    double at = (double)*x;
    return (8 * (loss_at(k, x, at + STEP) - loss_at(k, x, at - STEP)) -
            (loss_at(k, x, at + 2 * STEP) - loss_at(k, x, at - 2 * STEP))) /
           (12 * STEP);
}

/* Every second unit is on and far from relu's kink, the others are off. */
static void leave_kinks(struct ek_params *params)
{
    for (int i = 0; i < ek_params_count(params); i++) {
        struct ek_param *p = ek_params_get(params, i);
        for (int64_t j = 0; strstr(p->name, "ffn.up.bias") && j < p->cols; j++)
            p->value[j] += j % 2 ? 8 : -8;
    }
}

static void gradients_are_slopes_of_the_loss(void **state)
{
    (void)state;
    for (int v = 0; v < 2 * VARIANTS; v++) {
        struct reckit k;
        struct ek_rng rng;
        struct ek_rec_config c = variant(v / 2);
        c.loss = v % 2 ? EK_REC_FULL : EK_REC_SAMPLED;
        c.temperature = c.is_cosine ? 0.1 : 1;
        double top = 0;
        ek_rng_init(&rng, 4);
        rk_open(&k, &c, (struct frame_how){.is_training = true});
        leave_kinks(k.params);
        for (int i = 0; i < ek_params_count(k.params); i++) {
            struct ek_param *p = ek_params_get(k.params, i);
            int64_t n = p->rows * p->cols;
            for (int t = 0; t < 4; t++) {
                int64_t j = (int64_t)ek_rng_below(&rng, (uint64_t)n);
                double want = slope(&k, p->value + j);
                ek_params_zero_grad(k.params);
                rk_forward(&k);
                ek_graph_backward(ek_rec_graph(k.m), 1.0f);
                double got = (double)p->grad[j];
                top = fmax(top, fabs(got));
                if (!(fabs(got - want) <= 3e-4 + 3e-3 * fabs(want)))
                    fail_msg("%s: %s[%lld]: gradient %.6g, slope %.6g",
                             ek_rec_kind_name(c.kind), p->name, (long long)j, got,
                             want);
            }
        }
        assert_true(top > 0.1); /* or there was nothing to see */
        rk_close(&k);
    }
}

/* --- learning -------------------------------------------------------------------------- */

/* AdamW of every parameter, step by step; moments (n) each. */
static void learn(struct reckit *k, float *moments, int step)
{
    const struct ek_grad_ops *ops = ek_grad_ops_get(ek_isa_best());
    struct ek_adamw o = {.lr = 0.01f,
                         .beta1 = 0.9f,
                         .beta2 = 0.98f,
                         .eps = 1e-8f,
                         .correct1 = 1 - powf(0.9f, (float)(step + 1)),
                         .correct2 = 1 - powf(0.98f, (float)(step + 1)),
                         .grad_scale = 1};
    for (int i = 0; i < ek_params_count(k->params); i++) {
        struct ek_param *p = ek_params_get(k->params, i);
        int64_t n = p->rows * p->cols;
        ops->adamw(p->value, moments, moments + n, p->grad, n, &o);
        moments += 2 * n;
    }
}

/* The item behind v is 5v + 1. */
static void plant(struct reckit *k, struct ek_rng *rng)
{
    for (int64_t b = 0; b < k->b.B; b++)
        for (int64_t t = k->offsets[b]; t < k->offsets[b + 1]; t++) {
            k->items[t] = t == k->offsets[b] ? (int32_t)ek_rng_below(rng, N_ITEMS)
                                             : k->targets[t - 1];
            k->targets[t] = (5 * k->items[t] + 1) % N_ITEMS;
        }
}

static void a_planted_rule_is_learned(void **state)
{
    (void)state;
    for (int v = 0; v < VARIANTS; v++) {
        struct reckit k;
        struct ek_rng rng;
        struct ek_rec_config c = variant(v);
        c.dim = 16;
        c.loss = EK_REC_FULL;
        c.temperature = c.is_cosine ? 0.1 : 1;
        c.dropout = 0.05;
        ek_rng_init(&rng, 8);
        rk_open(&k, &c, (struct frame_how){.is_training = true, .keeps_init = true});
        float *moments = ek_calloc(1 << 16, sizeof *moments), first = 0, loss = 0;
        assert_non_null(moments);
        for (int s = 0; s < 400; s++) {
            plant(&k, &rng);
            ek_params_zero_grad(k.params);
            assert_int_equal(ek_rec_bind(k.m, &k.b), 0);
            ek_graph_forward(ek_rec_graph(k.m), (uint64_t)s);
            ek_graph_backward(ek_rec_graph(k.m), 1.0f);
            learn(&k, moments, s);
            loss = ek_graph_scalar(ek_rec_graph(k.m), ek_rec_loss(k.m));
            first = s == 0 ? loss : first;
        }
        if (!(first > 2.5f && loss < 0.1f))
            fail_msg("%s: loss %.3f to %.3f", ek_rec_kind_name(c.kind), (double)first,
                     (double)loss);
        ek_free(moments);
        rk_close(&k);
    }
}

/* --- refusals -------------------------------------------------------------------------- */

struct refusal {
    const char *says;
    void (*spoil)(struct ek_rec_config *c, struct ek_rec_shape *s);
};

#define SPOIL(name, change)                                                            \
    static void name(struct ek_rec_config *c, struct ek_rec_shape *s)                  \
    {                                                                                  \
        (void)c;                                                                       \
        (void)s;                                                                       \
        change;                                                                        \
    }
SPOIL(bad_heads, c->heads = 3)
SPOIL(no_heads, c->heads = 0)
SPOIL(no_dim, c->dim = 0)
SPOIL(wide, c->dim = 1 << 20)
SPOIL(wide_heads, (c->dim = 600, c->heads = 2))
SPOIL(no_blocks, c->blocks = 0)
SPOIL(all_dropped, c->dropout = 1)
SPOIL(dropout_nan, c->dropout = (double)NAN)
SPOIL(no_length, c->max_length = 0)
SPOIL(cold, c->temperature = 0)
SPOIL(no_negatives, c->negatives = 0)
SPOIL(no_items, s->n_items = 0)
SPOIL(no_rows, s->max_rows = 0)
SPOIL(uneven, (c->kind = EK_REC_HSTU, c->dim_qk = 4, c->dim_v = 8))
SPOIL(timeless, (c->kind = EK_REC_HSTU, c->has_times = true, s->lacks_times = true))
SPOIL(other_kind, c->kind = (enum ek_rec_kind)17)

static void a_bad_configuration_is_refused_in_words(void **state)
{
    (void)state;
    static const struct refusal refusals[] = {
        {"heads: 3; expected a divisor of dim 8", bad_heads},
        {"heads: 0; expected 1 to", no_heads},
        {"dim: 0; expected 1 to", no_dim},
        {"dim: 1048576; expected 1 to", wide},
        {"heads: 2 make heads of 300; expected heads of at most 256", wide_heads},
        {"blocks: 0; expected", no_blocks},
        {"dropout: 1; expected 0 to below 1", all_dropped},
        {"dropout: nan", dropout_nan},
        {"max_length: 0; expected", no_length},
        {"temperature: 0; expected above 0", cold},
        {"negatives: 0; expected 1 to", no_negatives},
        {"items: 0; expected", no_items},
        {"rows of a batch: 0; expected", no_rows},
        {"dim_qk: 4 beside dim_v 8; expected equal widths", uneven},
        {"times: a bias by time, but the data has no times", timeless},
        {"kind 17", other_kind},
    };
    for (size_t i = 0; i < COUNT(refusals); i++) {
        struct ek_rec_config c = rk_config(EK_REC_SASREC);
        struct ek_rec_shape s = rk_shape;
        struct ek_err err = EK_ERR_INIT;
        struct ek_params *params = NULL;
        struct ek_team *team = NULL;
        struct ek_rec *m = NULL;
        assert_int_equal(ek_params_new(&params, 5, &err), 0);
        assert_int_equal(ek_team_new(&team, 1, false, &err), 0);
        struct ek_graph_options o = {.team = team, .isa = ek_isa_best()};
        refusals[i].spoil(&c, &s);
        assert_int_equal(ek_rec_new(&m, params, &c, &s, &o, &err), EK_EINVAL);
        if (!strstr(err.text, refusals[i].says))
            fail_msg("'%s' says nothing of '%s'", err.text, refusals[i].says);
        assert_null(m);
        assert_int_equal(ek_params_count(params), 0);
        ek_team_free(team);
        ek_params_free(params);
    }
}

static void expect_bind(struct reckit *k, int rc)
{
    assert_int_equal(ek_rec_bind(k->m, &k->b), rc);
    rk_fill(k, 0, COUNT(rk_lengths));
    assert_int_equal(ek_rec_bind(k->m, &k->b), 0);
}

static void a_batch_out_of_range_binds_nothing(void **state)
{
    (void)state;
    struct reckit k;
    struct ek_rec_config c = rk_config(EK_REC_SASREC);
    rk_open(&k, &c, (struct frame_how){.is_training = true});
    k.items[3] = N_ITEMS;
    expect_bind(&k, EK_EINVAL);
    k.items[3] = -1;
    expect_bind(&k, EK_EINVAL);
    k.targets[3] = N_ITEMS;
    expect_bind(&k, EK_EINVAL);
    k.negatives[7] = -1;
    expect_bind(&k, EK_EINVAL);
    k.b.targets = NULL;
    expect_bind(&k, EK_EINVAL);
    k.offsets[0] = 1;
    expect_bind(&k, EK_EINVAL);
    k.offsets[2] = k.offsets[1]; /* an empty sequence */
    expect_bind(&k, EK_EINVAL);
    k.b.B = MAX_B + 1;
    expect_bind(&k, EK_ELIMIT);
    k.b.T = MAX_T + 1;
    expect_bind(&k, EK_ELIMIT);
    k.offsets[3] = k.offsets[2] + 9; /* longer than max_length */
    k.b.B = 3;
    k.b.T = k.offsets[3];
    expect_bind(&k, EK_ELIMIT);
    rk_close(&k);
}

static void a_bias_by_time_without_times_binds_nothing(void **state)
{
    (void)state;
    struct reckit k;
    struct ek_rec_config c = rk_config(EK_REC_HSTU);
    c.has_times = true;
    rk_open(&k, &c, (struct frame_how){.is_training = true});
    k.b.times = NULL;
    expect_bind(&k, EK_EINVAL);
    rk_close(&k);
}

/* Bytes of a training step's arena for one sequence of L rows. */
static double arena_of(struct ek_rec_config c, int64_t L)
{
    struct ek_team *team = NULL;
    struct ek_params *params = NULL;
    struct ek_rec *m = NULL;
    struct ek_err err = EK_ERR_INIT;
    const struct ek_rec_shape shape = {
        .n_items = N_ITEMS, .max_sequences = 1, .max_rows = L};
    c.max_length = L;
    assert_int_equal(ek_team_new(&team, 1, false, &err), 0);
    assert_int_equal(ek_params_new(&params, 5, &err), 0);
    const struct ek_graph_options o = {
        .team = team, .isa = ek_isa_best(), .is_training = true};
    if (ek_rec_new(&m, params, &c, &shape, &o, &err))
        fail_msg("%s", err.text);
    double bytes = (double)ek_graph_arena_bytes(ek_rec_graph(m));
    ek_rec_free(m);
    ek_params_free(params);
    ek_team_free(team);
    return bytes;
}

/* No L x L scores anywhere: twice the rows are twice the memory. One block of scores of
 * the longest would be 256 MiB here. */
static void memory_grows_with_rows_and_not_with_their_square(void **state)
{
    (void)state;
    for (int v = 0; v <= VARIANTS; v++) {
        struct ek_rec_config c = variant(v < VARIANTS ? v : 0);
        if (v == VARIANTS) {
            c.kind = EK_REC_GEM;
            c.seeds = c.experts = 2;
            c.rank = 3;
        }
        double a = arena_of(c, 2048), b = arena_of(c, 4096), d = arena_of(c, 8192);
        if (d - b > 2.1 * (b - a) || d > 64e6)
            fail_msg("variant %d: %g, %g, %g bytes", v, a, b, d);
    }
}

static void a_model_survives_any_failed_allocation(void **state)
{
    (void)state;
    struct ek_team *team = NULL;
    struct ek_err err = EK_ERR_INIT;
    struct ek_rec_config c = variant(VARIANTS - 1);
    assert_int_equal(ek_team_new(&team, 1, false, &err), 0);
    struct ek_graph_options o = {
        .team = team, .isa = ek_isa_best(), .is_training = true};
    EK_EACH_FAILURE (k) {
        struct ek_params *params = NULL;
        struct ek_rec *m = NULL;
        int rc = ek_params_new(&params, 5, &err);
        if (rc == 0)
            rc = ek_rec_new(&m, params, &c, &rk_shape, &o, &err);
        ek_assert_rc(rc);
        ek_rec_free(m);
        ek_params_free(params);
    }
    ek_team_free(team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_later_item_changes_no_earlier_row),
        cmocka_unit_test(a_sequence_has_the_same_bits_alone_and_in_a_batch),
        cmocka_unit_test(gradients_are_the_same_bits_on_any_threads),
        cmocka_unit_test(gradients_are_slopes_of_the_loss),
        cmocka_unit_test(a_planted_rule_is_learned),
        cmocka_unit_test(a_bad_configuration_is_refused_in_words),
        cmocka_unit_test(a_batch_out_of_range_binds_nothing),
        cmocka_unit_test(a_bias_by_time_without_times_binds_nothing),
        cmocka_unit_test(memory_grows_with_rows_and_not_with_their_square),
        cmocka_unit_test(a_model_survives_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
