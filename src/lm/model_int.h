/* model_int.h - a loaded model inside: its weights and the buffers of a step. */
#ifndef EVENKEEL_LM_MODEL_INT_H
#define EVENKEEL_LM_MODEL_INT_H

#include "lm/model.h"

#define EK_LM_BATCH_MAX (1 << 16) /* rows of a step: bounds every buffer's size */

/* Steps of up to so many rows are small: every member norms and prepares all rows for
 * itself, which costs it less than to wait for the others' share. */
#define EK_LM_SMALL_ROWS 4

/* The matrices of a decoder block. Those that read the same rows stand together. */
enum ek_lm_matrix {
    EK_LM_Q,    /* (HD,C) */
    EK_LM_K,    /* (KD,C) */
    EK_LM_V,    /* (KD,C) */
    EK_LM_O,    /* (C,HD) */
    EK_LM_GATE, /* (F,C) */
    EK_LM_UP,   /* (F,C) */
    EK_LM_DOWN, /* (C,F) */
    EK_LM_MATRICES
};

/* The packed copies of a block's matrices. With one format they are the same data. */
enum ek_lm_copy { EK_LM_DECODE, EK_LM_PREFILL, EK_LM_COPIES };

/* A member's items of attention in a layer: with fewer, sequences are split. */
#define EK_LM_ITEMS 4
/* Rows of split sums: a sequence takes heads * depth / EK_ATTN_SPAN. Those that do not
 * fit stay whole. */
#define EK_LM_PART_ROWS        4096
#define EK_LM_PART_ROWS_MEMBER 1024 /* more for each member */

/* One decoder block. Matrices are packed, vectors are f32; both lie in ek_lm.packed.
 * Pointers of parts a family has not are NULL. */
struct ek_lm_layer {
    struct ek_weight w[EK_LM_COPIES][EK_LM_MATRICES];
    const float *attn_norm;       /* (C) */
    const float *ffn_norm;        /* (C) */
    const float *post_attn_norm;  /* (C) */
    const float *post_ffn_norm;   /* (C) */
    const float *q_norm, *k_norm; /* (D) */
    const float *qb, *kb, *vb;    /* (HD) (KD) (KD) */
};

/* What ek_matmul_prepare makes of activations; weight formats share a form. */
enum ek_lm_act { EK_LM_ACT_F32, EK_LM_ACT_BF16, EK_LM_ACT_I8, EK_LM_ACT_COUNT };
enum ek_lm_act ek_lm_act_of(enum ek_weight_format f);

/* A member's own rows in small steps: EK_LM_SMALL_ROWS of each. */
struct ek_lm_own {
    float *x, *h, *att; /* as the plan's */
    void *act[EK_LM_ACT_COUNT];
};

/* Buffers of a step for T rows, cut once from one allocation. */
struct ek_lm_plan {
    void *memory; /* heap, owned */
    size_t bytes;
    int32_t T;                  /* rows: max_batch_tokens */
    float *x;                   /* (T,C) residual stream */
    float *h;                   /* (T,C) normed, or a block's output before its norm */
    float *q, *att;             /* (T,HD) */
    float *k, *v;               /* (T,KD) */
    float *gate, *up;           /* (T,F) */
    float *cs, *cs_local;       /* (T,R) cosines and sines of the step's positions */
    void *act[EK_LM_ACT_COUNT]; /* prepared rows, NULL where no weight wants them */
    int32_t *token, *pos;       /* (T) */
    int64_t *slot;              /* (T) page*EK_PAGE_TOKENS + token in page */
    int32_t *out_row;           /* (T) rows that get logits */
    int32_t *kept, *kept_at;  /* (T) the same in ascending order; their places there */
    struct ek_attn_seq *seqs; /* (T) */
    struct ek_lm_own *own;    /* (members) */
    int64_t *n_saturated;     /* (members) values that left e4m3's range this step */
    float *parts;             /* (n_part_rows) sums of split sequences */
    int64_t n_part_rows;      /* 0 for a team of one, which has nothing to share */
    unsigned char *scratch;   /* members * scratch_bytes */
    size_t scratch_bytes;     /* of one member, a multiple of 64 */
    size_t part_bytes;        /* of one row of parts */
};

/* Sees the rows x (T,K) that go into matrix `first` of a layer and those beside it that
 * read the same; called by every member, when all rows are there. */
typedef void ek_lm_watch_fn(void *arg, int32_t layer, enum ek_lm_matrix first,
                            const float *x, int32_t T, int member, int n_members);

struct ek_lm {
    struct ek_lm_params p;
    const struct ek_ops *ops;
    struct ek_team *team; /* borrowed */
    struct ek_rope rope, rope_local;
    struct ek_lm_layer *layers; /* p.n_layers, owned */
    struct ek_weight embed;     /* (V,C) */
    struct ek_weight head;      /* (V,C); the same data as embed when tied */
    float *kv_scales; /* (n_layers,2,K) of an e4m3 cache: keys', values'; NULL: 1 */
    const float *out_norm; /* (C) */
    void *packed;          /* every matrix and vector, owned */
    size_t packed_bytes;
    size_t prefill_bytes; /* of them the prefill copy's own; 0: there is one copy */
    int64_t n_params;
    bool is_by_tokens; /* which copy a step takes; else each row by its phase */
    int32_t crossover; /* by tokens: rows of a step from which it is the prefill copy */
    ek_lm_watch_fn *watch; /* NULL: nobody; while calibrate.c runs the model */
    void *watch_arg;
    struct ek_lm_plan plan;
};

/* weights.c: fills layers, embed, head, out_norm, packed, n_params and the ropes of a
 * zeroed lm whose p, ops and team are set. On error the caller frees lm. */
int ek_lm_weights_load(struct ek_lm *lm, const struct ek_modelfile *m,
                       const struct ek_lm_options *o, struct ek_err *err) EK_MUST_USE;

/* plan.c: the columns [*n0,*n1) of w[i] that fall to a member when the panels of the n
 * matrices are dealt out together; n0 >= n1: none. Weights are packed by the member
 * that will read them, so that their memory lies on its side of the machine. */
void ek_lm_columns(int64_t *n0, int64_t *n1, const struct ek_weight *w, int n, int i,
                   int member, int n_members);

/* plan.c: buffers for T rows. Errors: EK_ENOMEM, EK_ELIMIT. */
int ek_lm_plan_init(struct ek_lm_plan *plan, const struct ek_lm *lm, int32_t T,
                    struct ek_err *err) EK_MUST_USE;
void ek_lm_plan_release(struct ek_lm_plan *plan);

#endif
