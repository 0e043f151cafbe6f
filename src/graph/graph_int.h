/* graph_int.h - what the files of graph share: values, operations, the schedule.
 *
 *   nodes   in the order of building      n0 n1 n2
 *   steps   F n0, F n1, F n2 | seed, B n2, R n0, B n1, B n0, scatter p, reduce p
 *                            forward ends here (n_forward)
 *
 * Each base value (one that is no view) has up to three places in the arena:
 *   SAVED   written by forward;  AGAIN  written by a recompute step;  GRAD  gradient.
 */
#ifndef EVENKEEL_GRAPH_GRAPH_INT_H
#define EVENKEEL_GRAPH_GRAPH_INT_H

#include "graph/graph.h"
#include "graph/rows.h"
#include "kernel/gemm.h"
#include "kernel/grad.h"
#include "kernel/ops.h"

/* A function of prefetches alone is compiled in place: gcc takes it for one without an
 * effect and drops its calls otherwise. */
#define EK_FETCH static inline __attribute__((always_inline)) void

#define EK_OP_IN  12
#define EK_OP_OUT 4

/* Rows of a block of elementwise work, of a matmul, and the least of a partial sum. */
#define EK_ROW_BLOCK  64
#define EK_GEMM_BLOCK 96
#define EK_SUM_BLOCK  256
#define EK_SUM_PARTS  16 /* partial sums over rows, at most */

enum ek_value_kind { EK_VALUE_INPUT, EK_VALUE_PARAM, EK_VALUE_MADE };
enum ek_slot { EK_SLOT_SAVED, EK_SLOT_AGAIN, EK_SLOT_GRAD, EK_SLOT_COUNT };

/* A piece of the arena from step `first` to step `last`, both included. */
struct ek_piece {
    size_t bytes;    /* 0: none */
    size_t offset;   /* in the arena; set by ek_place */
    int first, last; /* steps; first > last: none */
};

struct ek_value {
    char name[48];
    enum ek_value_kind kind;
    enum ek_dtype type;
    int axis;           /* -1: rows are fixed */
    int64_t rows, cols; /* rows: fixed, or the axis's ceiling */
    int base;           /* itself, or what it is columns of */
    int64_t first_col;
    int node;                             /* that makes it; -1 */
    int param;                            /* id in the set; -1 */
    enum ek_place place;                  /* what of it is in this process */
    int n_sources;                        /* of a parameter: of gradient rows */
    bool needs_grad, is_output, has_grad; /* has_grad: backward reaches it */
    bool needs_zero;                      /* its gradient starts from a zero step */
    const void *bound;                    /* of an input */
    int piece[EK_SLOT_COUNT];             /* index in the graph's pieces; -1 */
};

struct ek_graph;
struct ek_node;
struct ek_op_run;

struct ek_cost {
    int64_t forward, backward; /* useful FLOPs */
};

/* One kind of operation; a constant table in each op_*.c. */
struct ek_op_class {
    const char *name;
    void (*forward)(const struct ek_op_run *r);
    void (*backward)(const struct ek_op_run *r); /* NULL: no gradient passes */
    void (*cost)(const struct ek_op_run *r, struct ek_cost *cost); /* NULL: 0 */
    /* bytes of scratch at the ceilings */
    size_t (*scratch)(const struct ek_graph *g, int node, bool is_backward);
    /* after backward: sources of a table's gradient; returns how many */
    int (*row_grads)(const struct ek_op_run *r, struct ek_row_grad *out);
    /* the sum of their n at the ceilings */
    int64_t (*row_ceiling)(const struct ek_graph *g, const struct ek_node *n);
};

struct ek_node {
    const struct ek_op_class *class;
    int n_in, n_out, in[EK_OP_IN], out[EK_OP_OUT]; /* in[] -1: absent */
    unsigned reads_in, reads_out;                  /* bits: what backward reads */
    unsigned kept_out; /* bits: outputs that live until the end of backward */
    bool keeps_dout;   /* out[0]'s gradient is the row gradient of a table */
    int table;         /* index in in[] of what it looks up; -1 */
    float f[2];
    int64_t n[2];
    int kind;
    bool flag;
    struct ek_jagged_dims attention; /* of attention only */
    int region;
    bool is_recomputed, is_active; /* active: backward passes it */
};

enum ek_phase {
    EK_PHASE_FORWARD,
    EK_PHASE_RECOMPUTE,
    EK_PHASE_SEED,
    EK_PHASE_ZERO,
    EK_PHASE_BACKWARD,
    EK_PHASE_SCATTER,
    EK_PHASE_REDUCE,
};

struct ek_step {
    enum ek_phase phase;
    int node;       /* FORWARD, RECOMPUTE, BACKWARD */
    int value;      /* SEED, ZERO: the value; SCATTER, REDUCE: the parameter's value */
    unsigned added; /* BACKWARD: bits of inputs whose gradient is added to */
    int scratch;    /* piece; -1 */
    int64_t time_us, n_timed;
};

struct ek_axis {
    char name[32];
    int64_t max_rows, rows;
};

