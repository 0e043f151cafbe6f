/* argv is walked four times with one walker, because what comes later on the line may
 * weigh less: --help first, then the --config files, then --set, then the flags. */
#include "base/opt.h"

#include "base/opt_int.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define WHERE_CAP 512

struct walk {
    const struct ek_opt_verb *verb;
    char *const *argv;
    int argc;
    int at;             /* next word */
    const char *bundle; /* rest of "-abc", or NULL */
    bool is_plain;      /* behind "--": all words are arguments */
};

/* One thing on the command line: an option with its value, or an argument. */
struct item {
    const struct ek_opt *opt; /* NULL: an argument */
    const char *value;        /* borrowed from argv; "true" or "false" for a flag */
    char shown[EK_OPT_NAME_CAP + 8]; /* the option as the user wrote it */
};

void ek_opt_empty_list(struct ek_opt_parse *p, const struct ek_opt *opt)
{
    static const struct ek_opt_list none;
    p->layer_of[ek_opt_index(p->verb, opt)] = p->layer;
    memcpy(p->settings + opt->offset, &none, sizeof none);
}

int ek_opt_apply(struct ek_opt_parse *p, const struct ek_opt *opt, const char *text,
                 const char *where)
{
    if (opt->type == EK_OPT_LIST && p->layer_of[ek_opt_index(p->verb, opt)] != p->layer)
        ek_opt_empty_list(p, opt);
    return ek_opt_store(p, opt, text, where);
}

int ek_opt_set_place(const struct ek_opt_parse *p, const struct ek_opt *opt,
                     const char *place)
{
    size_t n = ek_opt_count(p->verb->opts), at = ek_opt_index(p->verb, opt);
    if (!p->places || at < n)
        return 0;
    const char *copy = ek_arena_strndup(p->arena, place, strlen(place));
    if (!copy)
        return ek_err_set(p->err, EK_ENOMEM, "%s: out of memory", place);
    p->places[at - n] = copy;
    return 0;
}

const char *ek_opt_place(char out[512], const struct ek_opt_verb *verb,
                         const struct ek_opt_args *args, const char *key)
{
    const struct ek_opt *opt = ek_opt_find_in(verb->keys, key);
    const char *place = opt ? args->places[opt - verb->keys] : NULL;
    snprintf(out, 512, "%.480s%s", place ? place : "", place ? ": " : "");
    return out;
}

const struct ek_opt *ek_opt_key(const struct ek_opt_parse *p, const char *key,
                                const char *where)
{
    char flag[EK_OPT_NAME_CAP], section[EK_OPT_NAME_CAP];
    const struct ek_opt *opt = ek_opt_find_in(p->verb->keys, key);
    if (!opt)
        opt = ek_opt_find(p->verb, key);
    if (opt && !opt->is_flag_only)
        return opt;
    const struct ek_opt *near = opt ? NULL : ek_opt_near(p->verb, key, true);
    if (opt)
        ek_err_set(p->err, EK_EINVAL, "%s: '%s' can only be a flag: --%s", where, key,
                   ek_opt_flag(flag, key));
    else if (near)
        ek_err_set(p->err, EK_EINVAL, "%s: unknown key '%.100s', did you mean '%s'?",
                   where, key, near->name);
    else if (ek_opt_is_section(p->verb, key))
        ek_err_set(p->err, EK_EINVAL, "%s: '%s' is a section, expected %s.KEY", where,
                   key, key);
    else if (ek_opt_near_section(section, p->verb, key))
        ek_err_set(p->err, EK_EINVAL, "%s: unknown key '%.100s', did you mean '%s'?",
                   where, key, section);
    else
        ek_err_set(p->err, EK_EINVAL, "%s: unknown key '%.100s', `keel %s --help` %s",
                   where, key, p->verb->name,
                   p->verb->keys ? "lists them"
                                 : "lists the flags that keys are named after");
    return NULL;
}

static int refuse_flag(const struct walk *w, const char *word, struct ek_err *err)
{
    char flag[EK_OPT_NAME_CAP];
    bool is_no = !strncmp(word, "no-", 3);
    const struct ek_opt *near = ek_opt_near(w->verb, word, false);
    if (near)
        is_no = false;
    else if (is_no)
        near = ek_opt_near(w->verb, word + 3, false);
    if (near)
        return ek_err_set(err, EK_EINVAL,
                          "--%.100s: unknown flag, did you mean --%s%s?", word,
                          is_no ? "no-" : "", ek_opt_flag(flag, near->name));
    return ek_err_set(err, EK_EINVAL,
                      "--%.100s: unknown flag, `keel %s --help` lists them", word,
                      w->verb->name);
}

