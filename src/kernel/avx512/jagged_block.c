/* jagged_block.c - softmax in blocks of 64 with products in bf16 (jagged_rows.h): each
 * block is seen once, so nothing is carried from key block to key block, and four
 * queries' scores become weights without leaving the registers. No sums in memory,
 * nothing turned back.
 */
#include "kernel/avx512/jagged_phi.h"
#include "kernel/avx512/jagged_rows.h"

#include <math.h>

/* Across lanes: lane i of the result is x[i]'s. */

#define OF_FOUR(op, x)                                                                 \
    do {                                                                               \
        const __m512 a =                                                               \
            op(_mm512_unpacklo_ps(x[0], x[1]), _mm512_unpackhi_ps(x[0], x[1]));        \
        const __m512 b =                                                               \
            op(_mm512_unpacklo_ps(x[2], x[3]), _mm512_unpackhi_ps(x[2], x[3]));        \
        const __m512d c = _mm512_castps_pd(a), d = _mm512_castps_pd(b);                \
        __m512 y = op(_mm512_castpd_ps(_mm512_unpacklo_pd(c, d)),                      \
                      _mm512_castpd_ps(_mm512_unpackhi_pd(c, d)));                     \
        y = op(y, _mm512_shuffle_f32x4(y, y, 0x4e));                                   \
        return op(y, _mm512_shuffle_f32x4(y, y, 0xb1));                                \
    } while (0)

EK_INLINE __m512 sum_of_four(const __m512 x[GROUP])
{
    OF_FOUR(_mm512_add_ps, x);
}

EK_INLINE __m512 max_of_four(const __m512 x[GROUP])
{
    OF_FOUR(_mm512_max_ps, x);
}

/* Asks for columns of head h of rows row.., n or GROUP, into the second-level cache. */
EK_INLINE void fetch_rows(const struct block *b, const void *x, int64_t ld, int64_t row,
                          int64_t n, int64_t h)
{
    const int64_t size = (int64_t)ek_dtype_block_bytes(b->dtype);
    const char *at = (const char *)x + (row * ld + h * b->D) * size;
    for (int64_t r = 0; r < n && r < GROUP; r++, at += ld * size)
        for (int64_t c = 0; c < b->D * size; c += 64)
            _mm_prefetch(at + c, _MM_HINT_T1);
}

#define LN2 0.693147180559945f

bool ek_avx512_jagged_is_block(const struct ek_jagged_args *a,
                               const struct ek_jagged_seq *s)
{
    const struct ek_jagged_dims *d = a->d;
    const struct ek_jagged_mask *m = &d->mask;
    return d->score == EK_JAGGED_SOFTMAX && d->products == EK_DTYPE_BF16 &&
           m->block == LANES && !m->is_causal && m->window <= 0 && !a->bias &&
           !d->is_broadcast_q && d->H == d->K && d->D % 32 == 0 && d->alpha > 0 &&
           s->Lq == s->Lk;
}

/* A group of queries on its way from scores to weights. */
struct scores {
    float s[GROUP][LANES];            /* of q.k; then, backward, P */
    float rows[2][GROUP * LANES / 2]; /* P or dx in bf16, of this group and the last */
    float sums[2][GROUP][16];         /* forward: of a row's weights, lane by lane */
    float inverse[GROUP];             /* forward: 1 / their sum */
    float factor;                     /* of q.k, to units of log2 */
    const float *less;                /* (GROUP) taken off: the largest, or LSE */
    float *to;                        /* rows, or pairs, of weights */
};

/* What is read and written of queries, backward. */
struct gradients {
    struct ek_jagged_rows q, d_o, dq;
};

/* --- what comes next --- */

/* Columns of head h of four rows from i on, or, past the end of the tile, from row j of
 * the next one, which the same thread most likely takes. Asked for where they are
 * needed soon, a product at a time: more lines at once would queue up. */
static void ask(const struct block *b, const void *x, int64_t ld, bool is_of_keys,
                int64_t i, int64_t j)
{
    const struct ek_jagged_seq *s = i < b->end ? &b->s : &b->next.s;
    const int64_t row0 = is_of_keys ? s->k0 : s->q0;
    if (i < b->end)
        fetch_rows(b, x, ld, row0 + i, b->end - i, b->h);
    else
        fetch_rows(b, x, ld, row0 + b->next.lo + j, b->next.hi - b->next.lo - j,
                   b->next.h);
}

