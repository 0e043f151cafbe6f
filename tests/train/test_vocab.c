/* test_vocab.c - what is written is read back, and nothing else is read. */
#include "base/file.h"
#include "testkit.h"
#include "train/vocab.h"

#include <stdio.h>
#include <unistd.h>

static const char bytes[] = "B0001"
                            "a\nb\\n\r"
                            "\0x"
                            "12";
static const int64_t offsets[] = {0, 5, 11, 13, 13, 15};
static const struct ek_names names = {5, offsets, bytes};
static const struct ek_rec_column columns[] = {
    {"land of\\origin", true, 5},
    {"price", false, 0},
};

#define TEXT                                                                           \
    "evenkeel vocabulary 1\ncolumns 2\nuser 5 land\nevent 0 price\nitems 2\na\n\n"     \
    "end\n"

static char path[64];

static int take_path(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/ek_vocab_%ld.txt", (long)getpid());
    return 0;
}

static int drop_path(void **state)
{
    (void)state;
    return unlink(path);
}

static void names_of_any_bytes_come_back(void **state)
{
    (void)state;
    EK_EACH_FAILURE (k) {
        struct ek_vocab v = {0};
        int rc = ek_vocab_write(path, &names, columns, 2, NULL);
        if (!rc)
            rc = ek_vocab_read(&v, path, NULL);
        ek_assert_rc(rc);
        if (!rc) {
            assert_int_equal(v.items.n, 5);
            assert_memory_equal(v.items.offsets, offsets, sizeof offsets);
            assert_memory_equal(v.items.bytes, bytes, 15);
            assert_int_equal(v.n_columns, 2);
            for (int i = 0; i < 2; i++) {
                assert_string_equal(v.columns[i].name, columns[i].name);
                assert_int_equal(v.columns[i].is_user, columns[i].is_user);
                assert_int_equal(v.columns[i].levels, columns[i].levels);
            }
        }
        ek_vocab_release(&v);
    }
}

static int parse(const char *text, size_t n, struct ek_err *err)
{
    struct ek_vocab v = {0};
    char *copy = ek_exact_copy(text, n);
    int rc = ek_vocab_parse(&v, "v.txt", copy, n, err);
    ek_vocab_release(&v);
    free(copy);
    return rc;
}

static void a_file_cut_anywhere_is_refused(void **state)
{
    (void)state;
    const size_t n = sizeof TEXT - 1;
    for (size_t i = 0; i < n; i++) {
        struct ek_err err = EK_ERR_INIT;
        assert_int_equal(parse(TEXT, i, &err), EK_EFORMAT);
        assert_non_null(strstr(err.text, "v.txt:"));
    }
    assert_int_equal(parse(TEXT, n, NULL), 0);
}

static void wrong_lines_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
        int rc;
    } cases[] = {
        {"evenkeel vocabulary 2\n", "format 2", EK_EUNSUP},
        {"evenkeel vocabulary 99999999999\n", "v.txt:1", EK_EFORMAT},
        {"evenkeel vocabulary 1 \n", "v.txt:1", EK_EFORMAT},
        {"evenkeel vocabulary 1\ncolumns 33\n", "up to 32", EK_EFORMAT},
        {"evenkeel vocabulary 1\ncolumns -1\n", "v.txt:2", EK_EFORMAT},
        {"evenkeel vocabulary 1\ncolumns 1\nitem 0 x\n", "v.txt:3", EK_EFORMAT},
        {"evenkeel vocabulary 1\ncolumns 1\nuser 9\n", "v.txt:3", EK_EFORMAT},
        {"evenkeel vocabulary 1\ncolumns 0\nitems 0\nend\n", "v.txt:3", EK_EFORMAT},
        {"evenkeel vocabulary 1\ncolumns 0\nitems 2000000000\na\nend\n", "v.txt:3",
         EK_EFORMAT},
        {"evenkeel vocabulary 1\ncolumns 0\nitems 1\na\\t\nend\n", "v.txt:4",
         EK_EFORMAT},
        {"evenkeel vocabulary 1\ncolumns 0\nitems 1\na\\\nend\n", "v.txt:4",
         EK_EFORMAT},
        {"evenkeel vocabulary 1\ncolumns 0\nitems 1\na\nb\nend\n", "v.txt:5",
         EK_EFORMAT},
        {TEXT "x", "nothing behind", EK_EFORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ek_err err = EK_ERR_INIT;
        int rc = parse(cases[i].text, strlen(cases[i].text), &err);
        if (rc != cases[i].rc || !strstr(err.text, cases[i].says))
            fail_msg("case %zu: %d %s", i, rc, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(names_of_any_bytes_come_back, take_path,
                                        drop_path),
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
        cmocka_unit_test(wrong_lines_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
