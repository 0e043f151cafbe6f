/* loader_maker.c - which samples there are, and which of them make a step. */
#include "base/mem.h"
#include "base/rng.h"
#include "train/loader_int.h"

#include <assert.h>
#include <stdlib.h>

#define SUB_BATCH 128

static int check(const struct ek_loader_options *o, const struct ek_events *e,
                 struct ek_err *err)
{
    if (o->max_length < 1 || o->max_length > INT32_MAX)
        return ek_err_set(err, EK_EINVAL, "max_length %lld: expected 1 to 2147483647",
                          (long long)o->max_length);
    if (o->batch < 1 || o->batch > INT32_MAX)
        return ek_err_set(err, EK_EINVAL, "batch %lld: expected 1 to 2147483647",
                          (long long)o->batch);
    if (o->n_micro < 0 || o->n_micro > EK_LOADER_MICRO_MAX)
        return ek_err_set(err, EK_EINVAL, "micro-batches %d: expected 1 to %d",
                          o->n_micro, EK_LOADER_MICRO_MAX);
    if (o->sub_batch < 0 || o->max_tokens < 0)
        return ek_err_set(err, EK_EINVAL, "sub_batch, max_tokens: expected 0 or more");
    if (o->n_ahead < 0 || o->n_ahead > EK_LOADER_AHEAD_MAX)
        return ek_err_set(err, EK_EINVAL, "batches ahead %d: expected 0 to %d",
                          o->n_ahead, EK_LOADER_AHEAD_MAX);
    if (o->sub_batch && o->sub_batch < o->batch && o->batch % o->sub_batch)
        return ek_err_set(err, EK_EINVAL,
                          "batch %lld: expected a multiple of the sub-batch, %lld",
                          (long long)o->batch, (long long)o->sub_batch);
    assert(e->n >= 1);
    return 0;
}

/* As given, or the largest divisor of the batch up to 128: then every micro-batch is of
 * whole sub-batches. */
static int64_t sub_batch_of(const struct ek_loader_options *o)
{
    int64_t sub = o->sub_batch ? o->sub_batch : SUB_BATCH;
    if (sub > o->batch)
        sub = o->batch;
    while (o->batch % sub)
        sub--;
    return sub;
}

/* The samples of user u: counted, and stored at s where that is not NULL. */
static int64_t samples_of(const struct ek_maker *m, int64_t u, struct ek_sample *s)
{
    const int64_t max = m->o.max_length;
    int64_t from = m->e->offsets[u], n = 0;
    if (m->o.part == EK_PART_TRAIN) {
        int64_t end = m->split->train_end[u] - 1; /* of the inputs */
        for (; end > from; end -= max) {
            int64_t begin = end - from > max ? end - max : from;
            if (s)
                s[n] = (struct ek_sample){begin, (int32_t)u, (int32_t)(end - begin)};
            n++;
            if (!m->o.cuts_windows)
                break;
        }
        return n;
    }
    bool is_valid = m->o.part == EK_PART_VALID;
    int64_t to = is_valid ? m->split->valid_end[u] : m->e->offsets[u + 1];
    for (int64_t t = is_valid ? m->split->train_end[u] : m->split->valid_end[u]; t < to;
         t++) {
        int64_t begin = t - from > max ? t - max : from;
        if (t == from)
            continue; /* nothing before it */
        if (s)
            s[n] = (struct ek_sample){begin, (int32_t)u, (int32_t)(t - begin)};
        n++;
    }
    return n;
}

static int list_samples(struct ek_maker *m, struct ek_err *err)
{
    static const char *const parts[] = {"training", "validation", "test"};
    for (int64_t u = 0; u < m->e->n_users; u++)
        m->n_samples += samples_of(m, u, NULL);
    if (m->n_samples == 0)
        return ek_err_set(
            err, EK_EINVAL,
            "%s: the %s part has no event with another before it: expected "
            "users of more events, or another split",
            m->e->source, parts[m->o.part]);
    m->samples = ek_alloc_array((size_t)m->n_samples, sizeof *m->samples);
    m->order = ek_alloc_array((size_t)m->n_samples, sizeof *m->order);
    if (!m->samples || !m->order)
        return EK_ENOMEM;
    int64_t n = 0;
    for (int64_t u = 0; u < m->e->n_users; u++)
        n += samples_of(m, u, m->samples + n);
    return 0;
}

