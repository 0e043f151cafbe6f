/* verb_train.c - keel train: a configuration to a tested model. */
#include "cli/progress.h"
#include "cli/verb.h"
#include "train/run.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ARENA_BYTES  (1 << 20)
#define OUTPUT_BYTES (1 << 20)

struct settings {
    struct ek_train_config config; /* first: the keys' offsets are its */
    bool check, explain, json, resume, overwrite;
};

#define AT(member) offsetof(struct settings, member)

static const struct ek_opt opts[] = {
    {.name = "check",
     .type = EK_OPT_FLAG,
     .offset = AT(check),
     .help = "check configuration and data, print the configuration, train nothing"},
    {.name = "explain",
     .type = EK_OPT_FLAG,
     .offset = AT(explain),
     .help = "time some steps by operation, print the table, train nothing"},
    {.name = "resume",
     .type = EK_OPT_FLAG,
     .offset = AT(resume),
     .help = "go on from the last checkpoint in run.dir"},
    {.name = "overwrite",
     .type = EK_OPT_FLAG,
     .offset = AT(overwrite),
     .help = "begin anew where run.dir holds a run"},
    {.name = "json",
     .type = EK_OPT_FLAG,
     .offset = AT(json),
     .help = "print the log: an object a line, the last one with the test"},
    {0},
};

static const struct ek_opt_verb table = {
    .name = "train",
    .summary = "train a sequence recommender on a log of events",
    .arguments = "CONFIG.yaml",
    .details =
        "Trains, ranks all items for every user of the validation part now and then, "
        "keeps the best and the last state, and at the end ranks the test part once "
        "with the best. run.dir gets checkpoints/best, checkpoints/last, log.jsonl and "
        "vocab.txt.\n\n"
        "Ctrl-C and SIGTERM save and end with exit code 130; --resume goes on with the "
        "same bits as a run that was never stopped.\n\n"
        "A run that would hold more memory than is there is refused before it begins, "
        "with the keys to lower.\n\n"
        "A loss that is not finite ends the run with the operation, the step, the user "
        "and the event.",
    .examples = "keel train configs/beauty-sasrec.yaml --set data.path=Beauty.txt\n"
                "keel train configs/beauty-sasrec.yaml --check\n"
                "keel train configs/beauty-sasrec.yaml --set run.seed=2 --set "
                "run.name=seed2 --json\n"
                "keel train configs/beauty-sasrec.yaml --resume",
    .opts = opts,
    .keys = ek_train_keys,
    .is_config_first = true,
    .min_args = 1,
    .max_args = 1,
};

/* What the hooks share. */
struct shown {
    struct ek_progress progress;
    const char *what; /* of the progress line that runs; NULL: none yet */
    bool is_json;
    bool has_failed; /* standard output */
};

static void on_step(void *arg, const struct ek_train_status *s)
{
    struct shown *p = arg;
    char note[200], mfu[32] = "";
    if (!p->what) {
        ek_progress_begin(&p->progress, "training", false);
        p->progress.from = s->step > 0 ? s->step - 1 : 0; /* a resume did not do them */
        p->what = "training";
    }
    if (s->mfu == s->mfu)
        snprintf(mfu, sizeof mfu, ", MFU %.1f %%", 100 * s->mfu);
    snprintf(note, sizeof note,
             "%sepoch %lld, loss %.4f, %.0f sequences/s, %.0f events/s%s",
             !strcmp(s->what, "training") ? "" : "validating, ", (long long)s->epoch,
             s->loss, s->sequences_s, s->tokens_s, mfu);
    ek_progress_show(&p->progress, s->step, s->steps, note);
}

static void on_line(void *arg, const char *line, size_t n)
{
    struct shown *p = arg;
    if (!p->is_json)
        return;
    p->has_failed |=
        fwrite(line, 1, n, stdout) != n || putchar('\n') == EOF || fflush(stdout) != 0;
}

static bool should_stop(void *arg)
{
    const struct shown *p = arg;
    return ek_interrupt_seen() || p->has_failed;
}

