/* op_softmax.c - softmax cross-entropy over a table's rows, all of them or the positive
 * and shared negatives. Rows of h go in blocks of BLOCK; the logits of one block
 * against all M candidates are the most that exists. For each block, a barrier between:
 *
 *   rows    hn = h or h/|h|;  s+ = hn . e+ / temperature
 *   logits  L (BLOCK,M) = hn E^T                            tiles of columns
 *   softmax L -> c (p - onehot), c = 1/(valid temperature); the loss of each row
 *   grads   dhn = L E;   dE[j] += L^T hn                    rows, and columns of L
 *   turn    dh from dhn, de+ from hn: back through the norms
 *
 * dE is summed over blocks in their order, so bits depend on shapes alone. Without a
 * backward to come it ends after the softmax. */
#include "graph/graph_int.h"
#include "graph/ops.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define BLOCK     256
#define COLS      128 /* of logits a task makes */
#define FEW       16  /* rows of a softmax task */
#define TINY_NORM 1e-6f

enum { H, TABLE, TARGETS, NEGATIVES };
enum { LOSS, DH, DCAND, DPOS };

struct work {
    bool is_sampled, is_cosine, is_bf16, wants_grad;
    int64_t D, M,
        first;         /* candidates are rows first.. of the table, or the negatives */
    float inv_t, coef; /* 1/temperature; times 1/valid */
    float *cand;       /* (M,D), normalised if cosine */
    float *cand_norm;  /* (M) */
    void *turned;      /* (D,M) packed */
    void *cand_pairs;  /* bf16: (M,D) packed */
    void *hn_pairs;    /* bf16: (BLOCK,D) packed */
    float *hn, *dhn;   /* (BLOCK,D) */
    float *logits;     /* (BLOCK,M) */
    float *h_norm, *pos, *pos_norm; /* (BLOCK): |h|; s+, then its gradient; |e+| */
    float *along;                   /* (BLOCK): hn . e+ */
    double *loss;                   /* (BLOCK) */
    struct ek_range rows;           /* of this block */
};

static size_t even(size_t n)
{
    return (n + 63) / 64 * 64;
}

/* Cuts the scratch, or with base NULL only measures it. */
static size_t cut(struct work *w, char *base)
{
    char *at = base;
    size_t D = (size_t)w->D, M = (size_t)w->M, sum = 0;
    struct {
        void **to;
        size_t bytes;
    } parts[] = {
        {(void **)(void *)&w->cand, M * D * 4},
        {(void **)(void *)&w->cand_norm, M * 4},
        {&w->turned, ek_gemm_pack_bytes(w->D, w->M, w->is_bf16)},
        {&w->cand_pairs, w->is_bf16 ? ek_gemm_pack_bytes(w->M, w->D, true) : 0},
        {&w->hn_pairs, w->is_bf16 ? ek_gemm_pack_bytes(BLOCK, w->D, true) : 0},
        {(void **)(void *)&w->hn, BLOCK * D * 4},
        {(void **)(void *)&w->dhn, BLOCK * D * 4},
        {(void **)(void *)&w->logits, BLOCK * M * 4},
        {(void **)(void *)&w->h_norm, BLOCK * 4},
        {(void **)(void *)&w->pos, BLOCK * 4},
        {(void **)(void *)&w->pos_norm, BLOCK * 4},
        {(void **)(void *)&w->along, BLOCK * 4},
        {(void **)(void *)&w->loss, BLOCK * 8},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (base)
            *parts[i].to = at + sum;
        sum += even(parts[i].bytes);
    }
    return sum;
}

/* Is this row supervised? All of a table may begin behind the target. */
static bool has_target(const struct ek_op_run *r, const struct work *w, int64_t row)
{
    int32_t target = r->in[TARGETS].i[row];
    assert(target < r->in[TABLE].rows);
    return target >= (w->is_sampled ? 0 : w->first);
}

