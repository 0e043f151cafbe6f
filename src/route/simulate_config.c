/* simulate_config.c - the keys of a scenario, and what they cannot say. */
#include "route/simulate.h"

#include <math.h>
#include <string.h>

#define AT(m) .offset = offsetof(struct ek_sim, m)
#define INT(key, m, text, lo, hi, words)                                               \
    {                                                                                  \
        .name = (key), .type = EK_OPT_INT, AT(m), .fallback = (text), .min = (lo),     \
        .max = (hi), .help = (words)                                                   \
    }
#define REAL(key, m, text, lo, hi, words)                                              \
    {                                                                                  \
        .name = (key), .type = EK_OPT_REAL, AT(m), .fallback = (text), .min = (lo),    \
        .max = (hi), .help = (words)                                                   \
    }
#define TIME(key, m, text, lo, hi, words)                                              \
    {                                                                                  \
        .name = (key), .type = EK_OPT_MS, AT(m), .fallback = (text), .min = (lo),      \
        .max = (hi), .help = (words)                                                   \
    }

#define HOUR_MS 3600e3
#define DAY_MS  86400e3

#define CLASS(m) .offset = offsetof(struct ek_sim_class, m)
static const struct ek_opt class_keys[] = {
    {.name = "share",
     .type = EK_OPT_REAL,
     CLASS(share),
     .fallback = "1",
     .max = 1e6,
     .help = "of starts, against the other kinds"},
    {.name = "cores",
     .type = EK_OPT_REAL,
     CLASS(cores),
     .fallback = "0.131",
     .max = 1024,
     .help = "CPU while it is on"},
    {.name = "duty",
     .type = EK_OPT_REAL,
     CLASS(duty),
     .fallback = "0.333",
     .max = 1,
     .help = "share of the time that it is on"},
    {.name = "on",
     .type = EK_OPT_MS,
     CLASS(on_ms),
     .fallback = "10s",
     .min = 1,
     .max = DAY_MS,
     .help = "mean spell of being on"},
    {.name = "duration",
     .type = EK_OPT_MS,
     CLASS(duration_ms),
     .fallback = "4min",
     .min = 1,
     .max = DAY_MS,
     .help = "median; lognormal"},
    {.name = "sigma",
     .type = EK_OPT_REAL,
     CLASS(sigma),
     .fallback = "1",
     .max = 5,
     .help = "deviation of the duration's logarithm"},
    {.name = "duration_max",
     .type = EK_OPT_MS,
     CLASS(duration_max_ms),
     .fallback = "20min",
     .min = 1,
     .max = DAY_MS,
     .help = "longer ones are cut off"},
    {.name = "start_cores",
     .type = EK_OPT_REAL,
     CLASS(start_cores),
     .fallback = "0.5",
     .max = 1024,
     .help = "CPU that its start costs beside"},
    {.name = "start",
     .type = EK_OPT_MS,
     CLASS(start_ms),
     .fallback = "2s",
     .max = HOUR_MS,
     .help = "for so long"},
    {.name = "speak_at",
     .type = EK_OPT_MS,
     CLASS(speak_at_ms),
     .fallback = "0s",
     .max = DAY_MS,
     .help = "silent until then, counted from the end of the warm-up, then on; 0s: on "
             "and off by duty"},
    {0},
};

const struct ek_opt ek_sim_keys[] = {
    INT("backends", backends, "20", 1, 1000, "at the start"),
    REAL("large_share", large_share, "0.3", 0, 1, "of them with large_cores"),
    REAL("cores", cores, "4", 0.01, 4096, "of a backend"),
    REAL("large_cores", large_cores, "8", 0.01, 4096, "of a large one"),
    INT("noisy", noisy, "2", 0, 1000, "backends whose neighbours take CPU"),
    REAL("noise_cores", noise_cores, "1.5", 0, 4096,
         "so much, in spells of a minute, half of the time"),
    REAL("load", load, "0.7", 0, 10,
         "mean demand over cores; 0: `arrivals` says how many start"),
    REAL("arrivals", arrivals, "1", 0.0001, 100000, "starts a second, with load: 0"),
    {.name = "sessions",
     .type = EK_OPT_ITEMS,
     AT(sessions),
     .item_keys = class_keys,
     .item_size = sizeof(struct ek_sim_class),
     .help = "kinds of sessions; default: 80 % light ones of 0.131 cores, 20 % heavy "
             "ones of 0.524, on a third of the time"},
    TIME("interval", interval_ms, "2s", 200, HOUR_MS, "between two reports"),
    TIME("delay", delay_ms, "0s", 0, HOUR_MS, "of a report on its way"),
    REAL("loss", loss, "0", 0, 1, "share of reports that do not arrive"),
    REAL("safety_factor", factor, "2", 0, 10,
         "the backends', 1 to 10; 0: by variation and count"),
    REAL("prior_cost", prior_cost, "0.1", 0.0001, 1024,
         "cores of a session before one was seen"),
    INT("proxies", proxies, "1", 1, 16, "that place sessions, each by what it knows"),
    {.name = "admission",
     .type = EK_OPT_CHOICE,
     AT(admission),
     .fallback = "all",
     .choices = "all|room",
     .help = "all: every session is placed; room: effective_capacity refuses when no "
             "backend has room"},
    TIME("warmup", warmup_ms, "20min", 0, DAY_MS, "that is not measured"),
    TIME("phase", phase_ms, "10min", 1000, DAY_MS, "length of each of three phases"),
    INT("scale_out", scale_out, "4", 0, 1000, "backends that come at the second phase"),
    REAL("scale_out_load", scale_out_load, "1.25", 0.01, 100,
         "starts from then on, over those before"),
    INT("lost", lost, "2", 0, 1000, "backends lost at the third phase"),
    TIME("reconnect", reconnect_ms, "5s", 0, HOUR_MS,
         "within which their sessions come again"),
    INT("seeds", seeds, "10", 1, 100, "runs of each policy"),
    INT("seed", seed, "1", 0, 1e9, "of the first run"),
    {.name = "policies",
     .type = EK_OPT_LIST,
     AT(policies),
     .value = "NAME",
     .help = "what is run; default: every policy and rule, and the oracle"},
    {0},
};

