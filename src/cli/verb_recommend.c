/* verb_recommend.c - keel recommend: the best items behind a history. */
#include "base/json.h"
#include "base/mem.h"
#include "cli/data.h"
#include "cli/progress.h"
#include "cli/trained.h"
#include "cli/verb.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ARENA_BYTES  (1 << 20)
#define OUTPUT_BYTES (1 << 30)
#define TOP_MAX      1000000

struct settings {
    struct ek_opt_list items;
    const char *user, *data;
    int64_t top, threads;
    bool all_users, seen, json;
};

#define AT(member) offsetof(struct settings, member)

static const struct ek_opt opts[] = {
    {.name = "items",
     .letter = 'i',
     .type = EK_OPT_LIST,
     .offset = AT(items),
     .value = "A,B,C",
     .help = "the history, oldest first, by the names of the log"},
    {.name = "user",
     .letter = 'u',
     .type = EK_OPT_STR,
     .offset = AT(user),
     .value = "NAME",
     .help = "the history of this user of the log, all of it"},
    {.name = "all_users",
     .type = EK_OPT_FLAG,
     .offset = AT(all_users),
     .help = "for each user of the log, a JSON object a line: user and items"},
    {.name = "data",
     .letter = 'd',
     .type = EK_OPT_STR,
     .offset = AT(data),
     .value = "FILE",
     .help = "the log of users; without it, where it was in training"},
    {.name = "top",
     .letter = 'n',
     .type = EK_OPT_INT,
     .offset = AT(top),
     .value = "N",
     .fallback = "10",
     .min = 1,
     .max = TOP_MAX,
     .help = "how many items"},
    {.name = "seen",
     .type = EK_OPT_FLAG,
     .offset = AT(seen),
     .help = "items of the history may come again"},
    EK_VERB_THREADS(AT(threads)),
    EK_VERB_JSON(AT(json)),
    {0},
};

static const struct ek_opt_verb table = {
    .name = "recommend",
    .summary = "show the items that a trained model expects next",
    .arguments = "CHECKPOINT",
    .details =
        "CHECKPOINT is a folder that keel train wrote: a run (then its best state), or "
        "one of its checkpoints. With --items no log is needed: names come from the "
        "run's vocab.txt, times count as equal and columns as unknown. With --user the "
        "log gives all of them. A name that holds a comma is taken whole when it is an "
        "item's.\n\n"
        "Scores are dot products or cosines, as the model was trained; they compare "
        "items of one history and nothing else.",
    .examples = "keel recommend runs/beauty-sasrec --items 12,7,993\n"
                "keel recommend runs/ml --user 42 --top 20 --json\n"
                "keel recommend runs/ml --all-users > recommended.jsonl",
    .opts = opts,
    .min_args = 1,
    .max_args = 1,
};

/* Everything a recommendation holds; closed whole. */
struct work {
    const struct settings *set;
    struct ek_trained t;
    int32_t *typed; /* --items, as indices; owned */
    struct ek_history history;
    int32_t *items; /* (n) what came out */
    float *scores;
    int64_t n;
};

static void close_work(struct work *w)
{
    ek_trained_release(&w->t);
    ek_free(w->typed);
    ek_free(w->items);
    ek_free(w->scores);
}

/* What is no name of `names`, and the nearest that is. */
static int unknown(const char *what, const struct ek_names *names, const char *s,
                   size_t n, struct ek_err *err)
{
    const int64_t near = ek_names_nearest(names, s, n);
    const int shown = n < 200 ? (int)n : 200;
    if (near < 0)
        return ek_err_set(err, EK_EINVAL,
                          "unknown %s '%.*s': none of %" PRId64 " is near", what, shown,
                          s, names->n);
    size_t len;
    const char *name = ek_names_get(names, near, &len);
    return ek_err_set(err, EK_EINVAL, "unknown %s '%.*s', did you mean '%.*s'?", what,
                      shown, s, (int)len, name);
}

