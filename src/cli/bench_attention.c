#include "cli/bench_attention.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/bench.h"
#include "num/float.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTHS_FILE_MAX (64 << 20)
#define N_ROWS           8 /* q k v o and their gradients */

const char *ek_attention_name(enum ek_attention_kind kind)
{
    static const char *const names[] = {"jfa", "hstu", "gdpa", "block"};
    return names[kind];
}

/* --- lengths --------------------------------------------------------------------- */

static int wrong_lengths(const char *spec, struct ek_err *err)
{
    return ek_err_set(err, EK_EINVAL,
                      "--lengths '%.200s': expected uniform:LO:HI, fixed:N, "
                      "lognormal:MEDIAN:SIGMA (lengths from 1 to %d), or a file of "
                      "them, one a line",
                      spec, EK_BENCH_LENGTH_MAX);
}

static int read_lengths(int64_t *lengths, int64_t B, const char *path,
                        struct ek_err *err)
{
    struct ek_buf text;
    int64_t n = 0;
    ek_buf_init(&text, LENGTHS_FILE_MAX);
    int rc = ek_file_read(&text, path, err);
    if (!rc)
        rc = ek_buf_add_char(&text, 0);
    const char *at = text.data;
    for (int64_t line = 1; !rc && n < B && *at; line++) {
        char *end;
        const int64_t v = strtoll(at, &end, 10);
        if (end == at || (*end && *end != '\n') || v < 1 || v > EK_BENCH_LENGTH_MAX)
            rc = ek_err_set(err, EK_EINVAL,
                            "%s:%" PRId64 ": expected a length from 1 to %d", path,
                            line, EK_BENCH_LENGTH_MAX);
        else
            lengths[n++] = v;
        at = rc || !*end ? end : end + 1;
    }
    if (!rc && n == 0)
        rc = ek_err_set(err, EK_EINVAL, "%s: expected lengths, one a line", path);
    for (int64_t i = n; !rc && i < B; i++)
        lengths[i] = lengths[i % n];
    ek_buf_release(&text);
    return rc;
}

int ek_bench_lengths(int64_t *lengths, int64_t B, const char *spec, uint64_t seed,
                     struct ek_err *err)
{
    struct ek_rng rng;
    double a = 0, b = 0;
    int end = -1;
    enum { UNIFORM, FIXED, LOGNORMAL } how = UNIFORM;
    if (sscanf(spec, "uniform:%lf:%lf%n", &a, &b, &end) == 2) {
        how = UNIFORM;
    } else if (sscanf(spec, "fixed:%lf%n", &a, &end) == 1) {
        how = FIXED;
    } else if (sscanf(spec, "lognormal:%lf:%lf%n", &a, &b, &end) == 2) {
        how = LOGNORMAL;
    } else if (strchr(spec, ':')) {
        return wrong_lengths(spec, err);
    } else {
        return read_lengths(lengths, B, spec, err);
    }
    const double most = how == UNIFORM ? b : a;
    if (end < 0 || spec[end] || !(a >= 1) || !(most <= EK_BENCH_LENGTH_MAX) ||
        (how == UNIFORM && !(a <= b)) || (how == LOGNORMAL && !(b >= 0 && b <= 5)))
        return wrong_lengths(spec, err);
    ek_rng_init(&rng, seed);
    for (int64_t i = 0; i < B; i++) {
        double x = a;
        if (how == UNIFORM)
            x = a + (double)ek_rng_below(&rng, (uint64_t)(b - a) + 1);
        if (how == LOGNORMAL)
            x = round(a * exp(b * ek_rng_normal(&rng)));
        x = x < 1 ? 1 : x > EK_BENCH_LENGTH_MAX ? EK_BENCH_LENGTH_MAX : x;
        lengths[i] = (int64_t)x;
    }
    return 0;
}

/* --- the batch ------------------------------------------------------------------- */

struct ek_bench_attention {
    struct ek_team *team;
    const struct ek_ops *ops;
    struct ek_jagged_dims d;
    struct ek_jagged_batch batch;
    struct ek_jagged_plan plan;
    struct ek_jagged_args a;
    int64_t *q_offsets, *k_offsets; /* (B+1) owned, as all below */
    void *rows[N_ROWS];             /* q k v o, d_o dq dk dv */
    float *lse;
    char *scratch;
    size_t scratch_bytes; /* of a member */
    struct ek_attention_facts facts;
    ek_jagged_fn *fn; /* of the pass under way, over n tiles */
    int64_t n;
};

