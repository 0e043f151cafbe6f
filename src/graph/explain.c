/* explain.c - what each step of the schedule costs and took. */
#include "graph/graph_int.h"

#include <assert.h>

static const char *const phases[] = {"forward",  "recompute", "seed",  "zero",
                                     "backward", "scatter",   "reduce"};

size_t ek_graph_arena_bytes(const struct ek_graph *g)
{
    return g->arena_bytes;
}

size_t ek_graph_saved_bytes(const struct ek_graph *g)
{
    return g->saved_bytes;
}

void ek_graph_profile(struct ek_graph *g, bool is_on)
{
    g->is_profiled = is_on;
    for (int i = 0; i < g->n_steps; i++)
        g->steps[i].time_us = g->steps[i].n_timed = 0;
}

int ek_graph_rows(const struct ek_graph *g)
{
    return g->n_steps;
}

static int64_t mat_bytes(const struct ek_graph *g, int v)
{
    return ek_value_rows(g, v) * g->values[v].cols *
           (int64_t)ek_dtype_block_bytes(g->values[v].type);
}

/* Inputs and outputs once; of a table the rows that are read. Backward reads gradients
 * of outputs and what it needs, and writes gradients of inputs. */
static int64_t step_bytes(const struct ek_graph *g, const struct ek_step *s)
{
    const struct ek_node *n = &g->nodes[s->node];
    bool is_backward = s->phase == EK_PHASE_BACKWARD;
    int64_t sum = 0;
    for (int k = 0; k < n->n_in; k++) {
        if (n->in[k] < 0 || k == n->table)
            continue;
        int64_t bytes = mat_bytes(g, n->in[k]);
        if (!is_backward || (n->reads_in >> k & 1))
            sum += bytes;
        if (is_backward && g->values[n->in[k]].needs_grad)
            sum += bytes * (s->added >> k & 1 ? 2 : 1);
    }
    for (int k = 0; k < n->n_out; k++)
        if (!is_backward || k == 0 || (n->reads_out >> k & 1))
            sum += mat_bytes(g, n->out[k]) *
                   (k == 0 && n->table >= 0 && !is_backward ? 2 : 1);
    return sum;
}

static int64_t step_flops(const struct ek_graph *g, const struct ek_step *s)
{
    const struct ek_node *n = &g->nodes[s->node];
    if (!n->class->cost || s->phase == EK_PHASE_RECOMPUTE)
        return 0;
    struct ek_op_run r = {.node = n};
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k] >= 0)
            r.in[k] = ek_resolve(g, n->in[k], EK_SLOT_SAVED);
    for (int k = 0; k < n->n_out; k++)
        r.out[k] = ek_resolve(g, n->out[k], EK_SLOT_SAVED);
    struct ek_cost cost = {0};
    n->class->cost(&r, &cost);
    return s->phase == EK_PHASE_BACKWARD ? cost.backward : cost.forward;
}

static int64_t kept_bytes(const struct ek_graph *g, const struct ek_step *s)
{
    int64_t sum = 0;
    for (int k = 0; k < g->nodes[s->node].n_out; k++) {
        int v = g->nodes[s->node].out[k], p = g->values[v].piece[EK_SLOT_SAVED];
        if (p >= 0 && g->pieces[p].last >= g->n_forward)
            sum += mat_bytes(g, v);
    }
    return sum;
}

void ek_graph_explain(const struct ek_graph *g, int line, struct ek_graph_row *row)
{
    assert(line >= 0 && line < g->n_steps);
    const struct ek_step *s = &g->steps[line];
    *row = (struct ek_graph_row){.phase = phases[s->phase], .op = "", .region = ""};
    if (s->n_timed)
        row->ms = (double)s->time_us / 1e3 / (double)s->n_timed;
    if (s->node < 0) {
        row->name = g->values[s->value].name;
        row->op = phases[s->phase];
        return;
    }
    const struct ek_node *n = &g->nodes[s->node];
    row->op = n->class->name;
    row->name = g->values[n->out[0]].name;
    row->region = g->regions[n->region];
    row->flops = step_flops(g, s);
    row->bytes = step_bytes(g, s);
    if (s->phase == EK_PHASE_FORWARD)
        row->saved_bytes = kept_bytes(g, s);
}

int64_t ek_graph_flops(const struct ek_graph *g)
{
    int64_t sum = 0;
    for (int i = 0; i < g->n_steps; i++)
        if (g->steps[i].node >= 0)
            sum += step_flops(g, &g->steps[i]);
    return sum;
}
