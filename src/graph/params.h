/* params.h - the trained numbers of a model, apart from the graphs that use them: the
 * graph that trains, the one that evaluates and the checkpoint share one set.
 *
 * A parameter is a matrix (rows, cols) in f32, the master copy; a matmul in bf16 rounds
 * it on the way in. Its gradient is dense, or, for a table, a list of rows that the
 * row-wise optimizer takes (ek_graph_row_grads): a table of 10 million rows has no
 * dense gradient. `place` says which part lives in this process: nobody may take
 * `rows` of this process for the rows of the model once there are other places.
 * Initial values depend on (seed, name, shape) alone, not on the order of adding.
 */
#ifndef EVENKEEL_GRAPH_PARAMS_H
#define EVENKEEL_GRAPH_PARAMS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum ek_place {
    EK_PLACE_WHOLE, /* all rows and columns are here */
};

enum ek_init_kind {
    EK_INIT_ZERO,
    EK_INIT_ONE,
    EK_INIT_NORMAL,         /* deviation `scale` */
    EK_INIT_TRUNCATED,      /* the same, drawn again beyond two deviations */
    EK_INIT_UNIFORM,        /* [-scale, scale) */
    EK_INIT_XAVIER_NORMAL,  /* deviation scale * sqrt(2 / (rows + cols)) */
    EK_INIT_XAVIER_UNIFORM, /* [-b, b), b = scale * sqrt(6 / (rows + cols)) */
};

struct ek_param_spec {
    const char *name;   /* unique, 1 to 63 bytes; borrowed for the call */
    int64_t rows, cols; /* >= 1; fewer than 2^31 rows */
    enum ek_init_kind init;
    float scale;       /* of init; unused by ZERO and ONE */
    bool is_table;     /* looked up by row; row-wise optimizer, no dense gradient */
    bool has_no_decay; /* weight decay leaves it alone (biases, gains) */
};

struct ek_param {
    char name[64];
    int64_t rows, cols;
    enum ek_place place;
    bool is_table, has_no_decay;
    float *value; /* (rows, cols), 64-byte aligned; owned by the set */
    float *grad;  /* the same shape; NULL for a table. Whole after the reduction only */
    /* (rows) a row at 0 has a gradient of zeros: what a graph adds to it are looked-up
     * rows alone, marked as they are added. A reduction that brings others marks them.
     * NULL: nobody knows; read it by ek_param_touched. */
    unsigned char *touched;
    bool has_dense_grad;    /* some graph adds to all rows */
    enum ek_init_kind init; /* how values begin, with the next */
    float scale;
};

/* Adds what p holds, taken or not, to *sum: values, gradient, touched rows; the sizes
 * that are taken. False: it overflows (*sum of no use). */
bool ek_param_bytes(size_t *sum, const struct ek_param *p) EK_MUST_USE;

/* p->touched, or NULL where any row may have a gradient. */
static inline const unsigned char *ek_param_touched(const struct ek_param *p)
{
    return p->has_dense_grad ? NULL : p->touched;
}

/* Rows [r, result) are all touched, or none is; r < end. */
static inline int64_t ek_param_run(const unsigned char *touched, int64_t r, int64_t end)
{
    int64_t at = r + 1;
    while (at < end && touched[at] == touched[r])
        at++;
    return at;
}

struct ek_params;

/* Errors: EK_ENOMEM. */
int ek_params_new(struct ek_params **set, uint64_t seed,
                  struct ek_err *err) EK_MUST_USE;
void ek_params_free(struct ek_params *set); /* NULL is fine */

/* *id: of the new parameter, initialised; or of the one that has the name and the same
 * shape and kind already, untouched. Errors: EK_EINVAL an empty or long name, another
 * shape or kind under the name; EK_ELIMIT the size overflows; EK_ENOMEM. */
int ek_params_add(struct ek_params *set, int *id, const struct ek_param_spec *spec,
                  struct ek_err *err) EK_MUST_USE;

/* From here on ek_params_add only declares: value and grad are NULL until
 * ek_params_take, which takes and initialises what was declared. So a model can be
 * built, and its memory be summed, before any of it is there.
 * Errors: EK_ENOMEM (what was taken stays; the set is only freeable). */
void ek_params_defer(struct ek_params *set);
int ek_params_take(struct ek_params *set, struct ek_err *err) EK_MUST_USE;

int ek_params_count(const struct ek_params *set);
int ek_params_find(const struct ek_params *set, const char *name); /* id, or -1 */

/* Borrowed; stays good while the set lives. */
struct ek_param *ek_params_get(const struct ek_params *set, int id);

/* Keeps track of touched rows from here on, all at 0 now. For a dense parameter whose
 * gradient is zero. Errors: EK_ENOMEM (unchanged). */
int ek_params_track(struct ek_param *p) EK_MUST_USE;

/* Sets every dense gradient to 0: before the first micro-batch of a step. */
void ek_params_zero_grad(struct ek_params *set);

#endif
