/* events_table.c - logs of an event a line below a header: RecBole's atomic files, CSV,
 * TSV. The header and the options decide once what each column is. */
#include "base/mem.h"
#include "data/events_read_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum role { SKIP, USER, ITEM, TIME, VALUE };

struct table {
    struct ek_read *r;
    struct ek_fields *fields; /* owned */
    enum ek_events_format format;
    size_t n; /* columns of the header */
    enum role roles[EK_READ_FIELDS_MAX];
    int of[EK_READ_FIELDS_MAX]; /* VALUE: which column of the log */
    size_t user, item, time;    /* n: there is none */
};

/* A field shortened for a message. */
static int shown(const struct ek_field *f)
{
    return f->n < 60 ? (int)f->n : 60;
}

static bool is_word(const struct ek_field *f, const char *word)
{
    return strlen(word) == f->n && !memcmp(f->p, word, f->n);
}

static bool is_listed(const struct ek_events_list *list, const struct ek_field *f)
{
    for (size_t i = 0; i < list->n; i++) {
        if (is_word(f, list->names[i]))
            return true;
    }
    return false;
}

/* "name:type" of RecBole: cuts the type off the field. */
static int cut_type(const struct table *t, struct ek_field *f, const char **type,
                    size_t *n)
{
    const char *colon = memchr(f->p, ':', f->n);
    if (!colon)
        return ek_read_refuse(t->r, EK_EFORMAT, f->column,
                              "column '%.*s' has no type: expected name:token or "
                              "name:float",
                              shown(f), f->p);
    *type = colon + 1;
    *n = f->n - (size_t)(colon + 1 - f->p);
    f->n = (size_t)(colon - f->p);
    return 0;
}

static int add_column(struct table *t, size_t i, enum ek_column_of of,
                      enum ek_column_kind kind)
{
    const struct ek_field *f = &t->fields->items[i];
    t->roles[i] = VALUE;
    t->of[i] = t->r->build.n_columns;
    if (f->n == 0 || f->n > EK_EVENTS_NAME_MAX || memchr(f->p, 0, f->n))
        return ek_read_refuse(t->r, EK_EFORMAT, f->column,
                              "a column's name: expected 1 to %d bytes of text",
                              EK_EVENTS_NAME_MAX);
    int rc = ek_build_column(&t->r->build, f->p, f->n, of, kind);
    if (rc == EK_ELIMIT)
        return ek_read_refuse(t->r, EK_ELIMIT, f->column,
                              "more than %d columns of values: expected fewer, or some "
                              "of them left out",
                              EK_EVENTS_COLUMNS_MAX);
    return rc ? ek_read_failed(t->r, rc) : 0;
}

/* A column that no option names. */
static int by_type(struct table *t, size_t i, const char *type, size_t n)
{
    struct ek_field f = {type, n, 0};
    char option[32];
    if (t->format != EK_EVENTS_RECBOLE)
        return 0;
    if (is_word(&f, "token"))
        return add_column(t, i, EK_COLUMN_EVENT, EK_COLUMN_CATEGORY);
    if (is_word(&f, "float"))
        return add_column(t, i, EK_COLUMN_EVENT, EK_COLUMN_NUMERIC);
    const struct ek_field *of = &t->fields->items[i];
    return ek_read_refuse(
        t->r, EK_EUNSUP, of->column,
        "column '%.*s' is of type '%.*s': expected token or float, or "
        "the column left out (%s)",
        shown(of), of->p, shown(&f), type, ek_read_option(t->r, option, "skip"));
}

