#include "load/trace.h"

#include "base/date.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES_MAX ((size_t)16 << 20) /* a prompt of 10 M tokens has 20,000 ids */
#define TIME_MS_MAX    1e14               /* three thousand years */

static const char azure_header[] = "TIMESTAMP,ContextTokens,GeneratedTokens";

struct reader {
    struct ek_trace t;
    size_t cap, cap_hashes; /* of rows and of hashes */
    const char *name;       /* of the file */
    size_t line;            /* from 1 */
    struct ek_err *err;
};

static int refuse(const struct reader *r, const char *what)
{
    return ek_err_set(r->err, EK_EFORMAT, "%s:%zu: %s", r->name, r->line, what);
}

/* Makes room for one more item in *items; limits are those of trace.h. */
static int grow(const struct reader *r, void **items, size_t *cap, size_t n,
                size_t size, size_t max)
{
    if (n < *cap)
        return 0;
    if (n >= max)
        return ek_err_set(r->err, EK_ELIMIT, "%s:%zu: more than %zu entries", r->name,
                          r->line, max);
    size_t more = *cap ? 2 * *cap : 256;
    void *p = ek_realloc_array(*items, more, size);
    if (!p)
        return ek_err_set(r->err, EK_ENOMEM, "%s: out of memory", r->name);
    *items = p;
    *cap = more;
    return 0;
}

static int add_row(struct reader *r, const struct ek_trace_row *row)
{
    void *rows = r->t.rows;
    int rc = grow(r, &rows, &r->cap, r->t.n, sizeof *row, EK_TRACE_ROWS_MAX);
    r->t.rows = rows;
    if (!rc)
        r->t.rows[r->t.n++] = *row;
    return rc;
}

static int add_hash(struct reader *r, int64_t id)
{
    void *hashes = r->t.hashes;
    int rc =
        grow(r, &hashes, &r->cap_hashes, r->t.n_hashes, sizeof id, EK_TRACE_HASHES_MAX);
    r->t.hashes = hashes;
    if (!rc)
        r->t.hashes[r->t.n_hashes++] = id;
    return rc;
}

static int take_length(const struct reader *r, int32_t *out, const json_t *object,
                       const char *key)
{
    const json_t *v = json_object_get(object, key);
    json_int_t n = json_integer_value(v);
    if (!json_is_integer(v) || n < 1 || n > EK_TRACE_TOKENS_MAX)
        return ek_err_set(r->err, EK_EFORMAT,
                          "%s:%zu: '%s': expected a whole number, 1 to %d", r->name,
                          r->line, key, EK_TRACE_TOKENS_MAX);
    *out = (int32_t)n;
    return 0;
}

static int take_hashes(struct reader *r, struct ek_trace_row *row, const json_t *object)
{
    const json_t *ids = json_object_get(object, "hash_ids");
    int rc = 0;
    row->first_hash = r->t.n_hashes;
    if (!ids)
        return 0;
    if (!json_is_array(ids) || json_array_size(ids) > EK_TRACE_TOKENS_MAX)
        return refuse(r, "'hash_ids': expected a list of whole numbers");
    for (size_t i = 0; i < json_array_size(ids) && !rc; i++) {
        const json_t *id = json_array_get(ids, i);
        rc = json_is_integer(id)
                 ? add_hash(r, json_integer_value(id))
                 : refuse(r, "'hash_ids': expected a list of whole numbers");
    }
    row->n_hashes = (uint32_t)json_array_size(ids);
    return rc;
}

static int take_mooncake(struct reader *r, const char *line, size_t n)
{
    static const struct ek_json_limits limits = {
        .max_bytes = LINE_BYTES_MAX, .max_values = 1 << 20, .max_depth = 8};
    struct ek_trace_row row = {0};
    json_t *object = NULL;
    int rc = ek_json_parse(&object, line, n, &limits, r->err);
    if (rc) {
        ek_err_prefix(r->err, "%s:%zu", r->name, r->line);
        return rc;
    }
    const json_t *at = json_object_get(object, "timestamp");
    double ms = json_number_value(at);
    if (!json_is_object(object))
        rc = refuse(r, "expected a JSON object");
    else if (!json_is_number(at) || !(ms >= 0.0 && ms <= TIME_MS_MAX))
        rc = refuse(r, "'timestamp': expected milliseconds, 0 or more");
    row.at_us = rc ? 0 : (int64_t)(ms * 1000.0);
    if (!rc)
        rc = take_length(r, &row.n_in, object, "input_length");
    if (!rc)
        rc = take_length(r, &row.n_out, object, "output_length");
    if (!rc)
        rc = take_hashes(r, &row, object);
    if (!rc)
        rc = add_row(r, &row);
    json_decref(object);
    return rc;
}

