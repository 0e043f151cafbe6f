/* events_read_int.h - what the readers of text share; private to data/. */
#ifndef EVENKEEL_DATA_EVENTS_READ_INT_H
#define EVENKEEL_DATA_EVENTS_READ_INT_H

#include "data/events_int.h"
#include "data/events_read.h"
#include "data/lines.h"

struct ek_read {
    struct ek_lines lines;
    struct ek_build build;
    const struct ek_events_options *o;
    uint64_t next_report; /* file bytes at which on_progress is called again */
    struct ek_err *err;
};

/* The sentence "<file>:<line>:<column>: " and what follows; column counts bytes from 1.
 * Returns the status. */
#define ek_read_refuse(r, status, column, ...)                                         \
    (ek_err_set((r)->err, status, __VA_ARGS__), ek_read_at(r, status, column))
int ek_read_at(const struct ek_read *r, int status, size_t column);

/* Out of memory, or a limit of the log, while a row was added. */
int ek_read_failed(const struct ek_read *r, int status);

/* What sets `name` (user_numeric), for a sentence: a flag, or a configuration's key. */
const char *ek_read_option(const struct ek_read *r, char out[32], const char *name);

/* The next line; *line NULL at the end. Tells on_progress. */
int ek_read_line(struct ek_read *r, const char **line, size_t *n) EK_MUST_USE;

/* One a format: all lines into r->build. */
int ek_read_s3rec(struct ek_read *r) EK_MUST_USE;
int ek_read_table(struct ek_read *r, enum ek_events_format format) EK_MUST_USE;

/* One line of a table, cut at the separator (events_fields.c). */
struct ek_field {
    const char *p;
    size_t n;
    size_t column; /* where it begins in its line, in bytes from 1 */
};

#define EK_READ_FIELDS_MAX 1024

struct ek_fields {
    struct ek_field items[EK_READ_FIELDS_MAX];
    size_t n;
    struct ek_buf record; /* of lines with quotes: unquoted text, may span lines */
};

/* The next record; fields->n 0 at the end. Empty lines are passed over. */
int ek_read_fields(struct ek_read *r, struct ek_fields *f, char separator,
                   bool has_quotes) EK_MUST_USE;

/* Text as a finite number, as a time in microseconds. False: it is none. */
bool ek_read_number(double *out, const char *p, size_t n);
bool ek_read_time(int64_t *us, const char *p, size_t n, enum ek_events_unit unit);

#endif
