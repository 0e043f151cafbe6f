/* test_workload.c - arrivals and lengths, and the prompts made for them. */
#include "load/prompt.h"
#include "load/workload.h"
#include "testkit.h"

#include <math.h>

static struct ek_trace_row rows[] = {
    {.at_us = 0, .n_in = 1000, .n_out = 10, .n_hashes = 2, .first_hash = 0},
    {.at_us = 1000000, .n_in = 2000, .n_out = 400, .n_hashes = 0},
    {.at_us = 4000000, .n_in = 1, .n_out = 1, .n_hashes = 1, .first_hash = 2},
};
static int64_t hashes[] = {0, 5, 9};
static const struct ek_trace trace = {rows, 3, hashes, 3};

static const struct ek_workload_options plain = {
    .prompt_tokens = 100, .output_tokens = 20, .length_scale = 1.0, .time_scale = 1.0};

static void fixed_lengths_go_on_until_n_max(void **state)
{
    (void)state;
    struct ek_workload_options o = plain;
    struct ek_workload w;
    struct ek_load_item item;
    o.n_max = 3;
    ek_workload_init(&w, &o);
    for (uint64_t i = 0; i < 3; i++) {
        assert_true(ek_workload_next(&w, &item));
        assert_int_equal(item.index, i);
        assert_int_equal(item.n_in, 100);
        assert_int_equal(item.n_out, 20);
        assert_int_equal(item.n_hashes, 0);
    }
    assert_false(ek_workload_next(&w, &item));
    assert_false(ek_workload_next(&w, &item));
}

/* Mean and deviation of the gaps at a shape: 1/rate and 1/(rate sqrt(shape)). */
static void check_gaps(double shape, double rate)
{
    enum { N = 40000 };
    struct ek_workload_options o = plain;
    struct ek_workload w;
    struct ek_load_item item;
    double sum = 0.0, sum_sq = 0.0;
    int64_t last_us = 0;
    o.rate = rate;
    o.burstiness = shape;
    o.seed = 5;
    ek_workload_init(&w, &o);
    for (int i = 0; i < N; i++) {
        assert_true(ek_workload_next(&w, &item));
        assert_true(item.at_us >= last_us);
        double gap = (double)(item.at_us - last_us) / 1e6;
        last_us = item.at_us;
        sum += gap;
        sum_sq += gap * gap;
    }
    double mean = sum / N, deviation = sqrt(sum_sq / N - mean * mean);
    double want = 1.0 / (rate * sqrt(shape));
    assert_true(fabs(mean * rate - 1.0) < 6.0 / sqrt(shape * N) + 1e-3);
    assert_true(fabs(deviation - want) < 0.1 * want + 1e-5);
}

static void arrivals_have_the_rate_and_the_spread_of_their_gamma(void **state)
{
    (void)state;
    check_gaps(1.0, 10.0);
    check_gaps(0.25, 3.0);
    check_gaps(4.0, 100.0);
    check_gaps(1e9, 50.0);
}

static void the_same_seed_gives_the_same_arrivals_and_another_does_not(void **state)
{
    (void)state;
    struct ek_workload_options o = plain;
    struct ek_workload a, b, c;
    struct ek_load_item x, y, z;
    bool is_other = false;
    o.rate = 5.0;
    o.seed = 1;
    ek_workload_init(&a, &o);
    ek_workload_init(&b, &o);
    o.seed = 2;
    ek_workload_init(&c, &o);
    for (int i = 0; i < 100; i++) {
        assert_true(ek_workload_next(&a, &x) && ek_workload_next(&b, &y) &&
                    ek_workload_next(&c, &z));
        assert_true(x.at_us == y.at_us);
        is_other = is_other || x.at_us != z.at_us;
    }
    assert_true(is_other);
}

static void a_trace_gives_times_lengths_and_blocks_and_ends(void **state)
{
    (void)state;
    struct ek_workload_options o = plain;
    struct ek_workload w;
    struct ek_load_item item;
    o.trace = &trace;
    o.time_scale = 2.0;
    o.length_scale = 0.1;
    ek_workload_init(&w, &o);
    assert_true(ek_workload_next(&w, &item));
    assert_int_equal(item.n_in, 100);
    assert_int_equal(item.n_out, 1);
    assert_int_equal(item.n_hashes, 2);
    assert_ptr_equal(item.hashes, hashes);
    assert_true(ek_workload_next(&w, &item));
    assert_int_equal(item.at_us, 500000);
    assert_int_equal(item.n_out, 40);
    assert_true(ek_workload_next(&w, &item));
    assert_int_equal(item.at_us, 2000000);
    assert_int_equal(item.n_in, 1); /* never 0 */
    assert_false(ek_workload_next(&w, &item));
}

static void a_rate_keeps_the_traces_pattern_unless_a_burstiness_is_given(void **state)
{
    (void)state;
    struct ek_workload_options o = plain;
    struct ek_workload w;
    struct ek_load_item item;
    o.trace = &trace;
    o.rate = 10.0; /* two gaps in 0.2 s, one three times the other */
    ek_workload_init(&w, &o);
    assert_true(ek_workload_next(&w, &item) && item.at_us == 0);
    assert_true(ek_workload_next(&w, &item) && item.at_us == 50000);
    assert_true(ek_workload_next(&w, &item) && item.at_us == 200000);
    o.burstiness = 1.0;
    ek_workload_init(&w, &o);
    assert_true(ek_workload_next(&w, &item) && item.at_us > 0);
}

