/* rows.c - ids grouped by a stable two-pass sort: blocks of entries count and deal into
 * buckets, then each bucket is sorted by (row, entry). A bucket holds the rows of equal
 * low bits: popular items often have neighbouring ids, and would share one otherwise.
 *
 *   scratch:  key[n]  other[n]  count[blocks][BUCKETS]
 *   key = row << 32 | entry, so sorting keys sorts by row and keeps the order of
 *   entries
 */
#include "graph/rows.h"

#include "graph/graph_int.h"

#include <assert.h>
#include <string.h>

#define BUCKET_BITS 8
#define BUCKETS     (1 << BUCKET_BITS)
#define AHEAD       8  /* entries fetched before their turn */
#define MAX_BLOCKS  64 /* of entries: fixed by n, never by threads */

struct work {
    const struct ek_rows *o;
    ek_row_fn *fn;
    void *arg;
    int64_t first[EK_ROW_SOURCES + 1]; /* entry number where each source begins */
    int64_t n, block, n_blocks;        /* entries, entries a block */
    uint64_t *key, *other;
    int32_t (*count)[BUCKETS]; /* per block; then where its entries go */
    int64_t start[BUCKETS + 1];
    int bits; /* of a row above those of its bucket */
};

size_t ek_rows_bytes(int64_t max_n)
{
    return (size_t)max_n * 16 + (size_t)MAX_BLOCKS * BUCKETS * sizeof(int32_t) + 128;
}

static int32_t id_of(const struct ek_row_grad *s, int64_t e)
{
    return s->ids ? s->ids[e] : (int32_t)e;
}

/* Calls for the entries of block b, in order: pass 0 counts, pass 1 deals. */
static void walk_block(struct work *w, int64_t b, bool is_dealing)
{
    struct ek_range x = ek_block(w->n, w->block, b);
    int32_t *count = w->count[b];
    for (int s = 0; s < w->o->n_sources; s++) {
        const struct ek_row_grad *source = &w->o->sources[s];
        int64_t lo = x.lo > w->first[s] ? x.lo : w->first[s];
        int64_t hi = x.hi < w->first[s + 1] ? x.hi : w->first[s + 1];
        for (int64_t e = lo; e < hi; e++) {
            int32_t id = id_of(source, e - w->first[s]);
            if (id < 0)
                continue;
            assert(id < w->o->table_rows);
            if (is_dealing)
                w->key[count[id % BUCKETS]++] = (uint64_t)id << 32 | (uint64_t)e;
            else
                count[id % BUCKETS]++;
        }
    }
}

static void count_share(void *arg, int member, int n_members)
{
    struct work *w = arg;
    int64_t lo, hi;
    ek_team_share(&lo, &hi, w->n_blocks, 1, member, n_members);
    for (int64_t b = lo; b < hi; b++) {
        memset(w->count[b], 0, sizeof w->count[b]);
        walk_block(w, b, false);
    }
}

/* Counts become the place of each block's first entry in each bucket. */
static void sum_counts(struct work *w)
{
    int64_t at = 0;
    for (int i = 0; i < BUCKETS; i++) {
        w->start[i] = at;
        for (int64_t b = 0; b < w->n_blocks; b++) {
            int32_t n = w->count[b][i];
            w->count[b][i] = (int32_t)at;
            at += n;
        }
    }
    w->start[BUCKETS] = at;
}

static void deal_share(void *arg, int member, int n_members)
{
    struct work *w = arg;
    int64_t lo, hi;
    ek_team_share(&lo, &hi, w->n_blocks, 1, member, n_members);
    for (int64_t b = lo; b < hi; b++)
        walk_block(w, b, true);
}

/* Sorts key[0,n) by the row, keeping the order of equal rows: counting passes over the
 * bits of a row within its bucket, or insertion when there are few. */