static int by_length_falling(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The ceilings: the longest samples that one micro-batch can hold together. */
static int find_ceiling(struct ek_maker *m)
{
    int32_t *lengths = ek_alloc_array((size_t)m->n_samples, sizeof *lengths);
    if (!lengths)
        return EK_ENOMEM;
    for (int64_t i = 0; i < m->n_samples; i++) {
        lengths[i] = m->samples[i].length;
        m->n_targets += m->o.part == EK_PART_TRAIN ? lengths[i] : 1;
    }
    qsort(lengths, (size_t)m->n_samples, sizeof *lengths, by_length_falling);
    m->max_sequences = m->o.batch < m->n_samples ? m->o.batch : m->n_samples;
    for (int64_t i = 0; i < m->max_sequences; i++)
        m->max_rows += lengths[i];
    if (m->o.max_tokens && m->max_rows > m->o.max_tokens)
        m->max_rows = lengths[0] > m->o.max_tokens ? lengths[0] : m->o.max_tokens;
    ek_free(lengths);
    return 0;
}

/* No step has more micro-batches than the epoch has sub-batches, or samples by rows. */
static void limit_micro(struct ek_maker *m)
{
    const int64_t each = m->o.max_tokens ? 1 : m->o.sub_batch;
    const int64_t most = (m->n_samples + each - 1) / each;
    if (m->o.n_micro > most)
        m->o.n_micro = (int)most;
}

/* What a step is dealt in. */
static int take_step(struct ek_maker *m)
{
    struct ek_taker t = {.is_dry = false};
    const int64_t n_micro = m->o.n_micro;
    int64_t a_micro =
        m->o.max_tokens ? 1 : (m->max_sequences + m->o.sub_batch - 1) / m->o.sub_batch;
    m->subs = ek_take_array(&t, a_micro * n_micro + 1, 2 * sizeof *m->subs);
    m->cuts = ek_take_array(&t, n_micro + 1, 3 * sizeof *m->cuts);
    m->micro_rows = t.status ? NULL : m->cuts + n_micro + 1;
    m->micro_subs = t.status ? NULL : m->micro_rows + n_micro;
    m->bytes = t.bytes + (size_t)m->n_samples * (sizeof *m->samples + sizeof *m->order);
    return t.status;
}

int ek_maker_init(struct ek_maker *m, const struct ek_events *e,
                  const struct ek_split *split, const struct ek_loader_options *o,
                  struct ek_err *err)
{
    int rc = check(o, e, err);
    if (rc)
        return rc;
    *m = (struct ek_maker){.e = e, .split = split, .o = *o};
    m->o.n_micro = o->n_micro ? o->n_micro : 1;
    m->o.sub_batch = sub_batch_of(o);
    rc = list_samples(m, err);
    if (!rc)
        rc = find_ceiling(m);
    if (!rc) {
        limit_micro(m);
        rc = take_step(m);
    }
    if (rc) {
        if (rc == EK_ENOMEM || rc == EK_ELIMIT)
            ek_err_set(err, rc, "loader: %s", ek_status_text(rc));
        ek_maker_release(m);
        return rc;
    }
    ek_maker_seek(m, 0, 0);
    return 0;
}

void ek_maker_release(struct ek_maker *m)
{
    ek_free(m->samples);
    ek_free(m->order);
    ek_free(m->subs);
    ek_free(m->cuts);
    *m = (struct ek_maker){0};
}

/* The order of m->epoch, whatever the one before was. */
static void begin_epoch(struct ek_maker *m)
{
    struct ek_rng rng;
    for (int64_t i = 0; i < m->n_samples; i++)
        m->order[i] = i;
    m->at = m->step = 0;
    m->micro = m->n_micro = 0;
    if (m->o.part != EK_PART_TRAIN)
        return;
    ek_rng_init(&rng, m->o.seed ^ (uint64_t)m->epoch * 0x9e3779b97f4a7c15u);
    for (int64_t i = m->n_samples - 1; i > 0; i--) {
        int64_t k = (int64_t)ek_rng_below(&rng, (uint64_t)i + 1), other = m->order[k];
        m->order[k] = m->order[i];
        m->order[i] = other;
    }
}

static int64_t rows_of(const struct ek_maker *m, int64_t at)
{
    return m->samples[m->order[at]].length;
}

/* Heaviest first; equal ones as they came. */
static int by_rows(const void *a, const void *b)
{
    const struct ek_sub_batch *x = a, *y = b;
    if (x->rows != y->rows)
        return x->rows > y->rows ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Which micro-batch has the fewest rows and room for another sub-batch. */
static int lightest(const struct ek_maker *m, int64_t each)
{
    int best = -1;
    for (int k = 0; k < m->n_micro; k++) {
        if (m->micro_subs[k] < each &&
            (best < 0 || m->micro_rows[k] < m->micro_rows[best]))
            best = k;
    }
    return best;
}

/* The sorted sub-batches, heaviest first, each to the lightest micro-batch. */
static void deal(struct ek_maker *m, struct ek_sub_batch *sorted, int64_t n)
{
    m->n_micro = n < m->o.n_micro ? (int)n : m->o.n_micro;
    if (m->n_micro < 1)
        return;
    int64_t each = (n + m->n_micro - 1) / m->n_micro;
    for (int k = 0; k < m->n_micro; k++)
        m->micro_rows[k] = m->micro_subs[k] = 0;
    for (int64_t i = 0; i < n; i++) {
        int k = lightest(m, each);
        sorted[i].micro = k;
        m->micro_rows[k] += sorted[i].rows;
        m->micro_subs[k]++;
    }
    m->cuts[0] = 0;
    for (int k = 0; k < m->n_micro; k++) {
        m->cuts[k + 1] = m->cuts[k] + m->micro_subs[k];
        m->micro_subs[k] = m->cuts[k]; /* from here: where its next one goes */
    }
    for (int64_t i = 0; i < n; i++)
        m->subs[m->micro_subs[sorted[i].micro]++] = sorted[i];
}

/* By sequences: the step's samples as sub-batches, sorted and dealt. */
static void plan_sequences(struct ek_maker *m)
{
    int64_t end = m->at + m->o.batch * m->o.n_micro, n = 0;
    end = end < m->n_samples ? end : m->n_samples;
    int64_t cap = (end - m->at + m->o.sub_batch - 1) / m->o.sub_batch;
    struct ek_sub_batch *sorted = m->subs + cap;
    for (int64_t at = m->at; at < end; at += m->o.sub_batch) {
        int64_t left = end - at;
        struct ek_sub_batch s = {.first = at};
        s.n = left < m->o.sub_batch ? left : m->o.sub_batch;
        for (int64_t i = 0; i < s.n; i++)
            s.rows += rows_of(m, at + i);
        sorted[n++] = s;
    }
    qsort(sorted, (size_t)n, sizeof *sorted, by_rows);
    deal(m, sorted, n);
    m->at = end;
}

/* By rows: samples as they come while they fit. */
static void plan_tokens(struct ek_maker *m)
{
    m->n_micro = 0;
    for (; m->n_micro < m->o.n_micro && m->at < m->n_samples; m->n_micro++) {
        struct ek_sub_batch s = {.first = m->at};
        while (m->at < m->n_samples && s.n < m->o.batch) {
            int64_t rows = rows_of(m, m->at);
            if (s.n && s.rows + rows > m->o.max_tokens)
                break;
            s.rows += rows;
            s.n++;
            m->at++;
        }
        m->subs[m->n_micro] = s;
        m->cuts[m->n_micro] = m->n_micro;
    }
    m->cuts[m->n_micro] = m->n_micro;
}

/* Plans the step at m->at, which is before the epoch's end. */
static void plan(struct ek_maker *m)
{
    if (m->o.max_tokens)
        plan_tokens(m);
    else
        plan_sequences(m);
    m->micro = 0;
    m->step_targets = m->step_sequences = 0;
    for (int64_t i = 0; i < m->cuts[m->n_micro]; i++) {
        m->step_sequences += m->subs[i].n;
        m->step_targets += m->o.part == EK_PART_TRAIN ? m->subs[i].rows : m->subs[i].n;
    }
}

void ek_maker_seek(struct ek_maker *m, int64_t epoch, int64_t step)
{
    m->epoch = epoch;
    begin_epoch(m);
    if (!m->o.max_tokens) {
        int64_t a_step = m->o.batch * m->o.n_micro;
        int64_t n = (m->n_samples + a_step - 1) / a_step;
        m->step = step < n ? step : n;
        m->at = m->step < n ? m->step * a_step : m->n_samples;
        return;
    }
    for (; m->step < step && m->at < m->n_samples; m->step++)
        plan_tokens(m);
    m->n_micro = 0;
}

int64_t ek_maker_steps(struct ek_maker *m)
{
    ek_maker_seek(m, 0, INT64_MAX);
    int64_t n = m->step;
    ek_maker_seek(m, 0, 0);
    return n;
}

void ek_maker_next(struct ek_maker *m, struct ek_batch_room *room)
{
    room->is_end = m->micro == m->n_micro && m->at == m->n_samples;
    if (room->is_end) {
        m->epoch++;
        begin_epoch(m);
        return;
    }
    if (m->micro == m->n_micro)
        plan(m);
    ek_batch_fill(room, m, m->subs + m->cuts[m->micro],
                  m->cuts[m->micro + 1] - m->cuts[m->micro]);
    room->batch.epoch = m->epoch;
    room->batch.step = m->step;
    room->batch.micro = m->micro++;
    room->batch.n_micro = m->n_micro;
    room->batch.step_targets = m->step_targets;
    room->batch.step_sequences = m->step_sequences;
    m->step += m->micro == m->n_micro;
}
