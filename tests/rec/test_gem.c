/* test_gem.c - gem: its formulas in float64, nothing of the future, the same bits however
 * a sequence is computed, gradients, and clicks that need a user's column. */
#include "gem_reference.h"
#include "gemkit.h"
#include "kernel/grad.h"

static void it_is_what_its_formulas_say(void **state)
{
    (void)state;
    for (int v = 0; v < GK_VARIANTS; v++) {
        struct gemkit k;
        struct ek_rec_config c = gk_config(v);
        gk_open(&k, &c, 1, GK_RUNS);
        for (size_t s = 0; s < COUNT(gk_lengths); s++) {
            double *h, *logits;
            gk_fill(&k, s, s + 1);
            gk_forward(&k);
            struct ref r = {.params = k.params, .c = &c, .s = &gk_shape, .b = &k.b};
            gem_reference(&r, &h, &logits);
            for (int64_t t = 0; t < k.b.T; t++) {
                for (int64_t i = 0; i < c.dim; i++)
                    if (!(fabs((double)gk_h(&k)[t * c.dim + i] - h[t * c.dim + i]) <
                          2e-4))
                        fail_msg("variant %d: h[%lld][%lld] of %lld is %.7g, not %.7g",
                                 v, (long long)t, (long long)i, (long long)k.b.T,
                                 (double)gk_h(&k)[t * c.dim + i], h[t * c.dim + i]);
                if (!(fabs((double)gk_logits(&k)[t] - logits[t]) < 5e-4))
                    fail_msg("variant %d: logit %lld of %lld is %.7g, not %.7g", v,
                             (long long)t, (long long)k.b.T, (double)gk_logits(&k)[t],
                             logits[t]);
            }
            ek_arena_release(&r.arena);
        }
        gk_close(&k);
    }
}

/* Levels over all rows, none left out; other columns, other rows. */
static void a_hash_spreads_levels_over_all_rows(void **state)
{
    (void)state;
    int count[2][50] = {{0}}, same = 0;
    for (int32_t level = 0; level < 5000; level++) {
        int32_t a = ek_gem_row(level, 0, 50), b = ek_gem_row(level, 1, 50);
        assert_in_range(a, 0, 49);
        assert_in_range(b, 0, 49);
        count[0][a]++;
        count[1][b]++;
        same += a == b;
    }
    for (int i = 0; i < 50; i++) { /* of 100 on average: five deviations */
        assert_in_range(count[0][i], 50, 150);
        assert_in_range(count[1][i], 50, 150);
    }
    assert_in_range(same, 50, 150);
}

/* Five levels in four rows of three columns, three levels in three. */
static void categories_have_tables_of_their_own_size(void **state)
{
    (void)state;
    struct gemkit k;
    struct ek_rec_config c = gk_config(3);
    c.has_row_optimizer = true;
    gk_open(&k, &c, 1, GK_TRAINS);
    static const struct {
        const char *name;
        int64_t rows, cols;
    } tables[] = {{"items", N_ITEMS, 8},
                  {"user.column.segment", 4, 3},
                  {"event.column.device", 3, 3}};
    int n_tables = 0;
    for (int i = 0; i < ek_params_count(k.params); i++)
        n_tables += ek_params_get(k.params, i)->is_table;
    assert_int_equal(n_tables, COUNT(tables));
    for (size_t i = 0; i < COUNT(tables); i++) {
        const struct ek_param *p =
            ek_params_get(k.params, ek_params_find(k.params, tables[i].name));
        assert_true(p->is_table && p->rows == tables[i].rows &&
                    p->cols == tables[i].cols);
    }
    gk_close(&k);
}

/* --- causality ------------------------------------------------------------------------ */

struct results {
    float h[MAX_T * 8], logits[MAX_T];
};

static void take_results(struct results *r, const struct gemkit *k)
{
    memcpy(r->h, gk_h(k), (size_t)(k->b.T * 8) * sizeof *r->h);
    memcpy(r->logits, gk_logits(k), (size_t)k->b.T * sizeof *r->logits);
}

