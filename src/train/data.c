#include "train/data.h"

#include "base/mem.h"
#include "data/events_pack.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

static bool is_pack(const struct ek_train_config *c)
{
    return c->data.format == EK_TRAIN_PACK ||
           (c->data.format == EK_TRAIN_AUTO && ends_with(c->data.path, ".pack"));
}

static int read_log(struct ek_events *e, const struct ek_train_config *c,
                    bool (*on_progress)(void *, int64_t, int64_t), void *arg,
                    struct ek_err *err)
{
    const char *path = c->data.path;
    if (is_pack(c))
        return ek_events_pack_open(e, path, err);
    struct ek_events_options o;
    struct stat st;
    ek_train_events_options(&o, c);
    o.on_progress = on_progress;
    o.arg = arg;
    o.total_bytes = stat(path, &st) ? 0 : (int64_t)st.st_size;
    return ek_events_read(e, NULL, path, &o, err);
}

/* A pack holds what it was packed with: data.skip leaves columns out here, where
 * readers of text do it themselves. */
static int skip_columns(struct ek_train_data *d, const struct ek_opt_list *skip,
                        struct ek_err *err)
{
    struct ek_events *e = &d->events;
    int n = 0;
    for (size_t k = 0; k < skip->n; k++)
        if (!ek_events_column(e, skip->items[k]))
            return ek_err_set(err, EK_EINVAL, "data.skip: %s has no column '%.100s'",
                              e->source, skip->items[k]);
    if (skip->n == 0 || e->n_columns == 0)
        return 0;
    d->kept = ek_alloc_array((size_t)e->n_columns, sizeof *d->kept);
    if (!d->kept)
        return ek_err_set(err, EK_ENOMEM, "data.skip: out of memory");
    for (int i = 0; i < e->n_columns; i++) {
        bool is_skipped = false;
        for (size_t k = 0; k < skip->n; k++)
            is_skipped |= !strcmp(skip->items[k], e->columns[i].name);
        if (!is_skipped)
            d->kept[n++] = e->columns[i];
    }
    e->columns = d->kept;
    e->n_columns = n;
    return 0;
}

static int find_click(struct ek_train_data *d, const char *name, struct ek_err *err)
{
    d->click = -1;
    if (!name[0])
        return 0;
    const struct ek_column *c = ek_events_column(&d->events, name);
    if (!c)
        return ek_err_set(err, EK_EINVAL,
                          "data.click: %s has no column '%.100s' (is it in "
                          "data.numeric?)",
                          d->events.source, name);
    if (c->of != EK_COLUMN_EVENT || c->kind != EK_COLUMN_NUMERIC)
        return ek_err_set(err, EK_EINVAL,
                          "data.click: column '%.100s' is a %s of the %s, expected a "
                          "number of the event",
                          name, c->kind == EK_COLUMN_NUMERIC ? "number" : "category",
                          c->of == EK_COLUMN_EVENT ? "event" : "user");
    for (int64_t i = 0; i < d->events.n; i++)
        if (c->numbers[i] != 0.0f && c->numbers[i] != 1.0f)
            return ek_err_set(err, EK_EINVAL,
                              "data.click: event %" PRId64
                              " has %g in column '%.100s', expected 0 or 1",
                              i, (double)c->numbers[i], name);
    d->click = (int)(c - d->events.columns);
    return 0;
}

static void describe_columns(struct ek_train_data *d)
{
    for (int i = 0; i < d->events.n_columns && i < EK_REC_COLUMNS_MAX; i++) {
        const struct ek_column *c = &d->events.columns[i];
        bool is_category = c->kind == EK_COLUMN_CATEGORY;
        d->columns[d->n_columns++] =
            (struct ek_rec_column){.name = c->name,
                                   .is_user = c->of == EK_COLUMN_USER,
                                   .levels = is_category ? (int32_t)c->names.n : 0};
    }
}

int ek_train_data_open(struct ek_train_data *d, const struct ek_train_config *c,
                       bool (*on_progress)(void *, int64_t, int64_t), void *arg,
                       bool *is_input, struct ek_err *err)
{
    struct ek_train_data x = {.click = -1};
    if (is_input)
        *is_input = true;
    int rc = read_log(&x.events, c, on_progress, arg, err);
    if (rc)
        return rc;
    if (is_input)
        *is_input = false;
    bool wants_times = c->model.times;
    if (wants_times && !x.events.times)
        rc = ek_err_set(err, EK_EINVAL, "model.times: %s has no times, expected false",
                        x.events.source);
    if (!rc && is_pack(c))
        rc = skip_columns(&x, &c->data.skip, err);
    if (!rc)
        rc = find_click(&x, c->data.click, err);
    if (!rc && c->data.split == EK_SPLIT_BY_TIME)
        rc = ek_split_by_time(&x.split, &x.events, c->data.valid, c->data.test, err);
    else if (!rc)
        rc = ek_split_leave_one_out(&x.split, &x.events, err);
    if (rc) {
        ek_train_data_release(&x);
        return rc;
    }
    describe_columns(&x);
    *d = x;
    return 0;
}

void ek_train_data_release(struct ek_train_data *d)
{
    ek_split_release(&d->split);
    ek_events_release(&d->events);
    ek_free(d->kept);
    d->kept = NULL;
}

/* zlib takes 32-bit sizes. */
static uint32_t add_crc(uint32_t crc, const void *p, size_t n)
{
    const unsigned char *at = p;
    while (n) {
        unsigned piece = n < 1u << 30 ? (unsigned)n : 1u << 30;
        crc = (uint32_t)crc32(crc, at, piece);
        at += piece;
        n -= piece;
    }
    return crc;
}

const char *ek_train_data_text(char out[EK_TRAIN_DATA_TEXT],
                               const struct ek_train_data *d)
{
    const struct ek_events *e = &d->events;
    uint32_t crc = add_crc(0, e->offsets, (size_t)(e->n_users + 1) * sizeof(int64_t));
    crc = add_crc(crc, e->items, (size_t)e->n * sizeof(int32_t));
    crc = add_crc(crc, d->split.train_end, (size_t)e->n_users * sizeof(int64_t));
    crc = add_crc(crc, d->split.valid_end, (size_t)e->n_users * sizeof(int64_t));
    snprintf(out, EK_TRAIN_DATA_TEXT,
             "%" PRId64 " users, %" PRId64 " items, %" PRId64
             " events, crc32 %08x; %.250s",
             e->n_users, e->n_items, e->n, crc, e->source);
    return out;
}

void ek_train_bind_batch(struct ek_rec_batch *out, const struct ek_batch *batch,
                         const struct ek_train_data *d, struct ek_train_extra *extra)
{
    *out = (struct ek_rec_batch){.B = batch->B,
                                 .T = batch->T,
                                 .offsets = batch->offsets,
                                 .items = batch->items,
                                 .times = batch->times,
                                 .targets = batch->targets};
    if (batch->times && extra->next_times) {
        for (int64_t t = 0; t < batch->T; t++)
            extra->next_times[t] = d->events.times[batch->events[t] + 1];
        out->next_times = extra->next_times;
    }
    if (d->click >= 0 && extra->clicks) {
        const float *from = d->events.columns[d->click].numbers;
        for (int64_t t = 0; t < batch->T; t++)
            extra->clicks[t] = from[batch->events[t] + 1];
        out->clicks = extra->clicks;
    }
    for (int i = 0; i < batch->n_columns && i < EK_REC_COLUMNS_MAX; i++) {
        out->columns[i].numbers = batch->columns[i].numbers;
        out->columns[i].levels = batch->columns[i].levels;
    }
}
