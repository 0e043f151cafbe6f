/* jagged_causal.c - silu under a causal mask (HSTU) over up to 512 keys, with products
 * in bf16 (jagged_rows.h): keys lie in every form while queries pass by, four at a
 * time, so that scores become P and dx in registers and o and dq of a query are one
 * product over all its keys. Four queries end in one vector of keys: nothing else is
 * masked. dk and dv are summed in f32 a block of queries at a time, and their sums
 * begin on the diagonal.
 *
 *   P, dx pairs  [64 keys of a block][query/2][64]
 *   P, dx rows   [GROUP][KEYS_MAX/2]
 */
#include "kernel/avx512/jagged_phi.h"
#include "kernel/avx512/jagged_rows.h"

/* Weights of four queries as pairs of queries. */
EK_INLINE void keep_pairs(float *to, __m512 x[GROUP][4], const int NV)
{
    EK_UNROLL
    for (int i = 0; i < GROUP; i += 2)
        EK_UNROLL
    for (int v = 0; v < NV; v++)
        _mm512_store_si512(
            to + i / 2 * LANES + 16 * v,
            pair_words((__m512i)_mm512_cvtne2ps_pbh(x[i + 1][v], x[i][v])));
}

#define KEYS_MAX EK_JAGGED_KEYS
#define PLACES   (KEYS_MAX + LANES)

/* What queries work in beside b. */
struct course {
    float gain; /* of scores: alpha, or 1 where it has been multiplied */
    _Alignas(64) float rows[GROUP * KEYS_MAX / 2];
    float grad[GROUP * LANES];
    float places[GROUP][PLACES]; /* sums of dx of a group's rows by j - i */
};

bool ek_avx512_jagged_is_causal(const struct ek_jagged_args *a,
                                const struct ek_jagged_seq *s)
{
    const struct ek_jagged_dims *d = a->d;
    const struct ek_jagged_mask *m = &d->mask;
    const bool has_other_bias = a->bias && (a->bias->pair || a->bias->time);
    return d->score == EK_JAGGED_PHI && d->phi == EK_PHI_SILU && !d->phis &&
           d->products == EK_DTYPE_BF16 && m->is_causal && m->window <= 0 &&
           m->block <= 0 && m->n_context <= 0 && !m->n_targets && !has_other_bias &&
           !d->is_broadcast_q && d->D % 32 == 0 && s->Lq == s->Lk && s->Lk >= 1 &&
           s->Lk <= KEYS_MAX;
}

static bool has_places(const struct ek_jagged_args *a)
{
    return a->bias && a->bias->pos;
}

/* Four queries from the block's row r on, and keys [at, at+16 NV). */
struct part {
    const struct block *b;
    struct course *c;
    int r, at;
    __mmask16 seen[GROUP]; /* keys of the last vector */
};

/* Scores over c->gain, which leaves nothing to multiply where there are no terms. */
EK_INLINE __m512 score_of(const struct part *p, __m512 s, int i, int v, const int NV,
                          const bool is_placed)
{
    if (!is_placed)
        return s;
    const struct ek_jagged_bias *bias = p->b->a->bias;
    const int64_t row = p->b->i + p->r + i;
    const __mmask16 there = row < p->b->s.Lq ? 0xffff : 0;
    const __mmask16 m = v == NV - 1 ? p->seen[i] & there : there;
    return _mm512_fmadd_ps(
        s, _mm512_set1_ps(p->b->a->d->alpha),
        _mm512_maskz_loadu_ps(m, bias->pos + bias->N - 1 + p->at + 16 * v - row));
}

/* 1/(1 + exp(-gain s)), factor -gain log2(e). */
EK_INLINE __m512 gate_of(__m512 s, __m512 factor)
{
    const __m512 e = exp2_short(_mm512_mul_ps(s, factor));
    return _mm512_rcp14_ps(_mm512_add_ps(_mm512_set1_ps(1.0f), e));
}

EK_INLINE void rows_to(struct course *c, int at, __m512 x[GROUP][4], const int NV)
{
    EK_UNROLL
    for (int i = 0; i < GROUP; i++)
        EK_UNROLL
    for (int v = 0; v < NV; v += 2) {
        const __m512 high = v + 1 < NV ? x[i][v + 1] : _mm512_setzero_ps();
        _mm512_store_si512(c->rows + (i * KEYS_MAX + at) / 2 + 8 * v,
                           (__m512i)_mm512_cvtne2ps_pbh(high, x[i][v]));
    }
}

/* Ends of what queries of the group at r see, and how many vectors a block of keys
 * has. */
