/* params.h - one description of a decoder-only model, for every family we know.
 *
 * A family is a set of switches, not a copy of the forward pass. Read from GGUF
 * metadata or config.json; checked whole before any weight is touched.
 */
#ifndef EVENKEEL_LM_PARAMS_H
#define EVENKEEL_LM_PARAMS_H

#include "base/err.h"
#include "data/modelfile.h"
#include "kernel/act.h"
#include "kernel/rope.h"

#include <stdbool.h>
#include <stdint.h>

#define EK_LM_LAYERS_MAX 512

struct ek_lm_params {
    char arch[32];  /* "llama", "qwen2", "qwen3", "gemma3" */
    char name[128]; /* the file's own name for the model, or "" */
    int32_t n_layers;
    int32_t C;       /* model width */
    int32_t H, K, D; /* query heads, kv heads, head dim */
    int32_t F;       /* width of the feed-forward */
    int32_t V;       /* vocabulary */
    int32_t ctx;     /* positions the model was made for */
    float norm_eps;
    float norm_offset; /* 1: gain is 1+w (Gemma from Hugging Face), else 0 */
    enum ek_glu_kind glu;
    float embed_scale;   /* 1, or sqrt(C) for Gemma */
    float attn_scale;    /* of q.k */
    float attn_softcap;  /* 0: none */
    float logit_softcap; /* 0: none */
    bool has_qkv_bias;   /* Qwen2 */
    bool has_qk_norm;    /* Qwen3, Gemma 3: RMSNorm of each head before RoPE */
    bool has_post_norms; /* Gemma: norms after attention and after feed-forward */
    bool is_tied;        /* the head is the embedding */
    struct ek_rope_options rope;        /* global layers */
    struct ek_rope_options rope_local;  /* layers with a window, where they differ */
    int32_t window;                     /* of local layers; 0: none */
    uint8_t is_local[EK_LM_LAYERS_MAX]; /* 1: layer has the window and rope_local */
};

/* Errors: EK_EUNSUP an unknown architecture, listing those known; EK_EFORMAT a missing
 * or impossible value (file, key, value, expectation). */
int ek_lm_params_read(struct ek_lm_params *p, const struct ek_modelfile *m,
                      struct ek_err *err) EK_MUST_USE;

/* Values of KV one token takes: 2 * n_layers * K * D elements. */
int64_t ek_lm_kv_elems(const struct ek_lm_params *p);

#endif