static struct work work_of(const struct ek_op_run *r)
{
    const struct ek_node *n = r->node;
    struct work w = {.is_sampled = n->n_in > NEGATIVES,
                     .is_cosine = n->flag,
                     .is_bf16 = r->g->o.is_bf16,
                     .wants_grad = n->is_active,
                     .D = r->in[H].cols,
                     .first = n->n[0],
                     .inv_t = 1.0f / n->f[0]};
    w.M = w.is_sampled ? r->in[NEGATIVES].rows : r->in[TABLE].rows - w.first;
    cut(&w, r->scratch);
    int64_t valid = 0;
    for (int64_t i = 0; i < r->in[TARGETS].rows; i++)
        valid += has_target(r, &w, i);
    w.coef = valid ? w.inv_t / (float)valid : 0.0f;
    return w;
}

/* y = x / max(|x|, tiny), or x; returns the divisor. */
static float unit_row(const struct ek_op_run *r, const struct work *w, float *y,
                      const float *x)
{
    float norm = 1.0f;
    if (w->is_cosine) {
        norm = sqrtf((float)r->g->ops->dot(x, x, w->D));
        norm = norm > TINY_NORM ? norm : TINY_NORM;
    }
    r->g->ops->mul(y, x, NULL, 1.0f / norm, w->D, false);
    return norm;
}

/* dx = (g - along u) / norm, u = x / norm, along = g . u; g itself without cosine. May
 * be in place. */
static void turn_row(const struct ek_op_run *r, const struct work *w, float *dx,
                     const float *g, const float *u, float norm, float along)
{
    if (w->is_cosine)
        r->g->ops->mix(dx, g, u, norm > TINY_NORM ? -along : 0.0f, 1.0f / norm, w->D);
    else if (dx != g)
        memcpy(dx, g, (size_t)w->D * sizeof *dx);
}

static const float *candidate(const struct ek_op_run *r, const struct work *w,
                              int64_t j)
{
    int64_t id = w->is_sampled ? r->in[NEGATIVES].i[j] : w->first + j;
    assert(id >= 0 && id < r->in[TABLE].rows);
    return ek_at(r->in[TABLE], id);
}

/* --- candidates ------------------------------------------------------------------- */

static void cand_block(const struct ek_op_run *r, void *arg, int64_t b, int member)
{
    (void)member;
    struct work *w = arg;
    struct ek_range x = ek_block(w->M, COLS, b);
    for (int64_t j = x.lo; j < x.hi; j++)
        w->cand_norm[j] = unit_row(r, w, w->cand + j * w->D, candidate(r, w, j));
    const struct ek_gemm_ops *gemm = r->g->gemm;
    (w->is_bf16 ? gemm->pack_bf16 : gemm->pack_f32)((float *)w->turned + x.lo, w->M,
                                                    w->cand + x.lo * w->D, 1, w->D,
                                                    w->D, x.hi - x.lo);
    if (w->is_bf16) /* COLS is even: whole pairs */
        gemm->pack_bf16((uint32_t *)w->cand_pairs + x.lo / 2 * w->D, w->D,
                        w->cand + x.lo * w->D, w->D, 1, x.hi - x.lo, w->D);
}

static void cand_turn_block(const struct ek_op_run *r, void *arg, int64_t b, int member)
{
    (void)member;
    struct work *w = arg;
    struct ek_range x = ek_block(w->M, COLS, b);
    int64_t at = w->is_sampled ? 0 : w->first;
    for (int64_t j = x.lo; j < x.hi; j++) {
        float *g = ek_at(r->out[DCAND], at + j), *u = w->cand + j * w->D;
        float along = w->is_cosine ? (float)r->g->ops->dot(g, u, w->D) : 0.0f;
        turn_row(r, w, g, g, u, w->cand_norm[j], along);
    }
}

/* --- a block of rows -------------------------------------------------------------- */

#define AHEAD 8 /* rows of the table fetched before their turn */

EK_FETCH fetch_row(const struct ek_op_run *r, int64_t id)
{
    const float *x = ek_at(r->in[TABLE], id > 0 ? id : 0);
    for (int64_t c = 0; c < r->in[TABLE].cols; c += 16)
        __builtin_prefetch(x + c);
}