/* Of the queries AHEAD of the group at r. */
static void ask_query(const struct block *b, const void *x, int64_t ld, int r)
{
    const int64_t i = b->i + r + AHEAD, end = (b->end + GROUP - 1) / GROUP * GROUP;
    ask(b, x, ld, false, i, i - end);
}

/* Of the keys a block ahead of the queries. */
static void ask_keys(const struct block *b, int r)
{
    const int64_t i = b->i + LANES + r, end = (b->end + GROUP - 1) / GROUP * GROUP;
    ask(b, b->a->k, b->a->ldk, true, i, i - end);
    ask(b, b->a->v, b->a->ldv, true, i, i - end);
}

/* --- scores to weights, beside a product --- */

/* Products of a group with 16 NV keys as they are stored; keys that are not there and
 * those up to an even number of vectors become -inf. */
EK_INLINE void keep_scores(const struct block *b, struct scores *x, __m512 s[GROUP][4],
                           const int NV)
{
    const __m512 none = _mm512_set1_ps(-INFINITY);
    EK_UNROLL
    for (int i = 0; i < GROUP; i++) {
        s[i][NV - 1] = _mm512_mask_mov_ps(none, b->last, s[i][NV - 1]);
        EK_UNROLL
        for (int v = 0; v < NV; v++)
            _mm512_store_ps(x->s[i] + 16 * v, s[i][v]);
        if (NV % 2 == 1)
            _mm512_store_ps(x->s[i] + 16 * NV, none);
    }
}

EK_INLINE __m512 weight_of(const struct scores *x, int i, int v)
{
    return exp2_short(_mm512_fmsub_ps(_mm512_load_ps(x->s[i] + 16 * v),
                                      _mm512_set1_ps(x->factor),
                                      _mm512_set1_ps(x->less[i])));
}

/* Two vectors of weights: forward of a row, which leave as bf16, and their sum;
 * backward of two rows, which leave as pairs and as they are. */
EK_INLINE void weigh(struct scores *x, int unit, const bool is_backward)
{
    if (is_backward) {
        const int i = unit % 2 * 2, v = unit / 2;
        const __m512 p0 = weight_of(x, i, v), p1 = weight_of(x, i + 1, v);
        _mm512_store_ps(x->s[i] + 16 * v, p0);
        _mm512_store_ps(x->s[i + 1] + 16 * v, p1);
        _mm512_store_si512(x->to + i / 2 * LANES + 16 * v,
                           pair_words((__m512i)_mm512_cvtne2ps_pbh(p1, p0)));
        return;
    }
    const int i = unit % GROUP, half = unit / GROUP;
    const __m512 p0 = weight_of(x, i, 2 * half), p1 = weight_of(x, i, 2 * half + 1);
    _mm512_store_ps(x->sums[half][i], _mm512_add_ps(p0, p1));
    _mm512_store_si512(x->to + i * LANES / 2 + 16 * half,
                       (__m512i)_mm512_cvtne2ps_pbh(p1, p0));
}

/* What multiply does, NC vectors of sums; and meanwhile the group's scores of 16 NV
 * keys become weights: the adders and shufflers that do it wait in a product. */
EK_INLINE void multiply_beside(__m512 sum[GROUP][4], const struct terms *t,
                               struct scores *x, const int NC, const int NV,
                               const bool is_backward)
{
    const int units = is_backward ? 2 * NV : (NV + 1) / 2 * GROUP;
    int unit = 0;
    int64_t k = 0;
    clear(sum, NC);
    for (; unit < units && k < t->n; unit++, k += 4) {
        add_word(sum, t, k, NC);
        add_word(sum, t, k + 1, NC);
        weigh(x, unit, is_backward);
        add_word(sum, t, k + 2, NC);
        add_word(sum, t, k + 3, NC);
    }
    for (; k < t->n; k++)
        add_word(sum, t, k, NC);
    for (; unit < units; unit++)
        weigh(x, unit, is_backward);
}

/* What product does, and beside its first columns what multiply_beside does, if there
 * is x. */
