/* Which thread gets a client: mailboxes of reactors that do not run. */
#include "route/reactor.h"
#include "testkit.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

enum { N_REACTORS = 4, N_GIVERS = 4, GIVEN = 50 };

struct fixture {
    struct ek_route_config config;
    struct ek_router router;
    struct ek_shared_ptr upstream;
    struct ek_reactor *reactors[N_REACTORS];
};

static int setup(void **state)
{
    struct fixture *f = ek_calloc(1, sizeof *f);
    struct ek_router *r = &f->router;
    ek_route_config_default(&f->config);
    ek_shared_ptr_set(&r->config, &f->config);
    ek_link_init(&r->graced);
    r->upstreams = &f->upstream;
    r->n_upstreams = 1;
    r->reactors = f->reactors;
    for (; r->n_reactors < N_REACTORS; r->n_reactors++)
        assert_int_equal(ek_reactor_new(&f->reactors[r->n_reactors], r,
                                        (int64_t)r->n_reactors, NULL),
                         0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < N_REACTORS; i++)
        ek_reactor_free(f->reactors[i]);
    ek_free(f);
    return 0;
}

static void give(struct fixture *f, int n)
{
    for (int i = 0; i < n; i++) {
        struct ek_mail m = {.fd = open("/dev/null", O_RDONLY | O_CLOEXEC)};
        assert_true(m.fd >= 0);
        assert_true(ek_reactor_give(ek_reactor_least(&f->router), &m));
    }
}

static size_t most(const struct fixture *f)
{
    size_t n = 0;
    for (size_t i = 0; i < N_REACTORS; i++)
        n = f->reactors[i]->n_mail > n ? f->reactors[i]->n_mail : n;
    return n;
}

static size_t least(const struct fixture *f)
{
    size_t n = SIZE_MAX;
    for (size_t i = 0; i < N_REACTORS; i++)
        n = f->reactors[i]->n_mail < n ? f->reactors[i]->n_mail : n;
    return n;
}

static void a_burst_that_nobody_has_looked_at_is_spread_evenly(void **state)
{
    struct fixture *f = *state;
    give(f, 4 * GIVEN + 2);
    assert_int_equal(least(f), GIVEN);
    assert_int_equal(most(f), GIVEN + 1);
}

static void who_has_clients_already_gets_fewer(void **state)
{
    struct fixture *f = *state;
    ek_counter_set(&f->reactors[1]->n_conns, GIVEN);
    give(f, 3 * GIVEN);
    assert_int_equal(f->reactors[1]->n_mail, 0);
    assert_int_equal(most(f), GIVEN);
}

static void *give_some(void *arg)
{
    give(arg, GIVEN);
    return NULL;
}

/* Between the look and the hand-over of one, others may give: one more each at most. */
static void threads_that_give_at_once_spread_it_too(void **state)
{
    struct fixture *f = *state;
    pthread_t threads[N_GIVERS];
    for (size_t i = 0; i < N_GIVERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, give_some, f), 0);
    for (size_t i = 0; i < N_GIVERS; i++)
        pthread_join(threads[i], NULL);
    assert_in_range(most(f) - least(f), 0, N_GIVERS + 1);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_burst_that_nobody_has_looked_at_is_spread_evenly),
        T(who_has_clients_already_gets_fewer),
        T(threads_that_give_at_once_spread_it_too),
    };
    return cmocka_run_group_tests_name("reactor", tests, NULL, NULL);
}
