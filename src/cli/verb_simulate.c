/* verb_simulate.c - keel simulate: policies against modelled backends. */
#include "base/file.h"
#include "cli/progress.h"
#include "cli/verb.h"
#include "route/simulate.h"

#include <stdio.h>

#define ARENA_BYTES   (4u << 20)
#define MAX_OUT_BYTES (32u << 20)

struct settings {
    struct ek_sim sim; /* first: the keys' offsets are its own */
    bool json, check;
    const char *svg, *trace;
};

#define AT(member) .offset = offsetof(struct settings, member)

static const struct ek_opt opts[] = {
    EK_VERB_JSON(offsetof(struct settings, json)),
    {.name = "svg",
     .type = EK_OPT_STR,
     AT(svg),
     .value = "FILE",
     .help = "draw overloaded session-time of every policy, with its error"},
    {.name = "trace",
     .type = EK_OPT_STR,
     AT(trace),
     .value = "FILE",
     .help = "draw demand over cores of every backend in time, of the first seed"},
    {.name = "check",
     .type = EK_OPT_FLAG,
     .is_flag_only = true,
     AT(check),
     .help = "read the scenario and say whether it is right"},
    {0},
};

static const struct ek_opt_verb table = {
    .name = "simulate",
    .summary = "measure balancing policies against modelled backends",
    .arguments = "[SCENARIO]",
    .details =
        "Runs the proxy's own pool and the tracker's own reports against backends "
        "whose "
        "sessions switch on and off, step by step: a steady phase, one after backends "
        "came, one after some were lost and their sessions came again. The same "
        "scenario and seed give the same figures. Overloaded is the share of "
        "session-time at a backend whose demand is over its cores. The oracle knows "
        "what every session is and does; gap is the share closed of what lies between "
        "the best peer and it.",
    .examples = "keel simulate\n"
                "keel simulate configs/route/spike.yaml --trace spike.svg\n"
                "keel simulate --set interval=10s --set seeds=4 --json",
    .opts = opts,
    .keys = ek_sim_keys,
    .is_config_first = true,
    .min_args = 0,
    .max_args = 1,
};

static void on_run(void *arg, int64_t n_done, int64_t n_runs)
{
    ek_progress_show(arg, n_done, n_runs, NULL);
}

static int draw_traces(struct ek_buf *out, const struct ek_sim *s, struct ek_err *err)
{
    struct ek_sim_trace traces[EK_SIM_POLICIES_MAX] = {{0}};
    struct ek_sim_policy policies[EK_SIM_POLICIES_MAX];
    struct ek_sim_result result;
    int rc = 0;
    for (size_t i = 0; !rc && i < s->policies.n; i++) {
        (void)ek_sim_policy_find(&policies[i], s->policies.items[i]);
        rc = ek_sim_run(&result, &traces[i], s, &policies[i], (uint64_t)s->seed, err);
    }
    if (!rc)
        rc = ek_sim_svg_traces(out, s, traces, policies, s->policies.n);
    for (size_t i = 0; i < s->policies.n; i++)
        ek_sim_trace_release(&traces[i]);
    return rc;
}

static int save(const struct settings *set, const struct ek_sim_table *t,
                struct ek_err *err)
{
    struct ek_buf out;
    ek_buf_init(&out, MAX_OUT_BYTES);
    int rc = 0;
    if (set->svg) {
        rc = ek_sim_svg_bars(&out, t);
        rc = rc ? rc : ek_file_write(set->svg, out.data, out.len, err);
    }
    ek_buf_reset(&out);
    if (!rc && set->trace) {
        rc = draw_traces(&out, &set->sim, err);
        rc = rc ? rc : ek_file_write(set->trace, out.data, out.len, err);
    }
    ek_buf_release(&out);
    return rc;
}

static int print(const struct settings *set, const struct ek_sim_table *t,
                 struct ek_err *err)
{
    struct ek_buf out;
    ek_buf_init(&out, MAX_OUT_BYTES);
    int rc =
        set->json ? ek_sim_json(&out, &set->sim, t) : ek_sim_text(&out, &set->sim, t);
    if (!rc && (fwrite(out.data, 1, out.len, stdout) != out.len || fflush(stdout)))
        rc = EK_EIO;
    ek_buf_release(&out);
    return rc ? ek_err_set(err, rc, "the table: %s", ek_status_text(rc)) : 0;
}

static int measure(const struct settings *set)
{
    struct ek_sim_table t;
    struct ek_err err = EK_ERR_INIT;
    struct ek_progress progress;
    ek_progress_begin(&progress, "simulating", false);
    int rc = ek_sim_measure(&t, &set->sim, on_run, &progress, &err);
    ek_progress_end(&progress);
    if (!rc)
        rc = print(set, &t, &err);
    if (!rc)
        rc = save(set, &t, &err);
    return rc ? ek_verb_fail(&ek_verb_simulate, &err, false) : EK_EXIT_OK;
}

static int run(int argc, char **argv)
{
    struct settings set = {0};
    struct ek_opt_args args;
    struct ek_arena arena;
    struct ek_err err = EK_ERR_INIT;
    const char *key;
    char place[512];
    int code = EK_EXIT_OK;
    ek_arena_init(&arena, ARENA_BYTES);
    if (ek_verb_options(&ek_verb_simulate, &set, &args, argc, argv, &arena, &code)) {
        if (ek_sim_check(&set.sim, &key, &arena, &err)) {
            ek_opt_place(place, &table, &args, key);
            fprintf(stderr, "keel simulate: %s%s\n", place, err.text);
            code = EK_EXIT_USAGE;
        } else if (!set.check) {
            code = measure(&set);
        }
    }
    ek_arena_release(&arena);
    return code;
}

const struct ek_verb ek_verb_simulate = {&table, run};
