#include "sessionkit.h"
#include "testkit.h"

#include <pthread.h>

/* ---- Counting ---- */

static int leave_in_many_ways(struct ek_tracker *t, int way)
{
    for (int i = 0; i < 3; i++) {
        EK_SESSION_SCOPE(session, t);
        assert_true(session.id != 0);
        assert_int_equal(kit_read(t).active_sessions, 1);
        if (way == 0)
            return 1;
        if (way == 1)
            break;
        if (way == 2)
            goto out;
        if (way == 3)
            assert_true(
                ek_session_end(&session)); /* early; the scope's end is harmless */
    }
out:
    return 0;
}

static void a_scope_ends_its_session_whatever_the_way_out(void **state)
{
    (void)state;
    struct kit_time k = {0};
    struct ek_tracker_options o = kit_options(&k);
    struct ek_tracker *t = kit_new(&o);
    for (int way = 0; way < 5; way++) {
        leave_in_many_ways(t, way);
        assert_int_equal(kit_read(t).active_sessions, 0);
    }
    assert_int_equal(kit_read(t).begun_total, 3 + 2 * 3);
    ek_tracker_free(t);
}

static void ending_twice_from_any_copy_counts_once(void **state)
{
    (void)state;
    struct kit_time k = {0};
    struct ek_tracker_options o = kit_options(&k);
    struct ek_tracker *t = kit_new(&o);
    struct ek_session a, b, copy, none = EK_SESSION_NONE;
    kit_begin(t, &a, 1);
    copy = a;
    assert_true(ek_session_end(&copy));
    kit_begin(t, &b, 1); /* in the same place */
    assert_false(ek_session_end(&a));
    assert_false(ek_session_end(&copy));
    assert_false(ek_session_end(&none));
    assert_false(ek_session_extend(&a, SECOND));
    assert_true(ek_session_is_open(&b) && !ek_session_is_open(&a));
    assert_int_equal(kit_read(t).active_sessions, 1);
    ek_tracker_free(t);
}

static void a_forgotten_session_ends_after_twenty_minutes(void **state)
{
    (void)state;
    struct kit_time k = {0};
    struct ek_tracker_options o = kit_options(&k);
    struct ek_tracker *t = kit_new(&o);
    struct ek_session s[3];
    kit_begin(t, s, 2);
    k.now = 600 * SECOND;
    kit_begin(t, s + 2, 1);
    assert_true(ek_session_extend(&s[1], 1200 * SECOND));
    k.now = 1200 * SECOND - 1;
    assert_int_equal(kit_read(t).active_sessions, 3);
    k.now = 1200 * SECOND;
    struct ek_tracker_report r = kit_read(t);
    assert_int_equal(r.active_sessions, 2);
    assert_int_equal(r.expired_total, 1);
    assert_false(ek_session_end(&s[0]));
    k.now = 1800 * SECOND;
    assert_int_equal(kit_read(t).active_sessions, 0);
    assert_int_equal(kit_read(t).expired_total, 3);
    ek_tracker_free(t);
}

static void the_limit_refuses_and_late_sessions_do_not_hold_it(void **state)
{
    (void)state;
    struct kit_time k = {0};
    struct ek_tracker_options o = kit_options(&k);
    o.max_sessions = 2;
    struct ek_tracker *t = kit_new(&o);
    struct ek_session s[3];
    kit_begin(t, s, 2);
    assert_int_equal(ek_session_begin(t, &s[2]), EK_SESSION_EFULL);
    assert_false(ek_session_end(&s[2]));
    struct ek_tracker_report r = kit_read(t);
    assert_int_equal(r.refused_total, 1);
    assert_string_equal(r.binding, "sessions");
    assert_near(r.effective_capacity, 2);
    k.now = 1200 * SECOND; /* nobody reads, but the sessions are late */
    assert_int_equal(ek_session_begin(t, &s[2]), 0);
    assert_int_equal(kit_read(t).active_sessions, 1);
    assert_int_equal(ek_tracker_set_limit(t, 1), 0);
    assert_int_equal(ek_session_begin(t, &s[0]), EK_SESSION_EFULL);
    assert_int_equal(ek_tracker_set_limit(t, -1), EK_SESSION_EINVAL);
    assert_int_equal(ek_tracker_set_limit(t, 65537), EK_SESSION_EINVAL);
    assert_int_equal(ek_tracker_set_limit(t, 0), 0);
    assert_int_equal(kit_read(t).session_limit, 65536);
    ek_tracker_free(t);
}

