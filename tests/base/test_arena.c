#include "base/arena.h"
#include "base/rng.h"
#include "testkit.h"

static void blocks_are_aligned_and_do_not_overlap(void **state)
{
    (void)state;
    enum { N = 600 };
    struct ek_arena a;
    struct ek_rng rng;
    static char *p[N];
    static size_t size[N];
    ek_arena_init(&a, 100 << 20);
    for (uint64_t seed = 0; seed < 3; seed++) {
        ek_rng_init(&rng, seed);
        for (int i = 0; i < N; i++) {
            uint64_t kind = ek_rng_below(&rng, 50);
            size[i] = ek_rng_below(&rng, kind == 0 ? 100000 : kind < 5 ? 5000 : 100);
            p[i] = ek_arena_alloc(&a, size[i]);
            assert_non_null(p[i]);
            assert_int_equal((uintptr_t)p[i] % 16, 0);
            memset(p[i], i & 0xff, size[i]);
        }
        for (int i = 0; i < N; i++)
            for (size_t j = 0; j < size[i]; j++)
                if ((unsigned char)p[i][j] != (i & 0xff))
                    fail_msg("block %d was overwritten", i);
        ek_arena_reset(&a);
        assert_int_equal(a.used_bytes, 0);
    }
    ek_arena_release(&a);
}

static void the_ceiling_counts_padding_and_holds(void **state)
{
    (void)state;
    struct ek_arena a;
    ek_arena_init(&a, 64);
    assert_non_null(ek_arena_alloc(&a, 1));
    assert_non_null(ek_arena_alloc(&a, 16));
    assert_non_null(ek_arena_alloc(&a, 0)); /* a unique pointer takes room too */
    assert_int_equal(a.used_bytes, 48);
    assert_null(ek_arena_alloc(&a, 17));
    assert_null(ek_arena_alloc(&a, SIZE_MAX));
    assert_null(ek_arena_calloc(&a, SIZE_MAX / 2, 3));
    assert_null(ek_arena_strndup(&a, "x", SIZE_MAX));
    assert_int_equal(a.used_bytes, 48);
    assert_non_null(ek_arena_alloc(&a, 16));
    assert_null(ek_arena_alloc(&a, 0));
    ek_arena_reset(&a);
    assert_non_null(ek_arena_alloc(&a, 64));
    ek_arena_release(&a);
    ek_arena_release(&a);
}

static void contents_are_what_was_asked_for(void **state)
{
    (void)state;
    struct ek_arena a;
    ek_arena_init(&a, 1 << 20);
    for (int round = 0; round < 2; round++) {
        memset(ek_arena_alloc(&a, 3000), 0xff, 3000);
        ek_arena_reset(&a);
        const unsigned char *z = ek_arena_calloc(&a, 100, 30); /* memory used before */
        for (int i = 0; i < 3000; i++)
            assert_int_equal(z[i], 0);
        const char *s = ek_arena_strndup(&a, "a\0b!", 3);
        assert_memory_equal(s, "a\0b", 4);
        assert_string_equal(ek_arena_strndup(&a, NULL, 0), "");
        ek_arena_reset(&a);
    }
    ek_arena_release(&a);
}

/* Large requests between small ones must not throw away what the head has left. */
static void large_requests_waste_no_block(void **state)
{
    (void)state;
    struct ek_arena a;
    ek_arena_init(&a, SIZE_MAX);
    const char *first = ek_arena_alloc(&a, 16);
    for (int i = 1; i <= 100; i++) {
        assert_non_null(ek_arena_alloc(&a, 200000));
        const char *next = ek_arena_alloc(&a, 16);
        assert_ptr_equal(next, first + 16L * i);
    }
    ek_arena_release(&a);
}

static void a_failed_allocation_changes_nothing(void **state)
{
    (void)state;
    EK_EACH_FAILURE (k) {
        struct ek_arena a;
        ek_arena_init(&a, 1 << 20);
        for (int i = 0; i < 200; i++) {
            size_t used = a.used_bytes;
            size_t size = i % 20 ? 100 : 9000;
            if (!ek_arena_alloc(&a, size)) {
                assert_true(ek_mem_failed());
                assert_int_equal(a.used_bytes, used);
                assert_non_null(ek_arena_alloc(&a, size));
            }
        }
        ek_arena_release(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_aligned_and_do_not_overlap),
        cmocka_unit_test(the_ceiling_counts_padding_and_holds),
        cmocka_unit_test(contents_are_what_was_asked_for),
        cmocka_unit_test(large_requests_waste_no_block),
        cmocka_unit_test(a_failed_allocation_changes_nothing),
    };
    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
