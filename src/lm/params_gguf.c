/* params_gguf.c - hyperparameters from GGUF metadata.
 *
 * Keys are "<arch>.<what>", as the ggml repository's docs/gguf.md lists them. Facts that
 * GGUF leaves to the architecture's name: rows of q and k are permuted for interleaved
 * RoPE in "llama"; norms of "gemma3" are stored as 1+w; the head is the embedding where
 * no output.weight is.
 */
#include "lm/params_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct source {
    const struct ek_gguf *g;
    const char *arch;
    char key[96];
};

static const char *key_of(struct source *s, const char *what)
{
    snprintf(s->key, sizeof s->key, "%s.%s", s->arch, what);
    return s->key;
}

/* An integer in [1,max]; missing: `fallback`, or an error where that is 0. */
static int get_int(struct source *s, const char *what, int32_t *out, int32_t max,
                   int32_t fallback, struct ek_err *err)
{
    uint32_t v = 0;
    int rc = ek_gguf_get_u32(s->g, key_of(s, what), &v, err);
    if (rc == EK_ENOENT && fallback > 0) {
        *out = fallback;
        return 0;
    }
    if (rc == EK_ENOENT)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: key '%s' is missing: expected a number from 1 to %d",
                          ek_gguf_name(s->g), s->key, max);
    if (rc)
        return rc;
    if (v < 1 || v > (uint32_t)max)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: key '%s': %u: expected a number from 1 to %d",
                          ek_gguf_name(s->g), s->key, v, max);
    *out = (int32_t)v;
    return 0;
}

/* A number; missing leaves *out. */
static int get_real(struct source *s, const char *what, double *out, struct ek_err *err)
{
    float v = 0.0f;
    int rc = ek_gguf_get_f32(s->g, key_of(s, what), &v, err);
    if (!rc)
        *out = (double)v;
    return rc == EK_ENOENT ? 0 : rc;
}

static bool is_word(struct ek_str s, const char *word)
{
    return s.n == strlen(word) && !memcmp(s.p, word, s.n);
}

static int read_scaling(struct source *s, struct ek_lm_params *p, struct ek_err *err)
{
    struct ek_rope_options *r = &p->rope;
    struct ek_str type = {NULL, 0};
    double attn_factor = 1;
    int rc = ek_gguf_get_str(s->g, key_of(s, "rope.scaling.type"), &type, err);
    if (rc && rc != EK_ENOENT)
        return rc;
    bool has_type = !rc;
    r->original_ctx = p->ctx;
    r->factor = 0;
    if ((rc = get_real(s, "rope.scale_linear", &r->factor, err)) != 0 ||
        (rc = get_real(s, "rope.scaling.factor", &r->factor, err)) != 0 ||
        (rc = get_real(s, "rope.scaling.original_context_length", &r->original_ctx,
                       err)) != 0 ||
        (rc = get_real(s, "rope.scaling.attn_factor", &attn_factor, err)) != 0 ||
        (rc = get_real(s, "rope.scaling.yarn_attn_factor", &attn_factor, err)) != 0 ||
        (rc = get_real(s, "rope.scaling.yarn_beta_fast", &r->beta_fast, err)) != 0 ||
        (rc = get_real(s, "rope.scaling.yarn_beta_slow", &r->beta_slow, err)) != 0)
        return rc;
    if (r->factor == 0) /* written by some converters for "no scaling" */
        r->factor = 1;
    if (has_type && is_word(type, "none")) {
        r->factor = 1;
    } else if (!has_type || is_word(type, "linear")) {
        r->scaling = r->factor != 1 ? EK_ROPE_LINEAR : EK_ROPE_NONE;
    } else if (is_word(type, "yarn")) {
        r->scaling = EK_ROPE_YARN;
        r->mscale = attn_factor * (r->factor > 1 ? 0.1 * log(r->factor) + 1 : 1);
    } else {
        return ek_err_set(err, EK_EUNSUP,
                          "%s: key '%s.rope.scaling.type': '%.*s' is not supported; "
                          "known are none, linear, yarn",
                          ek_gguf_name(s->g), s->arch, (int)(type.n < 64 ? type.n : 64),
                          type.p);
    }
    return 0;
}