static void a_draining_server_takes_no_session(void **state)
{
    (void)state;
    struct kit_time k = {0};
    struct ek_tracker_options o = kit_options(&k);
    struct ek_tracker *t = kit_new(&o);
    struct ek_session s[2];
    kit_begin(t, s, 1);
    ek_tracker_drain(t, true);
    assert_int_equal(ek_session_begin(t, &s[1]), EK_SESSION_EFULL);
    struct ek_tracker_report r = kit_read(t);
    assert_true(r.is_draining);
    assert_near(r.effective_capacity, 0);
    assert_near(r.remaining_sessions, -1);
    assert_int_equal(r.active_sessions, 1);
    ek_tracker_drain(t, false);
    kit_begin(t, s + 1, 1);
    assert_false(kit_read(t).is_draining);
    ek_tracker_free(t);
}

/* ---- Figures ---- */

static void the_report_follows_the_formula(void **state)
{
    (void)state;
    struct kit_time k = {0};
    struct ek_tracker_options o = kit_options(&k);
    o.base_cores = 0.2;
    struct ek_tracker *t = kit_new(&o);
    struct ek_session s[8];
    kit_begin(t, s, 8);
    assert_int_equal(ek_tracker_sample(t), 0); /* no time passed: n is 8 from here */
    kit_run(t, &k, 10, 1.0);
    kit_run(t, &k, 10, 1.8);
    /* cpu10 = (e^-1 * 1.0 + 1.8) / (e^-1 + 1) = 1.5848469
     * n10: 4 in the first 10 s (from 0 to 8), then 8: (e^-1 * 4 + 8) / (e^-1 + 1)
     *      = 6.9242343
     * cost = (1.5848469 - 0.2 + 1) / (6.9242343 + 10) = 0.1409131
     * cap = 8 + (3.2 - 1.5848469) / (2 * 0.1409131) = 13.7310273 */
    struct ek_tracker_report r = kit_read(t);
    assert_int_equal(r.active_sessions, 8);
    assert_int_equal(r.young_sessions, 0);
    assert_near(r.cpu_cores, 1.5848469);
    assert_near(r.mean_sessions, 6.9242343);
    assert_near(r.session_cost, 0.1409131);
    assert_near(r.safety_factor, 2);
    assert_near(r.effective_capacity, 13.7310273);
    assert_near(r.remaining_sessions, 5.7310273);
    assert_near(r.utilization, 8 / 13.7310273);
    assert_near(r.cpu_utilization, 1.5848469 / 4);
    assert_near(r.young_weight, 1 - exp(-1));
    assert_string_equal(r.binding, "cpu");
    assert_int_equal(r.age_us, 0);
    ek_tracker_free(t);
}

static void the_mean_is_as_good_and_says_so(void **state)
{
    (void)state;
    struct kit_time k = {0};
    struct ek_tracker_options o = kit_options(&k);
    o.smoothing = EK_TRACKER_MEAN;
    struct ek_tracker *t = kit_new(&o);
    struct ek_session s[10];
    kit_begin(t, s, 10);
    kit_run(t, &k, 10, 0);
    kit_run(t, &k, 5, 1.0);
    kit_run(t, &k, 5, 3.0);
    struct ek_tracker_report r = kit_read(t);
    /* cost = (2 + 1) / 20 = 0.15; cap = 10 + 1.2 / 0.3 = 14 */
    assert_near(r.cpu_cores, 2);
    assert_near(r.mean_sessions, 10);
    assert_near(r.effective_capacity, 14);
    assert_int_equal(r.smoothing, EK_TRACKER_MEAN);
    assert_near(r.young_weight, 0.5);
    ek_tracker_free(t);
}

