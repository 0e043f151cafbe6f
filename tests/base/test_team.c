#include "base/team.h"
#include "base/team_int.h"
#include "testkit.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

static struct ek_team *new_team(int n, bool is_pinned)
{
    struct ek_team *team = NULL;
    struct ek_err err = EK_ERR_INIT;
    assert_int_equal(ek_team_new(&team, n, is_pinned, &err), 0);
    return team;
}

struct marks {
    int n[256];
    int n_members;
};

static void mark(void *arg, int member, int n_members)
{
    struct marks *m = arg;
    m->n[member]++; /* plain: a member owns its mark, and the caller reads them after */
    if (member == 0)
        m->n_members = n_members;
}

static void every_member_runs_once_a_run(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++) {
        struct ek_team *team = new_team(n, n % 2);
        assert_int_equal(ek_team_size(team), n);
        struct marks m = {.n = {0}};
        for (int run = 1; run <= 300; run++) {
            ek_team_run(team, mark, &m);
            for (int i = 0; i < 256; i++)
                assert_int_equal(m.n[i], i < n ? run : 0);
            assert_int_equal(m.n_members, n);
        }
        ek_team_free(team);
    }
}

struct relay {
    struct ek_team *team;
    int64_t cell[32];
    int64_t n_rounds;
    int n_wrong;
};

/* Each round every member writes its cell and then reads all: a barrier that lets one
 * through early, or hides a write, shows as a wrong sum (and TSan sees a race). */
static void relay_rounds(void *arg, int member, int n_members)
{
    struct relay *r = arg;
    int n_wrong = 0;
    for (int64_t round = 1; round <= r->n_rounds; round++) {
        r->cell[member] = round * (member + 1);
        ek_team_barrier(r->team, member);
        int64_t sum = 0, want = 0;
        for (int i = 0; i < n_members; i++) {
            sum += r->cell[i];
            want += round * (i + 1);
        }
        n_wrong += sum != want;
        ek_team_barrier(r->team, member);
    }
    r->cell[member] = n_wrong;
}

static void barrier_holds_all_and_shows_all_writes(void **state)
{
    (void)state;
    /* More than eight count in two stages; 9, 17: eights of one. */
    static const int sizes[] = {1, 2, 3, 4, 8, 9, 17, 24};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int n = sizes[i];
        struct relay r = {.team = new_team(n, false), .n_rounds = n <= 4 ? 200 : 30};
        ek_team_run(r.team, relay_rounds, &r);
        for (int m = 0; m < n; m++)
            assert_int_equal(r.cell[m], 0);
        ek_team_free(r.team);
    }
}

static void members_that_fell_asleep_wake_up(void **state)
{
    (void)state;
    struct ek_team *team = new_team(3, true);
    struct marks m = {.n = {0}};
    for (int run = 1; run <= 10; run++) {
        usleep(2000); /* far longer than the spin */
        ek_team_run(team, mark, &m);
        for (int i = 0; i < 3; i++)
            assert_int_equal(m.n[i], run);
    }
    ek_team_free(team);
}

static void nap(void *arg, int member, int n_members)
{
    (void)arg;
    if (member == n_members - 1)
        usleep(3000);
}

static void caller_waits_for_the_slowest(void **state)
{
    (void)state;
    struct ek_team *team = new_team(2, false);
    struct marks m = {.n = {0}};
    for (int run = 1; run <= 5; run++) {
        ek_team_run(team, nap, NULL); /* the caller sleeps at the barrier */
        ek_team_run(team, mark, &m);
        assert_int_equal(m.n[1], run);
    }
    ek_team_free(team);
}

static void *run_elsewhere(void *arg)
{
    ek_team_run(arg, nap, NULL);
    return NULL;
}

static void another_thread_may_be_the_caller(void **state)
{
    (void)state;
    struct ek_team *team = new_team(2, true);
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, run_elsewhere, team), 0);
    pthread_join(t, NULL);
    ek_team_run(team, nap, NULL);
    ek_team_free(team);
}

static void an_idle_team_costs_no_cpu(void **state)
{
    (void)state;
    struct ek_team *team = new_team(2, false);
    ek_team_run(team, nap, NULL);
    /* A loaded machine may not have let the member spin to its end yet: look again. */
    int64_t us = INT64_MAX;
    for (int i = 0; i < 50 && us >= 20000; i++) {
        struct timespec a, b;
        usleep(20000); /* the spin is over */
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
        usleep(100000);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
        us = (b.tv_sec - a.tv_sec) * 1000000 + (b.tv_nsec - a.tv_nsec) / 1000;
    }
    assert_true(us < 20000); /* a spinning member would take all 100 ms */
    ek_team_free(team);
}

static void zero_threads_means_the_cores_allowed(void **state)
{
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    struct ek_team *team = new_team(0, true);
    assert_in_range(ek_team_size(team), 1, CPU_COUNT(&all));
    ek_team_free(team);

    int cpu = 0;
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    team = new_team(0, true);
    int n = ek_team_size(team);
    ek_team_free(team);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_int_equal(n, 1);
}

