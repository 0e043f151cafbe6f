/* jagged.c - jagged attention in blocks of 64 queries by 64 keys, scores [query][key].
 * All is multiplied in f32: what BF16 products round is rounded when it is packed, and
 * P and dx are not. Nothing is ever padded but the block in hand, so there is nothing
 * to subtract (is_subtracting). */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/simd.h"
#include "kernel/jagged_int.h"
#include "num/float.h"

#include <math.h>
#include <string.h>

#define LANES 64

/* Keys in form, and the sums of their gradients; at[] by blocks of 64. */
struct keys {
    int64_t j0, n;           /* first; how many, 512 at most */
    float *k_turned, *value; /* [Dp][64] a block; v rows forward, v turned backward */
    float *k, *dk, *dv;      /* (n, Dp) backward */
};

/* A tile and up to 64 of its queries in hand. */
struct work {
    const struct ek_jagged_args *a;
    const struct ek_jagged_tile *t;
    struct ek_jagged_seq s;
    int64_t h, kv, Dp, i0;
    int n;
    float scale;
    struct ek_jagged_span span[LANES];
    int64_t first, end; /* of what any query sees */
    float *x, *dp;      /* [64][64] scores, then P or dx; dP */
    float *q, *d_o;     /* [64][Dp] */
    float *sums;        /* [64][Dp] o or dq */
    float m[LANES], l[LANES], lse[LANES], delta[LANES];
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static float *carve(float **at, int64_t n)
{
    float *p = *at;
    *at += n;
    return p;
}

/* C[r][lane] += sum over k of A[r*rs + k*ks] B[k][lane]: rows multiples of 4, lanes of
 * 16. */
static void product(float *C, int64_t ldc, const float *A, int64_t rs, int64_t ks,
                    const float *B, int64_t ldb, const int64_t size[3])
{
    const int64_t rows = size[0], lanes = size[1], n = size[2];
    for (int64_t r = 0; r < rows; r += 4)
        for (int64_t c = 0; c < lanes; c += 16) {
            __m256 sum[4][2];
            float *to = C + r * ldc + c;
            const float *a = A + r * rs, *b = B + c;
            EK_UNROLL
            for (int i = 0; i < 4; i++) {
                sum[i][0] = _mm256_loadu_ps(to + i * ldc);
                sum[i][1] = _mm256_loadu_ps(to + i * ldc + 8);
            }
            for (int64_t k = 0; k < n; k++, a += ks, b += ldb) {
                const __m256 low = _mm256_loadu_ps(b), high = _mm256_loadu_ps(b + 8);
                EK_UNROLL
                for (int i = 0; i < 4; i++) {
                    const __m256 y = _mm256_broadcast_ss(a + i * rs);
                    sum[i][0] = _mm256_fmadd_ps(y, low, sum[i][0]);
                    sum[i][1] = _mm256_fmadd_ps(y, high, sum[i][1]);
                }
            }
            EK_UNROLL
            for (int i = 0; i < 4; i++) {
                _mm256_storeu_ps(to + i * ldc, sum[i][0]);
                _mm256_storeu_ps(to + i * ldc + 8, sum[i][1]);
            }
        }
}

/* --- rows ------------------------------------------------------------------------ */

static float load(const void *x, enum ek_dtype t, int64_t at)
{
    return t == EK_DTYPE_F32 ? ((const float *)x)[at]
                             : ek_bf16_to_f32(((const uint16_t *)x)[at]);
}

/* to [64][Dp] = n rows from x[at] on, as they are multiplied; zeros beyond. */
static void pack(const struct work *w, float *to, const void *x, int64_t at, int64_t ld,
                 int64_t n)
{
    const int64_t D = w->a->d->D;
    const bool is_rounded = w->a->d->products == EK_DTYPE_BF16;
    memset(to, 0, (size_t)(LANES * w->Dp) * sizeof *to);
    for (int64_t r = 0; r < n; r++, at += ld, to += w->Dp) {
        for (int64_t c = 0; c < D; c++)
            to[c] = load(x, w->a->d->dtype, at + c);
        for (int64_t c = 0; is_rounded && c < D; c++)
            to[c] = ek_bf16_to_f32(ek_f32_to_bf16(to[c]));
    }
}

/* to [Dp][64] from rows [64][Dp]. */
static void turn(const struct work *w, float *to, const float *rows)
{
    for (int64_t c = 0; c < w->Dp; c++)
        for (int64_t r = 0; r < LANES; r++)
            to[c * LANES + r] = rows[r * w->Dp + c];
}

/* A row of y from sums (Dp), times f. */
static void unpack(const struct work *w, void *y, int64_t at, const float *sums,
                   float f)
{
    for (int64_t c = 0; c < w->a->d->D; c++)
        if (w->a->d->dtype == EK_DTYPE_F32)
            ((float *)y)[at + c] = f * sums[c];
        else
            ((uint16_t *)y)[at + c] = ek_f32_to_bf16(f * sums[c]);
}

static int64_t q_at(const struct work *w, int64_t i)
{
    return (w->s.q0 + i) * w->a->ldq + w->h * w->a->d->D;
}

static int64_t o_at(const struct work *w, int64_t i)
{
    return (w->s.o0 + i) * w->a->ldo + w->h * w->a->d->D;
}

static int64_t key_at(const struct work *w, int64_t ld, int64_t j)
{
    return (w->s.k0 + j) * ld + w->kv * w->a->d->D;
}

static void begin(struct work *w, const struct ek_jagged_args *a,
                  const struct ek_jagged_tile *t)
{
    w->a = a;
    w->t = t;
    w->s = ek_jagged_seq_of(a->d, a->batch, t->b);
    w->Dp = (a->d->D + 15) / 16 * 16;
    w->scale = a->d->score == EK_JAGGED_PHI ? ek_jagged_scale_of(a, t->b) : 1;
}

static void set_head(struct work *w, int64_t h)
{
    w->h = h;
    w->kv = h / (w->a->d->H / w->a->d->K);
}

/* Queries [i0, i0+n): their rows, what they see, and no sums. */
static void take_queries(struct work *w, int64_t i0, int64_t n)
{
    w->i0 = i0;
    w->n = (int)n;
    w->first = INT32_MAX;
    w->end = 0;
    for (int i = 0; i < n; i++) {
        const struct ek_jagged_span s =
            ek_jagged_span_of(&w->a->d->mask, w->t->b, w->s.Lq, w->s.Lk, i0 + i);
        w->span[i] = s;
        if (s.lo < s.hi) {
            w->first = least(w->first, s.lo);
            w->end = most(w->end, s.hi);
        }
        if (s.self >= 0) {
            w->first = least(w->first, s.self);
            w->end = most(w->end, s.self + 1);
        }
    }
    pack(w, w->q, w->a->q, q_at(w, i0), w->a->ldq, n);
    memset(w->sums, 0, (size_t)(LANES * w->Dp) * sizeof(float));
}

/* --- scores ---------------------------------------------------------------------- */

static int64_t padded(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* x [64][64] = rows . turned. */
static void multiply(const struct work *w, float *x, const float *rows,
                     const float *turned, int64_t n_keys)
{
    const int64_t size[] = {padded(w->n, 4), padded(n_keys, 16), w->Dp};
    for (int64_t i = 0; i < size[0]; i++)
        memset(x + i * LANES, 0, LANES * sizeof *x);
    product(x, LANES, rows, w->Dp, 1, turned, LANES, size);
}

static int bucket_at(const struct work *w, int64_t i, int64_t j)
{
    const struct ek_jagged_bias *b = w->a->bias;
    return ek_jagged_bucket(b->t_query[w->s.o0 + i] - b->t_key[w->s.k0 + j]);
}

static int64_t pair_at(const struct work *w, int64_t i, int64_t j)
{
    const struct ek_jagged_bias *b = w->a->bias;
    return b->pair_at[w->t->b] + w->h * b->pair_ld + i * w->s.Lk + j;
}

/* x = alpha x and the additive terms, of row i and keys [j0, j0+n). */
static void add_terms(const struct work *w, float *x, int64_t i, int64_t j0, int64_t n)
{
    const struct ek_jagged_bias *b = w->a->bias;
    for (int64_t j = 0; j < LANES; j++)
        x[j] *= w->a->d->alpha;
    if (!b)
        return;
    for (int64_t j = 0; b->pair && j < n; j++)
        x[j] += b->pair[pair_at(w, i, j0 + j)];
    for (int64_t j = 0; b->pos && j < n; j++)
        x[j] += b->pos[b->N - 1 + j0 + j - i];
    for (int64_t j = 0; b->time && j < n; j++)
        x[j] += b->time[bucket_at(w, i, j0 + j)];
}

/* Puts `none` where query i of the block does not see keys [j0, j0+n). */
static void hide(const struct work *w, float *x, int i, int64_t j0, int64_t n,
                 float none)
{
    const struct ek_jagged_span *s = &w->span[i];
    const int64_t lo = least(n, most(0, s->lo - j0)),
                  hi = most(lo, least(n, s->hi - j0));
    const int64_t self = s->self - j0;
    const bool is_beside = s->self >= 0 && self >= 0 && self < n;
    const float kept = is_beside ? x[self] : 0;
    for (int64_t j = 0; j < lo; j++)
        x[j] = none;
    for (int64_t j = hi; j < LANES; j++)
        x[j] = none;
    if (is_beside)
        x[self] = kept;
}

/* x = exp(x - top); returns their sum. */
static float weigh(float *x, float top)
{
    __m256 sum = _mm256_setzero_ps();
    for (int j = 0; j < LANES; j += 8) {
        const __m256 p =
            exp_ps(_mm256_sub_ps(_mm256_loadu_ps(x + j), _mm256_set1_ps(top)));
        _mm256_storeu_ps(x + j, p);
        sum = _mm256_add_ps(sum, p);
    }
    return sum_of_lanes(sum);
}

/* 1/(1 + exp(-x)) */
EK_INLINE __m256 sigmoid(__m256 x)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    return _mm256_div_ps(
        one, _mm256_add_ps(one, exp_ps(_mm256_sub_ps(_mm256_setzero_ps(), x))));
}

/* x = phi(x), grad its slope. */
static void activate(float *x, float *grad, enum ek_phi phi)
{
    const __m256 a = _mm256_set1_ps(2 * 0.79788456f), one = _mm256_set1_ps(1.0f);
    const __m256 c = _mm256_set1_ps(0.044715f), c3 = _mm256_set1_ps(3 * 0.044715f);
    if (phi != EK_PHI_SILU && phi != EK_PHI_GELU_TANH) {
        for (int j = 0; j < LANES; j++)
            x[j] = ek_phi_value(phi, x[j], &grad[j]);
        return;
    }
    for (int j = 0; j < LANES; j += 8) { /* x s(u), u = x or 2 a (x + c x^3) */
        const __m256 v = _mm256_loadu_ps(x + j), z = _mm256_mul_ps(v, v);
        __m256 u = v, du = one;
        if (phi == EK_PHI_GELU_TANH) {
            u = _mm256_mul_ps(_mm256_mul_ps(a, v), _mm256_fmadd_ps(c, z, one));
            du = _mm256_mul_ps(a, _mm256_fmadd_ps(c3, z, one));
        }
        const __m256 s = sigmoid(u), y = _mm256_mul_ps(v, s);
        _mm256_storeu_ps(x + j, y);
        _mm256_storeu_ps(grad + j, _mm256_fmadd_ps(_mm256_fnmadd_ps(y, s, y), du, s));
    }
}

/* --- forward --------------------------------------------------------------------- */

/* Scores of row i to weights; what was summed comes to the new largest. */
static void soften(struct work *w, int i, int64_t j0, int64_t n)
{
    float *x = w->x + i * LANES, top = w->m[i];
    bool is_nan = false;
    hide(w, x, i, j0, n, -INFINITY);
    for (int j = 0; j < LANES; j++) {
        top = x[j] > top ? x[j] : top;
        is_nan |= isnan(x[j]);
    }
    if (top == -INFINITY && !is_nan) { /* nothing seen so far */
        memset(x, 0, LANES * sizeof *x);
        return;
    }
    const float old = expf(w->m[i] - top);
    for (int64_t c = 0; old < 1 && c < w->Dp; c++)
        w->sums[i * w->Dp + c] *= old;
    w->l[i] = w->l[i] * old + weigh(x, top);
    w->m[i] = top;
}

static void forward_block(struct work *w, int64_t j0, int64_t n, const struct keys *k)
{
    float grad[LANES];
    multiply(w, w->x, w->q, k->k_turned, n);
    for (int i = 0; i < w->n; i++) {
        float *x = w->x + i * LANES;
        add_terms(w, x, w->i0 + i, j0, n);
        if (w->a->d->score == EK_JAGGED_SOFTMAX) {
            soften(w, i, j0, n);
            continue;
        }
        activate(x, grad, ek_jagged_phi_of(w->a->d, w->h));
        hide(w, x, i, j0, n, 0);
    }
    const int64_t size[] = {padded(w->n, 4), w->Dp, n};
    product(w->sums, w->Dp, w->x, LANES, 1, k->value, w->Dp, size);
}

void ek_avx2_jagged_forward(const struct ek_jagged_args *a, int64_t tile, void *scratch)
{
    struct work w;
    struct keys k;
    float *at = scratch;
    const struct ek_jagged_tile *t = &a->plan->fwd[tile];
    begin(&w, a, t);
    set_head(&w, t->h);
    w.x = carve(&at, LANES * LANES);
    w.q = carve(&at, LANES * w.Dp);
    w.sums = carve(&at, LANES * w.Dp);
    k.k_turned = carve(&at, LANES * w.Dp);
    k.value = carve(&at, LANES * w.Dp);
    for (int64_t i0 = t->lo; i0 < t->hi; i0 += LANES) {
        take_queries(&w, i0, least(LANES, t->hi - i0));
        for (int i = 0; i < LANES; i++) {
            w.m[i] = -INFINITY;
            w.l[i] = 0;
        }
        for (int64_t j = w.first / LANES * LANES; j < w.end; j += LANES) {
            const int64_t n = least(LANES, w.s.Lk - j);
            pack(&w, k.value, a->k, key_at(&w, a->ldk, j), a->ldk, n);
            turn(&w, k.k_turned, k.value);
            pack(&w, k.value, a->v, key_at(&w, a->ldv, j), a->ldv, n);
            forward_block(&w, j, n, &k);
        }
        for (int i = 0; i < w.n; i++) {
            const bool is_soft = a->d->score == EK_JAGGED_SOFTMAX;
            const float l = w.l[i], f = !is_soft ? w.scale : l <= 0 ? 0 : 1 / l;
            unpack(&w, a->o, o_at(&w, i0 + i), w.sums + i * w.Dp, f);
            if (is_soft && a->lse)
                a->lse[(w.s.o0 + i0 + i) * a->d->H + w.h] =
                    l <= 0 ? -INFINITY : w.m[i] + logf(l);
        }
    }
}

/* --- backward -------------------------------------------------------------------- */

static void take_keys(const struct work *w, struct keys *k, int64_t j0)
{
    const struct ek_jagged_args *a = w->a;
    const int64_t block = LANES * w->Dp;
    k->j0 = j0;
    k->n = least(EK_JAGGED_KEYS, w->t->hi - j0);
    for (int64_t j = 0; j < k->n; j += LANES) {
        const int64_t n = least(LANES, k->n - j);
        float *rows = k->k + j * w->Dp, *dk = k->dk + j * w->Dp;
        pack(w, dk, a->v, key_at(w, a->ldv, j0 + j), a->ldv, n);
        turn(w, k->value + j * w->Dp, dk);
        pack(w, rows, a->k, key_at(w, a->ldk, j0 + j), a->ldk, n);
        turn(w, k->k_turned + j * w->Dp, rows);
        memset(dk, 0, (size_t)block * sizeof *dk);
        memset(k->dv + j * w->Dp, 0, (size_t)block * sizeof *dk);
    }
}

static void give_keys(const struct work *w, const struct keys *k)
{
    const struct ek_jagged_args *a = w->a;
    for (int64_t j = 0; j < k->n; j++) {
        unpack(w, a->dk, key_at(w, a->ldk, k->j0 + j), k->dk + j * w->Dp,
               a->d->alpha * w->scale);
        unpack(w, a->dv, key_at(w, a->ldv, k->j0 + j), k->dv + j * w->Dp, w->scale);
    }
}

/* What row i's dx adds to the gradients of the additive terms. */
static void add_bias_grad(const struct work *w, const float *dx, int64_t i, int64_t j0,
                          int64_t n)
{
    const struct ek_jagged_args *a = w->a;
    const struct ek_jagged_span *s = &w->span[i - w->i0];
    int64_t count, first = ek_jagged_first_diagonal(&count, a->d, &w->s, w->t);
    float *sums = a->stage + w->t->stage;
    for (int64_t j = j0; j < j0 + n; j++) {
        if ((j < s->lo || j >= s->hi) && j != s->self)
            continue;
        const float g = w->scale * dx[j - j0];
        if (a->dpair)
            a->dpair[pair_at(w, i, j)] = g;
        if (a->dpos)
            sums[j - i - first] += g;
        if (a->dtime)
            sums[count + bucket_at(w, i, j)] += g;
    }
}

/* x = P, dp = dx, of row i. */
static void slopes(struct work *w, int i, int64_t j0, int64_t n)
{
    float *x = w->x + i * LANES, *dp = w->dp + i * LANES, grad[LANES];
    add_terms(w, x, w->i0 + i, j0, n);
    if (w->a->d->score == EK_JAGGED_SOFTMAX) {
        weigh(x, w->lse[i]);
        hide(w, x, i, j0, n, 0);
        for (int j = 0; j < LANES; j++)
            dp[j] = x[j] * (dp[j] - w->delta[i]);
    } else {
        activate(x, grad, ek_jagged_phi_of(w->a->d, w->h));
        hide(w, x, i, j0, n, 0);
        hide(w, grad, i, j0, n, 0);
        for (int j = 0; j < LANES; j++)
            dp[j] *= grad[j];
    }
    if (w->a->bias && (w->a->dpair || w->a->dpos || w->a->dtime))
        add_bias_grad(w, dp, w->i0 + i, j0, n);
}

static void backward_block(struct work *w, const struct keys *k, int64_t j0)
{
    const int64_t n = least(LANES, k->j0 + k->n - j0), at = (j0 - k->j0) * w->Dp;
    const int64_t rows = padded(w->n, 4);
    multiply(w, w->x, w->q, k->k_turned + at, n);
    multiply(w, w->dp, w->d_o, k->value + at, n);
    for (int i = 0; i < w->n; i++)
        slopes(w, i, j0, n);
    for (int64_t i = w->n; i < rows; i++) { /* phi(0) need not be 0 */
        memset(w->x + i * LANES, 0, LANES * sizeof(float));
        memset(w->dp + i * LANES, 0, LANES * sizeof(float));
    }
    const int64_t by_key[] = {padded(n, 4), w->Dp, w->n}, by_row[] = {rows, w->Dp, n};
    product(k->dv + at, w->Dp, w->x, 1, LANES, w->d_o, w->Dp, by_key);
    product(k->dk + at, w->Dp, w->dp, 1, LANES, w->q, w->Dp, by_key);
    product(w->sums, w->Dp, w->dp, LANES, 1, k->k + at, w->Dp, by_row);
}

/* The queries' gradients so far: set where they belong, or staged. */
static void give_queries(const struct work *w, bool is_first)
{
    const struct ek_jagged_args *a = w->a;
    const float f = a->d->alpha * w->scale;
    for (int i = 0; i < w->n; i++) {
        const float *sums = w->sums + i * w->Dp;
        if (ek_jagged_is_direct(a->d, &w->s)) {
            unpack(w, a->dq, q_at(w, w->i0 + i), sums, f);
            continue;
        }
        float *to = ek_jagged_stage_row(a, &w->s, w->t, w->i0 + i, w->h);
        for (int64_t c = 0; c < a->d->D; c++)
            to[c] = (is_first ? 0 : to[c]) + f * sums[c];
    }
}

static void backward_queries(struct work *w, const struct keys *k, int64_t i0,
                             int64_t n)
{
    const struct ek_jagged_args *a = w->a;
    take_queries(w, i0, n);
    pack(w, w->d_o, a->d_o, o_at(w, i0), a->ldo, n);
    for (int i = 0; a->d->score == EK_JAGGED_SOFTMAX && i < n; i++) {
        w->delta[i] = 0;
        for (int64_t c = 0; c < a->d->D; c++)
            w->delta[i] +=
                w->d_o[i * w->Dp + c] * load(a->o, a->d->dtype, o_at(w, i0 + i) + c);
        w->lse[i] = a->lse[(w->s.o0 + i0 + i) * a->d->H + w->h];
    }
    int64_t first = most(w->first, k->j0), end = least(w->end, k->j0 + k->n);
    first -= (first - k->j0) % LANES;
    for (int64_t j = first; j < end; j += LANES)
        backward_block(w, k, j);
    give_queries(w, k->j0 == w->t->lo);
}

void ek_avx2_jagged_backward(const struct ek_jagged_args *a, int64_t tile,
                             void *scratch)
{
    struct work w;
    struct keys k;
    float *at = scratch;
    const struct ek_jagged_tile *t = &a->plan->bwd[tile];
    const int64_t G = a->d->H / a->d->K;
    int64_t i0, i1, n;
    begin(&w, a, t);
    set_head(&w, t->h * G);
    w.x = carve(&at, LANES * LANES);
    w.dp = carve(&at, LANES * LANES);
    w.q = carve(&at, LANES * w.Dp);
    w.d_o = carve(&at, LANES * w.Dp);
    w.sums = carve(&at, LANES * w.Dp);
    k.k_turned = carve(&at, EK_JAGGED_KEYS * w.Dp);
    k.value = carve(&at, EK_JAGGED_KEYS * w.Dp);
    k.k = carve(&at, EK_JAGGED_KEYS * w.Dp);
    k.dk = carve(&at, EK_JAGGED_KEYS * w.Dp);
    k.dv = carve(&at, EK_JAGGED_KEYS * w.Dp);
    ek_jagged_tile_queries(&i0, &i1, a->d, &w.s, t);
    if (a->dpos || a->dtime) {
        ek_jagged_first_diagonal(&n, a->d, &w.s, t);
        memset(a->stage + t->stage, 0, (size_t)(n + EK_JAGGED_BUCKETS) * sizeof(float));
    }
    for (int64_t j = t->lo; j == t->lo || j < t->hi; j += EK_JAGGED_KEYS) {
        take_keys(&w, &k, j);
        for (int64_t g = 0; g < G; g++) {
            set_head(&w, t->h * G + g);
            for (int64_t i = i0; i < i1; i += LANES)
                backward_queries(&w, &k, i, least(LANES, i1 - i));
        }
        give_keys(&w, &k);
    }
}
