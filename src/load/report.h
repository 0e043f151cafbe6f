/* report.h - what was measured: a table for people, one JSON object, a picture. */
#ifndef EVENKEEL_LOAD_REPORT_H
#define EVENKEEL_LOAD_REPORT_H

#include "load/run.h"

/* What stands around the numbers. */
struct ek_load_facts {
    const char *url, *model, *endpoint;
    const char *trace; /* its path; NULL: fixed lengths */
    const struct ek_load_options *o;
    const struct ek_load_result *r;
};

/* All append to `out`. Errors: those of ek_buf_add. Text of servers and files is
 * escaped for where it goes; for a terminal see ek_terminal_write. */
int ek_load_report_table(struct ek_buf *out, const struct ek_load_facts *f) EK_MUST_USE;
int ek_load_report_json(struct ek_buf *out, const struct ek_load_facts *f) EK_MUST_USE;

/* SVG 1.1: a panel each for time to first token, time between tokens and end to end, a
 * logarithmic axis of time, lines at the median, p95 and p99. Follows the reader's
 * light or dark scheme. */
int ek_load_report_svg(struct ek_buf *out, const struct ek_load_facts *f) EK_MUST_USE;

#endif
