/* What a configuration trains on: columns, clicks, and that two logs are told apart. */
#include "trainkit.h"

static int open_data(struct ek_train_data *d, const char *text, struct ek_err *err,
                     bool *is_input)
{
    struct ek_train_config c;
    struct ek_arena arena;
    char config[1024];
    ek_arena_init(&arena, 1 << 20);
    snprintf(config, sizeof config, "data.path: %s/log.pack\n%s", kit_folder, text);
    int rc = ek_train_config_read(&c, "c", config, strlen(config), &arena, err);
    if (rc)
        fail_msg("%s", err->text);
    rc = ek_train_data_open(d, &c, NULL, NULL, is_input, err);
    ek_arena_release(&arena);
    return rc;
}

static void columns_are_the_packs_without_those_to_skip(void **state)
{
    (void)state;
    struct ek_train_data all, some;
    struct ek_err err = EK_ERR_INIT;
    assert_int_equal(open_data(&all, "", &err, NULL), 0);
    assert_int_equal(
        open_data(&some, "data: {skip: [click_chance], click: click}\n", &err, NULL),
        0);
    assert_int_equal(some.n_columns, all.n_columns - 1);
    assert_null(ek_events_column(&some.events, "click_chance"));
    assert_string_equal(some.events.columns[some.click].name, "click");
    for (int i = 0; i < some.n_columns; i++) {
        bool is_category = some.events.columns[i].kind == EK_COLUMN_CATEGORY;
        assert_string_equal(some.columns[i].name, some.events.columns[i].name);
        assert_int_equal(some.columns[i].levels > 0, is_category);
    }
    ek_train_data_release(&all);
    ek_train_data_release(&some);
}

static void what_the_log_has_not_is_the_configurations_fault(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"data.skip: [nothing]\n", "data.skip: "},
        {"data.click: nothing\n", "has no column 'nothing'"},
        {"data.click: click_chance\n", "expected 0 or 1"},
        {"data.click: segment\n", "is a category of the user, expected a number"},
        {"data: {click: click, skip: [click]}\n", "has no column 'click'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ek_train_data d = {.click = 7};
        struct ek_err err = EK_ERR_INIT;
        bool is_input = true;
        assert_int_equal(open_data(&d, cases[i].text, &err, &is_input), EK_EINVAL);
        if (!strstr(err.text, cases[i].want))
            fail_msg("%s", err.text);
        assert_false(is_input);
        assert_int_equal(d.click, 7); /* untouched */
    }
}

static void the_text_tells_sequences_and_splits_apart(void **state)
{
    (void)state;
    struct ek_train_data a, b;
    struct ek_err err = EK_ERR_INIT;
    char x[EK_TRAIN_DATA_TEXT], y[EK_TRAIN_DATA_TEXT];
    assert_int_equal(open_data(&a, "", &err, NULL), 0);
    assert_int_equal(open_data(&b, "data.split: by_time\n", &err, NULL), 0);
    ek_train_data_text(x, &a);
    ek_train_data_text(y, &b);
    assert_non_null(strstr(x, "120 users, 50 items, "));
    assert_string_not_equal(x, y);
    ek_train_data_release(&a);
    ek_train_data_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_the_packs_without_those_to_skip),
        cmocka_unit_test(what_the_log_has_not_is_the_configurations_fault),
        cmocka_unit_test(the_text_tells_sequences_and_splits_apart),
    };
    return cmocka_run_group_tests_name("train_data", tests, kit_make, kit_remove);
}
