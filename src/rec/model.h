/* model.h - a sequence recommender as a graph: built once, bound to each batch.
 *
 *   rows of a batch (offsets, items ...) -> h (T, dim): what comes behind each position
 *   score of item v behind position t:  e(h[t], items[v]), a dot product or a cosine
 *
 * The same description builds the graph that trains (with a loss) and the one that
 * only runs forward (evaluation, recommend); both share one set of parameters.
 * rec knows neither files nor loops: what a step binds are rows and pointers.
 *
 * Threads: one owner, as the graph's. Bits: as graph.h says.
 */
#ifndef EVENKEEL_REC_MODEL_H
#define EVENKEEL_REC_MODEL_H

#include "graph/graph.h"

#include <stdbool.h>
#include <stdint.h>

enum ek_rec_kind { EK_REC_SASREC, EK_REC_HSTU, EK_REC_GEM };
enum ek_rec_loss { EK_REC_SAMPLED, EK_REC_FULL };
enum ek_rec_norm {                 /* HSTU divides by */
                   EK_REC_CEILING, /* max_length + 11, the padded length of the published code */
                   EK_REC_LENGTH, /* the sequence's own length */
};

/* A feature beside the item: a column of the log. */
struct ek_rec_column {
    const char *name; /* borrowed while the model is built */
    bool is_user;     /* one value a sequence, not an event */
    int32_t levels;   /* of a category, looked up; 0: a number */
};
#define EK_REC_COLUMNS_MAX 32

struct ek_rec_config {
    enum ek_rec_kind kind;
    int blocks, heads;     /* heads divide dim */
    int64_t dim;           /* of items and of h */
    int64_t ffn;           /* hidden width; 0: dim */
    int64_t dim_qk, dim_v; /* hstu, of a head; 0: dim / heads */
    double dropout;        /* of embeddings and branches, [0,1) */
    int64_t max_length;    /* rows of a sequence, at most */
    enum ek_rec_norm norm;
    enum ek_rec_loss loss;
    int64_t negatives; /* sampled: shared by the batch */
    double temperature;
    bool is_cosine;
    bool has_times; /* hstu: bias by buckets of time */
    /* Items, and categories of the log, are tables (row-wise adagrad), else dense. */
    bool has_row_optimizer;
    /* gem */
    bool alternates; /* every other block skips self-attention, the others do only it */
    int experts;
    int64_t seeds;      /* pooled rows of a sequence */
    int64_t rank;       /* of the factorisation machine */
    int64_t window;     /* of self-attention; 0: blocks of 64 */
    int64_t chunk;      /* rows whose summary of the past is one; 0: 16 */
    int64_t column_dim; /* columns of a category's table; 0: dim */
    /* Its rows, at most: more levels share them by a hash; 0: a row each. */
    int64_t column_rows;
    /* every model */
    double click_weight; /* of the click head's loss; 0: no such head */
};

/* What the data and the batches are, at most. */
struct ek_rec_shape {
    int64_t n_items;
    int64_t max_sequences, max_rows; /* of a batch (ek_loader_ceiling) */
    int n_columns;
    const struct ek_rec_column *columns; /* borrowed while the model is built */
    bool lacks_times;                    /* its rows have no time */
};

/* One batch; everything is borrowed until the next bind. */
struct ek_rec_batch {
    int64_t B, T;
    const int64_t *offsets;    /* (B+1) from 0 to T; every length in 1..max_length */
    const int32_t *items;      /* (T) in [0, n_items) */
    const int64_t *times;      /* (T) microseconds, or NULL: without times */
    const int64_t *next_times; /* (T) time of what follows each row (the target's, at
                                  the last), or NULL: as HSTU's buckets want it */
    /* training; targets also for a click head, whose logit is about them */
    const int32_t *targets;   /* (T), negative: no loss at this row */
    const int32_t *negatives; /* (config.negatives) */
    const float *clicks;      /* (T) 0 or 1 of the target, negative: none; with a click
                                 head */
    struct {
        const float *numbers;  /* (T), or (B) for a user's column */
        const int32_t *levels; /* the same for a category */
    } columns[EK_REC_COLUMNS_MAX];
};

struct ek_rec;

/* Errors: EK_EINVAL a value of the config out of range (key, value, what would be
 * right) or what the model needs and the data lacks; those of ek_graph_plan. */
int ek_rec_new(struct ek_rec **m, struct ek_params *params,
               const struct ek_rec_config *c, const struct ek_rec_shape *shape,
               const struct ek_graph_options *options, struct ek_err *err) EK_MUST_USE;
void ek_rec_free(struct ek_rec *m); /* NULL is fine; parameters are left alone */

/* With options.is_deferred ek_rec_new takes neither arena nor buffers of a batch (what
 * a family holds of its own stays untouched until a bind), and this does.
 * Errors: EK_ENOMEM. */
int ek_rec_take(struct ek_rec *m, struct ek_err *err) EK_MUST_USE;

/* Adds what m holds, taken or not, its parameters aside, to *sum: the sizes that are
 * taken. False: it overflows (*sum of no use). */
bool ek_rec_bytes(size_t *sum, const struct ek_rec *m) EK_MUST_USE;

/* The graph, planned: forward and backward are its calls. */
struct ek_graph *ek_rec_graph(const struct ek_rec *m);

/* Sets the axes and binds the inputs; positions (from the start of each sequence) and
 * what else follows from the offsets is written here. Errors, with nothing bound:
 * EK_ELIMIT over the shape or max_length; EK_EINVAL offsets that do not rise from 0 to
 * T, an item, target, negative or level out of range, an input missing that the model
 * reads. Cost: O(T). */
int ek_rec_bind(struct ek_rec *m, const struct ek_rec_batch *batch) EK_MUST_USE;

/* Value (T, dim). With is_cosine of length 1, in a graph that only runs forward; the
 * loss brings it to length 1 by itself. */
int ek_rec_h(const struct ek_rec *m);
int ek_rec_items(const struct ek_rec *m); /* id in the set; (n_items, dim) */
int ek_rec_loss(const struct ek_rec *m);  /* value (1,1); -1: forward only */
int ek_rec_click(const struct ek_rec *m); /* value (T, 1), the logit; -1: none */

const char *ek_rec_kind_name(enum ek_rec_kind kind); /* "sasrec", "hstu", "gem" */

#endif
