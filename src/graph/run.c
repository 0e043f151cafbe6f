/* run.c - a step: binds this batch's rows, walks the schedule, nothing else. */
#include "base/clock.h"
#include "base/rng.h"
#include "graph/graph_int.h"

#include <assert.h>
#include <math.h>
#include <string.h>

int ek_graph_set_axis(struct ek_graph *g, int axis, int64_t rows)
{
    assert(axis >= 0 && axis < g->n_axes);
    if (rows < 0 || rows > g->axes[axis].max_rows)
        return EK_ELIMIT;
    g->axes[axis].rows = rows;
    return 0;
}

void ek_graph_bind(struct ek_graph *g, int input, const void *p)
{
    assert(g->values[input].kind == EK_VALUE_INPUT);
    g->values[input].bound = p;
}

void ek_graph_on_reduce(struct ek_graph *g, ek_reduce_fn *fn, void *arg)
{
    g->reduce = fn;
    g->reduce_arg = arg;
}

int64_t ek_value_rows(const struct ek_graph *g, int v)
{
    const struct ek_value *x = &g->values[v];
    return x->axis >= 0 ? g->axes[x->axis].rows : x->rows;
}

/* The bytes of base value v in a slot, NULL where it has none. */
static void *place_of(const struct ek_graph *g, int v, enum ek_slot slot)
{
    const struct ek_value *x = &g->values[v];
    if (x->kind == EK_VALUE_MADE)
        return x->piece[slot] < 0 ? NULL : g->arena + g->pieces[x->piece[slot]].offset;
    if (x->kind == EK_VALUE_PARAM) {
        struct ek_param *p = ek_params_get(g->params, x->param);
        return slot == EK_SLOT_GRAD ? p->grad : p->value;
    }
    if (slot == EK_SLOT_GRAD)
        return NULL;
    assert(x->bound || ek_value_rows(g, v) == 0);
    void *p;
    memcpy(&p, &x->bound, sizeof p); /* inputs are const: no operation writes one */
    return p;
}

struct ek_mat ek_resolve(const struct ek_graph *g, int v, enum ek_slot slot)
{
    const struct ek_value *x = &g->values[v];
    struct ek_mat m = {
        .rows = ek_value_rows(g, v), .cols = x->cols, .ld = g->values[x->base].cols};
    char *p = place_of(g, x->base, slot);
    if (p)
        m.f =
            (float *)(void *)(p + (size_t)x->first_col * ek_dtype_block_bytes(x->type));
    return m;
}

void ek_run_open(struct ek_op_run *r, struct ek_graph *g, const struct ek_step *s)
{
    memset(r, 0, sizeof *r);
    const struct ek_node *n = &g->nodes[s->node];
    bool is_backward = s->phase == EK_PHASE_BACKWARD;
    r->g = g;
    r->node = n;
    r->added = s->added;
    r->scratch = s->scratch < 0 ? NULL : g->arena + g->pieces[s->scratch].offset;
    r->key = ek_mix64(ek_mix64(g->o.seed + 0x9e3779b97f4a7c15u * (g->step + 1)) +
                      0x9e3779b97f4a7c15u * (uint64_t)(s->node + 1));
    for (int k = 0; k < n->n_in; k++) {
        int v = n->in[k];
        if (v < 0)
            continue;
        enum ek_slot slot =
            s->phase == EK_PHASE_FORWARD ? EK_SLOT_SAVED : ek_backward_slot(g, v);
        r->in[k] = ek_resolve(g, v, slot);
        if (is_backward && !(n->reads_in >> k & 1))
            r->in[k].f = NULL;
        if (is_backward && g->values[v].needs_grad)
            r->din[k] = ek_resolve(g, v, EK_SLOT_GRAD);
        if (g->values[v].kind == EK_VALUE_PARAM)
            r->added |= 1u << k;
    }
    for (int k = 0; k < n->n_out; k++) {
        int v = n->out[k];
        enum ek_slot slot = s->phase == EK_PHASE_FORWARD     ? EK_SLOT_SAVED
                            : s->phase == EK_PHASE_RECOMPUTE ? EK_SLOT_AGAIN
                                                             : ek_backward_slot(g, v);
        r->out[k] = ek_resolve(g, v, slot);
        if (is_backward && !((n->reads_out | n->kept_out) >> k & 1))
            r->out[k].f = NULL;
        if (is_backward && k == 0)
            r->dout[k] = ek_resolve(g, v, EK_SLOT_GRAD);
    }
}

