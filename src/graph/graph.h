/* graph.h - a model as a list of operations over named values; backward is built once.
 *
 *      build                            each step
 *      -----                            ---------
 *   axis, input, param, ops (ops.h)     set_axis, bind     this batch's rows and pointers
 *   region, keep                        forward            -> loss, outputs
 *   loss, output                        backward           -> gradients
 *   plan  ──────────────────────────>   optimizers (train/)
 *
 * A value is a matrix of rows and cols. cols is fixed; rows is fixed or the extent of
 * an axis ("tokens", "users"), which every batch sets, up to a ceiling. The plan places
 * every value at its ceiling in one arena by lifetimes; after it nothing allocates.
 * Values are ids >= 0. Building is sticky: after the first fault every builder returns
 * -1 and ek_graph_plan tells the fault, so that a model reads like its formulas.
 *
 * Numbers: values are f32, ids i32, offsets i64. The same seed gives the same bits for
 * any number of threads: work is cut in blocks that depend on shapes alone, and sums
 * over rows are joined in the order of the blocks (tests/graph/test_same.c). Bits may
 * differ between ISAs.
 * Threads: one owner; the team of the options works inside a call.
 */
#ifndef EVENKEEL_GRAPH_GRAPH_H
#define EVENKEEL_GRAPH_GRAPH_H

#include "base/err.h"
#include "base/team.h"
#include "graph/params.h"
#include "num/cpu.h"
#include "num/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ek_graph;

/* A matrix in memory: row r, column c at p[r*ld + c]. */
struct ek_mat {
    union {
        float *f;
        int32_t *i;
        int64_t *l;
    };
    int64_t rows, cols, ld;
};

struct ek_graph_options {
    struct ek_team *team; /* borrowed while the graph lives */
    enum ek_isa isa;      /* of the kernels */
    bool is_bf16;         /* matmuls round their inputs to bf16, sums stay f32 */
    bool is_training;     /* dropout drops; else it passes */
    uint64_t seed;        /* of dropout masks */
    uint64_t max_bytes;   /* ceiling of the arena; 0: none */
    bool is_deferred;     /* ek_graph_plan takes no arena, ek_graph_take does */
};

/* Errors: EK_ENOMEM. */
int ek_graph_new(struct ek_graph **g, struct ek_params *params,
                 const struct ek_graph_options *options,
                 struct ek_err *err) EK_MUST_USE;
void ek_graph_free(struct ek_graph *g); /* NULL is fine; parameters are left alone */

/* --- building --------------------------------------------------------------------- */

int ek_graph_axis(struct ek_graph *g, const char *name, int64_t max_rows);

/* A value that every step binds: type F32, I32 or I64. */
int ek_graph_input(struct ek_graph *g, const char *name, int axis, int64_t cols,
                   enum ek_dtype type);

/* The parameter as a value; added to the set, or found there (params.h). */
int ek_graph_param(struct ek_graph *g, const struct ek_param_spec *spec);

/* Columns [first, first+cols) of v: a view, no work and no memory, in both
 * directions. */
int ek_graph_columns(struct ek_graph *g, int v, int64_t first, int64_t cols);

/* Columns of v; -1 after a fault. */
int64_t ek_graph_cols(const struct ek_graph *g, int v);

/* v by another name, for explain and for finding it again. */
int ek_graph_name(struct ek_graph *g, int v, const char *name);
int ek_graph_find(const struct ek_graph *g, const char *name); /* -1: none */

/* Operations added from now on belong to this region (a layer, say). */
void ek_graph_region(struct ek_graph *g, const char *name);

/* What backward needs of a value is kept, or computed again just before its first use:
 * the same bits, dropout included. The choice is of the operation that makes v (all of
 * its outputs); a region's holds for every operation in it. */
enum ek_keep { EK_KEEP_SAVE, EK_KEEP_RECOMPUTE };
void ek_graph_keep(struct ek_graph *g, int v, enum ek_keep keep);
void ek_graph_keep_region(struct ek_graph *g, const char *name, enum ek_keep keep);

/* The scalar (1,1) that backward starts from. Without one the graph only runs
 * forward. */
void ek_graph_loss(struct ek_graph *g, int v);

/* v stays readable until the next forward. */
void ek_graph_output(struct ek_graph *g, int v);

