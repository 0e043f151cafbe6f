/* gem_bind.c - a batch's chunks: counted from the start of each sequence, so that a
 * row's chunk depends on what is before it alone. */
#include "base/mem.h"
#include "rec/gem_int.h"

#include <math.h>

#define SECOND 1000000 /* microseconds */
#define CHUNK  16

static int64_t max_chunks(const struct ek_rec *m)
{
    int64_t by_rows = m->shape.max_sequences + m->shape.max_rows / m->c.chunk;
    return by_rows < m->shape.max_rows ? by_rows : m->shape.max_rows;
}

static void count(struct ek_rec *m, struct ek_gem *e)
{
    e->n_chunks_max = max_chunks(m);
    e->n_features = EK_GEM_SLOTS;
    for (int i = 0; i < m->shape.n_columns; i++) {
        e->n_features += m->shape.columns[i].is_user;
        e->numbers[i] = e->rows[i] = -1;
    }
    e->n_summary = m->c.seeds + 1;
    e->n_keys = m->c.ffn;
    e->gap = -1;
}

/* Cuts one allocation into arrays of so many elements, 64-byte aligned. */
struct cut {
    char *at; /* NULL: only counts */
    size_t bytes;
};

static void *next(struct cut *c, int64_t n, size_t size)
{
    void *p = c->at ? c->at + c->bytes : NULL;
    c->bytes += ((size_t)n * size + 63) / 64 * 64;
    return p;
}

static size_t lay_out(const struct ek_rec *m, struct ek_gem *e, char *at)
{
    const int64_t T = m->shape.max_rows, B = m->shape.max_sequences;
    const int64_t n = e->n_chunks_max;
    struct cut c = {.at = at};
    (void)next(&c, 1, sizeof *e);
    e->chunk_offset = next(&c, n + 1, sizeof *e->chunk_offset);
    e->key_offset = next(&c, n + 1, sizeof *e->key_offset);
    e->sequence_chunk = next(&c, B + 1, sizeof *e->sequence_chunk);
    e->before_chunk = next(&c, n, sizeof *e->before_chunk);
    e->latest_row = next(&c, n, sizeof *e->latest_row);
    e->chunk_user = next(&c, n, sizeof *e->chunk_user);
    e->zeros = next(&c, n, sizeof *e->zeros);
    e->chunk_of_row = next(&c, T, sizeof *e->chunk_of_row);
    e->gap_of_row = next(&c, m->c.has_times ? T : 0, sizeof *e->gap_of_row);
    for (int i = 0; i < m->shape.n_columns; i++) {
        const struct ek_rec_column *x = &m->shape.columns[i];
        if (x->levels == 0)
            e->number[i] = next(&c, x->is_user ? B : T, sizeof *e->number[i]);
        else if (ek_gem_rows(&m->c, x->levels) < x->levels)
            e->row[i] = next(&c, x->is_user ? B : T, sizeof *e->row[i]);
    }
    return c.bytes;
}

int ek_gem_take(struct ek_rec *m, struct ek_err *err)
{
    struct ek_gem sizes = {0};
    m->c.chunk = m->c.chunk ? m->c.chunk : CHUNK;
    count(m, &sizes);
    size_t bytes = lay_out(m, &sizes, NULL);
    m->own = ek_calloc(1, bytes);
    if (!m->own)
        return ek_err_set(err, EK_ENOMEM, "model: out of memory");
    m->own_bytes = bytes;
    count(m, m->own);
    (void)lay_out(m, m->own, m->own);
    return 0;
}

/* --- a batch ---------------------------------------------------------------------- */