/* Divided by n and not by its mean, the cost would be 1 / 30 and 48 more would fit. */
static void a_herd_of_new_sessions_does_not_look_cheap(void **state)
{
    (void)state;
    struct kit_time k = {0};
    struct ek_tracker_options o = kit_options(&k);
    struct ek_tracker *t = kit_new(&o);
    kit_run(t, &k, 60, 0);
    struct ek_session s[20];
    kit_begin(t, s, 20);
    struct ek_tracker_report r = kit_read(t);
    assert_int_equal(r.young_sessions, 20);
    assert_near(r.session_cost, 0.1);
    assert_near(r.remaining_sessions, 16);
    ek_tracker_free(t);
}

static void the_base_is_learned_from_an_idle_window(void **state)
{
    (void)state;
    struct kit_time k = {0};
    struct ek_tracker_options o = kit_options(&k);
    o.base_cores = EK_BASE_LEARN;
    o.smoothing = EK_TRACKER_MEAN;
    struct ek_tracker *t = kit_new(&o);
    for (int i = 0; i < 9; i++)
        kit_run(t, &k, 1, 0.5);
    assert_near(kit_read(t).base_cores, 0);
    for (int i = 0; i < 3; i++)
        kit_run(t, &k, 1, 0.5);
    assert_near(kit_read(t).base_cores, 0.5);
    struct ek_session s;
    kit_begin(t, &s, 1);
    kit_run(t, &k, 20, 2);
    assert_near(kit_read(t).base_cores, 0.5); /* no longer idle */
    ek_session_end(&s);
    for (int i = 0; i < 9; i++)
        kit_run(t, &k, 1, 1);
    kit_begin(t, &s, 1); /* between two samples: not idle for a window */
    ek_session_end(&s);
    kit_run(t, &k, 2, 1);
    assert_near(kit_read(t).base_cores, 0.5);
    for (int i = 0; i < 12; i++)
        kit_run(t, &k, 1, 1);
    assert_near(kit_read(t).base_cores, 1);
    ek_tracker_free(t);
}

/* Smoothed by EWMA, a third of what sessions took is left after a window. */
static void the_base_holds_nothing_of_sessions_that_ended(void **state)
{
    (void)state;
    struct kit_time k = {0};
    struct ek_tracker_options o = kit_options(&k);
    o.base_cores = EK_BASE_LEARN;
    o.smoothing = EK_TRACKER_EWMA;
    struct ek_tracker *t = kit_new(&o);
    struct ek_session s;
    kit_begin(t, &s, 1);
    for (int i = 0; i < 60; i++)
        kit_run(t, &k, 1, 8);
    ek_session_end(&s);
    for (int i = 0; i < 12; i++)
        kit_run(t, &k, 1, 0.5);
    assert_near(kit_read(t).base_cores, 0.5);
    ek_tracker_free(t);
}

static void the_auto_factor_uses_the_measured_variation(void **state)
{
    (void)state;
    struct kit_time k = {0};
    struct ek_tracker_options o = kit_options(&k);
    o.safety_factor = EK_FACTOR_AUTO;
    o.deadline_us = 7200 * SECOND;
    struct ek_tracker *t = kit_new(&o);
    assert_near(kit_read(t).safety_factor, 3); /* 1 + 2.33 * 1.41 / 1, clamped */
    struct ek_session s[25];
    kit_begin(t, s, 25);
    assert_near(kit_read(t).safety_factor, 1 + 2.33 * sqrt(2) / 5);
    for (int i = 0; i < 1200; i++)
        kit_run(t, &k, 1, 1); /* as even as can be */
    assert_near(kit_read(t).safety_factor, 1.1);
    for (int i = 0; i < 1200; i++)
        kit_run(t, &k, 1, i % 2 ? 2 : 0); /* CV of the sum 1, of a session 5 */
    struct ek_tracker_report r = kit_read(t);
    assert_true(r.variation > 4.8 && r.variation < 5.2);
    assert_near(r.safety_factor, fmin(3, 1 + 2.33 * r.variation / 5));
    ek_tracker_free(t);
}

