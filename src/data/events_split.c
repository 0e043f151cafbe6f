#include "data/events_split.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int begin(struct ek_split *s, const struct ek_events *e, enum ek_split_kind kind,
                 struct ek_err *err)
{
    *s = (struct ek_split){.kind = kind};
    s->train_end = ek_alloc_array((size_t)e->n_users, 2 * sizeof *s->train_end);
    if (!s->train_end)
        return ek_err_set(err, EK_ENOMEM, "split: %s", ek_status_text(EK_ENOMEM));
    s->valid_end = s->train_end + e->n_users;
    return 0;
}

static void count(struct ek_split *s, const struct ek_events *e)
{
    for (int64_t u = 0; u < e->n_users; u++) {
        s->n_train += s->train_end[u] - e->offsets[u];
        s->n_valid += s->valid_end[u] - s->train_end[u];
        s->n_test += e->offsets[u + 1] - s->valid_end[u];
    }
}

int ek_split_leave_one_out(struct ek_split *s, const struct ek_events *e,
                           struct ek_err *err)
{
    int rc = begin(s, e, EK_SPLIT_LEAVE_ONE_OUT, err);
    if (rc)
        return rc;
    for (int64_t u = 0; u < e->n_users; u++) {
        int64_t end = e->offsets[u + 1];
        bool is_short = end - e->offsets[u] < 3;
        s->n_short += is_short;
        s->valid_end[u] = is_short ? end : end - 1;
        s->train_end[u] = is_short ? end : end - 2;
    }
    count(s, e);
    return 0;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* The first row of a user's rows[from,to) that is not before `time`. */
static int64_t first_from(const struct ek_events *e, int64_t from, int64_t to,
                          int64_t time)
{
    while (from < to) {
        int64_t mid = from + (to - from) / 2;
        if (e->times[mid] < time)
            from = mid + 1;
        else
            to = mid;
    }
    return from;
}

/* The time of the row that has `share` of all rows at or behind it; behind all where
 * the share is nothing. */
static int64_t time_of_share(const int64_t *sorted, int64_t n, double share)
{
    int64_t rows = (int64_t)(share * (double)n + 0.5);
    if (rows > 0)
        return sorted[n - rows];
    return sorted[n - 1] == INT64_MAX ? INT64_MAX : sorted[n - 1] + 1;
}

int ek_split_by_time(struct ek_split *s, const struct ek_events *e, double valid,
                     double test, struct ek_err *err)
{
    if (!e->times)
        return ek_err_set(err, EK_EINVAL,
                          "%s: has no times: expected a split by leaving one out, or a "
                          "log with a column of times",
                          e->source);
    if (!(valid >= 0.0 && test >= 0.0 && valid + test < 1.0))
        return ek_err_set(err, EK_EINVAL,
                          "split by time: shares %g and %g: expected 0 or more, "
                          "together below 1",
                          valid, test);
    int64_t *sorted = ek_alloc_array((size_t)e->n, sizeof *sorted);
    if (!sorted)
        return ek_err_set(err, EK_ENOMEM, "split: %s", ek_status_text(EK_ENOMEM));
    for (int64_t i = 0; i < e->n; i++)
        sorted[i] = e->times[i];
    qsort(sorted, (size_t)e->n, sizeof *sorted, by_value);
    int64_t valid_from = time_of_share(sorted, e->n, valid + test);
    int64_t test_from = time_of_share(sorted, e->n, test);
    ek_free(sorted);
    int rc = begin(s, e, EK_SPLIT_BY_TIME, err);
    if (rc)
        return rc;
    s->valid_from = valid_from;
    s->test_from = test_from;
    for (int64_t u = 0; u < e->n_users; u++) {
        int64_t from = e->offsets[u], to = e->offsets[u + 1];
        s->train_end[u] = first_from(e, from, to, valid_from);
        s->valid_end[u] = first_from(e, s->train_end[u], to, test_from);
    }
    count(s, e);
    return 0;
}

void ek_split_release(struct ek_split *s)
{
    ek_free(s->train_end);
    *s = (struct ek_split){0};
}

const char *ek_split_text(char out[400], const struct ek_split *s)
{
    if (s->kind == EK_SPLIT_LEAVE_ONE_OUT)
        snprintf(out, 400,
                 "leave one out: a user's last event tests, the one before validates; "
                 "events of one time keep the order of the file; %" PRId64
                 " users under 3 events only train",
                 s->n_short);
    else
        snprintf(out, 400,
                 "by time: validation from %" PRId64 ", test from %" PRId64
                 " (microseconds), events of that very time included; events of one "
                 "time keep the order of the file",
                 s->valid_from, s->test_from);
    return out;
}