static int take_role(struct table *t, size_t i)
{
    static const struct {
        enum ek_column_of of;
        enum ek_column_kind kind;
    } kinds[] = {{EK_COLUMN_EVENT, EK_COLUMN_NUMERIC},
                 {EK_COLUMN_EVENT, EK_COLUMN_CATEGORY},
                 {EK_COLUMN_USER, EK_COLUMN_NUMERIC},
                 {EK_COLUMN_USER, EK_COLUMN_CATEGORY}};
    const struct ek_events_options *o = t->r->o;
    const struct ek_events_list *lists[] = {&o->numeric, &o->category, &o->user_numeric,
                                            &o->user_category};
    struct ek_field *f = &t->fields->items[i];
    const char *type = "";
    size_t n_type = 0;
    int rc = t->format == EK_EVENTS_RECBOLE ? cut_type(t, f, &type, &n_type) : 0;
    if (rc)
        return rc;
    t->roles[i] = SKIP;
    if (is_word(f, o->user ? o->user : "user_id")) {
        t->roles[t->user = i] = USER;
        return 0;
    }
    if (is_word(f, o->item ? o->item : "item_id")) {
        t->roles[t->item = i] = ITEM;
        return 0;
    }
    if (is_word(f, o->time ? o->time : "timestamp")) {
        t->roles[t->time = i] = TIME;
        return 0;
    }
    for (size_t k = 0; k < 4; k++) {
        if (is_listed(lists[k], f))
            return add_column(t, i, kinds[k].of, kinds[k].kind);
    }
    return is_listed(&o->skip, f) ? 0 : by_type(t, i, type, n_type);
}

/* The header's names for a sentence: "'uid', 'sku'". */
static void list_header(const struct table *t, char out[400])
{
    size_t at = 0;
    out[0] = 0;
    for (size_t i = 0; i < t->n && at < 300; i++) {
        const struct ek_field *f = &t->fields->items[i];
        at += (size_t)snprintf(out + at, 400 - at, "%s'%.*s'", i ? ", " : "",
                               f->n < 40 ? (int)f->n : 40, f->p);
    }
    if (at >= 300)
        snprintf(out + at, 400 - at, ", ...");
}

static int refuse_missing(const struct table *t, const char *name, const char *option)
{
    char header[400], said[32];
    list_header(t, header);
    return ek_read_refuse(t->r, EK_EFORMAT, 1,
                          "no column '%s': the header has %s; %s NAME says which it is",
                          name, header, ek_read_option(t->r, said, option));
}

static bool has_column(const struct table *t, const char *name)
{
    for (size_t i = 0; i < t->n; i++) {
        if (is_word(&t->fields->items[i], name))
            return true;
    }
    return false;
}

static int check_lists(const struct table *t)
{
    static const char *const options[] = {"numeric", "category", "user_numeric",
                                          "user_category", "skip"};
    const struct ek_events_options *o = t->r->o;
    const struct ek_events_list *lists[] = {&o->numeric, &o->category, &o->user_numeric,
                                            &o->user_category, &o->skip};
    for (size_t k = 0; k < 5; k++) {
        for (size_t i = 0; i < lists[k]->n; i++) {
            if (!has_column(t, lists[k]->names[i]))
                return refuse_missing(t, lists[k]->names[i], options[k]);
        }
    }
    return 0;
}

static int refuse_twin(const struct table *t)
{
    for (size_t i = 0; i < t->n; i++) {
        const struct ek_field *a = &t->fields->items[i];
        for (size_t k = 0; k < i; k++) {
            const struct ek_field *b = &t->fields->items[k];
            if (t->roles[i] && a->n == b->n && !memcmp(a->p, b->p, a->n))
                return ek_read_refuse(t->r, EK_EFORMAT, a->column,
                                      "column '%.*s' is there twice: expected each "
                                      "name once",
                                      shown(a), a->p);
        }
    }
    return 0;
}

static int take_header(struct table *t)
{
    const struct ek_events_options *o = t->r->o;
    int rc = 0;
    t->n = t->user = t->item = t->time = t->fields->n;
    for (size_t i = 0; i < t->n && !rc; i++)
        rc = take_role(t, i);
    if (!rc)
        rc = refuse_twin(t);
    if (!rc && t->user == t->n)
        rc = refuse_missing(t, o->user ? o->user : "user_id", "user");
    if (!rc && t->item == t->n)
        rc = refuse_missing(t, o->item ? o->item : "item_id", "item");
    if (!rc && t->time == t->n && o->time)
        rc = refuse_missing(t, o->time, "time");
    t->r->build.has_times = t->time < t->n;
    return rc ? rc : check_lists(t);
}

static int refuse_field(const struct table *t, const char *what,
                        const struct ek_field *f, const char *expected)
{
    return ek_read_refuse(t->r, EK_EFORMAT, f->column, "%s '%.*s': expected %s", what,
                          shown(f), f->p, expected);
}

