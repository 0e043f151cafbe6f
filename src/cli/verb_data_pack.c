/* verb_data_pack.c - keel data pack: a log as text to one mapped file. */
#include "base/clock.h"
#include "base/file.h"
#include "cli/data.h"
#include "cli/progress.h"
#include "data/events_pack.h"
#include "data/events_read.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

#define ARENA_BYTES  (1 << 20)
#define OUTPUT_BYTES (1 << 20)

struct settings {
    int format, unit;
    const char *user, *item, *time;
    struct ek_opt_list numeric, category, user_numeric, user_category, skip;
    bool json;
};

#define AT(member) offsetof(struct settings, member)

static const struct ek_opt opts[] = {
    {.name = "format",
     .type = EK_OPT_CHOICE,
     .offset = AT(format),
     .fallback = "auto",
     .choices = "auto|s3rec|recbole|csv|tsv",
     .help = "of IN; auto: by its name, .txt .inter .csv .tsv, .gz aside"},
    {.name = "user",
     .type = EK_OPT_STR,
     .offset = AT(user),
     .value = "NAME",
     .fallback = "user_id",
     .help = "column of the user's id"},
    {.name = "item",
     .type = EK_OPT_STR,
     .offset = AT(item),
     .value = "NAME",
     .fallback = "item_id",
     .help = "column of the item's id"},
    {.name = "time",
     .type = EK_OPT_STR,
     .offset = AT(time),
     .value = "NAME",
     .help = "column of the time; not given: timestamp, if there is one"},
    {.name = "unit",
     .type = EK_OPT_CHOICE,
     .offset = AT(unit),
     .fallback = "s",
     .choices = "s|ms|us",
     .help = "of times that are numbers"},
    {.name = "numeric",
     .type = EK_OPT_LIST,
     .offset = AT(numeric),
     .value = "NAME",
     .help = "keep this column as a number of each event; may be repeated"},
    {.name = "category",
     .type = EK_OPT_LIST,
     .offset = AT(category),
     .value = "NAME",
     .help = "keep this column as a category of each event; may be repeated"},
    {.name = "user_numeric",
     .type = EK_OPT_LIST,
     .offset = AT(user_numeric),
     .value = "NAME",
     .help = "the same for a number of the user, equal in all of its rows"},
    {.name = "user_category",
     .type = EK_OPT_LIST,
     .offset = AT(user_category),
     .value = "NAME",
     .help = "the same for a category of the user"},
    {.name = "skip",
     .type = EK_OPT_LIST,
     .offset = AT(skip),
     .value = "NAME",
     .help = "leave this column of a recbole file out; may be repeated"},
    EK_VERB_JSON(AT(json)),
    {0},
};

static const struct ek_opt_verb table = {
    .name = "data pack",
    .summary = "turn a log of events into one mapped file",
    .arguments = "IN OUT",
    .details =
        "IN is text, plain or gzip; - is standard input. s3rec: a line a user, USER "
        "ITEM "
        "ITEM ..., whole numbers. recbole: an atomic .inter file, whose typed columns "
        "are all kept. csv, tsv: a header, a line an event; columns that no option "
        "names "
        "are left out.\n\n"
        "Ids outside s3rec are any text and are kept as they are written. Events of a "
        "user are sorted by time; events of one time, and all where there are no "
        "times, "
        "keep the order of the file.\n\n"
        "Exit code 3 and one line on standard error, with file, line and column: IN "
        "holds "
        "something else. OUT appears when it is whole; what was there stays until "
        "then.",
    .examples =
        "keel data pack Beauty.txt beauty.pack\n"
        "keel data pack ml-100k.inter ml-100k.pack\n"
        "keel data pack events.csv.gz events.pack --user who --item sku --time at "
        "--numeric price --user-category country",
    .opts = opts,
    .min_args = 2,
    .max_args = 2,
};

static bool on_progress(void *arg, int64_t done, int64_t total)
{
    ek_progress_bytes(arg, done, total);
    return !ek_interrupt_seen();
}

static struct ek_events_list list_of(const struct ek_opt_list *l)
{
    return (struct ek_events_list){l->items, l->n};
}

static int64_t size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) ? 0 : (int64_t)st.st_size;
}