static int part_of(struct part *p, int at)
{
    const int64_t row = p->b->i + p->r;
    const int left = (int)(row - at), nv = left >= LANES - 4 ? 4 : left / 16 + 1;
    p->at = at;
    EK_UNROLL
    for (int i = 0; i < GROUP; i++)
        p->seen[i] = first_lanes(left + i + 1 - 16 * (nv - 1));
    return nv;
}

static void lines_of_rows(const char *line[GROUP], const struct course *c)
{
    EK_UNROLL
    for (int i = 0; i < GROUP; i++)
        line[i] = (const char *)(c->rows + i * KEYS_MAX / 2);
}

/* Words of keys that the group sees, up to a whole vector. */
static int64_t seen_words(const struct block *b, int r)
{
    return (b->i + r) / 16 * 8 + 8;
}

/* --- keys --- */

/* Up to 64 keys from `at` on, in the forms of this direction. */
static void take_keys(struct block *b, int64_t at)
{
    const struct ek_jagged_args *a = b->a;
    const int64_t form = at * b->D / 2, kv = b->h / (a->d->H / a->d->K);
    b->n = (int)(b->n_keys - at < LANES ? b->n_keys - at : LANES);
    const struct ek_jagged_rows k = rows_of(b, a->k, a->ldk, b->s.k0 + at, kv);
    const struct ek_jagged_rows v = rows_of(b, a->v, a->ldv, b->s.k0 + at, kv);
    ek_avx512_jagged_pack_turned(b->k_turned + form, &k, true);
    if (b->is_backward) {
        ek_avx512_jagged_pack_turned(b->v_turned + form, &v, true);
        ek_avx512_jagged_pack_pairs(b->k_pairs + form, &k, true);
    } else {
        ek_avx512_jagged_pack_pairs(b->v_pairs + form, &v, true);
    }
}

static void fetch_keys(const struct block *b, int64_t i, int64_t n)
{
    const struct ek_jagged_args *a = b->a;
    const int64_t kv = b->h / (a->d->H / a->d->K);
    fetch_head(b, a->k, a->ldk, b->s.k0, i, n, kv);
    fetch_head(b, a->v, a->ldv, b->s.k0, i, n, kv);
}

/* --- forward --- */

EK_INLINE void forward_part(const struct part *p, const char *const line[GROUP],
                            const int NV, const bool is_placed)
{
    const struct block *b = p->b;
    const __m512 factor = _mm512_set1_ps(-LOG2E * p->c->gain);
    __m512 x[GROUP][4];
    multiply(x, line, 4, b->k_turned + (int64_t)p->at * b->D / 2, LANES, b->D / 2, NV);
    EK_UNROLL
    for (int i = 0; i < GROUP; i++)
        EK_UNROLL
    for (int v = 0; v < NV; v++) {
        const __m512 s = score_of(p, x[i][v], i, v, NV, is_placed);
        x[i][v] = _mm512_mul_ps(s, gate_of(s, factor));
        if (v == NV - 1)
            x[i][v] = _mm512_maskz_mov_ps(p->seen[i], x[i][v]);
    }
    rows_to(p->c, p->at, x, NV);
}

EK_INLINE void forward_parts(const struct part *p, const char *const line[GROUP],
                             int nv, const bool is_placed)
{
    switch (nv) {
    case 1:
        forward_part(p, line, 1, is_placed);
        break;
    case 2:
        forward_part(p, line, 2, is_placed);
        break;
    case 3:
        forward_part(p, line, 3, is_placed);
        break;
    default:
        forward_part(p, line, 4, is_placed);
        break;
    }
}

static void forward_queries(struct block *b, struct course *c)
{
    const struct ek_jagged_args *a = b->a;
    const struct ek_jagged_rows q = rows_of(b, a->q, a->ldq, b->q0, b->h);
    const struct ek_jagged_rows o = out_of(b, a->o, a->ldo, b->o0, b->h);
    const float f = b->scale * c->gain, scales[GROUP] = {f, f, f, f};
    struct part p = {.b = b, .c = c};
    if (b->dtype == EK_DTYPE_F32)
        ek_avx512_jagged_pack_rows(b->q_packed, &q, true);
    for (p.r = 0; p.r < b->n; p.r += GROUP) {
        const char *line[GROUP];
        fetch(b, a->q, a->ldq, b->s.q0, b->i + p.r + AHEAD, GROUP);
        if (!b->is_streaming)
            fetch(b, a->o, a->ldo, b->s.o0, b->i + p.r + AHEAD, GROUP);
        fetch_keys(b, b->i + LANES + p.r, GROUP);
        lines_of(line, b, &q, b->q_packed, p.r);
        for (int at = 0; at <= b->i + p.r; at += LANES) {
            const int nv = part_of(&p, at);
            if (has_places(a))
                forward_parts(&p, line, nv, true);
            else
                forward_parts(&p, line, nv, false);
        }
        lines_of_rows(line, c);
        product(b, &o, p.r, line, 4, b->v_pairs, seen_words(b, p.r), scales);
    }
}

