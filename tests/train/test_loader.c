/* test_loader.c - batches: complete, in an order that follows from the seed alone, even
 * in work, resumable anywhere. */
#include "base/map.h"
#include "base/rng.h"
#include "data/events_read.h"
#include "testkit.h"
#include "train/loader.h"

#include <stdio.h>

#define N_USERS 700

/* Users of 1 to 60 rows, a few of hundreds; items and times tell where they come from. */
static void make(struct ek_events *e)
{
    static char text[4 << 20];
    static const char *const category[] = {"land"}, *const numeric[] = {"price"};
    struct ek_events_options o = {.user_category = {category, 1},
                                  .numeric = {numeric, 1}};
    struct ek_rng rng;
    size_t at =
        (size_t)snprintf(text, sizeof text, "user_id,item_id,timestamp,land,price\n");
    ek_rng_init(&rng, 5);
    for (int u = 0; u < N_USERS; u++) {
        int n = 1 + (int)ek_rng_below(&rng, u % 50 ? 60 : 600);
        for (int i = 0; i < n; i++)
            at += (size_t)snprintf(text + at, sizeof text - at, "u%d,i%d,%d,l%d,%d\n",
                                   u, (int)ek_rng_below(&rng, 97), i / 2, u % 3, i);
    }
    assert_int_equal(ek_events_parse(e, NULL, "t.csv", text, at, &o, NULL), 0);
}

struct world {
    struct ek_events e;
    struct ek_split s;
};

static int set_up(void **state)
{
    struct world *w = malloc(sizeof *w);
    make(&w->e);
    *state = w;
    return ek_split_leave_one_out(&w->s, &w->e, NULL);
}

static int tear_down(void **state)
{
    struct world *w = *state;
    ek_split_release(&w->s);
    ek_events_release(&w->e);
    free(w);
    return 0;
}

static struct ek_loader *loader_of(const struct world *w,
                                   const struct ek_loader_options *o)
{
    struct ek_loader *l = NULL;
    struct ek_err err = EK_ERR_INIT;
    int rc = ek_loader_new(&l, &w->e, &w->s, o, &err);
    if (rc)
        fail_msg("%s", err.text);
    return l;
}

/* What batch.h promises, and that every row is the log's. */
static void check_batch(const struct world *w, const struct ek_loader *l,
                        const struct ek_batch *b, bool is_training)
{
    int64_t B, T, n_targets = 0;
    ek_loader_ceiling(l, &B, &T);
    assert_true(b->B >= 1 && b->B <= B && b->T <= T);
    assert_true(b->offsets[0] == 0 && b->offsets[b->B] == b->T);
    assert_true(b->micro >= 0 && b->micro < b->n_micro);
    for (int64_t s = 0; s < b->B; s++) {
        int64_t u = b->users[s], land = b->columns[0].levels[s];
        assert_true(b->offsets[s + 1] > b->offsets[s]);
        assert_int_equal(land, w->e.columns[0].levels[u]);
        for (int64_t i = b->offsets[s]; i < b->offsets[s + 1]; i++) {
            int64_t row = b->events[i];
            bool is_last = i + 1 == b->offsets[s + 1];
            assert_in_range(row, w->e.offsets[u], w->e.offsets[u + 1] - 2);
            assert_int_equal(b->items[i], w->e.items[row]);
            assert_true(b->times[i] == w->e.times[row]);
            assert_true(b->columns[1].numbers[i] == w->e.columns[1].numbers[row]);
            assert_int_equal(b->targets[i], is_training || is_last
                                                ? w->e.items[row + 1]
                                                : EK_BATCH_NO_TARGET);
            assert_true(is_last || b->events[i + 1] == row + 1);
            n_targets += b->targets[i] >= 0;
        }
    }
    assert_true(n_targets == b->n_targets && b->step_targets >= n_targets);
}

