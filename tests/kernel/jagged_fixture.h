/* jagged_fixture.h - one batch of jagged attention, for the kernels and in f64 for the
 * formulas of jagged_naive.h. */
#ifndef EVENKEEL_TESTS_KERNEL_JAGGED_FIXTURE_H
#define EVENKEEL_TESTS_KERNEL_JAGGED_FIXTURE_H

#include "kernel_test.h"
#include "num/float.h"

#include <stdlib.h>

#define SEQS_MAX 12

/* What distinguishes one case. Lengths end at the first negative one. */
struct shape {
    int lq[SEQS_MAX], lk[SEQS_MAX];
    struct ek_jagged_dims d;
    bool has_pair, has_pos, has_time, has_seq_scale;
    int targets[SEQS_MAX];
    double amplitude; /* of the inputs; 0: 1 */
};

/* Values and gradients of all rows, dense, in f64. */
struct naive {
    double *q, *k, *v, *o, *d_o, *dq, *dk, *dv, *lse, *pair, *pos, *time, *dpair, *dpos,
        *dtime;
};

struct jagged {
    struct ek_jagged_dims d;
    struct ek_jagged_batch batch;
    struct ek_jagged_bias bias;
    struct ek_jagged_plan plan;
    struct ek_jagged_args a;
    int64_t q_offsets[SEQS_MAX + 1], k_offsets[SEQS_MAX + 1], pair_at[SEQS_MAX];
    int32_t n_targets[SEQS_MAX];
    float seq_scale[SEQS_MAX];
    enum ek_phi phis[64];
    int64_t n_q, n_k, n_o, n_pair; /* rows; pairs of one head */
    int64_t *t_query, *t_key;
    size_t size; /* of an element */
    struct naive x;
    void *owned[48];
    int n_owned;
};

static inline void *own(struct jagged *f, void *p)
{
    assert_true(f->n_owned < (int)COUNT(f->owned));
    f->owned[f->n_owned++] = p;
    return p;
}

static inline double *own_doubles(struct jagged *f, int64_t n)
{
    return own(f, new_bytes((size_t)(n + 1) * sizeof(double)));
}

static inline double get(const void *x, enum ek_dtype t, int64_t i)
{
    return t == EK_DTYPE_F32 ? (double)((const float *)x)[i]
                             : (double)ek_bf16_to_f32(((const uint16_t *)x)[i]);
}

/* Random rows as the kernel gets them, and what it multiplies in f64. What lies between
 * rows is NaN. */
static inline void *make_rows(struct jagged *f, double *exact, int64_t rows, int64_t n,
                              int64_t ld, double amplitude, struct ek_rng *rng)
{
    void *x = own(f, new_bytes((size_t)(rows * ld + 64) * f->size));
    memset(x, 0xff, (size_t)(rows * ld + 64) * f->size);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < n; c++) {
            float y = random_float(rng) * (float)amplitude;
            float rounded = ek_bf16_to_f32(ek_f32_to_bf16(y));
            if (f->d.dtype == EK_DTYPE_F32)
                ((float *)x)[r * ld + c] = y;
            else
                ((uint16_t *)x)[r * ld + c] = ek_f32_to_bf16(y);
            bool is_rounded =
                f->d.dtype == EK_DTYPE_BF16 || f->d.products == EK_DTYPE_BF16;
            exact[r * n + c] = (double)(is_rounded ? rounded : y);
        }
    return x;
}

static inline float *make_floats(struct jagged *f, double *exact, int64_t n,
                                 struct ek_rng *rng)
{
    float *x = own(f, new_floats(n + 1));
    for (int64_t i = 0; i < n; i++) {
        x[i] = random_float(rng);
        exact[i] = (double)x[i];
    }
    return x;
}