/* --- backward --- */

/* By place, dx of each row on its own: rows a step apart would wait for one another. */
EK_INLINE void add_places(const struct part *p, __m512 x[GROUP][4], const int NV)
{
    const __m512 scale = _mm512_set1_ps(p->b->scale);
    EK_UNROLL
    for (int i = 0; i < GROUP; i++) {
        float *to = p->c->places[i] + p->b->s.Lq - 1 + p->at - (p->b->i + p->r + i);
        if (p->r + i >= p->b->n)
            break;
        EK_UNROLL
        for (int v = 0; v < NV; v++)
            _mm512_storeu_ps(
                to + 16 * v,
                _mm512_fmadd_ps(scale, x[i][v], _mm512_loadu_ps(to + 16 * v)));
    }
}

EK_INLINE void backward_part(const struct part *p, const char *const q[GROUP],
                             const char *const d[GROUP], const int NV,
                             const bool is_placed)
{
    const struct block *b = p->b;
    const int64_t form = (int64_t)p->at * b->D / 2;
    const int64_t pair = (int64_t)p->at * LANES / 2 + p->r / 2 * LANES;
    const __m512 gain = _mm512_set1_ps(p->c->gain);
    const __m512 factor = _mm512_set1_ps(-LOG2E * p->c->gain);
    __m512 x[GROUP][4];
    float *grad = p->c->grad;
    multiply(x, q, 4, b->k_turned + form, LANES, b->D / 2, NV);
    EK_UNROLL
    for (int i = 0; i < GROUP; i++)
        EK_UNROLL
    for (int v = 0; v < NV; v++) {
        const __m512 s = score_of(p, x[i][v], i, v, NV, is_placed);
        const __m512 g = gate_of(s, factor), y = _mm512_mul_ps(s, g);
        __m512 slope = _mm512_fmadd_ps(gain, _mm512_fnmadd_ps(y, g, y), g);
        x[i][v] = y;
        if (v == NV - 1) {
            x[i][v] = _mm512_maskz_mov_ps(p->seen[i], y);
            slope = _mm512_maskz_mov_ps(p->seen[i], slope);
        }
        _mm512_store_ps(grad + (4 * i + v) * 16, slope);
    }
    keep_pairs(b->p + pair, x, NV);
    multiply(x, d, 4, b->v_turned + form, LANES, b->D / 2, NV);
    EK_UNROLL
    for (int i = 0; i < GROUP; i++)
        EK_UNROLL
    for (int v = 0; v < NV; v++)
        x[i][v] = _mm512_mul_ps(x[i][v], _mm512_load_ps(grad + (4 * i + v) * 16));
    keep_both(p->c->rows + p->at / 2, KEYS_MAX / 2, b->dx + pair, LANES, x, NV);
    if (is_placed && b->a->dpos)
        add_places(p, x, NV);
}

EK_INLINE void backward_parts(const struct part *p, const char *const q[GROUP],
                              const char *const d[GROUP], int nv, const bool is_placed)
{
    switch (nv) {
    case 1:
        backward_part(p, q, d, 1, is_placed);
        break;
    case 2:
        backward_part(p, q, d, 2, is_placed);
        break;
    case 3:
        backward_part(p, q, d, 3, is_placed);
        break;
    default:
        backward_part(p, q, d, 4, is_placed);
        break;
    }
}

/* Where the sums of four keys stand, and where they leave for. */
struct keys {
    float *sums; /* [GROUP][D] */
    const struct ek_jagged_rows *to;
    int64_t r;               /* row of `to` */
    bool is_first, is_last;  /* nothing was summed; nothing will be */
    const char *line[GROUP]; /* P or dx pairs, turned in place */
    const float *B;          /* do or q pairs */
    int64_t n;               /* words of k */
};

