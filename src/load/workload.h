/* workload.h - which requests come when: lengths that are fixed or a trace's, arrivals
 * that are drawn or a trace's. The same seed gives the same requests.
 */
#ifndef EVENKEEL_LOAD_WORKLOAD_H
#define EVENKEEL_LOAD_WORKLOAD_H

#include "base/rng.h"
#include "load/trace.h"

#include <stdbool.h>

/* Longer arrivals than this are no test any more; products stay far from overflow. */
#define EK_WORKLOAD_US_MAX (INT64_C(366) * 86400 * 1000000)

struct ek_workload_options {
    const struct ek_trace *trace;         /* borrowed; NULL: the fixed lengths */
    int64_t prompt_tokens, output_tokens; /* fixed; >= 1 */
    double length_scale;                  /* of the trace's lengths; > 0 */
    int64_t max_tokens; /* prompt and answer together; 0: no ceiling. The answer keeps
                           its length up to half of it, the prompt gives way */
    double rate;        /* requests a second; 0: the trace's own, or a closed loop */
    double burstiness;  /* shape of the gamma distribution arrivals are drawn from: 1 is
                           Poisson, less is burstier, more evener; 0: the trace's
                           pattern, or 1 without one */
    double time_scale;  /* the trace runs so many times as fast when rate is 0; > 0 */
    uint64_t n_max;     /* requests; 0: the trace's number, or no end */
    uint64_t seed;
};

struct ek_load_item {
    uint64_t index;        /* of the request, from 0 */
    int64_t at_us;         /* since the start; not used by a closed loop */
    int64_t n_in, n_out;   /* tokens wanted */
    const int64_t *hashes; /* of the trace */
    size_t n_hashes;
    bool is_shortened; /* by max_tokens */
};

struct ek_workload {
    struct ek_workload_options o;
    struct ek_rng rng;
    uint64_t next;      /* index of the next request */
    double at_us;       /* of the latest drawn arrival */
    double time_factor; /* a trace's times are multiplied by it */
};

void ek_workload_init(struct ek_workload *w, const struct ek_workload_options *o);

/* The next request; false when there are no more. at_us never falls. Cannot fail. */
bool ek_workload_next(struct ek_workload *w, struct ek_load_item *item);

#endif