static void what_others_take_of_the_machine_counts_if_wanted(void **state)
{
    (void)state;
    struct kit_dir dir;
    kit_dir_make(&dir);
    kit_write(&dir, "stat",
              "cpu  0 0 0 0 0 0 0 0\ncpu0\ncpu1\ncpu2\ncpu3\ncpu4\ncpu5\n");
    struct kit_time k = {0};
    struct ek_tracker_options o = kit_options(&k);
    o.proc_dir = dir.path;
    o.uses_host = true;
    struct ek_tracker *t = kit_new(&o);
    /* 10 s: 4.5 of 6 cores busy, 1 of them by us: 1.5 are left of our 4. */
    kit_write(&dir, "stat",
              "cpu  4500 0 0 1500 0 0 0 0\ncpu0\ncpu1\ncpu2\ncpu3\ncpu4\n"
              "cpu5\n");
    kit_run(t, &k, 10, 1);
    struct ek_tracker_report r = kit_read(t);
    assert_near(r.own_cores, 1);
    assert_near(r.cpu_cores, 2.5);
    kit_dir_remove(&dir);
    ek_tracker_free(t);
}

static void a_container_is_measured_by_its_cgroup_and_quota(void **state)
{
    (void)state;
    struct kit_dir dir;
    kit_dir_make(&dir);
    kit_write(&dir, "cpu.max", "50000 100000\n");
    kit_write(&dir, "cpu.stat", "usage_usec 1000000\n");
    struct kit_time k = {0};
    struct ek_tracker_options o = kit_options(&k);
    o.cpu_us = NULL;
    o.cores = 0;
    o.cgroup_dir = dir.path;
    struct ek_tracker *t = kit_new(&o);
    kit_write(&dir, "cpu.stat", "usage_usec 3000000\n");
    kit_run(t, &k, 10, 0);
    struct ek_tracker_report r = kit_read(t);
    assert_near(r.cores, 0.5);
    assert_near(r.cpu_cores, 0.2);
    kit_write(&dir, "cpu.max", "max 100000\n"); /* the quota may change in place */
    kit_run(t, &k, 1, 0);
    assert_true(kit_read(t).cores >= 1);
    ek_tracker_free(t);
    /* Without a quota the cgroup may hold others: AUTO means this process. */
    o.cpu = EK_TRACKER_CPU_AUTO;
    t = kit_new(&o);
    kit_write(&dir, "cpu.stat", "usage_usec 9000000000\n");
    k.now += 10 * SECOND;
    assert_true(kit_read(t).cpu_cores < 100);
    ek_tracker_free(t);
    o.cpu = EK_TRACKER_CPU_CGROUP;
    t = kit_new(&o);
    kit_write(&dir, "cpu.stat", "usage_usec 9001000000\n");
    kit_run(t, &k, 10, 0);
    assert_near(kit_read(t).cpu_cores, 0.1);
    ek_tracker_free(t);
    kit_dir_remove(&dir);
    char why[256];
    assert_int_equal(ek_tracker_new(&t, &o, why, sizeof why), EK_SESSION_EIO);
    assert_non_null(strstr(why, dir.path));
}

