/* test_intern.c - names to indices: in order of appearance whatever the key, and no
 * writer of a file can choose names that meet. */
#include "base/map.h"
#include "base/rng.h"
#include "data/intern.h"
#include "testkit.h"

#include <stdio.h>

#define N 4096

/* The finaliser of splitmix64, as ek_hash has it. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* 16 bytes for which ek_hash(.., key) is the same for every i: the second word undoes
 * what the first did. */
static void craft(uint64_t id[2], uint64_t i, uint64_t key)
{
    id[0] = i;
    id[1] = mix(mix(key ^ 0x9e3779b97f4a7c15u ^ 16) ^ i) ^ 7;
}

/* Slots looked at for all names, beyond the first of each. */
static uint64_t steps_beyond(const struct ek_intern *t)
{
    uint64_t sum = 0;
    struct ek_names names = ek_intern_names(t);
    for (size_t i = 0; i < t->cap; i++) {
        if (t->slots[i].id < 0)
            continue;
        size_t n;
        const char *s = ek_names_get(&names, t->slots[i].id, &n);
        uint64_t home = (ek_hash(s, n, t->key) >> 32) & (t->cap - 1);
        sum += (i - home) & (t->cap - 1);
    }
    return sum;
}

static void put_crafted(struct ek_intern *t, uint64_t key)
{
    for (uint64_t i = 0; i < N; i++) {
        uint64_t id[2];
        int32_t index;
        craft(id, i, key);
        assert_true(ek_hash(id, sizeof id, key) == mix(7));
        assert_int_equal(ek_intern_put(t, (const char *)id, sizeof id, &index), 0);
        assert_int_equal(index, (int32_t)i);
    }
}

static void
ids_crafted_to_meet_meet_only_under_the_key_they_were_crafted_for(void **state)
{
    (void)state;
    struct ek_intern t, other;
    ek_intern_init(&t, N);
    ek_intern_init(&other, N);
    assert_true(t.key != other.key);
    put_crafted(&t, 0x6b65656c);
    assert_true(steps_beyond(&t) < 4 * N);
    put_crafted(&other, other.key); /* what a fixed key would be open to */
    assert_true(steps_beyond(&other) > (uint64_t)N * N / 3);
    ek_intern_release(&t);
    ek_intern_release(&other);
}

static void indices_do_not_depend_on_the_key(void **state)
{
    (void)state;
    struct ek_intern a, b;
    struct ek_rng rng;
    ek_intern_init(&a, N);
    ek_intern_init(&b, N);
    b.key = 0;
    ek_rng_init(&rng, 3);
    for (int i = 0; i < 3 * N; i++) {
        char name[32];
        int32_t of_a, of_b;
        size_t n = (size_t)snprintf(name, sizeof name, "%d",
                                    (int)ek_rng_below(&rng, N)); /* often again */
        assert_int_equal(ek_intern_put(&a, name, n, &of_a), 0);
        assert_int_equal(ek_intern_put(&b, name, n, &of_b), 0);
        assert_int_equal(of_a, of_b);
        assert_int_equal(ek_intern_get(&a, name, n), of_a);
    }
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.bytes, b.bytes, a.n_bytes);
    ek_intern_release(&a);
    ek_intern_release(&b);
}

static void a_name_that_is_there_before_is_found(void **state)
{
    (void)state;
    static const char bytes[] = "aabbaabba";
    static const int64_t offsets[] = {0, 1, 3, 4, 5, 8};
    struct ek_names names = {4, offsets, bytes}; /* a ab b a */
    int64_t twin = -1;
    assert_int_equal(ek_names_twin(&twin, &names), 0);
    assert_int_equal(twin, 3);
    names.n = 3;
    assert_int_equal(ek_names_twin(&twin, &names), 0);
    assert_int_equal(twin, 3);
    names.n = 0;
    assert_int_equal(ek_names_twin(&twin, &names), 0);
    assert_int_equal(twin, 0);
    EK_EACH_FAILURE (k) {
        ek_assert_rc(ek_names_twin(&twin, &names));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            ids_crafted_to_meet_meet_only_under_the_key_they_were_crafted_for),
        cmocka_unit_test(indices_do_not_depend_on_the_key),
        cmocka_unit_test(a_name_that_is_there_before_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
