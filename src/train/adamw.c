/* adamw.c - every dense parameter in blocks of whole rows, BLOCK numbers at most (of a
 * longer row BLOCK of them), dealt to the team. Rows that no look-up touched have a
 * zero gradient, which is not read: they are updated all the same, to the same bits. */
#include "train/adamw.h"

#include "base/mem.h"
#include "kernel/grad.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define BLOCK 16384

struct block {
    int param;
    int64_t first, n; /* numbers of the parameter */
};

struct ek_adamw_state {
    struct ek_params *params; /* borrowed */
    const struct ek_grad_ops *ops;
    struct ek_adamw_options o;
    float **moments; /* (n_params, 2) owned; NULL for tables */
    struct block *blocks;
    double *squares; /* (n_blocks) */
    int n_params;
    int64_t n_blocks, steps;
    struct ek_adamw now; /* of the step in progress */
};

static int64_t count_of(const struct ek_param *p)
{
    return p->is_table ? 0 : p->rows * p->cols;
}

void ek_adamw_free(struct ek_adamw_state *s)
{
    if (!s)
        return;
    for (int i = 0; s->moments && i < 2 * s->n_params; i++)
        ek_free(s->moments[i]);
    ek_free(s->moments);
    ek_free(s->blocks);
    ek_free(s->squares);
    ek_free(s);
}

/* That a parameter of this size is there says that it is a number. */
static size_t moment_bytes(const struct ek_param *p)
{
    return (size_t)count_of(p) * sizeof(float);
}

static int take_moments(struct ek_adamw_state *s)
{
    s->moments = ek_calloc((size_t)s->n_params * 2 + 1, sizeof(float *));
    if (!s->moments)
        return EK_ENOMEM;
    for (int i = 0; i < 2 * s->n_params; i++) {
        const size_t bytes = moment_bytes(ek_params_get(s->params, i / 2));
        if (bytes == 0)
            continue;
        s->moments[i] = ek_alloc_aligned(64, bytes);
        if (!s->moments[i])
            return EK_ENOMEM;
        memset(s->moments[i], 0, bytes);
    }
    return 0;
}

static int64_t block_of(const struct ek_param *p)
{
    return p->cols > BLOCK ? BLOCK : BLOCK / p->cols * p->cols;
}

static int64_t n_blocks_of(const struct ek_param *p)
{
    return (count_of(p) + block_of(p) - 1) / block_of(p);
}

bool ek_adamw_bytes(size_t *sum, const struct ek_param *p)
{
    const size_t blocks =
        (size_t)n_blocks_of(p) * (sizeof(struct block) + sizeof(double));
    size_t both;
    return ek_mul_size(&both, moment_bytes(p), 2) && ek_add_size(sum, *sum, both) &&
           ek_add_size(sum, *sum, blocks);
}

static int take_blocks(struct ek_adamw_state *s)
{
    for (int i = 0; i < s->n_params; i++)
        s->n_blocks += n_blocks_of(ek_params_get(s->params, i));
    s->blocks = ek_alloc_array((size_t)s->n_blocks + 1, sizeof *s->blocks);
    s->squares = ek_alloc_array((size_t)s->n_blocks + 1, sizeof *s->squares);
    if (!s->blocks || !s->squares)
        return EK_ENOMEM;
    struct block *b = s->blocks;
    for (int i = 0; i < s->n_params; i++) {
        const struct ek_param *p = ek_params_get(s->params, i);
        int64_t n = count_of(p), size = block_of(p);
        for (int64_t at = 0; at < n; at += size)
            *b++ = (struct block){i, at, n - at < size ? n - at : size};
    }
    return 0;
}

int ek_adamw_new(struct ek_adamw_state **out, struct ek_params *params, enum ek_isa isa,
                 const struct ek_adamw_options *o, struct ek_err *err)
{
    if (!(o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1 &&
          o->eps > 0 && o->decay >= 0))
        return ek_err_set(err, EK_EINVAL,
                          "adamw: betas %g and %g, eps %g, decay %g; expected betas in "
                          "[0,1), eps above 0, decay not below 0",
                          (double)o->beta1, (double)o->beta2, (double)o->eps,
                          (double)o->decay);
    struct ek_adamw_state *s = ek_calloc(1, sizeof *s);
    if (!s)
        return ek_err_set(err, EK_ENOMEM, "adamw: out of memory");
    s->params = params;
    s->ops = ek_grad_ops_get(isa);
    s->o = *o;
    s->n_params = ek_params_count(params);
    if (take_moments(s) || take_blocks(s)) {
        ek_adamw_free(s);
        return ek_err_set(err, EK_ENOMEM, "adamw: no memory for the moments");
    }
    *out = s;
    return 0;
}