struct ek_graph {
    struct ek_graph_options o;
    struct ek_params *params; /* borrowed */
    const struct ek_gemm_ops *gemm;
    const struct ek_grad_ops *ops;
    const struct ek_ops *kernels; /* attention */
    struct ek_value *values;
    struct ek_node *nodes;
    struct ek_step *steps;
    struct ek_axis *axes;
    struct ek_piece *pieces;
    char (*regions)[32];
    int n_values, n_nodes, n_steps, n_axes, n_pieces, n_regions;
    int cap_values, cap_nodes, cap_steps, cap_axes, cap_pieces, cap_regions;
    int n_forward; /* steps of forward */
    int loss;      /* value; -1 */
    bool is_planned, is_profiled;
    unsigned char *arena; /* owned */
    size_t arena_bytes, saved_bytes;
    uint64_t step; /* of forward */
    float dloss;
    ek_reduce_fn *reduce;
    void *reduce_arg;
    struct ek_err err; /* the first fault of building */
};

/* What an operation sees. din[i].f is NULL where no gradient is wanted, in[i] and
 * out[i] in backward where it is not read; dout[0] is writable, nobody reads it
 * afterwards. */
struct ek_op_run {
    struct ek_graph *g;
    const struct ek_node *node;
    struct ek_mat in[EK_OP_IN], out[EK_OP_OUT], din[EK_OP_IN], dout[EK_OP_OUT];
    unsigned added;
    void *scratch;
    uint64_t key; /* of dropout, for this operation and step */
};

static inline bool ek_is_added(const struct ek_op_run *r, int i)
{
    return r->added >> i & 1;
}

/* --- building (graph.c), for op_*.c ----------------------------------------------- */

/* A fault of building: kept if it is the first. Returns -1. */
int ek_graph_fail(struct ek_graph *g, int status, const char *fmt, ...) EK_PRINTF(3, 4);

/* A node of n_in inputs, checked: -1 where absent is allowed in `optional` bits. NULL
 * after a fault. Good until the next node. */
struct ek_node *ek_node_add(struct ek_graph *g, const struct ek_op_class *class,
                            const int *in, int n_in, unsigned optional);

/* The next output of the newest node: rows of `like`'s axis. Returns the value. */
int ek_node_out(struct ek_graph *g, int like, int64_t cols, enum ek_dtype type);

/* The same with fixed rows, or rows of an axis (axis >= 0). */
int ek_node_out_rows(struct ek_graph *g, int axis, int64_t rows, int64_t cols,
                     enum ek_dtype type);

/* v is (rows of its own, cols) of the type; else a fault in the name of `op`. */
bool ek_expect_cols(struct ek_graph *g, const char *op, int v, int64_t cols,
                    enum ek_dtype type);
bool ek_expect_param(struct ek_graph *g, const char *op, int v, int64_t rows,
                     int64_t cols);

/* v is a parameter that `op` looks up, narrow enough for rows.h; n_sources of gradient
 * rows are counted for it, EK_ROW_SOURCES at most. */
bool ek_expect_table(struct ek_graph *g, const char *op, int v, int n_sources);
bool ek_same_rows(struct ek_graph *g, const char *op, int a, int b);

/* --- plan (backward.c, plan.c) ---------------------------------------------------- */

/* Grows list by one, zeroed; NULL without memory (a fault of g). */
void *ek_graph_grow(struct ek_graph *g, void **list, int *n, int *cap, size_t size);

int ek_schedule(struct ek_graph *g) EK_MUST_USE;  /* nodes -> steps */
int ek_lifetimes(struct ek_graph *g) EK_MUST_USE; /* steps -> pieces */

/* Gives every piece an offset so that no two that live in a common step overlap;
 * largest first, each at the lowest place. Returns the arena's bytes. `order` is
 * scratch for n indices. */
size_t ek_place(struct ek_piece *pieces, int n, int *order);

/* --- a step (run.c) --------------------------------------------------------------- */

struct ek_mat ek_resolve(const struct ek_graph *g, int v, enum ek_slot slot);
enum ek_slot ek_backward_slot(const struct ek_graph *g, int v); /* SAVED or AGAIN */
void ek_run_open(struct ek_op_run *r, struct ek_graph *g, const struct ek_step *s);
int ek_row_sources(const struct ek_graph *g, int value,
                   struct ek_row_grad out[EK_ROW_SOURCES]);
int64_t ek_value_rows(const struct ek_graph *g, int v); /* bound */
/* At the ceiling; SIZE_MAX: more than a number can tell. */
size_t ek_value_bytes(const struct ek_graph *g, int v);

/* Runs fn for block 0..n-1, dealt to the team in runs; the member is for scratch
 * only. */
typedef void ek_block_fn(const struct ek_op_run *r, void *arg, int64_t block,
                         int member);
void ek_blocks(const struct ek_op_run *r, ek_block_fn *fn, void *arg, int64_t n);

/* The same for two kinds of blocks, 0..n-1 and n..n+m-1, of different cost: every
 * member takes its share of both. */
void ek_blocks_of_two(const struct ek_op_run *r, ek_block_fn *fn, void *arg, int64_t n,
                      int64_t m);

/* The rows of block b of `size` in n rows. */
struct ek_range {
    int64_t lo, hi;
};
static inline struct ek_range ek_block(int64_t n, int64_t size, int64_t b)
{
    struct ek_range x = {b * size, (b + 1) * size};
    if (x.hi > n)
        x.hi = n;
    return x;
}
static inline int64_t ek_n_blocks(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

/* Rows of one partial sum over n rows: at most EK_SUM_PARTS of them, by n alone. */
static inline int64_t ek_sum_rows(int64_t n, int64_t parts)
{
    int64_t size = (n + parts - 1) / parts;
    size = size < EK_SUM_BLOCK ? EK_SUM_BLOCK : size;
    return (size + 31) / 32 * 32;
}

static inline float *ek_at(struct ek_mat m, int64_t row)
{
    return m.f + row * m.ld;
}

#endif
