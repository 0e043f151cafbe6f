/* rank.c - scores block by block, and only their counts kept.
 *
 * A member has the queries [lo,hi). First it scores each query's target and what was
 * seen, a row of items at a time; then it walks the items in blocks of ITEMS, turned
 * once a block, against its queries in blocks of QUERIES.
 */
#include "train/rank.h"

#include "base/mem.h"
#include "kernel/gemm.h"
#include "kernel/grad.h"
#include "kernel/ops.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define ITEMS   256 /* a block of them, turned, at dim 64: 64 KiB */
#define QUERIES 96  /* times ITEMS scores: 96 KiB of the second-level cache */
#define GATHER  48  /* rows of seen items at a time */

/* What one member works in. */
struct room {
    float *rows;    /* (ITEMS, dim) of length 1; cosine only */
    float *turned;  /* (dim, ITEMS) */
    float *scores;  /* (QUERIES, ITEMS) */
    float *gather;  /* (GATHER, dim) */
    uint64_t *bits; /* (n_items) has been seen; all 0 between calls */
    int32_t *seen;  /* (max_seen, or n_items if fewer) those, once each */
    int64_t n_seen;
    const int32_t *seen_of; /* whose history they are, and how much of it */
    int64_t seen_until;
    /* ek_ranker_top */
    int32_t *top_items; /* (k) a heap, the worst first; grown when asked for */
    float *top_scores;
    int64_t n_top;
};

struct ek_ranker {
    struct ek_ranker_options o;
    const struct ek_gemm_ops *gemm;
    const struct ek_grad_ops *grad;
    ek_beats_fn *beats;
    int n_members;
    struct room *rooms; /* (n_members) owned */
    float *targets;     /* (max_queries) scores of targets */
    int64_t top_cap;    /* of the rooms' heaps */
    /* the call */
    struct ek_rank *out;
    const float *h;
    int64_t ld, n;
    const struct ek_rank_query *queries;
};

static void room_release(struct room *m)
{
    ek_free(m->rows);
    ek_free(m->turned);
    ek_free(m->scores);
    ek_free(m->gather);
    ek_free(m->bits);
    ek_free(m->seen);
    ek_free(m->top_items);
    ek_free(m->top_scores);
}

static float *floats(int64_t rows, int64_t cols)
{
    size_t n;
    if (!ek_mul_size(&n, (size_t)rows, (size_t)cols) ||
        !ek_mul_size(&n, n, sizeof(float)))
        return NULL;
    return ek_alloc_aligned(64, n);
}

static void list_room(struct room *m, const struct ek_ranker_options *o,
                      struct ek_taker *t)
{
    const size_t row = (size_t)o->dim * sizeof(float);
    if (o->is_cosine)
        m->rows = ek_take_aligned(t, ITEMS, row);
    m->turned = ek_take_aligned(t, ITEMS, row);
    m->scores = ek_take_aligned(t, QUERIES, ITEMS * sizeof *m->scores);
    m->gather = ek_take_aligned(t, GATHER, row);
    m->bits = ek_take_zeroed(t, (o->n_items + 63) / 64, sizeof *m->bits);
    m->seen = ek_take_array(t, o->max_seen < o->n_items ? o->max_seen : o->n_items,
                            sizeof *m->seen);
}

bool ek_ranker_bytes(size_t *sum, const struct ek_ranker_options *o)
{
    struct ek_taker t = {.is_dry = true};
    struct room room;
    (void)ek_take_aligned(&t, o->max_queries, sizeof(float));
    for (int i = 0; i < ek_team_size(o->team); i++)
        list_room(&room, o, &t);
    return !t.status && ek_add_size(sum, *sum, t.bytes);
}