void ek_bench_attention_free(struct ek_bench_attention *b)
{
    if (!b)
        return;
    for (int i = 0; i < N_ROWS; i++)
        ek_free(b->rows[i]);
    ek_free(b->q_offsets);
    ek_free(b->k_offsets);
    ek_free(b->plan.fwd);
    ek_free(b->plan.bwd);
    ek_free(b->plan.stage_at);
    ek_free(b->a.stage);
    ek_free(b->lse);
    ek_free(b->scratch);
    ek_free(b);
}

static void describe(struct ek_jagged_dims *d, const struct ek_attention_shape *s)
{
    const enum ek_attention_kind kind = s->kind;
    int64_t longest = 1;
    for (int64_t i = 0; i < s->B; i++)
        longest = s->lengths[i] > longest ? s->lengths[i] : longest;
    *d = (struct ek_jagged_dims){.H = (int32_t)s->heads,
                                 .K = (int32_t)s->heads,
                                 .D = (int32_t)s->dim,
                                 .dtype = s->dtype,
                                 .products = s->dtype,
                                 .score = EK_JAGGED_PHI,
                                 .alpha = 1,
                                 .scale = 1};
    if (kind == EK_ATTENTION_JFA || kind == EK_ATTENTION_BLOCK) {
        d->score = EK_JAGGED_SOFTMAX;
        d->alpha = 1 / sqrtf((float)s->dim);
    }
    d->phi = kind == EK_ATTENTION_HSTU ? EK_PHI_SILU : EK_PHI_GELU_TANH;
    if (kind == EK_ATTENTION_HSTU)
        d->scale = 1 / (float)longest;
    d->mask.is_causal = kind == EK_ATTENTION_JFA || kind == EK_ATTENTION_HSTU;
    d->mask.block = kind == EK_ATTENTION_BLOCK ? EK_JAGGED_BLOCK : 0;
}

static void *take(size_t n, size_t size, size_t *total)
{
    size_t bytes;
    if (!ek_mul_size(&bytes, n, size))
        return NULL;
    *total += bytes;
    return ek_alloc_huge(bytes + 64);
}

static int take_plan(struct ek_bench_attention *b, int64_t n_q, int64_t n_k)
{
    int64_t n_fwd, n_bwd, n_stage;
    struct ek_jagged_plan *p = &b->plan;
    ek_jagged_ceiling(&n_fwd, &n_bwd, &n_stage, &b->d, b->batch.B, n_q, n_k, false);
    size_t *total = &b->facts.beside;
    p->fwd = take((size_t)n_fwd, sizeof *p->fwd, total);
    p->bwd = take((size_t)n_bwd, sizeof *p->bwd, total);
    p->stage_at = take((size_t)b->batch.B + 1, sizeof *p->stage_at, total);
    if (!p->fwd || !p->bwd || !p->stage_at)
        return EK_ENOMEM;
    p->members = ek_team_size(b->team);
    ek_jagged_plan_build(p, &b->d, &b->batch, false);
    b->a.stage = take((size_t)p->n_stage, sizeof(float), total);
    b->lse = take((size_t)n_q * (size_t)b->d.H, sizeof(float), total);
    b->scratch_bytes = ek_jagged_scratch_bytes(&b->d);
    b->scratch = take(b->scratch_bytes, (size_t)p->members, total);
    return b->a.stage && b->lse && b->scratch ? 0 : EK_ENOMEM;
}

/* Uniform in +-0.5. */
static void fill(void *x, int64_t n, enum ek_dtype dtype, struct ek_rng *rng)
{
    for (int64_t i = 0; i < n; i++) {
        const float v = (float)(ek_rng_uniform(rng) - 0.5);
        if (dtype == EK_DTYPE_BF16)
            ((uint16_t *)x)[i] = ek_f32_to_bf16(v);
        else
            ((float *)x)[i] = v;
    }
}

static int take_rows(struct ek_bench_attention *b, int64_t n_q, int64_t n_k)
{
    const int64_t C = (int64_t)b->d.H * b->d.D;
    const size_t size = ek_dtype_block_bytes(b->d.dtype);
    struct ek_rng rng;
    ek_rng_init(&rng, 1);
    for (int i = 0; i < N_ROWS; i++) {
        const bool is_of_k = i == 1 || i == 2 || i >= 6;
        const int64_t n = (is_of_k ? n_k : n_q) * C;
        b->rows[i] = take((size_t)n, size, &b->facts.bytes);
        if (!b->rows[i])
            return EK_ENOMEM;
        fill(b->rows[i], n, b->d.dtype, &rng);
    }
    return 0;
}

