/* params_hf.c - hyperparameters from a Hugging Face config.json.
 *
 * Keys and defaults are those of transformers: RoPE under rope_parameters (5.x, for
 * Gemma one set a layer type) or rope_theta with rope_scaling (4.x); a Gemma 3 with
 * vision keeps its text model under text_config. JSON null counts as missing.
 */
#include "lm/params_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct source {
    const json_t *o;  /* borrowed from the modelfile */
    const char *file; /* the model's path */
};

static const json_t *get(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return v && !json_is_null(v) ? v : NULL;
}

static int wrong(const struct source *s, const char *key, const json_t *v,
                 const char *expected, struct ek_err *err)
{
    static const char *const kinds[] = {"an object", "an array", "a string", "a number",
                                        "a number",  "true",     "false",    "null"};
    if (!v)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: config.json: key '%s' is missing: expected %s", s->file,
                          key, expected);
    return ek_err_set(err, EK_EFORMAT, "%s: config.json: key '%s': %s: expected %s",
                      s->file, key, kinds[json_typeof(v)], expected);
}

/* An integer in [1,max]; missing: `fallback`, or an error where that is 0. */
static int get_int(const struct source *s, const char *key, int32_t *out, int32_t max,
                   int32_t fallback, struct ek_err *err)
{
    const json_t *v = get(s->o, key);
    if (!v && fallback > 0) {
        *out = fallback;
        return 0;
    }
    if (!v || !json_is_integer(v))
        return wrong(s, key, v, "a whole number", err);
    json_int_t n = json_integer_value(v);
    if (n < 1 || n > max)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: config.json: key '%s': %lld: expected 1 to %d", s->file,
                          key, (long long)n, max);
    *out = (int32_t)n;
    return 0;
}

/* A number of object o; missing leaves *out. */
static int get_real(const struct source *s, const json_t *o, const char *key,
                    double *out, struct ek_err *err)
{
    const json_t *v = get(o, key);
    if (!v)
        return 0;
    if (!json_is_number(v))
        return wrong(s, key, v, "a number", err);
    *out = json_number_value(v);
    return 0;
}

static int get_bool(const struct source *s, const char *key, bool *out,
                    struct ek_err *err)
{
    const json_t *v = get(s->o, key);
    if (!v)
        return 0;
    if (!json_is_boolean(v))
        return wrong(s, key, v, "true or false", err);
    *out = json_is_true(v);
    return 0;
}

static int read_sizes(const struct source *s, struct ek_lm_params *p,
                      const struct ek_lm_family *f, struct ek_err *err)
{
    /* Gemma 3's text_config leaves out what equals the defaults of its class. */
    bool g = f->is_gemma;
    int rc;
    if ((rc = get_int(s, "num_hidden_layers", &p->n_layers, EK_LM_LAYERS_MAX,
                      g ? 26 : 0, err)) != 0 ||
        (rc = get_int(s, "hidden_size", &p->C, EK_LM_WIDTH_MAX, g ? 2304 : 0, err)) !=
            0 ||
        (rc = get_int(s, "intermediate_size", &p->F, EK_LM_WIDTH_MAX, g ? 9216 : 0,
                      err)) != 0 ||
        (rc = get_int(s, "num_attention_heads", &p->H, 1 << 16, g ? 8 : 0, err)) != 0 ||
        (rc = get_int(s, "num_key_value_heads", &p->K, 1 << 16, g ? 4 : p->H, err)) !=
            0 ||
        (rc = get_int(s, "vocab_size", &p->V, EK_LM_VOCAB_MAX, g ? 262208 : 0, err)) !=
            0 ||
        (rc = get_int(s, "max_position_embeddings", &p->ctx, EK_LM_CTX_MAX,
                      g ? 131072 : 2048, err)) != 0)
        return rc;
    int32_t per_head = p->C / p->H > 0 ? p->C / p->H : 1;
    if (g)
        per_head = 256;
    else if (f->has_qk_norm)
        per_head = 128; /* Qwen3's class default */
    return get_int(s, "head_dim", &p->D, EK_LM_WIDTH_MAX, per_head, err);
}

