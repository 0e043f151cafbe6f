/* vocab.c - the vocabulary file, written piece by piece and read in one pass. */
#include "train/vocab.h"

#include "base/file.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD         "evenkeel vocabulary "
#define FORMAT       1
#define OUTPUT_BYTES (1 << 20)

/* --- writing --------------------------------------------------------------------- */

struct writer {
    struct ek_file_out file;
    struct ek_buf buf; /* a piece of it */
};

static int add_name(struct ek_buf *b, const char *s, size_t n)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < n; i++) {
        const char c = s[i];
        if (c == '\\' || c == '\n' || c == '\r')
            rc = ek_buf_add_str(b, c == '\\' ? "\\\\" : c == '\n' ? "\\n" : "\\r");
        else
            rc = ek_buf_add_char(b, c);
    }
    return rc ? rc : ek_buf_add_char(b, '\n');
}

static int flush(struct writer *w, struct ek_err *err)
{
    int rc = ek_file_out_add(&w->file, w->buf.data, w->buf.len, err);
    ek_buf_reset(&w->buf);
    return rc;
}

static int add_columns(struct ek_buf *b, const struct ek_rec_column *columns, int n)
{
    int rc = ek_buf_addf(b, HEAD "%d\ncolumns %d\n", FORMAT, n);
    for (int i = 0; !rc && i < n; i++) {
        rc = ek_buf_addf(b, "%s %d ", columns[i].is_user ? "user" : "event",
                         columns[i].levels);
        if (!rc)
            rc = add_name(b, columns[i].name, strlen(columns[i].name));
    }
    return rc;
}

static int write_all(struct writer *w, const struct ek_names *items, struct ek_err *err)
{
    int rc = ek_buf_addf(&w->buf, "items %" PRId64 "\n", items->n);
    for (int64_t i = 0; !rc && i < items->n; i++) {
        size_t n;
        const char *s = ek_names_get(items, i, &n);
        rc = add_name(&w->buf, s, n);
        if (!rc && w->buf.len > OUTPUT_BYTES)
            rc = flush(w, err);
    }
    if (!rc)
        rc = ek_buf_add_str(&w->buf, "end\n");
    return rc ? rc : flush(w, err);
}

int ek_vocab_write(const char *path, const struct ek_names *items,
                   const struct ek_rec_column *columns, int n_columns,
                   struct ek_err *err)
{
    struct writer w;
    struct ek_err why = EK_ERR_INIT;
    int rc = ek_file_out_begin(&w.file, path, err);
    if (rc)
        return rc;
    ek_buf_init(&w.buf, OUTPUT_BYTES + 4 * EK_EVENTS_NAME_MAX * EK_REC_COLUMNS_MAX);
    rc = add_columns(&w.buf, columns, n_columns);
    if (!rc)
        rc = write_all(&w, items, &why);
    if (!rc)
        rc = ek_file_out_end(&w.file, &why);
    ek_file_out_cancel(&w.file);
    ek_buf_release(&w.buf);
    if (rc)
        ek_err_set(err, rc, "%s",
                   why.text[0] ? why.text : ek_status_text(rc)); /* the buffer's own */
    return rc;
}

/* --- reading --------------------------------------------------------------------- */

struct reader {
    const char *name, *at, *end;
    int64_t line; /* of `at`, from 1 */
    struct ek_err *err;
};

static int refuse(const struct reader *r, const char *expected)
{
    return ek_err_set(r->err, EK_EFORMAT, "%s:%" PRId64 ": expected %s", r->name,
                      r->line, expected);
}

/* The next line without its end; false: there is none, or it has no end. */
static bool next_line(struct reader *r, const char **s, size_t *n)
{
    const char *end =
        r->at < r->end ? memchr(r->at, '\n', (size_t)(r->end - r->at)) : NULL;
    if (!end)
        return false;
    *s = r->at;
    *n = (size_t)(end - r->at);
    r->at = end + 1;
    r->line++;
    return true;
}

/* s[0,n) is `word` and a number from 0 to most; what stands behind it begins at
 * *rest. */
static bool number_behind(const char *word, const char *s, size_t n, int64_t most,
                          int64_t *number, size_t *rest)
{
    size_t at = strlen(word);
    if (n <= at || memcmp(s, word, at) != 0 || s[at] < '0' || s[at] > '9')
        return false;
    *number = 0;
    for (; at < n && s[at] >= '0' && s[at] <= '9'; at++) {
        *number = *number * 10 + (s[at] - '0');
        if (*number > most)
            return false;
    }
    *rest = at;
    return true;
}

static int read_count(struct reader *r, const char *word, int64_t most, int64_t *count)
{
    char expected[80];
    const char *s;
    size_t n, rest = 0;
    const struct reader before = *r;
    if (next_line(r, &s, &n) && number_behind(word, s, n, most, count, &rest) &&
        rest == n)
        return 0;
    snprintf(expected, sizeof expected, "'%s' and a number up to %" PRId64, word, most);
    return refuse(&before, expected);
}

