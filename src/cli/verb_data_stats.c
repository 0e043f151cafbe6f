/* verb_data_stats.c - keel data stats: how uneven a packed log is. */
#include "base/file.h"
#include "base/json.h"
#include "cli/data.h"
#include "data/events_pack.h"
#include "data/events_split.h"

#include <inttypes.h>
#include <string.h>

#define ARENA_BYTES  (1 << 20)
#define OUTPUT_BYTES (1 << 20)

struct settings {
    int split;
    int64_t max_length;
    double valid, test;
    const char *svg;
    bool json;
};

#define AT(member) offsetof(struct settings, member)

static const struct ek_opt opts[] = {
    {.name = "split",
     .type = EK_OPT_CHOICE,
     .offset = AT(split),
     .fallback = "leave_one_out",
     .choices = "leave_one_out|time",
     .help = "the split whose sizes are shown"},
    {.name = "valid",
     .type = EK_OPT_REAL,
     .offset = AT(valid),
     .value = "X",
     .fallback = "0.1",
     .min = 0,
     .max = 1,
     .help = "share of the events that validate, by time"},
    {.name = "test",
     .type = EK_OPT_REAL,
     .offset = AT(test),
     .value = "X",
     .fallback = "0.1",
     .min = 0,
     .max = 1,
     .help = "share of the events that test, by time"},
    {.name = "max_length",
     .type = EK_OPT_INT,
     .offset = AT(max_length),
     .value = "N",
     .fallback = "0",
     .min = 0,
     .max = 1e12,
     .help = "cut lengths to this before padding is counted; 0: not at all"},
    {.name = "svg",
     .type = EK_OPT_STR,
     .offset = AT(svg),
     .value = "FILE",
     .help = "draw lengths, popularity and waste into FILE"},
    EK_VERB_JSON(AT(json)),
    {0},
};

static const struct ek_opt_verb table = {
    .name = "data stats",
    .summary = "show lengths, popularity and what padding would waste",
    .arguments = "FILE",
    .details =
        "FILE is a pack (keel data pack). Waste is the share of a padded batch that "
        "would be padding: for users in random order, and for users of about one "
        "length together. keel trains without padding; both are what others pay.",
    .examples = "keel data stats beauty.pack --max-length 50 --svg beauty.svg\n"
                "keel data stats ml-100k.pack --split time --json",
    .opts = opts,
    .min_args = 1,
    .max_args = 1,
};

struct work {
    struct ek_events e;
    struct ek_stats stats;
    struct ek_split split;
};

static int add_json(struct ek_buf *b, const struct work *w)
{
    const struct ek_stats *s = &w->stats;
    char text[400];
    int rc = ek_buf_add_char(b, '{');
    if (!rc)
        rc = ek_data_add_counts(b, &w->e, true);
    if (!rc)
        rc = ek_buf_addf(b,
                         ", \"length\": {\"min\": %" PRId64
                         ", \"mean\": %.4f, \"p50\": %" PRId64 ", \"p90\": %" PRId64
                         ", \"p99\": %" PRId64 ", \"max\": %" PRId64
                         "}, \"popularity\": {\"top_1_percent\": %.4f, "
                         "\"top_10_percent\": %.4f, \"gini\": %.4f}, \"padding\": [",
                         s->min, s->mean, s->p50, s->p90, s->p99, s->max, s->top1,
                         s->top10, s->gini);
    for (int i = 0; i < EK_STATS_BATCHES && !rc; i++)
        rc = ek_buf_addf(
            b, "%s{\"batch\": %" PRId64 ", \"waste\": %.4f, \"waste_bucketed\": %.4f}",
            i ? ", " : "", s->batch[i], s->waste_shuffled[i], s->waste_bucketed[i]);
    if (!rc)
        rc = ek_buf_addf(b,
                         "], \"split\": {\"train\": %" PRId64 ", \"valid\": %" PRId64
                         ", \"test\": %" PRId64 ", \"how\": ",
                         w->split.n_train, w->split.n_valid, w->split.n_test);
    ek_split_text(text, &w->split);
    if (!rc)
        rc = ek_json_add_str(b, text, strlen(text));
    return rc ? rc : ek_buf_add_str(b, "}}\n");
}

