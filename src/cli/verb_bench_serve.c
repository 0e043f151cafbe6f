/* verb_bench_serve.c - keel bench serve: a server under load, seen by its clients. */
#include "cli/verb.h"

#include <stdio.h>

#define ARENA_BYTES (1 << 20)

struct settings {
    const char *url;
};

static const struct ek_opt opts[] = {
    {.name = "url",
     .letter = 'u',
     .type = EK_OPT_STR,
     .offset = offsetof(struct settings, url),
     .value = "URL",
     .fallback = "http://127.0.0.1:8080",
     .help = "the server; /v1 behind it may stand or not"},
    {0},
};

static const struct ek_opt_verb table = {
    .name = "bench serve",
    .summary = "measure a server under load",
    .arguments = "",
    .opts = opts,
};

static int run(int argc, char **argv)
{
    struct settings set = {0};
    struct ek_opt_args args;
    struct ek_arena arena;
    int code = EK_EXIT_OK;
    ek_arena_init(&arena, ARENA_BYTES);
    if (ek_verb_options(&ek_verb_bench_serve, &set, &args, argc, argv, &arena, &code)) {
        fprintf(stderr, "keel bench serve: not in this build\n");
        code = EK_EXIT_FAILED;
    }
    ek_arena_release(&arena);
    return code;
}

const struct ek_verb ek_verb_bench_serve = {&table, run};
