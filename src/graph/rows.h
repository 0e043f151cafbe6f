/* rows.h - equal ids of gradient rows brought together, in parallel and in a fixed
 * order.
 *
 * Entries of all sources are dealt to buckets of table rows and sorted by (row, entry)
 * inside each: the sum of a row runs in the order of its entries, whatever
 * the number of threads. Source: spec of row-wise adagrad: duplicates are summed first.
 */
#ifndef EVENKEEL_GRAPH_ROWS_H
#define EVENKEEL_GRAPH_ROWS_H

#include "graph/graph.h"
#include "kernel/grad.h"

/* Scratch of ek_rows_group for at most max_n entries; 64-byte aligned. */
size_t ek_rows_bytes(int64_t max_n);

/* One distinct row and the sum (cols) of its entries. Called by any member, for each
 * row once. */
typedef void ek_row_fn(void *arg, int64_t row, const float *sum);

struct ek_rows {
    struct ek_row_grad *sources; /* n_sources <= EK_ROW_SOURCES */
    int n_sources;
    int64_t table_rows, cols; /* cols <= EK_ROW_COLS */
    void *scratch;            /* ek_rows_bytes of the sum of the sources' n */
    struct ek_team *team;
    const struct ek_grad_ops *ops;
    /* what fn will touch, fetched ahead: (table_rows, cols), (table_rows); or NULL */
    const float *table, *of_row;
};

#define EK_ROW_COLS 4096

/* Sums the rows and calls fn for each distinct one. Ids are in [0,table_rows) or
 * negative (asserted). */
void ek_rows_each(const struct ek_rows *o, ek_row_fn *fn, void *arg);

#endif
