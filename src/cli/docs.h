/* docs.h - man pages and shell completion, made at build time from the tables. */
#ifndef EVENKEEL_CLI_DOCS_H
#define EVENKEEL_CLI_DOCS_H

#include "base/err.h"
#include "cli/verb.h"

#include <stddef.h>

/* Writes keel.1, keel-<verb>.1 for each verb and keel.bash into `folder`, which exists.
 * Errors: those of ek_file_write; EK_ENOMEM. */
int ek_docs_write(const char *folder, const struct ek_verb *const *verbs, size_t n,
                  struct ek_err *err) EK_MUST_USE;

#endif
