/* test_events_synth.c - made logs: the same from the same seed, and learnable. */
#include "data/events_synth.h"
#include "eventskit.h"
#include "testkit.h"

static const struct ek_synth_options options = {.n_users = 2000,
                                                .n_items = 500,
                                                .median = 20,
                                                .sigma = 1,
                                                .min_length = 3,
                                                .max_length = 300,
                                                .zipf = 1,
                                                .follow = 0.6,
                                                .seed = 9};

static int64_t id_of(const struct ek_events *e, int64_t row)
{
    char name[32];
    add_name(name, sizeof name, &e->item_names, e->items[row]);
    return strtoll(name, NULL, 10) - 1;
}

static void what_is_planted_can_be_found(void **state)
{
    (void)state;
    struct ek_events e;
    int64_t n = 0, n_hits = 0;
    double sum = 0.0, clicks = 0.0;
    assert_int_equal(ek_events_synth(&e, &options, NULL), 0);
    check_events(&e);
    assert_true(e.n_users == 2000 && e.n_items <= 500);
    for (int64_t u = 0; u < e.n_users; u++) {
        int64_t len = e.offsets[u + 1] - e.offsets[u];
        assert_in_range(len, 3, 300);
        for (int64_t i = e.offsets[u]; i + 1 < e.offsets[u + 1]; i++, n++)
            n_hits += ek_synth_successor(&options, id_of(&e, i), 0) == id_of(&e, i + 1);
    }
    /* 0.6 * 8/15 = 0.32, and a little by chance. */
    double hits = (double)n_hits / (double)n;
    assert_true(hits > 0.30 && hits < 0.36);
    const struct ek_column *click = ek_events_column(&e, "click");
    const struct ek_column *chance = ek_events_column(&e, "click_chance");
    for (int64_t i = 0; i < e.n; i++) {
        clicks += (double)click->numbers[i];
        sum += (double)chance->numbers[i];
    }
    assert_true(fabs(clicks - sum) < 0.02 * sum);
    ek_events_release(&e);
}

static bool is_successor(int64_t before, int64_t id)
{
    for (int i = 0; i < EK_SYNTH_SUCCESSORS; i++)
        if (ek_synth_successor(&options, before, i) == id)
            return true;
    return false;
}

/* User, item and the item before tell the chance of a click; nothing is left to know. */
static void clicks_are_a_function_of_what_a_model_sees(void **state)
{
    (void)state;
    struct ek_events e;
    assert_int_equal(ek_events_synth(&e, &options, NULL), 0);
    const struct ek_column *segment = ek_events_column(&e, "segment");
    const struct ek_column *click = ek_events_column(&e, "click");
    const struct ek_column *chance = ek_events_column(&e, "click_chance");
    double loss = 0.0;
    for (int64_t u = 0; u < e.n_users; u++)
        for (int64_t i = e.offsets[u]; i < e.offsets[u + 1]; i++) {
            char level[8];
            add_name(level, sizeof level, &segment->names, segment->levels[u]);
            double z = -1.0 + (id_of(&e, i) % 4 == level[0] - 'a' ? 1.5 : -0.5);
            if (i > e.offsets[u] && is_successor(id_of(&e, i - 1), id_of(&e, i)))
                z += 1.0;
            assert_true(fabs((double)chance->numbers[i] - 1 / (1 + exp(-z))) < 1e-6);
            loss += log1p(exp(click->numbers[i] > 0.5f ? -z : z));
        }
    struct ek_synth_clicks c = ek_synth_clicks(&e);
    assert_true(c.rate > 0.2 && c.rate < 0.5);
    /* The log loss of the one who knows the chances is the entropy that is told. */
    assert_true(fabs(loss / (double)e.n - c.bayes) < 0.01);
    assert_true(c.bayes < 0.95 * c.entropy);
    ek_events_release(&e);
}

static void wrong_options_and_failed_allocations_are_told(void **state)
{
    (void)state;
    struct ek_synth_options o = options;
    struct ek_events e = {0};
    o.follow = 1.5;
    assert_int_equal(ek_events_synth(&e, &o, NULL), EK_EINVAL);
    o = options;
    o.min_length = 301;
    assert_int_equal(ek_events_synth(&e, &o, NULL), EK_EINVAL);
    o = options;
    o.n_users = 3;
    EK_EACH_FAILURE (k) {
        ek_assert_rc(ek_events_synth(&e, &o, NULL));
        ek_events_release(&e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_planted_can_be_found),
        cmocka_unit_test(clicks_are_a_function_of_what_a_model_sees),
        cmocka_unit_test(wrong_options_and_failed_allocations_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
