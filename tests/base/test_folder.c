/* test_folder.c - a folder appears whole or not at all, and replaces only its like. */
#include "base/file.h"
#include "base/folder.h"
#include "testkit.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];

static const char *at(char out[300], const char *name)
{
    snprintf(out, 300, "%s/%s", root, name);
    return out;
}

static void put_file(const char *folder, const char *name, const char *text)
{
    struct ek_err err = EK_ERR_INIT;
    char path[4500];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(ek_file_write(path, text, strlen(text), &err), 0);
}

static bool is_there(const char *folder, const char *name)
{
    char path[4500];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void a_folder_appears_with_its_files(void **state)
{
    (void)state;
    struct ek_err err = EK_ERR_INIT;
    struct ek_folder_out f;
    char path[300];
    assert_int_equal(ek_folder_out_begin(&f, at(path, "new/"), &err), 0);
    put_file(f.aside, "mark", "1");
    assert_false(is_there(root, "new"));
    assert_int_equal(ek_folder_out_end(&f, false, "mark", &err), 0);
    assert_true(is_there(path, "mark"));
    ek_folder_out_cancel(&f); /* over: nothing happens */
    assert_true(is_there(path, "mark"));
}

static void cancelling_leaves_nothing(void **state)
{
    (void)state;
    struct ek_err err = EK_ERR_INIT;
    struct ek_folder_out f;
    char path[300], aside[4096];
    assert_int_equal(ek_folder_out_begin(&f, at(path, "gone"), &err), 0);
    put_file(f.aside, "mark", "1");
    memcpy(aside, f.aside, sizeof aside);
    ek_folder_out_cancel(&f);
    ek_folder_out_cancel(&f);
    assert_int_equal(access(aside, F_OK), -1);
    assert_int_equal(access(path, F_OK), -1);
}

static int replace(const char *path, bool replaces, struct ek_err *err)
{
    struct ek_folder_out f;
    int rc = ek_folder_out_begin(&f, path, err);
    assert_int_equal(rc, 0);
    put_file(f.aside, "mark", "new");
    return ek_folder_out_end(&f, replaces, "mark", err);
}

static void only_a_flat_folder_with_the_mark_is_replaced(void **state)
{
    (void)state;
    struct ek_err err = EK_ERR_INIT;
    char path[300], inner[600];
    mkdir(at(path, "old"), 0755);
    put_file(path, "keep", "me");
    assert_int_equal(replace(path, true, &err), EK_EINVAL);
    assert_non_null(strstr(err.text, "holds no mark"));
    put_file(path, "mark", "old");
    snprintf(inner, sizeof inner, "%s/inner", path);
    mkdir(inner, 0755);
    assert_int_equal(replace(path, true, &err), EK_EINVAL);
    assert_non_null(strstr(err.text, "'inner'"));
    assert_true(is_there(path, "keep"));
    rmdir(inner);
    assert_int_equal(replace(path, false, &err), EK_EIO);
    assert_true(is_there(path, "keep"));
    assert_int_equal(replace(path, true, &err), 0);
    assert_false(is_there(path, "keep"));
    assert_true(is_there(path, "mark"));
}

static void places_that_cannot_be_are_named(void **state)
{
    (void)state;
    struct ek_err err = EK_ERR_INIT;
    struct ek_folder_out f;
    char path[300], longer[5000];
    assert_int_equal(ek_folder_out_begin(&f, at(path, "no/such"), &err), EK_ENOENT);
    assert_non_null(strstr(err.text, "no/such"));
    ek_folder_out_cancel(&f);
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    assert_int_equal(ek_folder_out_begin(&f, longer, &err), EK_ELIMIT);
    ek_folder_out_cancel(&f);
    put_file(root, "file", "x");
    assert_int_equal(ek_folder_check(at(path, "file"), "mark", &err), EK_EINVAL);
    assert_int_equal(ek_folder_check(at(path, "none"), "mark", &err), EK_ENOENT);
}

static void what_dead_writers_left_is_removed_and_live_ones_keep_theirs(void **state)
{
    (void)state;
    struct ek_err err = EK_ERR_INIT;
    struct ek_folder_out f;
    char path[300], other[300];
    static const char *const kept[] = {"run.1.tmp", "run.x.tmp", "run.99999999.tmpx",
                                       "runs.99999999.tmp", "run.99999999x.tmp"};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        assert_int_equal(mkdir(at(other, kept[i]), 0755), 0);
    mkdir(at(other, "run.99999999.tmp"), 0755); /* above any process number */
    put_file(other, "half", "1");
    assert_int_equal(ek_folder_out_begin(&f, at(path, "run"), &err), 0);
    assert_false(is_there(root, "run.99999999.tmp"));
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        assert_true(is_there(root, kept[i]));
    ek_folder_out_cancel(&f);
}

static void what_was_moved_aside_is_found_until_it_is_replaced(void **state)
{
    (void)state;
    struct ek_err err = EK_ERR_INIT;
    char path[300], aside[300], found[4096];
    at(path, "moved");
    mkdir(at(aside, "moved.replaced.tmp"), 0755);
    put_file(aside, "mark", "1");
    ek_folder_find(found, path);
    assert_string_equal(found, aside);
    assert_int_equal(replace(path, true, &err), 0);
    ek_folder_find(found, path);
    assert_string_equal(found, path);
    assert_int_equal(access(aside, F_OK), -1);
}

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/ek_folder_XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_appears_with_its_files),
        cmocka_unit_test(cancelling_leaves_nothing),
        cmocka_unit_test(only_a_flat_folder_with_the_mark_is_replaced),
        cmocka_unit_test(what_dead_writers_left_is_removed_and_live_ones_keep_theirs),
        cmocka_unit_test(what_was_moved_aside_is_found_until_it_is_replaced),
        cmocka_unit_test(places_that_cannot_be_are_named),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