/* One number for everything in a batch. */
static uint64_t print_of(const struct ek_batch *b, uint64_t seed)
{
    uint64_t h = ek_hash(b->events, (size_t)b->T * sizeof *b->events, seed);
    h = ek_hash(b->offsets, (size_t)(b->B + 1) * sizeof *b->offsets, h);
    h = ek_hash(b->targets, (size_t)b->T * sizeof *b->targets, h);
    h = ek_hash(b->users, (size_t)b->B * sizeof *b->users, h);
    int64_t at[] = {b->epoch, b->step, b->micro, b->n_micro, b->step_targets};
    return ek_hash(at, sizeof at, h);
}

static const struct ek_loader_options kinds[] = {
    {.seed = 1, .max_length = 50, .batch = 64, .sub_batch = 16, .n_micro = 3},
    {.seed = 2, .max_length = 200, .batch = 128},
    {.seed = 3, .max_length = 50, .batch = 1000, .max_tokens = 700, .n_micro = 2},
    {.seed = 4, .max_length = 10, .batch = 30, .n_micro = 4, .cuts_windows = true},
    {.seed = 5, .max_length = 600, .batch = 9, .max_tokens = 100},
    {.seed = 6, .max_length = 50, .batch = 5000, .n_micro = 8},
    {.seed = 7, .max_length = 50, .batch = 7, .part = EK_PART_VALID},
    {.seed = 8, .max_length = 5, .batch = 64, .part = EK_PART_TEST, .n_micro = 2},
};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

static void an_epoch_gives_every_target_once(void **state)
{
    const struct world *w = *state;
    for (size_t k = 0; k < N_KINDS; k++) {
        bool is_training = kinds[k].part == EK_PART_TRAIN;
        struct ek_loader *l = loader_of(w, &kinds[k]);
        unsigned char *seen = calloc((size_t)w->e.n, 1);
        int64_t n_targets = 0, n_sequences = 0, n_steps = 0, in_step = 0;
        struct ek_batch b;
        while (ek_loader_next(l, &b)) {
            check_batch(w, l, &b, is_training);
            for (int64_t i = 0; i < b.T; i++) {
                if (b.targets[i] >= 0)
                    assert_true(seen[b.events[i] + 1]++ == 0);
            }
            n_targets += b.n_targets;
            n_sequences += b.B;
            in_step += b.n_targets;
            if (b.micro + 1 == b.n_micro) {
                assert_true(in_step == b.step_targets);
                in_step = 0;
                n_steps++;
            }
        }
        assert_true(n_targets == ek_loader_targets(l));
        assert_true(n_sequences == ek_loader_samples(l));
        assert_true(n_steps == ek_loader_steps(l));
        for (int64_t u = 0; u < w->e.n_users && is_training; u++) {
            int64_t from = w->e.offsets[u] + 1, end = w->s.train_end[u];
            if (!kinds[k].cuts_windows && end - from > kinds[k].max_length)
                from = end - kinds[k].max_length;
            for (int64_t i = from; i < end; i++)
                assert_int_equal(seen[i], 1);
        }
        free(seen);
        ek_loader_free(l);
    }
}

static void held_out_rows_are_asked_for_once_with_all_before_them(void **state)
{
    const struct world *w = *state;
    struct ek_loader_options o = {
        .max_length = 1000, .batch = 64, .part = EK_PART_TEST};
    struct ek_loader *l = loader_of(w, &o);
    struct ek_batch b;
    int64_t n = 0;
    while (ek_loader_next(l, &b)) {
        for (int64_t s = 0; s < b.B; s++) {
            int64_t u = b.users[s];
            assert_true(b.events[b.offsets[s]] == w->e.offsets[u]);
            assert_true(b.events[b.offsets[s + 1] - 1] == w->e.offsets[u + 1] - 2);
        }
        n += b.B;
    }
    assert_true(n == w->s.n_test);
    ek_loader_free(l);
}