static const char *const all_policies[] = {
    "effective_capacity", "least_sessions",   "two_choices",    "weighted_random",
    "round_robin",        "least_conn",       "least_cpu",      "two_choices_cpu",
    "orca_wrr",           "agent_least_conn", "agent_capacity", "oracle",
};

static int add_classes(struct ek_sim *s, struct ek_arena *arena, struct ek_err *err)
{
    /* A heavy one is four light ones: the deviation of the mix is 1.94 of its mean, and
     * 40 fit a backend of 4 cores at the default load. */
    static const struct ek_sim_class kinds[2] = {
        {.share = 0.8,
         .cores = 0.131,
         .duty = 1.0 / 3,
         .on_ms = 10000,
         .duration_ms = 240000,
         .sigma = 1,
         .duration_max_ms = 1200000,
         .start_cores = 0.5,
         .start_ms = 2000},
        {.share = 0.2,
         .cores = 0.524,
         .duty = 1.0 / 3,
         .on_ms = 10000,
         .duration_ms = 240000,
         .sigma = 1,
         .duration_max_ms = 1200000,
         .start_cores = 0.5,
         .start_ms = 2000},
    };
    struct ek_sim_class *copy = ek_arena_calloc(arena, 2, sizeof *copy);
    if (!copy)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    memcpy(copy, kinds, sizeof kinds);
    s->sessions = (struct ek_opt_items){.items = copy, .n = 2};
    return 0;
}

static int add_policies(struct ek_sim *s, struct ek_arena *arena, struct ek_err *err)
{
    size_t n = sizeof all_policies / sizeof all_policies[0];
    s->policies.items = ek_arena_calloc(arena, n, sizeof *s->policies.items);
    if (!s->policies.items)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    memcpy(s->policies.items, all_policies, sizeof all_policies);
    s->policies.n = n;
    return 0;
}

static int check_policies(const struct ek_sim *s, struct ek_err *err)
{
    struct ek_sim_policy p;
    if (s->policies.n > EK_SIM_POLICIES_MAX)
        return ek_err_set(err, EK_EINVAL, "policies: %zu are too many, expected %d",
                          s->policies.n, EK_SIM_POLICIES_MAX);
    for (size_t i = 0; i < s->policies.n; i++) {
        const char *word = s->policies.items[i];
        if (ek_sim_policy_find(&p, word) || !strcmp(word, "least_rps"))
            continue;
        const char *near = ek_opt_nearest(word, all_policies,
                                          sizeof all_policies / sizeof *all_policies);
        return ek_err_set(err, EK_EINVAL, "policies: '%.100s' is none, %s%s%s", word,
                          near ? "did you mean '"
                               : "expected a policy of the pool or of "
                                 "`keel simulate --help`",
                          near ? near : "", near ? "'?" : "");
    }
    return 0;
}

int ek_sim_check(struct ek_sim *s, const char **key, struct ek_arena *arena,
                 struct ek_err *err)
{
    double shares = 0;
    int rc = s->sessions.n ? 0 : add_classes(s, arena, err);
    if (!rc && !s->policies.n)
        rc = add_policies(s, arena, err);
    *key = "policies";
    if (!rc)
        rc = check_policies(s, err);
    if (rc)
        return rc;
    *key = "sessions";
    const struct ek_sim_class *classes = s->sessions.items;
    for (size_t i = 0; i < s->sessions.n; i++)
        shares += classes[i].share;
    if (shares <= 0)
        return ek_err_set(err, EK_EINVAL, "sessions: all shares are 0, expected more");
    *key = "lost";
    if (s->lost >= s->backends)
        return ek_err_set(err, EK_EINVAL, "lost: %lld of %lld backends, expected fewer",
                          (long long)s->lost, (long long)s->backends);
    *key = "safety_factor";
    if (s->factor > 0 && s->factor < 1)
        return ek_err_set(err, EK_EINVAL,
                          "safety_factor: %g is below 1, expected 1 to 10, or 0",
                          s->factor);
    return 0;
}