static void a_sample_that_fails_shows_as_its_age(void **state)
{
    (void)state;
    struct kit_time k = {0};
    struct ek_tracker_options o = kit_options(&k);
    struct ek_tracker *t = kit_new(&o);
    kit_run(t, &k, 10, 2);
    k.is_broken = true;
    k.now += 7 * SECOND;
    assert_int_equal(ek_tracker_sample(t), EK_SESSION_EIO);
    struct ek_tracker_report r = kit_read(t);
    assert_int_equal(r.age_us, 7 * SECOND);
    assert_near(r.cpu_cores, 2);
    ek_tracker_free(t);
    assert_int_equal(ek_tracker_new(&t, &o, NULL, 0), EK_SESSION_EIO);
}

static void reads_close_together_share_a_sample(void **state)
{
    (void)state;
    struct kit_time k = {0};
    struct ek_tracker_options o = kit_options(&k);
    o.sample_us = SECOND;
    struct ek_tracker *t = kit_new(&o);
    k.now = SECOND - 1;
    k.cpu = SECOND;
    assert_int_equal(kit_read(t).age_us, SECOND - 1);
    k.now = SECOND;
    assert_int_equal(kit_read(t).age_us, 0);
    ek_tracker_free(t);
}

/* ---- Resources ---- */

static int add(struct ek_tracker *t, const char *name, double total, double factor)
{
    struct ek_resource_options o;
    ek_tracker_resource_init(&o, sizeof o);
    o.name = name;
    o.total = total;
    o.safety_factor = factor;
    int id = -1;
    assert_int_equal(ek_tracker_add_resource(t, &o, &id), 0);
    return id;
}

static void the_scarcest_resource_bounds_and_is_named(void **state)
{
    (void)state;
    struct kit_time k = {0};
    struct ek_tracker_options o = kit_options(&k);
    struct ek_tracker *t = kit_new(&o);
    int pages = add(t, "kv_pages", 1000, 0), seats = add(t, "licences", 12, 1);
    assert_string_equal(kit_read(t).binding, "cpu"); /* 16; nothing is used */
    struct ek_session s[4];
    kit_begin(t, s, 4);
    /* 4 licences of 12: cap 4 + 8 / 1 = 12, less than CPU's 20.
     * 400 pages of 1000: cost 100; cap 4 + 600 / (100 * 2) = 7 */
    assert_int_equal(ek_tracker_set_resource(t, seats, 4, 12), 0);
    struct ek_tracker_report r = kit_read(t);
    assert_string_equal(r.binding, "licences");
    assert_near(r.effective_capacity, 12);
    assert_int_equal(ek_tracker_set_resource(t, pages, 400, 1000), 0);
    r = kit_read(t);
    assert_string_equal(r.binding, "kv_pages");
    assert_near(r.effective_capacity, 7);
    assert_near(r.remaining_sessions, 3);
    assert_near(r.utilization, 4.0 / 7);
    struct ek_resource_report x;
    assert_int_equal(ek_tracker_read_resource(t, seats, &x, sizeof x), 0);
    assert_near(x.session_cost, 1);
    assert_near(x.capacity, 12);
    assert_int_equal(ek_tracker_read_resource(t, 2, &x, sizeof x), EK_SESSION_EINVAL);
    ek_tracker_free(t);
}

static void cpu_bounds_nothing_where_it_tells_nothing(void **state)
{
    (void)state;
    struct kit_time k = {0};
    struct ek_tracker_options o = kit_options(&k);
    o.cpu = EK_TRACKER_CPU_NONE;
    struct ek_tracker *t = kit_new(&o);
    kit_run(t, &k, 60, 4); /* all cores */
    assert_string_equal(kit_read(t).binding, "sessions");
    assert_near(kit_read(t).cpu_utilization, 1);
    int seats = add(t, "seats", 8, 1);
    struct ek_session s[2];
    kit_begin(t, s, 2);
    assert_int_equal(ek_tracker_set_resource(t, seats, 2, 8), 0);
    assert_string_equal(kit_read(t).binding, "seats");
    assert_near(kit_read(t).effective_capacity, 8);
    ek_tracker_free(t);
}

