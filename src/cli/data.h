/* data.h - what the verbs of keel data share. */
#ifndef EVENKEEL_CLI_DATA_H
#define EVENKEEL_CLI_DATA_H

#include "base/buf.h"
#include "cli/verb.h"
#include "data/events_stats.h"

/* Counts, as the members of a JSON object (without braces), or as lines. */
int ek_data_add_counts(struct ek_buf *out, const struct ek_events *e,
                       bool is_json) EK_MUST_USE;

/* Lengths, popularity and the waste of padding as a drawing. */
int ek_data_svg(struct ek_buf *out, const struct ek_events *e,
                const struct ek_stats *s) EK_MUST_USE;

/* Writes text to standard output, or says that it failed. Returns an enum ek_exit. */
int ek_data_print(const struct ek_verb *verb, const struct ek_buf *text, int rc);

#endif
