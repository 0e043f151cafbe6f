/* The probes do what they are counted for: a read sees every byte, dot products grow
 * with n. Rates are never asserted. */
#include "kernel_test.h"

static void check_read(const struct ek_ops *ops)
{
    enum { N = 1024 };
    unsigned char *p = ek_alloc_aligned(64, N);
    assert_non_null(p);
    memset(p, 0, N);
    assert_true(ops->probe_read(p, N) == 0);
    for (int i = 0; i < N; i++) {
        p[i] = 1;
        assert_true(ops->probe_read(p, N) != 0);
        p[i] = 0;
    }
    memset(p, 0x7f, N); /* sums of large words wrap */
    assert_true(ops->probe_read(p, N) != 0);
    ek_free(p);
}

static void a_streaming_read_sees_every_byte(void **state)
{
    (void)state;
    for_each_isa(check_read);
}

static void check_dot(const struct ek_ops *ops)
{
    for (int f = 0; f < EK_WEIGHT_COUNT; f++) {
        int64_t one = ops->probe_dot((enum ek_weight_format)f, 1);
        assert_true(one > 0);
        assert_int_equal(ops->probe_dot((enum ek_weight_format)f, 7), 7 * one);
    }
}

static void dot_products_are_counted_by_n_for_every_format(void **state)
{
    (void)state;
    for_each_isa(check_dot);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_streaming_read_sees_every_byte),
        cmocka_unit_test(dot_products_are_counted_by_n_for_every_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
