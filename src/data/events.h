/* events.h - interaction logs: what each user did, in the order of time, as jagged
 * columns. One row is one event; the rows of user u are [offsets[u], offsets[u + 1]).
 *
 *   users    "ann"        "bob"
 *   offsets   0            3      5
 *   items     7  2  7      2  0           indices of item_names
 *   times     10 20 20     5  9           microseconds; or none
 *   columns   1.0 ...                     numbers, categories; of events or users
 *
 * Ids are exact: an index counts names in the order of their first appearance in the
 * file, and the names as they were written are kept. Rows of one user with equal times
 * keep the order of the file; without times all of them do.
 * Made by events_read.h (text), events_synth.h and events_pack.h (the mapped file).
 */
#ifndef EVENKEEL_DATA_EVENTS_H
#define EVENKEEL_DATA_EVENTS_H

#include "base/err.h"

#include <stdint.h>

#define EK_EVENTS_MAX         ((int64_t)1 << 36) /* rows: half a terabyte of items */
#define EK_EVENTS_USERS_MAX   ((int64_t)INT32_MAX)
#define EK_EVENTS_ITEMS_MAX   ((int64_t)INT32_MAX)
#define EK_EVENTS_LEVELS_MAX  ((int64_t)INT32_MAX) /* of one category */
#define EK_EVENTS_COLUMNS_MAX 32
#define EK_EVENTS_TIME_MAX    ((int64_t)1 << 61) /* of |time|: differences fit */
#define EK_EVENTS_NAME_MAX    4096               /* bytes of an id or a column's name */

/* n names one behind the other: name i is bytes[offsets[i], offsets[i + 1]). */
struct ek_names {
    int64_t n;
    const int64_t *offsets; /* (n+1) */
    const char *bytes;      /* not NUL-terminated */
};

/* Name i and its length. */
static inline const char *ek_names_get(const struct ek_names *names, int64_t i,
                                       size_t *len)
{
    *len = (size_t)(names->offsets[i + 1] - names->offsets[i]);
    return names->bytes + names->offsets[i];
}

enum ek_column_of { EK_COLUMN_EVENT, EK_COLUMN_USER };
enum ek_column_kind { EK_COLUMN_NUMERIC, EK_COLUMN_CATEGORY };

struct ek_column {
    const char *name; /* NUL-terminated, unique within its log */
    enum ek_column_of of;
    enum ek_column_kind kind;
    const float *numbers;  /* (n) or (n_users), all finite; NULL for a category */
    const int32_t *levels; /* the same, in [0, names.n); NULL for a number */
    struct ek_names names; /* of the levels */
};

struct ek_events_store; /* what the arrays live in: the heap or a mapping */

struct ek_events {
    int64_t n;              /* rows, >= 1 */
    int64_t n_users;        /* >= 1; each has a row at least */
    int64_t n_items;        /* >= 1 */
    const int64_t *offsets; /* (n_users+1) from 0 to n, rising */
    const int32_t *items;   /* (n) in [0, n_items) */
    const int64_t *times;   /* (n) microseconds since 1970 or any other origin, never
                               falling within a user; NULL: unknown */
    struct ek_names users, item_names;
    const struct ek_column *columns; /* (n_columns) */
    int n_columns;
    const char *source; /* "Beauty.txt (s3rec)"; where it came from, for a person */
    struct ek_events_store *store; /* owned */
};

void ek_events_release(struct ek_events *e); /* may be zeroed */

/* The column of that name, or NULL. */
const struct ek_column *ek_events_column(const struct ek_events *e, const char *name);

#endif