static int add_item(struct work *w, const char *s, size_t n, struct ek_err *err)
{
    const int64_t v = ek_names_find(&w->t.items, s, n);
    if (v < 0)
        return unknown("item", &w->t.items, s, n, err);
    w->typed[w->history.n++] = (int32_t)v;
    return 0;
}

/* The names of one --items: the whole word, or what stands between commas. */
static int add_items(struct work *w, const char *word, struct ek_err *err)
{
    if (ek_names_find(&w->t.items, word, strlen(word)) >= 0)
        return add_item(w, word, strlen(word), err);
    int rc = 0;
    for (const char *at = word; !rc; at++) {
        const size_t n = strcspn(at, ",");
        rc = add_item(w, at, n, err);
        at += n;
        if (!*at)
            break;
    }
    return rc;
}

static int take_items(struct work *w, struct ek_err *err)
{
    const struct ek_opt_list *list = &w->set->items;
    size_t most = 0;
    for (size_t i = 0; i < list->n; i++)
        most += strlen(list->items[i]) + 1;
    w->typed = ek_alloc_array(most, sizeof *w->typed);
    if (!w->typed)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    int rc = 0;
    for (size_t i = 0; !rc && i < list->n; i++)
        rc = add_items(w, list->items[i], err);
    w->history.items = w->typed;
    w->history.row = -1;
    return rc;
}

static struct ek_history history_of(const struct ek_events *e, int64_t user)
{
    const int64_t first = e->offsets[user];
    return (struct ek_history){.n = e->offsets[user + 1] - first,
                               .items = e->items + first,
                               .times = e->times ? e->times + first : NULL,
                               .row = first};
}

static int take_user(struct work *w, struct ek_err *err)
{
    const struct ek_events *e = &w->t.data.events;
    const char *name = w->set->user;
    const int64_t u = ek_names_find(&e->users, name, strlen(name));
    if (u < 0)
        return unknown("user", &e->users, name, strlen(name), err);
    w->history = history_of(e, u);
    return 0;
}

static int add_name(struct ek_buf *b, const struct ek_names *names, int64_t i,
                    bool is_json)
{
    size_t n;
    const char *s = ek_names_get(names, i, &n);
    return is_json ? ek_json_add_str(b, s, n) : ek_buf_add(b, s, n);
}

/* The last member of an object, and its end. */
static int add_found(struct ek_buf *b, const struct work *w)
{
    int rc = ek_buf_add_str(b, ", \"items\": [");
    for (int64_t i = 0; !rc && i < w->n; i++) {
        rc = ek_buf_add_str(b, i ? ", {\"item\": " : "{\"item\": ");
        if (!rc)
            rc = add_name(b, &w->t.items, w->items[i], true);
        if (!rc)
            rc = ek_buf_addf(b, ", \"score\": %.6g}", (double)w->scores[i]);
    }
    return rc ? rc : ek_buf_add_str(b, "]}\n");
}

static int add_json(struct ek_buf *b, const struct work *w)
{
    int rc = ek_buf_add_str(b, "{\"checkpoint\": ");
    if (!rc)
        rc = ek_json_add_str(b, w->t.folder, strlen(w->t.folder));
    if (!rc)
        rc = ek_buf_add_str(b, ", \"history\": [");
    for (int64_t i = 0; !rc && i < w->history.n; i++) {
        rc = i ? ek_buf_add_str(b, ", ") : 0;
        if (!rc)
            rc = add_name(b, &w->t.items, w->history.items[i], true);
    }
    if (!rc)
        rc = ek_buf_add_char(b, ']');
    return rc ? rc : add_found(b, w);
}

static int add_text(struct ek_buf *b, const struct work *w)
{
    int rc = 0;
    for (int64_t i = 0; !rc && i < w->n; i++) {
        rc = ek_buf_addf(b, "%4" PRId64 "  %10.5f  ", i + 1, (double)w->scores[i]);
        if (!rc)
            rc = add_name(b, &w->t.items, w->items[i], false);
        if (!rc)
            rc = ek_buf_add_char(b, '\n');
    }
    return rc;
}

