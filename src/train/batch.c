/* batch.c - samples gathered into the arrays of one batch. */
#include "train/batch.h"

#include "base/mem.h"
#include "train/loader_int.h"

#include <string.h>

int ek_batch_room_init(struct ek_batch_room *r, const struct ek_maker *m)
{
    size_t B = (size_t)m->max_sequences, T = (size_t)m->max_rows;
    *r = (struct ek_batch_room){
        .offsets = ek_alloc_array(B + 1, sizeof *r->offsets),
        .users = ek_alloc_array(B, sizeof *r->users),
        .events = ek_alloc_array(T, sizeof *r->events),
        .items = ek_alloc_array(T, sizeof *r->items),
        .targets = ek_alloc_array(T, sizeof *r->targets),
        .times = m->e->times ? ek_alloc_array(T, sizeof *r->times) : NULL,
    };
    bool is_whole = r->offsets && r->users && r->events && r->items && r->targets &&
                    (r->times || !m->e->times);
    for (int i = 0; i < m->e->n_columns; i++) {
        const struct ek_column *c = &m->e->columns[i];
        r->columns[i] = ek_alloc_array(c->of == EK_COLUMN_USER ? B : T, 4);
        is_whole = is_whole && r->columns[i];
    }
    if (is_whole)
        return 0;
    ek_batch_room_release(r);
    return EK_ENOMEM;
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