EK_INLINE void product_beside(const struct block *b, const struct ek_jagged_rows *to,
                              int r, struct terms *t, const float *factor,
                              struct scores *x, const int NV)
{
    const int64_t size = b->dtype == EK_DTYPE_BF16 ? 2 : 4;
    __m512 sum[GROUP][4];
    if (!x) {
        product(b, to, r, t->line, 4, t->B, t->n, factor);
        return;
    }
    char *at = (char *)to->to + r * to->ld * size;
    if (b->D < 64) {
        multiply_beside(sum, t, x, 2, NV, false);
        put(b, at, to->ld, 0, sum, factor, b->n - r, 2);
        return;
    }
    multiply_beside(sum, t, x, 4, NV, false);
    put(b, at, to->ld, 0, sum, factor, b->n - r, 4);
    product_from(b, to, r, t, factor, 64);
}

/* --- forward --- */

/* The largest scores of a group in units of log2. */
EK_INLINE void largest(const struct scores *x, float top[GROUP], __m512 s[GROUP][4],
                       const int NV)
{
    __m512 t[GROUP];
    EK_UNROLL
    for (int i = 0; i < GROUP; i++) {
        t[i] = s[i][0];
        EK_UNROLL
        for (int v = 1; v < NV; v++)
            t[i] = _mm512_max_ps(t[i], s[i][v]);
    }
    _mm_store_ps(top, _mm_mul_ps(_mm_set1_ps(x->factor),
                                 _mm512_castps512_ps128(max_of_four(t))));
}

/* The sums of a group's weights, and what o is multiplied by. */
EK_INLINE void add_up(struct scores *x, float l[GROUP], const int NV)
{
    __m512 t[GROUP];
    EK_UNROLL
    for (int i = 0; i < GROUP; i++) {
        t[i] = _mm512_load_ps(x->sums[0][i]);
        if (NV > 2)
            t[i] = _mm512_add_ps(t[i], _mm512_load_ps(x->sums[1][i]));
    }
    const __m128 four = _mm512_castps512_ps128(sum_of_four(t));
    _mm_store_ps(l, four);
    _mm_store_ps(x->inverse, _mm_div_ps(_mm_set1_ps(1), four));
}

/* LSE of the block's queries from their largest scores and sums. */
static void keep_lse(const struct block *b)
{
    const struct ek_jagged_args *a = b->a;
    _Alignas(64) float lse[LANES];
    for (int i = 0; i < LANES; i += 16) {
        const __m512 l = log2_ps(_mm512_load_ps(b->sum + i));
        _mm512_store_ps(lse + i,
                        _mm512_mul_ps(_mm512_set1_ps(LN2),
                                      _mm512_add_ps(_mm512_load_ps(b->top + i), l)));
    }
    for (int i = 0; i < b->n; i++)
        a->lse[(b->o0 + i) * a->d->H + b->h] = lse[i];
}

/* A group's scores; then what was weighed before meets its values, while this group's
 * scores become weights. */
EK_INLINE void forward_rows(struct block *b, struct scores *x, const int NV)
{
    const struct ek_jagged_args *a = b->a;
    const struct ek_jagged_rows q = rows_of(b, a->q, a->ldq, b->q0, b->h);
    const struct ek_jagged_rows o = out_of(b, a->o, a->ldo, b->o0, b->h);
    struct terms t = {.step = 4, .B = b->v_pairs, .ldb = b->D, .n = 8 * NV};
    for (int r = 0; r < b->n + GROUP; r += GROUP) {
        float *const rows = x->rows[r / GROUP % 2];
        const bool has_more = r < b->n;
        if (has_more) {
            __m512 s[GROUP][4];
            const char *line[GROUP];
            ask_query(b, a->q, a->ldq, r);
            if (!b->is_streaming)
                ask_query(b, a->o, a->ldo, r);
            lines_of(line, b, &q, b->q_packed, r);
            multiply(s, line, 4, b->k_turned, LANES, b->D / 2, NV);
            keep_scores(b, x, s, NV);
            largest(x, b->top + r, s, NV);
            x->less = b->top + r;
            x->to = rows;
        }
        if (r > 0) {
            if (has_more)
                ask_keys(b, r);
            product_beside(b, &o, r - GROUP, &t, x->inverse, has_more ? x : NULL, NV);
        } else {
            for (int unit = 0; unit < (NV + 1) / 2 * GROUP; unit++)
                weigh(x, unit, false);
        }
        if (has_more)
            add_up(x, b->sum + r, NV);
        EK_UNROLL
        for (int i = 0; i < GROUP; i++)
            t.line[i] = (const char *)(rows + i * LANES / 2);
    }
    if (a->lse)
        keep_lse(b);
}

