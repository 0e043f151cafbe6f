/* verb.h - what every verb of keel is: an options table and a run function.
 *
 * cli/ is the only folder that may print to a person or end the process.
 */
#ifndef EVENKEEL_CLI_VERB_H
#define EVENKEEL_CLI_VERB_H

#include "base/opt.h"

enum ek_exit {
    EK_EXIT_OK = 0,
    EK_EXIT_FAILED = 1, /* failed while running */
    EK_EXIT_USAGE = 2,  /* bad usage or configuration */
    EK_EXIT_INPUT = 3,  /* bad input file */
    EK_EXIT_INTERRUPTED = 130,
};

struct ek_verb {
    const struct ek_opt_verb *table;
    /* argv[0] is the first word after the verb. Returns an enum ek_exit. */
    int (*run)(int argc, char **argv);
};

/* --json, the same for every verb that prints results; at: of its bool in the
 * settings. */
#define EK_VERB_JSON(at)                                                               \
    {                                                                                  \
        .name = "json", .type = EK_OPT_FLAG, .offset = (at),                           \
        .help = "print one JSON object"                                                \
    }

/* --threads of a team that computes. */
#define EK_VERB_THREADS(at)                                                            \
    {                                                                                  \
        .name = "threads", .letter = 't', .type = EK_OPT_INT, .offset = (at),          \
        .value = "N", .fallback = "0", .min = 0, .max = 256,                           \
        .help = "threads that compute; 0: one a physical core"                         \
    }

/* One a file: verb_<name>.c. */
extern const struct ek_verb ek_verb_inspect;
extern const struct ek_verb ek_verb_generate;
extern const struct ek_verb ek_verb_chat;
extern const struct ek_verb ek_verb_perplexity;
extern const struct ek_verb ek_verb_quantize;
extern const struct ek_verb ek_verb_serve;
extern const struct ek_verb ek_verb_route;
extern const struct ek_verb ek_verb_eval;
extern const struct ek_verb ek_verb_recommend;
extern const struct ek_verb ek_verb_data;
extern const struct ek_verb ek_verb_plot;
extern const struct ek_verb ek_verb_export;
extern const struct ek_verb ek_verb_train;
extern const struct ek_verb ek_verb_simulate;
extern const struct ek_verb ek_verb_bench;

/* The verbs of keel bench: verb_bench_<name>.c. Their tables' names are both words
 * ("bench serve"), so that messages, help and pages name them whole. */
extern const struct ek_verb ek_verb_bench_memory;
extern const struct ek_verb ek_verb_bench_kernel;
extern const struct ek_verb ek_verb_bench_attention;
extern const struct ek_verb ek_verb_bench_model;
extern const struct ek_verb ek_verb_bench_serve;
extern const struct ek_verb ek_verb_bench_route;

/* The verbs of keel data: verb_data_<name>.c. */
extern const struct ek_verb ek_verb_data_pack;
extern const struct ek_verb ek_verb_data_stats;
extern const struct ek_verb ek_verb_data_synth;
extern const struct ek_verb *const ek_verb_data_subs[]; /* all of them, then NULL */

/* The verbs of a verb, NULL at the end; NULL for one that has none. */
const struct ek_verb *const *ek_verb_subs(const struct ek_verb *verb);

/* The word by which `verb` is called: the last of its table's name. */
const char *ek_verb_word(const struct ek_verb *verb);

/* Runs the verb of verbs (NULL at the end) that argv[0] names, or says which is nearest
 * (`keel: unknown verb`, behind `keel <of>`; of may be ""). Returns an enum ek_exit. */
int ek_verb_dispatch(const struct ek_verb *const *verbs, const char *of, int argc,
                     char **argv);

/* Parses the verb's options; on --help prints it. Returns true when the verb should go
 * on, else *code is the exit code (the error was printed as `keel <verb>: ...`). */
bool ek_verb_options(const struct ek_verb *verb, void *settings,
                     struct ek_opt_args *args, int argc, char **argv,
                     struct ek_arena *arena, int *code);

/* Prints `keel <verb>: <sentence>` on standard error and returns the exit code that
 * fits: EK_EFORMAT, EK_EUNSUP and file errors of an input give 3, others 1. */
int ek_verb_fail(const struct ek_verb *verb, const struct ek_err *err, bool is_input);

#endif
