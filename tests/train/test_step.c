/* One optimizer step: negatives, rates, accumulation, clipping, memory. */
#include "trainkit.h"

#include <math.h>

static void rates_warm_up_and_follow_their_schedule(void **state)
{
    (void)state;
    struct ek_rate r = {.warmup = 4, .total = 12};
    static const double rising[] = {0.25, 0.5, 0.75, 1, 1, 1};
    for (int i = 0; i < 6; i++)
        assert_true(ek_rate_at(&r, i) == rising[i]);
    assert_true(ek_rate_at(&r, 100) == 1);
    r.is_cosine = true;
    r.end = 0.1;
    assert_true(ek_rate_at(&r, 3) == 1);
    assert_true(fabs(ek_rate_at(&r, 8) - 0.55) < 1e-12); /* half way */
    assert_true(fabs(ek_rate_at(&r, 12) - 0.1) < 1e-12);
    assert_true(fabs(ek_rate_at(&r, 99) - 0.1) < 1e-12);
    for (int i = 4; i < 12; i++)
        assert_true(ek_rate_at(&r, i + 1) < ek_rate_at(&r, i));
    assert_true(ek_rate_at(&(struct ek_rate){.is_cosine = true}, 0) == 0);
}

static void negatives_are_uniform_and_belong_to_their_step(void **state)
{
    (void)state;
    enum { N = 20000, ITEMS = 10 };
    static int32_t a[N], b[N];
    int64_t count[ITEMS] = {0};
    ek_train_draw(a, N, ITEMS, 5, 77, 1);
    for (int i = 0; i < N; i++) {
        assert_in_range(a[i], 0, ITEMS - 1);
        count[a[i]]++;
    }
    for (int i = 0; i < ITEMS; i++) /* 2000 of each, deviation 42 */
        assert_in_range(count[i], 1800, 2200);
    ek_train_draw(b, N, ITEMS, 5, 77, 1);
    assert_memory_equal(a, b, sizeof a);
    static const struct {
        uint64_t seed;
        int64_t step;
        int micro;
    } others[] = {{6, 77, 1}, {5, 78, 1}, {5, 77, 2}, {5, 1, 77}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        int same = 0;
        ek_train_draw(b, N, ITEMS, others[i].seed, others[i].step, others[i].micro);
        for (int j = 0; j < N; j++)
            same += a[j] == b[j];
        assert_in_range(same, 1700, 2300); /* a tenth: independent */
    }
    ek_train_draw(b, N, INT32_MAX, 5, 0, 0);
    for (int i = 0; i < N; i++)
        assert_true(b[i] >= 0 && b[i] < INT32_MAX);
}

#define GEM_TABLES                                                                     \
    "model: {kind: gem, column_rows: 3, column_dim: 5}\n"                              \
    "train: {items: rowwise_adagrad, clip_norm: 0.05}\n"

static const char *const optimizers[] = {
    "train.items: adamw\n", "train.items: rowwise_adagrad\n",
    "train.items: rowwise_adagrad\ntrain.clip_norm: 0.05\n"};
#define N_OPTIMIZERS (sizeof optimizers / sizeof optimizers[0])

static void micro_batches_are_one_batch(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OPTIMIZERS; i++) {
        struct kit a, b;
        char text[512];
        /* eps this large: without it AdamW makes a sign of rounding */
        static const char common[] = "model: {dropout: 0, loss: full}\n"
                                     "train.eps: 0.001\ntrain.items_eps: 0.001\n"
                                     "train.lr: 0.05\n%s%s";
        snprintf(text, sizeof text, common, "train.batch: 32\n", optimizers[i]);
        kit_open(&a, "a", text);
        snprintf(text, sizeof text, common, "train.batch: 8\ntrain.micro_batches: 4\n",
                 optimizers[i]);
        kit_open(&b, "b", text);
        double la = kit_steps(&a, 4), lb = kit_steps(&b, 4);
        assert_true(fabs(la - lb) < 1e-4);
        double d = kit_differ(&a, &b);
        if (!(d < 2e-4))
            fail_msg("%s: %g", optimizers[i], d);
        kit_close(&a);
        kit_close(&b);
    }
}

static void clipping_takes_tables_and_dense_parameters_together(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "train.items: adamw", "train.items: rowwise_adagrad",
        "train: {items: rowwise_adagrad, batch: 32, micro_batches: 4}"};
    double norm[3];
    for (int i = 0; i < 3; i++) {
        struct kit k;
        char text[300];
        snprintf(text, sizeof text,
                 "model: {dropout: 0, loss: full}\ntrain.clip_norm: 1000\n%s\n",
                 texts[i]);
        kit_open(&k, "a", text);
        kit_steps(&k, 1);
        norm[i] = k.t->last_norm;
        kit_close(&k);
    }
    assert_true(norm[0] > 0);
    assert_true(fabs(norm[1] / norm[0] - 1) < 1e-4);
    assert_true(fabs(norm[2] / norm[0] - 1) < 1e-4);
}

static void a_step_is_the_same_on_any_number_of_threads(void **state)
{
    (void)state;
    static const int threads[] = {2, 3, 8, 17}; /* the kit has 1 */
    static const char *const texts[] = {
        "train.items: rowwise_adagrad\n",
        "train.items: rowwise_adagrad\ntrain.clip_norm: 0.05\n", GEM_TABLES};
    for (size_t o = 0; o < sizeof texts / sizeof texts[0]; o++) {
        struct kit a, b;
        char text[300];
        snprintf(text, sizeof text, "%strain.batch: 16\ntrain.micro_batches: 3\n",
                 texts[o]);
        kit_open(&a, "a", text);
        kit_steps(&a, 5);
        for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
            kit_open(&b, "b", text);
            ek_train_free(b.t);
            b.c.run.threads = threads[i];
            assert_int_equal(ek_train_new(&b.t, &b.c, &b.data, NULL, &b.err), 0);
            kit_steps(&b, 5);
            assert_true(kit_differ(&a, &b) == 0);
            kit_close(&b);
        }
        kit_close(&a);
    }
}

static void a_step_allocates_nothing(void **state)
{
    (void)state;
    static const char *const kinds[] = {"sasrec", "hstu", "gem",
                                        "gem\nmodel: {column_rows: 3, column_dim: 5}"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct kit k;
        char text[300];
        snprintf(text, sizeof text,
                 "model.kind: %s\ntrain: {ahead: 0, items: rowwise_adagrad, batch: 8, "
                 "micro_batches: 2, clip_norm: 1}\n",
                 kinds[i]);
        kit_open(&k, "a", text);
        ek_mem_fail_at(1); /* the first allocation would fail */
        kit_steps(&k, 20);
        assert_false(ek_mem_failed());
        ek_mem_fail_at(0);
        kit_close(&k);
    }
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    struct kit k;
    kit_open(&k, "a", "train: {items: rowwise_adagrad, micro_batches: 2, ahead: 0}\n");
    ek_train_free(k.t);
    k.t = NULL;
    EK_EACH_FAILURE_BY (n, 7) {
        struct ek_train *t = NULL;
        ek_assert_rc(ek_train_new(&t, &k.c, &k.data, NULL, NULL));
        ek_train_free(t);
    }
    kit_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_warm_up_and_follow_their_schedule),
        cmocka_unit_test(negatives_are_uniform_and_belong_to_their_step),
        cmocka_unit_test(micro_batches_are_one_batch),
        cmocka_unit_test(clipping_takes_tables_and_dense_parameters_together),
        cmocka_unit_test(a_step_is_the_same_on_any_number_of_threads),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests_name("train_step", tests, kit_make, kit_remove);
}