static bool on_read(void *arg, int64_t done, int64_t total)
{
    ek_progress_bytes(arg, done, total);
    return !ek_interrupt_seen();
}

/* A run that is there is somebody's hours. */
static int check_folder(const struct settings *set, struct ek_err *err)
{
    char path[4200];
    snprintf(path, sizeof path, "%.4000s/checkpoints/last/manifest.json",
             set->config.run.dir);
    if (set->resume || set->overwrite || set->check || set->explain ||
        access(path, F_OK) != 0)
        return 0;
    return ek_err_set(err, EK_EINVAL,
                      "run.dir: %s holds a run: --resume goes on with it, "
                      "--overwrite begins anew",
                      set->config.run.dir);
}

static int print(const struct ek_buf *text, struct ek_err *err)
{
    if (fwrite(text->data, 1, text->len, stdout) == text->len && fflush(stdout) == 0)
        return 0;
    return ek_err_set(err, EK_EIO, "standard output: %s", ek_status_text(EK_EIO));
}

/* --check's answer: the configuration with what follows from it, and the data. */
static int print_check(struct ek_buf *out, const struct settings *set,
                       const struct ek_train_data *data, struct ek_err *err)
{
    char text[EK_TRAIN_DATA_TEXT], split[400];
    int rc = 0;
    if (set->json) {
        rc = ek_train_config_json(out, &set->config);
        if (!rc)
            rc = ek_buf_add_char(out, '\n');
    } else {
        rc = ek_buf_addf(out, "data          %s\nsplit         %s\n",
                         ek_train_data_text(text, data),
                         ek_split_text(split, &data->split));
        for (const struct ek_opt *o = ek_train_keys; o->name && !rc; o++) {
            rc = ek_buf_addf(out, "%-22s ", o->name);
            if (!rc)
                rc = ek_opt_value_json(out, o, &set->config);
            if (!rc)
                rc = ek_buf_add_char(out, '\n');
        }
    }
    if (rc)
        return ek_err_set(err, rc, "configuration: %s", ek_status_text(rc));
    return print(out, err);
}

static int train(struct ek_train *t, const struct settings *set, struct shown *shown,
                 struct ek_buf *out, struct ek_err *err)
{
    int rc = 0;
    if (set->explain) {
        rc = ek_train_explain(out, t, err);
        return rc ? rc : print(out, err);
    }
    rc = check_folder(set, err); /* another may have ended while the log was read */
    if (!rc)
        rc = ek_train_run(t, err);
    if (shown->what)
        ek_progress_end(&shown->progress);
    if (rc == EK_ECANCELED && shown->has_failed) { /* nobody asked for a stop */
        err->status = EK_EIO;
        return ek_err_prefix(err, "standard output: %s", ek_status_text(EK_EIO));
    }
    if (!rc && shown->has_failed) /* behind the last look */
        rc = ek_err_set(err, EK_EIO, "standard output: %s", ek_status_text(EK_EIO));
    if (rc || set->json)
        return rc;
    rc = ek_train_report(out, t);
    return rc ? ek_err_set(err, rc, "report: %s", ek_status_text(rc)) : print(out, err);
}

/* *code: the exit code that an error has. */
static int run_all(struct settings *set, struct ek_buf *out, enum ek_exit *code,
                   struct ek_err *err)
{
    struct ek_train_data data = {.click = -1};
    struct ek_train *t = NULL;
    struct ek_progress reading;
    struct shown shown = {.is_json = set->json};
    struct ek_train_hooks hooks = {.on_step = on_step,
                                   .on_line = on_line,
                                   .should_stop = should_stop,
                                   .arg = &shown};
    bool is_input = true;
    ek_progress_begin(&reading, "reading", true);
    int rc = ek_train_data_open(&data, &set->config, on_read, &reading, &is_input, err);
    ek_progress_end(&reading);
    *code = is_input ? EK_EXIT_INPUT : EK_EXIT_USAGE;
    if (rc)
        goto out;
    *code = EK_EXIT_USAGE;
    rc = ek_train_new(&t, &set->config, &data, &hooks, err);
    if (rc)
        goto out;
    if (set->resume && !set->check && !set->explain) {
        rc = ek_train_resume(t, err);
        /* of another run, or no checkpoint that this program reads */
        *code = rc == EK_EINVAL ? EK_EXIT_USAGE : EK_EXIT_INPUT;
        if (rc)
            goto out;
    }
    *code = EK_EXIT_FAILED;
    rc = set->check ? print_check(out, set, &data, err)
                    : train(t, set, &shown, out, err);
out:
    ek_train_free(t);
    ek_train_data_release(&data);
    return rc;
}

