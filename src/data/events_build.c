/* events_build.c - rows in any order become a log.
 *
 * A stable counting sort by user, then each user that needs it by (time, row): ties
 * keep the order in which the rows came.
 */
#include "base/mem.h"
#include "data/events_int.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void ek_build_init(struct ek_build *b, bool has_times)
{
    *b = (struct ek_build){.has_times = has_times, .is_grouped = true};
    ek_intern_init(&b->users, EK_EVENTS_USERS_MAX);
    ek_intern_init(&b->items, EK_EVENTS_ITEMS_MAX);
}

void ek_build_release(struct ek_build *b)
{
    ek_intern_release(&b->users);
    ek_intern_release(&b->items);
    ek_free(b->user);
    ek_free(b->item);
    ek_free(b->time);
    for (int i = 0; i < b->n_columns; i++) {
        ek_free(b->columns[i].name);
        ek_free(b->columns[i].numbers);
        ek_free(b->columns[i].levels);
        ek_intern_release(&b->columns[i].names);
    }
    *b = (struct ek_build){0};
}

int ek_build_column(struct ek_build *b, const char *name, size_t n,
                    enum ek_column_of of, enum ek_column_kind kind)
{
    if (b->n_columns == EK_EVENTS_COLUMNS_MAX)
        return EK_ELIMIT;
    struct ek_build_column *c = &b->columns[b->n_columns];
    *c = (struct ek_build_column){.name = ek_strndup(name, n), .of = of, .kind = kind};
    if (!c->name)
        return EK_ENOMEM;
    ek_intern_init(&c->names, EK_EVENTS_LEVELS_MAX);
    b->n_columns++;
    return 0;
}

/* *p has room for one more than n. */
static int grow(void **p, int64_t cap, size_t size)
{
    void *more = ek_realloc_array(*p, (size_t)cap, size);
    if (!more)
        return EK_ENOMEM;
    *p = more;
    return 0;
}

static int grow_rows(struct ek_build *b)
{
    int64_t cap = b->cap ? 2 * b->cap : 1024;
    void *user = b->user, *item = b->item, *time = b->time;
    int rc = grow(&user, cap, sizeof *b->user);
    b->user = user;
    if (!rc)
        rc = grow(&item, cap, sizeof *b->item);
    b->item = item;
    if (!rc && b->has_times)
        rc = grow(&time, cap, sizeof *b->time);
    b->time = time;
    if (!rc)
        b->cap = cap;
    return rc;
}

int ek_build_row(struct ek_build *b, int32_t user, int32_t item, int64_t time)
{
    if (b->n == EK_EVENTS_MAX)
        return EK_ELIMIT;
    int rc = b->n == b->cap ? grow_rows(b) : 0;
    if (rc)
        return rc;
    if (b->n && user < b->user[b->n - 1])
        b->is_grouped = false;
    b->user[b->n] = user;
    b->item[b->n] = item;
    if (b->has_times)
        b->time[b->n] = time;
    b->n++;
    return 0;
}

static int grow_column(struct ek_build_column *c)
{
    int64_t cap = c->cap ? 2 * c->cap : 1024;
    void *p = c->kind == EK_COLUMN_NUMERIC ? (void *)c->numbers : (void *)c->levels;
    int rc = grow(&p, cap, 4); /* float and int32_t */
    if (rc)
        return rc;
    if (c->kind == EK_COLUMN_NUMERIC)
        c->numbers = p;
    else
        c->levels = p;
    c->cap = cap;
    return 0;
}

int ek_build_number(struct ek_build_column *c, float value)
{
    assert(c->kind == EK_COLUMN_NUMERIC);
    int rc = c->n == c->cap ? grow_column(c) : 0;
    if (!rc)
        c->numbers[c->n++] = value;
    return rc;
}

int ek_build_level(struct ek_build_column *c, const char *name, size_t n)
{
    assert(c->kind == EK_COLUMN_CATEGORY);
    int32_t level = 0;
    int rc = c->n == c->cap ? grow_column(c) : 0;
    if (!rc)
        rc = ek_intern_put(&c->names, name, n, &level);
    if (!rc)
        c->levels[c->n++] = level;
    return rc;
}

/* offsets (n_users+1) from the rows' users. */
static int64_t *count_users(const struct ek_build *b)
{
    int64_t *offsets = ek_calloc((size_t)b->users.n + 1, sizeof *offsets);
    if (!offsets)
        return NULL;
    for (int64_t i = 0; i < b->n; i++)
        offsets[b->user[i] + 1]++;
    for (int64_t u = 0; u < b->users.n; u++)
        offsets[u + 1] += offsets[u];
    return offsets;
}

/* A row and its time, to be sorted. */
struct timed {
    int64_t time, row;
};

static int by_time(const void *a, const void *b)
{
    const struct timed *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

/* rows[0,n) of one user in the order of time; scratch has room for them. */
static void sort_user(const struct ek_build *b, int64_t *rows, int64_t n,
                      struct timed *scratch)
{
    for (int64_t i = 0; i < n; i++)
        scratch[i] = (struct timed){b->time[rows[i]], rows[i]};
    qsort(scratch, (size_t)n, sizeof *scratch, by_time);
    for (int64_t i = 0; i < n; i++)
        rows[i] = scratch[i].row;
}

static bool is_sorted(const struct ek_build *b, const int64_t *rows, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        if (b->time[rows[i]] < b->time[rows[i - 1]])
            return false;
    }
    return true;
}

