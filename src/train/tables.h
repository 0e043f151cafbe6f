/* tables.h - gradients of the tables of a graph over the micro-batches of one step:
 * what AdamW's dense gradients are for the rest.
 *
 *   one micro-batch    the graph's own rows, where they lie, until the next forward
 *   several            copied behind each other; the optimizer sums equal ids first, so
 *                      any number of micro-batches is one batch
 *
 * Room is taken for the ceiling: no step allocates. The same bits on any number of
 * threads. Threads: one owner; the team works inside a call.
 */
#ifndef EVENKEEL_TRAIN_TABLES_H
#define EVENKEEL_TRAIN_TABLES_H

#include "graph/graph.h"
#include "train/adagrad.h"

struct ek_tables;

struct ek_tables_options {
    struct ek_params *params; /* borrowed, with the next two */
    struct ek_graph *graph;   /* planned */
    struct ek_team *team;
    enum ek_isa isa;
    int n_micro;   /* micro-batches of a step, at most */
    bool has_norm; /* ek_tables_norm will be asked */
};

/* Errors: EK_ENOMEM, EK_ELIMIT. A graph without tables is fine. */
int ek_tables_new(struct ek_tables **t, const struct ek_tables_options *o,
                  struct ek_err *err) EK_MUST_USE;
void ek_tables_free(struct ek_tables *t); /* NULL is fine */

/* Adds what ek_tables_new would take to *sum; *max_rows as ek_tables_max_rows, 0: there
 * is no table. Needs no memory of parameters and graph. Errors: EK_ELIMIT it
 * overflows. */
int ek_tables_measure(size_t *sum, int64_t *max_rows,
                      const struct ek_tables_options *o) EK_MUST_USE;

int ek_tables_count(const struct ek_tables *t);
int64_t ek_tables_max_rows(const struct ek_tables *t); /* of ek_adagrad_options */

/* Before the first micro-batch; behind each backward, n_micro being this step's. */
void ek_tables_begin(struct ek_tables *t);
void ek_tables_take(struct ek_tables *t, int n_micro);

/* Sum of squares of all summed rows. Needs has_norm. */
double ek_tables_squares(struct ek_tables *t);

/* Every table, with grad_scale (clipping). */
void ek_tables_step(struct ek_tables *t, struct ek_adagrad_state *adagrad, float lr,
                    float grad_scale);

#endif
