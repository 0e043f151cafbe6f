/* attn_int.h - the course of attention over pages, written once for all variants.
 *
 * ek_attn_run walks items, spans, blocks and rows; a variant brings the inner steps. So
 * every variant masks, clips the window and orders its sums in the same way, and what
 * one query sees never depends on the queries beside it.
 *
 * A block of EK_ATTN_BLOCK positions is taken in four steps: its keys are brought into
 * the form the variant wants (keys), every row's scores become weights (score), the
 * values are brought into form where the keys were (values), and every row adds them
 * (value). The forms are the variant's own; only their sizes stand here.
 *
 * Scratch of one thread in floats, parts at multiples of 64 bytes (R = EK_ATTN_TILE *
 * H/K rows, Dp: D up to a multiple of EK_ATTN_COLS):
 *   q (R,EK_ATTN_Q*Dp) | acc (R,Dp) | sum (R,part) | p (R,EK_ATTN_BLOCK)
 *   | x (EK_ATTN_BLOCK,Dp) | l (R,EK_ATTN_LANES) | m (R) | old (R)
 * A row of sums, in scratch or in the parts: m | l | up to 64 bytes | acc (Dp)
 */
#ifndef EVENKEEL_KERNEL_ATTN_INT_H
#define EVENKEEL_KERNEL_ATTN_INT_H

#include "kernel/attn.h"

#define EK_ATTN_COLS   64 /* columns of a step */
#define EK_ATTN_STRIP  16 /* tokens that lie together: page_tokens is a multiple */
#define EK_ATTN_STRIPS (EK_ATTN_BLOCK / EK_ATTN_STRIP)
#define EK_ATTN_GROUP  4  /* rows of one call of score and value */
#define EK_ATTN_HEAD   16 /* floats before acc in a row of sums */
#define EK_ATTN_LANES  16 /* floats of a row's l */
#define EK_ATTN_Q      4  /* floats of a row's q to a column, at most */

/* The rows of an item and the block in hand. */
struct ek_attn_block {
    enum ek_dtype t; /* of what lies in the pages */
    int64_t D, Dp;
    float scale;   /* of the scores, the keys' scale included */
    float softcap; /* 0: none */
    float *q;      /* (R,EK_ATTN_Q*Dp) the queries in the variant's form */
    float *acc;    /* (R,Dp) sum of p v relative to m, columns in the variant's order */
    float *m;      /* (R) largest score so far in the variant's units, -inf at first */
    float *l;      /* (R,EK_ATTN_LANES) sums of p relative to m, 0 at first */
    float *old; /* (R) what acc is to be multiplied by: set by score, used by value */
    float *p;   /* (R,EK_ATTN_BLOCK) the weights in the variant's form */
    float *x;   /* (EK_ATTN_BLOCK,Dp) the block's keys, then its values */
    /* First token of each strip, and of the strip to prefetch meanwhile. Strips outside
     * [j0,j1) are not to be read. */
    const unsigned char *k[EK_ATTN_STRIPS], *v[EK_ATTN_STRIPS];
    const unsigned char *next_k[EK_ATTN_STRIPS], *next_v[EK_ATTN_STRIPS];
    int64_t j0, j1; /* tokens of the block that any row sees, at least one */
};

/* Rows [r, r+R) that see the same tokens [j0,j1) of the block, at least one. */
struct ek_attn_rows {
    int64_t r, j0, j1;
    int R; /* 1 to EK_ATTN_GROUP */
};

struct ek_attn_steps {
    /* Row r of b->q from q (D). */
    void (*query)(const struct ek_attn_block *b, int64_t r, const float *q);
    /* b->x from b->k: tokens outside [j0,j1) have no meaning. */
    void (*keys)(const struct ek_attn_block *b);
    /* b->p, m, l and old of the rows. Tokens outside [j0,j1) get p = 0, whatever lies
     * there. */
    void (*score)(const struct ek_attn_block *b, const struct ek_attn_rows *g);
    /* b->x from b->v: tokens outside [j0,j1) are 0, whatever lies there. */
    void (*values)(const struct ek_attn_block *b);
    /* acc = acc * old + sum of p v over [g->j0,g->j1), tokens ascending; what lies
     * outside is not added even if it is NaN. */
    void (*value)(const struct ek_attn_block *b, const struct ek_attn_rows *g);
    /* keys and score, values and value in one, for a block of which only these rows see
     * anything: the same bits. NULL: there is none. */
    void (*score_once)(const struct ek_attn_block *b, const struct ek_attn_rows *g);
    void (*value_once)(const struct ek_attn_block *b, const struct ek_attn_rows *g);
    /* The sum of a row's l. */
    float (*total)(const float *l);
    /* sum = sum joined with (m, l, acc) of the next span; neither is empty. */
    void (*merge)(float *sum, const float *acc, float m, float l, int64_t Dp);
    /* out (D) = acc * factor, columns in their order. */
    void (*finish)(float *out, const float *acc, int64_t D, enum ek_dtype t,
                   float factor);
};

void ek_attn_run(const struct ek_attn_args *a, int64_t i0, int64_t i1, int64_t step,
                 void *scratch, const struct ek_attn_steps *steps);
void ek_attn_join(const struct ek_attn_args *a, int64_t t0, int64_t t1, void *scratch,
                  const struct ek_attn_steps *steps);

#endif