/* The configuration as a whole; *code is the exit code when it is refused. */
static bool check_settings(struct settings *set, const struct ek_opt_args *args,
                           struct ek_arena *arena, int *code)
{
    struct ek_err err = EK_ERR_INIT;
    char place[512];
    const char *key;
    int rc = ek_train_config_check(&set->config, &key, arena, &err);
    if (!rc && set->resume && set->overwrite) {
        key = NULL;
        rc = ek_err_set(&err, EK_EINVAL,
                        "--resume goes on with a run and --overwrite begins anew, "
                        "expected one of them");
    }
    if (!rc && (rc = check_folder(set, &err)) != 0)
        key = "run.dir";
    if (!rc)
        return true;
    if (key && !ek_opt_place(place, &table, args, key)[0])
        snprintf(place, sizeof place, "%.480s: ", args->args[0]);
    fprintf(stderr, "keel train: %s%s\n", key ? place : "", err.text);
    *code = rc == EK_ENOMEM ? EK_EXIT_FAILED : EK_EXIT_USAGE;
    return false;
}

/* A key that the log shows to be wrong is told with its place, as others are. */
static void name_place(struct ek_err *err, const struct ek_opt_args *args)
{
    char key[64], place[512];
    size_t n = strcspn(err->text, ":");
    if (n >= sizeof key)
        return;
    memcpy(key, err->text, n);
    key[n] = 0;
    ek_opt_place(place, &table, args, key);
    if (!place[0])
        return;
    place[strlen(place) - 2] = 0; /* ": ", which comes again */
    ek_err_prefix(err, "%s", place);
}

/* What another configuration would do away with; memory, threads and disks would
 * not. */
static bool is_asked_wrong(int status)
{
    return status == EK_EINVAL || status == EK_ELIMIT || status == EK_EUNSUP ||
           status == EK_EFORMAT || status == EK_ENOENT;
}

static int run(int argc, char **argv)
{
    struct settings set = {.check = false};
    struct ek_opt_args args;
    struct ek_arena arena;
    struct ek_buf out;
    struct ek_err err = EK_ERR_INIT;
    int code = EK_EXIT_OK;
    ek_arena_init(&arena, ARENA_BYTES);
    ek_buf_init(&out, OUTPUT_BYTES);
    if (ek_verb_options(&ek_verb_train, &set, &args, argc, argv, &arena, &code) &&
        check_settings(&set, &args, &arena, &code)) {
        enum ek_exit wrong = EK_EXIT_FAILED;
        ek_interrupt_catch();
        ek_interrupt_catch_also(SIGTERM);
        signal(SIGXFSZ, SIG_IGN); /* a limit on files is an error with a line */
        if (run_all(&set, &out, &wrong, &err)) {
            if (wrong == EK_EXIT_USAGE)
                name_place(&err, &args);
            code = ek_verb_fail(&ek_verb_train, &err, wrong == EK_EXIT_INPUT);
            if (wrong == EK_EXIT_USAGE && is_asked_wrong(err.status))
                code = EK_EXIT_USAGE;
        }
    }
    ek_buf_release(&out);
    ek_arena_release(&arena);
    return code;
}

const struct ek_verb ek_verb_train = {&table, run};
