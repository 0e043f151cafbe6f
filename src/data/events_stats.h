/* events_stats.h - how uneven a log is. */
#ifndef EVENKEEL_DATA_EVENTS_STATS_H
#define EVENKEEL_DATA_EVENTS_STATS_H

#include "data/events.h"

#define EK_STATS_BATCHES 5
#define EK_STATS_BINS    40

struct ek_stats {
    int64_t min, max; /* length of a user */
    double mean;
    int64_t p50, p90, p99; /* nearest rank */
    double top1, top10;    /* share of events on the most popular 1 and 10 % of items */
    double gini;           /* of the items' counts: 0 all alike, 1 all on one */
    int64_t max_length;    /* lengths are cut to this for what follows */
    /* Share of a padded batch that is padding: users shuffled (seed 1), and users of
     * about one length together. */
    int64_t batch[EK_STATS_BATCHES];
    double waste_shuffled[EK_STATS_BATCHES], waste_bucketed[EK_STATS_BATCHES];
    /* Users by length, bins of equal ratio from 1 to max; items by rank likewise:
     * events of the item at the bin's first rank. */
    int64_t users_in[EK_STATS_BINS];
    double bin_from[EK_STATS_BINS + 1];
    int64_t rank[EK_STATS_BINS], count_at[EK_STATS_BINS];
};

/* max_length 0: lengths are not cut. Errors: EK_ENOMEM. */
int ek_stats_of(struct ek_stats *s, const struct ek_events *e, int64_t max_length,
                struct ek_err *err) EK_MUST_USE;

#endif
