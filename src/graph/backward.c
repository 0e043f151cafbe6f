/* backward.c - the schedule: forward in the order of building, then backward in reverse
 * with recomputations, zeroed gradients, scatters and reductions where they belong. */
#include "base/mem.h"
#include "graph/graph_int.h"

#include <string.h>

static struct ek_step *step_add(struct ek_graph *g, enum ek_phase phase, int node,
                                int value)
{
    struct ek_step *s = ek_graph_grow(g, (void **)(void *)&g->steps, &g->n_steps,
                                      &g->cap_steps, sizeof *g->steps);
    if (!s)
        return NULL;
    s->phase = phase;
    s->node = node;
    s->value = value;
    s->scratch = -1;
    return s;
}

/* Which nodes backward passes: from the loss along inputs that want a gradient. */
static void mark_active(struct ek_graph *g)
{
    g->values[g->values[g->loss].base].has_grad = true;
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        struct ek_node *n = &g->nodes[i];
        const struct ek_value *out = &g->values[n->out[0]];
        n->is_active = out->has_grad && out->needs_grad && n->class->backward;
        for (int k = 0; n->is_active && k < n->n_in; k++)
            if (n->in[k] >= 0 && g->values[n->in[k]].needs_grad)
                g->values[g->values[n->in[k]].base].has_grad = true;
    }
}

/* Columns of one base gradient that have been written, as bytes: 0 not yet. */
struct cover {
    unsigned char *col; /* of all made values, one after the other */
    size_t *start;      /* of each value */
};

static int cover_new(struct cover *c, struct ek_graph *g)
{
    size_t total = 0;
    c->start = ek_alloc_array((size_t)g->n_values, sizeof *c->start);
    for (int i = 0; c->start && i < g->n_values; i++) {
        c->start[i] = total;
        if (g->values[i].kind == EK_VALUE_MADE && g->values[i].base == i)
            total += (size_t)g->values[i].cols;
    }
    c->col = c->start ? ek_calloc(total + 1, 1) : NULL;
    if (!c->col)
        return ek_graph_fail(g, EK_ENOMEM, "graph: out of memory");
    return 0;
}

static void cover_release(struct cover *c)
{
    ek_free(c->col);
    ek_free(c->start);
}

/* Marks v's columns; 0 all were new, 1 all were written before, -1 some of each. */
static int cover_write(struct cover *c, const struct ek_graph *g, int v)
{
    const struct ek_value *x = &g->values[v];
    unsigned char *col = c->col + c->start[x->base] + x->first_col;
    int64_t old = 0;
    for (int64_t i = 0; i < x->cols; i++) {
        old += col[i];
        col[i] = 1;
    }
    return old == 0 ? 0 : old == x->cols ? 1 : -1;
}

static bool cover_is_whole(const struct cover *c, const struct ek_graph *g, int v)
{
    for (int64_t i = 0; i < g->values[v].cols; i++)
        if (!c->col[c->start[v] + (size_t)i])
            return false;
    return true;
}

/* Gradient of in[k] of an active node goes to a place of its own. */
static bool writes_grad(const struct ek_graph *g, const struct ek_node *n, int k)
{
    return n->in[k] >= 0 && g->values[n->in[k]].needs_grad &&
           g->values[n->in[k]].kind == EK_VALUE_MADE;
}

/* A gradient whose parts do not tile it must start from zero. */
static int mark_zeros(struct ek_graph *g)
{
    struct cover c = {0};
    int rc = cover_new(&c, g);
    if (rc)
        goto out;
    (void)cover_write(&c, g, g->loss);
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        const struct ek_node *n = &g->nodes[i];
        if (!n->is_active)
            continue;
        if (!cover_is_whole(&c, g, n->out[0]))
            g->values[n->out[0]].needs_zero = true;
        for (int k = 0; k < n->n_in; k++)
            if (writes_grad(g, n, k) && cover_write(&c, g, n->in[k]) < 0)
                g->values[g->values[n->in[k]].base].needs_zero = true;
    }
out:
    cover_release(&c);
    return rc;
}

struct schedule {
    struct ek_graph *g;
    struct cover cover;
    unsigned char *is_redone; /* of nodes: its recompute step stands already */
    unsigned char *is_zeroed; /* of values */
    int *uses;                /* of parameters' values: active nodes still to come */
};

/* Recompute steps so that v can be read. Deep chains of recomputed values recurse once
 * a node; nodes are few. */
static int want_value(struct schedule *s, int v)
{
    int node = v < 0 ? -1 : s->g->values[v].node;
    if (node < 0 || !s->g->nodes[node].is_recomputed || s->is_redone[node])
        return 0;
    for (int k = 0; k < s->g->nodes[node].n_in; k++)
        if (want_value(s, s->g->nodes[node].in[k]))
            return -1;
    s->is_redone[node] = 1;
    return step_add(s->g, EK_PHASE_RECOMPUTE, node, -1) ? 0 : -1;
}