static int read_numbers(const struct source *s, struct ek_lm_params *p,
                        const struct ek_lm_family *f, struct ek_err *err)
{
    double eps = 1e-6, per_head = f->is_gemma ? 256 : p->D, softcap = 0;
    int rc;
    if ((rc = get_real(s, s->o, "rms_norm_eps", &eps, err)) != 0)
        return rc;
    if (f->is_gemma &&
        ((rc = get_real(s, s->o, "query_pre_attn_scalar", &per_head, err)) != 0 ||
         (rc = get_real(s, s->o, "final_logit_softcapping", &softcap, err)) != 0))
        return rc;
    p->norm_eps = (float)eps;
    p->attn_scale = (float)(1 / sqrt(per_head));
    p->logit_softcap = (float)softcap;
    if (f->is_gemma) {
        p->norm_offset = 1.0f;
        p->embed_scale = sqrtf((float)p->C);
    }
    return 0;
}

/* The attention factor of YaRN where the file does not give it. */
static double yarn_mscale(double factor, double mscale, double all_dim)
{
    if (factor <= 1)
        return 1;
    double plain = 0.1 * log(factor) + 1;
    if (mscale == 0 || all_dim == 0)
        return plain;
    return (0.1 * mscale * log(factor) + 1) / (0.1 * all_dim * log(factor) + 1);
}

static int read_yarn(const struct source *s, const json_t *o, struct ek_rope_options *r,
                     int32_t ctx, struct ek_err *err)
{
    double mscale = 0, all_dim = 0;
    int rc;
    if (json_is_false(get(o, "truncate")))
        return ek_err_set(err, EK_EUNSUP,
                          "%s: config.json: key 'truncate': false: YaRN is supported "
                          "with truncate true only",
                          s->file);
    if ((rc = get_real(s, o, "beta_fast", &r->beta_fast, err)) != 0 ||
        (rc = get_real(s, o, "beta_slow", &r->beta_slow, err)) != 0 ||
        (rc = get_real(s, o, "mscale", &mscale, err)) != 0 ||
        (rc = get_real(s, o, "mscale_all_dim", &all_dim, err)) != 0)
        return rc;
    if (!get(o, "factor"))
        r->factor = ctx / r->original_ctx;
    r->mscale = yarn_mscale(r->factor, mscale, all_dim);
    return get_real(s, o, "attention_factor", &r->mscale, err);
}

/* One set of RoPE values: o is rope_parameters, one layer type's part of it, or
 * rope_scaling; NULL keeps what r has. */
static int read_rope_set(const struct source *s, const json_t *o,
                         struct ek_rope_options *r, int32_t ctx, struct ek_err *err)
{
    if (!o)
        return 0;
    if (!json_is_object(o))
        return wrong(s, "rope_parameters", o, "an object", err);
    const json_t *type = get(o, "rope_type");
    if (!type)
        type = get(o, "type"); /* before transformers 4.43 */
    if (type && !json_is_string(type))
        return wrong(s, "rope_type", type, "a string", err);
    const char *name = type ? json_string_value(type) : "default";
    int rc;
    r->original_ctx = ctx;
    r->factor = 1;
    if ((rc = get_real(s, o, "rope_theta", &r->base, err)) != 0 ||
        (rc = get_real(s, o, "factor", &r->factor, err)) != 0 ||
        (rc = get_real(s, o, "original_max_position_embeddings", &r->original_ctx,
                       err)) != 0)
        return rc;
    if (!strcmp(name, "default")) {
        r->factor = 1;
        return 0;
    }
    if (!strcmp(name, "linear")) {
        r->scaling = EK_ROPE_LINEAR;
        return 0;
    }
    if (!strcmp(name, "llama3")) {
        r->scaling = EK_ROPE_LLAMA3;
        rc = get_real(s, o, "low_freq_factor", &r->low_freq_factor, err);
        return rc ? rc : get_real(s, o, "high_freq_factor", &r->high_freq_factor, err);
    }
    if (!strcmp(name, "yarn")) {
        r->scaling = EK_ROPE_YARN;
        return read_yarn(s, o, r, ctx, err);
    }
    return ek_err_set(err, EK_EUNSUP,
                      "%s: config.json: rope_type '%.64s' is not supported; known are "
                      "default, linear, llama3, yarn",
                      s->file, name);
}