int ek_ranker_new(struct ek_ranker **ranker, const struct ek_ranker_options *o,
                  struct ek_err *err)
{
    assert(o->n_items >= 1 && o->dim >= 1 && o->max_queries >= 1);
    struct ek_ranker *r = ek_calloc(1, sizeof *r);
    int rc = r ? 0 : EK_ENOMEM;
    if (r) {
        r->o = *o;
        r->gemm = ek_gemm_ops_get(o->isa);
        r->grad = ek_grad_ops_get(o->isa);
        r->beats = ek_ops_get(o->isa)->beats;
        struct ek_taker t = {.is_dry = false};
        r->targets = ek_take_aligned(&t, o->max_queries, sizeof *r->targets);
        r->rooms = ek_calloc((size_t)ek_team_size(o->team), sizeof *r->rooms);
        r->n_members = r->rooms ? ek_team_size(o->team) : 0;
        for (int i = 0; i < r->n_members; i++)
            list_room(&r->rooms[i], o, &t);
        rc = r->rooms ? t.status : EK_ENOMEM;
    }
    if (rc) {
        ek_ranker_free(r);
        return ek_err_set(err, rc, "ranking of %lld items: %s", (long long)o->n_items,
                          ek_status_text(rc));
    }
    *ranker = r;
    return 0;
}

void ek_ranker_free(struct ek_ranker *r)
{
    if (!r)
        return;
    for (int i = 0; i < r->n_members; i++)
        room_release(&r->rooms[i]);
    ek_free(r->rooms);
    ek_free(r->targets);
    ek_free(r);
}

/* --- scores --------------------------------------------------------------------- */

/* Item v as it is multiplied; at `to` when it is changed for that. */
static const float *item_of(const struct ek_ranker *r, int64_t v, float *to)
{
    const float *e = r->o.items + v * r->o.dim;
    if (!r->o.is_cosine)
        return e;
    const double square = r->grad->dot(e, e, r->o.dim);
    const float scale = (float)(square > 0 ? 1 / sqrt(square) : square); /* 0, NaN */
    r->grad->mul(to, e, NULL, scale, r->o.dim, false);
    return to;
}

/* Items [j,j+n), n at most ITEMS, the same way. */
static const float *items_of(const struct ek_ranker *r, struct room *m, int64_t j,
                             int64_t n)
{
    for (int64_t k = 0; r->o.is_cosine && k < n; k++)
        item_of(r, j + k, m->rows + k * r->o.dim);
    return r->o.is_cosine ? m->rows : r->o.items + j * r->o.dim;
}

/* scores[i] = h . rows i, n of them one behind the other: a product's bits depend on
 * its two rows alone, so these are those of the blocks. */
static void score_rows(const struct ek_ranker *r, float *scores, const float *rows,
                       const float *h, int64_t n)
{
    struct ek_gemm g = {.M = n, .N = 1, .K = r->o.dim, .a = rows, .am = r->o.dim};
    g.ak = g.ldb = g.ldc = 1;
    g.b = h;
    g.c = scores;
    r->gemm->f32(&g);
}

/* --- what was seen -------------------------------------------------------------- */

static void forget(struct room *m)
{
    for (int64_t i = 0; i < m->n_seen; i++)
        m->bits[m->seen[i] / 64] = 0;
    m->n_seen = m->seen_until = 0;
    m->seen_of = NULL;
}

/* Histories grow from one query to the next of a user: then only what is new is
 * read. */
static void see(struct room *m, const int32_t *seen, int64_t n)
{
    if (m->seen_of != seen || m->seen_until > n)
        forget(m);
    for (int64_t i = m->seen_until; i < n; i++) {
        const int32_t v = seen[i];
        const uint64_t bit = (uint64_t)1 << v % 64;
        if (m->bits[v / 64] & bit)
            continue;
        m->bits[v / 64] |= bit;
        m->seen[m->n_seen++] = v;
    }
    m->seen_of = seen;
    m->seen_until = n;
}

