/* test_evaluate.c - a model's evaluation against a plain ranking of each sample by
 * itself, whatever the batch and the threads; entropy, AUC; recommendations. */
#include "base/rng.h"
#include "data/events_read.h"
#include "testkit.h"
#include "train/data.h"
#include "train/evaluate.h"

#include <math.h>
#include <stdio.h>

#define N_USERS    60
#define N_ITEMS    300
#define MAX_LENGTH 12
#define MAX_BATCH  64

struct world {
    struct ek_train_data data;
    struct ek_team *team;
    struct ek_params *params;
    struct ek_rec *model;
    struct ek_rec_config config;
    struct ek_evaluate o;
};

/* Users of 1 to 30 events with clicks and a column; of one or two events some. */
static void make_log(struct ek_train_data *d)
{
    static char text[1 << 20];
    static const char *const numeric[] = {"click"};
    const struct ek_events_options o = {.numeric = {numeric, 1}};
    struct ek_rng rng;
    size_t at =
        (size_t)snprintf(text, sizeof text, "user_id,item_id,timestamp,click\n");
    ek_rng_init(&rng, 9);
    for (int u = 0; u < N_USERS; u++) {
        int n = u % 9 == 0 ? 1 + u % 2 : 3 + (int)ek_rng_below(&rng, 28);
        for (int i = 0; i < n; i++)
            at += (size_t)snprintf(text + at, sizeof text - at, "u%d,i%d,%d,%d\n", u,
                                   (int)ek_rng_below(&rng, N_ITEMS), i,
                                   (int)ek_rng_below(&rng, 2));
    }
    assert_int_equal(ek_events_parse(&d->events, NULL, "t.csv", text, at, &o, NULL), 0);
    assert_int_equal(ek_split_leave_one_out(&d->split, &d->events, NULL), 0);
    d->n_columns = 1;
    d->columns[0] = (struct ek_rec_column){.name = "click"};
    d->click = 0;
}

static void set_up(struct world *w, int threads, bool is_cosine, double click_weight)
{
    const struct ek_graph_options g = {.isa = ek_isa_best()};
    struct ek_graph_options options = g;
    *w = (struct world){.data = {.click = -1}};
    make_log(&w->data);
    assert_int_equal(ek_team_new(&w->team, threads, false, NULL), 0);
    options.team = w->team;
    w->config = (struct ek_rec_config){.kind = EK_REC_SASREC,
                                       .dim = 16,
                                       .blocks = 1,
                                       .heads = 2,
                                       .max_length = MAX_LENGTH,
                                       .loss = EK_REC_FULL,
                                       .is_cosine = is_cosine,
                                       .temperature = 1,
                                       .click_weight = click_weight};
    const struct ek_rec_shape shape = {.n_items = w->data.events.n_items,
                                       .max_sequences = MAX_BATCH,
                                       .max_rows = MAX_BATCH * MAX_LENGTH,
                                       .n_columns = 1,
                                       .columns = w->data.columns};
    struct ek_err err = EK_ERR_INIT;
    assert_int_equal(ek_params_new(&w->params, 3, NULL), 0);
    if (ek_rec_new(&w->model, w->params, &w->config, &shape, &options, &err))
        fail_msg("%s", err.text);
    w->o = (struct ek_evaluate){.model = w->model,
                                .config = &w->config,
                                .params = w->params,
                                .data = &w->data,
                                .part = EK_PART_TEST,
                                .batch = MAX_BATCH,
                                .team = w->team,
                                .isa = ek_isa_best()};
}

static void tear_down(struct world *w)
{
    ek_rec_free(w->model);
    ek_params_free(w->params);
    ek_team_free(w->team);
    ek_train_data_release(&w->data);
}

