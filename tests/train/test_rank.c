/* test_rank.c - ranks and best items against a sort of all scores. */
#include "base/rng.h"
#include "testkit.h"
#include "train/rank.h"

#include <math.h>

#define MAX_SEEN 50

struct data {
    int64_t n_items, dim, n;
    float *items, *h;
    int32_t *seen;
    struct ek_rank_query *queries;
};

/* Small whole numbers: products are exact in f32, and ties abound. */
static float whole(struct ek_rng *rng)
{
    return (float)ek_rng_below(rng, 3) - 1;
}

static void make(struct data *d, int64_t n_items, int64_t dim, int64_t n, uint64_t seed)
{
    struct ek_rng rng;
    const int64_t n_seen = MAX_SEEN;
    ek_rng_init(&rng, seed);
    *d = (struct data){.n_items = n_items, .dim = dim, .n = n};
    d->items = ek_alloc_aligned(64, (size_t)(n_items * dim) * sizeof(float));
    d->h = ek_alloc_aligned(64, (size_t)(n * dim) * sizeof(float));
    d->seen = ek_alloc_array((size_t)(n * n_seen), sizeof *d->seen);
    d->queries = ek_alloc_array((size_t)n, sizeof *d->queries);
    for (int64_t i = 0; i < n_items * dim; i++)
        d->items[i] = whole(&rng);
    for (int64_t i = 0; i < n * dim; i++)
        d->h[i] = whole(&rng);
    for (int64_t i = 0; i < n * n_seen; i++)
        d->seen[i] = (int32_t)ek_rng_below(&rng, (uint64_t)n_items);
    for (int64_t i = 0; i < n; i++) {
        d->queries[i].target = (int32_t)ek_rng_below(&rng, (uint64_t)n_items);
        d->queries[i].seen = d->seen + i * n_seen;
        d->queries[i].n_seen = (int64_t)ek_rng_below(&rng, (uint64_t)n_seen + 1);
        if (i % 3 == 1) { /* the same user later: a longer, or a shorter, history */
            d->queries[i].seen = d->queries[i - 1].seen;
        }
    }
}

static void unmake(struct data *d)
{
    ek_free(d->items);
    ek_free(d->h);
    ek_free(d->seen);
    ek_free(d->queries);
}

static double score_of(const struct data *d, int64_t i, int64_t v, bool is_cosine)
{
    double s = 0, square = 0;
    for (int64_t c = 0; c < d->dim; c++) {
        const double e = (double)d->items[v * d->dim + c];
        s += (double)d->h[i * d->dim + c] * e;
        square += e * e;
    }
    return is_cosine && square > 0 ? s / sqrt(square) : s;
}

static bool is_seen(const struct ek_rank_query *q, int64_t v)
{
    for (int64_t i = 0; i < q->n_seen; i++)
        if (q->seen[i] == v)
            return true;
    return false;
}

/* Ranks by the header's formula. Where scores are not exact, items nearer to the target's
 * than `near` may stand on either side: a range. */
static void check_ranks(const struct data *d, const struct ek_rank *got, bool is_cosine,
                        double near)
{
    for (int64_t i = 0; i < d->n; i++) {
        const struct ek_rank_query *q = &d->queries[i];
        const double target = score_of(d, i, q->target, is_cosine);
        int64_t lo[2] = {1, 1}, hi[2] = {1, 1};
        for (int64_t v = 0; v < d->n_items; v++) {
            const double s = score_of(d, i, v, is_cosine) - target;
            const bool wins_tie = v < q->target;
            if (v == q->target)
                continue;
            for (int k = 0; k < 2; k++) {
                if (k == 1 && is_seen(q, v))
                    continue;
                lo[k] += near > 0 ? s > near : s > 0 || (s == 0 && wins_tie);
                hi[k] += near > 0 ? s >= -near : s > 0 || (s == 0 && wins_tie);
            }
        }
        assert_in_range(got[i].unfiltered, lo[0], hi[0]);
        assert_in_range(got[i].filtered, lo[1], hi[1]);
    }
}

static struct ek_ranker *ranker_of(const struct data *d, struct ek_team *team,
                                   bool is_cosine, enum ek_isa isa)
{
    struct ek_ranker *r = NULL;
    struct ek_ranker_options o = {.items = d->items,
                                  .n_items = d->n_items,
                                  .dim = d->dim,
                                  .is_cosine = is_cosine,
                                  .max_queries = d->n,
                                  .max_seen = MAX_SEEN,
                                  .team = team,
                                  .isa = isa};
    assert_int_equal(ek_ranker_new(&r, &o, NULL), 0);
    return r;
}

static const struct {
    int64_t n_items, dim, n;
} shapes[] = {{1, 1, 1},   {1, 64, 30},    {2, 3, 17},     {255, 16, 97},
              {257, 8, 5}, {700, 64, 200}, {1000, 300, 13}};
