/* plan.c - lifetimes of every value, gradient and scratch in steps, and their
 * places. */
#include "base/mem.h"
#include "graph/graph_int.h"

#include <assert.h>
#include <stdlib.h>

#define ALIGN 64

#define TOO_LARGE                                                                      \
    "graph: a step takes more bytes than a number can tell; shorten the batch"

size_t ek_value_bytes(const struct ek_graph *g, int v)
{
    const struct ek_value *x = &g->values[v];
    size_t bytes;
    return ek_mul_size(&bytes, (size_t)x->rows, (size_t)x->cols) &&
                   ek_mul_size(&bytes, bytes, ek_dtype_block_bytes(x->type))
               ? bytes
               : SIZE_MAX;
}

static int piece_add(struct ek_graph *g, size_t bytes)
{
    if (bytes > PTRDIFF_MAX - ALIGN)
        return ek_graph_fail(g, EK_ELIMIT, TOO_LARGE);
    struct ek_piece *p = ek_graph_grow(g, (void **)(void *)&g->pieces, &g->n_pieces,
                                       &g->cap_pieces, sizeof *g->pieces);
    if (!p)
        return -1;
    p->bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    p->first = 1;
    p->last = 0;
    return g->n_pieces - 1;
}

static void live_at(struct ek_piece *p, int step)
{
    if (p->first > p->last)
        p->first = p->last = step;
    if (step < p->first)
        p->first = step;
    if (step > p->last)
        p->last = step;
}

enum ek_slot ek_backward_slot(const struct ek_graph *g, int v)
{
    int node = g->values[v].node;
    return node >= 0 && g->nodes[node].is_recomputed ? EK_SLOT_AGAIN : EK_SLOT_SAVED;
}

/* Value v lives in `slot` at `step`. */
static int touch(struct ek_graph *g, int v, enum ek_slot slot, int step)
{
    if (v < 0 || g->values[v].kind != EK_VALUE_MADE)
        return 0;
    int base = g->values[v].base;
    if (g->values[base].piece[slot] < 0) {
        int p = piece_add(g, ek_value_bytes(g, base));
        if (p < 0)
            return -1;
        g->values[base].piece[slot] = p;
    }
    live_at(&g->pieces[g->values[base].piece[slot]], step);
    return 0;
}

static int touch_backward(struct ek_graph *g, const struct ek_node *n, int i)
{
    int last = g->n_steps, rc = 0;
    for (int k = 0; k < n->n_in && !rc; k++) {
        if (n->in[k] < 0)
            continue;
        if (n->reads_in >> k & 1)
            rc = touch(g, n->in[k], ek_backward_slot(g, n->in[k]), i);
        if (!rc && g->values[n->in[k]].needs_grad)
            rc = touch(g, n->in[k], EK_SLOT_GRAD, i);
    }
    for (int k = 0; k < n->n_out && !rc; k++) {
        enum ek_slot slot = ek_backward_slot(g, n->out[k]);
        if (n->reads_out >> k & 1)
            rc = touch(g, n->out[k], slot, i);
        if (!rc && (n->kept_out >> k & 1)) {
            rc = touch(g, n->out[k], slot, i);
            if (!rc)
                rc = touch(g, n->out[k], slot, last);
        }
    }
    if (!rc)
        rc = touch(g, n->out[0], EK_SLOT_GRAD, i);
    if (!rc && n->keeps_dout)
        rc = touch(g, n->out[0], EK_SLOT_GRAD, last);
    return rc;
}

static int touch_step(struct ek_graph *g, int i)
{
    const struct ek_step *s = &g->steps[i];
    if (s->phase == EK_PHASE_SEED || s->phase == EK_PHASE_ZERO)
        return touch(g, s->value, EK_SLOT_GRAD, i);
    if (s->phase == EK_PHASE_SCATTER || s->phase == EK_PHASE_REDUCE)
        return 0;
    const struct ek_node *n = &g->nodes[s->node];
    if (s->phase == EK_PHASE_BACKWARD)
        return touch_backward(g, n, i);
    bool is_again = s->phase == EK_PHASE_RECOMPUTE;
    for (int k = 0; k < n->n_in; k++) {
        enum ek_slot slot = EK_SLOT_SAVED;
        if (is_again && n->in[k] >= 0)
            slot = ek_backward_slot(g, n->in[k]);
        if (touch(g, n->in[k], slot, i))
            return -1;
    }
    for (int k = 0; k < n->n_out; k++)
        if (touch(g, n->out[k], is_again ? EK_SLOT_AGAIN : EK_SLOT_SAVED, i))
            return -1;
    return 0;
}

/* Entries that the look-ups of a parameter may bring, at the ceilings. */
static int64_t max_entries(const struct ek_graph *g, int value)
{
    int64_t n = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct ek_node *x = &g->nodes[i];
        if (x->is_active && x->table >= 0 && x->in[x->table] == value)
            for (int k = 0; k < x->n_in; k++)
                if (x->in[k] >= 0)
                    n += g->values[x->in[k]].rows; /* ids, and more than needed */
    }
    return n;
}

static int add_scratch(struct ek_graph *g, int i)
{
    const struct ek_step *s = &g->steps[i];
    size_t bytes = 0;
    if (s->phase == EK_PHASE_SCATTER)
        bytes = ek_rows_bytes(max_entries(g, s->value));
    else if (s->node >= 0 && g->nodes[s->node].class->scratch)
        bytes =
            g->nodes[s->node].class->scratch(g, s->node, s->phase == EK_PHASE_BACKWARD);
    if (bytes == 0)
        return 0;
    int p = piece_add(g, bytes);
    if (p < 0)
        return -1;
    g->steps[i].scratch = p;
    live_at(&g->pieces[p], i);
    return 0;
}