/* Sorts the users that need it. *scratch grows to the longest of them. */
static int sort_users(struct ek_build *b, int64_t *rows, const int64_t *offsets)
{
    void *scratch = NULL;
    int64_t cap = 0;
    int rc = 0;
    for (int64_t u = 0; u < b->users.n && !rc; u++) {
        int64_t n = offsets[u + 1] - offsets[u];
        if (is_sorted(b, rows + offsets[u], n))
            continue;
        if (n > cap) {
            cap = 2 * n;
            rc = grow(&scratch, cap, sizeof(struct timed));
        }
        if (!rc)
            sort_user(b, rows + offsets[u], n, scratch);
        b->n_users_sorted += !rc;
    }
    ek_free(scratch);
    return rc;
}

/* rows[i]: which row as it came is the i-th of the log. NULL when every row stays. */
static int order(struct ek_build *b, int64_t *offsets, int64_t **rows)
{
    int64_t *order = ek_alloc_array((size_t)b->n, sizeof *order);
    if (!order)
        return EK_ENOMEM;
    /* offsets[u] runs up to offsets[u + 1] and is moved back behind. */
    for (int64_t i = 0; i < b->n; i++)
        order[offsets[b->user[i]]++] = i;
    memmove(offsets + 1, offsets, (size_t)b->users.n * sizeof *offsets);
    offsets[0] = 0;
    int rc = b->has_times ? sort_users(b, order, offsets) : 0;
    if (rc || (b->is_grouped && b->n_users_sorted == 0)) {
        ek_free(order);
        order = NULL;
    }
    *rows = order;
    return rc;
}

/* to[i] = from[rows[i]], 4 bytes each. */
static void gather4(void *to, const void *from, const int64_t *rows, int64_t n)
{
    const int32_t *in = from;
    int32_t *out = to;
    for (int64_t i = 0; i < n; i++)
        out[i] = in[rows[i]];
}

/* The rows' values in their new order; *p is replaced. */
static int reorder4(void **p, const int64_t *rows, int64_t n)
{
    void *to = ek_alloc_array((size_t)n, 4);
    if (!to)
        return EK_ENOMEM;
    gather4(to, *p, rows, n);
    ek_free(*p);
    *p = to;
    return 0;
}

static int reorder(struct ek_build *b, const int64_t *rows)
{
    void *item = b->item;
    int rc = reorder4(&item, rows, b->n);
    b->item = item;
    for (int i = 0; i < b->n_columns && !rc; i++) {
        struct ek_build_column *c = &b->columns[i];
        void *p = c->kind == EK_COLUMN_NUMERIC ? (void *)c->numbers : (void *)c->levels;
        if (c->of == EK_COLUMN_USER)
            continue;
        rc = reorder4(&p, rows, b->n);
        if (c->kind == EK_COLUMN_NUMERIC)
            c->numbers = p;
        else
            c->levels = p;
    }
    if (rc || !b->has_times)
        return rc;
    int64_t *time = ek_alloc_array((size_t)b->n, sizeof *time);
    if (!time)
        return EK_ENOMEM;
    for (int64_t i = 0; i < b->n; i++)
        time[i] = b->time[rows[i]];
    ek_free(b->time);
    b->time = time;
    return 0;
}

static void count_ties(struct ek_build *b, const int64_t *offsets)
{
    for (int64_t u = 0; u < b->users.n; u++) {
        for (int64_t i = offsets[u] + 1; i < offsets[u + 1]; i++)
            b->n_ties += b->time[i] == b->time[i - 1];
    }
}

/* Moves an intern table's names into the store. */
static struct ek_names take_names(struct ek_events_store *s, struct ek_intern *t)
{
    struct ek_names names = ek_intern_names(t);
    ek_events_own(s, t->offsets);
    ek_events_own(s, t->bytes);
    t->offsets = NULL;
    t->bytes = NULL;
    ek_intern_release(t);
    return names;
}

static void take_column(struct ek_events_store *s, struct ek_column *to,
                        struct ek_build_column *c)
{
    *to = (struct ek_column){.name = c->name,
                             .of = c->of,
                             .kind = c->kind,
                             .numbers = c->numbers,
                             .levels = c->levels,
                             .names = take_names(s, &c->names)};
    ek_events_own(s, c->name);
    ek_events_own(s, c->numbers);
    ek_events_own(s, c->levels);
    *c = (struct ek_build_column){0};
}

static void take_all(struct ek_build *b, struct ek_events *e, struct ek_events_store *s)
{
    e->n = b->n;
    e->n_users = b->users.n;
    e->n_items = b->items.n;
    e->items = b->item;
    e->times = b->time;
    e->users = take_names(s, &b->users);
    e->item_names = take_names(s, &b->items);
    e->columns = s->columns;
    e->n_columns = b->n_columns;
    e->store = s;
    ek_events_own(s, b->item);
    ek_events_own(s, b->time);
    b->item = NULL;
    b->time = NULL;
    for (int i = 0; i < b->n_columns; i++)
        take_column(s, &s->columns[i], &b->columns[i]);
}

int ek_build_finish(struct ek_build *b, struct ek_events *e, const char *source)
{
    assert(b->n > 0);
    int64_t *offsets = count_users(b), *rows = NULL;
    struct ek_events_store *store = ek_calloc(1, sizeof *store);
    char *copy = ek_strndup(source, strlen(source));
    int rc = offsets && store && copy ? order(b, offsets, &rows) : EK_ENOMEM;
    if (!rc && rows)
        rc = reorder(b, rows);
    ek_free(rows);
    if (rc) {
        ek_free(offsets);
        ek_free(store);
        ek_free(copy);
        return rc;
    }
    if (b->has_times)
        count_ties(b, offsets);
    *e = (struct ek_events){.offsets = offsets, .source = copy};
    ek_events_own(store, offsets);
    ek_events_own(store, copy);
    take_all(b, e, store);
    return 0;
}
