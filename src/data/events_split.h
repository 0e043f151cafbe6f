/* events_split.h - which rows of a log train, validate and test.
 *
 *   rows of user u    offsets[u] ... train_end[u] ... valid_end[u] ... offsets[u + 1]
 *                     └──── train ───┘└─── valid ───┘└──── test ─────┘
 *
 * Leave one out: the last row of a user tests, the one before it validates; a user of
 * fewer than 3 rows trains whole. By time: one moment for all users begins validation,
 * another one the test; a row at that moment is behind it. Within a user the order is
 * the log's: time, and rows of one time as the file had them.
 */
#ifndef EVENKEEL_DATA_EVENTS_SPLIT_H
#define EVENKEEL_DATA_EVENTS_SPLIT_H

#include "data/events.h"

enum ek_split_kind { EK_SPLIT_LEAVE_ONE_OUT, EK_SPLIT_BY_TIME };

struct ek_split {
    enum ek_split_kind kind;
    int64_t *train_end, *valid_end;   /* (n_users) rows of the log; owned, one block */
    int64_t n_train, n_valid, n_test; /* rows */
    int64_t n_short;                  /* leave one out: users under 3 rows */
    int64_t valid_from, test_from; /* by time: microseconds; valid_from <= test_from */
};

/* Errors: EK_ENOMEM. */
int ek_split_leave_one_out(struct ek_split *s, const struct ek_events *e,
                           struct ek_err *err) EK_MUST_USE;

/* The latest `test` of all rows test, the `valid` before them validate (shares, >= 0,
 * together below 1); rows of one time stay together, so the shares are met up to ties.
 * Errors: EK_EINVAL the log has no times, or shares out of range; EK_ENOMEM. */
int ek_split_by_time(struct ek_split *s, const struct ek_events *e, double valid,
                     double test, struct ek_err *err) EK_MUST_USE;

void ek_split_release(struct ek_split *s); /* may be zeroed */

/* What was done, ties included, for a person. Returns out. */
const char *ek_split_text(char out[400], const struct ek_split *s);

#endif
