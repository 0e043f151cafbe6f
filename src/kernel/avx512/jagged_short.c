/* jagged_short.c - activations over few keys without a mask (GDPA), with products in
 * bf16 (jagged_rows.h): up to 128 keys lie in the cache in every form while all queries
 * pass by, so that a score is made, used and forgotten. dk and dv are summed in f32 in
 * the order of queries. Keys past the end are zeros, and so are phi(0) and what
 * follows.
 */
#include "kernel/avx512/jagged_phi.h"
#include "kernel/avx512/jagged_rows.h"

#define KEYS_MAX (2 * LANES)

/* What a group of queries works in beside b. */
struct group {
    float p[GROUP * LANES], grad[GROUP * LANES], dp[GROUP * LANES]; /* [row][nv][16] */
    float rows[GROUP * KEYS_MAX / 2]; /* P or dx in bf16: [row][ld/2] */
};

bool ek_avx512_jagged_is_short(const struct ek_jagged_args *a,
                               const struct ek_jagged_seq *s)
{
    const struct ek_jagged_dims *d = a->d;
    const struct ek_jagged_mask *m = &d->mask;
    return d->score == EK_JAGGED_PHI && d->products == EK_DTYPE_BF16 && !m->is_causal &&
           m->window <= 0 && m->block <= 0 && !a->bias && !d->is_broadcast_q &&
           d->D % 32 == 0 && s->Lk >= 1 && s->Lk <= KEYS_MAX;
}

EK_INLINE void scores_of(float *to, const char *const line[GROUP], const float *turned,
                         int64_t words, const int NV)
{
    __m512 x[GROUP][4];
    multiply(x, line, 4, turned, LANES, words, NV);
    for (int i = 0; i < GROUP; i++)
        for (int v = 0; v < NV; v++)
            _mm512_store_ps(to + (i * NV + v) * 16, x[i][v]);
}

/* Products of four rows with 16 nv keys. */
static void scores(float *to, const char *const line[GROUP], const float *turned,
                   int64_t words, int nv)
{
    switch (nv) {
    case 1:
        scores_of(to, line, turned, words, 1);
        break;
    case 2:
        scores_of(to, line, turned, words, 2);
        break;
    case 3:
        scores_of(to, line, turned, words, 3);
        break;
    default:
        scores_of(to, line, turned, words, 4);
        break;
    }
}