#define N_SHAPES (sizeof shapes / sizeof shapes[0])

static void ranks_are_those_of_a_sort_of_all_scores(void **state)
{
    (void)state;
    struct ek_team *team = NULL;
    assert_int_equal(ek_team_new(&team, 2, false, NULL), 0);
    for (size_t s = 0; s < N_SHAPES; s++)
        for (int isa = EK_ISA_REF; isa <= (int)ek_isa_best(); isa++)
            for (int is_cosine = 0; is_cosine < 2; is_cosine++) {
                struct data d;
                make(&d, shapes[s].n_items, shapes[s].dim, shapes[s].n, s);
                struct ek_ranker *r = ranker_of(&d, team, is_cosine, (enum ek_isa)isa);
                struct ek_rank *got = ek_alloc_array((size_t)d.n, sizeof *got);
                for (int again = 0; again < 2; again++) {
                    ek_ranker_run(r, got, d.h, d.dim, d.queries, d.n);
                    check_ranks(&d, got, is_cosine, is_cosine ? 1e-5 : 0);
                }
                ek_free(got);
                ek_ranker_free(r);
                unmake(&d);
            }
    ek_team_free(team);
}

static void random_data(struct data *d, uint64_t seed)
{
    struct ek_rng rng;
    ek_rng_init(&rng, seed);
    for (int64_t i = 0; i < d->n_items * d->dim; i++)
        d->items[i] = (float)(ek_rng_uniform(&rng) - 0.5);
    for (int64_t i = 0; i < d->n * d->dim; i++)
        d->h[i] = (float)(ek_rng_uniform(&rng) - 0.5);
}

/* Not whole: the target's own score must come out of both ways with the same bits, or
 * it would beat itself. Filtered and unfiltered, any threads. */
static void any_number_of_threads_gives_the_same_ranks(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 3, 8, 17};
    struct data d;
    struct ek_rank first[500], got[500];
    make(&d, 1500, 64, 500, 3);
    random_data(&d, 4);
    for (int is_cosine = 0; is_cosine < 2; is_cosine++)
        for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
            struct ek_team *team = NULL;
            assert_int_equal(ek_team_new(&team, threads[t], false, NULL), 0);
            struct ek_ranker *r = ranker_of(&d, team, is_cosine, ek_isa_best());
            ek_ranker_run(r, t ? got : first, d.h, d.dim, d.queries, d.n);
            if (t)
                assert_memory_equal(got, first, sizeof got);
            else
                check_ranks(&d, first, is_cosine, 1e-5);
            ek_ranker_free(r);
            ek_team_free(team);
        }
    unmake(&d);
}

/* A target that scores best in everything is first, whatever its place. */
static void the_best_item_is_first(void **state)
{
    (void)state;
    struct ek_team *team = NULL;
    struct data d;
    struct ek_rank got[64];
    assert_int_equal(ek_team_new(&team, 1, false, NULL), 0);
    make(&d, 600, 48, 64, 5);
    random_data(&d, 6);
    for (int64_t i = 0; i < d.n; i++) {
        int64_t best = 0;
        for (int64_t v = 1; v < d.n_items; v++)
            if (score_of(&d, i, v, false) > score_of(&d, i, best, false))
                best = v;
        d.queries[i].target = (int32_t)best;
    }
    struct ek_ranker *r = ranker_of(&d, team, false, ek_isa_best());
    ek_ranker_run(r, got, d.h, d.dim, d.queries, d.n);
    for (int64_t i = 0; i < d.n; i++)
        assert_true(got[i].filtered == 1 && got[i].unfiltered == 1);
    ek_ranker_free(r);
    unmake(&d);
    ek_team_free(team);
}

static void a_score_that_is_nan_is_last(void **state)
{
    (void)state;
    struct ek_team *team = NULL;
    struct data d;
    struct ek_rank got[20];
    assert_int_equal(ek_team_new(&team, 2, false, NULL), 0);
    for (int is_cosine = 0; is_cosine < 2; is_cosine++) {
        make(&d, 300, 8, 20, 7);
        for (int64_t i = 0; i < 300 * 8; i++)
            d.items[i] = NAN;
        for (int64_t i = 0; i < d.n; i++) {
            d.queries[i].target = (int32_t)i;
            d.queries[i].seen = d.seen;
            d.queries[i].n_seen = 2;
            d.seen[0] = 3;
            d.seen[1] = 250;
        }
        struct ek_ranker *r = ranker_of(&d, team, is_cosine, ek_isa_best());
        ek_ranker_run(r, got, d.h, d.dim, d.queries, d.n);
        for (int64_t i = 0; i < d.n; i++) {
            assert_int_equal(got[i].unfiltered, 300);
            assert_int_equal(got[i].filtered, i == 3 ? 299 : 298);
        }
        ek_ranker_free(r);
        unmake(&d);
    }
    ek_team_free(team);
}

