#include "data/events_read.h"

#include "base/mem.h"
#include "data/events_read_int.h"

#include <stdio.h>
#include <string.h>

#define REPORT_BYTES ((uint64_t)1 << 20)

const char *ek_events_format_name(enum ek_events_format f)
{
    static const char *const names[] = {"auto", "s3rec", "recbole", "csv", "tsv"};
    return names[f];
}

int ek_read_at(const struct ek_read *r, int status, size_t column)
{
    ek_err_prefix(r->err, "%s:%llu:%zu", r->lines.name,
                  (unsigned long long)r->lines.number, column);
    return status;
}

int ek_read_failed(const struct ek_read *r, int status)
{
    if (status != EK_ELIMIT)
        return ek_err_set(r->err, status, "%s: %s", r->lines.name,
                          ek_status_text(status));
    return ek_read_refuse(r, EK_ELIMIT, 1,
                          "too much for one log: expected at most %lld users, %lld "
                          "items and %lld events",
                          (long long)EK_EVENTS_USERS_MAX,
                          (long long)EK_EVENTS_ITEMS_MAX, (long long)EK_EVENTS_MAX);
}

const char *ek_read_option(const struct ek_read *r, char out[32], const char *name)
{
    snprintf(out, 32, "%s%s", r->o->says_keys ? "data." : "--", name);
    for (char *p = out; *p && !r->o->says_keys; p++)
        *p = *p == '_' ? '-' : *p;
    return out;
}

int ek_read_line(struct ek_read *r, const char **line, size_t *n)
{
    int rc = ek_lines_next(&r->lines, line, n, r->err);
    if (rc || !r->o->on_progress || r->lines.read < r->next_report)
        return rc;
    r->next_report = r->lines.read + REPORT_BYTES;
    if (r->o->on_progress(r->o->arg, (int64_t)r->lines.read, r->o->total_bytes))
        return 0;
    return ek_err_set(r->err, EK_ECANCELED, "%s: %s", r->lines.name,
                      ek_status_text(EK_ECANCELED));
}

static bool ends_with(const char *s, size_t n, const char *end)
{
    size_t len = strlen(end);
    return n > len && !memcmp(s + n - len, end, len);
}

static enum ek_events_format format_of(const char *path)
{
    static const struct {
        const char *end;
        enum ek_events_format format;
    } known[] = {{".txt", EK_EVENTS_S3REC},
                 {".inter", EK_EVENTS_RECBOLE},
                 {".csv", EK_EVENTS_CSV},
                 {".tsv", EK_EVENTS_TSV}};
    size_t n = strlen(path);
    if (ends_with(path, n, ".gz"))
        n -= 3;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (ends_with(path, n, known[i].end))
            return known[i].format;
    }
    return EK_EVENTS_AUTO;
}

static int read_all(struct ek_read *r, enum ek_events_format format)
{
    char option[32];
    switch (format) {
    case EK_EVENTS_S3REC:
        return ek_read_s3rec(r);
    case EK_EVENTS_RECBOLE:
    case EK_EVENTS_CSV:
    case EK_EVENTS_TSV:
        return ek_read_table(r, format);
    default:
        return ek_err_set(r->err, EK_EINVAL,
                          "%s: the name does not tell the format: expected .txt, "
                          ".inter, .csv or .tsv, perhaps with .gz, or %s",
                          r->lines.name, ek_read_option(r, option, "format"));
    }
}

/* The name without folders, for the source. */
static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Everything behind the opening of r->lines, which is released. */
static int read_lines(struct ek_read *r, struct ek_events *e,
                      struct ek_events_told *told)
{
    enum ek_events_format format = r->o->format;
    char source[512];
    if (format == EK_EVENTS_AUTO)
        format = format_of(r->lines.name);
    int rc = read_all(r, format);
    if (!rc && r->build.n == 0)
        rc = ek_err_set(r->err, EK_EFORMAT, "%s: holds no event: expected %s",
                        r->lines.name,
                        format == EK_EVENTS_S3REC ? "lines of USER ITEM ITEM ..."
                                                  : "a line an event below the header");
    snprintf(source, sizeof source, "%.400s (%s)", last_part(r->lines.name),
             ek_events_format_name(format));
    if (!rc) {
        rc = ek_build_finish(&r->build, e, source);
        if (rc)
            ek_read_failed(r, rc);
    }
    if (!rc && told)
        *told = (struct ek_events_told){.format = format,
                                        .has_times = e->times != NULL,
                                        .n_lines = r->lines.number,
                                        .n_bytes = r->lines.bytes,
                                        .n_file_bytes = r->lines.read,
                                        .n_ties = r->build.n_ties,
                                        .n_users_sorted = r->build.n_users_sorted};
    ek_build_release(&r->build);
    ek_lines_release(&r->lines);
    return rc;
}

static size_t max_line(const struct ek_events_options *o)
{
    return o->max_line ? o->max_line : EK_EVENTS_LINE_MAX;
}

int ek_events_read(struct ek_events *e, struct ek_events_told *told, const char *path,
                   const struct ek_events_options *o, struct ek_err *err)
{
    struct ek_read r = {.o = o, .err = err};
    int rc = ek_lines_open(&r.lines, path, max_line(o), err);
    return rc ? rc : read_lines(&r, e, told);
}

int ek_events_parse(struct ek_events *e, struct ek_events_told *told, const char *name,
                    const void *text, size_t n, const struct ek_events_options *o,
                    struct ek_err *err)
{
    struct ek_read r = {.o = o, .err = err};
    int rc = ek_lines_of(&r.lines, name, text, n, max_line(o), err);
    return rc ? rc : read_lines(&r, e, told);
}
