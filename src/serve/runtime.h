/* runtime.h - a model ready to answer: everything between a path and an engine, once
 * for keel serve, keel chat and keel generate.
 *
 *   path -> modelfile -> tokenizer, template
 *                     -> params -> weights (packed) -> KV storage -> engine
 * The file is closed when the runtime is open: what is needed later was copied. The
 * struct stays where it is while open: the engine's model points to it.
 */
#ifndef EVENKEEL_SERVE_RUNTIME_H
#define EVENKEEL_SERVE_RUNTIME_H

#include "data/template.h"
#include "lm/crossover.h"
#include "serve/engine.h"

#include <jansson.h>

/* Pages are sized for whole contexts, so contexts beyond this are asked for and not
 * taken by default. */
#define EK_RUNTIME_CTX_DEFAULT 8192

struct ek_runtime_options {
    const char *path;
    int32_t n_threads;      /* 0: one a physical core */
    int32_t ctx;            /* positions a sequence may have; 0: the model's own, at
                               most EK_RUNTIME_CTX_DEFAULT */
    int64_t kv_memory;      /* bytes of KV; 0: max_seqs sequences of full context, at
                               most a quarter of the machine's memory */
    enum ek_dtype kv_dtype; /* F32, BF16 or E4M3 */
    enum ek_lm_weights weights; /* of decode; of prefill too, unless: */
    bool has_prefill_weights;
    enum ek_lm_weights prefill_weights;
    bool
        is_by_tokens; /* with two copies: chosen by a step's tokens, at a crossover that
                          is measured here; else each token by its phase */
    int32_t max_seqs; /* >= 1 */
    int32_t max_batch_tokens; /* >= max_seqs; 0: 512 or max_seqs */
    int32_t prefill_chunk;    /* 0: max_batch_tokens */
    int64_t itl_target_us;    /* as of the engine, like the next */
    int32_t reserve_tokens;
    enum ek_page_check page_check;
    bool caches_prefixes; /* not with two copies chosen by tokens: then keys and values
                             depend on the batch, and no prefix is kept whatever this
                             says (engine_options has what holds) */
    void (*on_progress)(void *arg, int64_t done_bytes, int64_t total_bytes);
    void *progress_arg;
};

struct ek_runtime {
    struct ek_tokenizer *tokenizer; /* owned, as all below */
    struct ek_template *chat;       /* NULL: the model has no chat template */
    struct ek_err chat_err;         /* why there is none, where one was given; clients
                                       see it, so it does not name the file */
    char bos[64], eos[64];          /* texts of the special tokens, for the template */
    struct ek_team *team;
    const struct ek_ops *ops;
    struct ek_lm *lm;
    struct ek_lm_crossover crossover; /* n 0: not measured */
    struct ek_kv kv;
    int32_t ctx;          /* positions a sequence may have */
    size_t longest_piece; /* bytes of the vocabulary's longest token */
    int64_t load_us;      /* what opening took */
    struct ek_engine_options engine_options; /* for ek_engine_new */
    struct ek_engine_model engine_model;     /* forward over lm and kv */
};

/* Errors: those of the parts, with the sentence; *rt is zeroed. A chat template that
 * cannot be interpreted does not keep the model from completing text: chat is NULL then
 * and chat_err says why. */
int ek_runtime_open(struct ek_runtime *rt, const struct ek_runtime_options *o,
                    struct ek_err *err) EK_MUST_USE;
void ek_runtime_close(struct ek_runtime *rt); /* may be zeroed; no engine may use it */

/* The text of a chat, appended to `text`, and where it came from to `is_plain`, as
 * ek_template_render has it. vars is an object with messages and what else the template
 * wants (add_generation_prompt, tools); bos_token and eos_token are added. Errors:
 * EK_EUNSUP no template (or why it cannot be used), those of ek_template_render. */
int ek_runtime_chat_text(const struct ek_runtime *rt, struct ek_buf *text,
                         struct ek_buf *is_plain, const json_t *vars,
                         struct ek_err *err) EK_MUST_USE;

/* The same as ids, appended. Special tokens are read where the template wrote them,
 * never inside what a person wrote. Errors: those of ek_runtime_chat_text and of the
 * tokenizer. */
int ek_runtime_chat_prompt(const struct ek_runtime *rt, struct ek_ids *ids,
                           const json_t *vars, struct ek_err *err) EK_MUST_USE;

#endif