struct result {
    struct ek_events e;
    struct ek_events_told told;
    uint64_t bytes;
    double read_s, write_s;
};

/* *is_input: what failed is IN's fault. */
static int pack(struct result *r, const char *in, const char *out,
                const struct settings *set, bool *is_input, struct ek_err *err)
{
    struct ek_progress progress;
    struct ek_events_options o = {.format = (enum ek_events_format)set->format,
                                  .user = set->user,
                                  .item = set->item,
                                  .time = set->time,
                                  .unit = (enum ek_events_unit)set->unit,
                                  .numeric = list_of(&set->numeric),
                                  .category = list_of(&set->category),
                                  .user_numeric = list_of(&set->user_numeric),
                                  .user_category = list_of(&set->user_category),
                                  .skip = list_of(&set->skip),
                                  .on_progress = on_progress,
                                  .arg = &progress,
                                  .total_bytes = size_of(in)};
    int64_t start = ek_clock_us();
    *is_input = true;
    ek_progress_begin(&progress, "reading", true);
    int rc = ek_events_read(&r->e, &r->told, in, &o, err);
    ek_progress_end(&progress);
    int64_t read = ek_clock_us();
    r->read_s = (double)(read - start) / 1e6;
    if (rc)
        return rc;
    *is_input = false;
    rc = ek_events_pack_write(&r->e, out, &r->bytes, err);
    r->write_s = (double)(ek_clock_us() - read) / 1e6;
    return rc;
}

static int report(struct ek_buf *b, const struct result *r, bool is_json)
{
    const struct ek_events_told *t = &r->told;
    double mb_s = (double)t->n_bytes / 1e6 / (r->read_s > 1e-6 ? r->read_s : 1e-6);
    char size[32];
    int rc = is_json ? ek_buf_add_char(b, '{') : 0;
    if (!rc)
        rc = ek_data_add_counts(b, &r->e, is_json);
    if (rc)
        return rc;
    if (is_json)
        return ek_buf_addf(
            b,
            ", \"lines\": %" PRIu64 ", \"text_bytes\": %" PRIu64
            ", \"file_bytes\": %" PRIu64 ", \"pack_bytes\": %" PRIu64
            ", \"ties\": %" PRId64 ", \"users_sorted\": %" PRId64
            ", \"read_s\": %.4f, \"write_s\": %.4f, \"mb_per_s\": %.1f}\n",
            t->n_lines, t->n_bytes, t->n_file_bytes, r->bytes, t->n_ties,
            t->n_users_sorted, r->read_s, r->write_s, mb_s);
    if (t->has_times)
        rc = ek_buf_addf(
            b,
            "order         by time; %" PRId64 " users had to be sorted; %" PRId64
            " events have the time of the one before and keep the order of "
            "the file\n",
            t->n_users_sorted, t->n_ties);
    return rc ? rc
              : ek_buf_addf(
                    b,
                    "pack          %s; read %.2f s (%.0f MB/s of text), written "
                    "%.2f s\n",
                    ek_format_bytes(size, r->bytes), r->read_s, mb_s, r->write_s);
}

static int run(int argc, char **argv)
{
    struct settings set = {0};
    struct ek_opt_args args;
    struct ek_arena arena;
    struct ek_buf out;
    struct ek_err err = EK_ERR_INIT;
    struct result r = {0};
    bool is_input = true;
    int code = EK_EXIT_OK;
    ek_arena_init(&arena, ARENA_BYTES);
    ek_buf_init(&out, OUTPUT_BYTES);
    if (ek_verb_options(&ek_verb_data_pack, &set, &args, argc, argv, &arena, &code)) {
        ek_interrupt_catch();
        signal(SIGXFSZ, SIG_IGN); /* a limit on files is an error with a line */
        if (pack(&r, args.args[0], args.args[1], &set, &is_input, &err))
            code = ek_verb_fail(&ek_verb_data_pack, &err, is_input);
        else
            code = ek_data_print(&ek_verb_data_pack, &out, report(&out, &r, set.json));
    }
    ek_events_release(&r.e);
    ek_buf_release(&out);
    ek_arena_release(&arena);
    return code;
}

const struct ek_verb ek_verb_data_pack = {&table, run};
