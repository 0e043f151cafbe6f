#include "route/simulate.h"
#include "testkit.h"

#include <math.h>
#include <stdio.h>

struct kit {
    struct ek_arena arena;
    struct ek_sim s;
    struct ek_err err;
};

/* A small pool and short phases; more keys as YAML. */
static int kit_open(struct kit *k, const char *more)
{
    char text[1024];
    const char *key;
    *k = (struct kit){.err = EK_ERR_INIT};
    ek_arena_init(&k->arena, 1 << 20);
    int n = snprintf(text, sizeof text,
                     "backends: 6\nwarmup: 3min\nphase: 90s\nseeds: 2\nnoisy: 1\n"
                     "scale_out: 1\nlost: 1\n%s",
                     more);
    int rc = ek_opt_keys_read(ek_sim_keys, &k->s, "s.yaml", text, (size_t)n, &k->arena,
                              &k->err);
    return rc ? rc : ek_sim_check(&k->s, &key, &k->arena, &k->err);
}

static struct ek_sim_result run_of(struct kit *k, const char *word, uint64_t seed)
{
    struct ek_sim_policy p;
    struct ek_sim_result r;
    assert_true(ek_sim_policy_find(&p, word));
    assert_int_equal(ek_sim_run(&r, NULL, &k->s, &p, seed, &k->err), 0);
    return r;
}

static void the_same_seed_gives_the_same_figures(void **state)
{
    (void)state;
    struct kit k;
    assert_int_equal(kit_open(&k, "proxies: 2\nloss: 0.1\ndelay: 400ms\n"), 0);
    for (size_t i = 0; i < k.s.policies.n; i++) {
        struct ek_sim_result a = run_of(&k, k.s.policies.items[i], 3);
        struct ek_sim_result b = run_of(&k, k.s.policies.items[i], 3);
        for (int p = 0; p < EK_SIM_PHASES; p++)
            assert_true(a.overloaded[p] == b.overloaded[p]);
        assert_true(a.peak == b.peak && a.misplaced == b.misplaced);
    }
    struct ek_sim_result a = run_of(&k, "round_robin", 3),
                         b = run_of(&k, "round_robin", 4);
    assert_true(a.overloaded[0] != b.overloaded[0] || a.peak != b.peak);
    ek_arena_release(&k.arena);
}

static void load_follows_what_is_asked(void **state)
{
    (void)state;
    struct kit k;
    assert_int_equal(kit_open(&k, "load: 0.05\n"), 0);
    struct ek_sim_result idle = run_of(&k, "least_sessions", 1);
    assert_true(idle.overloaded[0] == 0 && idle.peak < 1);
    ek_arena_release(&k.arena);
    assert_int_equal(kit_open(&k, "load: 3\n"), 0);
    struct ek_sim_result full = run_of(&k, "least_sessions", 1);
    assert_true(full.overloaded[2] > 0.9);
    ek_arena_release(&k.arena);
}

static void admission_refuses_what_does_not_fit(void **state)
{
    (void)state;
    struct kit k;
    assert_int_equal(kit_open(&k, "load: 2\nadmission: room\n"), 0);
    struct ek_sim_result ours = run_of(&k, "effective_capacity", 1);
    struct ek_sim_result all = run_of(&k, "least_sessions", 1);
    assert_true(ours.refused > 0.2 && all.refused == 0);
    assert_true(ours.overloaded[2] < all.overloaded[2] / 2);
    ek_arena_release(&k.arena);
}

/* The agent's line of the tracker is 0 % for who has no room: all at 0 %, none is left.
 * One that tells idle CPU turns nobody away. */
static void an_agent_that_tells_capacity_refuses_when_all_are_full(void **state)
{
    (void)state;
    struct kit k;
    assert_int_equal(kit_open(&k, "load: 2\n"), 0);
    struct ek_sim_result capacity = run_of(&k, "agent_capacity", 1);
    struct ek_sim_result cpu = run_of(&k, "agent_least_conn", 1);
    assert_true(capacity.refused > 0.2 && cpu.refused == 0);
    assert_true(capacity.overloaded[2] < cpu.overloaded[2]);
    ek_arena_release(&k.arena);
    assert_int_equal(kit_open(&k, "load: 0.1\n"), 0);
    assert_true(run_of(&k, "agent_capacity", 1).refused == 0);
    ek_arena_release(&k.arena);
}

/* Hosts that are lost take their sessions with them, which come again elsewhere: demand
 * of those left rises, that of the lost ones is no more. */
