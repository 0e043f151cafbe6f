#include "base/status.h"
#include "testkit.h"

static const int all[] = {
#define X(name, value, text) name,
    EK_STATUS_TABLE(X)
#undef X
};
#define N_ALL (sizeof all / sizeof all[0])

static void codes_are_negative_and_distinct(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ALL; i++) {
        assert_true(all[i] < 0);
        for (size_t j = 0; j < i; j++)
            assert_int_not_equal(all[i], all[j]);
    }
}

static void each_code_has_its_own_text_and_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_ALL; i++) {
        assert_memory_equal(ek_status_name(all[i]), "EK_E", 4);
        assert_string_not_equal(ek_status_text(all[i]), "unknown status");
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(ek_status_text(all[i]), ek_status_text(all[j]));
            assert_string_not_equal(ek_status_name(all[i]), ek_status_name(all[j]));
        }
    }
    assert_string_equal(ek_status_text(EK_ENOMEM), "out of memory");
    assert_string_equal(ek_status_name(EK_ENOMEM), "EK_ENOMEM");
}

static void values_outside_the_table_are_named_unknown(void **state)
{
    (void)state;
    static const int odd[] = {1, -1000, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        assert_string_equal(ek_status_text(odd[i]), "unknown status");
        assert_string_equal(ek_status_name(odd[i]), "?");
    }
    assert_string_equal(ek_status_text(0), "ok");
    assert_string_equal(ek_status_name(0), "EK_OK");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_negative_and_distinct),
        cmocka_unit_test(each_code_has_its_own_text_and_name),
        cmocka_unit_test(values_outside_the_table_are_named_unknown),
    };
    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