static void resources_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    struct kit_time k = {0};
    struct ek_tracker_options o = kit_options(&k);
    struct ek_tracker *t = kit_new(&o);
    static const char *const bad[] = {"",
                                      "cpu",
                                      "sessions",
                                      "a b",
                                      "a\"",
                                      "a\n",
                                      "12345678901234567890123456789012345678901"};
    struct ek_resource_options x;
    ek_tracker_resource_init(&x, sizeof x);
    int id;
    x.total = 1;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        x.name = bad[i];
        assert_int_equal(ek_tracker_add_resource(t, &x, &id), EK_SESSION_EINVAL);
    }
    x.name = "a";
    x.total = 0;
    assert_int_equal(ek_tracker_add_resource(t, &x, &id), EK_SESSION_EINVAL);
    x.total = (double)NAN;
    assert_int_equal(ek_tracker_add_resource(t, &x, &id), EK_SESSION_EINVAL);
    char name[] = "a";
    for (int i = 0; i < EK_RESOURCE_MAX; i++, name[0]++)
        add(t, name, 1, 1);
    x.total = 1;
    assert_int_equal(ek_tracker_add_resource(t, &x, &id),
                     EK_SESSION_EINVAL); /* twice */
    x.name = "z";
    assert_int_equal(ek_tracker_add_resource(t, &x, &id), EK_SESSION_ESPACE);
    static const double values[][2] = {{-1, 1},
                                       {(double)NAN, 1},
                                       {1, 0},
                                       {(double)INFINITY, 1},
                                       {0, (double)INFINITY}};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        assert_int_equal(ek_tracker_set_resource(t, 0, values[i][0], values[i][1]),
                         EK_SESSION_EINVAL);
    assert_int_equal(ek_tracker_set_resource(t, -1, 0, 1), EK_SESSION_EINVAL);
    assert_int_equal(ek_tracker_set_resource(t, 8, 0, 1), EK_SESSION_EINVAL);
    ek_tracker_free(t);
}

/* ---- Options and ABI ---- */

static void refuse(const struct ek_tracker_options *o, const char *word)
{
    struct ek_tracker *t = NULL;
    char why[300] = "";
    assert_int_equal(ek_tracker_new(&t, o, why, sizeof why), EK_SESSION_EINVAL);
    assert_null(t);
    if (!strstr(why, word))
        fail_msg("'%s' does not name %s", why, word);
}

#define REFUSE(member, value, word)                                                    \
    do {                                                                               \
        struct ek_tracker_options o_ = kit_options(&k);                                \
        o_.member = value;                                                             \
        refuse(&o_, word);                                                             \
    } while (0)

static void bad_options_are_refused_with_a_sentence(void **state)
{
    (void)state;
    struct kit_time k = {0};
    REFUSE(max_sessions, -1, "max_sessions");
    REFUSE(max_sessions, 65537, "max_sessions");
    REFUSE(table_sessions, 0, "table_sessions");
    REFUSE(table_sessions, EK_SESSION_TABLE_MAX + 1, "table_sessions");
    REFUSE(deadline_us, 0, "deadline_us");
    REFUSE(window_us, 0, "window_us");
    REFUSE(sample_us, -1, "sample_us");
    REFUSE(thread_us, -1, "thread_us");
    REFUSE(cores, (double)NAN, "cores");
    REFUSE(target, 0, "target");
    REFUSE(target, 1.1, "target");
    REFUSE(prior_cost, 0, "prior_cost");
    REFUSE(prior_weight, 0, "prior_weight");
    REFUSE(safety_factor, 0.5, "safety_factor");
    REFUSE(safety_factor, (double)NAN, "safety_factor");
    REFUSE(z, (double)INFINITY, "z is");
    REFUSE(cpu, (enum ek_tracker_cpu)9, "cpu");
    REFUSE(smoothing, (enum ek_tracker_smoothing)2, "smoothing");
    REFUSE(orca_names[0], "a b", "orca_names[0]");
    REFUSE(orca_names[1], "active_sessions", "twice");
    REFUSE(orca_names[EK_ORCA_N_NAMES], "x", "there are");
    REFUSE(size, 0, "update the library");
}

