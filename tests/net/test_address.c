#include "net/address.h"
#include "testkit.h"

static void names_are_told_from_addresses(void **state)
{
    (void)state;
    static const char *const names[] = {"a:1", "voice.example:443", "1.2.3.4.5:6"};
    static const char *const others[] = {"127.0.0.1:80", "[::1]:80",    "unix:/run/x",
                                         "no port",      "127.0.0.1:p", ":80"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_true(ek_address_is_name(names[i]));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_false(ek_address_is_name(others[i]));
}

static void an_address_is_a_list_of_one(void **state)
{
    (void)state;
    static const char *const texts[] = {"127.0.0.1:80", "[::1]:80", "unix:/run/x"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct ek_address *list, one;
        size_t n;
        assert_int_equal(ek_address_resolve_all(&list, &n, texts[i], true, NULL), 0);
        assert_int_equal(ek_address_resolve(&one, texts[i], NULL), 0);
        assert_int_equal(n, 1);
        assert_true(ek_address_equal(&list[0], &one));
        ek_free(list);
    }
}

static void what_is_no_address_is_refused(void **state)
{
    (void)state;
    struct ek_address *list;
    size_t n;
    struct ek_err err = EK_ERR_INIT;
    assert_int_equal(ek_address_resolve_all(&list, &n, "no port", true, &err),
                     EK_EINVAL);
    assert_int_equal(ek_address_resolve_all(&list, &n, "a:1", true, &err), EK_EIO);
    assert_int_equal(ek_address_resolve_all(&list, &n, "unix:", true, &err), EK_EINVAL);
}

static void memory_may_run_out(void **state)
{
    (void)state;
    EK_EACH_FAILURE (k) {
        struct ek_address *list = NULL;
        size_t n;
        ek_assert_rc(ek_address_resolve_all(&list, &n, "127.0.0.1:80", true, NULL));
        ek_free(list);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_told_from_addresses),
        cmocka_unit_test(an_address_is_a_list_of_one),
        cmocka_unit_test(what_is_no_address_is_refused),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