/* The positives of rows [x.lo, x.hi) as they are: where their gradients will stand. */
static void take_positives(const struct ek_op_run *r, const struct work *w,
                           struct ek_range x)
{
    for (int64_t i = x.lo; i < x.hi; i++) {
        float *e = ek_at(r->out[DPOS], w->rows.lo + i);
        if (w->rows.lo + i + AHEAD < w->rows.hi)
            fetch_row(r, r->in[TARGETS].i[w->rows.lo + i + AHEAD]);
        if (has_target(r, w, w->rows.lo + i))
            memcpy(e, ek_at(r->in[TABLE], r->in[TARGETS].i[w->rows.lo + i]),
                   (size_t)w->D * sizeof *e);
        else
            memset(e, 0, (size_t)w->D * sizeof *e);
    }
}

static float norm_of(const struct work *w, float square)
{
    float norm = w->is_cosine ? sqrtf(square) : 1.0f;
    return norm > TINY_NORM ? norm : TINY_NORM;
}

static void open_rows(const struct ek_op_run *r, void *arg, int64_t b, int member)
{
    (void)member;
    struct work *w = arg;
    const struct ek_grad_ops *ops = r->g->ops;
    struct ek_range x = ek_block(w->rows.hi - w->rows.lo, FEW, b);
    int64_t n = x.hi - x.lo, ld = r->in[H].ld, D = w->D;
    float hh[FEW], ee[FEW], he[FEW];
    const float *h = ek_at(r->in[H], w->rows.lo + x.lo);
    float *e = w->is_sampled ? ek_at(r->out[DPOS], w->rows.lo + x.lo) : NULL;
    if (w->is_sampled)
        take_positives(r, w, x);
    if (w->is_cosine)
        ops->row_dots(hh, h, ld, h, ld, n, D);
    if (w->is_cosine && e)
        ops->row_dots(ee, e, D, e, D, n, D);
    if (e)
        ops->row_dots(he, h, ld, e, D, n, D);
    for (int64_t k = 0; k < n; k++) {
        int64_t i = x.lo + k;
        w->h_norm[i] = norm_of(w, w->is_cosine ? hh[k] : 1.0f);
        ops->mul(w->hn + i * D, h + k * ld, NULL, 1.0f / w->h_norm[i], D, false);
        if (!e)
            continue;
        w->pos_norm[i] = norm_of(w, w->is_cosine ? ee[k] : 1.0f);
        w->along[i] = he[k] / (w->h_norm[i] * w->pos_norm[i]);
        w->pos[i] = w->along[i] * w->inv_t;
        if (w->is_cosine)
            ops->mul(e + k * D, e + k * D, NULL, 1.0f / w->pos_norm[i], D, false);
    }
    if (w->is_bf16) /* FEW is even */
        r->g->gemm->pack_bf16((uint32_t *)w->hn_pairs + x.lo / 2 * w->D, w->D,
                              w->hn + x.lo * w->D, w->D, 1, n, w->D);
}

static void logit_cols(const struct ek_op_run *r, void *arg, int64_t b, int member)
{
    (void)member;
    struct work *w = arg;
    struct ek_range x = ek_block(w->M, COLS, b);
    struct ek_gemm m = {.M = w->rows.hi - w->rows.lo,
                        .N = x.hi - x.lo,
                        .K = w->D,
                        .a = w->hn,
                        .am = w->D,
                        .ak = 1,
                        .b = (float *)w->turned + x.lo,
                        .ldb = w->M,
                        .c = w->logits + x.lo,
                        .ldc = w->M};
    (w->is_bf16 ? r->g->gemm->bf16 : r->g->gemm->f32)(&m);
}

