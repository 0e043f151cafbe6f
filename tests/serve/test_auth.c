/* API keys: who may, and files of keys. */
#include "serve/auth.h"
#include "testkit.h"

#include <stdio.h>
#include <unistd.h>

static void without_keys_everybody_may(void **state)
{
    (void)state;
    struct ek_auth a;
    ek_auth_init(&a);
    assert_true(ek_auth_allows(&a, NULL));
    assert_true(ek_auth_allows(&a, "Bearer x"));
    ek_auth_release(&a);
}

static void only_the_exact_key_opens(void **state)
{
    (void)state;
    static const char *const bad[] = {"Bearer ",           "Bearer",
                                      "Bearer secre",      "Bearer secret12",
                                      "Bearer secret1 x",  "Basic secret1",
                                      "secret1",           "Bearer secret1secret1",
                                      "Bearer other\nkey", "Bearer \n",
                                      "Bearer secret1\n"};
    struct ek_auth a;
    ek_auth_init(&a);
    assert_int_equal(ek_auth_add(&a, "secret1", NULL), 0);
    assert_int_equal(ek_auth_add(&a, "other", NULL), 0);
    assert_true(ek_auth_allows(&a, "Bearer secret1"));
    assert_true(ek_auth_allows(&a, "bearer other"));
    assert_false(ek_auth_allows(&a, NULL));
    assert_false(ek_auth_allows(&a, ""));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(ek_auth_allows(&a, bad[i]));
    ek_auth_release(&a);
}

static void a_key_without_text_or_with_a_line_end_is_refused(void **state)
{
    (void)state;
    struct ek_auth a;
    ek_auth_init(&a);
    assert_int_equal(ek_auth_add(&a, "", NULL), EK_EINVAL);
    assert_int_equal(ek_auth_add(&a, "a\nb", NULL), EK_EINVAL);
    assert_true(ek_auth_allows(&a, NULL));
    ek_auth_release(&a);
}

static void a_file_gives_its_lines(void **state)
{
    (void)state;
    char path[] = "/tmp/evenkeel-keys-XXXXXX";
    struct ek_auth a;
    struct ek_err err = EK_ERR_INIT;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "w");
    assert_non_null(f);
    fputs("# comment\n\nfirst  \r\nsecond", f);
    fclose(f);
    ek_auth_init(&a);
    assert_int_equal(ek_auth_add_file(&a, path, &err), 0);
    assert_true(ek_auth_allows(&a, "Bearer first"));
    assert_true(ek_auth_allows(&a, "Bearer second"));
    assert_false(ek_auth_allows(&a, "Bearer # comment"));
    ek_auth_release(&a);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs("# nothing\n", f);
    fclose(f);
    ek_auth_init(&a);
    assert_int_equal(ek_auth_add_file(&a, path, &err), EK_EINVAL);
    assert_non_null(strstr(err.text, path));
    ek_auth_release(&a);
    unlink(path);
}

static struct ek_salt salt_of(const struct ek_auth *a, const char *key,
                              const char *salt)
{
    struct ek_salt s = {1, 1};
    assert_int_equal(ek_auth_salt(&s, a, key, salt), 0);
    return s;
}

static void equal_keys_and_salts_share_and_no_others_do(void **state)
{
    (void)state;
    struct ek_auth a, open;
    ek_auth_init(&a);
    ek_auth_init(&open);
    assert_int_equal(ek_auth_add(&a, "ab", NULL), 0);
    const struct ek_salt salts[] = {
        salt_of(&open, NULL, NULL),     salt_of(&open, NULL, "a"),
        salt_of(&open, NULL, "ab"),     salt_of(&a, "Bearer ab", NULL),
        salt_of(&a, "Bearer a", "b"),   salt_of(&a, "Bearer ab", "b"),
        salt_of(&a, "Bearer a", "bb"),  salt_of(&a, "Bearer b", NULL),
        salt_of(&a, "Bearer ab", "ab"),
    };
    size_t n = sizeof salts / sizeof salts[0];
    assert_true(salts[0].lo == 0 && salts[0].hi == 0);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++) /* each half tells them apart */
            assert_true(salts[i].lo != salts[k].lo && salts[i].hi != salts[k].hi);
    }
    struct ek_salt again = salt_of(&a, "bearer   ab", "ab");
    assert_memory_equal(&again, &salts[n - 1], sizeof again);
    /* Without keys nobody is told from anybody by what he presents. */
    again = salt_of(&open, "Bearer ab", "ab");
    assert_memory_equal(&again, &salts[2], sizeof again);
    ek_auth_release(&a);
    ek_auth_release(&open);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_keys_everybody_may),
        cmocka_unit_test(only_the_exact_key_opens),
        cmocka_unit_test(a_key_without_text_or_with_a_line_end_is_refused),
        cmocka_unit_test(a_file_gives_its_lines),
        cmocka_unit_test(equal_keys_and_salts_share_and_no_others_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