static void the_order_follows_from_the_seed_and_a_thread_changes_nothing(void **state)
{
    const struct world *w = *state;
    for (size_t k = 0; k < N_KINDS; k++) {
        static const int ahead[] = {0, 1, 4};
        uint64_t prints[3] = {0, 0, 0}, epochs[3];
        for (int i = 0; i < 3; i++) {
            struct ek_loader_options o = kinds[k];
            struct ek_batch b;
            o.n_ahead = ahead[i];
            struct ek_loader *l = loader_of(w, &o);
            for (int epoch = 0; epoch < 3; epoch++) {
                while (ek_loader_next(l, &b))
                    prints[i] = print_of(&b, prints[i]);
                epochs[epoch] = prints[i];
            }
            ek_loader_free(l);
            assert_true(prints[i] == prints[0]);
            assert_true(epochs[0] != epochs[1]);
        }
    }
}

static void it_goes_on_from_any_step_as_if_it_had_come_there(void **state)
{
    const struct world *w = *state;
    for (size_t k = 0; k < N_KINDS; k++) {
        struct ek_loader_options o = kinds[k];
        o.n_ahead = (int)k % 3;
        struct ek_loader *l = loader_of(w, &o), *from = loader_of(w, &o);
        struct ek_batch b, c;
        for (int epoch = 0; epoch < 2; epoch++) {
            int64_t sought = -1;
            bool is_more = true;
            while ((is_more = ek_loader_next(l, &b))) {
                /* Every step of short epochs, some of long ones. */
                if (b.micro == 0 && (b.step < 3 || b.step % 11 == 0)) {
                    sought = b.step;
                    assert_int_equal(ek_loader_seek(from, epoch, sought, NULL), 0);
                }
                assert_true(ek_loader_next(from, &c));
                assert_true(print_of(&b, 0) == print_of(&c, 0));
            }
            assert_true(sought >= 0 && !ek_loader_next(from, &c));
        }
        assert_int_equal(ek_loader_seek(from, 7, INT64_MAX, NULL), 0);
        assert_false(ek_loader_next(from, &c));
        assert_true(ek_loader_next(from, &c) && c.epoch == 8 && c.step == 0);
        ek_loader_free(l);
        ek_loader_free(from);
    }
}

/* Heaviest micro-batch over their mean, averaged over the whole steps of an epoch. */
static double imbalance(const struct world *w, int64_t batch, int64_t sub)
{
    struct ek_loader_options o = {
        .seed = 3, .max_length = 600, .batch = batch, .n_micro = 4, .sub_batch = sub};
    struct ek_loader *l = loader_of(w, &o);
    struct ek_batch b;
    double sum = 0.0, rows = 0.0, most = 0.0;
    int n = 0;
    while (ek_loader_next(l, &b) && b.step_sequences == 4 * batch) {
        rows = b.micro ? rows + (double)b.T : (double)b.T;
        most = b.micro && most > (double)b.T ? most : (double)b.T;
        if (b.micro == 3) {
            sum += most / (rows / 4.0);
            n++;
        }
    }
    ek_loader_free(l);
    assert_true(n > 0);
    return sum / n;
}

static void dealing_evens_out_the_micro_batches_of_a_step(void **state)
{
    const struct world *w = *state;
    double as_they_come = imbalance(w, 32, 32), dealt = imbalance(w, 32, 4);
    assert_true(as_they_come > 1.1);
    assert_true(dealt - 1.0 < (as_they_come - 1.0) / 2.0);
}

static void a_budget_is_kept_but_by_a_sequence_that_is_longer(void **state)
{
    const struct world *w = *state;
    struct ek_loader *l = loader_of(w, &kinds[4]);
    struct ek_batch b;
    bool has_longer = false;
    while (ek_loader_next(l, &b)) {
        assert_true(b.T <= 100 || b.B == 1);
        has_longer = has_longer || b.T > 100;
    }
    assert_true(has_longer);
    ek_loader_free(l);
}