static int64_t write_chunks(const struct ek_rec *m, const struct ek_rec_batch *b)
{
    struct ek_gem *e = ek_gem_of(m);
    int64_t n = 0;
    for (int64_t i = 0; i < b->B; i++) {
        e->sequence_chunk[i] = n;
        for (int64_t t = b->offsets[i]; t < b->offsets[i + 1]; n++) {
            int64_t end = t + m->c.chunk, is_first = t == b->offsets[i];
            end = end < b->offsets[i + 1] ? end : b->offsets[i + 1];
            e->chunk_offset[n] = t;
            e->key_offset[n] = n * e->n_keys;
            e->before_chunk[n] = is_first ? -1 : (int32_t)(n - 1);
            e->latest_row[n] = is_first ? -1 : (int32_t)(t - 1);
            e->chunk_user[n] = (int32_t)i;
            for (; t < end; t++)
                e->chunk_of_row[t] = (int32_t)n;
        }
    }
    e->sequence_chunk[b->B] = n;
    e->chunk_offset[n] = b->T;
    e->key_offset[n] = n * e->n_keys;
    return n;
}

static void write_gaps(const struct ek_rec *m, const struct ek_rec_batch *b)
{
    struct ek_gem *e = ek_gem_of(m);
    for (int64_t i = 0; i < b->B; i++)
        for (int64_t t = b->offsets[i]; t < b->offsets[i + 1]; t++)
            e->gap_of_row[t] =
                t == b->offsets[i]
                    ? EK_GEM_GAPS - 1
                    : ek_jagged_bucket((b->times[t] - b->times[t - 1]) / SECOND);
    ek_graph_bind(m->g, e->gap, e->gap_of_row);
}

static void write_numbers(const struct ek_rec *m, const struct ek_rec_batch *b)
{
    struct ek_gem *e = ek_gem_of(m);
    for (int i = 0; i < EK_REC_COLUMNS_MAX; i++) {
        if (!e->number[i] || e->numbers[i] < 0)
            continue;
        int64_t n = m->columns[i].is_user ? b->B : b->T;
        for (int64_t j = 0; j < n; j++)
            e->number[i][j] = asinhf(b->columns[i].numbers[j]);
        ek_graph_bind(m->g, e->numbers[i], e->number[i]);
    }
}

/* Levels of categories that share rows; one that is absent stays so. */
static void write_hashes(const struct ek_rec *m, const struct ek_rec_batch *b)
{
    struct ek_gem *e = ek_gem_of(m);
    for (int i = 0; i < EK_REC_COLUMNS_MAX; i++) {
        if (!e->row[i] || e->rows[i] < 0)
            continue;
        const int32_t *levels = b->columns[i].levels;
        const int32_t rows = ek_gem_rows(&m->c, m->columns[i].levels);
        int64_t n = m->columns[i].is_user ? b->B : b->T;
        for (int64_t j = 0; j < n; j++)
            e->row[i][j] = levels[j] < 0 ? -1 : ek_gem_row(levels[j], i, rows);
        ek_graph_bind(m->g, e->rows[i], e->row[i]);
    }
}

static int set_axes(const struct ek_rec *m, int64_t n)
{
    const struct ek_gem *e = ek_gem_of(m);
    const struct {
        int axis;
        int64_t rows;
    } axes[] = {{e->chunks, n},
                {e->edges, n + 1},
                {e->seeds, n * m->c.seeds},
                {e->keys, n * e->n_keys},
                {e->features, n * e->n_features},
                {e->summary, n * e->n_summary}};
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++)
        if (ek_graph_set_axis(m->g, axes[i].axis, axes[i].rows))
            return EK_ELIMIT;
    return 0;
}

int ek_gem_bind(struct ek_rec *m, const struct ek_rec_batch *b)
{
    const struct ek_gem *e = ek_gem_of(m);
    int rc = set_axes(m, write_chunks(m, b));
    if (rc)
        return rc;
    const struct {
        int input;
        const void *p;
    } inputs[] = {{e->chunk_offsets, e->chunk_offset},
                  {e->key_offsets, e->key_offset},
                  {e->sequence_chunks, e->sequence_chunk},
                  {e->before, e->before_chunk},
                  {e->latest, e->latest_row},
                  {e->user, e->chunk_user},
                  {e->zero, e->zeros},
                  {e->chunk_of, e->chunk_of_row}};
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++)
        ek_graph_bind(m->g, inputs[i].input, inputs[i].p);
    if (m->c.has_times)
        write_gaps(m, b);
    write_numbers(m, b);
    write_hashes(m, b);
    return 0;
}
