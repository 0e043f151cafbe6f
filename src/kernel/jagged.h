/* jagged.h - attention of sequences of any lengths without padding, and its gradients.
 *
 * Of query i and key j of sequence b, head h (kv head h / (H/K)):
 *   x[i,j] = alpha q_i.k_j + bias[i,j]
 *   softmax   P = exp(x - LSE_i), LSE_i = log sum_j exp(x)       (JFA, BlockAttention)
 *   phi       P = scale * seq_scale[b] * phi_h(x)           (GDPA, HSTU: phi = silu)
 *   o_i = sum_j P[i,j] v_j  over the keys that the mask shows; 0 where it shows none
 * Backward, x computed again from q and k (softmax: and LSE, the only thing kept):
 *   dP[i,j] = do_i.v_j     softmax: dx = P (dP - o_i.do_i)    phi: dx = P' dP
 *   dv_j = sum_i P do_i    dk_j = alpha sum_i dx q_i    dq_i = alpha sum_j dx k_j
 *
 * Rows are tokens: x of token t, head h begins at element t*ld + h*D, so q, k and v may
 * be columns of one matrix. Sequence b has the rows [offsets[b], offsets[b+1]).
 *
 * A batch is cut into tiles once (ek_jagged_plan_build): forward by queries, backward
 * by keys. Each tile writes what is its own (o and LSE; dk and dv), so tiles run in any
 * order on any thread. Query rows whose keys span several backward tiles, and gradients
 * of shared values (broadcast queries, learned bias), go to a stage and are summed
 * there in a fixed order (ek_jagged_reduce): the same bits whoever did what.
 * Memory beside inputs and outputs: O(rows), never Lq x Lk.
 *
 * Accuracy (tests/kernel/test_jagged*.c): sums in f32. With products in F32, |q|, |k|,
 * |v| <= 1: 2e-5 of the formula. With BF16 products inputs, P and dx are rounded to
 * bf16 (2^-9 relative each): above 45 dB of the formula on rounded inputs.
 * Source: Dao 2023, "FlashAttention-2"; Xu et al. 2024, arXiv 2409.15373 (jagged); Zhai
 * et al. 2024, arXiv 2402.17152 (HSTU).
 */
#ifndef EVENKEEL_KERNEL_JAGGED_H
#define EVENKEEL_KERNEL_JAGGED_H

#include "kernel/phi.h"
#include "num/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EK_JAGGED_DIM_MAX  256 /* of D */
#define EK_JAGGED_BLOCK    64  /* queries, keys of one step */
#define EK_JAGGED_QUERIES  256 /* queries of a forward tile */
#define EK_JAGGED_KEYS     512 /* keys that a backward tile holds at once */
#define EK_JAGGED_PARTS    4   /* backward tiles of one sequence and kv head, at most */
#define EK_JAGGED_BUCKETS  129 /* of differences of time */
#define EK_JAGGED_ROWS_MAX (1 << 30)

/* Which keys query i sees: all, less what a condition takes away. With is_causal and
 * Lq != Lk the last query stands beside the last key: i counts as i + Lk - Lq, to
 * is_causal and to a window; blocks are counted from the first query and the first key,
 * whatever the lengths.
 *
 * Context and targets are HSTU's and need is_causal and Lq = Lk = L. The first
 * n_context rows see each other and all history; the last n_targets[b] rows are
 * candidates: each sees what lies before them and itself, none sees another. To a
 * window the context is one position, and so is the group of targets. */
struct ek_jagged_mask {
    bool is_causal;           /* j <= i */
    int32_t window;           /* |i-j| <= window; 0: none */
    int32_t block;            /* i and j in one block of so many; 0: none */
    int32_t n_context;        /* 0: none */
    int32_t n_full;           /* so many last rows of history heed no window */
    const int32_t *n_targets; /* (B) or NULL: none */
};

enum ek_jagged_score { EK_JAGGED_SOFTMAX, EK_JAGGED_PHI };

struct ek_jagged_dims {
    int32_t H, K, D;        /* query heads, kv heads (K divides H), head dim 1..256 */
    enum ek_dtype dtype;    /* of q, k, v, o and their gradients: F32 or BF16 */
    enum ek_dtype products; /* what is multiplied: F32, or BF16 (rounded when read) */
    enum ek_jagged_score score;
    float alpha;             /* of q.k: 1/sqrt(D), 1, 1/tau */
    float scale;             /* of phi: 1, 1/n */
    enum ek_phi phi;         /* of every head, unless there are phis */
    const enum ek_phi *phis; /* (H) or NULL */
    struct ek_jagged_mask mask;
    bool is_broadcast_q; /* q holds one sequence, for all; o has B*Lq rows */
    bool is_subtracting; /* softmax without mask or bias: keys padded to whole steps
                                count as exp(0), and are taken off the sum afterwards */
};

/* Offsets begin at any row and do not descend; a length is below EK_JAGGED_ROWS_MAX. */
struct ek_jagged_batch {
    int64_t B;
    const int64_t *q_offsets; /* (B+1); broadcast: (2) */
    const int64_t *k_offsets; /* (B+1) */
    const float *seq_scale;   /* (B) or NULL: 1 */
};

