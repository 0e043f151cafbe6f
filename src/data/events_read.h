/* events_read.h - interaction logs from text, plain or gzip.
 *
 *   s3rec    USER ITEM ITEM ...      a user a line, items in the order of time; ids are
 *            1 4 12 7                whole numbers from 1 to 2^31-1; no times
 *   recbole  user_id:token⇥item_id:token⇥rating:float⇥timestamp:float
 *            196⇥242⇥3⇥881250949     an event a line; ids are any text
 *   csv,tsv  the same with plain names in the header; options say which column is what.
 *            CSV as in RFC 4180 (quotes, line ends within them), TSV without quotes
 */
#ifndef EVENKEEL_DATA_EVENTS_READ_H
#define EVENKEEL_DATA_EVENTS_READ_H

#include "data/events.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EK_EVENTS_LINE_MAX ((size_t)128 << 20) /* some ten million items of one user */

enum ek_events_format {
    EK_EVENTS_AUTO, /* by the name's end, .gz aside: .txt .inter .csv .tsv */
    EK_EVENTS_S3REC,
    EK_EVENTS_RECBOLE,
    EK_EVENTS_CSV,
    EK_EVENTS_TSV,
};

enum ek_events_unit { EK_EVENTS_SECONDS, EK_EVENTS_MS, EK_EVENTS_US };

/* Names of columns. */
struct ek_events_list {
    const char *const *names;
    size_t n;
};

/* Zeroed: all defaults. Columns belong to recbole, csv and tsv. A column that none of
 * them names is left out in csv and tsv, and taken by its type in recbole. */
struct ek_events_options {
    enum ek_events_format format;
    const char *user, *item;                 /* NULL: "user_id", "item_id" */
    const char *time;                        /* NULL: "timestamp" if there is one */
    enum ek_events_unit unit;                /* of times that are numbers */
    struct ek_events_list numeric, category; /* of events */
    struct ek_events_list user_numeric,
        user_category; /* the same in all rows of a user */
    struct ek_events_list skip;
    bool says_keys;  /* sentences name data.user_numeric, not --user-numeric */
    size_t max_line; /* 0: EK_EVENTS_LINE_MAX */
    /* May be NULL; called now and then with bytes of the file; false ends the reading
     * with EK_ECANCELED. */
    bool (*on_progress)(void *arg, int64_t done, int64_t total);
    void *arg;
    int64_t total_bytes; /* for on_progress */
};

/* What reading found, for a person. */
struct ek_events_told {
    enum ek_events_format format;
    bool has_times;
    uint64_t n_lines;
    uint64_t n_bytes; /* of text, unpacked */
    uint64_t n_file_bytes;
    int64_t n_ties;         /* rows with the time of the user's row before */
    int64_t n_users_sorted; /* users whose rows were not in the order of time */
};

const char *ek_events_format_name(enum ek_events_format f); /* "s3rec" */

/* Reads the file at `path` ("-": standard input). *told may be NULL. Errors: EK_EFORMAT
 * (file:line:column, the value and what would be right), EK_ELIMIT (events.h,
 * max_line), EK_EINVAL (options that do not fit the file), EK_ECANCELED, EK_ENOMEM,
 * those of ek_file_in_open; *e unchanged. */
int ek_events_read(struct ek_events *e, struct ek_events_told *told, const char *path,
                   const struct ek_events_options *o, struct ek_err *err) EK_MUST_USE;

/* The same from text[0,n); `name` is the file's. */
int ek_events_parse(struct ek_events *e, struct ek_events_told *told, const char *name,
                    const void *text, size_t n, const struct ek_events_options *o,
                    struct ek_err *err) EK_MUST_USE;

#endif
