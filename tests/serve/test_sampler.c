/* The sampler against the definition written out in float64 over a sorted copy. */
#include "serve/sampler.h"
#include "testkit.h"

#include <math.h>

#define V 300 /* several blocks of kernel/pick.h and a tail */

static int64_t naive_argmax(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

struct fixture {
    struct ek_sampler_room room;
    struct ek_arena arena;
    struct ek_sampling how;
    struct ek_sampler sampler;
    float x[V];
};

static void setup(struct fixture *f, uint64_t seed)
{
    struct ek_rng rng;
    ek_rng_init(&rng, seed);
    assert_int_equal(ek_sampler_room_init(&f->room, V, ek_ops_get(ek_isa_best())), 0);
    ek_arena_init(&f->arena, 1 << 20);
    ek_sampling_default(&f->how);
    f->how.seed = seed;
    for (int i = 0; i < V; i++)
        f->x[i] = (float)(ek_rng_normal(&rng) * 2);
    f->x[50] = f->x[20]; /* a tie */
}

static void start(struct fixture *f, const int32_t *prompt, int32_t n_prompt)
{
    ek_arena_reset(&f->arena);
    assert_int_equal(
        ek_sampler_init(&f->sampler, &f->how, 0, V, &f->arena, prompt, n_prompt, 4096),
        0);
}

static int32_t next(struct fixture *f)
{
    int32_t id = -1;
    assert_int_equal(ek_sampler_next(&f->sampler, &id, f->x, false, &f->room), 0);
    assert_in_range(id, 0, V - 1);
    return id;
}

static void teardown(struct fixture *f)
{
    ek_sampler_room_release(&f->room);
    ek_arena_release(&f->arena);
}

/* The distribution that steps 6 to 9 define, by sorting everything. */
static void define(double *q, const float *x, const struct ek_sampling *how)
{
    int32_t order[V];
    double p[V], sum = 0, max = (double)x[naive_argmax(x, V)];
    for (int i = 0; i < V; i++) {
        p[i] = exp(((double)x[i] - max) / (double)how->temperature);
        order[i] = i;
        q[i] = 0;
    }
    for (int i = 0; i < V; i++) {
        for (int j = i; j > 0 && p[order[j]] > p[order[j - 1]]; j--) {
            int32_t t = order[j];
            order[j] = order[j - 1];
            order[j - 1] = t;
        }
    }
    int n = 0;
    while (n < V && p[order[n]] >= (double)how->min_p)
        n++;
    if (how->top_k > 0 && how->top_k < n)
        n = how->top_k;
    for (int i = 0; i < n; i++)
        sum += p[order[i]];
    double goal = sum * (double)how->top_p, part = 0;
    int kept = 0;
    while (kept < n && (kept == 0 || part < goal))
        part += p[order[kept++]];
    for (int i = 0; i < kept; i++)
        q[order[i]] = p[order[i]] / part;
}

static void draws_follow_the_definition(void **state)
{
    (void)state;
    static const struct {
        float temperature, top_p, min_p;
        int32_t top_k;
    } cases[] = {
        {1, 1, 0, 0},      {0.7f, 1, 0, 0},     {1, 0.9f, 0, 0},
        {1, 1, 0.1f, 0},   {1, 1, 0, 5},        {1, 0.5f, 0.05f, 20},
        {2, 0.95f, 0, 40}, {1, 1e-9f, 0, 0},    {1, 0.999f, 0, 96},
        {1, 1, 0, V - 1},  {1, 0.9f, 0.01f, V}, {0.3f, 0.8f, 0, 3},
        {1, 1, 1, 0},      {1, 1, 0, 1},
    };
    enum { N = 4000 };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct fixture f;
        double q[V], distance = 0;
        int counts[V] = {0};
        setup(&f, c + 1);
        f.how.temperature = cases[c].temperature;
        f.how.top_p = cases[c].top_p;
        f.how.min_p = cases[c].min_p;
        f.how.top_k = cases[c].top_k;
        start(&f, NULL, 0);
        define(q, f.x, &f.how);
        for (int i = 0; i < N; i++)
            counts[next(&f)]++;
        for (int i = 0; i < V; i++) {
            if (q[i] == 0)
                assert_int_equal(counts[i], 0);
            distance += fabs(counts[i] / (double)N - q[i]) / 2;
        }
        /* Total variation of N draws over V outcomes: about sqrt(V / (2 pi N)). */
        assert_true(distance < 2 * sqrt(V / (6.28 * N)));
        teardown(&f);
    }
}

static void temperature_zero_takes_the_largest_and_the_lowest_id_at_a_tie(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, 1);
    f.how.temperature = 0;
    f.x[30] = f.x[60] = 50;
    start(&f, NULL, 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(next(&f), 30);
    teardown(&f);
}

static void the_same_seed_gives_the_same_tokens(void **state)
{
    (void)state;
    struct fixture f;
    int32_t first[50];
    setup(&f, 9);
    start(&f, NULL, 0);
    for (int i = 0; i < 50; i++)
        first[i] = next(&f);
    start(&f, NULL, 0);
    for (int i = 0; i < 50; i++)
        assert_int_equal(next(&f), first[i]);
    teardown(&f);
}

static void penalties_follow_their_formulas(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, 2);
    memset(f.x, 0, sizeof f.x);
    f.x[1] = 2.0f;
    f.x[2] = 1.9f;
    f.x[3] = -1.0f;
    f.how.temperature = 0;
    f.how.frequency_penalty = 0.25f;
    f.how.presence_penalty = 0.5f;
    start(&f, NULL, 0);
    /* 1: 2.0; then 2: 1.9 > 2-0.75; then 1: 1.25 > 1.9-0.75; 2: 1.15 > 2-1; 1: 1.0 */
    static const int32_t expected[] = {1, 2, 1, 2, 1, 2};
    for (int i = 0; i < 6; i++)
        assert_int_equal(next(&f), expected[i]);
    teardown(&f);
}

