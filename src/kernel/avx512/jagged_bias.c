/* jagged_bias.c - the additive terms of jagged attention's scores, and their
 * gradients. */
#include "kernel/avx512/jagged_tile.h"

#include <string.h>

/* Queries of vector v that are there. */
static int lanes_of(const struct ek_jagged_work *w, int v)
{
    int n = w->q->n - 16 * v;
    return n < 16 ? n : 16;
}

static int64_t pair_at(const struct ek_jagged_work *w, int64_t i, int64_t j)
{
    const struct ek_jagged_bias *b = w->a->bias;
    return b->pair_at[w->t->b] + w->h * b->pair_ld + i * w->s.Lk + j;
}

/* Sixteen queries from i, key j; n of them are there. */
EK_INLINE void add_terms_of(const struct ek_jagged_work *w, float *s, int64_t i,
                            int64_t j, int n)
{
    const struct ek_jagged_bias *b = w->a->bias;
    for (int t = 0; b->pair && t < n; t++)
        s[t] += b->pair[pair_at(w, i + t, j)];
    for (int t = 0; b->pos && t < n; t++)
        s[t] += b->pos[b->N - 1 + j - i - t];
    for (int t = 0; b->time && t < n; t++)
        s[t] += b->time[ek_jagged_bucket(b->t_query[w->s.o0 + i + t] -
                                         b->t_key[w->s.k0 + j])];
}

void ek_avx512_jagged_add_bias(const struct ek_jagged_work *w)
{
    const __m512 alpha = _mm512_set1_ps(w->a->d->alpha);
    for (const struct ek_jagged_run *run = w->run; run < w->run + w->n_runs; run++)
        for (int r = run->r0; r < run->r1; r++)
            for (int v = run->v0; v < run->v1; v++) {
                float *s = w->score + r * LANES + 16 * v;
                _mm512_store_ps(s, _mm512_mul_ps(alpha, _mm512_load_ps(s)));
                if (w->j0 + r < w->s.Lk)
                    add_terms_of(w, s, w->q->i0 + 16 * v, w->j0 + r, lanes_of(w, v));
            }
}

void ek_avx512_jagged_bias_grad(const struct ek_jagged_work *w, float factor)
{
    const struct ek_jagged_args *a = w->a;
    int64_t n, first = ek_jagged_first_diagonal(&n, a->d, &w->s, w->t);
    for (const struct ek_jagged_run *run = w->run; run < w->run + w->n_runs; run++)
        for (int r = run->r0; r < run->r1 && w->j0 + r < w->s.Lk; r++)
            for (int v = run->v0; v < run->v1; v++) {
                const float *dx = w->dp + r * LANES + 16 * v;
                const int64_t i = w->q->i0 + 16 * v, j = w->j0 + r;
                const __mmask16 seen =
                    seen_of(w->q, v, j) & first_lanes(lanes_of(w, v));
                for (int t = 0; t < 16; t++) {
                    if (!(seen >> t & 1))
                        continue;
                    if (a->dpair)
                        a->dpair[pair_at(w, i + t, j)] = factor * dx[t];
                    if (a->dpos)
                        w->bias_sums[j - i - t - first] += factor * dx[t];
                    if (a->dtime)
                        w->bias_sums[n + ek_jagged_bucket(
                                             a->bias->t_query[w->s.o0 + i + t] -
                                             a->bias->t_key[w->s.k0 + j])] +=
                            factor * dx[t];
                }
            }
}
