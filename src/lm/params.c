/* params.c - the table of families, and the checks no container escapes.
 *
 * Invariant after ek_lm_params_read: every size is positive and bounded, so products of
 * two of them fit int64 and the kernels' preconditions (K divides H, D even and
 * <= 256, RoPE dims even and <= D) hold.
 */
#include "lm/params.h"

#include "kernel/attn.h"
#include "lm/params_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MSCALE_MAX 1e6 /* real ones lie near 1 */

static const struct ek_lm_family families[] = {
    /* arch, types, bias, qk norm, gemma, permuted, tied, window, base, max_window */
    {"llama", {"llama", NULL}, 0, 0, 0, 1, 0, 0, 1e4, 0},
    {"llama", {"mistral", NULL}, 0, 0, 0, 1, 0, 1, 1e4, 0},
    {"qwen2", {"qwen2", NULL}, 1, 0, 0, 0, 0, 0, 1e4, 28},
    {"qwen3", {"qwen3", NULL}, 0, 1, 0, 0, 0, 0, 1e4, 28},
    {"gemma3", {"gemma3_text", "gemma3"}, 0, 1, 1, 0, 1, 1, 1e6, 0},
};
#define N_FAMILIES (sizeof families / sizeof families[0])

const struct ek_lm_family *ek_lm_family_of_arch(const char *name, size_t n)
{
    for (size_t i = 0; i < N_FAMILIES; i++) {
        if (strlen(families[i].arch) == n && !memcmp(families[i].arch, name, n))
            return &families[i];
    }
    return NULL;
}

const struct ek_lm_family *ek_lm_family_of_type(const char *name)
{
    for (size_t i = 0; i < N_FAMILIES; i++) {
        for (size_t j = 0; j < 2 && families[i].types[j]; j++) {
            if (!strcmp(families[i].types[j], name))
                return &families[i];
        }
    }
    return NULL;
}

int ek_lm_family_unknown(const char *file, const char *key, const char *name, size_t n,
                         struct ek_err *err)
{
    char known[160] = "";
    size_t len = 0;
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const char *word = families[i].types[0];
        int k =
            snprintf(known + len, sizeof known - len, "%s%s", i > 0 ? ", " : "", word);
        if (k < 0 || (size_t)k >= sizeof known - len)
            break;
        len += (size_t)k;
    }
    return ek_err_set(err, EK_EUNSUP,
                      "%s: %s '%.*s' is not a known architecture; known are %s", file,
                      key, (int)(n < 64 ? n : 64), name, known);
}

void ek_lm_family_apply(struct ek_lm_params *p, const struct ek_lm_family *f)
{
    memset(p, 0, sizeof *p);
    snprintf(p->arch, sizeof p->arch, "%s", f->arch);
    p->has_qkv_bias = f->has_qkv_bias;
    p->has_qk_norm = f->has_qk_norm;
    p->has_post_norms = f->is_gemma;
    p->glu = f->is_gemma ? EK_GLU_GELU_TANH : EK_GLU_SILU;
    p->embed_scale = 1.0f;
    p->rope.base = f->rope_base;
    p->rope.factor = 1;
    p->rope.beta_fast = 32;
    p->rope.beta_slow = 1;
}

void ek_lm_set_pattern(struct ek_lm_params *p, int32_t period)
{
    for (int32_t l = 0; l < p->n_layers; l++)
        p->is_local[l] = period > 0 && (l + 1) % period != 0;
}

static int check_rope(const char *file, const struct ek_rope_options *r, int32_t D,
                      struct ek_err *err)
{
    if (r->n_dims < 2 || r->n_dims > D || r->n_dims % 2)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: rotary dimensions %d: expected an even number from 2 "
                          "to the head dimension %d",
                          file, r->n_dims, D);
    if (!isfinite(r->base) || r->base <= 1)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: RoPE base %g: expected a finite number above 1", file,
                          r->base);
    if (!isfinite(r->factor) || r->factor < 1)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: RoPE scaling factor %g: expected a number >= 1", file,
                          r->factor);
    if (!(r->mscale >= 0 && r->mscale <= MSCALE_MAX))
        return ek_err_set(err, EK_EFORMAT,
                          "%s: RoPE attention factor %g: expected 0 to %g", file,
                          r->mscale, MSCALE_MAX);
    if (r->scaling != EK_ROPE_LLAMA3 && r->scaling != EK_ROPE_YARN)
        return 0;
    if (!isfinite(r->original_ctx) || r->original_ctx < 1)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: RoPE original context %g: expected a number >= 1", file,
                          r->original_ctx);
    if (r->scaling == EK_ROPE_LLAMA3 &&
        !(r->low_freq_factor > 0 && r->high_freq_factor > r->low_freq_factor &&
          isfinite(r->high_freq_factor)))
        return ek_err_set(err, EK_EFORMAT,
                          "%s: RoPE low_freq_factor %g, high_freq_factor %g: expected "
                          "0 < low < high",
                          file, r->low_freq_factor, r->high_freq_factor);
    if (r->scaling == EK_ROPE_YARN && !(r->beta_slow > 0 && r->beta_fast > 0 &&
                                        isfinite(r->beta_slow + r->beta_fast)))
        return ek_err_set(err, EK_EFORMAT,
                          "%s: RoPE beta_fast %g, beta_slow %g: expected positive "
                          "numbers",
                          file, r->beta_fast, r->beta_slow);
    return 0;
}

/* Relations between values; single ranges were checked where they were read. */
static int check(const struct ek_lm_params *p, const char *file, struct ek_err *err)
{
    if (p->K < 1 || p->H % p->K)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: %d attention heads with %d key-value heads: expected a "
                          "multiple",
                          file, p->H, p->K);
    if (p->D < 2 || p->D > EK_HEAD_DIM_MAX || p->D % 2)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: head dimension %d: expected an even number from 2 to %d",
                          file, p->D, EK_HEAD_DIM_MAX);
    if (!isfinite(p->norm_eps) || p->norm_eps <= 0)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: RMSNorm epsilon %g: expected a positive number", file,
                          (double)p->norm_eps);
    if (!isfinite(p->attn_scale) || p->attn_scale <= 0)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: attention scale %g: expected a positive number", file,
                          (double)p->attn_scale);
    if (!isfinite(p->attn_softcap) || p->attn_softcap < 0 ||
        !isfinite(p->logit_softcap) || p->logit_softcap < 0)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: soft caps %g (attention), %g (logits): expected 0 or "
                          "more",
                          file, (double)p->attn_softcap, (double)p->logit_softcap);
    int rc = check_rope(file, &p->rope, p->D, err);
    if (!rc)
        rc = check_rope(file, &p->rope_local, p->D, err);
    return rc;
}

int ek_lm_params_read(struct ek_lm_params *p, const struct ek_modelfile *m,
                      struct ek_err *err)
{
    struct ek_lm_params got = {0};
    int rc;
    if (m->gguf)
        rc = ek_lm_params_from_gguf(&got, m, err);
    else if (m->config)
        rc = ek_lm_params_from_hf(&got, m, err);
    else
        rc = ek_err_set(err, EK_ENOENT,
                        "%s: neither GGUF metadata nor a config.json describes the "
                        "model",
                        m->path);
    if (!rc)
        rc = check(&got, m->path, err);
    if (!rc)
        *p = got;
    return rc;
}

int64_t ek_lm_kv_elems(const struct ek_lm_params *p)
{
    return (int64_t)2 * p->n_layers * p->K * p->D;
}
