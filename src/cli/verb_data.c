/* verb_data.c - keel data: logs of events, packed, looked at and made. */
#include "cli/verb.h"

#define ARENA_BYTES (1 << 20)

/* In the order of the details below. One a line: */
/* clang-format off */
const struct ek_verb *const ek_verb_data_subs[] = {
    &ek_verb_data_pack,
    &ek_verb_data_stats,
    &ek_verb_data_synth,
    NULL,
};
/* clang-format on */

static const struct ek_opt opts[] = {{0}};

static const struct ek_opt_verb table = {
    .name = "data",
    .summary = "pack, look at and make logs of events for training",
    .arguments = "WHAT ...",
    .details = "What can be done, each with its own --help:\n"
               "  pack     text, plain or gzip, to one mapped file\n"
               "  stats    lengths, popularity and what padding would waste\n"
               "  synth    a log of any size with a structure to learn\n",
    .examples =
        "keel data pack events.csv events.pack --user who --item sku --time at\n"
        "keel data stats events.pack --svg events.svg\n"
        "keel data synth made.pack --users 100000 --items 50000",
    .opts = opts,
    .min_args = 1,
    .max_args = 1,
};

static int run(int argc, char **argv)
{
    if (argc > 0 && argv[0][0] != '-')
        return ek_verb_dispatch(ek_verb_data_subs, table.name, argc, argv);
    struct ek_opt_args args;
    struct ek_arena arena;
    int settings = 0; /* the table has no options */
    int code = EK_EXIT_USAGE;
    ek_arena_init(&arena, ARENA_BYTES);
    /* Help was asked for, or a word is missing: either way it ends here. */
    if (ek_verb_options(&ek_verb_data, &settings, &args, argc, argv, &arena, &code))
        code = EK_EXIT_USAGE;
    ek_arena_release(&arena);
    return code;
}

const struct ek_verb ek_verb_data = {&table, run};