static inline void setup_bias(struct jagged *f, const struct shape *s,
                              struct ek_rng *rng)
{
    struct ek_jagged_bias *b = &f->bias;
    f->a.bias = s->has_pair || s->has_pos || s->has_time ? b : NULL;
    int64_t longest = 1;
    for (int64_t i = 0; i < f->batch.B; i++) {
        int lq = s->lq[f->d.is_broadcast_q ? 0 : i];
        f->pair_at[i] = f->n_pair;
        f->n_pair += (int64_t)lq * s->lk[i];
        longest = longest > lq ? longest : lq;
        longest = longest > s->lk[i] ? longest : s->lk[i];
    }
    *b = (struct ek_jagged_bias){
        .pair_at = f->pair_at, .pair_ld = f->n_pair, .N = longest + 3};
    f->x.pair = own_doubles(f, f->n_pair * f->d.H);
    f->x.dpair = own_doubles(f, f->n_pair * f->d.H);
    f->x.pos = own_doubles(f, 2 * b->N);
    f->x.dpos = own_doubles(f, 2 * b->N);
    f->x.time = own_doubles(f, EK_JAGGED_BUCKETS);
    f->x.dtime = own_doubles(f, EK_JAGGED_BUCKETS);
    if (s->has_pair) {
        b->pair = make_floats(f, f->x.pair, f->n_pair * f->d.H, rng);
        f->a.dpair = own(f, new_floats(f->n_pair * f->d.H));
    }
    if (s->has_pos) {
        b->pos = make_floats(f, f->x.pos, 2 * b->N - 1, rng);
        f->a.dpos = own(f, new_floats(2 * b->N));
    }
    f->t_query = own(f, new_bytes((size_t)(f->n_o + 1) * 8));
    f->t_key = own(f, new_bytes((size_t)(f->n_k + 1) * 8));
    b->t_query = f->t_query;
    b->t_key = f->t_key;
    for (int64_t i = 0; i < f->n_o; i++)
        f->t_query[i] = 1700000000 + (int64_t)ek_rng_below(rng, 1u << (i % 24));
    for (int64_t i = 0; i < f->n_k; i++)
        f->t_key[i] = 1700000000 + (int64_t)ek_rng_below(rng, 1u << (i % 28));
    if (s->has_time) {
        b->time = make_floats(f, f->x.time, EK_JAGGED_BUCKETS, rng);
        f->a.dtime = own(f, new_floats(EK_JAGGED_BUCKETS));
    }
}

static inline void setup_rows(struct jagged *f, double amplitude, struct ek_rng *rng)
{
    const int64_t HD = (int64_t)f->d.H * f->d.D, KD = (int64_t)f->d.K * f->d.D;
    struct ek_jagged_args *a = &f->a;
    a->ldq = HD + 3;
    a->ldk = KD + 5;
    a->ldv = KD + 7;
    a->ldo = HD + 1;
    f->x.q = own_doubles(f, f->n_q * HD);
    f->x.k = own_doubles(f, f->n_k * KD);
    f->x.v = own_doubles(f, f->n_k * KD);
    f->x.d_o = own_doubles(f, f->n_o * HD);
    f->x.o = own_doubles(f, f->n_o * HD);
    f->x.lse = own_doubles(f, f->n_o * f->d.H);
    f->x.dq = own_doubles(f, f->n_q * HD);
    f->x.dk = own_doubles(f, f->n_k * KD);
    f->x.dv = own_doubles(f, f->n_k * KD);
    a->q = make_rows(f, f->x.q, f->n_q, HD, a->ldq, amplitude, rng);
    a->k = make_rows(f, f->x.k, f->n_k, KD, a->ldk, amplitude, rng);
    a->v = make_rows(f, f->x.v, f->n_k, KD, a->ldv, amplitude, rng);
    a->d_o = make_rows(f, f->x.d_o, f->n_o, HD, a->ldo, amplitude, rng);
    a->o = own(f, new_bytes((size_t)(f->n_o * a->ldo + 64) * f->size));
    a->dq = own(f, new_bytes((size_t)(f->n_q * a->ldq + 64) * f->size));
    a->dk = own(f, new_bytes((size_t)(f->n_k * a->ldk + 64) * f->size));
    a->dv = own(f, new_bytes((size_t)(f->n_k * a->ldv + 64) * f->size));
    if (f->d.score == EK_JAGGED_SOFTMAX)
        a->lse = own(f, new_floats(f->n_o * f->d.H + 1));
}