/* Copies a name without its escapes; *to moves behind it. False: a wrong escape, or a
 * name too long. */
static bool unescape(char **to, const char *s, size_t n)
{
    const char *start = *to;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (c == '\\') {
            const char next = i + 1 < n ? s[++i] : 0;
            c = next == 'n' ? '\n' : next == 'r' ? '\r' : '\\';
            if (c == '\\' && next != '\\')
                return false;
        }
        *(*to)++ = c;
    }
    return *to - start <= EK_EVENTS_NAME_MAX;
}

static int read_columns(struct reader *r, struct ek_vocab *v, char **to)
{
    int64_t n_columns = 0;
    int rc = read_count(r, "columns ", EK_REC_COLUMNS_MAX, &n_columns);
    for (; !rc && v->n_columns < n_columns; v->n_columns++) {
        struct ek_rec_column *c = &v->columns[v->n_columns];
        const struct reader before = *r;
        const char *s;
        size_t n, at = 0;
        int64_t levels = 0;
        if (!next_line(r, &s, &n))
            return refuse(&before, "a column");
        c->is_user = n > 0 && s[0] == 'u';
        if (!number_behind(c->is_user ? "user " : "event ", s, n, EK_EVENTS_LEVELS_MAX,
                           &levels, &at) ||
            at == n || s[at] != ' ' || memchr(s + at, 0, n - at))
            return refuse(&before, "'event' or 'user', a number of levels and a name");
        c->levels = (int32_t)levels;
        c->name = *to;
        if (!unescape(to, s + at + 1, n - at - 1))
            return refuse(&before, "a name with \\\\, \\n and \\r alone escaped");
        *(*to)++ = 0;
    }
    return rc;
}

static int read_items(struct reader *r, struct ek_vocab *v, char **to)
{
    int64_t n_items = 0;
    const struct reader head = *r;
    int rc = read_count(r, "items ", EK_EVENTS_ITEMS_MAX, &n_items);
    if (rc)
        return rc;
    if (n_items < 1 || n_items > r->end - r->at) /* a line end each at least */
        return refuse(&head, "as many items as there are lines");
    v->offsets = ek_alloc_array((size_t)n_items + 1, sizeof *v->offsets);
    if (!v->offsets)
        return EK_ENOMEM;
    const char *first = *to;
    v->offsets[0] = 0;
    v->items = (struct ek_names){.offsets = v->offsets, .bytes = first};
    for (; v->items.n < n_items; v->items.n++) {
        const struct reader before = *r;
        const char *s;
        size_t n;
        if (!next_line(r, &s, &n))
            return refuse(&before, "another item");
        if (!unescape(to, s, n))
            return refuse(&before, "a name with \\\\, \\n and \\r alone escaped");
        v->offsets[v->items.n + 1] = *to - first;
    }
    return 0;
}

static int parse(struct reader *r, struct ek_vocab *v)
{
    int64_t format = 0;
    int rc = read_count(r, HEAD, INT32_MAX, &format);
    if (!rc && format != FORMAT)
        return ek_err_set(r->err, EK_EUNSUP,
                          "%s: a vocabulary of format %" PRId64
                          ", this keel reads format %d",
                          r->name, format, FORMAT);
    /* Names only shrink; each column gains a NUL for its word, number and line end. */
    v->bytes = rc ? NULL : ek_alloc((size_t)(r->end - r->at) + 1);
    if (!rc && !v->bytes)
        rc = EK_ENOMEM;
    char *to = v->bytes;
    if (!rc)
        rc = read_columns(r, v, &to);
    if (!rc)
        rc = read_items(r, v, &to);
    if (rc)
        return rc;
    const struct reader before = *r;
    const char *s;
    size_t n;
    bool is_end = next_line(r, &s, &n) && n == 3 && !memcmp(s, "end", 3);
    return is_end && r->at == r->end ? 0
                                     : refuse(&before, "'end' and nothing behind it");
}

int ek_vocab_parse(struct ek_vocab *v, const char *name, const char *text, size_t n,
                   struct ek_err *err)
{
    struct ek_vocab x = {0};
    struct reader r = {name, text, text + n, 1, err};
    int rc = parse(&r, &x);
    if (rc) {
        if (rc == EK_ENOMEM)
            ek_err_set(err, rc, "%s: %s", name, ek_status_text(rc));
        ek_vocab_release(&x);
        return rc;
    }
    *v = x;
    return 0;
}

int ek_vocab_read(struct ek_vocab *v, const char *path, struct ek_err *err)
{
    struct ek_file f;
    int rc = ek_file_open(&f, path, err);
    if (rc)
        return rc;
    rc = ek_vocab_parse(v, path, f.size ? (const char *)f.data : "", f.size, err);
    ek_file_close(&f);
    return rc;
}

void ek_vocab_release(struct ek_vocab *v)
{
    ek_free(v->bytes);
    ek_free(v->offsets);
    *v = (struct ek_vocab){0};
}