static int take_id(struct table *t, struct ek_intern *ids, const char *what,
                   const struct ek_field *f, int32_t *id)
{
    if (f->n == 0 || f->n > EK_EVENTS_NAME_MAX || memchr(f->p, 0, f->n))
        return refuse_field(t, what, f, "an id of 1 to 4096 bytes");
    int rc = ek_intern_put(ids, f->p, f->n, id);
    return rc ? ek_read_failed(t->r, rc) : 0;
}

static int take_number(struct table *t, struct ek_build_column *c,
                       const struct ek_field *f, int32_t user)
{
    double v;
    int rc = 0;
    if (!ek_read_number(&v, f->p, f->n) || !isfinite((float)v))
        return refuse_field(t, c->name, f, "a finite number");
    if (c->of == EK_COLUMN_USER && user < c->n)
        return c->numbers[user] == (float)v
                   ? 0
                   : refuse_field(t, c->name, f, "the value of the user's first row");
    rc = ek_build_number(c, (float)v);
    return rc ? ek_read_failed(t->r, rc) : 0;
}

static int take_level(struct table *t, struct ek_build_column *c,
                      const struct ek_field *f, int32_t user)
{
    if (f->n == 0 || f->n > EK_EVENTS_NAME_MAX || memchr(f->p, 0, f->n))
        return refuse_field(t, c->name, f, "a name of 1 to 4096 bytes");
    if (c->of == EK_COLUMN_USER && user < c->n)
        return ek_intern_get(&c->names, f->p, f->n) == c->levels[user]
                   ? 0
                   : refuse_field(t, c->name, f, "the value of the user's first row");
    int rc = ek_build_level(c, f->p, f->n);
    return rc ? ek_read_failed(t->r, rc) : 0;
}

static int take_values(struct table *t, int32_t user)
{
    int rc = 0;
    for (size_t i = 0; i < t->n && !rc; i++) {
        const struct ek_field *f = &t->fields->items[i];
        if (t->roles[i] != VALUE)
            continue;
        struct ek_build_column *c = &t->r->build.columns[t->of[i]];
        rc = c->kind == EK_COLUMN_NUMERIC ? take_number(t, c, f, user)
                                          : take_level(t, c, f, user);
    }
    return rc;
}

static int take_row(struct table *t)
{
    struct ek_build *b = &t->r->build;
    const struct ek_field *f = t->fields->items;
    int32_t user = 0, item = 0;
    int64_t us = 0;
    if (t->fields->n != t->n)
        return ek_read_refuse(t->r, EK_EFORMAT, 1,
                              "%zu columns: expected %zu, as in the header",
                              t->fields->n, t->n);
    int rc = take_id(t, &b->users, "user", &f[t->user], &user);
    if (!rc)
        rc = take_id(t, &b->items, "item", &f[t->item], &item);
    if (!rc && b->has_times &&
        !ek_read_time(&us, f[t->time].p, f[t->time].n, t->r->o->unit))
        rc = refuse_field(t, "time", &f[t->time],
                          "a number, or a time such as 2024-05-31 18:15:46+02:00");
    if (!rc)
        rc = take_values(t, user);
    if (rc)
        return rc;
    rc = ek_build_row(b, user, item, us);
    return rc ? ek_read_failed(t->r, rc) : 0;
}

int ek_read_table(struct ek_read *r, enum ek_events_format format)
{
    struct table *t = ek_calloc(1, sizeof *t);
    struct ek_fields *fields = ek_calloc(1, sizeof *fields);
    char separator = format == EK_EVENTS_CSV ? ',' : '\t';
    ek_build_init(&r->build, false);
    int rc;
    if (!t || !fields) {
        rc = ek_read_failed(r, EK_ENOMEM);
        goto out;
    }
    *t = (struct table){.r = r, .fields = fields, .format = format};
    ek_buf_init(&fields->record, r->lines.max_line);
    rc = ek_read_fields(r, fields, separator, format == EK_EVENTS_CSV);
    if (!rc && fields->n)
        rc = take_header(t);
    while (!rc && fields->n) {
        rc = ek_read_fields(r, fields, separator, format == EK_EVENTS_CSV);
        if (!rc && fields->n)
            rc = take_row(t);
    }
    ek_buf_release(&fields->record);
out:
    ek_free(fields);
    ek_free(t);
    return rc;
}
