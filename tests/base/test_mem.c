#include "base/mem.h"
#include "testkit.h"

static void zero_bytes_yield_a_unique_pointer(void **state)
{
    (void)state;
    void *a = ek_alloc(0), *b = ek_calloc(0, 8), *c = ek_alloc_array(8, 0);
    void *d = ek_alloc_aligned(64, 0), *e = ek_realloc_array(NULL, 0, 0);
    assert_true(a && b && c && d && e);
    assert_ptr_not_equal(a, b);
    e = ek_realloc_array(e, 0, 4); /* still a block, not a free */
    assert_non_null(e);
    ek_free(a);
    ek_free(b);
    ek_free(c);
    ek_free(d);
    ek_free(e);
    ek_free(NULL);
}

static void sizes_that_overflow_are_refused(void **state)
{
    (void)state;
    assert_null(ek_alloc(SIZE_MAX));
    assert_null(ek_alloc_array(SIZE_MAX, 2));
    assert_null(ek_alloc_array(SIZE_MAX / 2 + 2, 2));
    assert_null(ek_calloc(SIZE_MAX, 2));
    assert_null(ek_alloc_aligned(64, SIZE_MAX));
    assert_null(ek_alloc_aligned(64, SIZE_MAX - 62));
    assert_null(ek_strndup("x", SIZE_MAX));
    char *p = ek_strndup("kept", 4);
    assert_non_null(p);
    assert_null(ek_realloc_array(p, SIZE_MAX, 3));
    assert_string_equal(p, "kept");
    ek_free(p);
}

static void huge_memory_is_aligned_and_whole_at_any_size(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 4096, (2 << 20) - 1, 2 << 20, (5 << 20) + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char *p = ek_alloc_huge(sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        memset(p, 0x5a, sizes[i]);
        ek_free(p);
    }
    assert_null(ek_alloc_huge(SIZE_MAX));
    ek_mem_fail_at(1);
    assert_null(ek_alloc_huge(4 << 20));
    ek_mem_fail_at(0);
}

static void calloc_zeroes_and_aligned_aligns(void **state)
{
    (void)state;
    unsigned char *p = ek_calloc(100, 3);
    assert_non_null(p);
    for (int i = 0; i < 300; i++)
        assert_int_equal(p[i], 0);
    ek_free(p);
    for (size_t align = sizeof(void *); align <= 4096; align *= 2) {
        p = ek_alloc_aligned(align, 1 + align / 3);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % align, 0);
        ek_free(p);
    }
}

static void strndup_copies_nul_and_ends_with_one(void **state)
{
    (void)state;
    char *p = ek_strndup("a\0bc", 3);
    assert_memory_equal(p, "a\0b", 4);
    ek_free(p);
    p = ek_strndup(NULL, 0);
    assert_string_equal(p, "");
    ek_free(p);
}

static void checked_sizes_leave_out_untouched_on_overflow(void **state)
{
    (void)state;
    size_t out = 7;
    assert_false(ek_mul_size(&out, SIZE_MAX, 2));
    assert_false(ek_add_size(&out, SIZE_MAX, 1));
    assert_int_equal(out, 7);
    assert_true(ek_mul_size(&out, SIZE_MAX, 1));
    assert_true(out == SIZE_MAX);
    assert_true(ek_add_size(&out, SIZE_MAX - 1, 1));
    assert_true(out == SIZE_MAX);
    assert_true(ek_mul_size(&out, 0, SIZE_MAX));
    assert_int_equal(out, 0);
}

/* One call of every door. Returns how many gave a pointer. */
static int call_all(void)
{
    void *p[] = {ek_alloc(8),
                 ek_alloc_array(2, 8),
                 ek_calloc(2, 8),
                 ek_realloc_array(NULL, 2, 8),
                 ek_alloc_aligned(64, 8),
                 ek_strndup("x", 1)};
    int n = 0;
    for (size_t i = 0; i < sizeof p / sizeof p[0]; i++) {
        n += p[i] != NULL;
        ek_free(p[i]);
    }
    return n;
}