static inline void setup_plan(struct jagged *f)
{
    bool has_bias = f->a.dpos || f->a.dtime;
    int64_t n_fwd, n_bwd, n_stage;
    ek_jagged_ceiling(&n_fwd, &n_bwd, &n_stage, &f->d, f->batch.B, f->n_o, f->n_k,
                      has_bias);
    f->plan.members = 3;
    f->plan.fwd = own(f, new_bytes((size_t)(n_fwd + 1) * sizeof *f->plan.fwd));
    f->plan.bwd = own(f, new_bytes((size_t)(n_bwd + 1) * sizeof *f->plan.bwd));
    f->plan.stage_at = own(f, new_bytes((size_t)(f->batch.B + 1) * 8));
    ek_jagged_plan_build(&f->plan, &f->d, &f->batch, has_bias);
    assert_true(f->plan.n_fwd <= n_fwd && f->plan.n_bwd <= n_bwd);
    assert_true(f->plan.n_stage <= n_stage);
    f->a.stage = own(f, new_floats(f->plan.n_stage + 1));
    memset(f->a.stage, 0xff, (size_t)f->plan.n_stage * sizeof(float));
}

static inline void setup(struct jagged *f, const struct shape *s, uint64_t seed)
{
    struct ek_rng rng;
    ek_rng_init(&rng, seed);
    *f = (struct jagged){.d = s->d, .batch = {.B = 0}};
    f->size = ek_dtype_block_bytes(f->d.dtype);
    f->q_offsets[0] = 0;
    for (int64_t b = 0; b < SEQS_MAX && s->lk[b] >= 0; b++) {
        int lq = s->lq[f->d.is_broadcast_q ? 0 : b];
        f->k_offsets[b + 1] = f->k_offsets[b] + s->lk[b];
        f->q_offsets[b + 1] = f->q_offsets[b] + lq;
        f->n_targets[b] = s->targets[b];
        f->seq_scale[b] = 0.5f + (float)b / 4;
        f->batch.B = b + 1;
    }
    f->n_k = f->k_offsets[f->batch.B];
    f->n_o = f->q_offsets[f->batch.B];
    f->n_q = f->d.is_broadcast_q ? s->lq[0] : f->n_o;
    f->batch.q_offsets = f->q_offsets;
    f->batch.k_offsets = f->k_offsets;
    if (s->has_seq_scale)
        f->batch.seq_scale = f->seq_scale;
    if (s->d.mask.n_targets)
        f->d.mask.n_targets = f->n_targets;
    if (s->d.phis) {
        for (int h = 0; h < f->d.H; h++)
            f->phis[h] = (enum ek_phi)(h % EK_PHI_COUNT);
        f->d.phis = f->phis;
    }
    f->a.d = &f->d;
    f->a.batch = &f->batch;
    f->a.plan = &f->plan;
    setup_rows(f, s->amplitude > 0 ? s->amplitude : 1, &rng);
    setup_bias(f, s, &rng);
    setup_plan(f);
}

static inline void teardown(struct jagged *f)
{
    for (int i = 0; i < f->n_owned; i++)
        ek_free(f->owned[i]);
}

static inline void run_forward(struct jagged *f, const struct ek_ops *ops)
{
    void *scratch = new_bytes(ek_jagged_scratch_bytes(&f->d));
    for (int64_t t = 0; t < f->plan.n_fwd; t++)
        ops->jagged_forward(&f->a, t, scratch);
    ek_free(scratch);
}

static inline void run_backward(struct jagged *f, const struct ek_ops *ops)
{
    void *scratch = new_bytes(ek_jagged_scratch_bytes(&f->d));
    for (int64_t t = 0; t < f->plan.n_bwd; t++)
        ops->jagged_backward(&f->a, t, scratch);
    ek_jagged_reduce(&f->a, 0, ek_jagged_reduce_units(&f->a));
    ek_free(scratch);
}

#endif
