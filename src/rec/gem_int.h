/* gem_int.h - what the files of the gem model share: chunks, their inputs, its state.
 *
 *   tokens   t0 t1 t2 t3 | t4 t5 t6 t7 | t8      one sequence, chunk = 4
 *   chunks   c0          | c1          | c2
 *
 * Everything that a chunk's non-sequence side knows of the sequence comes from the
 * chunks before it: a token sees no later event (docs/design/gem.md has the argument).
 *
 *   gem.c           configuration, the sequence side, the layers
 *   gem_features.c  the non-sequence side: features, summaries, interaction experts
 *   gem_bind.c      chunks of a batch
 */
#ifndef EVENKEEL_REC_GEM_INT_H
#define EVENKEEL_REC_GEM_INT_H

#include "base/rng.h"
#include "rec/model_int.h"

#define EK_GEM_SLOTS   4  /* learned features of the non-sequence side */
#define EK_GEM_KRON    2  /* terms of a SumKronLinear */
#define EK_GEM_CONTEXT 4  /* features that the click head reads, at most */
#define EK_GEM_NAME    40 /* bytes of a column's name that its parameter has */
#define EK_GEM_GAPS    130 /* buckets of the time since the event before; the last: none */

struct ek_gem {
    int64_t n_chunks_max;
    int64_t n_features; /* of the non-sequence side: user columns and slots */
    int64_t n_summary;  /* of the sequence: seeds and the latest event */
    int64_t n_keys;     /* of a chunk's feed-forward */
    /* Axes: chunks, +1, and so many rows of a chunk. */
    int chunks, edges, seeds, keys, features, summary;
    /* Inputs that bind writes. */
    int chunk_offsets;   /* (chunks+1) tokens of a chunk */
    int key_offsets;     /* (chunks+1) its keys */
    int sequence_chunks; /* (B+1) chunks of a sequence */
    int before;          /* (chunks) the chunk before, of this sequence; or -1 */
    int latest;          /* (chunks) the token before it; or -1 */
    int user;            /* (chunks) its sequence */
    int chunk_of;        /* (T) */
    int zero;            /* (chunks) 0: rows of what is learned for all */
    int gap;             /* (T) with times: bucket of the time since the event before */
    int numbers[EK_REC_COLUMNS_MAX]; /* asinh of a numeric column; -1 */
    int rows[EK_REC_COLUMNS_MAX];    /* hashed levels of a category; -1 */
    /* Their memory, behind this struct. */
    int64_t *chunk_offset, *key_offset, *sequence_chunk;
    int32_t *before_chunk, *latest_row, *chunk_user, *chunk_of_row, *zeros, *gap_of_row;
    float *number[EK_REC_COLUMNS_MAX]; /* (T) or (B), with the next */
    int32_t *row[EK_REC_COLUMNS_MAX];
};

static inline struct ek_gem *ek_gem_of(const struct ek_rec *m)
{
    return m->own;
}

/* Rows of the table of a category with so many levels; fewer than levels: hashed. */
static inline int32_t ek_gem_rows(const struct ek_rec_config *c, int32_t levels)
{
    return c->column_rows && c->column_rows < levels ? (int32_t)c->column_rows : levels;
}

/* The row of a level of column i among so many: by splitmix64's step, so that levels
 * which share a row in one column do not in another. */
static inline int32_t ek_gem_row(int32_t level, int i, int32_t rows)
{
    uint64_t x = ((uint64_t)i << 32 | (uint32_t)level) + 0x9e3779b97f4a7c15u;
    return (int32_t)((ek_mix64(x) >> 32) * (uint64_t)rows >> 32);
}

/* --- gem_features.c --------------------------------------------------------------- */

/* x (T, dim) with what the log says of each event beside the item. */
int ek_gem_events(struct ek_rec *m, int x);

/* The first features (chunks, n_features * dim): user columns and slots. */
int ek_gem_features(struct ek_rec *m);

/* What the chunks before each one say: seeds pooled over every chunk of x (T, dim),
 * then over the chunks before; and their latest token; gated: (chunks, n_summary *
 * dim). */
int ek_gem_summary(struct ek_rec *m, int x);

/* One layer of interaction experts over features and summary: the next features. */
int ek_gem_interact(struct ek_rec *m, int features, int summary);

/* The features through a gate: what the sequence may see of them. */
int ek_gem_gated(struct ek_rec *m, const char *name, int x, int axis, int64_t n);

/* --- gem_bind.c ------------------------------------------------------------------- */

/* Takes m->own: before the graph is built, since the inputs are kept there.
 * Errors: EK_ENOMEM. */
int ek_gem_take(struct ek_rec *m, struct ek_err *err) EK_MUST_USE;
int ek_gem_bind(struct ek_rec *m, const struct ek_rec_batch *b) EK_MUST_USE;

#endif
