/* test_checkpoint.c - what was saved loads to the bit; anything else is one error that
 * changes neither the set nor the checkpoint that was there. */
#include "base/buf.h"
#include "base/file.h"
#include "checkpointkit.h"
#include "testkit.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROWS 6

static char root[64], folder[128];
static const char *const files[] = {"manifest.json", "config.json", "model.safetensors",
                                    "optimizer.safetensors"};
enum { MANIFEST, CONFIG, MODEL, OPTIMIZER, FILES };

static const char *at(const char *name)
{
    static char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static struct ek_buf read_file(const char *name)
{
    struct ek_buf b;
    ek_buf_init(&b, 1 << 20);
    assert_int_equal(ek_file_read(&b, at(name), NULL), 0);
    return b;
}

static void write_file(const char *name, const char *p, size_t n)
{
    assert_int_equal(ek_file_write(at(name), p, n, NULL), 0);
}

static void save(int64_t step)
{
    struct ek_err err = EK_ERR_INIT;
    struct kit k;
    assert_true(kit_init(&k, ROWS));
    if (kit_save(&k, folder, step, &err))
        fail_msg("%s", err.text);
    kit_release(&k);
}

/* Into a set that holds step 77: all of `step`'s numbers then, or still all of 77's. */
static int load(int64_t step, struct ek_err *err)
{
    struct kit k;
    assert_true(kit_init(&k, ROWS));
    (void)kit_each(&k, 77, true);
    ek_adamw_set_steps(k.adamw, 77);
    struct ek_checkpoint c = kit_checkpoint(&k, 77);
    int rc = ek_checkpoint_load(folder, &c, err);
    assert_int_equal(kit_each(&k, rc ? 77 : step, false), 0);
    assert_int_equal(ek_adamw_steps(k.adamw), rc ? 77 : step);
    struct ek_train_progress want = kit_checkpoint(&k, rc ? 77 : step).progress;
    assert_memory_equal(&c.progress, &want, sizeof want);
    kit_release(&k);
    return rc;
}

static int peek(char **config, char **data, struct ek_err *err)
{
    struct ek_train_progress p;
    *config = *data = NULL;
    return ek_checkpoint_peek(folder, config, data, &p, err);
}

static int entries(const char *path)
{
    int n = -2; /* "." and ".." */
    DIR *d = opendir(path);
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void what_was_saved_loads_to_the_bit(void **state)
{
    (void)state;
    struct ek_err err = EK_ERR_INIT;
    char *config, *data;
    save(0);
    assert_int_equal(load(0, &err), 0);
    save(12);
    assert_int_equal(load(12, &err), 0);
    assert_int_equal(peek(&config, &data, &err), 0);
    assert_string_equal(config, "{\"model\": {\"kind\": \"sasrec\"}}\n");
    assert_string_equal(data, "a log of 3 \"users\"");
    ek_free(config);
    ek_free(data);
    assert_int_equal(entries(folder), FILES);
    assert_int_equal(entries(root), 1);
}

static void
a_model_loads_without_its_optimizers_but_not_they_without_a_state(void **state)
{
    (void)state;
    struct ek_err err = EK_ERR_INIT;
    struct kit k;
    save(3);
    assert_true(kit_init(&k, ROWS));
    struct ek_checkpoint c = kit_checkpoint(&k, 3);
    c.adamw = NULL;
    c.adagrad = NULL;
    assert_int_equal(ek_checkpoint_load(folder, &c, &err), 0);
    assert_true(ek_params_get(k.params, 0)->value[1] == kit_number(3, 0, 1));
    assert_true(ek_adamw_moment(k.adamw, 1, 1)[0] == 0);
    c.adamw = k.adamw;
    assert_int_equal(ek_checkpoint_load(folder, &c, &err), 0);
    assert_true(ek_adamw_moment(k.adamw, 1, 1)[1] == kit_number(3, 5, 1));
    c.adamw = NULL;
    assert_int_equal(ek_checkpoint_save(folder, &c, &err), 0);
    assert_int_equal(entries(folder), FILES - 1);
    assert_int_equal(load(3, &err), EK_EFORMAT);
    assert_non_null(strstr(err.text, "no state of the optimizer"));
    kit_release(&k);
}

static int read_all(int64_t step, struct ek_err *err)
{
    char *config, *data;
    int rc = peek(&config, &data, err);
    if (!rc)
        rc = load(step, err);
    ek_free(config);
    ek_free(data);
    return rc;
}

static void
each_flipped_byte_and_truncation_is_one_error_that_names_the_file(void **state)
{
    (void)state;
    struct ek_err err = EK_ERR_INIT;
    save(5);
    for (int f = 0; f < FILES; f++) {
        struct ek_buf whole = read_file(files[f]);
        for (size_t i = 0; i < whole.len; i += f == MANIFEST ? 1 : 7) {
            write_file(files[f], whole.data, i);
            int rc = read_all(5, &err);
            assert_true(rc == EK_EFORMAT);
            assert_non_null(strstr(err.text, files[f]));
            whole.data[i] ^= 1 << i % 7;
            write_file(files[f], whole.data, whole.len);
            rc = read_all(5, &err);
            assert_true(rc == EK_EFORMAT || (f == MANIFEST && rc == EK_EUNSUP));
            assert_non_null(strstr(err.text, files[f]));
            whole.data[i] ^= 1 << i % 7;
        }
        write_file(files[f], whole.data, whole.len);
        assert_int_equal(read_all(5, &err), 0);
        ek_buf_release(&whole);
    }
    for (int f = 0; f < FILES; f++) {
        struct ek_buf whole = read_file(files[f]);
        assert_int_equal(unlink(at(files[f])), 0);
        assert_int_not_equal(read_all(5, &err), 0);
        write_file(files[f], whole.data, whole.len);
        ek_buf_release(&whole);
    }
}

static void a_newer_format_is_refused_as_such(void **state)
{
    (void)state;
    struct ek_err err = EK_ERR_INIT;
    save(5);
    const char newer[] = "{\"format\": 2, \"other\": []}";
    write_file(files[MANIFEST], newer, sizeof newer - 1);
    assert_int_equal(load(5, &err), EK_EUNSUP);
    assert_non_null(strstr(err.text, "format 2"));
    save(6); /* it is a checkpoint all the same */
    assert_int_equal(load(6, &err), 0);
}

static void counts_that_cannot_go_on_are_refused(void **state)
{
    (void)state;
    struct ek_err err = EK_ERR_INIT;
    save((INT64_C(1) << 53) / 1000); /* of tokens, the largest of them */
    assert_int_equal(load((INT64_C(1) << 53) / 1000, &err), 0);
    save((INT64_C(1) << 53) / 1000 + 1);
    assert_int_equal(load(5, &err), EK_EFORMAT);
    assert_non_null(strstr(err.text, "manifest.json"));
}

static void another_models_checkpoint_names_parameter_and_shapes(void **state)
{
    (void)state;
    struct ek_err err = EK_ERR_INIT;
    struct kit k;
    int id;
    assert_true(kit_init(&k, ROWS + 1));
    assert_int_equal(kit_save(&k, folder, 4, &err), 0);
    assert_int_equal(load(4, &err), EK_EFORMAT);
    assert_non_null(strstr(err.text, "'items' is f32 (7, 8) in the checkpoint and f32 "
                                     "(6, 8) in the model"));
    kit_release(&k);

    struct ek_param_spec more = {.name = "head.w", .rows = 2, .cols = 2};
    assert_true(kit_init(&k, ROWS));
    assert_int_equal(ek_params_add(k.params, &id, &more, NULL), 0);
    struct ek_checkpoint c = kit_checkpoint(&k, 4);
    c.adamw = NULL;
    c.adagrad = NULL;
    assert_int_equal(ek_checkpoint_save(folder, &c, &err), 0);
    save(4);
    assert_int_equal(ek_checkpoint_load(folder, &c, &err), EK_EFORMAT);
    assert_non_null(strstr(err.text, "has no 'head.w' (2, 2)"));
    assert_int_equal(ek_checkpoint_save(folder, &c, &err), 0);
    kit_release(&k);
    assert_true(kit_init(&k, ROWS));
    c = kit_checkpoint(&k, 4);
    c.adamw = NULL;
    c.adagrad = NULL;
    assert_int_equal(ek_checkpoint_load(folder, &c, &err), EK_EFORMAT);
    assert_non_null(strstr(err.text, "'head.w', which the model lacks"));
    kit_release(&k);
}

/* Every place at which a file may end early: the limit on a file's size is the disk. */
static void a_full_disk_keeps_the_old_checkpoint_and_leaves_nothing(void **state)
{
    (void)state;
    struct ek_err err = EK_ERR_INIT;
    struct rlimit before, small;
    struct kit k;
    save(8);
    assert_true(kit_init(&k, ROWS));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    int failed = 0;
    for (rlim_t limit = 0; limit < 1500; limit += 29) {
        small = before;
        small.rlim_cur = limit;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        int rc = kit_save(&k, folder, 9, &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_true(rc == 0 || rc == EK_EIO);
        assert_int_equal(entries(root), 1);
        assert_int_equal(load(rc ? 8 : 9, &err), 0);
        failed += rc != 0;
        if (!rc)
            save(8);
    }
    signal(SIGXFSZ, SIG_DFL);
    kit_release(&k);
    assert_in_range(failed, 15, 50);
}

static void a_folder_of_something_else_is_not_replaced(void **state)
{
    (void)state;
    struct ek_err err = EK_ERR_INIT;
    struct kit k;
    save(1);
    assert_int_equal(unlink(at(files[MANIFEST])), 0);
    assert_true(kit_init(&k, ROWS));
    assert_int_equal(kit_save(&k, folder, 2, &err), EK_EINVAL);
    assert_non_null(strstr(err.text, "manifest.json"));
    assert_int_equal(entries(folder), FILES - 1);
    assert_int_equal(load(2, &err), EK_ENOENT);
    assert_non_null(strstr(err.text, "no checkpoint"));
    kit_release(&k);
}

static void a_run_means_its_best_checkpoint_or_else_its_last(void **state)
{
    (void)state;
    struct ek_err err = EK_ERR_INIT;
    char run[128], found[4096], last[200], best[200];
    struct kit k;
    snprintf(run, sizeof run, "%s/run", root);
    snprintf(last, sizeof last, "%s/checkpoints/last", run);
    snprintf(best, sizeof best, "%s/checkpoints/best", run);
    assert_true(kit_init(&k, ROWS));
    assert_int_equal(kit_save(&k, last, 2, &err), EK_ENOENT);
    assert_int_equal(mkdir(run, 0755), 0);
    assert_int_equal(ek_checkpoint_find(found, run, &err), EK_ENOENT);
    assert_int_equal(kit_save(&k, last, 2, &err), 0);
    assert_int_equal(ek_checkpoint_find(found, run, &err), 0);
    assert_string_equal(found, last);
    assert_int_equal(kit_save(&k, best, 1, &err), 0);
    assert_int_equal(ek_checkpoint_find(found, run, &err), 0);
    assert_string_equal(found, best);
    kit_release(&k);
}

/* Where folders cannot be exchanged, a kill between two renames leaves this. */
static void a_checkpoint_that_was_moved_aside_is_found(void **state)
{
    (void)state;
    struct ek_err err = EK_ERR_INIT;
    char aside[200];
    save(1);
    snprintf(aside, sizeof aside, "%s.replaced.tmp", folder);
    assert_int_equal(rename(folder, aside), 0);
    assert_int_equal(load(1, &err), 0);
    save(2);
    assert_int_equal(load(2, &err), 0);
    assert_int_equal(entries(root), 1);
}

static void any_failed_allocation_changes_nothing(void **state)
{
    (void)state;
    struct kit k;
    save(1);
    assert_true(kit_init(&k, ROWS));
    EK_EACH_FAILURE (i) {
        int rc = kit_save(&k, folder, 2, NULL);
        ek_assert_rc(rc);
        assert_int_equal(entries(root), 1);
    }
    save(2);
    EK_EACH_FAILURE (i) {
        struct ek_checkpoint c = kit_checkpoint(&k, 0);
        (void)kit_each(&k, 77, true);
        int rc = ek_checkpoint_load(folder, &c, NULL);
        ek_assert_rc(rc);
        assert_int_equal(kit_each(&k, rc ? 77 : 2, false), 0);
    }
    EK_EACH_FAILURE (i) {
        char *config, *data;
        int rc = peek(&config, &data, NULL);
        ek_assert_rc(rc);
        ek_free(config);
        ek_free(data);
    }
    kit_release(&k);
}

/* In memory where there is such a place: hundreds of saves wait for a disk six times
 * each. Kills on a disk are train/checkpoint_kill's. */
static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "%s/ek_checkpoint_XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    bool is_made = mkdtemp(root) != NULL;
    snprintf(folder, sizeof folder, "%s/last", root);
    return is_made ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_was_saved_loads_to_the_bit),
        TEST(a_model_loads_without_its_optimizers_but_not_they_without_a_state),
        TEST(each_flipped_byte_and_truncation_is_one_error_that_names_the_file),
        TEST(a_newer_format_is_refused_as_such),
        TEST(counts_that_cannot_go_on_are_refused),
        TEST(another_models_checkpoint_names_parameter_and_shapes),
        TEST(a_full_disk_keeps_the_old_checkpoint_and_leaves_nothing),
        TEST(a_folder_of_something_else_is_not_replaced),
        TEST(a_run_means_its_best_checkpoint_or_else_its_last),
        TEST(a_checkpoint_that_was_moved_aside_is_found),
        TEST(any_failed_allocation_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