static uint64_t *sort_bucket(uint64_t *key, uint64_t *other, int64_t n, int bits)
{
    const int low = 32 + BUCKET_BITS;
    if (n <= 32) {
        for (int64_t i = 1; i < n; i++) {
            uint64_t x = key[i];
            int64_t j = i;
            for (; j > 0 && key[j - 1] > x; j--)
                key[j] = key[j - 1];
            key[j] = x;
        }
        return key;
    }
    for (int at = 0; at < bits; at += 8) {
        int32_t place[257] = {0};
        for (int64_t i = 0; i < n; i++)
            place[(key[i] >> (low + at) & 255) + 1]++;
        for (int i = 0; i < 256; i++)
            place[i + 1] += place[i];
        for (int64_t i = 0; i < n; i++)
            other[place[key[i] >> (low + at) & 255]++] = key[i];
        uint64_t *turn = key;
        key = other;
        other = turn;
    }
    return key;
}

static const float *entry_row(const struct work *w, int64_t e, float *scale)
{
    int s = 0;
    while (e >= w->first[s + 1])
        s++;
    const struct ek_row_grad *x = &w->o->sources[s];
    int64_t i = e - w->first[s];
    *scale = x->scale;
    return x->grad + (x->row_of ? x->row_of[i] : i) * x->ld;
}

/* What entry key will need: its gradient row, and the table's row. */
EK_FETCH fetch(const struct work *w, uint64_t key)
{
    float scale;
    const float *x = entry_row(w, (int64_t)(key & UINT32_MAX), &scale);
    const float *row =
        w->o->table ? w->o->table + (int64_t)(key >> 32) * w->o->cols : x;
    for (int64_t c = 0; c < w->o->cols; c += 16) {
        __builtin_prefetch(x + c);
        __builtin_prefetch(row + c, 1);
    }
    if (w->o->of_row)
        __builtin_prefetch(w->o->of_row + (key >> 32), 1);
}

/* Sums run of equal rows after run. */
static void give_rows(const struct work *w, const uint64_t *key, int64_t n)
{
    float sum[EK_ROW_COLS], scale;
    for (int64_t i = 0; i < n; i++) {
        bool is_first = i == 0 || key[i] >> 32 != key[i - 1] >> 32;
        if (i + AHEAD < n)
            fetch(w, key[i + AHEAD]);
        const float *x = entry_row(w, (int64_t)(key[i] & UINT32_MAX), &scale);
        w->o->ops->mul(sum, x, NULL, scale, w->o->cols, !is_first);
        if (i + 1 == n || key[i] >> 32 != key[i + 1] >> 32)
            w->fn(w->arg, (int64_t)(key[i] >> 32), sum);
    }
}

/* Buckets by their entries: member m takes those that begin in its share of all. */
static void give_share(void *arg, int member, int n_members)
{
    const struct work *w = arg;
    int64_t lo, hi, total = w->start[BUCKETS];
    ek_team_share(&lo, &hi, total, 1, member, n_members);
    for (int i = 0; i < BUCKETS; i++) {
        int64_t at = w->start[i], n = w->start[i + 1] - at;
        if (n == 0 || at < lo || at >= hi)
            continue;
        give_rows(w, sort_bucket(w->key + at, w->other + at, n, w->bits), n);
    }
}

void ek_rows_each(const struct ek_rows *o, ek_row_fn *fn, void *arg)
{
    struct work w = {.o = o, .fn = fn, .arg = arg};
    assert(o->cols <= EK_ROW_COLS && o->n_sources <= EK_ROW_SOURCES);
    for (int s = 0; s < o->n_sources; s++)
        w.first[s + 1] = w.first[s] + o->sources[s].n;
    w.n = w.first[o->n_sources];
    assert(w.n <= INT32_MAX);
    w.block = (w.n + MAX_BLOCKS - 1) / MAX_BLOCKS;
    w.block = w.block < 1024 ? 1024 : w.block;
    w.n_blocks = ek_n_blocks(w.n, w.block);
    w.key = o->scratch;
    w.other = w.key + w.n;
    w.count = (int32_t(*)[BUCKETS])(void *)(w.other + w.n);
    while ((o->table_rows - 1) >> (BUCKET_BITS + w.bits))
        w.bits++;
    ek_team_run(o->team, count_share, &w);
    sum_counts(&w);
    ek_team_run(o->team, deal_share, &w);
    ek_team_run(o->team, give_share, &w);
}