/* What is sized for a step is sized for one that can come. */
static void a_step_has_no_more_micro_batches_than_samples_make(void **state)
{
    static const struct {
        struct ek_loader_options o;
        int sub, most; /* most 0: as many as there are sub-batches, or samples */
    } cases[] = {
        {{.max_length = 50, .batch = 64, .sub_batch = 16, .n_micro = 3}, 16, 3},
        {{.max_length = 50, .batch = 64, .sub_batch = 16, .n_micro = 4096}, 16, 0},
        {{.max_length = 50, .batch = 5000, .sub_batch = 1000, .n_micro = 8}, 1000, 1},
        {{.max_length = 50, .batch = 64, .max_tokens = 1, .n_micro = 4096}, 1, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct world *w = *state;
        struct ek_loader_size size;
        struct ek_batch b;
        int most = 0;
        assert_int_equal(ek_loader_measure(&size, &w->e, &w->s, &cases[i].o, NULL), 0);
        int expected = cases[i].most;
        if (!expected)
            expected = (int)((size.n_samples + cases[i].sub - 1) / cases[i].sub);
        assert_int_equal(size.n_micro, expected);
        struct ek_loader *l = loader_of(w, &cases[i].o);
        while (ek_loader_next(l, &b))
            most = b.n_micro > most ? b.n_micro : most;
        assert_int_equal(most, expected);
        ek_loader_free(l);
    }
}

static void wrong_options_are_told(void **state)
{
    const struct world *w = *state;
    static const struct {
        struct ek_loader_options o;
        const char *says;
    } bad[] = {
        {{.batch = 1}, "max_length 0: expected 1 to"},
        {{.max_length = 5}, "batch 0: expected 1 to"},
        {{.max_length = 5, .batch = 200, .sub_batch = 128},
         "batch 200: expected a multiple of the sub-batch, 128"},
        {{.max_length = 5, .batch = 2, .n_micro = 5000}, "micro-batches 5000"},
        {{.max_length = 5, .batch = 2, .n_ahead = 17}, "batches ahead 17"},
        {{.max_length = 5, .batch = 2, .max_tokens = -1}, "max_tokens"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct ek_loader *l = NULL;
        struct ek_err err = EK_ERR_INIT;
        assert_int_equal(ek_loader_new(&l, &w->e, &w->s, &bad[i].o, &err), EK_EINVAL);
        assert_non_null(strstr(err.text, bad[i].says));
    }
}

static void a_part_without_a_sample_is_told(void **state)
{
    (void)state;
    static const struct ek_events_options plain;
    struct ek_loader_options o = {.max_length = 5, .batch = 2, .part = EK_PART_VALID};
    struct ek_events e;
    struct ek_split s;
    struct ek_loader *l = NULL;
    struct ek_err err = EK_ERR_INIT;
    assert_int_equal(ek_events_parse(&e, NULL, "t.txt", "1 2\n2 3\n", 8, &plain, NULL),
                     0);
    assert_int_equal(ek_split_leave_one_out(&s, &e, NULL), 0);
    assert_int_equal(ek_loader_new(&l, &e, &s, &o, &err), EK_EINVAL);
    assert_non_null(strstr(err.text, "the validation part has no event with another"));
    ek_split_release(&s);
    ek_events_release(&e);
}

static void any_failed_allocation_is_only_that(void **state)
{
    const struct world *w = *state;
    EK_EACH_FAILURE (k) {
        struct ek_loader_options o = kinds[0];
        struct ek_loader *l = NULL;
        o.n_ahead = 2;
        ek_assert_rc(ek_loader_new(&l, &w->e, &w->s, &o, NULL));
        ek_loader_free(l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_epoch_gives_every_target_once),
        cmocka_unit_test(held_out_rows_are_asked_for_once_with_all_before_them),
        cmocka_unit_test(the_order_follows_from_the_seed_and_a_thread_changes_nothing),
        cmocka_unit_test(it_goes_on_from_any_step_as_if_it_had_come_there),
        cmocka_unit_test(dealing_evens_out_the_micro_batches_of_a_step),
        cmocka_unit_test(a_budget_is_kept_but_by_a_sequence_that_is_longer),
        cmocka_unit_test(a_step_has_no_more_micro_batches_than_samples_make),
        cmocka_unit_test(wrong_options_are_told),
        cmocka_unit_test(a_part_without_a_sample_is_told),
        cmocka_unit_test(any_failed_allocation_is_only_that),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