static void forward(struct block *b, struct scores *x)
{
    const struct ek_jagged_args *a = b->a;
    const struct ek_jagged_rows k = rows_of(b, a->k, a->ldk, b->k0, b->h);
    const struct ek_jagged_rows v = rows_of(b, a->v, a->ldv, b->k0, b->h);
    const struct ek_jagged_rows q = rows_of(b, a->q, a->ldq, b->q0, b->h);
    ek_avx512_jagged_pack_turned(b->k_turned, &k, true);
    ek_avx512_jagged_pack_pairs(b->v_pairs, &v, true);
    if (b->dtype == EK_DTYPE_F32)
        ek_avx512_jagged_pack_rows(b->q_packed, &q, true);
    switch ((b->n + 15) / 16) {
    case 1:
        forward_rows(b, x, 1);
        break;
    case 2:
        forward_rows(b, x, 2);
        break;
    case 3:
        forward_rows(b, x, 3);
        break;
    default:
        forward_rows(b, x, 4);
        break;
    }
}

/* --- backward --- */

/* q and do of four rows of bf16 as pairs, and delta: what products take is what they
 * are made of. */
static void take_lines(const struct block *b, float *q_pairs, float *d_pairs,
                       float delta[GROUP], const char *const q[GROUP],
                       const char *const g[GROUP], const char *const o[GROUP])
{
    __m512 t[GROUP];
    EK_UNROLL
    for (int i = 0; i < GROUP; i += 2) {
        t[i] = t[i + 1] = _mm512_setzero_ps();
        for (int c = 0; c < b->D; c += 32) {
            const __m512i g0 = _mm512_loadu_si512(g[i] + 2 * c);
            const __m512i g1 = _mm512_loadu_si512(g[i + 1] + 2 * c);
            const __m512i o0 = _mm512_loadu_si512(o[i] + 2 * c);
            const __m512i o1 = _mm512_loadu_si512(o[i + 1] + 2 * c);
            t[i] = _mm512_dpbf16_ps(t[i], (__m512bh)g0, (__m512bh)o0);
            t[i + 1] = _mm512_dpbf16_ps(t[i + 1], (__m512bh)g1, (__m512bh)o1);
            pair_32(d_pairs + i / 2 * b->D + c, g0, g1);
            pair_32(q_pairs + i / 2 * b->D + c, _mm512_loadu_si512(q[i] + 2 * c),
                    _mm512_loadu_si512(q[i + 1] + 2 * c));
        }
    }
    _mm_store_ps(delta, _mm512_castps512_ps128(sum_of_four(t)));
}

/* What backward needs of four queries beside their rows. Less log2 alpha, the exponent
 * makes P alpha, so that dq and dk are sums as they stand. */
static void take_queries(struct block *b, const struct ek_jagged_rows *q,
                         const struct ek_jagged_rows *g, int r)
{
    const struct ek_jagged_args *a = b->a;
    const struct ek_jagged_rows o = rows_of(b, a->o, a->ldo, b->o0, b->h);
    float *q_pairs = b->q_pairs + r / 2 * b->D, *d_pairs = b->d_pairs + r / 2 * b->D;
    for (int i = r; i < r + GROUP; i++)
        b->lse[i] =
            i < b->n ? a->lse[(b->o0 + i) * a->d->H + b->h] * LOG2E - b->log2_alpha : 0;
    if (b->dtype == EK_DTYPE_BF16) {
        const char *q_line[GROUP], *g_line[GROUP], *o_line[GROUP];
        lines_of(q_line, b, q, NULL, r);
        lines_of(g_line, b, g, NULL, r);
        lines_of(o_line, b, &o, NULL, r);
        take_lines(b, q_pairs, d_pairs, b->delta + r, q_line, g_line, o_line);
        return;
    }
    const struct ek_jagged_rows q4 = some_of(q, r), g4 = some_of(g, r);
    const struct ek_jagged_rows o4 = some_of(&o, r);
    ek_avx512_jagged_pack_pairs(q_pairs, &q4, true);
    ek_avx512_jagged_pack_pairs(d_pairs, &g4, true);
    ek_avx512_jagged_delta(b->delta + r, &g4, o4.x, true);
    ek_avx512_jagged_pack_rows(b->q_packed + r * b->D / 2, &q4, true);
    ek_avx512_jagged_pack_rows(b->d_packed + r * b->D / 2, &g4, true);
}