EK_INLINE void accumulate_columns(const struct block *b, const struct keys *k,
                                  int64_t c, const float factor[GROUP], const int NV)
{
    __m512 x[GROUP][4];
    multiply(x, k->line, LANES * 4, k->B + c, b->D, k->n, NV);
    EK_UNROLL
    for (int i = 0; i < GROUP; i++) {
        if (k->is_first)
            break;
        EK_UNROLL
        for (int v = 0; v < NV; v++)
            x[i][v] = _mm512_add_ps(_mm512_loadu_ps(k->sums + i * b->D + c + 16 * v),
                                    x[i][v]);
    }
    if (k->is_last) {
        const int64_t size = b->dtype == EK_DTYPE_BF16 ? 2 : 4;
        put(b, (char *)k->to->to + k->r * k->to->ld * size, k->to->ld, c, x, factor,
            (int)(b->n_keys - k->r), NV);
        return;
    }
    EK_UNROLL
    for (int i = 0; i < GROUP; i++)
        EK_UNROLL
    for (int v = 0; v < NV; v++)
        _mm512_storeu_ps(k->sums + i * b->D + c + 16 * v, x[i][v]);
}

/* Sums of the keys from `at` on (+)= pairs turned . B, over the block's queries. */
static void accumulate(const struct block *b, struct keys k, const float *pairs, int at,
                       float f)
{
    const int64_t n = (b->n + GROUP - 1) / GROUP * (GROUP / 2);
    const int n_keys = b->n_keys - at < LANES ? b->n_keys - at : LANES;
    const float factor[GROUP] = {f, f, f, f}, *B = k.B;
    float *sums = k.sums;
    pairs += (int64_t)at * LANES / 2;
    for (int r = 0; r < n_keys; r += GROUP) {
        const int64_t from = at == b->i ? r / 2 : 0; /* earlier queries do not see it */
        EK_UNROLL
        for (int i = 0; i < GROUP; i++)
            k.line[i] = (const char *)(pairs + from * LANES + r + i);
        if (k.is_last && !b->is_streaming)
            fetch_head(b, k.to->to, k.to->ld, 0, at + r + AHEAD, GROUP, 0);
        k.r = at + r;
        k.sums = sums + k.r * b->D;
        k.B = B + from * b->D;
        k.n = n - from;
        int64_t c = 0;
        for (; c + 64 <= b->D; c += 64)
            accumulate_columns(b, &k, c, factor, 4);
        if (c < b->D)
            accumulate_columns(b, &k, c, factor, 2);
    }
}

/* dv and dk of all keys that the block's queries see. */
static void backward_keys(const struct block *b, const struct course *c)
{
    const struct ek_jagged_args *a = b->a;
    const int64_t G = a->d->H / a->d->K, kv = b->h / G;
    const struct ek_jagged_rows dk = out_of(b, a->dk, a->ldk, b->s.k0, kv);
    const struct ek_jagged_rows dv = out_of(b, a->dv, a->ldv, b->s.k0, kv);
    struct keys v = {.sums = b->dv_sum, .to = &dv, .B = b->d_pairs};
    struct keys k = {.sums = b->dk_sum, .to = &dk, .B = b->q_pairs};
    v.is_last = k.is_last = b->i + LANES >= b->end && b->h % G == G - 1;
    for (int at = 0; at <= b->i; at += LANES) {
        v.is_first = k.is_first = at == b->i && b->h % G == 0;
        accumulate(b, v, b->p, at, b->scale * c->gain);
        accumulate(b, k, b->dx, at, b->scale * a->d->alpha);
    }
}

static void take_queries(const struct block *b, const struct ek_jagged_rows *q,
                         const struct ek_jagged_rows *g, int r)
{
    const struct ek_jagged_rows q4 = some_of(q, r), g4 = some_of(g, r);
    ek_avx512_jagged_pack_pairs(b->q_pairs + r / 2 * b->D, &q4, true);
    ek_avx512_jagged_pack_pairs(b->d_pairs + r / 2 * b->D, &g4, true);
    if (b->dtype == EK_DTYPE_F32) {
        ek_avx512_jagged_pack_rows(b->q_packed + r * b->D / 2, &q4, true);
        ek_avx512_jagged_pack_rows(b->d_packed + r * b->D / 2, &g4, true);
    }
}

