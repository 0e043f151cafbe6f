/* turns.h - the angles of rotary positions, for the operations that turn rows of heads
 * by them (ops.h, ek_rope). */
#ifndef EVENKEEL_GRAPH_TURNS_H
#define EVENKEEL_GRAPH_TURNS_H

#include "graph/graph_int.h"
#include "kernel/jagged.h"

struct ek_turns {
    double inv_freq[EK_JAGGED_DIM_MAX / 2];
    int64_t D; /* of a head, even */
};

void ek_turns_init(struct ek_turns *t, int64_t D, float base);

/* cs (D) = (cos, sin) of each pair of columns, made in f64. */
void ek_turns_row(float *cs, const struct ek_turns *t, float position);

/* Heads of `dim` columns of v can be turned by positions; else a fault. */
bool ek_expect_turns(struct ek_graph *g, int v, int positions, int64_t dim, float base);

#endif
