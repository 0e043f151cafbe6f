/* options.c - what every verb does with its table first. */
#include "base/buf.h"
#include "cli/verb.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define MAX_HELP_BYTES (1 << 18)
#define MAX_VERBS      32

static int print_help(const struct ek_verb *verb)
{
    struct ek_buf text;
    ek_buf_init(&text, MAX_HELP_BYTES);
    int rc = ek_opt_help(&text, verb->table);
    if (!rc && (fwrite(text.data, 1, text.len, stdout) != text.len || fflush(stdout)))
        rc = EK_EIO;
    ek_buf_release(&text);
    if (rc)
        fprintf(stderr, "keel %s: help: %s\n", verb->table->name, ek_status_text(rc));
    return rc ? EK_EXIT_FAILED : EK_EXIT_OK;
}

bool ek_verb_options(const struct ek_verb *verb, void *settings,
                     struct ek_opt_args *args, int argc, char **argv,
                     struct ek_arena *arena, int *code)
{
    struct ek_err err = EK_ERR_INIT;
    int rc = ek_opt_parse(verb->table, settings, args, argc, argv, arena, &err);
    if (rc) {
        fprintf(stderr, "keel %s: %s\n", verb->table->name, err.text);
        *code = rc == EK_ENOMEM ? EK_EXIT_FAILED : EK_EXIT_USAGE;
        return false;
    }
    if (args->wants_help) {
        *code = print_help(verb);
        return false;
    }
    return true;
}

/* What the file is to blame for, or its place: the machine's own troubles are not. */
static bool is_files_fault(int status)
{
    switch (status) {
    case EK_EFORMAT:
    case EK_EUNSUP:
    case EK_EINVAL:
    case EK_ELIMIT:
    case EK_ENOENT:
    case EK_EPERM:
    case EK_EIO:
        return true;
    default:
        return false;
    }
}

const char *ek_verb_word(const struct ek_verb *verb)
{
    const char *space = strrchr(verb->table->name, ' ');
    return space ? space + 1 : verb->table->name;
}

int ek_verb_dispatch(const struct ek_verb *const *verbs, const char *of, int argc,
                     char **argv)
{
    const char *names[MAX_VERBS];
    const char *space = *of ? " " : "";
    size_t n = 0;
    for (const struct ek_verb *const *v = verbs; *v; v++) {
        if (!strcmp(argv[0], ek_verb_word(*v)))
            return (*v)->run(argc - 1, argv + 1);
        assert(n < MAX_VERBS);
        names[n++] = ek_verb_word(*v);
    }
    const char *near = ek_opt_nearest(argv[0], names, n);
    if (near)
        fprintf(stderr, "keel%s%s: unknown verb '%s', did you mean '%s'?\n", space, of,
                argv[0], near);
    else
        fprintf(stderr, "keel%s%s: unknown verb '%s', `keel%s%s --help` lists them\n",
                space, of, argv[0], space, of);
    return EK_EXIT_USAGE;
}

int ek_verb_fail(const struct ek_verb *verb, const struct ek_err *err, bool is_input)
{
    fprintf(stderr, "keel %s: %s\n", verb->table->name,
            err->text[0] ? err->text : ek_status_text(err->status));
    if (err->status == EK_ECANCELED)
        return EK_EXIT_INTERRUPTED;
    return is_input && is_files_fault(err->status) ? EK_EXIT_INPUT : EK_EXIT_FAILED;
}