int64_t ek_graph_row_ceiling(const struct ek_graph *g, int param)
{
    int64_t sum = 0;
    for (int i = g->n_forward; i < g->n_steps; i++) {
        const struct ek_step *s = &g->steps[i];
        if (s->phase != EK_PHASE_BACKWARD)
            continue;
        const struct ek_node *x = &g->nodes[s->node];
        if (x->table >= 0 && g->values[x->in[x->table]].param == param)
            sum += x->class->row_ceiling(g, x); /* a few of below 2^31 */
    }
    return sum;
}

int ek_row_sources(const struct ek_graph *g, int value,
                   struct ek_row_grad out[EK_ROW_SOURCES])
{
    int n = 0;
    for (int i = g->n_forward; i < g->n_steps; i++) {
        const struct ek_step *s = &g->steps[i];
        if (s->phase != EK_PHASE_BACKWARD)
            continue;
        const struct ek_node *x = &g->nodes[s->node];
        if (x->table < 0 || x->in[x->table] != value)
            continue;
        struct ek_op_run r;
        /* opening writes nothing of the graph */
        struct ek_graph *open = (struct ek_graph *)(uintptr_t)g;
        ek_run_open(&r, open, s);
        n += x->class->row_grads(&r, out + n); /* ek_expect_table counted them */
    }
    return n;
}

int ek_graph_row_grads(const struct ek_graph *g, int param,
                       struct ek_row_grad out[EK_ROW_SOURCES])
{
    for (int v = 0; v < g->n_values; v++)
        if (g->values[v].kind == EK_VALUE_PARAM && g->values[v].param == param)
            return ek_row_sources(g, v, out);
    return 0;
}

struct scatter {
    const struct ek_grad_ops *ops;
    struct ek_mat grad;
    unsigned char *touched; /* or NULL */
};

static void add_row(void *arg, int64_t row, const float *sum)
{
    const struct scatter *s = arg;
    float *to = ek_at(s->grad, row);
    s->ops->add(to, to, sum, 1.0f, s->grad.cols);
    if (s->touched)
        s->touched[row] = 1;
}

static void scatter(struct ek_graph *g, const struct ek_step *s)
{
    struct ek_row_grad sources[EK_ROW_SOURCES];
    struct scatter to = {g->ops, ek_resolve(g, s->value, EK_SLOT_GRAD),
                         ek_params_get(g->params, g->values[s->value].param)->touched};
    struct ek_rows rows = {.sources = sources,
                           .n_sources = ek_row_sources(g, s->value, sources),
                           .table_rows = to.grad.rows,
                           .cols = to.grad.cols,
                           .scratch = g->arena + g->pieces[s->scratch].offset,
                           .team = g->o.team,
                           .ops = g->ops,
                           .table = to.grad.f};
    ek_rows_each(&rows, add_row, &to);
}

static void fill_grad(struct ek_graph *g, int value, float x)
{
    struct ek_mat m = ek_resolve(g, value, EK_SLOT_GRAD);
    for (int64_t i = 0; i < m.rows * m.cols; i++)
        m.f[i] = x;
}

static void run_step(struct ek_graph *g, const struct ek_step *s)
{
    struct ek_op_run r;
    switch (s->phase) {
    case EK_PHASE_FORWARD:
    case EK_PHASE_RECOMPUTE:
        ek_run_open(&r, g, s);
        r.node->class->forward(&r);
        break;
    case EK_PHASE_BACKWARD:
        ek_run_open(&r, g, s);
        r.node->class->backward(&r);
        break;
    case EK_PHASE_SEED:
        fill_grad(g, s->value, g->dloss);
        break;
    case EK_PHASE_ZERO:
        fill_grad(g, s->value, 0.0f);
        break;
    case EK_PHASE_SCATTER:
        scatter(g, s);
        break;
    case EK_PHASE_REDUCE:
        if (g->reduce) {
            int id = g->values[s->value].param;
            g->reduce(g->reduce_arg, id, ek_params_get(g->params, id));
        }
        break;
    }
}

