/* jagged_score.c - from scores to P and dx, a vector of queries at a time. */
#include "kernel/avx512/jagged_phi.h"
#include "kernel/avx512/jagged_tile.h"

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