static void max_tokens_takes_from_the_prompt_first(void **state)
{
    (void)state;
    struct ek_workload_options o = plain;
    struct ek_workload w;
    struct ek_load_item item;
    static const int64_t want[][4] = {
        /* max, in, out, shortened */
        {0, 100, 20, 0}, {120, 100, 20, 0}, {119, 99, 20, 1}, {40, 20, 20, 1},
        {30, 15, 15, 1}, {2, 1, 1, 1},      {1, 1, 1, 1}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        o.max_tokens = want[i][0];
        ek_workload_init(&w, &o);
        assert_true(ek_workload_next(&w, &item));
        assert_int_equal(item.n_in, want[i][1]);
        assert_int_equal(item.n_out, want[i][2]);
        assert_int_equal(item.is_shortened, want[i][3]);
    }
}

static void far_times_stay_far_from_overflow(void **state)
{
    (void)state;
    struct ek_trace_row far[] = {{.at_us = 0, .n_in = 1, .n_out = 1},
                                 {.at_us = INT64_MAX / 2, .n_in = 1, .n_out = 1}};
    struct ek_trace t = {far, 2, NULL, 0};
    struct ek_workload_options o = plain;
    struct ek_workload w;
    struct ek_load_item item;
    o.trace = &t;
    o.time_scale = 1e-6;
    ek_workload_init(&w, &o);
    assert_true(ek_workload_next(&w, &item) && ek_workload_next(&w, &item));
    assert_true(item.at_us == EK_WORKLOAD_US_MAX);
}

static size_t count_words(const struct ek_buf *b)
{
    size_t n = b->len > 0;
    for (size_t i = 0; i < b->len; i++)
        n += b->data[i] == ' ';
    return n;
}

static void make(struct ek_buf *out, double per_word, double overhead, int64_t n,
                 const int64_t *ids, size_t n_ids, uint64_t index)
{
    struct ek_prompt_scale scale = {per_word, overhead};
    struct ek_prompt_spec spec = {n, ids, n_ids, 512.0, 11, index};
    ek_buf_init(out, 1 << 20);
    assert_int_equal(ek_prompt_add(out, &scale, &spec), 0);
}

static void a_prompt_has_the_words_that_come_nearest(void **state)
{
    (void)state;
    static const struct {
        double per_word, overhead;
        int64_t n, words;
    } want[] = {{1.0, 0.0, 100, 100}, {5.0, 1.0, 101, 20}, {5.0, 1.0, 104, 21},
                {2.0, 31.0, 10, 1},   {1.0, -2.0, 10, 12}, {0.01, 0.0, 1, 100}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        struct ek_buf b;
        make(&b, want[i].per_word, want[i].overhead, want[i].n, NULL, 0, 0);
        assert_int_equal(count_words(&b), want[i].words);
        assert_int_equal(strspn(b.data, "abcdefghijklmnopqrstuvwxyz "), b.len);
        assert_int_equal(b.len, want[i].words * 5 - 1);
        ek_buf_release(&b);
    }
}

static size_t common(const struct ek_buf *a, const struct ek_buf *b)
{
    size_t n = 0;
    while (n < a->len && n < b->len && a->data[n] == b->data[n])
        n++;
    return n;
}

static void prompts_begin_alike_exactly_as_their_hashes_do(void **state)
{
    (void)state;
    static const int64_t x[] = {0, 1, 2}, y[] = {0, 1, 3}, z[] = {4, 1, 2};
    struct ek_buf a, b, c, d, e;
    make(&a, 1.0, 0.0, 1500, x, 3, 0);
    make(&b, 1.0, 0.0, 1400, y, 3, 1);
    make(&c, 1.0, 0.0, 1500, z, 3, 2);
    make(&d, 1.0, 0.0, 1500, x, 3, 3); /* another request, the same blocks */
    make(&e, 1.0, 0.0, 1500, x, 2, 4); /* ids for two blocks only */
    size_t two = 2 * 512 * 5;
    assert_true(common(&a, &b) >= two - 1 && common(&a, &b) < two + 5 * 8);
    assert_true(common(&a, &c) < 5 * 8); /* equal ids behind others are other blocks */
    assert_int_equal(common(&a, &d), a.len);
    assert_true(common(&a, &e) >= two - 1 && common(&a, &e) < two + 5 * 8);
    ek_buf_release(&a);
    ek_buf_release(&b);
    ek_buf_release(&c);
    ek_buf_release(&d);
    ek_buf_release(&e);
}

static void prompts_without_hashes_differ_by_request(void **state)
{
    (void)state;
    struct ek_buf a, b;
    make(&a, 1.0, 0.0, 100, NULL, 0, 0);
    make(&b, 1.0, 0.0, 100, NULL, 0, 1);
    assert_true(common(&a, &b) < 5 * 8);
    ek_buf_release(&a);
    ek_buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_lengths_go_on_until_n_max),
        cmocka_unit_test(arrivals_have_the_rate_and_the_spread_of_their_gamma),
        cmocka_unit_test(the_same_seed_gives_the_same_arrivals_and_another_does_not),
        cmocka_unit_test(a_trace_gives_times_lengths_and_blocks_and_ends),
        cmocka_unit_test(a_rate_keeps_the_traces_pattern_unless_a_burstiness_is_given),
        cmocka_unit_test(max_tokens_takes_from_the_prompt_first),
        cmocka_unit_test(far_times_stay_far_from_overflow),
        cmocka_unit_test(a_prompt_has_the_words_that_come_nearest),
        cmocka_unit_test(prompts_begin_alike_exactly_as_their_hashes_do),
        cmocka_unit_test(prompts_without_hashes_differ_by_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
