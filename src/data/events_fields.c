/* events_fields.c - a line of a table as fields, and fields as numbers and times. */
#include "base/date.h"
#include "data/events_read_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int add_field(struct ek_read *r, struct ek_fields *f, const char *p, size_t n,
                     size_t column)
{
    if (f->n == EK_READ_FIELDS_MAX)
        return ek_read_refuse(r, EK_ELIMIT, column, "more than %d columns in one line",
                              EK_READ_FIELDS_MAX);
    f->items[f->n++] = (struct ek_field){p, n, column};
    return 0;
}

static int split(struct ek_read *r, struct ek_fields *f, const char *line, size_t n,
                 char separator)
{
    int rc = 0;
    for (size_t at = 0; !rc; at++) {
        const char *end = memchr(line + at, separator, n - at);
        size_t len = end ? (size_t)(end - line) - at : n - at;
        rc = add_field(r, f, line + at, len, at + 1);
        at += len;
        if (!end)
            break;
    }
    return rc;
}

static size_t count_quotes(const char *p, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += p[i] == '"';
    return count;
}

/* Lines into f->record until quotes are even: a field in quotes may hold line ends. */
static int join_lines(struct ek_read *r, struct ek_fields *f, const char *line,
                      size_t n)
{
    size_t quotes = 0;
    uint64_t first = r->lines.number;
    for (;;) {
        int rc = ek_buf_add(&f->record, line, n);
        if (rc)
            return ek_read_refuse(r, rc, 1, "the record from line %llu on: %s",
                                  (unsigned long long)first, ek_status_text(rc));
        quotes += count_quotes(line, n);
        if (quotes % 2 == 0)
            return 0;
        rc = ek_read_line(r, &line, &n);
        if (rc)
            return rc;
        if (!line)
            return ek_read_refuse(
                r, EK_EFORMAT, 1,
                "a quote of the record from line %llu on is not closed",
                (unsigned long long)first);
        if (ek_buf_add_char(&f->record, '\n'))
            return ek_read_failed(r, EK_ENOMEM);
    }
}

/* The field in quotes at p[at,n), unquoted in place: *len bytes from p + at on. Returns
 * where it ends, behind its last quote; quotes are even, so there is one. */
static size_t unquote(char *p, size_t at, size_t n, size_t *len)
{
    size_t to = at, i = at + 1;
    for (; i < n; i++) {
        if (p[i] == '"' && (i + 1 == n || p[i + 1] != '"'))
            break;
        i += p[i] == '"';
        p[to++] = p[i];
    }
    *len = to - at;
    return i < n ? i + 1 : n;
}

static int split_quoted(struct ek_read *r, struct ek_fields *f, char separator)
{
    char *p = f->record.data;
    size_t n = f->record.len, at = 0;
    for (;;) {
        size_t len = 0, end;
        if (at < n && p[at] == '"') {
            end = unquote(p, at, n, &len);
            if (end < n && p[end] != separator)
                return ek_read_refuse(r, EK_EFORMAT, end + 1,
                                      "text behind a closing quote: expected '%c'",
                                      separator);
        } else {
            const char *sep = memchr(p + at, separator, n - at);
            end = sep ? (size_t)(sep - p) : n;
            len = end - at;
            if (memchr(p + at, '"', len))
                return ek_read_refuse(r, EK_EFORMAT, at + 1,
                                      "a quote inside a field without quotes: expected "
                                      "\"...\" with inner quotes doubled");
        }
        int rc = add_field(r, f, p + at, len, at + 1);
        if (rc || end == n)
            return rc;
        at = end + 1;
    }
}

int ek_read_fields(struct ek_read *r, struct ek_fields *f, char separator,
                   bool has_quotes)
{
    const char *line;
    size_t n;
    f->n = 0;
    do {
        int rc = ek_read_line(r, &line, &n);
        if (rc || !line)
            return rc;
    } while (n == 0);
    if (!has_quotes || !memchr(line, '"', n))
        return split(r, f, line, n, separator);
    ek_buf_reset(&f->record);
    int rc = join_lines(r, f, line, n);
    return rc ? rc : split_quoted(r, f, separator);
}

/* Up to 18 digits, nothing else. */
static bool take_whole(int64_t *out, const char *p, size_t n)
{
    int64_t v = 0;
    bool is_negative = n > 0 && p[0] == '-';
    size_t i = is_negative;
    if (n == i || n - i > 18)
        return false;
    for (; i < n; i++) {
        if (p[i] < '0' || p[i] > '9')
            return false;
        v = 10 * v + (p[i] - '0');
    }
    *out = is_negative ? -v : v;
    return true;
}

bool ek_read_number(double *out, const char *p, size_t n)
{
    char text[64];
    char *end;
    int64_t whole;
    if (take_whole(&whole, p, n)) {
        *out = (double)whole;
        return true;
    }
    /* strtod takes words, hexadecimal and blanks, too: those are refused here. */
    if (n == 0 || n >= sizeof text)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!strchr("0123456789+-.eE", p[i]) || !p[i])
            return false;
        text[i] = p[i];
    }
    text[n] = 0;
    double v = strtod(text, &end);
    if (*end || !isfinite(v))
        return false;
    *out = v;
    return true;
}

bool ek_read_time(int64_t *us, const char *p, size_t n, enum ek_events_unit unit)
{
    static const int64_t scales[] = {1000000, 1000, 1};
    int64_t scale = scales[unit], whole;
    double v;
    const char *at = p, *end = p + n;
    if (take_whole(&whole, p, n)) {
        if (whole > EK_EVENTS_TIME_MAX / scale || whole < -(EK_EVENTS_TIME_MAX / scale))
            return false;
        *us = whole * scale;
        return true;
    }
    if (ek_date_take(us, &at, end) && at == end)
        return true;
    at = p;
    if (ek_date_take_day(us, &at, end) && at == end)
        return true;
    if (!ek_read_number(&v, p, n))
        return false;
    v *= (double)scale;
    if (!(fabs(v) < (double)EK_EVENTS_TIME_MAX))
        return false;
    *us = (int64_t)llround(v);
    return true;
}