/* One row of logits becomes its gradient c (p - onehot). */
static void soften_row(const struct ek_op_run *r, struct work *w, int64_t i)
{
    const struct ek_grad_ops *ops = r->g->ops;
    int32_t target = r->in[TARGETS].i[w->rows.lo + i];
    float *x = w->logits + i * w->M;
    w->loss[i] = 0;
    if (!has_target(r, w, w->rows.lo + i)) {
        memset(x, 0, (size_t)w->M * sizeof *x);
        w->pos[i] = 0;
        return;
    }
    const int32_t *hits = w->is_sampled ? r->in[NEGATIVES].i : NULL;
    float top = w->M ? ops->scores(x, w->inv_t, hits, target, w->M) : -INFINITY;
    float at = w->is_sampled ? w->pos[i] : x[target - w->first];
    top = at > top ? at : top;
    double sum = ops->exp_sum(x, x, top, w->M);
    double own = w->is_sampled ? exp((double)at - (double)top) : 0.0;
    sum += own;
    w->loss[i] = log(sum) + (double)top - (double)at;
    if (!w->wants_grad)
        return;
    ops->mul(x, x, NULL, (float)((double)w->coef / sum), w->M, false);
    if (w->is_sampled)
        w->pos[i] = (float)((own / sum - 1) * (double)w->coef);
    else
        x[target - w->first] -= w->coef;
}

static void soften_rows(const struct ek_op_run *r, void *arg, int64_t b, int member)
{
    (void)member;
    struct work *w = arg;
    struct ek_range x = ek_block(w->rows.hi - w->rows.lo, FEW, b);
    for (int64_t i = x.lo; i < x.hi; i++)
        soften_row(r, w, i);
}

static void grad_h(const struct ek_op_run *r, struct work *w, int64_t b)
{
    struct ek_range x = ek_block(w->rows.hi - w->rows.lo, EK_ROW_BLOCK, b);
    struct ek_gemm m = {.M = x.hi - x.lo,
                        .N = w->D,
                        .K = w->M,
                        .a = w->logits + x.lo * w->M,
                        .am = w->M,
                        .ak = 1,
                        .b = w->is_bf16 ? w->cand_pairs : (void *)w->cand,
                        .ldb = w->D,
                        .c = w->dhn + x.lo * w->D,
                        .ldc = w->D};
    (w->is_bf16 ? r->g->gemm->bf16 : r->g->gemm->f32)(&m);
}

static void grad_cand(const struct ek_op_run *r, struct work *w, int64_t b)
{
    struct ek_range x = ek_block(w->M, COLS, b);
    int64_t at = w->is_sampled ? 0 : w->first;
    struct ek_gemm m = {.M = x.hi - x.lo,
                        .N = w->D,
                        .K = w->rows.hi - w->rows.lo,
                        .a = w->logits + x.lo,
                        .am = 1,
                        .ak = w->M,
                        .b = w->is_bf16 ? w->hn_pairs : (void *)w->hn,
                        .ldb = w->D,
                        .c = ek_at(r->out[DCAND], at + x.lo),
                        .ldc = w->D,
                        .is_added = w->rows.lo > 0};
    (w->is_bf16 ? r->g->gemm->bf16 : r->g->gemm->f32)(&m);
}

static void grad_task(const struct ek_op_run *r, void *arg, int64_t b, int member)
{
    (void)member;
    struct work *w = arg;
    int64_t n = ek_n_blocks(w->rows.hi - w->rows.lo, EK_ROW_BLOCK);
    if (b < n)
        grad_h(r, w, b);
    else
        grad_cand(r, w, b - n);
}

static void close_rows(const struct ek_op_run *r, void *arg, int64_t b, int member)
{
    (void)member;
    struct work *w = arg;
    const struct ek_grad_ops *ops = r->g->ops;
    struct ek_range x = ek_block(w->rows.hi - w->rows.lo, FEW, b);
    float along[FEW] = {0};
    if (w->is_cosine)
        ops->row_dots(along, w->dhn + x.lo * w->D, w->D, w->hn + x.lo * w->D, w->D,
                      x.hi - x.lo, w->D);
    for (int64_t i = x.lo; i < x.hi; i++) {
        float *hn = w->hn + i * w->D, *dhn = w->dhn + i * w->D;
        float *dh = ek_at(r->out[DH], w->rows.lo + i), dh_along = along[i - x.lo];
        if (w->is_sampled && has_target(r, w, w->rows.lo + i)) {
            float *e = ek_at(r->out[DPOS], w->rows.lo + i);
            ops->add(dhn, dhn, e, w->pos[i], w->D);
            dh_along += w->pos[i] * w->along[i];
            /* de+ = pos hn, through the norm of e+ */
            bool is_turned = w->is_cosine && w->pos_norm[i] > TINY_NORM;
            ops->mix(e, hn, e, is_turned ? -w->along[i] : 0.0f,
                     w->pos[i] / w->pos_norm[i], w->D);
        }
        turn_row(r, w, dh, dhn, hn, w->h_norm[i], dh_along);
    }
}