/* Everything that an event is, changed; what was known of the one before stays. */
static void change_event(struct gemkit *k, int64_t at)
{
    k->items[at] = (k->items[at] + 7) % N_ITEMS;
    k->device[at] = (k->device[at] + 1) % 3;
    k->rating[at] += 2.0f;
    k->times[at] += 500000000;
    k->next_times[at] += 900000000;
    k->targets[at] = (k->targets[at] + 5) % N_ITEMS;
}

static void a_later_event_changes_no_earlier_row(void **state)
{
    (void)state;
    const int64_t first = gk_lengths[0] + gk_lengths[1]; /* of the sequence of 70 */
    for (int v = 0; v < GK_VARIANTS; v++) {
        struct gemkit k;
        struct ek_rec_config c = gk_config(v);
        struct results before;
        gk_open(&k, &c, 1, GK_RUNS);
        gk_forward(&k);
        take_results(&before, &k);
        for (int64_t at = first; at < first + 70; at += at % 5 + 1) {
            gk_fill(&k, 0, COUNT(gk_lengths));
            change_event(&k, at);
            gk_forward(&k);
            assert_memory_equal(gk_h(&k), before.h, (size_t)(at * 8) * sizeof(float));
            assert_memory_equal(gk_logits(&k), before.logits,
                                (size_t)at * sizeof(float));
            assert_memory_not_equal(gk_h(&k) + at * 8, before.h + at * 8,
                                    8 * sizeof(float));
        }
        gk_close(&k);
    }
}

/* The other half: what lies before is seen, through whole chunks and blocks too. */
static void the_first_event_is_seen_by_the_last_position(void **state)
{
    (void)state;
    const int64_t first = gk_lengths[0] + gk_lengths[1], last = first + 69;
    for (int v = 0; v < GK_VARIANTS; v++) {
        struct gemkit k;
        struct ek_rec_config c = gk_config(v);
        struct results before;
        gk_open(&k, &c, 1, GK_RUNS);
        gk_forward(&k);
        take_results(&before, &k);
        k.items[first] = (k.items[first] + 7) % N_ITEMS;
        gk_forward(&k);
        assert_memory_not_equal(gk_h(&k) + last * 8, before.h + last * 8,
                                8 * sizeof(float));
        gk_close(&k);
    }
}

/* --- the same bits ---------------------------------------------------------------------- */

static void a_sequence_has_the_same_bits_alone_and_in_a_batch(void **state)
{
    (void)state;
    for (int v = 0; v < GK_VARIANTS; v++) {
        struct gemkit k;
        struct ek_rec_config c = gk_config(v);
        struct results all;
        int64_t t = 0;
        gk_open(&k, &c, 2, GK_RUNS);
        gk_forward(&k);
        take_results(&all, &k);
        for (size_t s = 0; s < COUNT(gk_lengths); s++) {
            gk_fill(&k, s, s + 1);
            gk_forward(&k);
            size_t n = (size_t)gk_lengths[s] * sizeof(float);
            assert_memory_equal(gk_h(&k), all.h + t * 8, 8 * n);
            assert_memory_equal(gk_logits(&k), all.logits + t, n);
            t += gk_lengths[s];
        }
        gk_close(&k);
    }
}

static int64_t n_numbers(const struct ek_params *params)
{
    int64_t n = 0;
    for (int i = 0; i < ek_params_count(params); i++)
        n += ek_params_get(params, i)->rows * ek_params_get(params, i)->cols;
    return n;
}