/* The option a long flag without its dashes names; *is_off for --no-x. */
static const struct ek_opt *find_flag(const struct walk *w, const char *word, size_t n,
                                      bool *is_off)
{
    char name[EK_OPT_NAME_CAP];
    *is_off = false;
    if (n >= sizeof name || memchr(word, '_', n))
        return NULL;
    for (size_t i = 0; i < n; i++)
        name[i] = word[i] == '-' ? '_' : word[i];
    name[n] = 0;
    const struct ek_opt *opt = ek_opt_find(w->verb, name);
    if (opt || strncmp(name, "no_", 3) != 0)
        return opt;
    opt = ek_opt_find(w->verb, name + 3);
    *is_off = true;
    return opt && opt->type == EK_OPT_FLAG ? opt : NULL;
}

/* Takes the next word as the value, unless it is plainly the next flag. */
static int take_value(struct walk *w, struct item *item, struct ek_err *err)
{
    char expected[256];
    const char *value = w->at < w->argc ? w->argv[w->at] : NULL;
    bool is_off;
    if (!value)
        return ek_err_set(err, EK_EINVAL, "%s needs a value: %s", item->shown,
                          ek_opt_expected(expected, item->opt));
    if (!strncmp(value, "--", 2) && find_flag(w, value + 2, strlen(value + 2), &is_off))
        return ek_err_set(
            err, EK_EINVAL,
            "%s needs a value before %s (write %s=%s if that is the value)",
            item->shown, value, item->shown, value);
    item->value = value;
    w->at++;
    return 0;
}

static int take_long(struct walk *w, struct item *item, const char *word,
                     struct ek_err *err)
{
    size_t n = strcspn(word, "=");
    bool is_off;
    item->opt = find_flag(w, word, n, &is_off);
    if (!item->opt) {
        char name[128];
        snprintf(name, sizeof name, "%.*s", n < 120 ? (int)n : 120, word);
        return refuse_flag(w, name, err);
    }
    snprintf(item->shown, sizeof item->shown, "--%.*s", (int)n, word);
    if (word[n] == '=' && is_off)
        return ek_err_set(err, EK_EINVAL, "%s takes no value", item->shown);
    if (word[n] == '=')
        item->value = word + n + 1;
    else if (item->opt->type == EK_OPT_FLAG)
        item->value = is_off ? "false" : "true";
    else
        return take_value(w, item, err);
    return 0;
}

/* "-n 5", "-n5", and flags in one word: "-ab". */
static int take_letter(struct walk *w, struct item *item, struct ek_err *err)
{
    char letter = *w->bundle++;
    item->opt = ek_opt_find_letter(w->verb, letter);
    snprintf(item->shown, sizeof item->shown, "-%c", letter);
    const char *rest = w->bundle;
    if (!*rest || !item->opt || item->opt->type != EK_OPT_FLAG)
        w->bundle = NULL;
    if (!item->opt)
        return ek_err_set(err, EK_EINVAL,
                          "%s: unknown flag, `keel %s --help` lists them", item->shown,
                          w->verb->name);
    if (item->opt->type == EK_OPT_FLAG)
        item->value = "true";
    else if (*rest)
        item->value = rest;
    else
        return take_value(w, item, err);
    return 0;
}

/* "-5" is an argument, unless there is a flag of that letter. */
static bool is_argument(const struct walk *w, const char *word)
{
    if (w->is_plain || word[0] != '-' || !word[1])
        return true;
    bool is_number = (word[1] >= '0' && word[1] <= '9') || word[1] == '.';
    return is_number && !ek_opt_find_letter(w->verb, word[1]);
}

/* 1 with the next item, 0 at the end, or an error; either way the walk can go on. */
static int next_item(struct walk *w, struct item *item, struct ek_err *err)
{
    *item = (struct item){.opt = NULL};
    if (!w->bundle) {
        if (w->at < w->argc && !w->is_plain && !strcmp(w->argv[w->at], "--")) {
            w->is_plain = true;
            w->at++;
        }
        if (w->at == w->argc)
            return 0;
        const char *word = w->argv[w->at++];
        if (is_argument(w, word)) {
            item->value = word;
            return 1;
        }
        if (word[1] == '-') {
            int rc = take_long(w, item, word + 2, err);
            return rc ? rc : 1;
        }
        w->bundle = word + 1;
    }
    int rc = take_letter(w, item, err);
    return rc ? rc : 1;
}

static bool is_common(const struct item *item, const char *name)
{
    return item->opt && !strcmp(item->opt->name, name);
}

/* Errors are passed over: --help is given to people whose line is not right yet. */
static bool asks_for_help(struct walk w)
{
    struct item item;
    for (int rc = 1; rc;) {
        rc = next_item(&w, &item, NULL);
        if (rc == 1 && is_common(&item, "help"))
            return true;
    }
    return false;
}

/* The file that is the verb's first argument. */
static int apply_first(struct ek_opt_parse *p, struct walk w)
{
    struct item item;
    int rc;
    while ((rc = next_item(&w, &item, p->err)) == 1) {
        if (item.opt)
            continue;
        p->layer++;
        return ek_opt_load_yaml(p, item.value, NULL);
    }
    return rc;
}