static void backward_queries(struct block *b, struct course *c)
{
    const struct ek_jagged_args *a = b->a;
    const struct ek_jagged_rows q = rows_of(b, a->q, a->ldq, b->q0, b->h);
    const struct ek_jagged_rows d = rows_of(b, a->d_o, a->ldo, b->o0, b->h);
    const struct ek_jagged_rows dq = out_of(b, a->dq, a->ldq, b->q0, b->h);
    const float f = a->d->alpha * b->scale, factors[GROUP] = {f, f, f, f};
    struct part p = {.b = b, .c = c};
    for (p.r = 0; p.r < b->n; p.r += GROUP) {
        const char *q_line[GROUP], *d_line[GROUP], *line[GROUP];
        fetch(b, a->q, a->ldq, b->s.q0, b->i + p.r + AHEAD, GROUP);
        fetch(b, a->d_o, a->ldo, b->s.o0, b->i + p.r + AHEAD, GROUP);
        if (!b->is_streaming)
            fetch(b, a->dq, a->ldq, b->s.q0, b->i + p.r + AHEAD, GROUP);
        fetch_keys(b, b->i + LANES + p.r, GROUP);
        take_queries(b, &q, &d, p.r);
        lines_of(q_line, b, &q, b->q_packed, p.r);
        lines_of(d_line, b, &d, b->d_packed, p.r);
        for (int at = 0; at <= b->i + p.r; at += LANES) {
            const int nv = part_of(&p, at);
            if (has_places(a))
                backward_parts(&p, q_line, d_line, nv, true);
            else
                backward_parts(&p, q_line, d_line, nv, false);
        }
        lines_of_rows(line, c);
        product(b, &dq, p.r, line, 4, b->k_pairs, seen_words(b, p.r), factors);
    }
    backward_keys(b, c);
}

/* The tile's sums by place into its stage. */
static void end_places(const struct block *b, const struct course *c,
                       const struct ek_jagged_tile *t)
{
    int64_t n;
    float *sums = b->a->stage + t->stage;
    ek_jagged_first_diagonal(&n, b->a->d, &b->s, t);
    memset(sums, 0, (size_t)(n + EK_JAGGED_BUCKETS) * sizeof *sums);
    for (int64_t i = 0; i < b->s.Lq; i++)
        sums[i] =
            (c->places[0][i] + c->places[1][i]) + (c->places[2][i] + c->places[3][i]);
}

/* --- tiles --- */

static struct course *carve_causal(struct block *b, float *at)
{
    const int64_t keys = (int64_t)KEYS_MAX / 2 * b->D, queries = LANES / 2 * b->D;
    float **const of_queries[] = {&b->q_pairs, &b->d_pairs, &b->q_packed, &b->d_packed};
    b->k_turned = carve(&at, keys);
    b->v_turned = carve(&at, keys);
    b->k_pairs = carve(&at, keys);
    b->v_pairs = b->k_pairs; /* of the other direction */
    EK_UNROLL
    for (int i = 0; i < 4; i++)
        *of_queries[i] = carve(&at, queries);
    b->dk_sum = carve(&at, 2 * keys);
    b->dv_sum = carve(&at, 2 * keys);
    b->p = carve(&at, LANES / 2 * KEYS_MAX);
    b->dx = carve(&at, LANES / 2 * KEYS_MAX);
    return (struct course *)(void *)at;
}

void ek_avx512_jagged_causal(const struct ek_jagged_args *a,
                             const struct ek_jagged_tile *t, void *scratch,
                             bool is_backward)
{
    const int64_t G = a->d->H / a->d->K;
    const int64_t kv = is_backward ? t->h : t->h / G;
    const int64_t first = is_backward ? kv * G : t->h;
    struct block b = {.a = a,
                      .s = ek_jagged_seq_of(a->d, a->batch, t->b),
                      .D = a->d->D,
                      .dtype = a->d->dtype,
                      .is_backward = is_backward,
                      .is_streaming = is_streamed(a),
                      .n_keys = t->hi,
                      .scale = ek_jagged_scale_of(a, t->b)};
    struct course *c = carve_causal(&b, scratch);
    b.end = t->hi;
    c->gain = has_places(a) ? 1 : a->d->alpha;
    if (is_backward)
        memset(c->places, 0, sizeof c->places);
    b.h = first;
    fetch_keys(&b, 0, LANES);
    for (int64_t at = 0; !is_backward && at < t->lo; at += LANES) {
        fetch_keys(&b, at + LANES, LANES);
        take_keys(&b, at);
    }
    for (; b.h < (is_backward ? first + G : first + 1); b.h++)
        for (b.i = is_backward ? 0 : t->lo; b.i < t->hi; b.i += LANES) {
            if (b.h == first)
                take_keys(&b, b.i);
            b.n = (int)(t->hi - b.i < LANES ? t->hi - b.i : LANES);
            b.q0 = b.s.q0 + b.i;
            b.o0 = b.s.o0 + b.i;
            if (is_backward)
                backward_queries(&b, c);
            else
                forward_queries(&b, c);
        }
    if (is_backward && (a->dpos || a->dtime))
        end_places(&b, c, t);
    end_stores(&b);
}