static int zero_once(struct schedule *s, int v)
{
    int base = s->g->values[v].base;
    if (!s->g->values[base].needs_zero || s->is_zeroed[base])
        return 0;
    s->is_zeroed[base] = 1;
    return step_add(s->g, EK_PHASE_ZERO, -1, base) ? 0 : -1;
}

static bool is_looked_up(const struct ek_graph *g, int value)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const struct ek_node *n = &g->nodes[i];
        if (n->is_active && n->table >= 0 && n->in[n->table] == value)
            return true;
    }
    return false;
}

/* Scatter and reduction of the parameters whose last contribution node n was. */
static int close_params(struct schedule *s, const struct ek_node *n)
{
    struct ek_graph *g = s->g;
    for (int k = 0; k < n->n_in; k++) {
        int v = n->in[k];
        if (v < 0 || g->values[v].kind != EK_VALUE_PARAM || --s->uses[v] > 0)
            continue;
        if (ek_params_get(g->params, g->values[v].param)->is_table)
            continue;
        if (is_looked_up(g, v) && !step_add(g, EK_PHASE_SCATTER, -1, v))
            return -1;
        if (!step_add(g, EK_PHASE_REDUCE, -1, v))
            return -1;
    }
    return 0;
}

static int schedule_node(struct schedule *s, int i)
{
    struct ek_graph *g = s->g;
    const struct ek_node *n = &g->nodes[i];
    unsigned added = 0;
    for (int k = 0; k < n->n_in; k++)
        if ((n->reads_in >> k & 1) && want_value(s, n->in[k]))
            return -1;
    for (int k = 0; k < n->n_out; k++)
        if ((n->reads_out >> k & 1) && want_value(s, n->out[k]))
            return -1;
    if (zero_once(s, n->out[0]))
        return -1;
    for (int k = 0; k < n->n_in; k++) {
        if (!writes_grad(g, n, k))
            continue;
        bool has_old = cover_write(&s->cover, g, n->in[k]) != 0;
        if (zero_once(s, n->in[k]))
            return -1;
        if (has_old || g->values[g->values[n->in[k]].base].needs_zero)
            added |= 1u << k;
    }
    struct ek_step *step = step_add(g, EK_PHASE_BACKWARD, i, -1);
    if (!step)
        return -1;
    step->added = added;
    return close_params(s, n);
}

/* Which dense parameters get looked-up rows and nothing else: the touched rows of these
 * are worth knowing. */
static int track_params(struct ek_graph *g)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const struct ek_node *n = &g->nodes[i];
        for (int k = 0; n->is_active && k < n->n_in; k++) {
            int v = n->in[k];
            if (v < 0 || g->values[v].kind != EK_VALUE_PARAM)
                continue;
            struct ek_param *p = ek_params_get(g->params, g->values[v].param);
            if (p->is_table)
                continue;
            if (k != n->table)
                p->has_dense_grad = true;
            else if (ek_params_track(p))
                return ek_graph_fail(g, EK_ENOMEM, "graph: out of memory");
        }
    }
    return 0;
}

static int schedule_backward(struct ek_graph *g)
{
    struct schedule s = {.g = g};
    int rc = -1;
    s.is_redone = ek_calloc((size_t)g->n_nodes + 1, 1);
    s.is_zeroed = ek_calloc((size_t)g->n_values + 1, 1);
    s.uses = ek_calloc((size_t)g->n_values + 1, sizeof *s.uses);
    if (!s.is_redone || !s.is_zeroed || !s.uses) {
        ek_graph_fail(g, EK_ENOMEM, "graph: out of memory");
        goto out;
    }
    if (cover_new(&s.cover, g))
        goto out;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; g->nodes[i].is_active && k < g->nodes[i].n_in; k++)
            if (g->nodes[i].in[k] >= 0)
                s.uses[g->nodes[i].in[k]]++;
    if (!step_add(g, EK_PHASE_SEED, -1, g->loss))
        goto out;
    (void)cover_write(&s.cover, g, g->loss);
    for (int i = g->n_nodes - 1; i >= 0; i--)
        if (g->nodes[i].is_active && schedule_node(&s, i))
            goto out;
    rc = 0;
out:
    ek_free(s.is_redone);
    ek_free(s.is_zeroed);
    ek_free(s.uses);
    cover_release(&s.cover);
    return rc;
}

int ek_schedule(struct ek_graph *g)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (!step_add(g, EK_PHASE_FORWARD, i, -1))
            return -1;
    g->n_forward = g->n_steps;
    if (g->loss < 0)
        return 0;
    if (!g->values[g->loss].needs_grad)
        return ek_graph_fail(g, EK_EINVAL, "loss: '%s' depends on no parameter",
                             g->values[g->loss].name);
    mark_active(g);
    if (mark_zeros(g) || track_params(g))
        return -1;
    return schedule_backward(g);
}
