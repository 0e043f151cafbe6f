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
        cmocka_unit_test(wrong_options_and_failed_allocations_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
