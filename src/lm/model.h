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
size_t ek_lm_weight_bytes(const struct ek_lm *lm); /* packed */

/* Which rows of a sequence's chunk get logits. */
enum ek_lm_want { EK_LM_WANT_NONE, EK_LM_WANT_LAST, EK_LM_WANT_ALL };

struct ek_lm_seq {
    const int32_t *tokens; /* n_tokens ids, each in [0,V) */
    int32_t n_tokens;      /* >= 1 */
    int32_t pos0; /* position of tokens[0]; positions [0,pos0) are in the pages */
    const int32_t *pages; /* ceil((pos0+n_tokens)/EK_PAGE_TOKENS) page numbers, each in
                              [0,n_pages); no page twice in one batch but for reading */
    enum ek_lm_want want;
};

/* One step over all sequences: writes their keys and values into kv and the wanted
 * logits into `logits` (rows of V, in the order of seqs and positions).
 * Preconditions (asserted): sum of n_tokens <= max_batch_tokens; ids, pages in range.
 * The result of a sequence is the same bits whatever else is in the batch and however
 * its prompt is cut into chunks. No allocation. Returns the number of logits rows. */
int32_t ek_lm_forward(struct ek_lm *lm, struct ek_kv *kv, const struct ek_lm_seq *seqs,
                      int32_t n_seqs, float *logits);

#endif