/* dx of four queries from their P and dP. */
EK_INLINE void slope(const struct block *b, const struct scores *x, int r,
                     __m512 dp[GROUP][4], const int NV)
{
    EK_UNROLL
    for (int i = 0; i < GROUP; i++) {
        const __m512 delta = _mm512_set1_ps(b->delta[r + i]);
        EK_UNROLL
        for (int v = 0; v < NV; v++)
            dp[i][v] = _mm512_mul_ps(_mm512_load_ps(x->s[i] + 16 * v),
                                     _mm512_sub_ps(dp[i][v], delta));
    }
}

/* P and dx of all queries, and dq: a group's scores, dq of the group before, dP beside
 * which the scores become weights. */
EK_INLINE void backward_rows(struct block *b, struct scores *x,
                             const struct gradients *y, const int NV)
{
    const struct ek_jagged_args *a = b->a;
    struct terms dq = {.step = 4, .B = b->k_pairs, .ldb = b->D, .n = 8 * NV};
    for (int i = 0; i < GROUP; i++)
        dq.line[i] = (const char *)(x->rows[0] + i * LANES / 2);
    for (int r = 0; r < b->n; r += GROUP) {
        __m512 s[GROUP][4];
        struct terms t = {.step = 4, .B = b->k_turned, .ldb = LANES, .n = b->D / 2};
        ask_query(b, a->q, a->ldq, r);
        ask_query(b, a->o, a->ldo, r);
        take_queries(b, &y->q, &y->d_o, r);
        lines_of(t.line, b, &y->q, b->q_packed, r);
        multiply(s, t.line, 4, t.B, LANES, t.n, NV);
        keep_scores(b, x, s, NV);
        if (r > 0) {
            ask_keys(b, r);
            product_beside(b, &y->dq, r - GROUP, &dq, NULL, NULL, NV);
        }
        ask_query(b, a->d_o, a->ldo, r);
        if (!b->is_streaming)
            ask_query(b, a->dq, a->ldq, r);
        x->to = b->p + r / 2 * LANES;
        x->less = b->lse + r;
        lines_of(t.line, b, &y->d_o, b->d_packed, r);
        t.B = b->v_turned;
        multiply_beside(s, &t, x, NV, NV, true);
        slope(b, x, r, s, NV);
        keep_both(x->rows[0], LANES / 2, b->dx + r / 2 * LANES, LANES, s, NV);
    }
    product_beside(b, &y->dq, (b->n - 1) / GROUP * GROUP, &dq, NULL, NULL, NV);
}

/* Rows of dk or dv from pairs of queries, turned in place. */
static void backward_keys(const struct block *b, const struct ek_jagged_rows *to,
                          const float *pairs, const float *B, const float *factor)
{
    const int64_t n = (b->n + GROUP - 1) / GROUP * (GROUP / 2), step = LANES * 4;
    for (int r = 0; r < b->n; r += GROUP) {
        const char *line[GROUP];
        EK_UNROLL
        for (int i = 0; i < GROUP; i++)
            line[i] = (const char *)(pairs + r + i);
        if (!b->is_streaming)
            fetch_rows(b, to->x, to->ld, r + AHEAD, b->n - r - AHEAD, 0);
        product(b, to, r, line, step, B, n, factor);
    }
}

