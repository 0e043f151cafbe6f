/* jagged_int.h - what the plan and the variants of jagged attention share: where a
 * sequence lies, how its keys are parted, how the stage is laid out.
 *
 * The stage, in floats:
 *   of each staged sequence, at plan->stage_at[b]:  (parts, Lq, H, D)
 *   of each backward tile, at tile->stage, with learned bias:
 *     sums by j - i, from lo - (i1-1) to hi - 1 - i0   (hi - lo + i1 - i0 - 1)
 *     one that is not used                             (1)
 *     sums by bucket                                   (EK_JAGGED_BUCKETS)
 *   for keys [lo,hi) and queries [i0,i1) of the tile
 */
#ifndef EVENKEEL_KERNEL_JAGGED_INT_H
#define EVENKEEL_KERNEL_JAGGED_INT_H

#include "kernel/jagged.h"

/* Smallest differences of time of buckets 1, 2, ...: ceil(exp(0.301 k)). */
extern const int64_t ek_jagged_bucket_start[EK_JAGGED_BUCKETS - 1];

struct ek_jagged_seq {
    int64_t Lq, Lk;
    int64_t q0, k0, o0; /* first rows in q, in k and v, in o */
};

static inline struct ek_jagged_seq ek_jagged_seq_of(const struct ek_jagged_dims *d,
                                                    const struct ek_jagged_batch *batch,
                                                    int64_t b)
{
    const int64_t *q = d->is_broadcast_q ? batch->q_offsets : batch->q_offsets + b;
    const int64_t *k = batch->k_offsets + b;
    struct ek_jagged_seq s = {q[1] - q[0], k[1] - k[0], q[0], k[0], 0};
    s.o0 = d->is_broadcast_q ? b * s.Lq : s.q0;
    return s;
}

/* Keys of one part of a sequence, a multiple of EK_JAGGED_KEYS or all. Under a block
 * mask parts share no query: there is one for every EK_JAGGED_KEYS keys. */
int64_t ek_jagged_part_keys(const struct ek_jagged_dims *d,
                            const struct ek_jagged_seq *s);

/* True when no two parts of the sequence write to one query row's gradient. */
bool ek_jagged_is_direct(const struct ek_jagged_dims *d, const struct ek_jagged_seq *s);

/* Queries that a backward tile may meet and whose gradient rows it sets. */
void ek_jagged_tile_queries(int64_t *i0, int64_t *i1, const struct ek_jagged_dims *d,
                            const struct ek_jagged_seq *s,
                            const struct ek_jagged_tile *t);

static inline float ek_jagged_scale_of(const struct ek_jagged_args *a, int64_t b)
{
    return a->batch->seq_scale ? a->d->scale * a->batch->seq_scale[b] : a->d->scale;
}

static inline enum ek_phi ek_jagged_phi_of(const struct ek_jagged_dims *d, int64_t h)
{
    return d->phis ? d->phis[h] : d->phi;
}

/* Where a backward tile's sums by j - i begin, and how many they are at most. */
static inline int64_t ek_jagged_first_diagonal(int64_t *n,
                                               const struct ek_jagged_dims *d,
                                               const struct ek_jagged_seq *s,
                                               const struct ek_jagged_tile *t)
{
    int64_t i0, i1;
    ek_jagged_tile_queries(&i0, &i1, d, s, t);
    *n = t->hi - t->lo + i1 - i0;
    return t->lo - (i1 - 1);
}

/* The gradient row of query i, head h of a staged sequence. */
static inline float *ek_jagged_stage_row(const struct ek_jagged_args *a,
                                         const struct ek_jagged_seq *s,
                                         const struct ek_jagged_tile *t, int64_t i,
                                         int64_t h)
{
    return a->stage + a->plan->stage_at[t->b] +
           ((t->part * s->Lq + i) * a->d->H + h) * a->d->D;
}

#endif