static double run_block(const struct ek_op_run *r, struct work *w)
{
    int64_t n = w->rows.hi - w->rows.lo, n_few = ek_n_blocks(n, FEW);
    int64_t n_cols = ek_n_blocks(w->M, COLS);
    ek_blocks(r, open_rows, w, n_few);
    ek_blocks(r, logit_cols, w, n_cols);
    ek_blocks(r, soften_rows, w, n_few);
    if (w->wants_grad) {
        ek_blocks_of_two(r, grad_task, w, ek_n_blocks(n, EK_ROW_BLOCK), n_cols);
        ek_blocks(r, close_rows, w, n_few);
    }
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += w->loss[i];
    return sum;
}

static void softmax_forward(const struct ek_op_run *r)
{
    struct work w = work_of(r);
    double sum = 0;
    ek_blocks(r, cand_block, &w, ek_n_blocks(w.M, COLS));
    if (w.wants_grad && (!w.is_sampled || r->in[H].rows == 0))
        memset(r->out[DCAND].f, 0, (size_t)(r->out[DCAND].rows * w.D) * sizeof(float));
    for (int64_t b = 0; b < ek_n_blocks(r->in[H].rows, BLOCK); b++) {
        w.rows = ek_block(r->in[H].rows, BLOCK, b);
        sum += run_block(r, &w);
    }
    if (w.wants_grad)
        ek_blocks(r, cand_turn_block, &w, ek_n_blocks(w.M, COLS));
    r->out[LOSS].f[0] = (float)(sum * (double)(w.coef * r->node->f[0]));
}

/* --- backward --------------------------------------------------------------------- */

static void dh_block(const struct ek_op_run *r, void *arg, int64_t b, int member)
{
    (void)arg;
    (void)member;
    struct ek_range n = ek_block(r->in[H].rows, EK_ROW_BLOCK, b);
    for (int64_t i = n.lo; i < n.hi; i++)
        r->g->ops->mul(ek_at(r->din[H], i), ek_at(r->out[DH], i), NULL,
                       r->dout[LOSS].f[0], r->in[H].cols, ek_is_added(r, H));
}

static void softmax_backward(const struct ek_op_run *r)
{
    if (r->din[H].f)
        ek_blocks(r, dh_block, NULL, ek_n_blocks(r->in[H].rows, EK_ROW_BLOCK));
}

static int softmax_row_grads(const struct ek_op_run *r, struct ek_row_grad *out)
{
    bool is_sampled = r->node->n_in > NEGATIVES;
    float scale = r->dout[LOSS].f[0];
    out[0] = (struct ek_row_grad){.ids = is_sampled ? r->in[NEGATIVES].i : NULL,
                                  .grad = r->out[DCAND].f,
                                  .n = r->out[DCAND].rows,
                                  .ld = r->out[DCAND].ld,
                                  .scale = scale};
    if (!is_sampled)
        return 1;
    out[1] = (struct ek_row_grad){.ids = r->in[TARGETS].i,
                                  .grad = r->out[DPOS].f,
                                  .n = r->out[DPOS].rows,
                                  .ld = r->out[DPOS].ld,
                                  .scale = scale};
    return 2;
}

static int64_t softmax_row_ceiling(const struct ek_graph *g, const struct ek_node *n)
{
    int64_t sum = g->values[n->out[DCAND]].rows;
    return n->n_in > NEGATIVES ? sum + g->values[n->out[DPOS]].rows : sum;
}

static size_t softmax_scratch(const struct ek_graph *g, int node, bool is_backward)
{
    const struct ek_node *n = &g->nodes[node];
    struct work w = {.is_bf16 = g->o.is_bf16, .D = g->values[n->in[H]].cols};
    w.M = n->n_in > NEGATIVES ? g->values[n->in[NEGATIVES]].rows
                              : g->values[n->in[TABLE]].rows - n->n[0];
    return is_backward ? 0 : cut(&w, NULL);
}

