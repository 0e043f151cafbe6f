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

/* The next line; *line NULL at the end. Tells on_progress. */
int ek_read_line(struct ek_read *r, const char **line, size_t *n) EK_MUST_USE;

/* One a format: all lines into r->build. */
int ek_read_s3rec(struct ek_read *r) EK_MUST_USE;

#endif
