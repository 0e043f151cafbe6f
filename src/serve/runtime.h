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
#include "serve/engine.h"

#include <jansson.h>

struct ek_runtime_options {
    const char *path;
    int32_t n_threads;      /* 0: one a physical core */
    int32_t ctx;            /* positions a sequence may have; 0: the model's own */
    int64_t kv_memory;      /* bytes of KV; 0: max_seqs sequences of full context */
    enum ek_dtype kv_dtype; /* F32 or BF16 */
    enum ek_lm_weights weights;
    int32_t max_seqs;         /* >= 1 */
    int32_t max_batch_tokens; /* >= max_seqs; 0: 512 or max_seqs */
    int32_t prefill_chunk;    /* 0: max_batch_tokens */
    void (*on_progress)(void *arg, int64_t done_bytes, int64_t total_bytes);
    void *progress_arg;
};

struct ek_runtime {
    struct ek_tokenizer *tokenizer; /* owned, as all below */
    struct ek_template *chat;       /* NULL: the model has no chat template */
    struct ek_err chat_err;         /* why there is none, where one was given */
    char bos[64], eos[64];          /* texts of the special tokens, for the template */
    struct ek_team *team;
    const struct ek_ops *ops;
    struct ek_lm *lm;
    struct ek_kv kv;
    int32_t ctx;                             /* positions a sequence may have */
    int64_t load_us;                         /* what opening took */
    struct ek_engine_options engine_options; /* for ek_engine_new */
    struct ek_engine_model engine_model;     /* forward over lm and kv */
};

/* Errors: those of the parts, with the sentence; *rt is zeroed. A chat template that
 * cannot be interpreted does not keep the model from completing text: chat is NULL then
 * and chat_err says why. */
int ek_runtime_open(struct ek_runtime *rt, const struct ek_runtime_options *o,
                    struct ek_err *err) EK_MUST_USE;
void ek_runtime_close(struct ek_runtime *rt); /* may be zeroed; no engine may use it */

/* Renders `vars` (an object with messages; add_generation_prompt, tools ... as the
 * template wants; bos_token and eos_token are added) and appends the ids. Special tokens
 * are read where the template wrote them, never inside what a person wrote.
 * Errors: EK_EUNSUP no template, those of ek_template_render and the tokenizer. */
int ek_runtime_chat_prompt(const struct ek_runtime *rt, struct ek_ids *ids,
                           const json_t *vars, struct ek_err *err) EK_MUST_USE;

#endif