/* Additive terms of x; each may be absent. pos and time are shared by all heads.
 * The bucket of two times: min(floor(ln(max(|t_query - t_key|, 1)) / 0.301), 128). */
struct ek_jagged_bias {
    const float *pair;      /* [i,j] of head h, sequence b at pair_at[b] + h*pair_ld
                              + i*Lk + j; NULL: none */
    const int64_t *pair_at; /* (B) */
    int64_t pair_ld;        /* 0: the same for all heads */
    const float *pos;       /* (2N-1): pos[N-1+j-i], every Lq, Lk <= N; NULL: none */
    int64_t N;
    const float *time; /* (EK_JAGGED_BUCKETS); NULL: none */
    const int64_t *t_query,
        *t_key; /* a row each. HSTU: t_query[i] is the time of i+1 */
};

/* Queries or keys [lo,hi) of sequence b and a head: of h, forward; of kv head h with
 * all its query heads, backward. */
struct ek_jagged_tile {
    int32_t b, h, lo, hi;
    int32_t part;  /* backward: its place in the sequence's parts */
    int64_t work;  /* pairs that the mask shows */
    int64_t stage; /* backward, learned bias: where its sums begin, in floats */
};

struct ek_jagged_plan {
    struct ek_jagged_tile *fwd, *bwd; /* the caller's arrays, heavy first */
    int64_t *stage_at;                /* the caller's (B+1): where the staged query
                                         gradients of a sequence begin, in floats */
    int64_t n_fwd, n_bwd;
    int64_t n_stage; /* floats of the stage */
    int members;     /* in: threads that the imbalance is told for */
    /* Work of the member with the most over the mean, forward and backward: of shares
     * of equal count in order of sequences, and as ek_jagged_deal gives them. */
    double before[2], after[2];
    int64_t n_pairs; /* shown, of all heads: FLOPs forward = 4 D n_pairs,
                                         backward 2.5 times that */
};

/* Tiles that a batch of B sequences with so many rows of queries (o's rows) and keys
 * may have at most; and floats of stage, with learned bias or without. */
void ek_jagged_ceiling(int64_t *n_fwd, int64_t *n_bwd, int64_t *n_stage,
                       const struct ek_jagged_dims *d, int64_t B, int64_t n_q,
                       int64_t n_k, bool has_bias);

/* Fills the arrays and sums of the plan. has_bias: gradients of pos or time are wanted.
 * Cost: O(rows + tiles log tiles), no allocation. */
void ek_jagged_plan_build(struct ek_jagged_plan *plan, const struct ek_jagged_dims *d,
                          const struct ek_jagged_batch *batch, bool has_bias);

/* Of n tiles, heavy first, the one that member m of `members` takes as its r-th: in a
 * zigzag, 0 1 2 2 1 0 0 ...; -1: no more. */
int64_t ek_jagged_deal(int64_t n, int64_t r, int member, int members);

struct ek_jagged_args {
    const struct ek_jagged_dims *d;
    const struct ek_jagged_batch *batch;
    const struct ek_jagged_plan *plan;
    const struct ek_jagged_bias *bias; /* NULL: none */
    const void *q, *k, *v;             /* dtype; rows ldq, ldk, ldv elements apart */
    void *o;                           /* dtype; rows ldo apart. In backward: read */
    float *lse; /* (rows of o, H) softmax; NULL forward: not kept.
                                          In backward: read */
    int64_t ldq, ldk, ldv, ldo;
    /* Backward only; gradients are set, not added to, rows as far apart as those of
     * their values. */
    const void *d_o; /* rows ldo apart */
    void *dq, *dk, *dv;
    float *dpair;        /* as pair, pair_ld not 0; NULL: not wanted.
                                          Pairs not shown are left alone */
    float *dpos, *dtime; /* (2N-1), (EK_JAGGED_BUCKETS); or NULL */
    float *stage;        /* (plan->n_stage) */
};

/* Bytes of scratch a thread needs for either direction, a multiple of 64; 64-byte
 * aligned. Depends on D only. */
size_t ek_jagged_scratch_bytes(const struct ek_jagged_dims *d);

/* Tile `tile` of plan->fwd, or of plan->bwd.
 * Threads: different tiles at once, each thread its own scratch. No allocation. */
typedef void ek_jagged_fn(const struct ek_jagged_args *a, int64_t tile, void *scratch);

/* After all backward tiles: sums what is staged, units [u0,u1) of
 * ek_jagged_reduce_units. Threads: different units at once. */
int64_t ek_jagged_reduce_units(const struct ek_jagged_args *a);
void ek_jagged_reduce(const struct ek_jagged_args *a, int64_t u0, int64_t u1);

/* The keys that query i of sequence b sees: [lo,hi), and self (-1: none beside). */
struct ek_jagged_span {
    int32_t lo, hi, self;
};
struct ek_jagged_span ek_jagged_span_of(const struct ek_jagged_mask *m, int64_t b,
                                        int64_t Lq, int64_t Lk, int64_t i);

/* The bucket of a difference of times: exact, by the integers where it changes. */
int ek_jagged_bucket(int64_t difference);

#endif