static void softmax_cost(const struct ek_op_run *r, struct ek_cost *cost)
{
    int64_t M = r->node->n_in > NEGATIVES ? r->in[NEGATIVES].rows + 1
                                          : r->in[TABLE].rows - r->node->n[0];
    /* The gradients, too, are made in the forward pass. */
    cost->forward = 3 * 2 * r->in[H].rows * M * r->in[H].cols;
}

static const struct ek_op_class sampled_class = {.name = "sampled_softmax",
                                                 .forward = softmax_forward,
                                                 .backward = softmax_backward,
                                                 .cost = softmax_cost,
                                                 .scratch = softmax_scratch,
                                                 .row_grads = softmax_row_grads,
                                                 .row_ceiling = softmax_row_ceiling};
static const struct ek_op_class full_class = {.name = "full_softmax",
                                              .forward = softmax_forward,
                                              .backward = softmax_backward,
                                              .cost = softmax_cost,
                                              .scratch = softmax_scratch,
                                              .row_grads = softmax_row_grads,
                                              .row_ceiling = softmax_row_ceiling};

static int softmax_add(struct ek_graph *g, const struct ek_op_class *class,
                       const int *in, int n_in, const struct ek_sampled *o)
{
    if (!ek_expect_table(g, class->name, in[TABLE], n_in > NEGATIVES ? 2 : 1) ||
        !ek_expect_cols(g, class->name, in[H], g->values[in[TABLE]].cols,
                        EK_DTYPE_F32) ||
        !ek_expect_cols(g, class->name, in[TARGETS], 1, EK_DTYPE_I32) ||
        !ek_same_rows(g, class->name, in[H], in[TARGETS]) ||
        (n_in > NEGATIVES &&
         !ek_expect_cols(g, class->name, in[NEGATIVES], 1, EK_DTYPE_I32)))
        return -1;
    if (!(o->temperature > 0))
        return ek_graph_fail(g, EK_EINVAL, "%s: temperature %g; expected above 0",
                             class->name, (double)o->temperature);
    struct ek_node *n = ek_node_add(g, class, in, n_in, 0);
    if (!n)
        return -1;
    int64_t D = g->values[in[H]].cols;
    n->f[0] = o->temperature;
    n->flag = o->is_cosine;
    n->table = TABLE;
    n->reads_in = 1u << TARGETS | (n_in > NEGATIVES ? 1u << NEGATIVES : 0);
    n->reads_out = 1u << DH | 1u << DCAND | (n_in > NEGATIVES ? 1u << DPOS : 0);
    n->kept_out = n->reads_out & ~(1u << DH);
    n->keeps_dout = true;
    int loss = ek_node_out_rows(g, -1, 1, 1, EK_DTYPE_F32);
    if (loss < 0 || ek_node_out(g, in[H], D, EK_DTYPE_F32) < 0)
        return -1;
    int cand = n_in > NEGATIVES ? in[NEGATIVES] : in[TABLE];
    if (ek_node_out(g, cand, D, EK_DTYPE_F32) < 0)
        return -1;
    if (n_in > NEGATIVES && ek_node_out(g, in[H], D, EK_DTYPE_F32) < 0)
        return -1;
    return loss;
}

int ek_sampled_softmax(struct ek_graph *g, int h, int table, int targets, int negatives,
                       const struct ek_sampled *o)
{
    return softmax_add(g, &sampled_class, (int[]){h, table, targets, negatives}, 4, o);
}

int ek_full_softmax(struct ek_graph *g, int h, int table, int targets, int64_t first,
                    const struct ek_sampled *o)
{
    int loss = softmax_add(g, &full_class, (int[]){h, table, targets}, 3, o);
    if (loss < 0)
        return -1;
    if (first < 0 || first >= g->values[table].rows)
        return ek_graph_fail(g, EK_EINVAL, "full_softmax: begins at row %lld of %lld",
                             (long long)first, (long long)g->values[table].rows);
    g->nodes[g->n_nodes - 1].n[0] = first;
    return loss;
}