static void the_kth_allocation_fails_once_through_every_door(void **state)
{
    (void)state;
    for (uint64_t k = 1; k <= 6; k++) {
        ek_mem_fail_at(k);
        assert_false(ek_mem_failed());
        assert_int_equal(call_all(), 5);
        assert_true(ek_mem_failed());
        assert_int_equal(call_all(), 6); /* once */
    }
    ek_mem_fail_at(7);
    assert_int_equal(call_all(), 6);
    assert_false(ek_mem_failed());
    ek_mem_fail_at(0);
    assert_int_equal(call_all(), 6);
    assert_false(ek_mem_failed());
}

static void the_drive_fails_each_allocation_and_ends(void **state)
{
    (void)state;
    int n_runs = 0, n_good = 0;
    EK_EACH_FAILURE (k) {
        n_runs++;
        n_good += call_all() == 6;
    }
    assert_int_equal(n_runs, 7);
    assert_int_equal(n_good, 1);
    assert_int_equal(call_all(), 6); /* the drive is off again */
}

struct arrays {
    int32_t *a;
    double *b;
    char *c;
};

static void list_arrays(struct arrays *x, struct ek_taker *t)
{
    x->a = ek_take_array(t, 3, sizeof *x->a);
    x->b = ek_take_zeroed(t, 5, sizeof *x->b);
    x->c = ek_take_aligned(t, 7, sizeof *x->c);
}

static void a_dry_taker_counts_what_another_takes(void **state)
{
    (void)state;
    struct ek_taker dry = {.is_dry = true};
    struct arrays x;
    list_arrays(&x, &dry);
    assert_true(!x.a && !x.b && !x.c && !dry.status);
    assert_int_equal(dry.bytes, 3 * 4 + 5 * 8 + 7);
    EK_EACH_FAILURE (k) {
        struct ek_taker t = {.is_dry = false};
        list_arrays(&x, &t);
        assert_int_equal(t.status, x.a && x.b && x.c ? 0 : EK_ENOMEM);
        assert_true(t.status || (t.bytes == dry.bytes && x.b[4] <= 0.0));
        ek_free(x.a);
        ek_free(x.b);
        ek_free(x.c);
    }
}

static void a_takers_sum_that_overflows_is_a_limit(void **state)
{
    (void)state;
    struct ek_taker t = {.is_dry = true};
    assert_null(ek_take_array(&t, INT64_MAX, 2));
    assert_int_equal(t.status, 0);
    assert_null(ek_take_array(&t, 2, 1)); /* the sum */
    assert_int_equal(t.status, EK_ELIMIT);
    t = (struct ek_taker){.is_dry = false};
    assert_null(ek_take_zeroed(&t, INT64_MAX, 3)); /* one product */
    assert_int_equal(t.status, EK_ELIMIT);
    assert_null(ek_take_aligned(&t, 1, 1)); /* it stays */
    assert_int_equal(t.status, EK_ELIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero_bytes_yield_a_unique_pointer),
        cmocka_unit_test(sizes_that_overflow_are_refused),
        cmocka_unit_test(huge_memory_is_aligned_and_whole_at_any_size),
        cmocka_unit_test(calloc_zeroes_and_aligned_aligns),
        cmocka_unit_test(strndup_copies_nul_and_ends_with_one),
        cmocka_unit_test(checked_sizes_leave_out_untouched_on_overflow),
        cmocka_unit_test(the_kth_allocation_fails_once_through_every_door),
        cmocka_unit_test(the_drive_fails_each_allocation_and_ends),
        cmocka_unit_test(a_dry_taker_counts_what_another_takes),
        cmocka_unit_test(a_takers_sum_that_overflows_is_a_limit),
    };
    return cmocka_run_group_tests_name("mem", tests, NULL, NULL);
}
