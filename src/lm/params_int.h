/* params_int.h - what the two readers of hyperparameters share. */
#ifndef EVENKEEL_LM_PARAMS_INT_H
#define EVENKEEL_LM_PARAMS_INT_H

#include "lm/params.h"

#define EK_LM_WIDTH_MAX (1 << 20) /* of C, F: far above any model, far below overflow */
#define EK_LM_VOCAB_MAX (1 << 24)
#define EK_LM_CTX_MAX   (1 << 28)

/* One row a family; everything a family decides by its name alone. */
struct ek_lm_family {
    const char *arch;     /* GGUF's general.architecture, and params.arch */
    const char *types[2]; /* config.json's model_type; unused ones NULL */
    bool has_qkv_bias;
    bool has_qk_norm;
    bool is_gemma;    /* 1+w, scaled embedding, GeGLU, post norms, two ropes */
    bool is_permuted; /* GGUF: q and k rows are laid out for interleaved RoPE */
    bool is_tied;     /* config.json's default of tie_word_embeddings */
    bool has_window; /* config.json: sliding_window counts without use_sliding_window */
    double rope_base;   /* where a file gives none */
    int32_t max_window; /* config.json's default of max_window_layers */
};

/* The family of GGUF architecture `name`, or of config.json's model_type; NULL: none.
 * `name` need not be NUL-terminated. */
const struct ek_lm_family *ek_lm_family_of_arch(const char *name, size_t n);
const struct ek_lm_family *ek_lm_family_of_type(const char *name);

/* EK_EUNSUP: "<file>: <key> '<name>' is not a known architecture; known are ...". */
int ek_lm_family_unknown(const char *file, const char *key, const char *name, size_t n,
                         struct ek_err *err);

/* Presets what the family decides; the readers fill in the rest. */
void ek_lm_family_apply(struct ek_lm_params *p, const struct ek_lm_family *f);

/* Marks the local layers of a pattern of `period` layers whose last is global. */
void ek_lm_set_pattern(struct ek_lm_params *p, int32_t period);

/* q: quantization_config, or NULL; EK_EUNSUP what is not read. */
int ek_lm_check_quantization(const json_t *q, const char *file,
                             struct ek_err *err) EK_MUST_USE;

int ek_lm_params_from_gguf(struct ek_lm_params *p, const struct ek_modelfile *m,
                           struct ek_err *err) EK_MUST_USE;
int ek_lm_params_from_hf(struct ek_lm_params *p, const struct ek_modelfile *m,
                         struct ek_err *err) EK_MUST_USE;

#endif
