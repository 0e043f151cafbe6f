/* test_trained.c - names are found, and the nearest to what is none. */
#include "testkit.h"
#include "train/trained.h"

static const char bytes[] = "B0001B0002a,b\0x";
static const int64_t offsets[] = {0, 5, 10, 13, 15, 15};
static const struct ek_names names = {5, offsets, bytes};

static void names_are_found_whole(void **state)
{
    (void)state;
    assert_int_equal(ek_names_find(&names, "B0002", 5), 1);
    assert_int_equal(ek_names_find(&names, "a,b", 3), 2);
    assert_int_equal(ek_names_find(&names, "\0x", 2), 3);
    assert_int_equal(ek_names_find(&names, "", 0), 4);
    assert_int_equal(ek_names_find(&names, "B000", 4), -1);
    assert_int_equal(ek_names_find(&names, "b0001", 5), -1);
}

static void the_nearest_has_the_fewest_changes_and_is_near(void **state)
{
    (void)state;
    assert_int_equal(ek_names_nearest(&names, "B0003", 5), 0); /* the first of two */
    assert_int_equal(ek_names_nearest(&names, "B002", 4), 1);
    assert_int_equal(ek_names_nearest(&names, "xB0002", 6), 1);
    assert_int_equal(ek_names_nearest(&names, "ab", 2), 2);
    assert_int_equal(ek_names_nearest(&names, "zzzzz", 5), -1);
    char most[65];
    memset(most, 'z', sizeof most);
    assert_int_equal(ek_names_nearest(&names, most, 64), -1);
    assert_int_equal(ek_names_nearest(&names, most, 65), -1);
}

static void a_folder_that_is_no_checkpoint_is_told(void **state)
{
    (void)state;
    struct ek_trained t;
    struct ek_err err = EK_ERR_INIT;
    const struct ek_trained_options o = {.part = EK_PART_TRAIN};
    assert_int_equal(ek_trained_open(&t, "/nowhere/at/all", &o, &err), EK_ENOENT);
    assert_non_null(strstr(err.text, "/nowhere/at/all"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found_whole),
        cmocka_unit_test(the_nearest_has_the_fewest_changes_and_is_near),
        cmocka_unit_test(a_folder_that_is_no_checkpoint_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