static void backward(struct block *b, struct scores *x)
{
    const struct ek_jagged_args *a = b->a;
    const float f = 1 / a->d->alpha, factors[GROUP] = {f, f, f, f};
    const struct gradients y = {
        .q = rows_of(b, a->q, a->ldq, b->q0, b->h),
        .d_o = rows_of(b, a->d_o, a->ldo, b->o0, b->h),
        .dq = out_of(b, a->dq, a->ldq, b->q0, b->h),
    };
    const struct ek_jagged_rows k = rows_of(b, a->k, a->ldk, b->k0, b->h);
    const struct ek_jagged_rows v = rows_of(b, a->v, a->ldv, b->k0, b->h);
    const struct ek_jagged_rows dk = out_of(b, a->dk, a->ldk, b->k0, b->h);
    const struct ek_jagged_rows dv = out_of(b, a->dv, a->ldv, b->k0, b->h);
    ek_avx512_jagged_pack_turned(b->k_turned, &k, true);
    ek_avx512_jagged_pack_turned(b->v_turned, &v, true);
    ek_avx512_jagged_pack_pairs(b->k_pairs, &k, true);
    switch ((b->n + 15) / 16) {
    case 1:
        backward_rows(b, x, &y, 1);
        break;
    case 2:
        backward_rows(b, x, &y, 2);
        break;
    case 3:
        backward_rows(b, x, &y, 3);
        break;
    default:
        backward_rows(b, x, &y, 4);
        break;
    }
    backward_keys(b, &dv, b->p, b->d_pairs, factors);
    backward_keys(b, &dk, b->dx, b->q_pairs, NULL);
}

/* --- tiles --- */

static struct scores *carve_block(struct block *b, float *at)
{
    const int64_t words = (int64_t)b->D / 2 * LANES;
    float **const forms[] = {&b->k_turned, &b->v_turned, &b->k_pairs,  &b->v_pairs,
                             &b->q_pairs,  &b->d_pairs,  &b->q_packed, &b->d_packed};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        *forms[i] = carve(&at, words);
    b->p = carve(&at, LANES / 2 * LANES);
    b->dx = carve(&at, LANES / 2 * LANES);
    return (struct scores *)(void *)at;
}

/* The tile behind t, if there is one. */
static void set_next(struct block *b, const struct ek_jagged_tile *t)
{
    const struct ek_jagged_plan *p = b->a->plan;
    const struct ek_jagged_tile *end =
        b->is_backward ? p->bwd + p->n_bwd : p->fwd + p->n_fwd;
    b->next.lo = b->next.hi = b->next.h = 0;
    b->next.s = b->s;
    if (t + 1 >= end)
        return;
    b->next.s = ek_jagged_seq_of(b->a->d, b->a->batch, t[1].b);
    b->next.lo = t[1].lo;
    b->next.hi = t[1].hi;
    b->next.h = t[1].h;
}

/* What the tile needs first, in case nobody asked. */
static void ask_first(const struct block *b, const struct ek_jagged_tile *t)
{
    const struct ek_jagged_args *a = b->a;
    fetch(b, a->k, a->ldk, b->s.k0, t->lo, LANES);
    fetch(b, a->v, a->ldv, b->s.k0, t->lo, LANES);
    fetch(b, a->q, a->ldq, b->s.q0, t->lo, AHEAD);
    fetch(b, a->o, a->ldo, b->s.o0, t->lo, AHEAD);
    if (!b->is_backward)
        return;
    fetch(b, a->d_o, a->ldo, b->s.o0, t->lo, AHEAD);
    fetch(b, a->dq, a->ldq, b->s.q0, t->lo, AHEAD);
}

void ek_avx512_jagged_blocks(const struct ek_jagged_args *a,
                             const struct ek_jagged_tile *t, void *scratch,
                             bool is_backward)
{
    struct block b;
    b.a = a;
    b.s = ek_jagged_seq_of(a->d, a->batch, t->b);
    b.end = t->hi;
    b.h = t->h;
    b.D = a->d->D;
    b.dtype = a->d->dtype;
    b.is_backward = is_backward;
    b.is_streaming = is_streamed(a);
    struct scores *x = carve_block(&b, scratch);
    x->factor = a->d->alpha * LOG2E;
    b.log2_alpha = log2f(a->d->alpha);
    set_next(&b, t);
    ask_first(&b, t);
    for (b.i = t->lo; b.i < t->hi; b.i += LANES) {
        b.n = (int)(t->hi - b.i < LANES ? t->hi - b.i : LANES);
        b.q0 = b.s.q0 + b.i;
        b.o0 = b.s.o0 + b.i;
        b.k0 = b.s.k0 + b.i;
        b.last = first_lanes(b.n - (b.n - 1) / 16 * 16);
        if (is_backward)
            backward(&b, x);
        else
            forward(&b, x);
    }
    end_stores(&b);
}