/* Items seen that come before the target, and *n, how many are not the target. */
static int64_t seen_before(const struct ek_ranker *r, struct room *m, const float *h,
                           const struct ek_rank_query *q, float target, int64_t *n)
{
    float scores[GATHER];
    int64_t count = 0;
    assert(q->n_seen <= r->o.max_seen);
    see(m, q->seen, q->n_seen);
    *n = m->n_seen;
    for (int64_t i = 0; i < m->n_seen; i += GATHER) {
        const int64_t rows = m->n_seen - i < GATHER ? m->n_seen - i : GATHER;
        for (int64_t k = 0; k < rows; k++) {
            float *to = m->gather + k * r->o.dim;
            const float *e = item_of(r, m->seen[i + k], to);
            if (e != to)
                memcpy(to, e, (size_t)r->o.dim * sizeof *to);
        }
        score_rows(r, scores, m->gather, h, rows);
        for (int64_t k = 0; k < rows; k++) {
            const int32_t v = m->seen[i + k];
            *n -= v == q->target;
            count += v != q->target && r->beats(&scores[k], 1, v < q->target, target);
        }
    }
    return count;
}

/* Sets out to 1 less what the blocks will count too much; the target's score. */
static void begin(struct ek_ranker *r, struct room *m, int64_t i)
{
    const struct ek_rank_query *q = &r->queries[i];
    const float *h = r->h + i * r->ld;
    int64_t n_seen;
    assert(q->target >= 0 && q->target < r->o.n_items);
    score_rows(r, &r->targets[i], item_of(r, q->target, m->gather), h, 1);
    int64_t before = seen_before(r, m, h, q, r->targets[i], &n_seen);
    r->out[i] = (struct ek_rank){.filtered = 1 - before, .unfiltered = 1};
    if (isnan(r->targets
                  [i])) { /* every item counts, the target too: make that the last */
        r->out[i].unfiltered = 0;
        r->out[i].filtered = -n_seen;
    }
}

/* --- all items ------------------------------------------------------------------- */

static void count_block(struct ek_ranker *r, const struct room *m, int64_t lo,
                        int64_t hi, const int64_t items[2])
{
    const int64_t j = items[0], n = items[1] - j;
    struct ek_gemm g = {.M = hi - lo, .N = n, .K = r->o.dim, .a = r->h + lo * r->ld};
    g.am = r->ld;
    g.ak = 1;
    g.b = m->turned;
    g.ldb = g.ldc = ITEMS;
    g.c = m->scores;
    r->gemm->f32(&g);
    for (int64_t i = lo; i < hi; i++) {
        int64_t split = r->queries[i].target - j;
        split = split < 0 ? 0 : split > n ? n : split;
        const float *s = m->scores + (i - lo) * ITEMS;
        const int64_t before = r->beats(s, n, split, r->targets[i]);
        r->out[i].unfiltered += before;
        r->out[i].filtered += before;
    }
}

static void rank_share(void *arg, int member, int n_members)
{
    struct ek_ranker *r = arg;
    struct room *m = &r->rooms[member];
    int64_t lo, hi;
    ek_team_share(&lo, &hi, r->n, 12, member, n_members);
    if (lo >= hi)
        return;
    for (int64_t i = lo; i < hi; i++)
        begin(r, m, i);
    forget(m);
    for (int64_t j = 0; j < r->o.n_items; j += ITEMS) {
        const int64_t left = r->o.n_items - j;
        const int64_t items[2] = {j, j + (left < ITEMS ? left : ITEMS)};
        const float *rows = items_of(r, m, j, items[1] - j);
        r->gemm->pack_f32(m->turned, ITEMS, rows, 1, r->o.dim, r->o.dim, items[1] - j);
        for (int64_t i = lo; i < hi; i += QUERIES)
            count_block(r, m, i, hi - i < QUERIES ? hi : i + QUERIES, items);
    }
}

void ek_ranker_run(struct ek_ranker *r, struct ek_rank *out, const float *h, int64_t ld,
                   const struct ek_rank_query *queries, int64_t n)
{
    assert(n >= 0 && n <= r->o.max_queries);
    r->out = out;
    r->h = h;
    r->ld = ld;
    r->queries = queries;
    r->n = n;
    ek_team_run(r->o.team, rank_share, r);
}

/* --- the best k ------------------------------------------------------------------ */

/* Does a come behind b? */
static bool is_worse(float a, int32_t item_a, float b, int32_t item_b)
{
    return a < b || (a == b && item_a > item_b);
}

