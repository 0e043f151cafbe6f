/* adagrad.h - row-wise adagrad of tables: one sum of squares a row (kernel/grad.h has
 * the formula). Gradient rows of equal ids are summed before the square, whichever
 * look-up they came from, and rows without a gradient are not touched.
 *
 * Groups, sums and updates run on the team; the same bits on any number of threads.
 * Source: the fused row-wise adagrad of FBGEMM and TorchRec.
 */
#ifndef EVENKEEL_TRAIN_ADAGRAD_H
#define EVENKEEL_TRAIN_ADAGRAD_H

#include "graph/rows.h"
#include "num/cpu.h"

struct ek_adagrad_options {
    float eps;
    float l2, decay; /* at most one above 0; decay is decoupled */
    float max_norm;  /* of a row; 0: none */
    int64_t
        max_rows; /* gradient rows of one table in one step, all look-ups together */
};

struct ek_adagrad_state;

/* A sum for every row of every table that is in the set now, zeroed.
 * Errors: EK_EINVAL an option out of range, EK_ENOMEM. */
int ek_adagrad_new(struct ek_adagrad_state **s, struct ek_params *params,
                   enum ek_isa isa, const struct ek_adagrad_options *options,
                   struct ek_err *err) EK_MUST_USE;
void ek_adagrad_free(struct ek_adagrad_state *s); /* NULL is fine */

/* Adds what the state holds to *sum: for one parameter, its sums, none of a dense one;
 * and for any number of tables together, scratch for max_rows. The sizes that are
 * taken. False: it overflows (*sum of no use). */
bool ek_adagrad_bytes(size_t *sum, const struct ek_param *p) EK_MUST_USE;
bool ek_adagrad_scratch_bytes(size_t *sum, int64_t max_rows) EK_MUST_USE;

/* Updates one table from the sources that ek_graph_row_grads gave. grad_scale
 * multiplies every source (clipping). The sources' n sum to at most max_rows. */
void ek_adagrad_step(struct ek_adagrad_state *s, struct ek_team *team, int param,
                     const struct ek_row_grad *sources, int n_sources, float lr,
                     float grad_scale);

/* For checkpoints: (rows) of a table, NULL for a dense parameter. Borrowed,
 * writable. */
float *ek_adagrad_sums(struct ek_adagrad_state *s, int param);

#endif
