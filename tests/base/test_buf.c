#include "base/buf.h"
#include "base/rng.h"
#include "testkit.h"

static void check_sane(const struct ek_buf *b)
{
    assert_true(b->len <= b->cap || !b->data);
    assert_true(b->cap <= b->max);
    assert_int_equal(b->data == NULL, b->len == 0 && b->cap == 0 && !b->data);
    if (b->data)
        assert_int_equal(b->data[b->len], 0);
}

static void check_is(const struct ek_buf *b, const char *want, size_t n)
{
    check_sane(b);
    assert_int_equal(b->len, n);
    if (n)
        assert_memory_equal(b->data, want, n);
}

static void init_allocates_nothing(void **state)
{
    (void)state;
    struct ek_buf b;
    ek_mem_fail_at(1);
    ek_buf_init(&b, 100);
    assert_false(ek_mem_failed());
    ek_mem_fail_at(0);
    assert_null(b.data);
    ek_buf_reset(&b);
    ek_buf_consume(&b, 0);
    size_t n = 1;
    assert_null(ek_buf_take(&b, &n));
    assert_int_equal(n, 0);
    ek_buf_release(&b);
}

static void append_over_ceiling_changes_nothing(void **state)
{
    (void)state;
    for (size_t max = 0; max <= 200; max++) {
        struct ek_buf b;
        ek_buf_init(&b, max);
        for (size_t i = 0; i < max; i++)
            assert_int_equal(ek_buf_add_char(&b, (char)('a' + i % 26)), 0);
        struct ek_buf before = b;
        assert_int_equal(ek_buf_add_char(&b, 'x'), EK_ELIMIT);
        assert_int_equal(ek_buf_add(&b, "xy", SIZE_MAX), EK_ELIMIT);
        assert_int_equal(ek_buf_addf(&b, "%d", 1), EK_ELIMIT);
        assert_memory_equal(&b, &before, sizeof b);
        assert_int_equal(ek_buf_add(&b, NULL, 0), 0);
        assert_int_equal(b.len, max);
        check_sane(&b);
        ek_buf_release(&b);
    }
}

static void random_operations_match_a_plain_array(void **state)
{
    (void)state;
    enum { MAX = 700 };
    struct ek_rng rng;
    struct ek_buf b;
    char model[MAX];
    size_t n = 0;
    ek_rng_init(&rng, 7);
    ek_buf_init(&b, MAX);
    for (int step = 0; step < 20000; step++) {
        char piece[64];
        size_t k = ek_rng_below(&rng, 64);
        for (size_t i = 0; i < k; i++)
            piece[i] = (char)ek_rng_u64(&rng);
        int rc = 0;
        switch (ek_rng_below(&rng, 6)) {
        case 0:
        case 1:
            rc = ek_buf_add(&b, piece, k);
            break;
        case 2:
            k = 5;
            memcpy(piece, "<-12>", 5);
            rc = ek_buf_addf(&b, "<%d>", -12);
            break;
        case 3:
            k = 3;
            memcpy(piece, "abc", 3);
            rc = ek_buf_add_str(&b, "abc");
            break;
        case 4:
            k = k < n ? k : n;
            ek_buf_consume(&b, k);
            memmove(model, model + k, n - k);
            n -= k;
            k = 0;
            break;
        default:
            k = 0;
            if (ek_rng_below(&rng, 20) == 0) {
                ek_buf_reset(&b);
                n = 0;
            }
        }
        assert_int_equal(rc, n + k > MAX ? EK_ELIMIT : 0);
        if (!rc && k) {
            memcpy(model + n, piece, k);
            n += k;
        }
        check_is(&b, model, n);
    }
    ek_buf_release(&b);
}

static void take_hands_over_the_bytes(void **state)
{
    (void)state;
    struct ek_buf b;
    ek_buf_init(&b, 100);
    assert_int_equal(ek_buf_add(&b, "a\0b", 3), 0);
    size_t n;
    char *p = ek_buf_take(&b, &n);
    assert_int_equal(n, 3);
    assert_memory_equal(p, "a\0b", 4);
    ek_free(p);
    assert_int_equal(ek_buf_add_str(&b, "again"), 0);
    check_is(&b, "again", 5);
    ek_buf_release(&b);
}

static void reserve_makes_the_next_appends_sure(void **state)
{
    (void)state;
    struct ek_buf b;
    ek_buf_init(&b, 1000);
    assert_int_equal(ek_buf_reserve(&b, 500), 0);
    ek_mem_fail_at(1);
    for (int i = 0; i < 500; i++)
        assert_int_equal(ek_buf_add_char(&b, 'x'), 0);
    ek_mem_fail_at(0);
    ek_buf_release(&b);
}

static void a_failed_allocation_changes_nothing(void **state)
{
    (void)state;
    EK_EACH_FAILURE (k) {
        struct ek_buf b;
        size_t n = 0;
        ek_buf_init(&b, 100000);
        for (int i = 0; i < 1000; i++) {
            int rc = ek_buf_addf(&b, "%03d", i);
            if (rc) {
                assert_int_equal(rc, EK_ENOMEM);
                assert_int_equal(b.len, n);
                check_sane(&b);
                rc = ek_buf_addf(&b, "%03d", i); /* only one allocation failed */
            }
            assert_int_equal(rc, 0);
            n += 3;
        }
        ek_buf_release(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(init_allocates_nothing),
        cmocka_unit_test(append_over_ceiling_changes_nothing),
        cmocka_unit_test(random_operations_match_a_plain_array),
        cmocka_unit_test(take_hands_over_the_bytes),
        cmocka_unit_test(reserve_makes_the_next_appends_sure),
        cmocka_unit_test(a_failed_allocation_changes_nothing),
    };
    return cmocka_run_group_tests_name("buf", tests, NULL, NULL);
}