static int add_text(struct ek_buf *b, const struct work *w)
{
    const struct ek_stats *s = &w->stats;
    char text[400];
    int rc = ek_data_add_counts(b, &w->e, false);
    if (!rc)
        rc = ek_buf_addf(b,
                         "length        mean %.1f, p50 %" PRId64 ", p90 %" PRId64
                         ", p99 %" PRId64 "; %" PRId64 " to %" PRId64 "\n"
                         "popularity    1 %% of the items have %.1f %% of the events, "
                         "10 %% have %.1f %%; Gini %.2f\n"
                         "padding       share of a padded batch that is wasted%s\n"
                         "  batch       shuffled  bucketed\n",
                         s->mean, s->p50, s->p90, s->p99, s->min, s->max,
                         100.0 * s->top1, 100.0 * s->top10, s->gini,
                         s->max_length ? ", lengths cut" : "");
    for (int i = 0; i < EK_STATS_BATCHES && !rc; i++)
        rc = ek_buf_addf(b, "  %-10" PRId64 "  %5.1f %%   %5.1f %%\n", s->batch[i],
                         100.0 * s->waste_shuffled[i], 100.0 * s->waste_bucketed[i]);
    return rc ? rc
              : ek_buf_addf(b,
                            "split         train %" PRId64 ", validation %" PRId64
                            ", test %" PRId64 "\n              %s\n",
                            w->split.n_train, w->split.n_valid, w->split.n_test,
                            ek_split_text(text, &w->split));
}

/* *is_input: what failed is FILE's fault. */
static int look(struct work *w, const char *path, const struct settings *set,
                bool *is_input, struct ek_err *err)
{
    struct ek_buf svg;
    int rc = ek_events_pack_open(&w->e, path, err);
    if (!rc)
        rc = set->split ? ek_split_by_time(&w->split, &w->e, set->valid, set->test, err)
                        : ek_split_leave_one_out(&w->split, &w->e, err);
    if (!rc)
        rc = ek_stats_of(&w->stats, &w->e, set->max_length, err);
    if (rc || !set->svg)
        return rc;
    *is_input = false;
    ek_buf_init(&svg, OUTPUT_BYTES);
    rc = ek_data_svg(&svg, &w->e, &w->stats);
    if (rc)
        ek_err_set(err, rc, "%s: %s", set->svg, ek_status_text(rc));
    else
        rc = ek_file_write(set->svg, svg.data, svg.len, err);
    ek_buf_release(&svg);
    return rc;
}

static int run(int argc, char **argv)
{
    struct settings set = {0};
    struct ek_opt_args args;
    struct ek_arena arena;
    struct ek_buf out;
    struct ek_err err = EK_ERR_INIT;
    struct work w = {0};
    bool is_input = true;
    int code = EK_EXIT_OK;
    ek_arena_init(&arena, ARENA_BYTES);
    ek_buf_init(&out, OUTPUT_BYTES);
    if (ek_verb_options(&ek_verb_data_stats, &set, &args, argc, argv, &arena, &code)) {
        if (look(&w, args.args[0], &set, &is_input, &err))
            code = ek_verb_fail(&ek_verb_data_stats, &err, is_input);
        else
            code = ek_data_print(&ek_verb_data_stats, &out,
                                 set.json ? add_json(&out, &w) : add_text(&out, &w));
    }
    ek_split_release(&w.split);
    ek_events_release(&w.e);
    ek_buf_release(&out);
    ek_arena_release(&arena);
    return code;
}

const struct ek_verb ek_verb_data_stats = {&table, run};