static int set_up(struct ek_bench_attention *b, const struct ek_attention_shape *s)
{
    b->q_offsets = ek_calloc((size_t)s->B + 1, sizeof *b->q_offsets);
    b->k_offsets = ek_calloc((size_t)s->B + 1, sizeof *b->k_offsets);
    if (!b->q_offsets || !b->k_offsets)
        return EK_ENOMEM;
    for (int64_t i = 0; i < s->B; i++) {
        b->q_offsets[i + 1] = b->q_offsets[i] + s->lengths[i];
        b->k_offsets[i + 1] =
            b->k_offsets[i] + (s->kind == EK_ATTENTION_GDPA ? s->keys : s->lengths[i]);
    }
    const int64_t n_q = b->q_offsets[s->B], n_k = b->k_offsets[s->B];
    b->batch = (struct ek_jagged_batch){
        .B = s->B, .q_offsets = b->q_offsets, .k_offsets = b->k_offsets};
    int rc = take_plan(b, n_q, n_k);
    if (!rc)
        rc = take_rows(b, n_q, n_k);
    if (rc)
        return rc;
    const int64_t ld = (int64_t)b->d.H * b->d.D;
    float *stage = b->a.stage;
    b->a = (struct ek_jagged_args){.d = &b->d,
                                   .batch = &b->batch,
                                   .plan = &b->plan,
                                   .q = b->rows[0],
                                   .k = b->rows[1],
                                   .v = b->rows[2],
                                   .o = b->rows[3],
                                   .lse = b->lse,
                                   .d_o = b->rows[4],
                                   .dq = b->rows[5],
                                   .dk = b->rows[6],
                                   .dv = b->rows[7],
                                   .stage = stage};
    b->a.ldq = b->a.ldk = b->a.ldv = b->a.ldo = ld;
    b->facts.rows = n_q;
    b->facts.flop = 4.0 * b->d.D * (double)b->plan.n_pairs;
    b->facts.before = b->plan.before[1];
    b->facts.after = b->plan.after[1];
    return 0;
}

int ek_bench_attention_new(struct ek_bench_attention **out,
                           const struct ek_attention_shape *shape, struct ek_team *team,
                           const struct ek_ops *ops, struct ek_err *err)
{
    struct ek_bench_attention *b = ek_calloc(1, sizeof *b);
    int rc = b ? 0 : EK_ENOMEM;
    if (b) {
        b->team = team;
        b->ops = ops;
        describe(&b->d, shape);
        rc = set_up(b, shape);
    }
    if (rc) {
        ek_bench_attention_free(b);
        return ek_err_set(err, rc, "attention: %s", ek_status_text(rc));
    }
    *out = b;
    return 0;
}

static void tiles(void *arg, int member, int n_members)
{
    struct ek_bench_attention *b = arg;
    void *scratch = b->scratch + (size_t)member * b->scratch_bytes;
    for (int64_t r = 0, t; (t = ek_jagged_deal(b->n, r, member, n_members)) >= 0; r++)
        b->fn(&b->a, t, scratch);
}

static void sums(void *arg, int member, int n_members)
{
    struct ek_bench_attention *b = arg;
    int64_t lo, hi;
    ek_team_share(&lo, &hi, b->n, 1, member, n_members);
    ek_jagged_reduce(&b->a, lo, hi);
}

void ek_bench_attention_run(struct ek_bench_attention *b, double *forward_s,
                            double *backward_s)
{
    const double start = ek_bench_now_s(b->team);
    b->fn = b->ops->jagged_forward;
    b->n = b->plan.n_fwd;
    ek_team_run(b->team, tiles, b);
    const double middle = ek_bench_now_s(b->team);
    b->fn = b->ops->jagged_backward;
    b->n = b->plan.n_bwd;
    ek_team_run(b->team, tiles, b);
    b->n = ek_jagged_reduce_units(&b->a);
    if (b->n > 0)
        ek_team_run(b->team, sums, b);
    *forward_s = middle - start;
    *backward_s = ek_bench_now_s(b->team) - middle;
}

struct ek_attention_facts ek_bench_attention_facts(const struct ek_bench_attention *b)
{
    return b->facts;
}