/* What an application built with a later header hands over. */
struct later_options {
    struct ek_tracker_options o;
    int64_t unknown;
};

static void later_and_earlier_callers_are_understood(void **state)
{
    (void)state;
    struct kit_time k = {0};
    struct later_options later;
    ek_tracker_options_init(&later.o, sizeof later);
    assert_int_equal(later.unknown, 0);
    later.o.now_us = kit_now;
    later.o.cpu_us = kit_cpu;
    later.o.arg = &k;
    struct ek_tracker *t = kit_new(&later.o);
    unsigned char report[sizeof(struct ek_tracker_report) + 8];
    memset(report, 0xee, sizeof report);
    ek_tracker_read(t, (struct ek_tracker_report *)(void *)report, 24);
    assert_int_equal(report[24], 0xee); /* an earlier one: no byte more */
    ek_tracker_read(t, (struct ek_tracker_report *)(void *)report, sizeof report);
    assert_int_equal(report[sizeof report - 1], 0); /* unknown to us: zero */
    ek_tracker_free(t);
    later.unknown = 1; /* asks for what this library cannot do */
    refuse(&later.o, "update the library");
}

/* One whose header ended before `cgroup_dir`: nothing behind it is read. */
static void an_earlier_caller_gets_defaults_for_what_came_later(void **state)
{
    (void)state;
    union {
        struct ek_tracker_options o;
        unsigned char bytes[sizeof(struct ek_tracker_options)];
    } earlier;
    const size_t size = offsetof(struct ek_tracker_options, cgroup_dir);
    memset(earlier.bytes, 0xee, sizeof earlier.bytes);
    ek_tracker_options_init(&earlier.o, size);
    assert_int_equal(earlier.bytes[size], 0xee);
    earlier.o.cpu = EK_TRACKER_CPU_NONE;
    earlier.o.table_sessions = 3;
    struct ek_tracker *t = kit_new(&earlier.o);
    struct ek_tracker_report r;
    ek_tracker_read(t, &r, sizeof r);
    assert_int_equal(r.session_limit, 3);
    ek_tracker_free(t);
    struct ek_resource_options x;
    memset(&x, 0xee, sizeof x);
    ek_tracker_resource_init(&x, offsetof(struct ek_resource_options, prior_cost));
    x.name = "gpu";
    x.total = 1;
    t = kit_new(&earlier.o);
    int id;
    assert_int_equal(ek_tracker_add_resource(t, &x, &id), 0);
    ek_tracker_free(t);
}

static void failed_memory_is_an_error(void **state)
{
    (void)state;
    struct kit_time k = {0};
    struct ek_tracker_options o = kit_options(&k);
    EK_EACH_FAILURE (i) {
        struct ek_tracker *t = NULL;
        ek_assert_rc(ek_tracker_new(&t, &o, NULL, 0));
        ek_tracker_free(t);
    }
    ek_tracker_free(NULL);
}

/* ---- Threads ---- */

enum { N_THREADS = 4, N_ROUNDS = 20000 };

static void *talk(void *arg)
{
    struct ek_tracker *t = arg;
    struct ek_session kept[16];
    memset(kept, 0, sizeof kept);
    for (int i = 0; i < N_ROUNDS; i++) {
        struct ek_session *s = &kept[i % 16];
        if (s->id)
            ek_session_end(s);
        EK_SESSION_SCOPE(session, t);
        if (ek_session_begin(t, s))
            continue;
        if (i % 5 == 0)
            ek_session_extend(s, 100 * SECOND);
        if (i % 1000 == 0) {
            ek_tracker_set_resource(t, 0, i % 100, 100);
            ek_tracker_set_limit(t, i % 2000 ? 40 : 0);
            ek_tracker_drain(t, i % 3000 == 0);
        }
    }
    for (int i = 0; i < 16; i++)
        ek_session_end(&kept[i]);
    return NULL;
}