static int read_rope(const struct source *s, struct ek_lm_params *p,
                     const struct ek_lm_family *f, struct ek_err *err)
{
    double part = 1;
    const json_t *set = get(s->o, "rope_parameters");
    const json_t *old = get(s->o, "rope_scaling");
    int rc;
    if ((rc = get_real(s, s->o, "rope_theta", &p->rope.base, err)) != 0 ||
        (rc = get_real(s, s->o, "partial_rotary_factor", &part, err)) != 0 ||
        (set && (rc = get_real(s, set, "partial_rotary_factor", &part, err)) != 0))
        return rc;
    if (!(part > 0 && part <= 1))
        return ek_err_set(err, EK_EFORMAT,
                          "%s: config.json: key 'partial_rotary_factor': %g: expected "
                          "a number above 0, at most 1",
                          s->file, part);
    p->rope.n_dims = (int)(p->D * part);
    p->rope_local = p->rope;
    const json_t *global = get(set, "full_attention");
    const json_t *local = get(set, "sliding_attention");
    if (f->is_gemma) {
        p->rope_local.base = 1e4;
        rc = get_real(s, s->o, "rope_local_base_freq", &p->rope_local.base, err);
        if (!rc)
            rc = read_rope_set(s, local, &p->rope_local, p->ctx, err);
    }
    if (rc)
        return rc;
    if (global || local)
        set = global;
    rc = read_rope_set(s, set ? set : old, &p->rope, p->ctx, err);
    if (!rc && !f->is_gemma)
        p->rope_local = p->rope;
    return rc;
}

static int read_layer_types(const struct source *s, struct ek_lm_params *p,
                            const json_t *types, struct ek_err *err)
{
    if (!json_is_array(types) || json_array_size(types) != (size_t)p->n_layers)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: config.json: key 'layer_types': expected an array of "
                          "%d, one a layer",
                          s->file, p->n_layers);
    for (int32_t l = 0; l < p->n_layers; l++) {
        const char *word = json_string_value(json_array_get(types, (size_t)l));
        if (!word)
            return ek_err_set(err, EK_EFORMAT,
                              "%s: config.json: key 'layer_types': entry %d: expected "
                              "a string",
                              s->file, l);
        p->is_local[l] = !strcmp(word, "sliding_attention");
        if (!p->is_local[l] && strcmp(word, "full_attention") != 0)
            return ek_err_set(err, EK_EUNSUP,
                              "%s: config.json: key 'layer_types': '%.64s' is not "
                              "supported; known are full_attention, sliding_attention",
                              s->file, word);
    }
    return 0;
}

/* The first layer with the window, where no layer_types say it. */
static int read_first_local(const struct source *s, const struct ek_lm_family *f,
                            int32_t *first, struct ek_err *err)
{
    const json_t *v = get(s->o, "max_window_layers");
    *first = f->max_window;
    if (!v || !f->max_window)
        return 0;
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return wrong(s, "max_window_layers", v, "a whole number, 0 or more", err);
    json_int_t n = json_integer_value(v);
    *first = n < EK_LM_LAYERS_MAX ? (int32_t)n : EK_LM_LAYERS_MAX;
    return 0;
}

/* Mistral: sliding_window or null, all layers. Qwen: only with use_sliding_window, from
 * max_window_layers on. Gemma: always, by layer_types or period. Llama: never. */
