/* verb_bench.c - keel bench: finds the measurement and runs it. */
#include "cli/verb.h"

#define ARENA_BYTES (1 << 20)

/* In the order of the details below; NULL ends the list. One a line: */
/* clang-format off */
static const struct ek_verb *const subs[] = {
    &ek_verb_bench_memory,
    &ek_verb_bench_kernel,
    &ek_verb_bench_attention,
    &ek_verb_bench_model,
    &ek_verb_bench_serve,
    &ek_verb_bench_route,
    NULL,
};
/* clang-format on */

static const struct ek_opt opts[] = {{0}};

static const struct ek_opt_verb table = {
    .name = "bench",
    .summary = "measure this machine, a model, a server or a proxy",
    .arguments = "WHAT ...",
    .details = "What can be measured, each with its own --help:\n"
               "  memory     how fast memory is read, by threads and size\n"
               "  kernel     matmuls in each weight format against their dot products\n"
               "  attention  forward and backward over sequences of uneven lengths\n"
               "  model      prefill and decode of a model\n"
               "  serve      any OpenAI-compatible server under load\n"
               "  route      any proxy under many long sessions\n",
    .examples = "keel bench memory\n"
                "keel bench model model.gguf\n"
                "keel bench serve --url http://127.0.0.1:8080 --concurrency 16",
    .opts = opts,
    .min_args = 1,
    .max_args = 1,
};

static int run(int argc, char **argv)
{
    if (argc > 0 && argv[0][0] != '-')
        return ek_verb_dispatch(subs, table.name, argc, argv);
    struct ek_opt_args args;
    struct ek_arena arena;
    int settings = 0; /* the table has no options */
    int code = EK_EXIT_USAGE;
    ek_arena_init(&arena, ARENA_BYTES);
    /* Help was asked for, or a word is missing: either way it ends here. */
    if (ek_verb_options(&ek_verb_bench, &settings, &args, argc, argv, &arena, &code))
        code = EK_EXIT_USAGE;
    ek_arena_release(&arena);
    return code;
}

const struct ek_verb ek_verb_bench = {&table, run};

const struct ek_verb *const *ek_verb_subs(const struct ek_verb *verb)
{
    if (verb == &ek_verb_data)
        return ek_verb_data_subs;
    return verb == &ek_verb_bench ? subs : NULL;
}