static void threads_leave_nothing_behind(void **state)
{
    (void)state;
    struct ek_tracker_options o;
    ek_tracker_options_init(&o, sizeof o);
    o.sample_us = 0;
    o.thread_us = 1000; /* its own thread samples beside us */
    struct ek_tracker *t = kit_new(&o);
    add(t, "pages", 100, 1);
    pthread_t threads[N_THREADS];
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, talk, t), 0);
    for (int i = 0; i < 200; i++) {
        struct ek_tracker_report r = kit_read(t);
        char text[EK_TRACKER_ENCODED_MAX];
        size_t len;
        assert_true(r.active_sessions >= 0 && r.active_sessions <= N_THREADS * 17);
        assert_near(r.remaining_sessions,
                    r.effective_capacity - (double)r.active_sessions);
        assert_int_equal(ek_tracker_encode(t, (enum ek_tracker_encoding)(i % 9), text,
                                           sizeof text, &len),
                         0);
    }
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    struct ek_tracker_report r = kit_read(t);
    assert_int_equal(r.active_sessions, 0);
    assert_int_equal(r.expired_total, 0);
    assert_int_equal(r.begun_total + r.refused_total, 2 * N_THREADS * N_ROUNDS);
    ek_tracker_free(t);
}

static void the_thread_samples_without_being_read(void **state)
{
    (void)state;
    struct ek_tracker_options o;
    ek_tracker_options_init(&o, sizeof o);
    o.thread_us = 2000;
    o.sample_us = 3600 * SECOND; /* reads do not */
    struct ek_tracker *t = kit_new(&o);
    int64_t first = kit_read(t).now_us - kit_read(t).age_us;
    for (int i = 0; i < 2000; i++) {
        struct ek_tracker_report r = kit_read(t);
        if (r.now_us - r.age_us > first + 4000)
            break;
        usleep(2000);
        assert_true(i < 1999);
    }
    ek_tracker_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_scope_ends_its_session_whatever_the_way_out),
        cmocka_unit_test(ending_twice_from_any_copy_counts_once),
        cmocka_unit_test(a_forgotten_session_ends_after_twenty_minutes),
        cmocka_unit_test(the_limit_refuses_and_late_sessions_do_not_hold_it),
        cmocka_unit_test(a_draining_server_takes_no_session),
        cmocka_unit_test(the_report_follows_the_formula),
        cmocka_unit_test(the_mean_is_as_good_and_says_so),
        cmocka_unit_test(a_herd_of_new_sessions_does_not_look_cheap),
        cmocka_unit_test(the_base_is_learned_from_an_idle_window),
        cmocka_unit_test(the_base_holds_nothing_of_sessions_that_ended),
        cmocka_unit_test(the_auto_factor_uses_the_measured_variation),
        cmocka_unit_test(what_others_take_of_the_machine_counts_if_wanted),
        cmocka_unit_test(a_container_is_measured_by_its_cgroup_and_quota),
        cmocka_unit_test(a_sample_that_fails_shows_as_its_age),
        cmocka_unit_test(reads_close_together_share_a_sample),
        cmocka_unit_test(the_scarcest_resource_bounds_and_is_named),
        cmocka_unit_test(cpu_bounds_nothing_where_it_tells_nothing),
        cmocka_unit_test(resources_that_make_no_sense_are_refused),
        cmocka_unit_test(bad_options_are_refused_with_a_sentence),
        cmocka_unit_test(later_and_earlier_callers_are_understood),
        cmocka_unit_test(an_earlier_caller_gets_defaults_for_what_came_later),
        cmocka_unit_test(failed_memory_is_an_error),
        cmocka_unit_test(threads_leave_nothing_behind),
        cmocka_unit_test(the_thread_samples_without_being_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
