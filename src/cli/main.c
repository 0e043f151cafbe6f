/* main.c - keel: finds the verb and runs it. */
#include "cli/verb.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static const struct ek_verb *const verbs[] = {
    NULL, /* verbs are listed here as they come */
};
#define N_VERBS (sizeof verbs / sizeof verbs[0])

static int usage(FILE *to)
{
    fprintf(to, "usage: keel <verb> [options] ...\n\nverbs:\n");
    for (size_t i = 0; i < N_VERBS && verbs[i]; i++)
        fprintf(to, "  %-12s %s\n", verbs[i]->table->name, verbs[i]->table->summary);
    fprintf(
        to,
        "\n`keel <verb> --help` tells about one verb; `keel --version` the version.\n");
    return to == stdout ? EK_EXIT_OK : EK_EXIT_USAGE;
}

int main(int argc, char **argv)
{
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
    for (size_t i = 0; i < N_VERBS && verbs[i]; i++) {
        if (!strcmp(word, verbs[i]->table->name))
            return verbs[i]->run(argc - 2, argv + 2);
    }
    fprintf(stderr, "keel: unknown verb '%s'\n", word);
    return usage(stderr);
}