static int apply_files(struct ek_opt_parse *p, struct walk w)
{
    struct item item;
    int rc = p->verb->is_config_first ? apply_first(p, w) : 0;
    if (rc)
        return rc;
    while ((rc = next_item(&w, &item, p->err)) == 1) {
        if (!is_common(&item, "config"))
            continue;
        p->layer++;
        rc = ek_opt_load_yaml(p, item.value, "--config");
        if (rc)
            return rc;
    }
    return rc;
}

static int apply_pair(struct ek_opt_parse *p, const char *pair)
{
    char key[EK_OPT_NAME_CAP], where[WHERE_CAP];
    size_t n = strcspn(pair, "=");
    if (pair[n] != '=' || n == 0 || n >= sizeof key)
        return ek_err_set(p->err, EK_EINVAL,
                          "--set: '%.200s' is not understood, expected KEY=VALUE",
                          pair);
    memcpy(key, pair, n);
    key[n] = 0;
    const struct ek_opt *opt = ek_opt_key(p, key, "--set");
    if (!opt)
        return EK_EINVAL;
    snprintf(where, sizeof where, "--set %s", key);
    int rc = ek_opt_apply(p, opt, pair + n + 1, where);
    return rc ? rc : ek_opt_set_place(p, opt, "--set");
}

static int apply_pairs(struct ek_opt_parse *p, struct walk w)
{
    struct item item;
    int rc;
    p->layer++;
    while ((rc = next_item(&w, &item, p->err)) == 1) {
        if (is_common(&item, "set"))
            rc = apply_pair(p, item.value);
        if (rc < 0)
            return rc;
    }
    return rc;
}

static int apply_flags(struct ek_opt_parse *p, struct ek_opt_args *out, struct walk w)
{
    struct item item;
    int rc;
    p->layer++;
    while ((rc = next_item(&w, &item, p->err)) == 1) {
        bool is_ours = item.opt && !is_common(&item, "config") &&
                       !is_common(&item, "set") && !is_common(&item, "help");
        if (!item.opt)
            out->args[out->n_args++] = item.value;
        else if (is_ours)
            rc = ek_opt_apply(p, item.opt, item.value, item.shown);
        if (rc < 0)
            return rc;
    }
    return rc;
}

static int check_count(const struct ek_opt_parse *p, const struct ek_opt_args *out)
{
    const struct ek_opt_verb *v = p->verb;
    if (out->n_args > v->max_args)
        return ek_err_set(p->err, EK_EINVAL,
                          "unexpected argument '%.200s', usage: keel %s [options] %s",
                          out->args[v->max_args], v->name, v->arguments);
    if (out->n_args < v->min_args)
        return ek_err_set(p->err, EK_EINVAL,
                          "an argument is missing, usage: keel %s [options] %s",
                          v->name, v->arguments);
    return 0;
}

static void apply_table(struct ek_opt_parse *p, const struct ek_opt *table)
{
    for (const struct ek_opt *o = table; o && o->name; o++) {
        int rc = o->fallback ? ek_opt_store(p, o, o->fallback, o->name) : 0;
        assert(rc != EK_EINVAL); /* a default its own table refuses */
        (void)rc;
    }
}

void ek_opt_apply_defaults(struct ek_opt_parse *p)
{
    apply_table(p, p->verb->opts);
    apply_table(p, p->verb->keys);
}

int ek_opt_parse(const struct ek_opt_verb *verb, void *settings,
                 struct ek_opt_args *out, int argc, char *const *argv,
                 struct ek_arena *arena, struct ek_err *err)
{
    struct walk w = {.verb = verb, .argv = argv, .argc = argc};
    *out = (struct ek_opt_args){.wants_help = asks_for_help(w)};
    if (out->wants_help)
        return 0;
    size_t n_keys = ek_opt_count(verb->keys), n = ek_opt_count(verb->opts) + n_keys;
    struct ek_opt_parse p = {.verb = verb,
                             .settings = settings,
                             .arena = arena,
                             .err = err,
                             .layer_of =
                                 ek_arena_calloc(arena, n + 1, sizeof(unsigned))};
    out->args = ek_arena_calloc(arena, (size_t)argc + 1, sizeof *out->args);
    out->places = ek_arena_calloc(arena, n_keys + 1, sizeof *out->places);
    if (!p.layer_of || !out->args || !out->places)
        return ek_err_set(err, EK_ENOMEM, "options: out of memory");
    p.places = out->places;
    ek_opt_apply_defaults(&p);
    int rc = apply_files(&p, w);
    if (!rc)
        rc = apply_pairs(&p, w);
    if (!rc)
        rc = apply_flags(&p, out, w);
    return rc ? rc : check_count(&p, out);
}
