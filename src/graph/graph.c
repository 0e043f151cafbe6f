/* graph.c - building: axes, values, nodes, and the first fault. */
#include "graph/graph.h"

#include "base/mem.h"
#include "graph/graph_int.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

int ek_graph_new(struct ek_graph **out, struct ek_params *params,
                 const struct ek_graph_options *options, struct ek_err *err)
{
    struct ek_graph *g = ek_calloc(1, sizeof *g);
    if (!g)
        return ek_err_set(err, EK_ENOMEM, "graph: out of memory");
    g->o = *options;
    g->params = params;
    g->gemm = ek_gemm_ops_get(options->isa);
    g->ops = ek_grad_ops_get(options->isa);
    g->kernels = ek_ops_get(options->isa);
    g->loss = -1;
    ek_graph_region(g, "");
    if (g->err.status) {
        ek_graph_free(g);
        return ek_err_set(err, EK_ENOMEM, "graph: out of memory");
    }
    *out = g;
    return 0;
}

void ek_graph_free(struct ek_graph *g)
{
    if (!g)
        return;
    ek_free(g->values);
    ek_free(g->nodes);
    ek_free(g->steps);
    ek_free(g->axes);
    ek_free(g->pieces);
    ek_free(g->regions);
    ek_free(g->arena);
    ek_free(g);
}

int ek_graph_fail(struct ek_graph *g, int status, const char *fmt, ...)
{
    if (g->err.status)
        return -1;
    va_list args;
    va_start(args, fmt);
    (void)ek_err_setv(&g->err, status, fmt, args);
    va_end(args);
    return -1;
}

void *ek_graph_grow(struct ek_graph *g, void **list, int *n, int *cap, size_t size)
{
    if (*n == *cap) {
        int more = *cap ? 2 * *cap : 32;
        void *p = ek_realloc_array(*list, (size_t)more, size);
        if (!p) {
            ek_graph_fail(g, EK_ENOMEM, "graph: out of memory");
            return NULL;
        }
        *list = p;
        *cap = more;
    }
    void *entry = (char *)*list + (size_t)(*n)++ * size;
    memset(entry, 0, size);
    return entry;
}

#define GROW(g, list)                                                                  \
    ek_graph_grow(g, (void **)(void *)&(g)->list, &(g)->n_##list, &(g)->cap_##list,    \
                  sizeof *(g)->list)

static bool can_build(struct ek_graph *g)
{
    assert(!g->is_planned);
    return !g->err.status;
}

static bool is_value(const struct ek_graph *g, int v)
{
    return v >= 0 && v < g->n_values;
}

static void set_name(char *to, size_t cap, const char *name)
{
    (void)snprintf(to, cap, "%s", name);
}

int ek_graph_axis(struct ek_graph *g, const char *name, int64_t max_rows)
{
    if (!can_build(g))
        return -1;
    if (max_rows < 1 || max_rows > INT32_MAX)
        return ek_graph_fail(g, EK_EINVAL, "axis '%s': %lld rows; expected 1 to %d",
                             name, (long long)max_rows, INT32_MAX);
    struct ek_axis *a = GROW(g, axes);
    if (!a)
        return -1;
    set_name(a->name, sizeof a->name, name);
    a->max_rows = max_rows;
    return g->n_axes - 1;
}

static struct ek_value *value_add(struct ek_graph *g, const char *name, int axis,
                                  int64_t rows, int64_t cols)
{
    struct ek_value *v = GROW(g, values);
    if (!v)
        return NULL;
    set_name(v->name, sizeof v->name, name);
    v->axis = axis;
    v->rows = axis >= 0 ? g->axes[axis].max_rows : rows;
    v->cols = cols;
    v->base = g->n_values - 1;
    v->node = v->param = -1;
    v->place = EK_PLACE_WHOLE;
    for (int i = 0; i < EK_SLOT_COUNT; i++)
        v->piece[i] = -1;
    return v;
}

int ek_graph_input(struct ek_graph *g, const char *name, int axis, int64_t cols,
                   enum ek_dtype type)
{
    if (!can_build(g))
        return -1;
    if (axis < 0 || axis >= g->n_axes || cols < 1 || cols > INT32_MAX)
        return ek_graph_fail(g, EK_EINVAL, "input '%s': axis %d, %lld columns", name,
                             axis, (long long)cols);
    struct ek_value *v = value_add(g, name, axis, 0, cols);
    if (!v)
        return -1;
    v->kind = EK_VALUE_INPUT;
    v->type = type;
    return g->n_values - 1;
}

