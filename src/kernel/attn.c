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

int64_t ek_attn_cut(struct ek_attn_seq *seqs, int64_t n_seqs,
                    const struct ek_attn_dims *d, int64_t want, int64_t n_part_rows)
{
    int64_t n = 0, rows = 0;
    for (int64_t i = 0; i < n_seqs; i++)
        n += tiles_of(&seqs[i]) * d->K;
    bool splits = n < want;
    n = 0;
    for (int64_t i = 0; i < n_seqs; i++) {
        struct ek_attn_seq *seq = &seqs[i];
        int64_t spans = spans_of(seq), need = spans * seq->n_tokens * d->H;
        bool is_split =
            splits && tiles_of(seq) == 1 && spans > 1 && need <= n_part_rows - rows;
        seq->item0 = n;
        seq->part0 = is_split ? rows : -1;
        rows += is_split ? need : 0;
        n += (is_split ? spans : tiles_of(seq)) * d->K;
    }
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
    int64_t R = EK_ATTN_TILE * (d->H / d->K), Rp = round_up(R, 16);
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

/* One item: queries [q0, q0+n) of a sequence, one kv head, spans [span0,span1). */
struct item {
    const struct ek_attn_args *a;
    const struct ek_attn_steps *steps;
    const struct ek_attn_seq *seq;
    int64_t q0, n, kv_head, span0, span1;
    int64_t g, rows; /* heads of the kv head; n * g: row i*g + h is query i, head h */
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

/* The spans that a whole item has to take. */
static void set_spans(struct item *it)
{
    struct reach see = reach_of(it, 0, INT64_MAX);
    it->span0 = see.j0 / EK_ATTN_SPAN;
    it->span1 = (see.j1 + EK_ATTN_SPAN - 1) / EK_ATTN_SPAN;
}

static struct item item_of(const struct ek_attn_args *a, int64_t i,
                           const struct ek_attn_steps *steps)
{
    const struct ek_attn_seq *seq = seq_of(a, i);
    int64_t K = a->d->K, at = (i - seq->item0) / K;
    struct item it = {.a = a, .steps = steps, .seq = seq, .g = a->d->H / K};
    it.kv_head = (i - seq->item0) % K;
    if (seq->part0 >= 0) {
        it.span0 = at;
        it.span1 = at + 1;
    } else {
        it.q0 = at * EK_ATTN_TILE;
    }
    it.n = min64(seq->n_tokens - it.q0, EK_ATTN_TILE);
    it.rows = it.n * it.g;
    if (seq->part0 < 0)
        set_spans(&it);
    return it;
}

/* Where the strips of the block from position base lie that [j0,j1) touches. */
static void find_strips(const struct item *it, int64_t base, struct reach see,
                        const unsigned char *k[EK_ATTN_STRIPS],
                        const unsigned char *v[EK_ATTN_STRIPS])
{
    const struct ek_attn_args *a = it->a;
    const struct ek_attn_dims *d = a->d;
    int64_t P = d->page_tokens;
    int64_t token = d->D * (int64_t)ek_dtype_block_bytes(d->kv_dtype);
    for (int64_t s = see.j0 / EK_ATTN_STRIP; s * EK_ATTN_STRIP < see.j1; s++) {
        int64_t pos = base + s * EK_ATTN_STRIP;
        int64_t cell = (int64_t)it->seq->pages[pos / P] * d->K + it->kv_head;
        int64_t at = (cell * P + pos % P) * token;
        k[s] = (const unsigned char *)a->k_pool + at;
        v[s] = (const unsigned char *)a->v_pool + at;
    }
}

/* Calls step for the item's rows over the block from position base, neighbours that see
 * the same tokens together. */
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

/* Position of the first block of a span that any row of the item sees. */
static int64_t first_block(const struct item *it, int64_t span)
{
    int64_t base = span * EK_ATTN_SPAN;
    return base + reach_of(it, base, EK_ATTN_SPAN).j0 / EK_ATTN_BLOCK * EK_ATTN_BLOCK;
}

/* The strips to prefetch during the block before position at: those of the block from
 * there, of the next item behind the last one; the same again where there are none. */
static void find_next(const struct item *it, const struct item *next, int64_t at,
                      struct ek_attn_block *b)
{
    if (at >= it->span1 * EK_ATTN_SPAN || at >= reach_of(it, 0, INT64_MAX).j1) {
        if (!next)
            return;
        it = next;
        at = first_block(it, it->span0);
    }
    struct reach see = reach_of(it, at, EK_ATTN_BLOCK);
    if (see.j0 < see.j1)
        find_strips(it, at, see, b->next_k, b->next_v);
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

/* The sums of one span of all rows. */
static void run_span(const struct item *it, const struct item *next,
                     struct ek_attn_block *b, int64_t span)
{
    const int64_t base = span * EK_ATTN_SPAN;
    memset(b->acc, 0, (size_t)(it->rows * b->Dp) * sizeof(float));
    for (int64_t r = 0; r < it->rows; r++) {
        b->m[r] = -INFINITY;
        memset(b->l + r * EK_ATTN_LANES, 0, EK_ATTN_LANES * sizeof(float));
    }
    struct reach all = reach_of(it, base, EK_ATTN_SPAN);
    if (all.j0 >= all.j1)
        return;
    const int64_t end = base + all.j1;
    find_next(it, NULL, first_block(it, span), b);
    for (int64_t at = first_block(it, span); at < end; at += EK_ATTN_BLOCK) {
        struct reach see = reach_of(it, at, EK_ATTN_BLOCK);
        memcpy(b->k, b->next_k, sizeof b->k);
        memcpy(b->v, b->next_v, sizeof b->v);
        b->j0 = see.j0;
        b->j1 = see.j1;
        find_next(it, next, at + EK_ATTN_BLOCK, b);
        run_block(it, b, at);
    }
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
    for (int64_t r = 0; r < it->rows; r++) {
        int64_t stride;
        float *part = part_of(it->a, it->seq, r / it->g,
                              it->kv_head * it->g + r % it->g, &stride);
        part += it->span0 * stride;
        part[0] = b->m[r];
        part[1] = it->steps->total(b->l + r * EK_ATTN_LANES);
        if (!is_empty(part[0], part[1]))
            memcpy(part + EK_ATTN_HEAD, b->acc + r * b->Dp,
                   (size_t)b->Dp * sizeof *part);
    }
}

static void run_all_spans(const struct item *it, const struct item *next,
                          struct ek_attn_block *b, float *sum)
{
    const int64_t n = part_floats(b->Dp);
    const bool is_one = it->span1 - it->span0 == 1;
    for (int64_t r = 0; r < it->rows; r++) {
        sum[r * n] = -INFINITY;
        sum[r * n + 1] = 0;
    }
    for (int64_t span = it->span0; span < it->span1; span++) {
        run_span(it, next, b, span);
        for (int64_t r = 0; !is_one && r < it->rows; r++)
            join_sum(sum + r * n, b->acc + r * b->Dp, b->m[r],
                     it->steps->total(b->l + r * EK_ATTN_LANES), b->Dp, it->steps);
    }
    for (int64_t r = 0; r < it->rows; r++) {
        const float *acc = is_one ? b->acc + r * b->Dp : sum + r * n + EK_ATTN_HEAD;
        finish_row(it->a, it->seq->row0 + it->q0 + r / it->g,
                   it->kv_head * it->g + r % it->g, acc,
                   is_one ? it->steps->total(b->l + r * EK_ATTN_LANES) : sum[r * n + 1],
                   it->steps);
    }
}

static void run_item(const struct item *it, const struct item *next,
                     struct ek_attn_block *b, float *sum)
{
    const struct ek_attn_args *a = it->a;
    const struct ek_attn_dims *d = a->d;
    b->scale = d->scale * (d->k_scale ? d->k_scale[it->kv_head] : 1.0f);
    for (int64_t r = 0; r < it->rows; r++)
        it->steps->query(b, r,
                         a->q + (it->seq->row0 + it->q0 + r / it->g) * a->ldq +
                             (it->kv_head * it->g + r % it->g) * d->D);
    if (it->seq->part0 < 0) {
        run_all_spans(it, next, b, sum);
    } else {
        run_span(it, next, b, it->span0);
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
    struct item it = item_of(a, i0, steps), next = it;
    for (int64_t i = i0; i < i1; i += step) {
        bool has_next = i + step < i1;
        it = next;
        if (has_next)
            next = item_of(a, i + step, steps);
        run_item(&it, has_next ? &next : NULL, &b, sum);
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
