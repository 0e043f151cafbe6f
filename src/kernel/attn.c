/* attn.c - items, scratch, and the course of attention (see attn_int.h). */
#include "kernel/attn.h"

#include "kernel/attn_int.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t tiles_of(const struct ek_attn_seq *seq)
{
    return (seq->n_tokens + EK_ATTN_TILE - 1) / EK_ATTN_TILE;
}

static int64_t spans_of(const struct ek_attn_seq *seq)
{
    return ((int64_t)seq->pos0 + seq->n_tokens + EK_ATTN_SPAN - 1) / EK_ATTN_SPAN;
}

/* How far the batch is cut: see ek_attn_cut. */
enum cut { CUT_LEAST, CUT_SPANS, CUT_HEADS };

/* A block of all kv heads of a sequence may take so much of a core's cache, in bytes:
 * the one after it is prefetched meanwhile. */
#define WIDE_MAX (128 << 10)

static bool is_wide(const struct ek_attn_seq *seq, const struct ek_attn_dims *d)
{
    int64_t value = (int64_t)ek_dtype_block_bytes(d->kv_dtype);
    return seq->n_tokens == 1 &&
           2 * EK_ATTN_BLOCK * (int64_t)d->K * d->D * value <= WIDE_MAX;
}

static int64_t cut_as(struct ek_attn_seq *seqs, int64_t n_seqs,
                      const struct ek_attn_dims *d, enum cut cut, int64_t n_part_rows)
{
    int64_t n = 0, rows = 0;
    for (int64_t i = 0; i < n_seqs; i++) {
        struct ek_attn_seq *seq = &seqs[i];
        int64_t spans = spans_of(seq), need = spans * seq->n_tokens * d->H;
        bool is_split = cut >= CUT_SPANS && tiles_of(seq) == 1 && spans > 1 &&
                        need <= n_part_rows - rows;
        seq->n_heads = cut < CUT_HEADS && is_wide(seq, d) ? d->K : 1;
        seq->item0 = n;
        seq->part0 = is_split ? rows : -1;
        rows += is_split ? need : 0;
        n += (is_split ? spans : tiles_of(seq)) * (d->K / seq->n_heads);
    }
    return n;
}

int64_t ek_attn_cut(struct ek_attn_seq *seqs, int64_t n_seqs,
                    const struct ek_attn_dims *d, int64_t want, int64_t n_part_rows)
{
    int64_t n = cut_as(seqs, n_seqs, d, CUT_LEAST, n_part_rows);
    for (int cut = CUT_SPANS; cut <= CUT_HEADS && n < want; cut++)
        n = cut_as(seqs, n_seqs, d, (enum cut)cut, n_part_rows);
    return n;
}

static int64_t padded(const struct ek_attn_dims *d)
{
    return round_up(d->D, EK_ATTN_COLS);
}

/* Floats of a row of sums. */
static int64_t part_floats(int64_t Dp)
{
    return EK_ATTN_HEAD + Dp;
}

size_t ek_attn_part_bytes(const struct ek_attn_dims *d)
{
    return (size_t)part_floats(padded(d)) * sizeof(float);
}

/* The buffers of b and the sums from base (NULL: only measured); floats in all. */
static int64_t lay_out(struct ek_attn_block *b, float **sum,
                       const struct ek_attn_dims *d, float *base)
{
    int64_t Dp = padded(d), at = 0;
    int64_t R = max64(EK_ATTN_TILE * (d->H / d->K), d->H), Rp = round_up(R, 16);
    const struct {
        float **part;
        int64_t n;
    } list[] = {{&b->q, R * EK_ATTN_Q * Dp},
                {&b->acc, R * Dp},
                {sum, R * part_floats(Dp)},
                {&b->p, R * EK_ATTN_BLOCK},
                {&b->x, EK_ATTN_BLOCK * Dp},
                {&b->l, R * EK_ATTN_LANES},
                {&b->m, Rp},
                {&b->old, Rp}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        *list[i].part = base ? base + at : NULL;
        at += list[i].n;
    }
    return at;
}

size_t ek_attn_scratch_bytes(const struct ek_attn_dims *d)
{
    struct ek_attn_block b;
    float *sum;
    return (size_t)lay_out(&b, &sum, d, NULL) * sizeof(float);
}