/* The loss and all gradients after one step; the caller frees. */
static float *step(const struct ek_rec_config *c, int n_threads, size_t *n)
{
    struct gemkit k;
    gk_open(&k, c, n_threads, GK_TRAINS);
    ek_params_zero_grad(k.params);
    ek_mem_fail_at(1); /* a step allocates nothing: this would fail */
    gk_forward(&k);
    ek_graph_backward(ek_rec_graph(k.m), 1.0f);
    assert_false(ek_mem_failed());
    ek_mem_fail_at(0);
    *n = 1 + (size_t)n_numbers(k.params);
    float *all = ek_alloc_array(*n, sizeof *all), *at = all;
    assert_non_null(all);
    for (int i = 0; i < ek_params_count(k.params); i++) {
        const struct ek_param *p = ek_params_get(k.params, i);
        memcpy(at, p->grad, (size_t)(p->rows * p->cols) * sizeof *at);
        at += p->rows * p->cols;
    }
    *at = ek_graph_scalar(ek_rec_graph(k.m), ek_rec_loss(k.m));
    gk_close(&k);
    return all;
}

static void gradients_have_the_same_bits_on_any_threads(void **state)
{
    (void)state;
    static const int threads[] = {2, 3, 8};
    for (int v = 0; v < GK_VARIANTS; v++) {
        struct ek_rec_config c = gk_config(v);
        size_t n, n_again;
        c.dropout = 0.2;
        float *one = step(&c, 1, &n);
        assert_true(isfinite(one[n - 1]));
        for (size_t i = 0; i < COUNT(threads); i++) {
            float *again = step(&c, threads[i], &n_again);
            assert_int_equal(n, n_again);
            assert_memory_equal(one, again, n * sizeof *one);
            ek_free(again);
        }
        ek_free(one);
    }
}

/* --- gradients -------------------------------------------------------------------------- */

static double loss_of(struct gemkit *k)
{
    gk_forward(k);
    return (double)ek_graph_scalar(ek_rec_graph(k->m), ek_rec_loss(k->m));
}

/* Fourth-order difference; the loss is rounded to f32, so the step is not small. */
static double slope(struct gemkit *k, float *x)
{
    static const double at[] = {1, -1, 2, -2}, weight[] = {8, -8, -1, 1};
    const double h = 0.01;
    float old = *x;
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        *x = (float)((double)old + at[i] * h);
        sum += weight[i] * loss_of(k);
    }
    *x = old;
    return sum / (12 * h);
}

static void every_parameter_has_the_slope_of_the_loss(void **state)
{
    (void)state;
    for (int v = 0; v < GK_VARIANTS; v++) {
        struct gemkit k;
        struct ek_rec_config c = gk_config(v);
        struct ek_rng rng;
        ek_rng_init(&rng, 4);
        gk_open(&k, &c, 1, GK_TRAINS);
        ek_params_zero_grad(k.params);
        gk_forward(&k);
        ek_graph_backward(ek_rec_graph(k.m), 1.0f);
        for (int i = 0; i < ek_params_count(k.params); i++) {
            struct ek_param *p = ek_params_get(k.params, i);
            double size = 0;
            for (int64_t j = 0; j < p->rows * p->cols; j++)
                size += fabs((double)p->grad[j]);
            if (!(size > 0))
                fail_msg("variant %d: %s has no gradient", v, p->name);
            for (int t = 0; t < 2; t++) {
                int64_t j = (int64_t)ek_rng_below(&rng, (uint64_t)(p->rows * p->cols));
                double want = slope(&k, p->value + j), got = (double)p->grad[j];
                if (!(fabs(got - want) < 1e-3 * (1 + fabs(want))))
                    fail_msg("variant %d: %s[%lld]: gradient %.6g, slope %.6g", v,
                             p->name, (long long)j, got, want);
            }
        }
        gk_close(&k);
    }
}

/* --- learning --------------------------------------------------------------------------- */

#define LEARN_STEPS 150

/* A click is 1 where the item that comes is of the user's kind: (item + segment) even.
 * The items say nothing of the segment. */