static void lost_hosts_are_seen_in_the_trace(void **state)
{
    (void)state;
    struct kit k;
    struct ek_sim_policy p;
    struct ek_sim_result r;
    struct ek_sim_trace t = {NULL, 0, 0};
    assert_int_equal(kit_open(&k, ""), 0);
    assert_true(ek_sim_policy_find(&p, "effective_capacity"));
    assert_int_equal(ek_sim_run(&r, &t, &k.s, &p, 1, &k.err), 0);
    assert_int_equal(t.n_seconds, 270);
    assert_int_equal(t.n_backends, 7);
    assert_true(t.at[10 * 7 + 6] == -1.0f); /* comes at the second phase */
    assert_true(t.at[100 * 7 + 6] >= 0.0f);
    assert_true(t.at[100 * 7 + 5] >= 0.0f); /* is lost at the third */
    assert_true(t.at[200 * 7 + 5] == -1.0f);
    struct ek_buf out;
    ek_buf_init(&out, 1 << 20);
    assert_int_equal(ek_sim_svg_traces(&out, &k.s, &t, &p, 1), 0);
    assert_non_null(strstr(out.data, "</svg>"));
    ek_buf_release(&out);
    ek_sim_trace_release(&t);
    ek_arena_release(&k.arena);
}

static void rows_are_compared_with_the_best_peer_and_the_oracle(void **state)
{
    (void)state;
    struct kit k;
    struct ek_sim_table t;
    assert_int_equal(
        kit_open(&k,
                 "load: 0.8\n"
                 "policies: [effective_capacity, round_robin, least_conn, oracle]\n"),
        0);
    assert_int_equal(ek_sim_measure(&t, &k.s, NULL, NULL, &k.err), 0);
    assert_int_equal(t.n_rows, 4);
    int best = t.best_peer[0];
    assert_true(best == 1 || best == 2);
    assert_true(t.rows[best].ratio[0].mean == 1 && t.rows[best].gap[0] == 0);
    assert_true(fabs(t.rows[3].gap[0] - 1) < 1e-9);
    struct ek_buf out;
    ek_buf_init(&out, 1 << 20);
    assert_int_equal(ek_sim_json(&out, &k.s, &t), 0);
    assert_non_null(strstr(out.data, "\"policy\": \"oracle\""));
    ek_buf_reset(&out);
    assert_int_equal(ek_sim_text(&out, &k.s, &t), 0);
    ek_buf_reset(&out);
    assert_int_equal(ek_sim_svg_bars(&out, &t), 0);
    assert_non_null(strstr(out.data, "</svg>"));
    ek_buf_release(&out);
    ek_arena_release(&k.arena);
}

static void scenarios_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"policies: [leastconn]\n", "did you mean 'least_conn'?"},
        {"policies: [zebra]\n", "'zebra' is none"},
        {"sessions: [{share: 0}]\n", "all shares are 0"},
        {"safety_factor: 0.5\n", "0.5 is below 1"},
        {"sessions: [{core: 1}]\n", "did you mean 'cores'?"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct kit k;
        if (kit_open(&k, bad[i][0]) != EK_EINVAL || !strstr(k.err.text, bad[i][1]))
            fail_msg("%s gave: %s", bad[i][0], k.err.text);
        ek_arena_release(&k.arena);
    }
}

static void memory_may_run_out(void **state)
{
    (void)state;
    EK_EACH_FAILURE_BY (n, 3) {
        struct kit k;
        struct ek_sim_policy p;
        struct ek_sim_result r;
        int rc = kit_open(&k, "");
        k.s.warmup_ms = 0;
        k.s.phase_ms = 1000;
        (void)ek_sim_policy_find(&p, "effective_capacity");
        if (!rc)
            rc = ek_sim_run(&r, NULL, &k.s, &p, 1, &k.err);
        ek_assert_rc(rc);
        ek_arena_release(&k.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_seed_gives_the_same_figures),
        cmocka_unit_test(load_follows_what_is_asked),
        cmocka_unit_test(admission_refuses_what_does_not_fit),
        cmocka_unit_test(an_agent_that_tells_capacity_refuses_when_all_are_full),
        cmocka_unit_test(lost_hosts_are_seen_in_the_trace),
        cmocka_unit_test(rows_are_compared_with_the_best_peer_and_the_oracle),
        cmocka_unit_test(scenarios_that_cannot_be_are_refused),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