/* One item: queries [q0, q0+n) of a sequence, kv heads [kv0, kv0+n_heads), spans
 * [span0,span1). Its rows lie kv head by kv head: row i*g + h of those of a kv head is
 * query i, head h of its g. */
struct item {
    const struct ek_attn_args *a;
    const struct ek_attn_steps *steps;
    const struct ek_attn_seq *seq;
    int64_t q0, n, kv0, n_heads, span0, span1;
    int64_t begin, end; /* positions: of the first block, behind the last token */
    int64_t g, rows;    /* query heads of a kv head; rows of one: n * g */
};

/* The last sequence whose items begin at or before item i; one without items shares
 * its begin with the next. */
static const struct ek_attn_seq *seq_of(const struct ek_attn_args *a, int64_t i)
{
    int64_t lo = 0, hi = a->n_seqs;
    while (hi - lo > 1) {
        int64_t mid = (lo + hi) / 2;
        if (a->seqs[mid].item0 <= i)
            lo = mid;
        else
            hi = mid;
    }
    return a->seqs + lo;
}

/* Tokens [j0,j1) that a row sees of the n from position base; none when j0 >= j1. */
struct reach {
    int64_t j0, j1;
};

static struct reach reach_of_row(const struct item *it, int64_t r, int64_t base,
                                 int64_t n)
{
    int64_t pos = it->seq->pos0 + it->q0 + r / it->g, window = it->a->d->window;
    int64_t first = window > 0 ? pos - window + 1 : 0;
    return (struct reach){max64(first - base, 0), min64(pos + 1 - base, n)};
}

/* What any row of the item sees: the first rows see the first tokens, the last rows the
 * last. */
static struct reach reach_of(const struct item *it, int64_t base, int64_t n)
{
    return (struct reach){reach_of_row(it, 0, base, n).j0,
                          reach_of_row(it, it->rows - 1, base, n).j1};
}

/* What the item has to take: one span when it is split, else all that it sees. */
static void set_bounds(struct item *it, bool is_split)
{
    int64_t base = is_split ? it->span0 * EK_ATTN_SPAN : 0;
    struct reach see = reach_of(it, base, is_split ? EK_ATTN_SPAN : INT64_MAX);
    it->end = base + see.j1;
    it->begin = min64(base + see.j0 / EK_ATTN_BLOCK * EK_ATTN_BLOCK, it->end);
    if (is_split && see.j0 >= see.j1)
        it->begin = it->end;
    if (is_split)
        return;
    it->span0 = see.j0 / EK_ATTN_SPAN;
    it->span1 = (see.j1 + EK_ATTN_SPAN - 1) / EK_ATTN_SPAN;
}

static struct item item_of(const struct ek_attn_args *a, int64_t i,
                           const struct ek_attn_steps *steps)
{
    const struct ek_attn_seq *seq = seq_of(a, i);
    int64_t K = a->d->K, units = K / seq->n_heads, at = (i - seq->item0) / units;
    struct item it = {.a = a, .steps = steps, .seq = seq, .g = a->d->H / K};
    it.n_heads = seq->n_heads;
    it.kv0 = (i - seq->item0) % units;
    if (seq->part0 >= 0) {
        it.span0 = at;
        it.span1 = at + 1;
    } else {
        it.q0 = at * EK_ATTN_TILE;
    }
    it.n = min64(seq->n_tokens - it.q0, EK_ATTN_TILE);
    it.rows = it.n * it.g;
    set_bounds(&it, seq->part0 >= 0);
    return it;
}

/* A block of an item: where its strips lie in the pools, at its first kv head. */
struct strips {
    int64_t at[EK_ATTN_STRIPS]; /* bytes */
    int64_t head;               /* bytes from one kv head to the next */
    int first, n;               /* strips that the item sees; n may be 0 */
};