static void count_saved(struct ek_graph *g)
{
    for (int i = 0; i < g->n_values; i++) {
        int p = g->values[i].base == i ? g->values[i].piece[EK_SLOT_SAVED] : -1;
        if (p >= 0 && g->pieces[p].last >= g->n_forward)
            g->saved_bytes += g->pieces[p].bytes;
    }
}

int ek_lifetimes(struct ek_graph *g)
{
    for (int i = 0; i < g->n_steps; i++)
        if (touch_step(g, i) || add_scratch(g, i))
            return -1;
    for (int i = 0; i < g->n_values; i++)
        if ((g->values[i].is_output || i == g->loss) &&
            touch(g, i, EK_SLOT_SAVED, g->n_steps))
            return -1;
    count_saved(g);
    return 0;
}

static int by_size(const void *a, const void *b, void *pieces)
{
    int x = *(const int *)a, y = *(const int *)b;
    const struct ek_piece *p = pieces;
    if (p[x].bytes != p[y].bytes)
        return p[x].bytes < p[y].bytes ? 1 : -1;
    return x < y ? -1 : 1;
}

/* The lowest place of piece p that is free during its life among those placed before
 * it: those of `order` before `at`, walked again until nobody stands in the way. */
static size_t lowest_place(const struct ek_piece *pieces, const int *order, int at)
{
    const struct ek_piece *p = &pieces[order[at]];
    size_t offset = 0;
    bool is_free = false;
    while (!is_free) {
        is_free = true;
        for (int i = 0; i < at; i++) {
            const struct ek_piece *q = &pieces[order[i]];
            if (q->first > p->last || p->first > q->last)
                continue;
            if (q->offset < offset + p->bytes && offset < q->offset + q->bytes) {
                offset = q->offset + q->bytes;
                is_free = false;
            }
        }
    }
    return offset;
}

size_t ek_place(struct ek_piece *pieces, int n, int *order)
{
    size_t end = 0;
    for (int i = 0; i < n; i++)
        order[i] = i;
    qsort_r(order, (size_t)n, sizeof *order, by_size, pieces);
    for (int i = 0; i < n; i++) {
        struct ek_piece *p = &pieces[order[i]];
        p->offset = lowest_place(pieces, order, i);
        if (p->offset + p->bytes > end)
            end = p->offset + p->bytes;
    }
    return end;
}

/* No place is beyond the sum of all pieces: where that is a number, so is every end of a
 * piece that ek_place looks at. */
static bool is_sum_told(const struct ek_graph *g)
{
    size_t sum = ALIGN;
    for (int i = 0; i < g->n_pieces; i++)
        if (!ek_add_size(&sum, sum, g->pieces[i].bytes))
            return false;
    return true;
}

static int place_all(struct ek_graph *g)
{
    if (!is_sum_told(g))
        return ek_graph_fail(g, EK_ELIMIT, TOO_LARGE);
    int *order = ek_alloc_array((size_t)g->n_pieces + 1, sizeof *order);
    if (!order)
        return ek_graph_fail(g, EK_ENOMEM, "graph: out of memory");
    g->arena_bytes = ek_place(g->pieces, g->n_pieces, order);
    ek_free(order);
    if (g->o.max_bytes && g->arena_bytes > g->o.max_bytes)
        return ek_graph_fail(g, EK_ELIMIT,
                             "graph: a step takes %zu bytes, the ceiling is %llu; "
                             "shorten the batch or recompute more",
                             g->arena_bytes, (unsigned long long)g->o.max_bytes);
    return 0;
}

int ek_graph_take(struct ek_graph *g, struct ek_err *err)
{
    assert(g->is_planned && !g->arena);
    g->arena = ek_alloc_huge(g->arena_bytes + ALIGN);
    return g->arena ? 0
                    : ek_err_set(err, EK_ENOMEM, "graph: no memory for %zu bytes",
                                 g->arena_bytes);
}

/* A table has no dense gradient: where it is not looked up, its slope would be lost. */
static void check_tables(struct ek_graph *g)
{
    for (int i = 0; i < g->n_nodes && !g->err.status; i++) {
        const struct ek_node *x = &g->nodes[i];
        for (int k = 0; k < x->n_in; k++) {
            if (k == x->table || x->in[k] < 0)
                continue;
            const struct ek_value *v = &g->values[x->in[k]];
            if (v->kind == EK_VALUE_PARAM &&
                ek_params_get(g->params, v->param)->is_table)
                ek_graph_fail(g, EK_EINVAL,
                              "%s: '%s' is a table: expected a parameter with a dense "
                              "gradient, or a look-up of its rows",
                              x->class->name, v->name);
        }
    }
}

int ek_graph_plan(struct ek_graph *g, struct ek_err *err)
{
    assert(!g->is_planned);
    if (!g->err.status && g->n_nodes == 0)
        ek_graph_fail(g, EK_EINVAL, "graph: no operation");
    if (!g->err.status)
        check_tables(g);
    if (!g->err.status && !ek_schedule(g) && !ek_lifetimes(g))
        (void)place_all(g);
    if (g->err.status)
        return ek_err_set(err, g->err.status, "%s", g->err.text);
    g->is_planned = true;
    return g->o.is_deferred ? 0 : ek_graph_take(g, err);
}
