/* jagged_score.c - from scores to P and dx, a vector of queries at a time. */
#include "kernel/avx512/attn_softmax.h"
#include "kernel/avx512/jagged_tile.h"

/* 1/x: 2^-14 relative, for what becomes bf16; one step of Newton's to 2e-7. */
EK_INLINE __m512 inverse(__m512 x, const bool is_bf16)
{
    __m512 y = _mm512_rcp14_ps(x);
    if (is_bf16)
        return y;
    return _mm512_mul_ps(y, _mm512_fnmadd_ps(x, y, _mm512_set1_ps(2.0f)));
}

EK_INLINE __m512 exp2_as(__m512 x, const bool is_bf16)
{
    return exp2_ps(x, is_bf16 ? 4 : 6);
}

/* 1/(1 + exp(-x)); the exponent is held below where 1/x would lose its Newton step. */
EK_INLINE __m512 sigmoid(__m512 x, const bool is_bf16)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    x = _mm512_min_ps(_mm512_mul_ps(x, _mm512_set1_ps(-LOG2E)), _mm512_set1_ps(120.0f));
    return inverse(_mm512_add_ps(one, exp2_as(x, is_bf16)), is_bf16);
}

/* x Phi(x). Phi by Abramowitz and Stegun 7.1.26 (1.5e-7). */
EK_INLINE __m512 gelu(__m512 x, __m512 *grad)
{
    const __m512 one = _mm512_set1_ps(1.0f), half = _mm512_set1_ps(0.5f);
    const __m512 e = exp2_as(
        _mm512_mul_ps(_mm512_mul_ps(x, x), _mm512_set1_ps(-0.5f * LOG2E)), false);
    const __m512 t =
        inverse(_mm512_fmadd_ps(_mm512_abs_ps(x),
                                _mm512_set1_ps(0.3275911f * 0.70710678f), one),
                false);
    __m512 p = _mm512_set1_ps(1.061405429f);
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(-1.453152027f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(1.421413741f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(-0.284496736f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(0.254829592f));
    /* the tail beyond |x| */
    const __m512 tail = _mm512_mul_ps(half, _mm512_mul_ps(_mm512_mul_ps(p, t), e));
    const __mmask16 is_below = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
    const __m512 cdf = _mm512_mask_mov_ps(_mm512_sub_ps(one, tail), is_below, tail);
    *grad = _mm512_fmadd_ps(_mm512_mul_ps(x, _mm512_set1_ps(0.39894228f)), e, cdf);
    return _mm512_mul_ps(x, cdf);
}

/* x (1 + tanh u)/2 = x s with s = sigmoid(2 u). */
EK_INLINE __m512 gelu_tanh(__m512 x, __m512 *grad, const bool is_bf16)
{
    const __m512 a = _mm512_set1_ps(2 * 0.79788456f);
    const __m512 ab = _mm512_set1_ps(2 * 0.79788456f * 0.044715f);
    const __m512 ab3 = _mm512_set1_ps(6 * 0.79788456f * 0.044715f);
    const __m512 z = _mm512_mul_ps(x, x);
    const __m512 s = sigmoid(_mm512_mul_ps(x, _mm512_fmadd_ps(ab, z, a)), is_bf16);
    const __m512 y = _mm512_mul_ps(x, s);
    /* s + x s (1-s) (2u)' */
    *grad = _mm512_fmadd_ps(_mm512_fnmadd_ps(y, s, y), _mm512_fmadd_ps(ab3, z, a), s);
    return y;
}

/* The polynomial, and gelu for lanes beyond its range, where there are any. */
EK_INLINE __m512 gelu_poly(__m512 x, __m512 *grad)
{
    const __m512 z = _mm512_mul_ps(x, x), half = _mm512_set1_ps(0.5f);
    __m512 p = _mm512_fmadd_ps(z, _mm512_set1_ps(EK_PHI_POLY_C6),
                               _mm512_set1_ps(EK_PHI_POLY_C4));
    __m512 g = _mm512_fmadd_ps(z, _mm512_set1_ps(6 * EK_PHI_POLY_C6),
                               _mm512_set1_ps(4 * EK_PHI_POLY_C4));
    p = _mm512_fmadd_ps(z, p, _mm512_set1_ps(EK_PHI_POLY_C2));
    g = _mm512_fmadd_ps(z, g, _mm512_set1_ps(2 * EK_PHI_POLY_C2));
    p = _mm512_fmadd_ps(z, p, _mm512_mul_ps(half, x));
    *grad = _mm512_fmadd_ps(x, g, half);
    const __mmask16 is_far = _mm512_cmp_ps_mask(
        _mm512_abs_ps(x), _mm512_set1_ps(EK_PHI_POLY_RANGE), _CMP_NLE_UQ);
    if (is_far) {
        __m512 far_grad, far = gelu(x, &far_grad);
        p = _mm512_mask_mov_ps(p, is_far, far);
        *grad = _mm512_mask_mov_ps(*grad, is_far, far_grad);
    }
    return p;
}

EK_INLINE __m512 hardswish(__m512 x, __m512 *grad)
{
    const __m512 zero = _mm512_setzero_ps(), six = _mm512_set1_ps(6.0f);
    const __m512 sixth = _mm512_set1_ps(1.0f / 6), three = _mm512_set1_ps(3.0f);
    __m512 up = _mm512_add_ps(x, three);
    __m512 g = _mm512_mul_ps(_mm512_add_ps(x, up), sixth);
    g = _mm512_mask_mov_ps(g, _mm512_cmp_ps_mask(up, zero, _CMP_LE_OQ), zero);
    *grad = _mm512_mask_mov_ps(g, _mm512_cmp_ps_mask(x, three, _CMP_GE_OQ),
                               _mm512_set1_ps(1.0f));
    up = _mm512_min_ps(_mm512_max_ps(up, zero), six);
    return _mm512_mul_ps(_mm512_mul_ps(x, up), sixth);
}

/* phi(x) and its gradient, as kernel/phi.h has them. */
EK_INLINE __m512 phi_of(__m512 x, __m512 *grad, const enum ek_phi phi,
                        const bool is_bf16)
{
    const __m512 one = _mm512_set1_ps(1.0f), zero = _mm512_setzero_ps();
    const __mmask16 is_up = _mm512_cmp_ps_mask(x, zero, _CMP_GT_OQ);
    if (phi == EK_PHI_GELU)
        return gelu(x, grad);
    if (phi == EK_PHI_GELU_TANH)
        return gelu_tanh(x, grad, is_bf16);
    if (phi == EK_PHI_GELU_POLY)
        return gelu_poly(x, grad);
    if (phi == EK_PHI_HARDSWISH)
        return hardswish(x, grad);
    if (phi == EK_PHI_SILU) {
        const __m512 s = sigmoid(x, is_bf16), y = _mm512_mul_ps(x, s);
        *grad = _mm512_add_ps(s, _mm512_fnmadd_ps(y, s, y));
        return y;
    }
    if (phi == EK_PHI_LEAKY_RELU) {
        *grad = _mm512_mask_mov_ps(_mm512_set1_ps(0.01f), is_up, one);
        return _mm512_mul_ps(x, *grad);
    }
    if (phi == EK_PHI_RELU) {
        *grad = _mm512_maskz_mov_ps(is_up, one);
        return _mm512_maskz_mov_ps(is_up, x);
    }
    if (phi == EK_PHI_RELU2) {
        const __m512 y = _mm512_maskz_mov_ps(is_up, x);
        *grad = _mm512_add_ps(y, y);
        return _mm512_mul_ps(y, y);
    }
    *grad = one;
    return x;
}

/* Of keys r and r+1, vector v: */
EK_INLINE void store_pairs(float *pairs, int r, int v, const __m512 x[2],
                           const bool is_bf16)
{
    if (is_bf16) {
        _mm512_store_si512(pairs + r / 2 * LANES + 16 * v,
                           pair_words((__m512i)_mm512_cvtne2ps_pbh(x[1], x[0])));
        return;
    }
    _mm512_store_ps(pairs + r * LANES + 16 * v, x[0]);
    _mm512_store_ps(pairs + (r + 1) * LANES + 16 * v, x[1]);
}

EK_INLINE void store_rows(float *rows, float *pairs, int r, int v, const __m512 x[2],
                          const bool is_bf16)
{
    if (!is_bf16) {
        store_pairs(rows, r, v, x, false);
        return;
    }
    float *to = rows + (r * LANES + 16 * v) / 2;
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(x[1], x[0]);
    _mm256_store_si256((void *)to, _mm512_castsi512_si256(both));
    _mm256_store_si256((void *)(to + LANES / 2), _mm512_extracti64x4_epi64(both, 1));
    if (pairs)
        _mm512_store_si512(pairs + r / 2 * LANES + 16 * v, pair_words(both));
}

static float alpha_of(const struct ek_jagged_work *w)
{
    return w->a->bias ? 1.0f : w->a->d->alpha; /* else it is in the score already */
}

EK_INLINE void phi_rows(const struct ek_jagged_work *w, const enum ek_phi phi,
                        const bool is_bf16)
{
    const __m512 alpha = _mm512_set1_ps(alpha_of(w));
    for (const struct ek_jagged_run *run = w->run; run < w->run + w->n_runs; run++)
        for (int r = run->r0; r < run->r1; r += 2)
            for (int v = run->v0; v < run->v1; v++) {
                __m512 p[2], grad;
                for (int i = 0; i < 2; i++) {
                    const float *s = w->score + (r + i) * LANES + 16 * v;
                    p[i] = phi_of(_mm512_mul_ps(alpha, _mm512_load_ps(s)), &grad, phi,
                                  is_bf16);
                    if (run->is_cut)
                        p[i] =
                            _mm512_maskz_mov_ps(seen_of(w->q, v, w->j0 + r + i), p[i]);
                }
                store_pairs(w->x_pairs, r, v, p, is_bf16);
            }
}

void ek_avx512_jagged_phi(struct ek_jagged_work *w)
{
    switch (w->phi) {
#define X(suffix, name)                                                                \
    case EK_PHI_##suffix:                                                              \
        if (w->is_bf16)                                                                \
            phi_rows(w, EK_PHI_##suffix, true);                                        \
        else                                                                           \
            phi_rows(w, EK_PHI_##suffix, false);                                       \
        break;
        EK_PHI_TABLE(X)
#undef X
    case EK_PHI_COUNT:
        break;
    }
}

/* Scores in units of log2, -inf where masked; the largest of vector v. */
EK_INLINE __m512 largest_of(const struct ek_jagged_work *w,
                            const struct ek_jagged_run *run, int v, __m512 factor)
{
    const __m512 none = _mm512_set1_ps(-INFINITY);
    __m512 top = none;
    for (int r = run->r0; r < run->r1; r++) {
        float *at = w->score + r * LANES + 16 * v;
        __m512 s = _mm512_mul_ps(factor, _mm512_load_ps(at));
        if (run->is_cut)
            s = _mm512_mask_mov_ps(none, seen_of(w->q, v, w->j0 + r), s);
        _mm512_store_ps(at, s);
        top = _mm512_max_ps(top, s);
    }
    return top;
}

/* Brings the sums of vector v to a new largest. */
static void rescale(const struct ek_jagged_work *w, int v, __m512 old)
{
    struct ek_jagged_queries *q = w->q;
    _mm512_store_ps(q->l + 16 * v, _mm512_mul_ps(old, _mm512_load_ps(q->l + 16 * v)));
    for (int64_t c = 0; c < w->Dp; c++) {
        float *at = q->sums + c * LANES + 16 * v;
        _mm512_store_ps(at, _mm512_mul_ps(old, _mm512_load_ps(at)));
    }
}

EK_INLINE void weights(const struct ek_jagged_work *w, const struct ek_jagged_run *run,
                       int v, __m512 top, const bool is_bf16)
{
    __m512 sum = _mm512_load_ps(w->q->l + 16 * v);
    for (int r = run->r0; r < run->r1; r += 2) {
        const float *s = w->score + r * LANES + 16 * v;
        __m512 p[2];
        for (int i = 0; i < 2; i++) {
            p[i] = _mm512_sub_ps(_mm512_load_ps(s + i * LANES), top);
            p[i] = exp2_as(p[i], is_bf16);
            if (run->is_cut)
                p[i] = _mm512_maskz_mov_ps(seen_of(w->q, v, w->j0 + r + i), p[i]);
            sum = _mm512_add_ps(sum, p[i]);
        }
        store_pairs(w->x_pairs, r, v, p, is_bf16);
    }
    _mm512_store_ps(w->q->l + 16 * v, sum);
}

EK_INLINE void softmax_rows(const struct ek_jagged_work *w, const bool is_bf16)
{
    const __m512 factor = _mm512_set1_ps(alpha_of(w) * LOG2E);
    const __m512 none = _mm512_set1_ps(-INFINITY);
    __m512 top[4] = {none, none, none, none};
    const struct ek_jagged_run *end = w->run + w->n_runs;
    for (const struct ek_jagged_run *run = w->run; run < end; run++)
        for (int v = run->v0; v < run->v1; v++)
            top[v] = _mm512_max_ps(top[v], largest_of(w, run, v, factor));
    for (int v = 0; v < w->q->nv; v++) {
        const __m512 before = _mm512_load_ps(w->q->m + 16 * v);
        const __m512 now = _mm512_max_ps(before, top[v]);
        /* nothing seen so far: any number does */
        const __mmask16 is_none = _mm512_cmpeq_epi32_mask(_mm512_castps_si512(now),
                                                          _mm512_castps_si512(none));
        top[v] = _mm512_mask_mov_ps(now, is_none, _mm512_setzero_ps());
        if (w->q->is_begun && _mm512_cmp_ps_mask(now, before, _CMP_GT_OQ))
            rescale(w, v, exp2_as(_mm512_sub_ps(before, top[v]), false));
        _mm512_store_ps(w->q->m + 16 * v, now);
    }
    for (const struct ek_jagged_run *run = w->run; run < end; run++)
        for (int v = run->v0; v < run->v1; v++)
            weights(w, run, v, top[v], is_bf16);
}

void ek_avx512_jagged_softmax(struct ek_jagged_work *w)
{
    if (w->is_bf16)
        softmax_rows(w, true);
    else
        softmax_rows(w, false);
}

/* P and dx of one vector of key r. */
EK_INLINE __m512 grad_of(const struct ek_jagged_work *w, int r, int v, __m512 *p,
                         __m512 factor, const enum ek_phi phi, const bool is_bf16)
{
    const __m512 s = _mm512_load_ps(w->score + r * LANES + 16 * v);
    const __m512 dp = _mm512_load_ps(w->dp + r * LANES + 16 * v);
    if (phi == EK_PHI_COUNT) {
        const __m512 lse = _mm512_load_ps(w->q->lse + 16 * v);
        *p = exp2_as(_mm512_fmsub_ps(s, factor, lse), is_bf16);
        return _mm512_mul_ps(*p,
                             _mm512_sub_ps(dp, _mm512_load_ps(w->q->delta + 16 * v)));
    }
    __m512 grad;
    *p = phi_of(_mm512_mul_ps(factor, s), &grad, phi, is_bf16);
    return _mm512_mul_ps(grad, dp);
}

/* phi EK_PHI_COUNT: softmax. */
EK_INLINE void grad_rows(const struct ek_jagged_work *w, const enum ek_phi phi,
                         const bool is_bf16)
{
    const float log2e = phi == EK_PHI_COUNT ? LOG2E : 1.0f;
    const __m512 factor = _mm512_set1_ps(alpha_of(w) * log2e);
    for (const struct ek_jagged_run *run = w->run; run < w->run + w->n_runs; run++)
        for (int r = run->r0; r < run->r1; r += 2)
            for (int v = run->v0; v < run->v1; v++) {
                __m512 p[2], dx[2];
                for (int i = 0; i < 2; i++) {
                    dx[i] = grad_of(w, r + i, v, &p[i], factor, phi, is_bf16);
                    if (run->is_cut) {
                        const __mmask16 m = seen_of(w->q, v, w->j0 + r + i);
                        p[i] = _mm512_maskz_mov_ps(m, p[i]);
                        dx[i] = _mm512_maskz_mov_ps(m, dx[i]);
                    }
                    if (w->a->bias)
                        _mm512_store_ps(w->dp + (r + i) * LANES + 16 * v, dx[i]);
                }
                store_rows(w->p, NULL, r, v, p, is_bf16);
                store_rows(w->dx, w->x_pairs, r, v, dx, is_bf16);
            }
}

void ek_avx512_jagged_grad(struct ek_jagged_work *w)
{
    switch (w->a->d->score == EK_JAGGED_SOFTMAX ? EK_PHI_COUNT : w->phi) {
#define X(suffix, name)                                                                \
    case EK_PHI_##suffix:                                                              \
        if (w->is_bf16)                                                                \
            grad_rows(w, EK_PHI_##suffix, true);                                       \
        else                                                                           \
            grad_rows(w, EK_PHI_##suffix, false);                                      \
        break;
        EK_PHI_TABLE(X)
#undef X
    case EK_PHI_COUNT:
        if (w->is_bf16)
            grad_rows(w, EK_PHI_COUNT, true);
        else
            grad_rows(w, EK_PHI_COUNT, false);
        break;
    }
}