/* p = phi(alpha p), n vectors; grad: its slope, or NULL. */
static void activate(float *p, float *grad, int n, float alpha, enum ek_phi phi)
{
    const __m512 factor = _mm512_set1_ps(alpha);
    switch (phi) {
#define X(suffix, name)                                                                \
    case EK_PHI_##suffix:                                                              \
        for (int i = 0; i < n; i++) {                                                  \
            __m512 slope, x = _mm512_mul_ps(factor, _mm512_load_ps(p + 16 * i));       \
            _mm512_store_ps(p + 16 * i, phi_of(x, &slope, EK_PHI_##suffix, true));     \
            if (grad)                                                                  \
                _mm512_store_ps(grad + 16 * i, slope);                                 \
        }                                                                              \
        break;
        EK_PHI_TABLE(X)
#undef X
    case EK_PHI_COUNT:
        break;
    }
}

/* [row][nv][16] as bf16 rows, ld/2 words apart. */
static void keep_as_rows(float *to, int64_t ld, const float *x, int nv)
{
    for (int i = 0; i < GROUP; i++, x += 16 * nv)
        for (int v = 0; v < nv; v++)
            _mm256_store_si256((void *)(to + i * ld / 2 + 8 * v),
                               (__m256i)_mm512_cvtneps_pbh(_mm512_load_ps(x + 16 * v)));
}

/* The same as pairs of queries, ld words apart. */
static void keep_as_pairs(float *to, int64_t ld, const float *x, int nv)
{
    for (int i = 0; i < GROUP; i += 2)
        for (int v = 0; v < nv; v++) {
            const __m512 low = _mm512_load_ps(x + (i * nv + v) * 16);
            const __m512 high = _mm512_load_ps(x + ((i + 1) * nv + v) * 16);
            _mm512_store_si512(to + i / 2 * ld + 16 * v,
                               pair_words((__m512i)_mm512_cvtne2ps_pbh(high, low)));
        }
}

/* Rows [i, i+64) of the queries. */
static void set_queries(struct block *b, int64_t i)
{
    b->i = i;
    b->n = (int)(b->end - i < LANES ? b->end - i : LANES);
    b->q0 = b->s.q0 + i;
    b->o0 = b->s.o0 + i;
}

/* Vectors of keys of half `at` (0 or 64). */
static int n_vectors(const struct block *b, int at)
{
    const int n = b->n_keys - at;
    return n >= LANES ? LANES / 16 : (n + 15) / 16;
}

static int64_t key_words(const struct block *b)
{
    return (int64_t)(b->n_keys + 15) / 16 * 8;
}

/* The keys of kv head kv in the forms of this direction. */
static void take_keys(struct block *b, int64_t kv)
{
    const struct ek_jagged_args *a = b->a;
    for (int at = 0; at < b->n_keys; at += LANES) {
        b->n = b->n_keys - at < LANES ? b->n_keys - at : LANES;
        const struct ek_jagged_rows k = rows_of(b, a->k, a->ldk, b->s.k0 + at, kv);
        const struct ek_jagged_rows v = rows_of(b, a->v, a->ldv, b->s.k0 + at, kv);
        const int64_t half = (int64_t)at * b->D / 2;
        ek_avx512_jagged_pack_turned(b->k_turned + half, &k, true);
        if (b->is_backward)
            ek_avx512_jagged_pack_turned(b->v_turned + half, &v, true);
        ek_avx512_jagged_pack_pairs((b->is_backward ? b->k_pairs : b->v_pairs) + half,
                                    b->is_backward ? &k : &v, true);
    }
}

static void lines_of_rows(const char *line[GROUP], const float *rows, int64_t ld)
{
    for (int i = 0; i < GROUP; i++)
        line[i] = (const char *)(rows + i * ld / 2);
}

/* --- 64 keys whole: from scores to weights and slopes in registers --- */

EK_INLINE void rows_of_64(const struct block *b, struct group *g, int at,
                          __m512 x[GROUP][4])
{
    EK_UNROLL
    for (int i = 0; i < GROUP; i++) {
        EK_UNROLL
        for (int v = 0; v < 4; v += 2)
            _mm512_store_si512(g->rows + (i * b->ld + at) / 2 + 8 * v,
                               (__m512i)_mm512_cvtne2ps_pbh(x[i][v + 1], x[i][v]));
    }
}

EK_INLINE void pairs_of_64(const struct block *b, float *to, __m512 x[GROUP][4])
{
    EK_UNROLL
    for (int i = 0; i < GROUP; i += 2) {
        EK_UNROLL
        for (int v = 0; v < 4; v++)
            _mm512_store_si512(
                to + i / 2 * b->ld + 16 * v,
                pair_words((__m512i)_mm512_cvtne2ps_pbh(x[i + 1][v], x[i][v])));
    }
}

/* P of four queries; grad: its slopes, or NULL. */
EK_INLINE void weigh_64(const struct block *b, __m512 x[GROUP][4], float *grad,
                        const char *const line[GROUP], int at, const enum ek_phi phi)
{
    const __m512 alpha = _mm512_set1_ps(b->a->d->alpha);
    multiply(x, line, 4, b->k_turned + (int64_t)at * b->D / 2, LANES, b->D / 2, 4);
    EK_UNROLL
    for (int i = 0; i < GROUP; i++) {
        EK_UNROLL
        for (int v = 0; v < 4; v++) {
            __m512 slope;
            x[i][v] = phi_of(_mm512_mul_ps(alpha, x[i][v]), &slope, phi, true);
            if (grad)
                _mm512_store_ps(grad + (4 * i + v) * 16, slope);
        }
    }
}

EK_INLINE void forward_64(const struct block *b, struct group *g,
                          const char *const line[GROUP], int at, const enum ek_phi phi)
{
    __m512 x[GROUP][4];
    weigh_64(b, x, NULL, line, at, phi);
    rows_of_64(b, g, at, x);
}

EK_INLINE void slopes_64(const struct block *b, struct group *g,
                         const char *const q[GROUP], const char *const d[GROUP], int r,
                         int at, const enum ek_phi phi)
{
    const int64_t pair = (int64_t)r / 2 * b->ld + at;
    __m512 x[GROUP][4];
    weigh_64(b, x, g->grad, q, at, phi);
    pairs_of_64(b, b->p + pair, x);
    multiply(x, d, 4, b->v_turned + (int64_t)at * b->D / 2, LANES, b->D / 2, 4);
    EK_UNROLL
    for (int i = 0; i < GROUP; i++) {
        EK_UNROLL
        for (int v = 0; v < 4; v++)
            x[i][v] =
                _mm512_mul_ps(x[i][v], _mm512_load_ps(g->grad + (4 * i + v) * 16));
    }
    keep_both(g->rows + at / 2, b->ld / 2, b->dx + pair, b->ld, x, 4);
}

/* --- forward --- */

static void weigh(const struct block *b, struct group *g, const char *const line[GROUP],
                  int at)
{
    const int nv = n_vectors(b, at);
    if (nv == 4) {
        switch (b->phi) {
#define X(suffix, name)                                                                \
    case EK_PHI_##suffix:                                                              \
        forward_64(b, g, line, at, EK_PHI_##suffix);                                   \
        return;
            EK_PHI_TABLE(X)
#undef X
        case EK_PHI_COUNT:
            return;
        }
    }
    scores(g->p, line, b->k_turned + (int64_t)at * b->D / 2, b->D / 2, nv);
    activate(g->p, NULL, GROUP * nv, b->a->d->alpha, b->phi);
    keep_as_rows(g->rows + at / 2, b->ld, g->p, nv);
}

static void forward_queries(struct block *b, struct group *g)
{
    const struct ek_jagged_args *a = b->a;
    const struct ek_jagged_rows q = rows_of(b, a->q, a->ldq, b->q0, b->h);
    const struct ek_jagged_rows o = out_of(b, a->o, a->ldo, b->o0, b->h);
    const float scales[GROUP] = {b->scale, b->scale, b->scale, b->scale};
    if (b->dtype == EK_DTYPE_F32)
        ek_avx512_jagged_pack_rows(b->q_packed, &q, true);
    for (int r = 0; r < b->n; r += GROUP) {
        const char *line[GROUP];
        fetch(b, a->q, a->ldq, b->s.q0, b->i + r + AHEAD, GROUP);
        if (!b->is_streaming)
            fetch(b, a->o, a->ldo, b->s.o0, b->i + r + AHEAD, GROUP);
        lines_of(line, b, &q, b->q_packed, r);
        for (int at = 0; at < b->n_keys; at += LANES)
            weigh(b, g, line, at);
        lines_of_rows(line, g->rows, b->ld);
        product(b, &o, r, line, 4, b->v_pairs, key_words(b), scales);
    }
}

/* --- backward --- */

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

/* P and dx of four queries and a half of the keys. */
static void slopes(const struct block *b, struct group *g, const char *const q[GROUP],
                   const char *const d[GROUP], int r, int at)
{
    const int nv = n_vectors(b, at);
    const int64_t half = (int64_t)at * b->D / 2, pair = (int64_t)r / 2 * b->ld + at;
    if (nv == 4) {
        switch (b->phi) {
#define X(suffix, name)                                                                \
    case EK_PHI_##suffix:                                                              \
        slopes_64(b, g, q, d, r, at, EK_PHI_##suffix);                                 \
        return;
            EK_PHI_TABLE(X)
#undef X
        case EK_PHI_COUNT:
            return;
        }
    }
    scores(g->p, q, b->k_turned + half, b->D / 2, nv);
    activate(g->p, g->grad, GROUP * nv, b->a->d->alpha, b->phi);
    keep_as_pairs(b->p + pair, b->ld, g->p, nv);
    scores(g->dp, d, b->v_turned + half, b->D / 2, nv);
    for (int i = 0; i < GROUP * nv; i++)
        _mm512_store_ps(g->dp + 16 * i, _mm512_mul_ps(_mm512_load_ps(g->grad + 16 * i),
                                                      _mm512_load_ps(g->dp + 16 * i)));
    keep_as_pairs(b->dx + pair, b->ld, g->dp, nv);
    keep_as_rows(g->rows + at / 2, b->ld, g->dp, nv);
}

EK_INLINE void accumulate_columns(const struct block *b, float *to,
                                  const char *const line[GROUP], const float *B,
                                  int64_t n, const int NV)
{
    __m512 x[GROUP][4];
    multiply(x, line, b->ld * 4, B, b->D, n, NV);
    for (int i = 0; i < GROUP; i++)
        for (int v = 0; v < NV; v++) {
            float *at = to + i * b->D + 16 * v;
            _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), x[i][v]));
        }
}

/* sums [keys][D] += pairs turned . B, over the block's queries. */
static void accumulate(const struct block *b, float *sums, const float *pairs,
                       const float *B)
{
    const int64_t n = (b->n + GROUP - 1) / GROUP * (GROUP / 2);
    for (int r = 0; r < b->n_keys; r += GROUP) {
        const char *line[GROUP];
        for (int i = 0; i < GROUP; i++)
            line[i] = (const char *)(pairs + r + i);
        int64_t c = 0;
        for (; c + 64 <= b->D; c += 64)
            accumulate_columns(b, sums + r * b->D + c, line, B + c, n, 4);
        if (c < b->D)
            accumulate_columns(b, sums + r * b->D + c, line, B + c, n, 2);
    }
}

static void backward_queries(struct block *b, struct group *g)
{
    const struct ek_jagged_args *a = b->a;
    const struct ek_jagged_rows q = rows_of(b, a->q, a->ldq, b->q0, b->h);
    const struct ek_jagged_rows d = rows_of(b, a->d_o, a->ldo, b->o0, b->h);
    const struct ek_jagged_rows dq = out_of(b, a->dq, a->ldq, b->q0, b->h);
    const float f = a->d->alpha * b->scale, factors[GROUP] = {f, f, f, f};
    for (int r = 0; r < b->n; r += GROUP) {
        const char *q_line[GROUP], *d_line[GROUP], *line[GROUP];
        fetch(b, a->q, a->ldq, b->s.q0, b->i + r + AHEAD, GROUP);
        fetch(b, a->d_o, a->ldo, b->s.o0, b->i + r + AHEAD, GROUP);
        if (!b->is_streaming)
            fetch(b, a->dq, a->ldq, b->s.q0, b->i + r + AHEAD, GROUP);
        take_queries(b, &q, &d, r);
        lines_of(q_line, b, &q, b->q_packed, r);
        lines_of(d_line, b, &d, b->d_packed, r);
        for (int at = 0; at < b->n_keys; at += LANES)
            slopes(b, g, q_line, d_line, r, at);
        lines_of_rows(line, g->rows, b->ld);
        product(b, &dq, r, line, 4, b->k_pairs, key_words(b), factors);
    }
    accumulate(b, b->dv_sum, b->p, b->d_pairs);
    accumulate(b, b->dk_sum, b->dx, b->q_pairs);
}

static void end_keys(struct block *b, int64_t kv)
{
    const struct ek_jagged_args *a = b->a;
    b->n = b->n_keys;
    const struct ek_jagged_rows dk = out_of(b, a->dk, a->ldk, b->s.k0, kv);
    const struct ek_jagged_rows dv = out_of(b, a->dv, a->ldv, b->s.k0, kv);
    ek_avx512_jagged_unpack(&dk, b->dk_sum, a->d->alpha * b->scale);
    ek_avx512_jagged_unpack(&dv, b->dv_sum, b->scale);
}

/* --- tiles --- */

static struct group *carve_short(struct block *b, float *at)
{
    const int64_t keys = (int64_t)KEYS_MAX / 2 * b->D, queries = LANES / 2 * b->D;
    float **const of_keys[] = {&b->k_turned, &b->v_turned, &b->k_pairs, &b->v_pairs};
    float **const of_queries[] = {&b->q_pairs, &b->d_pairs, &b->q_packed, &b->d_packed};
    for (int i = 0; i < 4; i++) {
        *of_keys[i] = carve(&at, keys);
        *of_queries[i] = carve(&at, queries);
    }
    b->dk_sum = carve(&at, 2 * keys);
    b->dv_sum = carve(&at, 2 * keys);
    b->p = carve(&at, LANES / 2 * KEYS_MAX);
    b->dx = carve(&at, LANES / 2 * KEYS_MAX);
    return (struct group *)(void *)at;
}

void ek_avx512_jagged_short(const struct ek_jagged_args *a,
                            const struct ek_jagged_tile *t, void *scratch,
                            bool is_backward)
{
    const int64_t G = a->d->H / a->d->K;
    struct block b;
    b.a = a;
    b.s = ek_jagged_seq_of(a->d, a->batch, t->b);
    b.D = a->d->D;
    b.dtype = a->d->dtype;
    b.is_backward = is_backward;
    b.is_streaming = is_streamed(a);
    b.n_keys = (int)b.s.Lk;
    b.ld = b.n_keys <= LANES ? LANES : KEYS_MAX;
    b.scale = ek_jagged_scale_of(a, t->b);
    struct group *g = carve_short(&b, scratch);
    const int64_t kv = is_backward ? t->h : t->h / G;
    const int64_t first = is_backward ? kv * G : t->h;
    take_keys(&b, kv);
    if (is_backward) { /* both: one behind the other */
        memset(b.dk_sum, 0, 2 * KEYS_MAX * (size_t)b.D * sizeof(float));
    }
    for (b.h = first; b.h < (is_backward ? first + G : first + 1); b.h++) {
        const int64_t lo = is_backward ? 0 : t->lo;
        b.end = is_backward ? b.s.Lq : t->hi;
        b.phi = ek_jagged_phi_of(a->d, b.h);
        for (int64_t i = lo; i < b.end; i += LANES) {
            set_queries(&b, i);
            if (is_backward)
                backward_queries(&b, g);
            else
                forward_queries(&b, g);
        }
    }
    if (is_backward)
        end_keys(&b, kv);
    end_stores(&b);
}
