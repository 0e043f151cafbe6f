/* batch.c - samples gathered into the arrays of one batch. */
#include "train/batch.h"

#include "base/mem.h"
#include "train/loader_int.h"

#include <string.h>

static void list_arrays(struct ek_batch_room *r, const struct ek_maker *m,
                        struct ek_taker *t)
{
    const int64_t B = m->max_sequences, T = m->max_rows;
    r->offsets = ek_take_array(t, B + 1, sizeof *r->offsets);
    r->users = ek_take_array(t, B, sizeof *r->users);
    r->events = ek_take_array(t, T, sizeof *r->events);
    r->items = ek_take_array(t, T, sizeof *r->items);
    r->targets = ek_take_array(t, T, sizeof *r->targets);
    if (m->e->times)
        r->times = ek_take_array(t, T, sizeof *r->times);
    for (int i = 0; i < m->e->n_columns; i++)
        r->columns[i] =
            ek_take_array(t, m->e->columns[i].of == EK_COLUMN_USER ? B : T, 4);
}

bool ek_batch_room_bytes(size_t *sum, const struct ek_maker *m)
{
    struct ek_taker t = {.is_dry = true};
    struct ek_batch_room r = {0};
    list_arrays(&r, m, &t);
    return !t.status && ek_add_size(sum, *sum, t.bytes);
}

int ek_batch_room_init(struct ek_batch_room *r, const struct ek_maker *m)
{
    struct ek_taker t = {.is_dry = false};
    *r = (struct ek_batch_room){0};
    list_arrays(r, m, &t);
    if (t.status)
        ek_batch_room_release(r);
    return t.status;
}

void ek_batch_room_release(struct ek_batch_room *r)
{
    ek_free(r->offsets);
    ek_free(r->users);
    ek_free(r->events);
    ek_free(r->items);
    ek_free(r->targets);
    ek_free(r->times);
    for (int i = 0; i < EK_EVENTS_COLUMNS_MAX; i++)
        ek_free(r->columns[i]);
    *r = (struct ek_batch_room){0};
}

/* One sample behind the T rows and B sequences that are there. */
static void add(struct ek_batch_room *r, const struct ek_maker *m,
                const struct ek_sample *s)
{
    struct ek_batch *b = &r->batch;
    const struct ek_events *e = m->e;
    bool is_training = m->o.part == EK_PART_TRAIN;
    size_t n = (size_t)s->length;
    memcpy(r->items + b->T, e->items + s->begin, n * sizeof *r->items);
    if (r->times)
        memcpy(r->times + b->T, e->times + s->begin, n * sizeof *r->times);
    for (int64_t i = 0; i < s->length; i++) {
        bool has_target = is_training || i == s->length - 1;
        r->events[b->T + i] = s->begin + i;
        r->targets[b->T + i] =
            has_target ? e->items[s->begin + i + 1] : EK_BATCH_NO_TARGET;
    }
    for (int i = 0; i < e->n_columns; i++) {
        const struct ek_column *c = &e->columns[i];
        const char *from =
            c->numbers ? (const char *)c->numbers : (const char *)c->levels;
        bool is_users = c->of == EK_COLUMN_USER;
        memcpy((char *)r->columns[i] + 4 * (is_users ? b->B : b->T),
               from + 4 * (is_users ? s->user : s->begin), is_users ? 4 : 4 * n);
    }
    r->users[b->B++] = s->user;
    b->T += s->length;
    r->offsets[b->B] = b->T;
    b->n_targets += is_training ? s->length : 1;
}

void ek_batch_fill(struct ek_batch_room *r, const struct ek_maker *m,
                   const struct ek_sub_batch *subs, int64_t n_subs)
{
    struct ek_batch *b = &r->batch;
    *b = (struct ek_batch){.offsets = r->offsets,
                           .items = r->items,
                           .times = r->times,
                           .targets = r->targets,
                           .events = r->events,
                           .users = r->users,
                           .n_columns = m->e->n_columns};
    r->offsets[0] = 0;
    for (int i = 0; i < b->n_columns; i++) {
        const struct ek_column *c = &m->e->columns[i];
        b->columns[i].of = c;
        if (c->kind == EK_COLUMN_NUMERIC)
            b->columns[i].numbers = r->columns[i];
        else
            b->columns[i].levels = r->columns[i];
    }
    for (int64_t k = 0; k < n_subs; k++) {
        for (int64_t i = 0; i < subs[k].n; i++)
            add(r, m, &m->samples[m->order[subs[k].first + i]]);
    }
}