static void fill_clicks(struct gemkit *k, struct ek_rng *rng)
{
    for (int64_t b = 0; b < k->b.B; b++) {
        k->segment[b] = (int32_t)ek_rng_below(rng, 2);
        for (int64_t t = k->offsets[b]; t < k->offsets[b + 1]; t++) {
            k->items[t] = (int32_t)ek_rng_below(rng, 8);
            k->targets[t] = (int32_t)ek_rng_below(rng, 8);
            k->clicks[t] = (float)((k->targets[t] + k->segment[b]) % 2);
        }
    }
}

/* One step of AdamW on everything; moments (2, parameters). */
static void update(struct ek_params *params, float *moments, int s,
                   const struct ek_grad_ops *ops)
{
    struct ek_adamw a = {.lr = 3e-3f,
                         .beta1 = 0.9f,
                         .beta2 = 0.98f,
                         .eps = 1e-8f,
                         .correct1 = 1 - powf(0.9f, (float)(s + 1)),
                         .correct2 = 1 - powf(0.98f, (float)(s + 1)),
                         .grad_scale = 1};
    for (int i = 0; i < ek_params_count(params); i++) {
        struct ek_param *p = ek_params_get(params, i);
        int64_t n = p->rows * p->cols;
        ops->adamw(p->value, moments, moments + n, p->grad, n, &a);
        moments += 2 * n;
    }
}

/* Mean log loss of the last steps' clicks, each step on new sequences. */
static double click_loss(enum ek_rec_kind kind)
{
    const struct ek_grad_ops *ops = ek_grad_ops_get(ek_isa_best());
    struct gemkit k;
    struct ek_rec_config c = gk_config(0);
    struct ek_rng rng;
    double sum = 0;
    c.kind = kind;
    c.dim = 16;
    c.blocks = 1;
    c.click_weight = 10;
    gk_open(&k, &c, 1, GK_TRAINS_FRESH);
    float *moments = ek_calloc((size_t)(2 * n_numbers(k.params)), sizeof *moments);
    assert_non_null(moments);
    ek_rng_init(&rng, 8);
    for (int s = 0; s < LEARN_STEPS; s++) {
        fill_clicks(&k, &rng);
        ek_params_zero_grad(k.params);
        gk_forward(&k);
        ek_graph_backward(ek_rec_graph(k.m), 1.0f);
        update(k.params, moments, s, ops);
        for (int64_t t = 0; t < k.b.T && s >= LEARN_STEPS - 20; t++) {
            double x = (double)gk_logits(&k)[t];
            sum += log1p(exp(k.clicks[t] > 0.5f ? -x : x)) / (20.0 * (double)k.b.T);
        }
    }
    ek_free(moments);
    gk_close(&k);
    return sum;
}

static void it_learns_clicks_of_user_times_item_which_sasrec_cannot(void **state)
{
    (void)state;
    double gem = click_loss(EK_REC_GEM), sasrec = click_loss(EK_REC_SASREC);
    if (!(gem < 0.2 && sasrec > 0.6))
        fail_msg("log loss of clicks: gem %.4f, sasrec %.4f; ln 2 knows nothing", gem,
                 sasrec);
}

/* --- refusals --------------------------------------------------------------------------- */

static void refuse(const struct ek_rec_config *c, const struct ek_rec_shape *s,
                   const char *words)
{
    struct ek_err err = EK_ERR_INIT;
    struct ek_rec *m = NULL;
    struct ek_params *params;
    struct ek_team *team;
    assert_int_equal(ek_team_new(&team, 1, false, NULL), 0);
    assert_int_equal(ek_params_new(&params, 5, NULL), 0);
    struct ek_graph_options o = {.team = team, .isa = ek_isa_best()};
    assert_int_equal(ek_rec_new(&m, params, c, s, &o, &err), EK_EINVAL);
    if (!strstr(err.text, words))
        fail_msg("'%s' does not say '%s'", err.text, words);
    ek_params_free(params);
    ek_team_free(team);
}

