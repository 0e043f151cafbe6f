#include "base/map.h"
#include "base/rng.h"
#include "testkit.h"

#include <stdio.h>

static void check_sane(const struct ek_map *m)
{
    size_t n = 0;
    assert_true(m->n <= m->max);
    assert_true(m->cap == 0 || (m->cap & (m->cap - 1)) == 0);
    assert_true(m->n <= m->cap / 4 * 3);
    for (size_t i = 0; i < m->cap; i++) {
        const struct ek_map_slot *s = &m->slots[i];
        if (!s->key)
            continue;
        n++;
        assert_true(s->hash == ek_hash(s->key, s->len, m->seed));
        /* No hole between where the key belongs and where it is. */
        for (size_t j = s->hash & (m->cap - 1); j != i; j = (j + 1) & (m->cap - 1))
            assert_non_null(m->slots[j].key);
    }
    assert_int_equal(n, m->n);
}

#define N_KEYS 400
#define MAX    300

struct model {
    char key[N_KEYS][16];
    size_t len[N_KEYS];
    bool is_in[N_KEYS];
    uint64_t value[N_KEYS];
    size_t n;
};

static void make_keys(struct model *model)
{
    memset(model, 0, sizeof *model);
    for (int i = 0; i < N_KEYS; i++) {
        /* Zero bytes, prefixes of each other, and lengths around the hash's words. */
        int n = snprintf(model->key[i], 16, "%d", i);
        model->len[i] = (size_t)n + (size_t)(i % 3) * 4;
        if (i == 0)
            model->len[i] = 0;
    }
}

static void random_operations_match_a_naive_model(void **state)
{
    (void)state;
    static struct model model;
    for (uint64_t seed = 0; seed < 3; seed++) {
        struct ek_rng rng;
        struct ek_map m;
        make_keys(&model);
        ek_rng_init(&rng, seed);
        ek_map_init(&m, MAX, seed);
        for (int step = 0; step < 3000; step++) {
            size_t i = ek_rng_below(&rng, N_KEYS);
            uint64_t v = ek_rng_u64(&rng), got = 0;
            bool was_there = !model.is_in[i];
            if (ek_rng_below(&rng, 3)) {
                int rc = ek_map_put(&m, model.key[i], model.len[i], v, &was_there);
                bool is_full = !model.is_in[i] && model.n == MAX;
                assert_int_equal(rc, is_full ? EK_ELIMIT : 0);
                if (!rc) {
                    assert_int_equal(was_there, model.is_in[i]);
                    model.n += !model.is_in[i];
                    model.is_in[i] = true;
                    model.value[i] = v;
                }
            }
            bool is_in = ek_map_get(&m, model.key[i], model.len[i], &got);
            assert_int_equal(is_in, model.is_in[i]);
            if (is_in)
                assert_true(got == model.value[i]);
            assert_int_equal(m.n, model.n);
            if (step % 50 == 0)
                check_sane(&m);
        }
        assert_int_equal(model.n, MAX);
        ek_map_release(&m);
    }
}

static void the_empty_key_may_be_null(void **state)
{
    (void)state;
    struct ek_map m;
    bool was_there = true;
    uint64_t v;
    ek_map_init(&m, 10, 1);
    assert_false(ek_map_get(&m, NULL, 0, &v));
    assert_int_equal(ek_map_put(&m, NULL, 0, 5, &was_there), 0);
    assert_false(was_there);
    assert_int_equal(ek_map_put(&m, "x", 0, 6, &was_there), 0); /* the same key */
    assert_true(was_there);
    assert_true(ek_map_get(&m, NULL, 0, &v));
    assert_int_equal(v, 6);
    assert_true(ek_map_get(&m, NULL, 0, NULL));
    assert_false(ek_map_get(&m, "\0", 1, NULL));
    check_sane(&m);
    ek_map_release(&m);
    assert_false(ek_map_get(&m, NULL, 0, &v));
}

static void reserve_makes_the_next_puts_sure(void **state)
{
    (void)state;
    struct ek_map m;
    char keys[100][16];
    ek_map_init(&m, 100, 1);
    assert_int_equal(ek_map_reserve(&m, 101), EK_ELIMIT);
    assert_int_equal(ek_map_reserve(&m, 100), 0);
    ek_mem_fail_at(1);
    for (int i = 0; i < 100; i++) {
        snprintf(keys[i], sizeof keys[i], "%d", i);
        assert_int_equal(ek_map_put(&m, keys[i], 3, 1, NULL), 0);
    }
    ek_mem_fail_at(0);
    check_sane(&m);
    ek_map_release(&m);
    ek_map_init(&m, SIZE_MAX, 1);
    assert_int_equal(ek_map_reserve(&m, SIZE_MAX), EK_ENOMEM);
    assert_int_equal(ek_map_reserve(&m, SIZE_MAX / 2), EK_ENOMEM);
    check_sane(&m);
}

static void a_failed_allocation_changes_nothing(void **state)
{
    (void)state;
    static char keys[200][24];
    EK_EACH_FAILURE (k) {
        struct ek_map m;
        ek_map_init(&m, 1000, 3);
        for (size_t i = 0; i < 200; i++) {
            snprintf(keys[i], sizeof keys[i], "%zu", i);
            int rc = ek_map_put(&m, keys[i], 3, i, NULL);
            if (rc) {
                assert_int_equal(rc, EK_ENOMEM);
                assert_int_equal(m.n, i);
                check_sane(&m);
                rc = ek_map_put(&m, keys[i], 3, i, NULL);
            }
            assert_int_equal(rc, 0);
        }
        uint64_t v;
        for (size_t i = 0; i < 200; i++)
            assert_true(ek_map_get(&m, keys[i], 3, &v) && v == i);
        ek_map_release(&m);
    }
}

/* Not a proof, but a hash that ignores bytes, length or seed fails here. */
static void every_bit_of_text_length_and_seed_counts(void **state)
{
    (void)state;
    char text[40] = {0};
    for (size_t n = 0; n <= sizeof text; n++) {
        uint64_t h = ek_hash(text, n, 1);
        assert_true(h != ek_hash(text, n, 2));
        if (n < sizeof text)
            assert_true(h != ek_hash(text, n + 1, 1));
        for (size_t bit = 0; bit < 8 * n; bit++) {
            text[bit / 8] ^= (char)(1 << bit % 8);
            uint64_t other = ek_hash(text, n, 1);
            text[bit / 8] ^= (char)(1 << bit % 8);
            assert_in_range(__builtin_popcountll(h ^ other), 10, 54);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations_match_a_naive_model),
        cmocka_unit_test(the_empty_key_may_be_null),
        cmocka_unit_test(reserve_makes_the_next_puts_sure),
        cmocka_unit_test(a_failed_allocation_changes_nothing),
        cmocka_unit_test(every_bit_of_text_length_and_seed_counts),
    };
    return cmocka_run_group_tests_name("map", tests, NULL, NULL);
}