/* Builds backward and the plan and takes the arena; no builder may follow.
 * Errors: what a builder found (EK_EINVAL with operation, values and shapes), EK_ELIMIT
 * the arena would be over max_bytes, or no size could tell it; EK_ENOMEM. */
int ek_graph_plan(struct ek_graph *g, struct ek_err *err) EK_MUST_USE;

/* The arena of a graph that is_deferred, behind its plan and before its first step.
 * Errors: EK_ENOMEM. */
int ek_graph_take(struct ek_graph *g, struct ek_err *err) EK_MUST_USE;

/* --- a step ----------------------------------------------------------------------- */

/* Rows of this batch. Errors: EK_ELIMIT over the ceiling (nothing changed). */
int ek_graph_set_axis(struct ek_graph *g, int axis, int64_t rows) EK_MUST_USE;
void ek_graph_bind(struct ek_graph *g, int input, const void *p); /* until the next */

/* `step` makes dropout differ from step to step; the same step gives the same mask. */
void ek_graph_forward(struct ek_graph *g, uint64_t step);

/* After forward: adds to the dense gradients of the parameters. d loss / d loss is
 * `dloss`: 1, or the share of this micro-batch in its step. */
void ek_graph_backward(struct ek_graph *g, float dloss);

/* Valid until the next forward, for outputs and the loss. */
struct ek_mat ek_graph_mat(const struct ek_graph *g, int v);
float ek_graph_scalar(const struct ek_graph *g, int v);

/* Gradient rows of tables: entry e of n adds scale * grad row (row_of ? row_of[e] : e)
 * to row ids[e] of the table. ids NULL: entry e is row e. A negative id adds
 * nothing. */
struct ek_row_grad {
    const int32_t *ids;    /* (n) borrowed: an input of the graph; may be NULL */
    const int32_t *row_of; /* (n) which row of grad; may be NULL */
    const float *grad;     /* (.., cols), rows ld apart */
    int64_t n, ld;
    float scale;
};

/* The sources of the table's gradient after backward; valid until the next forward.
 * Returns their number, at most EK_ROW_SOURCES. */
#define EK_ROW_SOURCES 16
int ek_graph_row_grads(const struct ek_graph *g, int param,
                       struct ek_row_grad out[EK_ROW_SOURCES]);

/* The most of them there can be in a step: the sum of n of all sources with every axis
 * at its ceiling. Behind the plan; needs no arena and nothing bound. */
int64_t ek_graph_row_ceiling(const struct ek_graph *g, int param);

/* Called once a backward for each dense parameter in this graph, as soon as its
 * gradient has every contribution of this process: where a reduction over processes
 * begins. */
typedef void ek_reduce_fn(void *arg, int param, struct ek_param *p);
void ek_graph_on_reduce(struct ek_graph *g, ek_reduce_fn *fn, void *arg);

/* The first operation, row and column of the last forward whose result is not finite,
 * found by running forward again one operation at a time; false: none. */
struct ek_graph_fault {
    const char *op;   /* "linear", borrowed */
    const char *name; /* of the value, borrowed */
    int64_t row, col;
    float value;
};
bool ek_graph_find_fault(struct ek_graph *g, struct ek_graph_fault *fault);

/* --- what it costs ---------------------------------------------------------------- */

struct ek_graph_row {               /* one line of `keel train --explain` */
    const char *op, *name, *region; /* borrowed */
    const char *phase;              /* forward recompute seed zero backward scatter
                                   reduce */
    int64_t flops;                  /* useful ones at the bound rows; 0 for recompute */
    int64_t bytes;                  /* read and written */
    int64_t saved_bytes;            /* of its outputs, kept for backward */
    double ms;                      /* mean of the profiled steps; 0 without */
};

/* The arena, and what backward keeps of it, at the ceiling. */
size_t ek_graph_arena_bytes(const struct ek_graph *g);
size_t ek_graph_saved_bytes(const struct ek_graph *g);

/* Times every operation of the steps from now on (restarts the means). */
void ek_graph_profile(struct ek_graph *g, bool is_on);

int ek_graph_rows(const struct ek_graph *g); /* number of lines */
void ek_graph_explain(const struct ek_graph *g, int line, struct ek_graph_row *row);

/* Useful FLOPs of one step at the bound rows, forward and backward. */
int64_t ek_graph_flops(const struct ek_graph *g);

#endif