/* Scores of all items behind rows [from, target) of the log, in f64. */
static void score(double *scores, struct world *w, int64_t from, int64_t target)
{
    const struct ek_events *e = &w->data.events;
    if (target - from > MAX_LENGTH)
        from = target - MAX_LENGTH;
    const int64_t offsets[] = {0, target - from};
    const struct ek_rec_batch b = {.B = 1,
                                   .T = target - from,
                                   .offsets = offsets,
                                   .items = e->items + from,
                                   .times = e->times + from,
                                   .targets = e->items + from,
                                   .columns[0].numbers = e->columns[0].numbers + from};
    assert_int_equal(ek_rec_bind(w->model, &b), 0);
    ek_graph_forward(ek_rec_graph(w->model), 0);
    const struct ek_mat h = ek_graph_mat(ek_rec_graph(w->model), ek_rec_h(w->model));
    const struct ek_param *items = ek_params_get(w->params, ek_rec_items(w->model));
    const float *last = h.f + (b.T - 1) * h.ld;
    for (int64_t v = 0; v < e->n_items; v++) {
        const float *x = items->value + v * items->cols;
        double s = 0, square = 0;
        for (int64_t c = 0; c < items->cols; c++) {
            s += (double)last[c] * (double)x[c];
            square += (double)x[c] * (double)x[c];
        }
        scores[v] = w->config.is_cosine ? s / sqrt(square) : s;
    }
}

static bool is_in(const int32_t *items, int64_t n, int64_t v)
{
    for (int64_t i = 0; i < n; i++)
        if (items[i] == v)
            return true;
    return false;
}

/* Recall and MRR at cut k, by sorting nothing and sharing nothing. */
static void naive(struct world *w, int cut, bool is_filtered, double *recall,
                  double *mrr)
{
    const struct ek_events *e = &w->data.events;
    double scores[N_ITEMS];
    int64_t n = 0;
    *recall = *mrr = 0;
    for (int64_t u = 0; u < e->n_users; u++) {
        const int64_t first = e->offsets[u], target = e->offsets[u + 1] - 1;
        if (target - first < 2)
            continue; /* trains whole */
        score(scores, w, first, target);
        int64_t rank = 1;
        for (int64_t v = 0; v < e->n_items; v++) {
            if (v == e->items[target] ||
                (is_filtered && is_in(e->items + first, target - first, v)))
                continue;
            rank += scores[v] > scores[e->items[target]];
        }
        *recall += rank <= cut;
        *mrr += rank <= cut ? 1 / (double)rank : 0;
        n++;
    }
    *recall /= (double)n;
    *mrr /= (double)n;
}

static void metrics_are_those_of_each_sample_ranked_by_itself(void **state)
{
    (void)state;
    for (int is_cosine = 0; is_cosine < 2; is_cosine++) {
        struct world w;
        struct ek_evaluation got;
        set_up(&w, 2, is_cosine, 0);
        assert_int_equal(ek_evaluate_run(&w.o, &got, NULL), 0);
        assert_int_equal(got.samples, N_USERS - (N_USERS + 8) / 9);
        for (int i = 0; i < EK_EVAL_CUTS; i++) {
            double recall, mrr;
            naive(&w, ek_eval_cuts[i], true, &recall, &mrr);
            assert_true(fabs(got.filtered.recall[i] - recall) < 1e-9);
            assert_true(fabs(got.filtered.mrr[i] - mrr) < 1e-9);
            naive(&w, ek_eval_cuts[i], false, &recall, &mrr);
            assert_true(fabs(got.unfiltered.recall[i] - recall) < 1e-9);
            assert_true(fabs(got.unfiltered.mrr[i] - mrr) < 1e-9);
        }
        assert_true(got.filtered.recall[4] > 0 && got.filtered.recall[4] < 1);
        assert_true(isnan(got.auc) && isnan(got.normalised_entropy));
        tear_down(&w);
    }
}