int ek_graph_param(struct ek_graph *g, const struct ek_param_spec *spec)
{
    if (!can_build(g))
        return -1;
    int id = -1;
    if (ek_params_add(g->params, &id, spec, &g->err))
        return -1;
    for (int i = 0; i < g->n_values; i++)
        if (g->values[i].kind == EK_VALUE_PARAM && g->values[i].param == id &&
            g->values[i].base == i)
            return i;
    struct ek_value *v = value_add(g, spec->name, -1, spec->rows, spec->cols);
    if (!v)
        return -1;
    v->kind = EK_VALUE_PARAM;
    v->type = EK_DTYPE_F32;
    v->param = id;
    v->place = ek_params_get(g->params, id)->place;
    v->needs_grad = true;
    return g->n_values - 1;
}

int ek_graph_columns(struct ek_graph *g, int v, int64_t first, int64_t cols)
{
    if (!can_build(g))
        return -1;
    if (!is_value(g, v) || g->values[v].kind != EK_VALUE_MADE || first < 0 ||
        cols < 1 || cols > g->values[v].cols - first)
        return ek_graph_fail(g, EK_EINVAL,
                             "columns %lld to %lld of '%s': it is made by no operation "
                             "or has fewer",
                             (long long)first, (long long)first + (long long)cols,
                             is_value(g, v) ? g->values[v].name : "?");
    struct ek_value *view = GROW(g, values);
    if (!view)
        return -1;
    *view = g->values[v];
    view->first_col += first;
    view->cols = cols;
    return g->n_values - 1;
}

int64_t ek_graph_cols(const struct ek_graph *g, int v)
{
    return g->err.status || !is_value(g, v) ? -1 : g->values[v].cols;
}

int ek_graph_name(struct ek_graph *g, int v, const char *name)
{
    if (can_build(g) && is_value(g, v))
        set_name(g->values[v].name, sizeof g->values[v].name, name);
    return v;
}

int ek_graph_find(const struct ek_graph *g, const char *name)
{
    for (int i = 0; i < g->n_values; i++)
        if (strcmp(g->values[i].name, name) == 0)
            return i;
    return -1;
}

void ek_graph_region(struct ek_graph *g, const char *name)
{
    if (!can_build(g))
        return;
    char(*r)[32] = GROW(g, regions);
    if (r)
        set_name(*r, sizeof *r, name);
}

void ek_graph_keep(struct ek_graph *g, int v, enum ek_keep keep)
{
    if (can_build(g) && is_value(g, v) && g->values[v].node >= 0)
        g->nodes[g->values[v].node].is_recomputed = keep == EK_KEEP_RECOMPUTE;
}

void ek_graph_keep_region(struct ek_graph *g, const char *name, enum ek_keep keep)
{
    for (int i = 0; can_build(g) && i < g->n_nodes; i++)
        if (strcmp(g->regions[g->nodes[i].region], name) == 0)
            g->nodes[i].is_recomputed = keep == EK_KEEP_RECOMPUTE;
}

void ek_graph_loss(struct ek_graph *g, int v)
{
    if (!can_build(g))
        return;
    if (!is_value(g, v) || g->values[v].rows != 1 || g->values[v].cols != 1 ||
        g->values[v].axis >= 0 || g->values[v].kind != EK_VALUE_MADE ||
        g->values[v].base != v)
        ek_graph_fail(g, EK_EINVAL, "loss: '%s' is no scalar made by an operation",
                      is_value(g, v) ? g->values[v].name : "?");
    else
        g->loss = v;
}

void ek_graph_output(struct ek_graph *g, int v)
{
    if (can_build(g) && is_value(g, v))
        g->values[g->values[v].base].is_output = true;
}

/* --- for op_*.c ------------------------------------------------------------------- */

struct ek_node *ek_node_add(struct ek_graph *g, const struct ek_op_class *class,
                            const int *in, int n_in, unsigned optional)
{
    if (!can_build(g))
        return NULL;
    for (int i = 0; i < n_in; i++)
        if (!is_value(g, in[i]) && !(in[i] == -1 && (optional >> i & 1))) {
            ek_graph_fail(g, EK_EINVAL, "%s: input %d is no value", class->name, i);
            return NULL;
        }
    struct ek_node *n = GROW(g, nodes);
    if (!n)
        return NULL;
    n->class = class;
    n->n_in = n_in;
    n->table = -1;
    n->region = g->n_regions - 1;
    for (int i = 0; i < n_in; i++)
        n->in[i] = in[i];
    return n;
}

