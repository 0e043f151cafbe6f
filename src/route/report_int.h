/* report_int.h - what the decoders share: a report that is being put together. */
#ifndef EVENKEEL_ROUTE_REPORT_INT_H
#define EVENKEEL_ROUTE_REPORT_INT_H

#include "net/message.h"
#include "route/report.h"

#include <stdbool.h>

struct ek_report_making {
    struct ek_load_report r;
    const struct ek_report_names *names; /* NULL: the defaults */
};

/* The figure of a name outside of the maps ("cpu_utilization"), and of one in
 * named_metrics; unknown ones are skipped. */
void ek_report_set(struct ek_report_making *m, struct ek_text name, double v);
void ek_report_set_named(struct ek_report_making *m, struct ek_text name, double v);

/* A number as JSON writes them, and nothing else, whatever the locale. */
bool ek_report_number(double *v, struct ek_text t);

int ek_report_orca_text(struct ek_report_making *m, struct ek_text t) EK_MUST_USE;
int ek_report_orca_json(struct ek_report_making *m, struct ek_text t) EK_MUST_USE;
int ek_report_orca_proto(struct ek_report_making *m, const unsigned char *p,
                         size_t n) EK_MUST_USE;

#endif
