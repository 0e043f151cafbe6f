/* jagged.c - the masks of jagged attention, its tiles, and the sums of its stage. */
#include "kernel/jagged.h"

#include "kernel/jagged_int.h"

#include <assert.h>

/* clang-format off */
const int64_t ek_jagged_bucket_start[EK_JAGGED_BUCKETS - 1] = {
    2, 2, 3, 4, 5, 7, 9, 12, 16, 21, 28, 38, 51, 68, 92, 124, 167, 226, 305, 412, 557,
    752, 1016, 1372, 1854, 2505, 3385, 4574, 6180, 8350, 11283, 15245, 20600, 27834,
    37610, 50818, 68666, 92782, 125367, 169397, 228891, 309280, 417902, 564672, 762990,
    1030960, 1393042, 1882291, 2543369, 3436624, 4643598, 6274473, 8478127, 11455724,
    15479081, 20915478, 28261189, 38186783, 51598337, 69720155, 94206525, 127292737,
    171999135, 232406837, 314030289, 424320660, 573346040, 774710524, 1046796097,
    1414440665, 1911205440, 2582438644, 3489415219, 4714930440, 6370858056, 8608362918,
    11631700390, 15716862225, 21236771058, 28695323438, 38773389087, 52390965538,
    70791162047, 95653679456, 129248145233, 174641301215, 235976957620, 318854269524,
    430838867570, 582153502558, 786611250865, 1062876470327, 1436168615607,
    1940564449431, 2622108811928, 3543017921206, 4787358912370, 6468724083690,
    8740600409714, 11810380924256, 15958297031977, 21563000024645, 29136127064885,
    39369007066311, 53195770115076, 71878621509799, 97123064840915, 131233592491847,
    177324056098577, 239601921079808, 323752354013490, 437457205087951, 591096262037950,
    798694791013881, 1079203862655709, 1458230340644303, 1970374458392745,
    2662388374508185, 3597444042437672, 4860899995802064, 6568093482609850,
    8874869269797386, 11991806262278896, 16203440643505319, 21894240362561142,
    29583702103771285, 39973774639893605, 54012937709959665,
};
/* clang-format on */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int ek_jagged_bucket(int64_t difference)
{
    int lo = 0, hi = EK_JAGGED_BUCKETS - 1;
    uint64_t x = difference < 0 ? 0 - (uint64_t)difference : (uint64_t)difference;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (x < (uint64_t)ek_jagged_bucket_start[mid])
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

/* HSTU's: `end` is the end of history. To the window, positions count from the last of
 * the context, and a target stands at `end`. */
static struct ek_jagged_span span_of_context(const struct ek_jagged_mask *m,
                                             int64_t end, int64_t i)
{
    const bool is_target = i >= end;
    const int64_t at = is_target ? end : i;
    struct ek_jagged_span s = {0, (int32_t)(is_target ? end : i + 1), -1};
    if (i < m->n_context && !is_target) {
        s.hi = (int32_t)end;
        return s;
    }
    if (is_target)
        s.self = (int32_t)i;
    const bool is_full = m->n_full > 0 && at >= end - m->n_full;
    const int64_t context = most(m->n_context - 1, 0); /* where it counts as standing */
    if (m->window > 0 && !is_full && at - m->window > context)
        s.lo = (int32_t)(at - m->window);
    return s;
}

struct ek_jagged_span ek_jagged_span_of(const struct ek_jagged_mask *m, int64_t b,
                                        int64_t Lq, int64_t Lk, int64_t i)
{
    const int64_t n_targets = m->n_targets ? m->n_targets[b] : 0;
    if (m->is_causal && (m->n_context > 0 || n_targets > 0 || m->n_full > 0))
        return span_of_context(m, Lk - n_targets, i);
    int64_t at = m->is_causal ? i + Lk - Lq : i, lo = 0, hi = Lk;
    if (m->is_causal)
        hi = at + 1;
    if (m->window > 0) {
        lo = most(lo, at - m->window);
        hi = least(hi, at + m->window + 1);
    }
    if (m->block > 0) {
        lo = most(lo, i / m->block * m->block);
        hi = least(hi, (i / m->block + 1) * m->block);
    }
    lo = least(lo, Lk);
    hi = most(lo, least(hi, Lk));
    return (struct ek_jagged_span){(int32_t)lo, (int32_t)hi, -1};
}

int64_t ek_jagged_part_keys(const struct ek_jagged_dims *d,
                            const struct ek_jagged_seq *s)
{
    int64_t n = (s->Lk + EK_JAGGED_KEYS - 1) / EK_JAGGED_KEYS;
    if (d->mask.block > 0 && ek_jagged_is_direct(d, s))
        return EK_JAGGED_KEYS;
    return most(1, (n + EK_JAGGED_PARTS - 1) / EK_JAGGED_PARTS) * EK_JAGGED_KEYS;
}

bool ek_jagged_is_direct(const struct ek_jagged_dims *d, const struct ek_jagged_seq *s)
{
    if (d->is_broadcast_q)
        return false;
    return s->Lk <= EK_JAGGED_KEYS ||
           (d->mask.block > 0 && EK_JAGGED_KEYS % d->mask.block == 0);
}

void ek_jagged_tile_queries(int64_t *i0, int64_t *i1, const struct ek_jagged_dims *d,
                            const struct ek_jagged_seq *s,
                            const struct ek_jagged_tile *t)
{
    *i0 = 0;
    *i1 = s->Lq;
    if (d->mask.block > 0 && ek_jagged_is_direct(d, s)) {
        *i0 = least(t->lo, s->Lq);
        *i1 = t->hi == s->Lk ? s->Lq : least(t->hi, s->Lq);
    }
}

/* --- tiles --- */

static bool is_before(const struct ek_jagged_tile *a, const struct ek_jagged_tile *b)
{
    if (a->work != b->work)
        return a->work > b->work;
    if (a->b != b->b)
        return a->b < b->b;
    return a->h != b->h ? a->h < b->h : a->lo < b->lo;
}

static void sink(struct ek_jagged_tile *t, int64_t i, int64_t n)
{
    const struct ek_jagged_tile x = t[i];
    for (int64_t c = 2 * i + 1; c < n; c = 2 * i + 1) {
        if (c + 1 < n && is_before(&t[c], &t[c + 1]))
            c++;
        if (!is_before(&x, &t[c]))
            break;
        t[i] = t[c];
        i = c;
    }
    t[i] = x;
}

/* Heavy first, ties in order of sequence, head and place: a heap sort, for the order
 * must be the same everywhere and nothing may be allocated. */
static void sort(struct ek_jagged_tile *t, int64_t n)
{
    for (int64_t i = n / 2 - 1; i >= 0; i--)
        sink(t, i, n);
    for (int64_t end = n - 1; end > 0; end--) {
        struct ek_jagged_tile last = t[end];
        t[end] = t[0];
        t[0] = last;
        sink(t, 0, end);
    }
}

/* Pairs of queries [i0,i1) with keys [j0,j1). */
static int64_t pairs_of(const struct ek_jagged_dims *d, const struct ek_jagged_seq *s,
                        int64_t b, const int64_t i[2], const int64_t j[2])
{
    int64_t n = 0;
    for (int64_t r = i[0]; r < i[1]; r++) {
        struct ek_jagged_span x = ek_jagged_span_of(&d->mask, b, s->Lq, s->Lk, r);
        n += most(0, least(x.hi, j[1]) - most(x.lo, j[0]));
        n += x.self >= j[0] && x.self < j[1];
    }
    return n;
}

static void add_forward(struct ek_jagged_plan *p, const struct ek_jagged_dims *d,
                        const struct ek_jagged_seq *s, int64_t b)
{
    for (int64_t lo = 0; lo < s->Lq; lo += EK_JAGGED_QUERIES) {
        int64_t hi = least(lo + EK_JAGGED_QUERIES, s->Lq);
        int64_t work = pairs_of(d, s, b, (int64_t[2]){lo, hi}, (int64_t[2]){0, s->Lk});
        p->n_pairs += work * d->H;
        for (int32_t h = 0; h < d->H; h++)
            p->fwd[p->n_fwd++] = (struct ek_jagged_tile){
                .b = (int32_t)b,
                .h = h,
                .lo = (int32_t)lo,
                .hi = (int32_t)hi,
                .work = work,
            };
    }
}

static void add_backward(struct ek_jagged_plan *p, const struct ek_jagged_dims *d,
                         const struct ek_jagged_seq *s, int64_t b)
{
    const int64_t step = ek_jagged_part_keys(d, s);
    int32_t part = 0;
    for (int64_t lo = 0; lo == 0 || lo < s->Lk; lo += step, part++) {
        struct ek_jagged_tile t = {.b = (int32_t)b,
                                   .lo = (int32_t)lo,
                                   .hi = (int32_t)least(lo + step, s->Lk),
                                   .part = part};
        int64_t i[2];
        ek_jagged_tile_queries(&i[0], &i[1], d, s, &t);
        t.work = pairs_of(d, s, b, i, (int64_t[2]){t.lo, t.hi}) * (d->H / d->K);
        for (t.h = 0; t.h < d->K; t.h++)
            p->bwd[p->n_bwd++] = t;
    }
    p->stage_at[b] = p->n_stage;
    if (!ek_jagged_is_direct(d, s))
        p->n_stage += part * s->Lq * d->H * d->D;
}

int64_t ek_jagged_deal(int64_t n, int64_t r, int member, int members)
{
    int64_t t = r * members + (r % 2 ? members - 1 - member : member);
    return t < n ? t : -1;
}

/* The most work of a member over the mean: tiles in shares of equal count as they lie,
 * or dealt. */
static double imbalance(const struct ek_jagged_tile *tiles, int64_t n, int members,
                        bool is_dealt)
{
    int64_t total = 0, worst = 0;
    for (int m = 0; m < members; m++) {
        int64_t sum = 0, t;
        if (is_dealt) {
            for (int64_t r = 0; (t = ek_jagged_deal(n, r, m, members)) >= 0; r++)
                sum += tiles[t].work;
        } else {
            for (t = n * m / members; t < n * (m + 1) / members; t++)
                sum += tiles[t].work;
        }
        worst = most(worst, sum);
        total += sum;
    }
    return total ? (double)worst * members / (double)total : 1;
}

void ek_jagged_plan_build(struct ek_jagged_plan *plan, const struct ek_jagged_dims *d,
                          const struct ek_jagged_batch *batch, bool has_bias)
{
    plan->n_fwd = plan->n_bwd = plan->n_stage = plan->n_pairs = 0;
    for (int64_t b = 0; b < batch->B; b++) {
        struct ek_jagged_seq s = ek_jagged_seq_of(d, batch, b);
        assert(s.Lq >= 0 && s.Lk >= 0);
        assert(s.Lq < EK_JAGGED_ROWS_MAX && s.Lk < EK_JAGGED_ROWS_MAX);
        add_forward(plan, d, &s, b);
        add_backward(plan, d, &s, b);
    }
    plan->stage_at[batch->B] = plan->n_stage;
    for (int64_t t = 0; has_bias && t < plan->n_bwd; t++) {
        struct ek_jagged_tile *x = &plan->bwd[t];
        struct ek_jagged_seq s = ek_jagged_seq_of(d, batch, x->b);
        int64_t n;
        ek_jagged_first_diagonal(&n, d, &s, x);
        x->stage = plan->n_stage;
        plan->n_stage += n + EK_JAGGED_BUCKETS;
    }
    for (int way = 0; way < 2; way++) {
        struct ek_jagged_tile *tiles = way ? plan->bwd : plan->fwd;
        int64_t n = way ? plan->n_bwd : plan->n_fwd;
        plan->before[way] = imbalance(tiles, n, plan->members, false);
        sort(tiles, n);
        plan->after[way] = imbalance(tiles, n, plan->members, true);
    }
}

void ek_jagged_ceiling(int64_t *n_fwd, int64_t *n_bwd, int64_t *n_stage,
                       const struct ek_jagged_dims *d, int64_t B, int64_t n_q,
                       int64_t n_k, bool has_bias)
{
    const int64_t tiles = B + n_k / EK_JAGGED_KEYS;
    *n_fwd = d->H * (B + n_q / EK_JAGGED_QUERIES);
    *n_bwd = d->K * tiles;
    *n_stage = EK_JAGGED_PARTS * n_q * d->H * d->D;
    if (has_bias)
        *n_stage += *n_bwd * EK_JAGGED_BUCKETS + d->K * (n_k + EK_JAGGED_PARTS * n_q);
}

/* Of the variant that needs most: avx512/jagged.c. */
size_t ek_jagged_scratch_bytes(const struct ek_jagged_dims *d)
{
    const size_t Dp = ((size_t)d->D + 15) / 16 * 16, block = EK_JAGGED_BLOCK;
    const size_t backward =
        5 * block * block + 5 * block * Dp + 5 * EK_JAGGED_KEYS * Dp;
    const size_t forward = 2 * block * block + (2 * block + 2 * EK_JAGGED_QUERIES) * Dp;
    return (backward > forward ? backward : forward) * sizeof(float);
}