static int read_rope(struct source *s, struct ek_lm_params *p,
                     const struct ek_lm_family *f, struct ek_err *err)
{
    int32_t n_dims = 0;
    int rc = get_int(s, "rope.dimension_count", &n_dims, EK_ROPE_MAX, p->D, err);
    if (rc)
        return rc;
    p->rope.n_dims = n_dims;
    p->rope.is_interleaved = f->is_permuted;
    if ((rc = get_real(s, "rope.freq_base", &p->rope.base, err)) != 0 ||
        (rc = read_scaling(s, p, err)) != 0)
        return rc;
    p->rope_local = p->rope;
    if (!f->is_gemma)
        return 0;
    /* Gemma's local layers keep the short base and are never scaled. */
    p->rope_local.scaling = EK_ROPE_NONE;
    p->rope_local.factor = 1;
    p->rope_local.base = 1e4;
    return get_real(s, "rope.freq_base_swa", &p->rope_local.base, err);
}

static int read_pattern_array(struct source *s, struct ek_lm_params *p,
                              const struct ek_gguf_kv *kv, struct ek_err *err)
{
    bool is_number = kv->elem != EK_GGUF_STR && kv->elem != EK_GGUF_ARRAY &&
                     kv->elem != EK_GGUF_F32 && kv->elem != EK_GGUF_F64;
    if (!is_number || kv->n < (uint64_t)p->n_layers)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: key '%s': expected a flag for each of the %d layers",
                          ek_gguf_name(s->g), s->key, p->n_layers);
    for (int32_t l = 0; l < p->n_layers; l++)
        p->is_local[l] = ek_gguf_int_at(kv, (uint64_t)l) != 0;
    return 0;
}

/* A window of 0 means none; the pattern is a period, or a flag for each layer. */
static int read_window(struct source *s, struct ek_lm_params *p,
                       const struct ek_lm_family *f, struct ek_err *err)
{
    uint32_t window = 0;
    int32_t period = 0;
    int rc = ek_gguf_get_u32(s->g, key_of(s, "attention.sliding_window"), &window, err);
    if (rc && rc != EK_ENOENT)
        return rc;
    if (window > EK_LM_CTX_MAX)
        return ek_err_set(err, EK_EFORMAT, "%s: key '%s': %u: expected at most %d",
                          ek_gguf_name(s->g), s->key, window, EK_LM_CTX_MAX);
    p->window = (int32_t)window;
    if (!window)
        return 0;
    const struct ek_gguf_kv *kv =
        ek_gguf_find(s->g, key_of(s, "attention.sliding_window_pattern"));
    if (kv && kv->type == EK_GGUF_ARRAY)
        return read_pattern_array(s, p, kv, err);
    /* Without a pattern: every layer of a Mistral is local; five of six in Gemma 3. */
    rc = get_int(s, "attention.sliding_window_pattern", &period, EK_LM_LAYERS_MAX,
                 f->is_gemma ? 6 : EK_LM_LAYERS_MAX + 1, err);
    if (!rc)
        ek_lm_set_pattern(p, period);
    return rc;
}

/* The tokenizer's list counts; files without one say vocab_size. */
static int read_vocab(struct source *s, struct ek_lm_params *p, struct ek_err *err)
{
    const struct ek_gguf_kv *tokens = ek_gguf_find(s->g, "tokenizer.ggml.tokens");
    if (!tokens || tokens->type != EK_GGUF_ARRAY)
        return get_int(s, "vocab_size", &p->V, EK_LM_VOCAB_MAX, 0, err);
    if (tokens->n < 1 || tokens->n > EK_LM_VOCAB_MAX)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: key 'tokenizer.ggml.tokens': %llu tokens: expected 1 to "
                          "%d",
                          ek_gguf_name(s->g), (unsigned long long)tokens->n,
                          EK_LM_VOCAB_MAX);
    p->V = (int32_t)tokens->n;
    return 0;
}

