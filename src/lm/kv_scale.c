/* kv_scale.c - the scales of an e4m3 KV cache that a folder brings along.
 *
 * A checkpoint calibrated for FP8 keys and values has one scale a layer, or one a kv
 * head, beside its attention: stored code = value / scale. GGUF has no name for them.
 * Keys and values are rotated before they are written (forward.c), so a coordinate may
 * exceed what the scale was made for; what saturates is counted.
 * Source: vllm-project/compressed-tensors (kv_cache_scheme), vLLM's loader for the
 * names.
 */
#include "base/mem.h"
#include "lm/weights_int.h"
#include "num/quant.h"

#include <stdio.h>

static const struct ek_tensor *find(const struct ek_modelfile *m, const char *decoder,
                                    int32_t layer, char which)
{
    char name[128];
    snprintf(name, sizeof name, "%slayers.%d.self_attn.%c_scale", decoder, layer,
             which);
    const struct ek_tensor *t = ek_modelfile_tensor(m, name);
    if (t)
        return t;
    snprintf(name, sizeof name, "%slayers.%d.self_attn.%c_proj.%c_scale", decoder,
             layer, which, which);
    return ek_modelfile_tensor(m, name);
}

/* t has one number, or one a kv head: into out[0,K). */
static int read(float *out, const struct ek_tensor *t, int32_t K, const char *path,
                struct ek_err *err)
{
    char got[96];
    int64_t n = 1;
    for (int i = 0; i < t->n_dims; i++)
        n *= t->shape[i];
    bool is_float = t->dtype == EK_DTYPE_F32 || t->dtype == EK_DTYPE_BF16 ||
                    t->dtype == EK_DTYPE_F16;
    if ((n != 1 && n != K) || !is_float)
        return ek_err_set(
            err, EK_EFORMAT,
            "%s: tensor '%s': shape %s of %s: expected one number, or one "
            "for each of %d kv heads, of f32, bf16 or f16",
            path, t->name, ek_tensor_shape_text(got, t), ek_dtype_name(t->dtype), K);
    ek_quant_to_f32(out, t->dtype, t->data, (size_t)n);
    for (int32_t i = 0; i < K; i++) {
        float x = n == 1 ? out[0] : out[i];
        if (!(x >= 1e-6f && x <= 1e6f))
            return ek_err_set(err, EK_EFORMAT,
                              "%s: tensor '%s': a scale of %g: expected a number from "
                              "1e-6 to 1e6",
                              path, t->name, (double)x);
        out[i] = x;
    }
    return 0;
}

int ek_lm_kv_scales_load(struct ek_lm *lm, const struct ek_modelfile *m,
                         const char *decoder, unsigned char *is_used,
                         struct ek_err *err)
{
    int32_t K = lm->p.K, n = 2 * K * lm->p.n_layers;
    int rc = 0;
    for (int32_t i = 0; i < 2 * lm->p.n_layers && !rc; i++) {
        const struct ek_tensor *t = find(m, decoder, i / 2, i % 2 ? 'v' : 'k');
        if (!t)
            continue;
        if (!lm->kv_scales) {
            lm->kv_scales = ek_alloc_array((size_t)n, sizeof *lm->kv_scales);
            if (!lm->kv_scales)
                return ek_err_set(err, EK_ENOMEM, "%s: no memory for scales of KV",
                                  m->path);
            for (int32_t k = 0; k < n; k++)
                lm->kv_scales[k] = 1.0f;
        }
        rc = read(lm->kv_scales + i * K, t, K, m->path, err);
        is_used[t - m->tensors->items] = 1;
    }
    return rc;
}