static int read_window(const struct source *s, struct ek_lm_params *p,
                       const struct ek_lm_family *f, struct ek_err *err)
{
    const json_t *types = get(s->o, "layer_types");
    bool uses = f->has_window;
    int32_t first = 0, period = 0;
    int rc = f->max_window ? get_bool(s, "use_sliding_window", &uses, err) : 0;
    if (rc || !uses || (!f->is_gemma && !get(s->o, "sliding_window")))
        return rc;
    rc = get_int(s, "sliding_window", &p->window, EK_LM_CTX_MAX, f->is_gemma ? 4096 : 0,
                 err);
    if (rc)
        return rc;
    if (types)
        return read_layer_types(s, p, types, err);
    if (f->is_gemma) {
        rc = get_int(s, "sliding_window_pattern", &period, EK_LM_LAYERS_MAX, 6, err);
        if (!rc)
            ek_lm_set_pattern(p, period);
        return rc;
    }
    rc = read_first_local(s, f, &first, err);
    for (int32_t l = first; !rc && l < p->n_layers; l++)
        p->is_local[l] = 1;
    return rc;
}

/* What would change the result and is not computed here is refused, not ignored. */
static int refuse_unknown(const struct source *s, const struct ek_lm_family *f,
                          struct ek_err *err)
{
    static const char *const flags[] = {"attention_bias", "mlp_bias",
                                        "use_bidirectional_attention"};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        bool is_known = i == 0 && f->has_qkv_bias;
        if (!is_known && json_is_true(get(s->o, flags[i])))
            return ek_err_set(err, EK_EUNSUP,
                              "%s: config.json: key '%s': true is not supported",
                              s->file, flags[i]);
    }
    /* Gemma 3 has none: transformers reads the key and does not apply it. */
    if (get(s->o, "attn_logit_softcapping"))
        return ek_err_set(err, EK_EUNSUP,
                          "%s: config.json: key 'attn_logit_softcapping' is not "
                          "supported: expected null",
                          s->file);
    const char *key = f->is_gemma ? "hidden_activation" : "hidden_act";
    const char *want = f->is_gemma ? "gelu_pytorch_tanh" : "silu";
    const json_t *act = get(s->o, key);
    if (act && (!json_is_string(act) || strcmp(json_string_value(act), want) != 0))
        return ek_err_set(err, EK_EUNSUP,
                          "%s: config.json: key '%s': '%.64s' is not supported: "
                          "expected '%s'",
                          s->file, key,
                          json_is_string(act) ? json_string_value(act) : "?", want);
    return 0;
}

int ek_lm_params_from_hf(struct ek_lm_params *p, const struct ek_modelfile *m,
                         struct ek_err *err)
{
    struct source s = {m->config, m->path};
    const json_t *text = get(m->config, "text_config");
    const json_t *type = get(m->config, "model_type");
    if (!json_is_string(type))
        return wrong(&s, "model_type", type, "a string", err);
    const char *name = json_string_value(type);
    const struct ek_lm_family *f = ek_lm_family_of_type(name);
    if (!f)
        return ek_lm_family_unknown(m->path, "config.json: model_type", name,
                                    strlen(name), err);
    if (f->is_gemma && text) {
        if (!json_is_object(text))
            return wrong(&s, "text_config", text, "an object", err);
        s.o = text;
    }
    const json_t *quantization = get(m->config, "quantization_config");
    if (!quantization)
        quantization = get(s.o, "quantization_config");
    ek_lm_family_apply(p, f);
    p->is_tied = f->is_tied;
    int rc;
    if ((rc = refuse_unknown(&s, f, err)) != 0 ||
        (rc = ek_lm_check_quantization(quantization, m->path, err)) != 0 ||
        (rc = read_sizes(&s, p, f, err)) != 0 ||
        (rc = read_numbers(&s, p, f, err)) != 0 ||
        (rc = read_rope(&s, p, f, err)) != 0 ||
        (rc = read_window(&s, p, f, err)) != 0 ||
        (rc = get_bool(&s, "tie_word_embeddings", &p->is_tied, err)) != 0)
        return rc;
    const json_t *label = get(m->config, "_name_or_path");
    if (json_is_string(label))
        snprintf(p->name, sizeof p->name, "%s", json_string_value(label));
    return 0;
}