/* Touched rows of a block, or NULL: its rows are not whole, or any may be. */
static const unsigned char *touched_of(const struct ek_param *p)
{
    return p->cols > BLOCK ? NULL : ek_param_touched(p);
}

static double block_squares(const struct ek_adamw_state *s, const struct block *b)
{
    const struct ek_param *p = ek_params_get(s->params, b->param);
    const unsigned char *touched = touched_of(p);
    const float *g = p->grad + b->first;
    double sum = 0;
    if (!touched)
        return s->ops->dot(g, g, b->n);
    int64_t r = b->first / p->cols, end = r + b->n / p->cols;
    for (; r < end; r++)
        if (touched[r])
            sum += s->ops->dot(p->grad + r * p->cols, p->grad + r * p->cols, p->cols);
    return sum;
}

static void square_share(void *arg, int member, int n_members)
{
    struct ek_adamw_state *s = arg;
    int64_t lo, hi;
    ek_team_share(&lo, &hi, s->n_blocks, 1, member, n_members);
    for (int64_t i = lo; i < hi; i++) {
        const struct block *b = &s->blocks[i];
        s->squares[i] = block_squares(s, b);
    }
}

double ek_adamw_grad_norm(struct ek_adamw_state *s, struct ek_team *team)
{
    double sum = 0;
    ek_team_run(team, square_share, s);
    for (int64_t i = 0; i < s->n_blocks; i++)
        sum += s->squares[i];
    return sqrt(sum);
}

/* Numbers [first, first + n) of a parameter; g NULL: a gradient of zeros. */
static void step_run(const struct ek_adamw_state *s, int param, int64_t first,
                     int64_t n, const float *g, const struct ek_adamw *now)
{
    s->ops->adamw(ek_params_get(s->params, param)->value + first,
                  s->moments[2 * param] + first, s->moments[2 * param + 1] + first, g,
                  n, now);
}

static void step_share(void *arg, int member, int n_members)
{
    struct ek_adamw_state *s = arg;
    int64_t lo, hi;
    ek_team_share(&lo, &hi, s->n_blocks, 1, member, n_members);
    for (int64_t i = lo; i < hi; i++) {
        const struct block *b = &s->blocks[i];
        struct ek_param *p = ek_params_get(s->params, b->param);
        struct ek_adamw now = s->now;
        now.decay = p->has_no_decay ? 0.0f : now.decay;
        const unsigned char *touched = touched_of(p);
        if (!touched) {
            step_run(s, b->param, b->first, b->n, p->grad + b->first, &now);
            continue;
        }
        int64_t r = b->first / p->cols, end = r + b->n / p->cols;
        for (int64_t next; r < end; r = next) {
            next = ek_param_run(touched, r, end);
            step_run(s, b->param, r * p->cols, (next - r) * p->cols,
                     touched[r] ? p->grad + r * p->cols : NULL, &now);
        }
    }
}

void ek_adamw_step(struct ek_adamw_state *s, struct ek_team *team, float lr,
                   float grad_scale)
{
    double t = (double)++s->steps;
    s->now = (struct ek_adamw){.lr = lr,
                               .beta1 = s->o.beta1,
                               .beta2 = s->o.beta2,
                               .eps = s->o.eps,
                               .decay = s->o.decay,
                               .grad_scale = grad_scale,
                               .correct1 = (float)(1 - pow((double)s->o.beta1, t)),
                               .correct2 = (float)(1 - pow((double)s->o.beta2, t))};
    ek_team_run(team, step_share, s);
}

int64_t ek_adamw_steps(const struct ek_adamw_state *s)
{
    return s->steps;
}

void ek_adamw_set_steps(struct ek_adamw_state *s, int64_t steps)
{
    s->steps = steps;
}

float *ek_adamw_moment(struct ek_adamw_state *s, int param, int which)
{
    assert(param >= 0 && param < s->n_params && (which == 1 || which == 2));
    return s->moments[2 * param + which - 1];
}