static struct strips strips_of(const struct item *it, int64_t base, struct reach see)
{
    const struct ek_attn_dims *d = it->a->d;
    int64_t P = d->page_tokens;
    int64_t token = d->D * (int64_t)ek_dtype_block_bytes(d->kv_dtype);
    struct strips strips = {.head = P * token};
    if (see.j0 >= see.j1)
        return strips;
    strips.first = (int)(see.j0 / EK_ATTN_STRIP);
    strips.n = (int)((see.j1 + EK_ATTN_STRIP - 1) / EK_ATTN_STRIP) - strips.first;
    for (int s = strips.first; s < strips.first + strips.n; s++) {
        int64_t pos = base + s * EK_ATTN_STRIP;
        int64_t cell = (int64_t)it->seq->pages[pos / P] * d->K + it->kv0;
        strips.at[s] = (cell * P + pos % P) * token;
    }
    return strips;
}

/* Calls step for the item's rows over the block from position base, neighbours that
 * see the same tokens together. */
static void
visit_rows(const struct item *it, const struct ek_attn_block *b, int64_t base,
           void (*step)(const struct ek_attn_block *, const struct ek_attn_rows *))
{
    for (int64_t r = 0, end; r < it->rows; r = end) {
        struct reach see = reach_of_row(it, r, base, EK_ATTN_BLOCK), other = see;
        for (end = r; end < it->rows && end - r < EK_ATTN_GROUP && other.j0 == see.j0 &&
                      other.j1 == see.j1;)
            other = reach_of_row(it, ++end, base, EK_ATTN_BLOCK);
        const struct ek_attn_rows g = {r, see.j0, see.j1, (int)(end - r)};
        if (see.j0 < see.j1)
            step(b, &g);
    }
}

/* The block from position base. */
static void run_block(const struct item *it, struct ek_attn_block *b, int64_t base)
{
    const struct ek_attn_steps *steps = it->steps;
    if (steps->score_once && it->n == 1 && it->g <= EK_ATTN_GROUP) {
        const struct ek_attn_rows g = {0, b->j0, b->j1, (int)it->g};
        steps->score_once(b, &g);
        steps->value_once(b, &g);
    } else {
        steps->keys(b);
        visit_rows(it, b, base, steps->score);
        steps->values(b);
        visit_rows(it, b, base, steps->value);
    }
}

/* A place in the blocks of the items i, i + step, ... below i1. */
struct place {
    struct item it;
    int64_t i, i1, step;
    int64_t at; /* position of the block; behind the last block when it is over */
};

static void go_on(struct place *p)
{
    p->at += EK_ATTN_BLOCK;
    while (p->at >= p->it.end && p->i + p->step < p->i1) {
        p->i += p->step;
        p->it = item_of(p->it.a, p->i, p->it.steps);
        p->at = p->it.begin;
    }
}

/* What is to be prefetched during kv head h of a block, of the block `next` with all
 * its n_heads: a page from end to end, then the next page. */
static void find_next(const struct item *it, struct ek_attn_block *b,
                      const struct strips *next, int64_t n_heads, int64_t h)
{
    for (int s = 0; next->n > 0 && s < EK_ATTN_STRIPS; s++) {
        int64_t i = (h * EK_ATTN_STRIPS + s) % (next->n * n_heads);
        int64_t at = next->at[next->first + i / n_heads] + i % n_heads * next->head;
        b->next_k[s] = (const unsigned char *)it->a->k_pool + at;
        b->next_v[s] = (const unsigned char *)it->a->v_pool + at;
    }
}

/* b of kv head h of the item: its rows, keys and values. */
static struct ek_attn_block head_of(const struct item *it,
                                    const struct ek_attn_block *b,
                                    const struct strips *strips, int64_t h)
{
    const struct ek_attn_dims *d = it->a->d;
    int64_t r = h * it->rows;
    struct ek_attn_block head = *b;
    head.scale = d->scale * (d->k_scale ? d->k_scale[it->kv0 + h] : 1.0f);
    head.q += r * EK_ATTN_Q * b->Dp;
    head.acc += r * b->Dp;
    head.p += r * EK_ATTN_BLOCK;
    head.l += r * EK_ATTN_LANES;
    head.m += r;
    head.old += r;
    for (int s = strips->first; s < strips->first + strips->n; s++) {
        int64_t at = strips->at[s] + h * strips->head;
        head.k[s] = (const unsigned char *)it->a->k_pool + at;
        head.v[s] = (const unsigned char *)it->a->v_pool + at;
    }
    return head;
}