static void repetition_counts_the_prompt_and_frequency_does_not(void **state)
{
    (void)state;
    struct fixture f;
    static const int32_t prompt[] = {1, 1, 1};
    setup(&f, 2);
    memset(f.x, 0, sizeof f.x);
    f.x[1] = 2.0f;
    f.x[2] = 1.9f;
    f.how.temperature = 0;
    f.how.frequency_penalty = 1.0f;
    start(&f, prompt, 3);
    assert_int_equal(next(&f), 1);
    f.how.frequency_penalty = 0;
    f.how.repetition_penalty = 1.5f;
    start(&f, prompt, 3);
    assert_int_equal(next(&f), 2);
    /* Negative logits fall as well: -1 * 1.5 < -1.2. */
    for (int i = 0; i < V; i++)
        f.x[i] = -9;
    f.x[1] = -1.0f;
    f.x[5] = -1.2f;
    start(&f, prompt, 3);
    assert_int_equal(next(&f), 5);
    teardown(&f);
}

static void a_bias_moves_and_bans_tokens(void **state)
{
    (void)state;
    struct fixture f;
    static const struct ek_logit_bias bias[] = {{7, 100}, {8, -100}};
    setup(&f, 2);
    f.how.bias = bias;
    f.how.n_bias = 2;
    start(&f, NULL, 0);
    for (int i = 0; i < 200; i++)
        assert_int_equal(next(&f), 7);
    teardown(&f);
}

static void end_tokens_do_not_come_early(void **state)
{
    (void)state;
    struct fixture f;
    static const int32_t ends[] = {4, 5};
    int32_t id;
    setup(&f, 2);
    f.x[4] = f.x[5] = 30;
    f.x[6] = 20;
    start(&f, NULL, 0);
    f.sampler.ends = ends;
    f.sampler.n_ends = 2;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(ek_sampler_next(&f.sampler, &id, f.x, true, &f.room), 0);
        assert_int_equal(id, 6);
    }
    assert_in_range(next(&f), 4, 5);
    teardown(&f);
}

static void a_row_that_is_not_finite_yields_no_token(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        for (int greedy = 0; greedy < 2; greedy++) {
            struct fixture f;
            int32_t id = -7;
            setup(&f, 2);
            f.how.temperature = greedy ? 0.0f : 1.0f;
            start(&f, NULL, 0);
            f.x[V - 1] = bad[i];
            assert_int_equal(ek_sampler_next(&f.sampler, &id, f.x, false, &f.room),
                             EK_EFORMAT);
            assert_int_equal(id, -7);
            teardown(&f);
        }
    }
}

static void logprobs_are_the_models_own(void **state)
{
    (void)state;
    struct fixture f;
    struct ek_logprob top[5];
    setup(&f, 4);
    double sum = 0;
    for (int i = 0; i < V; i++)
        sum += exp((double)f.x[i]);
    struct ek_logprob got = ek_logprobs(top, 5, f.x, 20, &f.room);
    assert_float_equal(got.logprob, (float)((double)f.x[20] - log(sum)), 1e-5f);
    assert_int_equal(top[0].id, naive_argmax(f.x, V));
    for (int i = 0; i < 5; i++) {
        int larger = 0;
        for (int v = 0; v < V; v++)
            larger += f.x[v] > f.x[top[i].id];
        assert_int_equal(larger, i);
        assert_float_equal(top[i].logprob, (float)((double)f.x[top[i].id] - log(sum)),
                           1e-5f);
    }
    teardown(&f);
}

static void a_row_that_is_not_finite_has_no_logprobs(void **state)
{
    (void)state;
    struct fixture f;
    struct ek_logprob top[3];
    setup(&f, 4);
    f.x[7] = NAN;
    struct ek_logprob got = ek_logprobs(top, 3, f.x, 20, &f.room);
    assert_true(got.id == 20 && got.logprob == -INFINITY);
    for (int i = 0; i < 3; i++)
        assert_true(top[i].id >= 0 && top[i].id < V && top[i].logprob == -INFINITY);
    teardown(&f);
}

static void init_survives_any_failed_allocation(void **state)
{
    (void)state;
    EK_EACH_FAILURE (k) {
        struct ek_sampler_room room;
        ek_assert_rc(ek_sampler_room_init(&room, V, ek_ops_get(ek_isa_best())));
        ek_sampler_room_release(&room);
    }
    EK_EACH_FAILURE (k) {
        struct ek_arena arena;
        struct ek_sampling how;
        struct ek_sampler s;
        ek_arena_init(&arena, 1 << 20);
        ek_sampling_default(&how);
        how.presence_penalty = 1;
        ek_assert_rc(ek_sampler_init(&s, &how, 0, 20000, &arena, NULL, 0, 20000));
        ek_arena_release(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_follow_the_definition),
        cmocka_unit_test(temperature_zero_takes_the_largest_and_the_lowest_id_at_a_tie),
        cmocka_unit_test(the_same_seed_gives_the_same_tokens),
        cmocka_unit_test(penalties_follow_their_formulas),
        cmocka_unit_test(repetition_counts_the_prompt_and_frequency_does_not),
        cmocka_unit_test(a_bias_moves_and_bans_tokens),
        cmocka_unit_test(end_tokens_do_not_come_early),
        cmocka_unit_test(a_row_that_is_not_finite_yields_no_token),
        cmocka_unit_test(logprobs_are_the_models_own),
        cmocka_unit_test(a_row_that_is_not_finite_has_no_logprobs),
        cmocka_unit_test(init_survives_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