static void a_containers_share_of_time_counts_in_processors(void **state)
{
    (void)state;
    assert_int_equal(ek_quota_parse("200000 100000\n"), 2);
    assert_int_equal(ek_quota_parse("150000 100000\n"), 2);
    assert_int_equal(ek_quota_parse("50000 100000\n"), 1);
    assert_int_equal(ek_quota_parse("max 100000\n"), 0);
    assert_int_equal(ek_quota_parse(""), 0);
    assert_int_equal(ek_quota_parse("0 0"), 0);
    assert_int_equal(ek_quota_parse("-1 100000"), 0);
    assert_int_equal(ek_quota_parse("9223372036854775807 1"), 0);
}

static void the_caller_keeps_its_affinity(void **state)
{
    (void)state;
    cpu_set_t before, after;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    struct ek_team *team = new_team(0, true);
    ek_team_run(team, nap, NULL);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    ek_team_free(team);
    assert_true(CPU_EQUAL(&before, &after));
}

/* Where the caller stands on a member's processor it must move, or stay when it is
 * bound there; its mask is the same afterwards in both cases. */
static void a_caller_on_a_members_processor_keeps_its_affinity(void **state)
{
    (void)state;
    cpu_set_t all, one, after;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    struct ek_team *team = new_team(0, true);
    struct marks m = {.n = {0}};
    int n_runs = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all))
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
        ek_team_run(team, mark, &m);
        assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
        assert_true(CPU_EQUAL(&one, &after));
        assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
        ek_team_run(team, mark, &m);
        assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
        assert_true(CPU_EQUAL(&all, &after));
        n_runs += 2;
        assert_int_equal(m.n[0], n_runs);
    }
    ek_team_free(team);
}

static void too_many_threads_are_refused_with_both_numbers(void **state)
{
    (void)state;
    struct ek_team *team = NULL;
    struct ek_err err = EK_ERR_INIT;
    assert_int_equal(ek_team_new(&team, 257, false, &err), EK_ELIMIT);
    assert_null(team);
    assert_non_null(strstr(err.text, "257"));
    assert_non_null(strstr(err.text, "256"));
    ek_team_free(NULL);
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    EK_EACH_FAILURE (k) {
        struct ek_team *team = NULL;
        ek_assert_rc(ek_team_new(&team, 2, false, NULL));
        ek_team_free(team);
    }
}

/* The shares of n in grains must cover [0,n) in order and differ by one grain. */
static void check_shares(int64_t n, int64_t grain, int n_members)
{
    int64_t at = 0, least = INT64_MAX, most = 0;
    for (int i = 0; i < n_members; i++) {
        int64_t lo = -1, hi = -1;
        ek_team_share(&lo, &hi, n, grain, i, n_members);
        assert_int_equal(lo, at);
        assert_true(hi >= lo && hi <= n);
        assert_true(lo % grain == 0 || lo == n);
        assert_true(hi % grain == 0 || hi == n);
        int64_t grains = (hi - lo) / grain + ((hi - lo) % grain != 0);
        least = grains < least ? grains : least;
        most = grains > most ? grains : most;
        at = hi;
    }
    assert_int_equal(at, n);
    assert_true(most - least <= 1);
}

static void shares_cover_all_once_and_evenly(void **state)
{
    (void)state;
    for (int64_t n = 0; n <= 70; n++)
        for (int64_t grain = 1; grain <= 17; grain++)
            for (int members = 1; members <= 9; members++)
                check_shares(n, grain, members);
    check_shares(INT64_MAX, 1, 256);
    check_shares(INT64_MAX, 64, 7);
    check_shares(INT64_MAX, INT64_MAX, 3);
    check_shares(INT64_MAX, INT64_MAX - 1, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_member_runs_once_a_run),
        cmocka_unit_test(barrier_holds_all_and_shows_all_writes),
        cmocka_unit_test(members_that_fell_asleep_wake_up),
        cmocka_unit_test(caller_waits_for_the_slowest),
        cmocka_unit_test(another_thread_may_be_the_caller),
        cmocka_unit_test(an_idle_team_costs_no_cpu),
        cmocka_unit_test(zero_threads_means_the_cores_allowed),
        cmocka_unit_test(a_containers_share_of_time_counts_in_processors),
        cmocka_unit_test(the_caller_keeps_its_affinity),
        cmocka_unit_test(a_caller_on_a_members_processor_keeps_its_affinity),
        cmocka_unit_test(too_many_threads_are_refused_with_both_numbers),
        cmocka_unit_test(no_memory_is_an_error),
        cmocka_unit_test(shares_cover_all_once_and_evenly),
    };
    return cmocka_run_group_tests_name("team", tests, NULL, NULL);
}