static int find(struct work *w, int64_t k, struct ek_err *err)
{
    return ek_recommend(&w->t.evaluate, &w->history, !w->set->seen, w->items, w->scores,
                        k, &w->n, err);
}

/* A line for each user as soon as it is there. */
static int for_all_users(struct work *w, struct ek_buf *line, int64_t k,
                         struct ek_err *err)
{
    const struct ek_events *e = &w->t.data.events;
    struct ek_progress progress;
    int rc = 0;
    ek_progress_begin(&progress, "recommending", false);
    for (int64_t u = 0; u < e->n_users && !rc; u++) {
        w->history = history_of(e, u);
        ek_buf_reset(line);
        rc = find(w, k, err);
        if (!rc)
            rc = ek_buf_add_str(line, "{\"user\": ");
        if (!rc)
            rc = add_name(line, &e->users, u, true);
        if (!rc)
            rc = add_found(line, w);
        if (!rc && fwrite(line->data, 1, line->len, stdout) != line->len)
            rc = ek_err_set(err, EK_EIO, "standard output: %s", ek_status_text(EK_EIO));
        if (!rc && ek_interrupt_seen())
            rc = ek_err_set(err, EK_ECANCELED,
                            "behind user %" PRId64 " of %" PRId64 ": %s", u + 1,
                            e->n_users, ek_status_text(EK_ECANCELED));
        ek_progress_show(&progress, u + 1, e->n_users, NULL);
    }
    ek_progress_end(&progress);
    ek_buf_reset(line);
    return rc;
}

/* *is_usage: what was asked for is to blame, not a file. */
static int recommend(struct work *w, struct ek_buf *out, const char *folder,
                     bool *is_usage, struct ek_err *err)
{
    const struct settings *set = w->set;
    const struct ek_trained_options o = {.has_data =
                                             set->user || set->data || set->all_users,
                                         .data_path = set->data,
                                         .part = EK_PART_TRAIN,
                                         .threads = set->threads};
    int rc = ek_verb_trained_open(&w->t, folder, o, err);
    if (rc)
        return rc;
    *is_usage = true;
    if (!set->all_users)
        rc = set->user ? take_user(w, err) : take_items(w, err);
    if (rc)
        return rc;
    const int64_t k = set->top < w->t.items.n ? set->top : w->t.items.n;
    w->items = ek_alloc_array((size_t)k, sizeof *w->items);
    w->scores = ek_alloc_array((size_t)k, sizeof *w->scores);
    if (!w->items || !w->scores)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    if (set->all_users)
        return for_all_users(w, out, k, err);
    rc = find(w, k, err);
    return rc ? rc : set->json ? add_json(out, w) : add_text(out, w);
}

static int run(int argc, char **argv)
{
    struct settings set = {0};
    struct ek_opt_args args;
    struct ek_arena arena;
    struct ek_buf out;
    struct ek_err err = EK_ERR_INIT;
    struct work w = {.set = &set};
    bool is_usage = false;
    int code = EK_EXIT_OK;
    ek_arena_init(&arena, ARENA_BYTES);
    ek_buf_init(&out, OUTPUT_BYTES);
    if (!ek_verb_options(&ek_verb_recommend, &set, &args, argc, argv, &arena, &code))
        goto out;
    if ((set.user != NULL) + (set.items.n > 0) + set.all_users != 1) {
        fprintf(stderr, "keel recommend: expected a history, one of: --items A,B,C or "
                        "--user NAME or --all-users\n");
        code = EK_EXIT_USAGE;
        goto out;
    }
    ek_interrupt_catch();
    if (recommend(&w, &out, args.args[0], &is_usage, &err)) {
        code = ek_verb_fail(&ek_verb_recommend, &err, !is_usage);
        if (is_usage && err.status == EK_EINVAL)
            code = EK_EXIT_USAGE;
    } else {
        code = ek_data_print(&ek_verb_recommend, &out, 0);
    }
out:
    close_work(&w);
    ek_buf_release(&out);
    ek_arena_release(&arena);
    return code;
}

const struct ek_verb ek_verb_recommend = {&table, run};