static bool take_char(const char **p, const char *end, char c)
{
    if (*p == end || **p != c)
        return false;
    ++*p;
    return true;
}

static bool take_count(int32_t *out, const char **p, const char *end)
{
    int64_t v = 0;
    const char *digits = *p;
    for (; *p < end && **p >= '0' && **p <= '9'; ++*p) {
        v = 10 * v + (**p - '0');
        if (v > EK_TRACE_TOKENS_MAX)
            return false;
    }
    *out = (int32_t)v;
    return *p > digits && v > 0;
}

static int take_azure(struct reader *r, const char *line, size_t n)
{
    struct ek_trace_row row = {0};
    const char *p = line, *end = line + n;
    if (!ek_date_take(&row.at_us, &p, end) || !take_char(&p, end, ','))
        return refuse(r, "TIMESTAMP: expected a time such as "
                         "2023-11-16 18:15:46.6805900 and a comma");
    if (!take_count(&row.n_in, &p, end) || !take_char(&p, end, ','))
        return refuse(r, "ContextTokens: expected a whole number, 1 to 10000000, "
                         "and a comma");
    if (!take_count(&row.n_out, &p, end) || p != end)
        return refuse(r, "GeneratedTokens: expected a whole number, 1 to 10000000, "
                         "and the end of the line");
    return add_row(r, &row);
}

/* By time, and lines of one time in the order of the file: qsort keeps none. */
struct sortable {
    struct ek_trace_row row;
    size_t line;
};

static int by_time(const void *a, const void *b)
{
    const struct sortable *x = a, *y = b;
    if (x->row.at_us != y->row.at_us)
        return x->row.at_us < y->row.at_us ? -1 : 1;
    return x->line < y->line ? -1 : x->line > y->line;
}

static int sort_rows(struct reader *r)
{
    bool is_sorted = true;
    for (size_t i = 1; i < r->t.n; i++)
        is_sorted = is_sorted && r->t.rows[i].at_us >= r->t.rows[i - 1].at_us;
    if (is_sorted)
        return 0;
    struct sortable *all = ek_alloc_array(r->t.n, sizeof *all);
    if (!all)
        return ek_err_set(r->err, EK_ENOMEM, "%s: out of memory", r->name);
    for (size_t i = 0; i < r->t.n; i++)
        all[i] = (struct sortable){r->t.rows[i], i};
    qsort(all, r->t.n, sizeof *all, by_time);
    for (size_t i = 0; i < r->t.n; i++)
        r->t.rows[i] = all[i].row;
    ek_free(all);
    return 0;
}

/* One line without its end; the first that is not empty tells which format it is. */
static int take_line(struct reader *r, bool *is_azure, const char *line, size_t n)
{
    while (n > 0 && (line[n - 1] == '\r' || line[n - 1] == ' ' || line[n - 1] == '\t'))
        n--;
    if (n == 0)
        return 0;
    if (*is_azure)
        return take_azure(r, line, n);
    if (*line == '{')
        return take_mooncake(r, line, n);
    if (r->t.n == 0 && n == sizeof azure_header - 1 && !memcmp(line, azure_header, n)) {
        *is_azure = true;
        return 0;
    }
    return ek_err_set(r->err, EK_EFORMAT,
                      "%s:%zu: expected a JSON object (Mooncake) or the header %s "
                      "(Azure)",
                      r->name, r->line, azure_header);
}

int ek_trace_parse(struct ek_trace *t, const char *name, const char *text, size_t n,
                   struct ek_err *err)
{
    struct reader r = {.name = name, .err = err};
    bool is_azure = false;
    int rc = 0;
    for (size_t at = 0; at < n && !rc;) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t len = end ? (size_t)(end - (text + at)) : n - at;
        r.line++;
        rc = take_line(&r, &is_azure, text + at, len);
        at += len + 1;
    }
    if (!rc && r.t.n == 0)
        rc = ek_err_set(err, EK_EFORMAT, "%s: holds no request", name);
    if (!rc)
        rc = sort_rows(&r);
    if (rc) {
        ek_trace_release(&r.t);
        return rc;
    }
    int64_t first = r.t.rows[0].at_us;
    for (size_t i = 0; i < r.t.n; i++)
        r.t.rows[i].at_us -= first;
    *t = r.t;
    return 0;
}

int ek_trace_read(struct ek_trace *t, const char *path, struct ek_err *err)
{
    struct ek_file f;
    int rc = ek_file_open(&f, path, err);
    if (rc)
        return rc;
    rc = ek_trace_parse(t, path, f.data ? (const char *)f.data : "", f.size, err);
    ek_file_close(&f);
    return rc;
}

void ek_trace_release(struct ek_trace *t)
{
    ek_free(t->rows);
    ek_free(t->hashes);
    *t = (struct ek_trace){0};
}