/* All kv heads of the block at position `at`; meanwhile the block at `ahead`, which
 * moves on, is prefetched. */
static void run_heads(const struct item *it, struct place *ahead,
                      const struct ek_attn_block *b, int64_t at)
{
    struct reach see = reach_of(it, at, EK_ATTN_BLOCK);
    struct strips strips = strips_of(it, at, see), next = strips;
    int64_t n_next = it->n_heads;
    if (ahead->at < ahead->it.end) {
        next = strips_of(&ahead->it, ahead->at,
                         reach_of(&ahead->it, ahead->at, EK_ATTN_BLOCK));
        n_next = ahead->it.n_heads;
        go_on(ahead);
    }
    for (int64_t h = 0; h < it->n_heads; h++) {
        struct ek_attn_block head = head_of(it, b, &strips, h);
        head.j0 = see.j0;
        head.j1 = see.j1;
        find_next(it, &head, &next, n_next, h);
        run_block(it, &head, at);
    }
}

/* The sums of one span of all rows. */
static void run_span(const struct item *it, struct place *ahead,
                     struct ek_attn_block *b, int64_t span)
{
    const int64_t base = span * EK_ATTN_SPAN, rows = it->rows * it->n_heads;
    const int64_t end = min64(base + EK_ATTN_SPAN, it->end);
    memset(b->acc, 0, (size_t)(rows * b->Dp) * sizeof(float));
    memset(b->l, 0, (size_t)(rows * EK_ATTN_LANES) * sizeof(float));
    for (int64_t r = 0; r < rows; r++)
        b->m[r] = -INFINITY;
    for (int64_t at = max64(base, it->begin); at < end; at += EK_ATTN_BLOCK)
        run_heads(it, ahead, b, at);
}

/* Of a row of the item: its query, counted in the sequence, and its head. */
static int64_t query_of(const struct item *it, int64_t r)
{
    return it->q0 + r % it->rows / it->g;
}

static int64_t head_number(const struct item *it, int64_t r)
{
    return (it->kv0 + r / it->rows) * it->g + r % it->g;
}

/* Whether a row saw nothing: l of any key is more than 0, or NaN. */
static bool is_empty(float m, float l)
{
    return l == 0 && m == -INFINITY;
}

/* Row of sums = it joined with the next span's. */
static void join_sum(float *sum, const float *acc, float m, float l, int64_t Dp,
                     const struct ek_attn_steps *steps)
{
    if (is_empty(m, l))
        return;
    if (!is_empty(sum[0], sum[1])) {
        steps->merge(sum, acc, m, l, Dp);
        return;
    }
    sum[0] = m;
    sum[1] = l;
    memcpy(sum + EK_ATTN_HEAD, acc, (size_t)Dp * sizeof *acc);
}

static void finish_row(const struct ek_attn_args *a, int64_t row, int64_t head,
                       const float *acc, float l, const struct ek_attn_steps *steps)
{
    const struct ek_attn_dims *d = a->d;
    float v_scale = d->v_scale ? d->v_scale[head / (d->H / d->K)] : 1.0f;
    steps->finish(a->out + row * a->ldo + head * d->D, acc, d->D, d->kv_dtype,
                  v_scale / l);
}

/* Where a split sequence keeps the sums of query t (of its own), head and span 0; and
 * how far the next span's are. */
static float *part_of(const struct ek_attn_args *a, const struct ek_attn_seq *seq,
                      int64_t t, int64_t head, int64_t *stride)
{
    int64_t n = part_floats(padded(a->d)), H = a->d->H;
    *stride = seq->n_tokens * H * n;
    return a->parts + (seq->part0 + t * H + head) * n;
}

/* A span's sums to the parts, empty ones too. */
static void keep_parts(const struct item *it, const struct ek_attn_block *b)
{
    for (int64_t r = 0; r < it->rows * it->n_heads; r++) {
        int64_t stride;
        float *part =
            part_of(it->a, it->seq, query_of(it, r), head_number(it, r), &stride);
        part += it->span0 * stride;
        part[0] = b->m[r];
        part[1] = it->steps->total(b->l + r * EK_ATTN_LANES);
        if (!is_empty(part[0], part[1]))
            memcpy(part + EK_ATTN_HEAD, b->acc + r * b->Dp,
                   (size_t)b->Dp * sizeof *part);
    }
}

