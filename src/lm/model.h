/* model.h - a loaded model and its forward pass over a batch of paged sequences.
 *
 * Owner thread: forward is called by one thread, member 0 of the team it was given.
 */
#ifndef EVENKEEL_LM_MODEL_H
#define EVENKEEL_LM_MODEL_H

#include "base/err.h"
#include "base/team.h"
#include "data/modelfile.h"
#include "kernel/ops.h"
#include "lm/kv.h"
#include "lm/params.h"

#include <stdbool.h>

struct ek_lm;

/* --weights: the packed format of every matrix. KEEP: for each tensor the format that
 * keeps its own type with the least loss (ek_weight_keep). Vectors stay f32. */
enum ek_lm_weights {
    EK_LM_WEIGHTS_KEEP,
    EK_LM_WEIGHTS_F32,
    EK_LM_WEIGHTS_BF16,
    EK_LM_WEIGHTS_FP8,
    EK_LM_WEIGHTS_INT8,
    EK_LM_WEIGHTS_INT4,
};

struct ek_lm_options {
    enum ek_lm_weights weights;
    /* A second copy of the blocks' matrices for prompts (prefill is bound by
     * arithmetic, decode by bytes). Tensors whose format comes out the same are kept
     * once. The embedding and the head have one copy: the first is a look-up, the
     * second is computed for sampled rows only, which is decode's work. */
    bool has_prefill_weights;
    enum ek_lm_weights prefill_weights;
    int32_t max_batch_tokens; /* rows a forward may have; buffers are sized for it */
    void (*on_progress)(void *arg, int64_t done_bytes, int64_t total_bytes);
    void *progress_arg; /* may be NULL with on_progress NULL */
};

/* Maps, checks and repacks every weight. m may be closed afterwards (weights are packed
 * copies). The team is borrowed and must outlive the model. Errors: EK_EUNSUP,
 * EK_EFORMAT (missing tensor, shape: got and expected), EK_ENOMEM. */
int ek_lm_load(struct ek_lm **lm, const struct ek_modelfile *m,
               const struct ek_lm_options *o, const struct ek_ops *ops,
               struct ek_team *team, struct ek_err *err) EK_MUST_USE;
void ek_lm_free(struct ek_lm *lm);

const struct ek_lm_params *ek_lm_get_params(const struct ek_lm *lm);
int64_t ek_lm_n_params(const struct ek_lm *lm);    /* scalar weights, tied ones once */
size_t ek_lm_weight_bytes(const struct ek_lm *lm); /* packed, all copies */

/* Of them what the prefill copy takes; 0: there is one copy, as asked or because both
 * formats came out the same. */
size_t ek_lm_prefill_bytes(const struct ek_lm *lm);

/* With two copies: from now on a step of at least `crossover` rows is computed with the
 * prefill copy, a smaller one with the decode copy. Otherwise (the default) each row
 * goes by its phase: ek_lm_seq.decode_from. Rows by phase have the same bits whatever
 * else is in the batch; rows by tokens have not. */
void ek_lm_choose_by_tokens(struct ek_lm *lm, int32_t crossover);

/* Which rows of a sequence's chunk get logits. */
enum ek_lm_want { EK_LM_WANT_NONE, EK_LM_WANT_LAST, EK_LM_WANT_ALL };

struct ek_lm_seq {
    const int32_t *tokens; /* n_tokens ids, each in [0,V) */
    int32_t n_tokens;      /* >= 1 */
    int32_t pos0; /* position of tokens[0]; positions [0,pos0) are in the pages */
    const int32_t *pages; /* ceil((pos0+n_tokens)/EK_PAGE_TOKENS) page numbers, each in
                              [0,n_pages); no page twice in one batch but for reading */
    enum ek_lm_want want;
    /* With two copies of the weights: positions from here on take the decode copy,
     * those before it the prefill copy. A sequence's prompt length, and always the same
     * for one sequence: what is computed again after its pages were lost must be
     * computed alike. 0: all decode. */
    int32_t decode_from;
};

/* One step over all sequences: writes their keys and values into kv and the wanted
 * logits into `logits` (rows of V, in the order of seqs and positions).
 * Preconditions (asserted): sum of n_tokens <= max_batch_tokens; ids, pages in range.
 * The result of a sequence is the same bits whatever else is in the batch and however
 * its prompt is cut into chunks, unless copies are chosen by tokens. No allocation.
 * Returns the number of logits rows. */
int32_t ek_lm_forward(struct ek_lm *lm, struct ek_kv *kv, const struct ek_lm_seq *seqs,
                      int32_t n_seqs, float *logits);

#endif
