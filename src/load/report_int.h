/* report_int.h - what the three reports share: the rows, and sums of the result. */
#ifndef EVENKEEL_LOAD_REPORT_INT_H
#define EVENKEEL_LOAD_REPORT_INT_H

#include "load/report.h"

struct ek_report_row {
    const char *key;   /* JSON */
    const char *title; /* table and picture */
    const struct ek_hist *hist;
};

#define EK_REPORT_ROWS 6

/* In the order of the table; lateness last, and only of an open loop (*n is then all,
 * else one less). */
void ek_report_rows(struct ek_report_row rows[EK_REPORT_ROWS], size_t *n,
                    const struct ek_load_facts *f);

/* n a second over the run's span; 0 when it has none. */
double ek_report_rate(const struct ek_load_facts *f, double n);

bool ek_report_has_slo(const struct ek_load_facts *f);

#endif