static void run_all_spans(const struct item *it, struct place *ahead,
                          struct ek_attn_block *b, float *sum)
{
    const int64_t n = part_floats(b->Dp), rows = it->rows * it->n_heads;
    const bool is_one = it->span1 - it->span0 == 1;
    for (int64_t r = 0; r < rows; r++) {
        sum[r * n] = -INFINITY;
        sum[r * n + 1] = 0;
    }
    for (int64_t span = it->span0; span < it->span1; span++) {
        run_span(it, ahead, b, span);
        for (int64_t r = 0; !is_one && r < rows; r++)
            join_sum(sum + r * n, b->acc + r * b->Dp, b->m[r],
                     it->steps->total(b->l + r * EK_ATTN_LANES), b->Dp, it->steps);
    }
    for (int64_t r = 0; r < rows; r++) {
        const float *acc = is_one ? b->acc + r * b->Dp : sum + r * n + EK_ATTN_HEAD;
        float l = is_one ? it->steps->total(b->l + r * EK_ATTN_LANES) : sum[r * n + 1];
        finish_row(it->a, it->seq->row0 + query_of(it, r), head_number(it, r), acc, l,
                   it->steps);
    }
}

static void run_item(const struct item *it, struct place *ahead,
                     struct ek_attn_block *b, float *sum)
{
    const struct ek_attn_args *a = it->a;
    for (int64_t r = 0; r < it->rows * it->n_heads; r++)
        it->steps->query(b, r,
                         a->q + (it->seq->row0 + query_of(it, r)) * a->ldq +
                             head_number(it, r) * a->d->D);
    if (it->seq->part0 < 0) {
        run_all_spans(it, ahead, b, sum);
    } else {
        run_span(it, ahead, b, it->span0);
        keep_parts(it, b);
    }
}

void ek_attn_run(const struct ek_attn_args *a, int64_t i0, int64_t i1, int64_t step,
                 void *scratch, const struct ek_attn_steps *steps)
{
    const struct ek_attn_dims *d = a->d;
    struct ek_attn_block b = {
        .t = d->kv_dtype, .D = d->D, .Dp = padded(d), .softcap = d->softcap};
    float *sum;
    assert(d->page_tokens % EK_ATTN_STRIP == 0);
    lay_out(&b, &sum, d, scratch);
    if (i0 >= i1)
        return;
    struct place ahead = {.it = item_of(a, i0, steps), .i = i0, .i1 = i1, .step = step};
    ahead.at = ahead.it.begin;
    go_on(&ahead); /* the first block is not prefetched */
    for (int64_t i = i0; i < i1; i += step) {
        struct item it = item_of(a, i, steps);
        run_item(&it, &ahead, &b, sum);
    }
}

/* The sums of all spans of one query, head by head in `sum`. */
static void join_row(const struct ek_attn_args *a, const struct ek_attn_seq *seq,
                     int64_t t, float *sum, const struct ek_attn_steps *steps)
{
    const int64_t Dp = padded(a->d);
    for (int64_t head = 0; head < a->d->H; head++) {
        int64_t stride;
        const float *part = part_of(a, seq, t, head, &stride);
        sum[0] = -INFINITY;
        sum[1] = 0;
        for (int64_t span = 0; span < spans_of(seq); span++, part += stride)
            join_sum(sum, part + EK_ATTN_HEAD, part[0], part[1], Dp, steps);
        finish_row(a, seq->row0 + t, head, sum + EK_ATTN_HEAD, sum[1], steps);
    }
}

void ek_attn_join(const struct ek_attn_args *a, int64_t t0, int64_t t1, void *scratch,
                  const struct ek_attn_steps *steps)
{
    for (int64_t i = 0; i < a->n_seqs; i++) {
        const struct ek_attn_seq *seq = &a->seqs[i];
        int64_t lo = max64(t0 - seq->row0, 0);
        int64_t hi = min64(t1 - seq->row0, seq->n_tokens);
        for (int64_t t = lo; seq->part0 >= 0 && t < hi; t++)
            join_row(a, seq, t, scratch, steps);
    }
}
