#include "net/address.h"
#include "route/names.h"
#include "testkit.h"

#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>

static sem_t gate, has_left; /* of the resolver that hangs */
static sem_t answered;       /* of "known..." */

/* "known..." has two addresses, "hangs" waits for the gate, "last" is answered once two
 * others were, others are not known. */
static int ask(struct ek_address **list, size_t *n, const char *text, bool numeric,
               struct ek_err *err)
{
    assert_false(numeric);
    if (strcmp(text, "hangs:1") == 0) {
        while (sem_wait(&gate))
            ;
        *list = ek_calloc(1, sizeof **list); /* too late: nobody takes it */
        *n = *list != NULL;
        sem_post(&has_left);
        return *list ? 0 : EK_ENOMEM;
    }
    for (int i = 0; i < 2 && strcmp(text, "last:1") == 0; i++) {
        while (sem_wait(&answered))
            ;
    }
    if (strncmp(text, "known", 5) != 0)
        return ek_err_set(err, EK_EIO, "%s: no such name", text);
    *list = ek_calloc(2, sizeof **list);
    if (!*list)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    *n = 2;
    sem_post(&answered);
    return 0;
}

static void each_name_has_its_addresses_or_says_why_not(void **state)
{
    (void)state;
    struct ek_name names[] = {
        {.text = "known-a:1"}, {.text = "x:1"}, {.text = "known-b:1"}};
    assert_int_equal(ek_names_ask(names, 3, ask, 60000000), 0);
    assert_int_equal(names[0].n, 2);
    assert_int_equal(names[1].n, 0);
    assert_null(names[1].list);
    assert_string_equal(names[1].why, "x:1: no such name");
    assert_int_equal(names[2].n, 2);
    ek_free(names[0].list);
    ek_free(names[2].list);
    assert_int_equal(ek_names_ask(NULL, 0, ask, 0), 0);
}

static void names_are_asked_for_at_once(void **state)
{
    (void)state;
    struct ek_name names[] = {
        {.text = "last:1"}, {.text = "known-a:1"}, {.text = "known-b:1"}};
    sem_init(&answered, 0, 0);
    assert_int_equal(ek_names_ask(names, 3, ask, 60000000), 0);
    assert_string_equal(names[0].why, "last:1: no such name");
    assert_int_equal(names[1].n, 2);
    assert_int_equal(names[2].n, 2);
    ek_free(names[1].list);
    ek_free(names[2].list);
}

static void more_names_than_threads_are_all_asked_for(void **state)
{
    (void)state;
    static struct ek_name names[300];
    for (size_t i = 0; i < 300; i++)
        names[i] = (struct ek_name){.text = "known:1"};
    assert_int_equal(ek_names_ask(names, 300, ask, 60000000), 0);
    for (size_t i = 0; i < 300; i++) {
        assert_int_equal(names[i].n, 2);
        ek_free(names[i].list);
    }
}

static void one_that_hangs_costs_the_limit_and_the_others_are_taken(void **state)
{
    (void)state;
    struct ek_name names[] = {
        {.text = "known:1"}, {.text = "hangs:1"}, {.text = "known-behind:1"}};
    sem_init(&gate, 0, 0);
    sem_init(&has_left, 0, 0);
    assert_int_equal(ek_names_ask(names, 3, ask, 300000), 0);
    assert_int_equal(names[1].n, 0);
    assert_string_equal(names[1].why,
                        "hangs:1: the resolver did not answer within 0.3 s");
    for (int i = 0; i < 3; i += 2) {
        if (names[i].n == 0) /* on a machine that slow */
            assert_non_null(strstr(names[i].why, "did not answer"));
        ek_free(names[i].list);
    }
    sem_post(&gate);
    while (sem_wait(&has_left))
        ;
    usleep(50000); /* the thread frees what it has */
}

static void no_memory_is_an_error_and_leaves_nothing(void **state)
{
    (void)state;
    EK_EACH_FAILURE (k) {
        struct ek_name names[] = {{.text = "known:1"}, {.text = "known:2"}};
        ek_assert_rc(ek_names_ask(names, 2, ask, 60000000));
        ek_free(names[0].list);
        ek_free(names[1].list);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_name_has_its_addresses_or_says_why_not),
        cmocka_unit_test(names_are_asked_for_at_once),
        cmocka_unit_test(more_names_than_threads_are_all_asked_for),
        cmocka_unit_test(one_that_hangs_costs_the_limit_and_the_others_are_taken),
        cmocka_unit_test(no_memory_is_an_error_and_leaves_nothing),
    };
    return cmocka_run_group_tests_name("names", tests, NULL, NULL);
}
