/* events_int.h - how the readers and the generator put a log together: rows in any
 * order go in, grouped and sorted rows come out. Private to data/. */
#ifndef EVENKEEL_DATA_EVENTS_INT_H
#define EVENKEEL_DATA_EVENTS_INT_H

#include "base/file.h"
#include "data/events.h"
#include "data/intern.h"

#include <stdbool.h>

/* What a log's arrays live in. A log that was read owns heap blocks, one from a pack a
 * mapping. */
struct ek_events_store {
    struct ek_file file; /* or zeroed */
    void *owned[8 + 5 * EK_EVENTS_COLUMNS_MAX];
    int n_owned;
    struct ek_column columns[EK_EVENTS_COLUMNS_MAX];
};

/* Takes p (may be NULL) into the store; freed with it. */
void ek_events_own(struct ek_events_store *s, void *p);

struct ek_build_column {
    char *name; /* owned, NUL-terminated */
    enum ek_column_of of;
    enum ek_column_kind kind;
    float *numbers;  /* owned; or NULL */
    int32_t *levels; /* owned; or NULL */
    int64_t n, cap;  /* values */
    struct ek_intern names;
};

struct ek_build {
    struct ek_intern users, items;
    int32_t *user, *item; /* (n) owned */
    int64_t *time;        /* (n) owned; NULL without has_times */
    int64_t n, cap;
    bool has_times;
    bool is_grouped; /* users came one behind the other, in the order of their index */
    struct ek_build_column columns[EK_EVENTS_COLUMNS_MAX];
    int n_columns;
    int64_t n_ties;         /* set by finish: rows whose time is the one before */
    int64_t n_users_sorted; /* users whose rows were not in the order of time */
};

void ek_build_init(struct ek_build *b, bool has_times);
void ek_build_release(struct ek_build *b); /* may be zeroed */

/* Errors: EK_ELIMIT EK_EVENTS_COLUMNS_MAX are there; EK_ENOMEM. */
int ek_build_column(struct ek_build *b, const char *name, size_t n,
                    enum ek_column_of of, enum ek_column_kind kind) EK_MUST_USE;

/* Adds a row; time is passed over without has_times. The caller adds a value to each
 * column then, to one of users when the user is new (ek_build_number, _level). Errors:
 * EK_ELIMIT EK_EVENTS_MAX, EK_ENOMEM. */
int ek_build_row(struct ek_build *b, int32_t user, int32_t item,
                 int64_t time) EK_MUST_USE;
int ek_build_number(struct ek_build_column *c, float value) EK_MUST_USE;
int ek_build_level(struct ek_build_column *c, const char *name, size_t n) EK_MUST_USE;

/* Groups by user, sorts by time, and moves everything into *e; b is only releasable
 * then. Needs a row. Errors: EK_ENOMEM; *e unchanged. */
int ek_build_finish(struct ek_build *b, struct ek_events *e,
                    const char *source) EK_MUST_USE;

#endif
