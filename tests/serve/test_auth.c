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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_keys_everybody_may),
        cmocka_unit_test(only_the_exact_key_opens),
        cmocka_unit_test(a_key_without_text_or_with_a_line_end_is_refused),
        cmocka_unit_test(a_file_gives_its_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
