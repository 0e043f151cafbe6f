/* model_int.h - what the models of rec share: inputs, parameters by name, the family.
 *
 *   model.c   checks the configuration, makes axes and inputs, calls the family, adds the
 *             loss, plans       bind.c   one batch       parts.c  layers that models share
 *
 * A family is a file: it turns x (T, dim), the embedded items, into h. It reads like
 * its paper because faults are sticky in the graph: no builder's result is checked
 * here.
 */
#ifndef EVENKEEL_REC_MODEL_INT_H
#define EVENKEEL_REC_MODEL_INT_H

#include "graph/ops.h"
#include "rec/model.h"

/* Rows of position tables and biases beyond max_length: as published, where ten more
 * rows and one for the target stand behind the history. */
#define EK_REC_EXTRA 11

struct ek_rec_family {
    /* Values that only this family refuses; NULL: none. */
    int (*check)(const struct ek_rec_config *c, const struct ek_rec_shape *s,
                 struct ek_err *err);
    /* Takes m->own, before the graph is built; NULL: nothing to take. */
    int (*take)(struct ek_rec *m, struct ek_err *err);
    /* Adds the model to m->g and returns h (T, dim); may set m->click. */
    int (*build)(struct ek_rec *m);
    /* Behind the shared part of a bind: axes and inputs of its own; NULL: none. */
    int (*bind)(struct ek_rec *m, const struct ek_rec_batch *batch);
};

extern const struct ek_rec_family ek_rec_sasrec, ek_rec_hstu, ek_rec_gem;

struct ek_rec {
    struct ek_rec_config c;    /* with the defaults filled in */
    struct ek_rec_shape shape; /* its columns are borrowed while the model is built */
    const struct ek_rec_family *family;
    struct ek_graph *g; /* owned */
    bool is_training;   /* has a loss */
    char part[32];      /* before names of parameters: "block0" */

    int tokens, users, edges; /* axes: T, B, B+1 */
    /* Inputs; -1: the model has none. */
    int ids, positions, offsets, targets, negatives, clicks;
    int times, next_times, per_row;
    struct {
        int value; /* ek_rec_column_input; -1: the model does not read it */
        bool is_user;
        int32_t levels;
    } columns[EK_REC_COLUMNS_MAX];
    /* Values: the table of items, their embeddings, the results. */
    int items, x, h, click, loss;
    int items_param;

    /* What bind writes: (max_rows) positions and seconds, (max_sequences) 1/length. */
    int32_t *position;
    int64_t *seconds, *next_seconds;
    float *inverse, *labels;
    void *own; /* of the family, one ek_alloc; freed with the model; or NULL */
    size_t own_bytes;
};

/* --- parts.c: layers by name ------------------------------------------------------ */

/* What follows belongs to this region, and its parameters are "<region>.<name>". */
void ek_rec_part(struct ek_rec *m, const char *region, int index); /* index -1: none */

int ek_rec_param(struct ek_rec *m, const char *name, int64_t rows, int64_t cols,
                 enum ek_init_kind init, float scale);

/* The same for rows that are looked up, normal: a table where the optimizer is by
 * rows. */
int ek_rec_table(struct ek_rec *m, const char *name, int64_t rows, int64_t cols,
                 float scale);

/* (1, cols) "<name>.bias", uniform within scale, or 0; decay leaves it alone. */
int ek_rec_bias(struct ek_rec *m, const char *name, int64_t cols, float scale);

/* act(x w + b): w xavier normal (name), b zero (name.bias). */
int ek_rec_linear(struct ek_rec *m, const char *name, int x, int64_t cols,
                  enum ek_act act);

/* Layer norm with gain (name.gain) and bias (name.bias). */
int ek_rec_norm(struct ek_rec *m, const char *name, int x, float eps);

/* An attention of `heads` of `dim` within the sequences, nothing else set. */
struct ek_attention ek_rec_attention(int heads, int64_t dim);

/* --- click.c: the logit (T,1) that the target of each row is clicked, from h (T, dim),
 * the target's embedding and `context` (T, n * dim), -1: none. Nothing else sees
 * targets. */
int ek_rec_click_head(struct ek_rec *m, int h, int context);

/* --- inputs that only some models have -------------------------------------------- */

/* times and next_times in seconds, as m->times and m->next_times. */
void ek_rec_times(struct ek_rec *m);

/* 1/length of each sequence (B,1), as m->per_row. */
void ek_rec_lengths(struct ek_rec *m);

/* The column of the log as an input: (T,1) or (B,1), f32 or, with levels, i32. */
int ek_rec_column_input(struct ek_rec *m, int column);

/* --- model_check.c ---------------------------------------------------------------- */

/* What every model asks of its configuration. Fills in defaults of *c. */
int ek_rec_check(struct ek_rec_config *c, const struct ek_rec_shape *s,
                 struct ek_err *err) EK_MUST_USE;

#endif
