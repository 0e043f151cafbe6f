/* verb_route_run.h - a proxy of this process: its signals, and the configurations that
 * come after the first. */
#ifndef EVENKEEL_CLI_VERB_ROUTE_RUN_H
#define EVENKEEL_CLI_VERB_ROUTE_RUN_H

#include "cli/verb.h"
#include "route/config.h"

#define EK_ROUTE_ARENA_BYTES (4u << 20) /* of one configuration */

/* What the verb was called with, and how it is read again. */
struct ek_route_words {
    int argc;
    char **argv;
    int (*read)(struct ek_route_config *c, int argc, char **argv,
                struct ek_arena *arena, struct ek_err *err);
};

/* Routes by *c until a signal ends it: SIGTERM, SIGINT; SIGHUP reads the words again.
 * *code: an enum ek_exit. Errors: those of ek_route_new and ek_route_run. */
int ek_verb_route_run(const struct ek_route_config *c,
                      const struct ek_route_words *words, int *code,
                      struct ek_err *err) EK_MUST_USE;

#endif