/* Puts (score, item) at place i of a heap of n, the worst at 0, or below it. */
static void sink(struct room *m, int64_t i, int64_t n, float score, int32_t item)
{
    for (int64_t c = 2 * i + 1; c < n; c = 2 * i + 1) {
        if (c + 1 < n && is_worse(m->top_scores[c + 1], m->top_items[c + 1],
                                  m->top_scores[c], m->top_items[c]))
            c++;
        if (!is_worse(m->top_scores[c], m->top_items[c], score, item))
            break;
        m->top_scores[i] = m->top_scores[c];
        m->top_items[i] = m->top_items[c];
        i = c;
    }
    m->top_scores[i] = score;
    m->top_items[i] = item;
}

static void enter(struct room *m, int64_t k, float score, int32_t item)
{
    if (m->n_top == k) {
        if (is_worse(m->top_scores[0], m->top_items[0], score, item))
            sink(m, 0, k, score, item);
        return;
    }
    int64_t i = m->n_top++;
    for (int64_t up = (i - 1) / 2; i > 0; i = up, up = (i - 1) / 2) {
        if (!is_worse(score, item, m->top_scores[up], m->top_items[up]))
            break;
        m->top_scores[i] = m->top_scores[up];
        m->top_items[i] = m->top_items[up];
    }
    m->top_scores[i] = score;
    m->top_items[i] = item;
}

static void top_share(void *arg, int member, int n_members)
{
    struct ek_ranker *r = arg;
    struct room *m = &r->rooms[member];
    int64_t lo, hi;
    ek_team_share(&lo, &hi, r->o.n_items, ITEMS, member, n_members);
    m->n_top = 0;
    assert(r->queries->n_seen <= r->o.max_seen);
    see(m, r->queries->seen, r->queries->n_seen);
    for (int64_t j = lo; j < hi; j += ITEMS) {
        const int64_t n = hi - j < ITEMS ? hi - j : ITEMS;
        score_rows(r, m->scores, items_of(r, m, j, n), r->h, n);
        for (int64_t v = j; v < j + n; v++) {
            const float s = m->scores[v - j];
            if (!isnan(s) && !(m->bits[v / 64] >> v % 64 & 1))
                enter(m, r->n, s, (int32_t)v);
        }
    }
    forget(m);
}

static int grow_heaps(struct ek_ranker *r, int64_t k)
{
    for (int i = 0; i < r->n_members && k > r->top_cap; i++) {
        struct room *m = &r->rooms[i];
        ek_free(m->top_items);
        ek_free(m->top_scores);
        m->top_items = ek_alloc_array((size_t)k, sizeof *m->top_items);
        m->top_scores = floats(k, 1);
        if (!m->top_items || !m->top_scores) {
            r->top_cap = 0;
            return EK_ENOMEM;
        }
    }
    r->top_cap = k > r->top_cap ? k : r->top_cap;
    return 0;
}

int64_t ek_ranker_top(struct ek_ranker *r, int32_t *items, float *scores, int64_t k,
                      const float *h, const int32_t *seen, int64_t n_seen)
{
    const struct ek_rank_query q = {.seen = seen, .n_seen = n_seen};
    assert(k >= 0);
    k = k < r->o.n_items ? k : r->o.n_items;
    if (k == 0)
        return 0;
    if (grow_heaps(r, k))
        return EK_ENOMEM;
    r->h = h;
    r->queries = &q;
    r->n = k;
    ek_team_run(r->o.team, top_share, r);
    struct room *best = &r->rooms[0];
    for (int i = 1; i < r->n_members; i++)
        for (int64_t t = 0; t < r->rooms[i].n_top; t++)
            enter(best, k, r->rooms[i].top_scores[t], r->rooms[i].top_items[t]);
    int64_t n = best->n_top;
    for (int64_t i = n; i-- > 0;) { /* the worst goes last */
        scores[i] = best->top_scores[0];
        items[i] = best->top_items[0];
        sink(best, 0, i, best->top_scores[i], best->top_items[i]);
    }
    return n;
}
