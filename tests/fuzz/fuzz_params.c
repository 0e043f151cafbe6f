/* fuzz_params.c - any config.json and any GGUF metadata: refused with a sentence, or
 * hyperparameters that keep what params.c promises the kernels. */
#include "lm/params.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool fact)
{
    if (!fact)
        abort();
}

static void check_rope(const struct ek_rope_options *r, int32_t D)
{
    must(r->n_dims >= 2 && r->n_dims <= D && r->n_dims % 2 == 0);
    must(isfinite(r->base) && r->base > 1 && isfinite(r->factor) && r->factor >= 1);
    must(r->mscale >= 0 && r->mscale <= 1e6);
    struct ek_rope rope;
    ek_rope_init(&rope, r);
    for (int i = 0; i < r->n_dims / 2; i++)
        must(isfinite(rope.inv_freq[i]));
}

static void check(const struct ek_modelfile *m)
{
    struct ek_err err = EK_ERR_INIT;
    struct ek_lm_params p;
    if (ek_lm_params_read(&p, m, &err)) {
        must(err.text[0] != 0);
        return;
    }
    must(p.n_layers >= 1 && p.n_layers <= EK_LM_LAYERS_MAX && p.C >= 1 && p.F >= 1);
    must(p.K >= 1 && p.H >= p.K && p.H % p.K == 0 && p.V >= 1 && p.ctx >= 1);
    must(p.D >= 2 && p.D <= 256 && p.D % 2 == 0 && p.window >= 0);
    must(isfinite(p.norm_eps) && p.norm_eps > 0);
    must(isfinite(p.attn_scale) && p.attn_scale > 0);
    must(isfinite(p.logit_softcap) && p.logit_softcap >= 0);
    must(memchr(p.name, 0, sizeof p.name) && memchr(p.arch, 0, sizeof p.arch));
    must(ek_lm_kv_elems(&p) > 0);
    check_rope(&p.rope, p.D);
    check_rope(&p.rope_local, p.D);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char name[] = "fuzz";
    static const struct ek_tensors none = {NULL, 0, NULL};
    static const struct ek_json_limits limits = {0};
    struct ek_err err = EK_ERR_INIT;
    struct ek_modelfile m = {.path = name, .tensors = &none};
    if (size >= 4 && !memcmp(data, "GGUF", 4)) {
        if (ek_gguf_parse(&m.gguf, data, size, name, &err))
            return 0;
        m.tensors = ek_gguf_tensors(m.gguf);
        check(&m);
        ek_gguf_free(m.gguf);
    } else if (!ek_json_parse(&m.config, (const char *)data, size, &limits, &err)) {
        if (json_is_object(m.config))
            check(&m);
        json_decref(m.config);
    }
    return 0;
}
