/* eventskit.h - what the tests of logs share: a log written as text, and its promises
 * checked. Include it behind testkit.h. */
#ifndef EVENKEEL_TESTS_EVENTSKIT_H
#define EVENKEEL_TESTS_EVENTSKIT_H

#include "data/events_read.h"
#include "testkit.h"

#include <math.h>
#include <stdio.h>

/* What events.h promises of every log. */
static inline void check_events(const struct ek_events *e)
{
    assert_true(e->n >= 1 && e->n_users >= 1 && e->n_items >= 1);
    assert_true(e->offsets[0] == 0 && e->offsets[e->n_users] == e->n);
    assert_true(e->users.n == e->n_users && e->item_names.n == e->n_items);
    for (int64_t u = 0; u < e->n_users; u++) {
        assert_true(e->offsets[u + 1] > e->offsets[u]);
        for (int64_t i = e->offsets[u]; i < e->offsets[u + 1]; i++) {
            assert_in_range(e->items[i], 0, e->n_items - 1);
            if (e->times && i > e->offsets[u])
                assert_true(e->times[i] >= e->times[i - 1]);
        }
    }
    for (int c = 0; c < e->n_columns; c++) {
        const struct ek_column *k = &e->columns[c];
        int64_t n = k->of == EK_COLUMN_EVENT ? e->n : e->n_users;
        assert_true((k->kind == EK_COLUMN_NUMERIC) == (k->numbers != NULL));
        assert_true((k->kind == EK_COLUMN_CATEGORY) == (k->levels != NULL));
        for (int64_t i = 0; i < n; i++) {
            if (k->numbers)
                assert_true(isfinite(k->numbers[i]));
            else
                assert_in_range(k->levels[i], 0, k->names.n - 1);
        }
    }
}

static inline int add_name(char *out, size_t cap, const struct ek_names *names,
                           int64_t i)
{
    size_t len;
    const char *s = ek_names_get(names, i, &len);
    return snprintf(out, cap, "%.*s", (int)len, s);
}

/* "ann: 7@10 2@20; bob: 2@5; " with the names of the file; columns of events behind
 * each as ",1.5", of users behind the user. */
static inline void show_events(char *out, size_t cap, const struct ek_events *e)
{
    size_t at = 0;
    for (int64_t u = 0; u < e->n_users; u++) {
        at += (size_t)add_name(out + at, cap - at, &e->users, u);
        for (int64_t i = e->offsets[u] - 1; i < e->offsets[u + 1]; i++) {
            bool is_user = i < e->offsets[u];
            if (!is_user) {
                at += (size_t)snprintf(out + at, cap - at, " ");
                at += (size_t)add_name(out + at, cap - at, &e->item_names, e->items[i]);
            }
            if (!is_user && e->times)
                at += (size_t)snprintf(out + at, cap - at, "@%lld",
                                       (long long)e->times[i]);
            for (int c = 0; c < e->n_columns; c++) {
                const struct ek_column *k = &e->columns[c];
                int64_t row = is_user ? u : i;
                if ((k->of == EK_COLUMN_USER) != is_user)
                    continue;
                at += (size_t)snprintf(out + at, cap - at, ",");
                if (k->numbers)
                    at += (size_t)snprintf(out + at, cap - at, "%g",
                                           (double)k->numbers[row]);
                else
                    at +=
                        (size_t)add_name(out + at, cap - at, &k->names, k->levels[row]);
            }
            if (is_user)
                at += (size_t)snprintf(out + at, cap - at, ":");
        }
        at += (size_t)snprintf(out + at, cap - at, "; ");
        assert_true(at < cap);
    }
}

/* text as a log in out, or the sentence; returns the status. */
static inline int read_text(char *out, size_t cap, const char *name, const char *text,
                            size_t n, const struct ek_events_options *o)
{
    struct ek_events e = {0};
    struct ek_err err = EK_ERR_INIT;
    char *copy = ek_exact_copy(text, n);
    int rc = ek_events_parse(&e, NULL, name, copy, n, o, &err);
    free(copy);
    if (rc) {
        assert_true(err.status == rc && err.text[0]);
        assert_null(e.store);
        size_t len = strnlen(err.text, cap - 1);
        memcpy(out, err.text, len);
        out[len] = 0;
        return rc;
    }
    check_events(&e);
    show_events(out, cap, &e);
    ek_events_release(&e);
    return 0;
}

#endif