static void what_it_cannot_be_is_refused_in_words(void **state)
{
    (void)state;
    const struct ek_rec_config good = gk_config(1);
    struct ek_rec_config c = good;
    struct ek_rec_shape s = gk_shape;
    c.seeds = 0;
    refuse(&c, &s, "seeds: 0; expected 1 to 512 for gem");
    c = good;
    c.experts = 17;
    refuse(&c, &s, "experts: 17; expected 1 to 16 for gem");
    c = good;
    c.rank = 0;
    refuse(&c, &s, "rank: 0; expected 1 to 256 for gem");
    c = good;
    c.chunk = -1;
    refuse(&c, &s, "chunk: -1; expected 0 to");
    c = good;
    c.window = -2;
    refuse(&c, &s, "window: -2; expected 0 to");
    c = good;
    c.click_weight = -1;
    refuse(&c, &s, "click_weight: -1; expected 0 or more");
    s.lacks_times = true;
    refuse(&good, &s, "times: true; expected false: the log has no times");
    static const char alike[2][43] = {"a.name.of.forty.bytes.with.an.end.of.its.1",
                                      "a.name.of.forty.bytes.with.an.end.of.its.2"};
    const struct ek_rec_column twins[2] = {{.name = alike[0]}, {.name = alike[1]}};
    s.columns = twins;
    s.n_columns = 2;
    refuse(&good, &s, "expected names that differ in their first 40 bytes");
}

static void a_batch_without_what_it_reads_is_refused(void **state)
{
    (void)state;
    struct gemkit k;
    struct ek_rec_config c = gk_config(1);
    gk_open(&k, &c, 1, GK_RUNS);
    k.b.columns[AGE].numbers = NULL;
    assert_int_equal(ek_rec_bind(k.m, &k.b), EK_EINVAL);
    gk_fill(&k, 0, COUNT(gk_lengths));
    k.segment[2] = 5;
    assert_int_equal(ek_rec_bind(k.m, &k.b), EK_EINVAL);
    gk_fill(&k, 0, COUNT(gk_lengths));
    k.b.targets = NULL; /* the click head asks for them */
    assert_int_equal(ek_rec_bind(k.m, &k.b), EK_EINVAL);
    gk_fill(&k, 0, COUNT(gk_lengths));
    gk_forward(&k); /* and it still works */
    gk_close(&k);
}

static void failed_allocations_are_told_and_leave_nothing(void **state)
{
    (void)state;
    struct ek_team *team;
    struct ek_rec_config c = gk_config(1);
    assert_int_equal(ek_team_new(&team, 1, false, NULL), 0);
    EK_EACH_FAILURE_BY (k, 19) {
        struct ek_params *params = NULL;
        struct ek_rec *m = NULL;
        struct ek_graph_options o = {
            .team = team, .isa = ek_isa_best(), .is_training = true};
        int rc = ek_params_new(&params, 5, NULL);
        if (!rc)
            rc = ek_rec_new(&m, params, &c, &gk_shape, &o, NULL);
        ek_assert_rc(rc);
        if (m)
            ek_rec_free(m);
        ek_params_free(params);
    }
    ek_team_free(team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_what_its_formulas_say),
        cmocka_unit_test(a_hash_spreads_levels_over_all_rows),
        cmocka_unit_test(categories_have_tables_of_their_own_size),
        cmocka_unit_test(a_later_event_changes_no_earlier_row),
        cmocka_unit_test(the_first_event_is_seen_by_the_last_position),
        cmocka_unit_test(a_sequence_has_the_same_bits_alone_and_in_a_batch),
        cmocka_unit_test(gradients_have_the_same_bits_on_any_threads),
        cmocka_unit_test(every_parameter_has_the_slope_of_the_loss),
        cmocka_unit_test(it_learns_clicks_of_user_times_item_which_sasrec_cannot),
        cmocka_unit_test(what_it_cannot_be_is_refused_in_words),
        cmocka_unit_test(a_batch_without_what_it_reads_is_refused),
        cmocka_unit_test(failed_allocations_are_told_and_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