static void any_batch_and_any_threads_give_the_same_metrics(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 3, 8};
    static const int64_t batches[] = {MAX_BATCH, 1, 7, 33};
    struct ek_evaluation first = {0}, got;
    for (int i = 0; i < 4; i++) {
        struct world w;
        set_up(&w, threads[i], true, 0.5);
        w.o.batch = batches[i];
        assert_int_equal(ek_evaluate_run(&w.o, i ? &got : &first, NULL), 0);
        if (i) {
            assert_memory_equal(&got.filtered, &first.filtered, sizeof got.filtered);
            assert_memory_equal(&got.unfiltered, &first.unfiltered,
                                sizeof got.unfiltered);
            assert_true(got.auc == first.auc);
            assert_true(got.normalised_entropy == first.normalised_entropy);
        }
        assert_true(first.auc > 0 && first.auc < 1 && first.normalised_entropy > 0);
        tear_down(&w);
    }
}

static void an_empty_part_is_told(void **state)
{
    (void)state;
    struct world w;
    struct ek_evaluation got;
    struct ek_err err = EK_ERR_INIT;
    set_up(&w, 1, false, 0);
    for (int64_t u = 0; u < w.data.events.n_users; u++)
        w.data.split.valid_end[u] = w.data.events.offsets[u + 1];
    assert_int_equal(ek_evaluate_run(&w.o, &got, &err), EK_EINVAL);
    assert_non_null(strstr(err.text, "test part"));
    tear_down(&w);
}

static void evaluation_survives_any_failed_allocation(void **state)
{
    (void)state;
    struct world w;
    set_up(&w, 1, true, 0.5);
    EK_EACH_FAILURE (k) {
        struct ek_evaluation got;
        ek_assert_rc(ek_evaluate_run(&w.o, &got, NULL));
    }
    tear_down(&w);
}

/* --- clicks --- */

/* Pairs by pairs. */
static void entropy_and_auc_are_those_of_plain_formulas(void **state)
{
    (void)state;
    struct ek_rng rng;
    ek_rng_init(&rng, 2);
    for (int round = 0; round < 20; round++) {
        struct ek_click c[90];
        const int n = 2 + round * 4;
        double wins = 0, pairs = 0, loss = 0, clicks = 0, entropy, auc;
        for (int i = 0; i < n; i++) /* few values: ties; and large ones */
            c[i] = (struct ek_click){((float)ek_rng_below(&rng, 9) - 4) *
                                         (round == 5 ? 100.0f : 0.7f),
                                     i < 1 || (i > 1 && ek_rng_below(&rng, 3) == 0)};
        for (int i = 0; i < n; i++) {
            const double p = 1 / (1 + exp(-(double)c[i].logit));
            loss -= log(fmax(c[i].is_click ? p : 1 - p, 1e-300));
            clicks += c[i].is_click;
            for (int k = 0; k < n; k++)
                if (c[i].is_click && !c[k].is_click) {
                    pairs++;
                    wins += c[i].logit > c[k].logit   ? 1
                            : c[i].logit < c[k].logit ? 0
                                                      : 0.5;
                }
        }
        const double rate = clicks / n;
        ek_click_measure(c, n, &entropy, &auc);
        assert_true(fabs(auc - wins / pairs) < 1e-12);
        if (round != 5) {
            const double base = -(rate * log(rate) + (1 - rate) * log(1 - rate));
            assert_true(fabs(entropy - loss / n / base) < 1e-9 * entropy);
        }
        assert_true(isfinite(entropy));
    }
}

static void one_class_or_no_number_gives_no_measure(void **state)
{
    (void)state;
    double entropy, auc;
    struct ek_click same[] = {{1, true}, {2, true}},
                    wrong[] = {{NAN, true}, {2, false}};
    ek_click_measure(same, 2, &entropy, &auc);
    assert_true(isnan(entropy) && isnan(auc));
    ek_click_measure(wrong, 2, &entropy, &auc);
    assert_true(isnan(entropy) && isnan(auc));
    ek_click_measure(NULL, 0, &entropy, &auc);
    assert_true(isnan(entropy) && isnan(auc));
}