static void run_steps(struct ek_graph *g, int lo, int hi)
{
    assert(g->is_planned && g->arena);
    for (int i = lo; i < hi; i++) {
        struct ek_step *s = &g->steps[i];
        int64_t start = g->is_profiled ? ek_clock_us() : 0;
        run_step(g, s);
        if (g->is_profiled) {
            s->time_us += ek_clock_us() - start;
            s->n_timed++;
        }
    }
}

void ek_graph_forward(struct ek_graph *g, uint64_t step)
{
    g->step = step;
    run_steps(g, 0, g->n_forward);
}

void ek_graph_backward(struct ek_graph *g, float dloss)
{
    assert(g->loss >= 0);
    g->dloss = dloss;
    run_steps(g, g->n_forward, g->n_steps);
}

struct ek_mat ek_graph_mat(const struct ek_graph *g, int v)
{
    assert(g->is_planned && g->arena);
    return ek_resolve(g, v, EK_SLOT_SAVED);
}

float ek_graph_scalar(const struct ek_graph *g, int v)
{
    return ek_graph_mat(g, v).f[0];
}

static bool find_in(const struct ek_graph *g, int v, struct ek_graph_fault *fault)
{
    struct ek_mat m = ek_resolve(g, v, EK_SLOT_SAVED);
    for (int64_t r = 0; m.f && g->values[v].type == EK_DTYPE_F32 && r < m.rows; r++)
        for (int64_t c = 0; c < m.cols; c++)
            if (!isfinite(ek_at(m, r)[c])) {
                fault->row = r;
                fault->col = c;
                fault->value = ek_at(m, r)[c];
                fault->name = g->values[v].name;
                return true;
            }
    return false;
}

bool ek_graph_find_fault(struct ek_graph *g, struct ek_graph_fault *fault)
{
    for (int i = 0; i < g->n_forward; i++) {
        const struct ek_node *n = &g->nodes[g->steps[i].node];
        fault->op = n->class->name;
        for (int k = 0; k < n->n_in; k++) {
            int v = n->in[k];
            if (v >= 0 && g->values[v].kind == EK_VALUE_INPUT && find_in(g, v, fault))
                return true;
        }
        run_step(g, &g->steps[i]);
        /* What is beside the result may be infinite, or unwritten, and fine. */
        if (find_in(g, n->out[0], fault))
            return true;
    }
    return false;
}

/* --- blocks ----------------------------------------------------------------------- */

struct deal {
    const struct ek_op_run *r;
    ek_block_fn *fn;
    void *arg;
    int64_t n, m; /* blocks of two kinds */
};

static void deal_share(void *arg, int member, int n_members)
{
    const struct deal *d = arg;
    int64_t lo, hi;
    ek_team_share(&lo, &hi, d->n, 1, member, n_members);
    for (int64_t b = lo; b < hi; b++)
        d->fn(d->r, d->arg, b, member);
    /* from the other end: an odd one of each does not go to the same member */
    ek_team_share(&lo, &hi, d->m, 1, n_members - 1 - member, n_members);
    for (int64_t b = lo; b < hi; b++)
        d->fn(d->r, d->arg, d->n + b, member);
}

void ek_blocks(const struct ek_op_run *r, ek_block_fn *fn, void *arg, int64_t n)
{
    ek_blocks_of_two(r, fn, arg, n, 0);
}

void ek_blocks_of_two(const struct ek_op_run *r, ek_block_fn *fn, void *arg, int64_t n,
                      int64_t m)
{
    struct deal d = {r, fn, arg, n, m};
    if (n + m > 1)
        ek_team_run(r->g->o.team, deal_share, &d);
    else if (n + m == 1)
        fn(r, arg, 0, 0);
}
