/* main.c - keel: finds the verb and runs it. */
#include "base/opt.h"
#include "cli/docs.h"
#include "cli/verb.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* In the order of the usage; NULL ends the list. One a line: */
/* clang-format off */
static const struct ek_verb *const verbs[] = {
    &ek_verb_serve,
    &ek_verb_route,
    &ek_verb_chat,
    &ek_verb_inspect,
    &ek_verb_generate,
    &ek_verb_perplexity,
    &ek_verb_quantize,
    &ek_verb_eval,
    &ek_verb_recommend,
    &ek_verb_data,
    &ek_verb_train,
    &ek_verb_plot,
    &ek_verb_export,
    &ek_verb_simulate,
    &ek_verb_bench,
    NULL,
};
/* clang-format on */
#define N_VERBS (sizeof verbs / sizeof verbs[0] - 1)

static int usage(FILE *to)
{
    fprintf(to, "usage: keel <verb> [options] ...\n\nverbs:\n");
    for (const struct ek_verb *const *v = verbs; *v; v++)
        fprintf(to, "  %-12s %s\n", (*v)->table->name, (*v)->table->summary);
    fprintf(
        to,
        "\n`keel <verb> --help` tells about one verb; `keel --version` the version.\n");
    if (to != stdout)
        return EK_EXIT_USAGE;
    return fflush(stdout) || ferror(stdout) ? EK_EXIT_FAILED : EK_EXIT_OK;
}

/* For the build alone, and so not in the usage. */
static int write_docs(int argc, char **argv)
{
    struct ek_err err = EK_ERR_INIT;
    if (argc != 3)
        return usage(stderr);
    if (!ek_docs_write(argv[2], verbs, N_VERBS, &err))
        return EK_EXIT_OK;
    fprintf(stderr, "keel --write-docs: %s\n", err.text);
    return EK_EXIT_FAILED;
}

/* A parent may have closed 0, 1 or 2. The next file opened would get that number, and
 * what is said on standard error would go into a model or to a client. Each is filled
 * with what it cannot be used for, so that using it still fails. */
static void hold_standard_files(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0)
            (void)open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
    }
}

int main(int argc, char **argv)
{
    hold_standard_files();
    signal(SIGPIPE, SIG_IGN);
    if (argc < 2)
        return usage(stderr);
    const char *word = argv[1];
    if (!strcmp(word, "--help") || !strcmp(word, "-h") || !strcmp(word, "help"))
        return usage(stdout);
    if (!strcmp(word, "--version")) {
        printf("keel " EK_VERSION "\n");
        return EK_EXIT_OK;
    }
    if (!strcmp(word, "--write-docs"))
        return write_docs(argc, argv);
    return ek_verb_dispatch(verbs, "", argc - 1, argv + 1);
}
