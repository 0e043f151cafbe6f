/* verb_data_synth.c - keel data synth: a made log as a pack. */
#include "cli/data.h"
#include "data/events_pack.h"
#include "data/events_synth.h"

#include <signal.h>

#define ARENA_BYTES  (1 << 20)
#define OUTPUT_BYTES (1 << 20)

struct settings {
    int64_t users, items, min_length, max_length, seed;
    double median, sigma, zipf, follow;
    bool json;
};

#define AT(member) offsetof(struct settings, member)

#define INT_OPT(n, low, high, def, text)                                               \
    {                                                                                  \
        .name = #n, .type = EK_OPT_INT, .offset = AT(n), .value = "N",                 \
        .fallback = def, .min = low, .max = high, .help = text                         \
    }
#define REAL_OPT(n, low, high, def, text)                                              \
    {                                                                                  \
        .name = #n, .type = EK_OPT_REAL, .offset = AT(n), .value = "X",                \
        .fallback = def, .min = low, .max = high, .help = text                         \
    }

static const struct ek_opt opts[] = {
    INT_OPT(users, 1, INT32_MAX, "10000", "users"),
    INT_OPT(items, 1, INT32_MAX, "5000", "items that may be drawn"),
    REAL_OPT(median, 1, 1e9, "20", "median length of a user"),
    REAL_OPT(sigma, 0, 10, "1", "deviation of the logarithm of lengths"),
    INT_OPT(min_length, 1, 1e12, "3", "shortest user"),
    INT_OPT(max_length, 1, 1e12, "1000", "longest user"),
    REAL_OPT(zipf, 0, 10, "1", "exponent of the items' popularity; 0: all alike"),
    REAL_OPT(follow, 0, 1, "0.6", "chance that an item follows from the one before"),
    INT_OPT(seed, 0, 1e15, "1", "the same seed and options give the same file"),
    EK_VERB_JSON(AT(json)),
    {0},
};

static const struct ek_opt_verb table = {
    .name = "data synth",
    .summary = "make a log of any size with a structure to learn",
    .arguments = "OUT",
    .details =
        "Lengths are lognormal, items follow Zipf's law, and with the chance of "
        "--follow "
        "an item is one of the 4 planted successors of the one before (chances "
        "8:4:2:1). "
        "Users have a segment; click is 1 with the chance in click_chance, higher for "
        "items of the segment's group and for successors: a model can do no better "
        "than "
        "that column, so never train on it. The best normalised entropy there can be "
        "is "
        "printed.",
    .examples = "keel data synth made.pack --users 1000000 --items 200000 --seed 7",
    .opts = opts,
    .min_args = 1,
    .max_args = 1,
};

static int make(struct ek_events *e, const struct settings *set, struct ek_err *err)
{
    struct ek_synth_options o = {.n_users = set->users,
                                 .n_items = set->items,
                                 .median = set->median,
                                 .sigma = set->sigma,
                                 .min_length = set->min_length,
                                 .max_length = set->max_length,
                                 .zipf = set->zipf,
                                 .follow = set->follow,
                                 .seed = (uint64_t)set->seed};
    return ek_events_synth(e, &o, err);
}

static int report(struct ek_buf *out, const struct ek_events *e, bool is_json)
{
    struct ek_synth_clicks c = ek_synth_clicks(e);
    int rc = is_json ? ek_buf_add_char(out, '{') : 0;
    if (!rc)
        rc = ek_data_add_counts(out, e, is_json);
    if (!rc)
        rc = ek_buf_addf(out,
                         is_json ? ", \"click_rate\": %.6f, \"click_entropy\": %.6f, "
                                   "\"click_bayes_entropy\": %.6f"
                                 : "clicks        rate %.4f, entropy %.4f; best "
                                   "possible %.4f (nats)\n",
                         c.rate, c.entropy, c.bayes);
    if (!rc && !is_json && c.entropy > 0)
        rc = ek_buf_addf(out, "              best normalised entropy %.4f\n",
                         c.bayes / c.entropy);
    return rc || !is_json ? rc : ek_buf_add_str(out, "}\n");
}

static int run(int argc, char **argv)
{
    struct settings set = {0};
    struct ek_opt_args args;
    struct ek_arena arena;
    struct ek_buf out;
    struct ek_err err = EK_ERR_INIT;
    struct ek_events e = {0};
    int code = EK_EXIT_OK;
    ek_arena_init(&arena, ARENA_BYTES);
    ek_buf_init(&out, OUTPUT_BYTES);
    if (ek_verb_options(&ek_verb_data_synth, &set, &args, argc, argv, &arena, &code)) {
        signal(SIGXFSZ, SIG_IGN); /* a limit on files is an error with a line */
        int rc = make(&e, &set, &err);
        bool is_usage = rc == EK_EINVAL;
        if (!rc)
            rc = ek_events_pack_write(&e, args.args[0], NULL, &err);
        if (rc)
            code = ek_verb_fail(&ek_verb_data_synth, &err, false);
        else
            code = ek_data_print(&ek_verb_data_synth, &out, report(&out, &e, set.json));
        code = is_usage ? EK_EXIT_USAGE : code;
    }
    ek_events_release(&e);
    ek_buf_release(&out);
    ek_arena_release(&arena);
    return code;
}

const struct ek_verb ek_verb_data_synth = {&table, run};
