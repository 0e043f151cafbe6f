/* bind.c - one batch: checked, then the axes, the inputs and what follows from the
 * offsets. Everything is looked at before anything is set. */
#include "rec/model_int.h"

#include <assert.h>

#define SECOND 1000000 /* microseconds */

/* All of ids[0, n) below `end`, and not below `first`. */
static bool are_within(const int32_t *ids, int64_t n, int32_t first, int64_t end)
{
    int32_t lo = 0, hi = 0;
    for (int64_t i = 0; i < n; i++) {
        lo = ids[i] < lo ? ids[i] : lo;
        hi = ids[i] > hi ? ids[i] : hi;
    }
    return n == 0 || (lo >= first && hi < end);
}

static int check_lengths(const struct ek_rec *m, const struct ek_rec_batch *b)
{
    if (b->offsets[0] != 0 || b->offsets[b->B] != b->T)
        return EK_EINVAL;
    for (int64_t i = 0; i < b->B; i++) {
        int64_t length = b->offsets[i + 1] - b->offsets[i];
        if (length < 1)
            return EK_EINVAL;
        if (length > m->c.max_length)
            return EK_ELIMIT;
    }
    return 0;
}

static int check_columns(const struct ek_rec *m, const struct ek_rec_batch *b)
{
    for (int i = 0; i < EK_REC_COLUMNS_MAX; i++) {
        int64_t n = m->columns[i].is_user ? b->B : b->T;
        if (m->columns[i].value < 0)
            continue;
        if (m->columns[i].levels == 0 && !b->columns[i].numbers)
            return EK_EINVAL;
        if (m->columns[i].levels > 0 &&
            (!b->columns[i].levels ||
             !are_within(b->columns[i].levels, n, INT32_MIN, m->columns[i].levels)))
            return EK_EINVAL;
    }
    return 0;
}

static int check(const struct ek_rec *m, const struct ek_rec_batch *b)
{
    int64_t n_items = m->shape.n_items;
    if (b->B < 0 || b->T < 0 || b->B > m->shape.max_sequences ||
        b->T > m->shape.max_rows)
        return EK_ELIMIT;
    int rc = check_lengths(m, b);
    if (rc)
        return rc;
    if (!are_within(b->items, b->T, 0, n_items) || (m->times >= 0 && !b->times))
        return EK_EINVAL;
    if (m->targets >= 0 &&
        (!b->targets || !are_within(b->targets, b->T, INT32_MIN, n_items) ||
         (m->clicks >= 0 && !b->clicks)))
        return EK_EINVAL;
    if (m->negatives >= 0 &&
        (!b->negatives || !are_within(b->negatives, m->c.negatives, 0, n_items)))
        return EK_EINVAL;
    return check_columns(m, b);
}

/* Seconds, as the published buckets count. The last row's next is itself when it is not
 * told. */
static void write_times(struct ek_rec *m, const struct ek_rec_batch *b)
{
    for (int64_t i = 0; i < b->B; i++)
        for (int64_t t = b->offsets[i]; t < b->offsets[i + 1]; t++) {
            int64_t next = t + 1 < b->offsets[i + 1] ? t + 1 : t;
            m->seconds[t] = b->times[t] / SECOND;
            m->next_seconds[t] =
                (b->next_times ? b->next_times[t] : b->times[next]) / SECOND;
        }
    ek_graph_bind(m->g, m->times, m->seconds);
    ek_graph_bind(m->g, m->next_times, m->next_seconds);
}

static void write_rows(struct ek_rec *m, const struct ek_rec_batch *b)
{
    for (int64_t i = 0; i < b->B; i++) {
        int64_t first = b->offsets[i], end = b->offsets[i + 1];
        m->inverse[i] = 1.0f / (float)(end - first);
        for (int64_t t = first; t < end; t++)
            m->position[t] = (int32_t)(t - first);
    }
}

/* A row without a target has nothing that could be clicked. */
static void write_labels(struct ek_rec *m, const struct ek_rec_batch *b)
{
    for (int64_t t = 0; t < b->T; t++)
        m->labels[t] = b->targets[t] < 0 ? -1.0f : b->clicks[t];
    ek_graph_bind(m->g, m->clicks, m->labels);
}

static void bind_columns(struct ek_rec *m, const struct ek_rec_batch *b)
{
    for (int i = 0; i < EK_REC_COLUMNS_MAX; i++)
        if (m->columns[i].value >= 0)
            ek_graph_bind(m->g, m->columns[i].value,
                          m->columns[i].levels > 0
                              ? (const void *)b->columns[i].levels
                              : (const void *)b->columns[i].numbers);
}

int ek_rec_bind(struct ek_rec *m, const struct ek_rec_batch *b)
{
    struct ek_graph *g = m->g;
    int rc = check(m, b);
    if (rc)
        return rc;
    if (ek_graph_set_axis(g, m->tokens, b->T) || ek_graph_set_axis(g, m->users, b->B) ||
        ek_graph_set_axis(g, m->edges, b->B + 1))
        return EK_ELIMIT;
    write_rows(m, b);
    ek_graph_bind(g, m->ids, b->items);
    ek_graph_bind(g, m->positions, m->position);
    ek_graph_bind(g, m->offsets, b->offsets);
    if (m->per_row >= 0)
        ek_graph_bind(g, m->per_row, m->inverse);
    if (m->times >= 0)
        write_times(m, b);
    if (m->targets >= 0)
        ek_graph_bind(g, m->targets, b->targets);
    if (m->negatives >= 0)
        ek_graph_bind(g, m->negatives, b->negatives);
    if (m->clicks >= 0)
        write_labels(m, b);
    bind_columns(m, b);
    return m->family->bind ? m->family->bind(m, b) : 0;
}