static int read_sizes(struct source *s, struct ek_lm_params *p, struct ek_err *err)
{
    int32_t value_dim = 0;
    int rc;
    if ((rc = get_int(s, "block_count", &p->n_layers, EK_LM_LAYERS_MAX, 0, err)) != 0 ||
        (rc = get_int(s, "context_length", &p->ctx, EK_LM_CTX_MAX, 0, err)) != 0 ||
        (rc = get_int(s, "embedding_length", &p->C, EK_LM_WIDTH_MAX, 0, err)) != 0 ||
        (rc = get_int(s, "feed_forward_length", &p->F, EK_LM_WIDTH_MAX, 0, err)) != 0 ||
        (rc = get_int(s, "attention.head_count", &p->H, 1 << 16, 0, err)) != 0 ||
        (rc = get_int(s, "attention.head_count_kv", &p->K, 1 << 16, p->H, err)) != 0)
        return rc;
    int32_t per_head = p->C / p->H > 0 ? p->C / p->H : 1;
    if ((rc = get_int(s, "attention.key_length", &p->D, EK_LM_WIDTH_MAX, per_head,
                      err)) != 0 ||
        (rc = get_int(s, "attention.value_length", &value_dim, EK_LM_WIDTH_MAX, p->D,
                      err)) != 0)
        return rc;
    if (value_dim != p->D)
        return ek_err_set(err, EK_EUNSUP,
                          "%s: key '%s': %d: expected the key length %d",
                          ek_gguf_name(s->g), s->key, value_dim, p->D);
    return read_vocab(s, p, err);
}

static int read_numbers(struct source *s, struct ek_lm_params *p,
                        const struct ek_lm_family *f, struct ek_err *err)
{
    double eps = 0, scale = 0, softcap = 0, attn_softcap = 0;
    int rc;
    if ((rc = get_real(s, "attention.layer_norm_rms_epsilon", &eps, err)) != 0 ||
        (rc = get_real(s, "attention.scale", &scale, err)) != 0 ||
        (rc = get_real(s, "final_logit_softcapping", &softcap, err)) != 0 ||
        (rc = get_real(s, "attn_logit_softcapping", &attn_softcap, err)) != 0)
        return rc;
    if (eps == 0)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: key '%s.attention.layer_norm_rms_epsilon' is missing or "
                          "0: expected a positive number",
                          ek_gguf_name(s->g), s->arch);
    /* The 27B of Gemma 3 (62 layers) scales by the width a head has of the model. */
    bool is_by_width = f->is_gemma && p->n_layers == 62;
    if (scale == 0)
        scale = 1 / sqrt(is_by_width ? (double)p->C / p->H : (double)p->D);
    p->norm_eps = (float)eps;
    p->attn_scale = (float)scale;
    p->logit_softcap = (float)softcap;
    p->attn_softcap = (float)attn_softcap;
    if (f->is_gemma)
        p->embed_scale = sqrtf((float)p->C);
    return 0;
}

int ek_lm_params_from_gguf(struct ek_lm_params *p, const struct ek_modelfile *m,
                           struct ek_err *err)
{
    struct ek_str arch = {NULL, 0}, name = {NULL, 0};
    int rc = ek_gguf_get_str(m->gguf, "general.architecture", &arch, err);
    if (rc == EK_ENOENT)
        return ek_err_set(err, EK_EFORMAT, "%s: key 'general.architecture' is missing",
                          m->path);
    if (rc)
        return rc;
    const struct ek_lm_family *f = ek_lm_family_of_arch(arch.p, arch.n);
    if (!f)
        return ek_lm_family_unknown(m->path, "general.architecture", arch.p, arch.n,
                                    err);
    ek_lm_family_apply(p, f);
    struct source s = {m->gguf, f->arch, ""};
    uint32_t n_experts = 0;
    rc = ek_gguf_get_u32(m->gguf, key_of(&s, "expert_count"), &n_experts, err);
    if (rc && rc != EK_ENOENT)
        return rc;
    if (n_experts)
        return ek_err_set(err, EK_EUNSUP,
                          "%s: key '%s': %u: mixtures of experts are not supported",
                          m->path, s.key, n_experts);
    if ((rc = read_sizes(&s, p, err)) != 0 || (rc = read_numbers(&s, p, f, err)) != 0 ||
        (rc = read_rope(&s, p, f, err)) != 0 || (rc = read_window(&s, p, f, err)) != 0)
        return rc;
    p->is_tied = !ek_modelfile_tensor(m, "output.weight");
    rc = ek_gguf_get_str(m->gguf, "general.name", &name, err);
    if (rc && rc != EK_ENOENT)
        return rc;
    snprintf(p->name, sizeof p->name, "%.*s", (int)(name.n < 127 ? name.n : 127),
             name.n ? name.p : "");
    return 0;
}