int ek_node_out_rows(struct ek_graph *g, int axis, int64_t rows, int64_t cols,
                     enum ek_dtype type)
{
    struct ek_node *n = &g->nodes[g->n_nodes - 1];
    char name[sizeof g->values->name];
    (void)snprintf(name, sizeof name, "%s%d%s", n->class->name, g->n_nodes - 1,
                   n->n_out == 0   ? ""
                   : n->n_out == 1 ? ".1"
                   : n->n_out == 2 ? ".2"
                                   : ".3");
    struct ek_value *v = value_add(g, name, axis, rows, cols);
    if (!v)
        return -1;
    v->kind = EK_VALUE_MADE;
    v->type = type;
    v->node = g->n_nodes - 1;
    if (n->n_out == 0 && type == EK_DTYPE_F32 && n->class->backward)
        for (int i = 0; i < n->n_in; i++)
            v->needs_grad |= n->in[i] >= 0 && g->values[n->in[i]].needs_grad;
    n->out[n->n_out++] = g->n_values - 1;
    return g->n_values - 1;
}

int ek_node_out(struct ek_graph *g, int like, int64_t cols, enum ek_dtype type)
{
    return ek_node_out_rows(g, g->values[like].axis, g->values[like].rows, cols, type);
}

bool ek_expect_cols(struct ek_graph *g, const char *op, int v, int64_t cols,
                    enum ek_dtype type)
{
    if (!can_build(g))
        return false;
    if (!is_value(g, v)) {
        ek_graph_fail(g, EK_EINVAL, "%s: an input is no value", op);
        return false;
    }
    const struct ek_value *x = &g->values[v];
    if ((cols >= 0 && x->cols != cols) || x->type != type)
        ek_graph_fail(g, EK_EINVAL,
                      "%s: '%s' has %lld columns of %s, expected %lld of %s", op,
                      x->name, (long long)x->cols, ek_dtype_name(x->type),
                      (long long)(cols < 0 ? x->cols : cols), ek_dtype_name(type));
    return !g->err.status;
}

bool ek_expect_param(struct ek_graph *g, const char *op, int v, int64_t rows,
                     int64_t cols)
{
    if (!ek_expect_cols(g, op, v, cols, EK_DTYPE_F32))
        return false;
    const struct ek_value *x = &g->values[v];
    if (x->kind != EK_VALUE_PARAM || (rows >= 0 && x->rows != rows))
        ek_graph_fail(g, EK_EINVAL, "%s: '%s' is no parameter of %lld rows (%lld here)",
                      op, x->name, (long long)rows, (long long)x->rows);
    return !g->err.status;
}

bool ek_expect_table(struct ek_graph *g, const char *op, int v, int n_sources)
{
    if (!ek_expect_param(g, op, v, -1, -1))
        return false;
    struct ek_value *x = &g->values[v];
    x->n_sources += n_sources;
    if (x->cols > EK_ROW_COLS)
        ek_graph_fail(g, EK_EINVAL, "%s: '%s' has %lld columns; expected at most %d",
                      op, x->name, (long long)x->cols, EK_ROW_COLS);
    else if (x->n_sources > EK_ROW_SOURCES)
        ek_graph_fail(g, EK_EINVAL,
                      "%s: '%s' is looked up too often: %d sources of gradient rows; "
                      "expected at most %d (a look-up is one, a sampled softmax two)",
                      op, x->name, x->n_sources, EK_ROW_SOURCES);
    return !g->err.status;
}

bool ek_same_rows(struct ek_graph *g, const char *op, int a, int b)
{
    if (!can_build(g) || !is_value(g, a) || !is_value(g, b)) {
        ek_graph_fail(g, EK_EINVAL, "%s: an input is no value", op);
        return false;
    }
    const struct ek_value *x = &g->values[a], *y = &g->values[b];
    if (x->axis != y->axis || x->rows != y->rows)
        ek_graph_fail(g, EK_EINVAL, "%s: rows of '%s' and '%s' are of different axes",
                      op, x->name, y->name);
    return !g->err.status;
}