/* Best first, lower index at ties, nothing seen: whoever is not there is no better than
 * the last. */
static void check_top(const struct data *d, const int32_t *items, const float *scores,
                      int64_t n, int64_t k)
{
    const struct ek_rank_query *q = &d->queries[0];
    int64_t n_left = 0, n_before = 0;
    for (int64_t v = 0; v < d->n_items; v++) {
        const double s = score_of(d, 0, v, false);
        const bool is_ahead =
            n > 0 && (s > (double)scores[n - 1] ||
                      (s == (double)scores[n - 1] && v <= items[n - 1]));
        n_left += !is_seen(q, v);
        n_before += !is_seen(q, v) && is_ahead;
    }
    assert_int_equal(n, k < n_left ? k : n_left);
    assert_int_equal(n_before, n);
    for (int64_t i = 0; i < n; i++) {
        assert_true((double)scores[i] == score_of(d, 0, items[i], false));
        assert_false(is_seen(q, items[i]));
        assert_true(i == 0 || scores[i] < scores[i - 1] ||
                    (scores[i] == scores[i - 1] && items[i] > items[i - 1]));
    }
}

static void top_is_the_head_of_a_sort_for_any_k_and_threads(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 3, 8};
    static const int64_t ks[] = {1, 5, 10, 0, 300, 5000};
    for (size_t s = 0; s < N_SHAPES; s++) {
        struct data d;
        make(&d, shapes[s].n_items, shapes[s].dim, shapes[s].n, s + 20);
        int32_t *items = ek_alloc_array(5000, sizeof *items);
        float *scores = ek_alloc_array(5000, sizeof *scores);
        for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
            struct ek_team *team = NULL;
            assert_int_equal(ek_team_new(&team, threads[t], false, NULL), 0);
            struct ek_ranker *r = ranker_of(&d, team, false, ek_isa_best());
            for (size_t k = 0; k < sizeof ks / sizeof *ks; k++) {
                int64_t n = ek_ranker_top(r, items, scores, ks[k], d.h, d.queries->seen,
                                          d.queries->n_seen);
                check_top(&d, items, scores, n, ks[k]);
            }
            ek_ranker_free(r);
            ek_team_free(team);
        }
        ek_free(items);
        ek_free(scores);
        unmake(&d);
    }
}

static void survives_any_failed_allocation(void **state)
{
    (void)state;
    struct data d;
    struct ek_team *team = NULL;
    int32_t items[10];
    float scores[10];
    assert_int_equal(ek_team_new(&team, 2, false, NULL), 0);
    make(&d, 40, 4, 3, 1);
    const struct ek_ranker_options o = {.items = d.items,
                                        .n_items = d.n_items,
                                        .dim = d.dim,
                                        .is_cosine = true,
                                        .max_queries = d.n,
                                        .max_seen = MAX_SEEN,
                                        .team = team,
                                        .isa = ek_isa_best()};
    EK_EACH_FAILURE (k) {
        struct ek_ranker *r = NULL;
        int64_t rc = ek_ranker_new(&r, &o, NULL);
        if (!rc)
            rc = ek_ranker_top(r, items, scores, 10, d.h, NULL, 0);
        ek_assert_rc(rc < 0 ? (int)rc : 0);
        ek_ranker_free(r);
    }
    unmake(&d);
    ek_team_free(team);
}

/* A bit an item a thread, and what a query has seen: not a number an item. */
static void a_ranker_of_many_items_takes_room_for_what_is_seen(void **state)
{
    (void)state;
    struct ek_team *team = NULL;
    struct ek_ranker_options o = {.dim = 4, .max_queries = 1, .isa = ek_isa_best()};
    size_t small = 0, large = 0, all = 0;
    assert_int_equal(ek_team_new(&team, 3, false, NULL), 0);
    o.team = team;
    o.n_items = 1 << 10;
    o.max_seen = 10;
    assert_true(ek_ranker_bytes(&small, &o));
    o.n_items = 1 << 20;
    assert_true(ek_ranker_bytes(&large, &o));
    assert_int_equal(large - small, 3 * ((1 << 20) - (1 << 10)) / 8);
    o.max_seen = 1 << 30;
    assert_true(ek_ranker_bytes(&all, &o));
    assert_int_equal(all - large, 3 * ((1 << 20) - 10) * sizeof(int32_t));
    ek_team_free(team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_those_of_a_sort_of_all_scores),
        cmocka_unit_test(any_number_of_threads_gives_the_same_ranks),
        cmocka_unit_test(the_best_item_is_first),
        cmocka_unit_test(a_score_that_is_nan_is_last),
        cmocka_unit_test(top_is_the_head_of_a_sort_for_any_k_and_threads),
        cmocka_unit_test(a_ranker_of_many_items_takes_room_for_what_is_seen),
        cmocka_unit_test(survives_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