static void a_rank_counts_at_the_cuts_it_is_within(void **state)
{
    (void)state;
    struct ek_ranking r = {0};
    ek_ranking_add(&r, 1);
    ek_ranking_add(&r, 10);
    ek_ranking_add(&r, 201);
    assert_true(r.recall[0] == 1 && r.recall[1] == 2 && r.recall[4] == 2);
    assert_true(r.mrr[0] == 1 && fabs(r.mrr[1] - 1.1) < 1e-15);
    assert_true(r.ndcg[0] == 1 && fabs(r.ndcg[4] - 1 - 1 / log2(11)) < 1e-15);
}

/* --- recommendations --- */

static void recommendations_are_the_head_of_all_scores(void **state)
{
    (void)state;
    struct world w;
    int64_t u = 0;
    double scores[N_ITEMS];
    int32_t items[N_ITEMS + 5];
    float got[N_ITEMS + 5];
    set_up(&w, 3, false, 0.5);
    const struct ek_events *e = &w.data.events;
    while (e->offsets[u + 1] - e->offsets[u] <= MAX_LENGTH)
        u++;
    const int64_t from = e->offsets[u], n = e->offsets[u + 1] - from;
    score(scores, &w, from, from + n);
    const struct ek_history h = {n, e->items + from, e->times + from, from};
    for (int is_filtered = 0; is_filtered < 2; is_filtered++) {
        int64_t found = 0, n_left = 0;
        assert_int_equal(
            ek_recommend(&w.o, &h, is_filtered, items, got, N_ITEMS + 5, &found, NULL),
            0);
        for (int64_t v = 0; v < e->n_items; v++)
            n_left += !is_filtered || !is_in(h.items, n, v);
        assert_int_equal(found, n_left);
        for (int64_t i = 0; i < found; i++) {
            assert_true(fabs((double)got[i] - scores[items[i]]) < 1e-5);
            assert_true(i == 0 || got[i] <= got[i - 1]);
            assert_false(is_filtered && is_in(h.items, n, items[i]));
        }
    }
    tear_down(&w);
}

static void a_history_needs_no_log_and_is_checked(void **state)
{
    (void)state;
    struct world w;
    int32_t items[3];
    float scores[3];
    int64_t n = 0;
    const int32_t good[] = {5, 2}, bad[] = {5, -1}, far[] = {N_ITEMS + 7};
    set_up(&w, 1, true, 0.5);
    w.o.data = NULL;
    struct ek_err err = EK_ERR_INIT;
    const struct ek_history h = {2, good, NULL, -1};
    EK_EACH_FAILURE (k) {
        ek_assert_rc(ek_recommend(&w.o, &h, true, items, scores, 3, &n, NULL));
    }
    assert_int_equal(n, 3);
    const struct ek_history wrong[] = {
        {2, bad, NULL, -1}, {1, far, NULL, -1}, {.row = -1}};
    for (int i = 0; i < 3; i++) {
        int rc = ek_recommend(&w.o, &wrong[i], true, items, scores, 3, &n, &err);
        assert_int_equal(rc, EK_EINVAL);
        assert_non_null(strstr(err.text, "expected"));
    }
    tear_down(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_are_those_of_each_sample_ranked_by_itself),
        cmocka_unit_test(any_batch_and_any_threads_give_the_same_metrics),
        cmocka_unit_test(an_empty_part_is_told),
        cmocka_unit_test(evaluation_survives_any_failed_allocation),
        cmocka_unit_test(entropy_and_auc_are_those_of_plain_formulas),
        cmocka_unit_test(one_class_or_no_number_gives_no_measure),
        cmocka_unit_test(a_rank_counts_at_the_cuts_it_is_within),
        cmocka_unit_test(recommendations_are_the_head_of_all_scores),
        cmocka_unit_test(a_history_needs_no_log_and_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
