/* weights.c - finds every tensor by the name its container gives it.
 *
 * Loading has two passes: this one only looks (names, shapes, types, sizes), so that a
 * wrong file is refused before memory is taken; weights_pack.c has the second. A tensor
 * inside a block that the architecture has no place for is refused, not ignored: it
 * would have changed the result.
 */
#include "base/mem.h"
#include "lm/weights_int.h"
#include "num/quant.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum dim { DIM_NONE, DIM_C, DIM_F, DIM_V, DIM_HD, DIM_KD, DIM_D };
enum part { ALWAYS, QKV_BIAS, QK_NORM, POST_NORMS, NO_POST_NORMS, UNTIED };

struct place {
    const char *gguf, *hf;
    enum dim rows, cols; /* cols DIM_NONE: a vector, kept as f32 */
    enum part part;
    size_t offset; /* of the ek_weight or const float * in its struct */
};

#define LAYER(member) offsetof(struct ek_lm_layer, member)
#define MATRIX(name)  offsetof(struct ek_lm_layer, w[EK_LM_DECODE][EK_LM_##name])
static const struct place layer_places[] = {
    {"attn_norm.weight", "input_layernorm.weight", DIM_C, 0, ALWAYS, LAYER(attn_norm)},
    {"attn_q.weight", "self_attn.q_proj.weight", DIM_HD, DIM_C, ALWAYS, MATRIX(Q)},
    {"attn_k.weight", "self_attn.k_proj.weight", DIM_KD, DIM_C, ALWAYS, MATRIX(K)},
    {"attn_v.weight", "self_attn.v_proj.weight", DIM_KD, DIM_C, ALWAYS, MATRIX(V)},
    {"attn_q.bias", "self_attn.q_proj.bias", DIM_HD, 0, QKV_BIAS, LAYER(qb)},
    {"attn_k.bias", "self_attn.k_proj.bias", DIM_KD, 0, QKV_BIAS, LAYER(kb)},
    {"attn_v.bias", "self_attn.v_proj.bias", DIM_KD, 0, QKV_BIAS, LAYER(vb)},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", DIM_D, 0, QK_NORM, LAYER(q_norm)},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", DIM_D, 0, QK_NORM, LAYER(k_norm)},
    {"attn_output.weight", "self_attn.o_proj.weight", DIM_C, DIM_HD, ALWAYS, MATRIX(O)},
    {"post_attention_norm.weight", "post_attention_layernorm.weight", DIM_C, 0,
     POST_NORMS, LAYER(post_attn_norm)},
    /* Hugging Face's post_attention_layernorm is Llama's norm before the feed-forward
     * and Gemma's norm after attention. */
    {"ffn_norm.weight", "post_attention_layernorm.weight", DIM_C, 0, NO_POST_NORMS,
     LAYER(ffn_norm)},
    {"ffn_norm.weight", "pre_feedforward_layernorm.weight", DIM_C, 0, POST_NORMS,
     LAYER(ffn_norm)},
    {"ffn_gate.weight", "mlp.gate_proj.weight", DIM_F, DIM_C, ALWAYS, MATRIX(GATE)},
    {"ffn_up.weight", "mlp.up_proj.weight", DIM_F, DIM_C, ALWAYS, MATRIX(UP)},
    {"ffn_down.weight", "mlp.down_proj.weight", DIM_C, DIM_F, ALWAYS, MATRIX(DOWN)},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight", DIM_C, 0, POST_NORMS,
     LAYER(post_ffn_norm)},
};
#define N_LAYER_PLACES (sizeof layer_places / sizeof layer_places[0])

#define MODEL(member) offsetof(struct ek_lm, member)
static const struct place model_places[] = {
    {"token_embd.weight", "embed_tokens.weight", DIM_V, DIM_C, ALWAYS, MODEL(embed)},
    {"output_norm.weight", "norm.weight", DIM_C, 0, ALWAYS, MODEL(out_norm)},
    {"output.weight", "lm_head.weight", DIM_V, DIM_C, UNTIED, MODEL(head)},
};
#define N_MODEL_PLACES (sizeof model_places / sizeof model_places[0])

/* Where a folder keeps the decoder and its head; the first that holds embed_tokens. */
static const struct {
    const char *decoder, *head;
} prefixes[] = {
    {"model.", ""},
    {"language_model.model.", "language_model."},
    {"model.language_model.", ""},
    {"", ""},
};
#define N_PREFIXES (sizeof prefixes / sizeof prefixes[0])

struct loader {
    struct ek_lm *lm;
    const struct ek_modelfile *m;
    const struct ek_lm_options *o;
    size_t prefix;          /* index into prefixes */
    unsigned char *is_used; /* a byte a tensor of m, owned */
    struct ek_lm_packing p; /* what has been found; its jobs are owned */
};

static int64_t dim_of(const struct ek_lm_params *p, enum dim d)
{
    switch (d) {
    case DIM_C:
        return p->C;
    case DIM_F:
        return p->F;
    case DIM_V:
        return p->V;
    case DIM_HD:
        return (int64_t)p->H * p->D;
    case DIM_KD:
        return (int64_t)p->K * p->D;
    case DIM_D:
        return p->D;
    case DIM_NONE:
        break;
    }
    return 0;
}

static bool has_part(const struct ek_lm_params *p, enum part part)
{
    switch (part) {
    case ALWAYS:
        return true;
    case QKV_BIAS:
        return p->has_qkv_bias;
    case QK_NORM:
        return p->has_qk_norm;
    case POST_NORMS:
        return p->has_post_norms;
    case NO_POST_NORMS:
        return !p->has_post_norms;
    case UNTIED:
        return !p->is_tied;
    }
    return false;
}

/* The format that keeps what a matrix is made of. */
static enum ek_weight_format keep_format(const struct ek_source *s)
{
    if (s->kind == EK_SOURCE_INT4)
        return s->part[EK_SOURCE_ZERO] ? EK_WEIGHT_I4 : EK_WEIGHT_I4S;
    if (s->kind == EK_SOURCE_FP8 && !ek_source_has_blocks(s))
        return EK_WEIGHT_BF16; /* a scale a row has no place in packed E4M3 */
    return ek_weight_keep(s->part[EK_SOURCE_CODES]->dtype);
}

/* The packed format of a matrix. */
static enum ek_weight_format format_of(enum ek_lm_weights w, const struct ek_source *s)
{
    switch (w) {
    case EK_LM_WEIGHTS_F32:
        return EK_WEIGHT_F32;
    case EK_LM_WEIGHTS_BF16:
        return EK_WEIGHT_BF16;
    case EK_LM_WEIGHTS_FP8:
        return EK_WEIGHT_E4M3;
    case EK_LM_WEIGHTS_INT8:
        return EK_WEIGHT_I8;
    case EK_LM_WEIGHTS_INT4: /* q4_0 stays symmetric: exact, and a tenth smaller */
        return keep_format(s) == EK_WEIGHT_I4S ? EK_WEIGHT_I4S : EK_WEIGHT_I4;
    case EK_LM_WEIGHTS_KEEP:
        break;
    }
    return keep_format(s);
}

static void find_prefix(struct loader *z)
{
    char name[128];
    for (size_t i = 0; i < N_PREFIXES; i++) {
        snprintf(name, sizeof name, "%sembed_tokens.weight", prefixes[i].decoder);
        if (ek_modelfile_tensor(z->m, name)) {
            z->prefix = i;
            return;
        }
    }
}

/* layer < 0: a tensor of the model. */
static void name_of(char out[128], const struct loader *z, const struct place *at,
                    int32_t layer)
{
    const char *decoder = prefixes[z->prefix].decoder;
    if (z->m->gguf && layer < 0)
        snprintf(out, 128, "%s", at->gguf);
    else if (z->m->gguf)
        snprintf(out, 128, "blk.%d.%s", layer, at->gguf);
    else if (layer >= 0)
        snprintf(out, 128, "%slayers.%d.%s", decoder, layer, at->hf);
    else
        snprintf(out, 128, "%s%s",
                 at->part == UNTIED ? prefixes[z->prefix].head : decoder, at->hf);
}

static bool add_bytes(struct loader *z, size_t bytes)
{
    size_t end;
    if (!ek_add_size(&end, z->p.bytes, bytes) || !ek_add_size(&end, end, 63))
        return false;
    z->p.bytes = end & ~(size_t)63;
    return true;
}

/* Shape and type of what was found against what the architecture declares. */
static int check_source(const struct loader *z, const struct ek_source *s, int64_t rows,
                        int64_t cols, struct ek_err *err)
{
    const struct ek_tensor *t = s->part[EK_SOURCE_CODES];
    char got[96], expected[96];
    struct ek_tensor want = {.n_dims = cols ? 2 : 1, .shape = {rows, cols}};
    struct ek_tensor real = {.n_dims = 2, .shape = {s->rows, s->cols}};
    size_t row_bytes, n = (size_t)(cols ? cols : rows);
    if (s->kind != EK_SOURCE_PLAIN && s->rows == rows && s->cols == cols)
        return 0;
    if (s->kind != EK_SOURCE_PLAIN)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: tensor '%s': a matrix of %s: expected %s", z->m->path,
                          t->name, ek_tensor_shape_text(got, &real),
                          ek_tensor_shape_text(expected, &want));
    if (t->n_dims != want.n_dims || t->shape[0] != rows ||
        (cols && t->shape[1] != cols))
        return ek_err_set(err, EK_EFORMAT, "%s: tensor '%s': shape %s: expected %s",
                          z->m->path, t->name, ek_tensor_shape_text(got, t),
                          ek_tensor_shape_text(expected, &want));
    if (!ek_quant_can_read(t->dtype))
        return ek_err_set(err, EK_EUNSUP,
                          "%s: tensor '%s': type %s is not supported for weights",
                          z->m->path, t->name, ek_dtype_name(t->dtype));
    if (ek_dtype_bytes(&row_bytes, t->dtype, n) != 0)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: tensor '%s': rows of %zu: expected a multiple of the "
                          "%zu elements a block of %s has",
                          z->m->path, t->name, n, ek_dtype_block(t->dtype),
                          ek_dtype_name(t->dtype));
    return 0;
}

/* A job that packs a source into w. False when sizes overflow. */
static bool add_copy(struct loader *z, const struct ek_lm_job *like,
                     struct ek_weight *w, enum ek_weight_format format)
{
    const struct ek_source *src = &like->src;
    size_t bytes = ek_weight_bytes(format, src->rows, src->cols);
    *w = (struct ek_weight){format, src->rows, src->cols, NULL};
    struct ek_lm_job *j = &z->p.jobs[z->p.n_jobs++];
    *j = *like;
    j->w = w;
    j->at = z->p.bytes;
    z->p.max_k = src->cols > z->p.max_k ? src->cols : z->p.max_k;
    z->p.total_bytes += (int64_t)ek_source_bytes(src);
    if (src->kind != EK_SOURCE_PLAIN)
        z->p.scratch_rows = 256;
    return bytes > 0 && add_bytes(z, bytes);
}

/* The decode copy of a matrix and, of a block's, the prefill copy where it differs.
 * block: NULL for the model's own. */
static bool add_matrix(struct loader *z, const struct ek_source *src,
                       struct ek_weight *w, const struct ek_lm_layer *block)
{
    enum ek_weight_format format = format_of(z->o->weights, src);
    enum ek_weight_format other = format_of(z->o->prefill_weights, src);
    struct ek_lm_job like = {.src = *src, .with = w, .n = 1};
    if (block && w <= &block->w[EK_LM_DECODE][EK_LM_V]) {
        like.with = &block->w[EK_LM_DECODE][EK_LM_Q];
        like.n = 3;
        like.i = (int)(w - like.with);
    }
    if (!add_copy(z, &like, w, format))
        return false;
    if (!block || !z->o->has_prefill_weights || other == format)
        return true;
    size_t before = z->p.bytes;
    if (!add_copy(z, &like, w + EK_LM_MATRICES, other))
        return false;
    z->lm->prefill_bytes += z->p.bytes - before;
    return true;
}

static int add_job(struct loader *z, const struct place *at, void *object,
                   int32_t layer, struct ek_err *err)
{
    const struct ek_lm_params *p = &z->lm->p;
    int64_t rows = dim_of(p, at->rows), cols = dim_of(p, at->cols);
    char name[128], expected[96];
    if (!has_part(p, at->part))
        return 0;
    name_of(name, z, at, layer);
    struct ek_source src;
    int rc = ek_source_find(&src, z->m, name, err);
    if (rc == EK_ENOENT) {
        struct ek_tensor want = {.n_dims = cols ? 2 : 1, .shape = {rows, cols}};
        return ek_err_set(err, EK_EFORMAT,
                          "%s: tensor '%s' is missing: expected shape %s", z->m->path,
                          name, ek_tensor_shape_text(expected, &want));
    }
    if (!rc)
        rc = check_source(z, &src, rows, cols, err);
    if (rc)
        return rc;
    bool fits;
    if (cols) {
        fits = add_matrix(z, &src, (void *)((char *)object + at->offset),
                          layer >= 0 ? object : NULL);
    } else {
        z->p.jobs[z->p.n_jobs++] = (struct ek_lm_job){
            .src = src, .vec = (void *)((char *)object + at->offset), .at = z->p.bytes};
        z->p.total_bytes += (int64_t)ek_source_bytes(&src);
        fits = add_bytes(z, (size_t)rows * sizeof(float));
    }
    if (!fits)
        return ek_err_set(err, EK_ELIMIT, "%s: tensor '%s': packed size overflows",
                          z->m->path, name);
    for (int i = 0; i < EK_SOURCE_PARTS; i++) {
        if (src.part[i])
            z->is_used[src.part[i] - z->m->tensors->items] = 1;
    }
    z->lm->n_params += rows * (cols ? cols : 1);
    return 0;
}

static bool starts_with(const char *s, const char *with)
{
    return !strncmp(s, with, strlen(with));
}

static bool ends_with(const char *s, const char *with)
{
    size_t n = strlen(s), k = strlen(with);
    return n >= k && !strcmp(s + n - k, with);
}

/* Tensors beside the text decoder that do not change what it computes. */
static bool is_harmless(const struct loader *z, const char *name)
{
    static const char *const others[] = {"vision_tower.", "model.vision_tower.",
                                         "multi_modal_projector.",
                                         "model.multi_modal_projector."};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (starts_with(name, others[i]))
            return true;
    }
    return ends_with(name, ".rotary_emb.inv_freq") || ends_with(name, ".input_scale") ||
           (z->lm->p.is_tied && ends_with(name, "lm_head.weight")) ||
           (z->m->gguf && !strcmp(name, "rope_freqs.weight"));
}

static int find_all(struct loader *z, struct ek_err *err)
{
    struct ek_lm *lm = z->lm;
    int rc = 0;
    if (!z->m->gguf)
        find_prefix(z);
    for (size_t i = 0; i < N_MODEL_PLACES && !rc; i++)
        rc = add_job(z, &model_places[i], lm, -1, err);
    for (int32_t l = 0; l < lm->p.n_layers && !rc; l++) {
        for (size_t i = 0; i < N_LAYER_PLACES && !rc; i++)
            rc = add_job(z, &layer_places[i], &lm->layers[l], l, err);
    }
    if (!rc && !z->m->gguf)
        rc = ek_lm_kv_scales_load(lm, z->m, prefixes[z->prefix].decoder, z->is_used,
                                  err);
    for (size_t i = 0; i < z->m->tensors->n && !rc; i++) {
        const char *name = z->m->tensors->items[i].name;
        if (!z->is_used[i] && !is_harmless(z, name))
            rc = ek_err_set(err, EK_EUNSUP,
                            "%s: tensor '%s' has no place in architecture '%s' with "
                            "%d layers",
                            z->m->path, name, lm->p.arch, lm->p.n_layers);
    }
    return rc;
}

/* Llama 3's scaling in a GGUF file: a divisor for each frequency. */
static int read_rope_factors(struct ek_lm *lm, const struct ek_modelfile *m,
                             struct ek_err *err)
{
    const struct ek_tensor *t =
        m->gguf ? ek_modelfile_tensor(m, "rope_freqs.weight") : NULL;
    float factors[EK_ROPE_MAX / 2];
    int64_t n = lm->p.rope.n_dims / 2;
    char got[96];
    if (!t)
        return 0;
    if (t->n_dims != 1 || t->shape[0] != n || t->dtype != EK_DTYPE_F32)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: tensor '%s': shape %s of %s: expected (%lld) of f32",
                          m->path, t->name, ek_tensor_shape_text(got, t),
                          ek_dtype_name(t->dtype), (long long)n);
    ek_quant_to_f32(factors, t->dtype, t->data, (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        if (!(factors[i] >= 1.0f / 1024 && factors[i] <= 1048576.0f))
            return ek_err_set(err, EK_EFORMAT,
                              "%s: tensor '%s': element %lld is %g: expected a number "
                              "from 1/1024 to 2^20",
                              m->path, t->name, (long long)i, (double)factors[i]);
        lm->rope.inv_freq[i] /= (double)factors[i];
        lm->rope_local.inv_freq[i] /= (double)factors[i];
    }
    return 0;
}

int ek_lm_weights_load(struct ek_lm *lm, const struct ek_modelfile *m,
                       const struct ek_lm_options *o, struct ek_err *err)
{
    struct loader z = {
        .lm = lm, .m = m, .o = o, .p = {.lm = lm, .m = m, .o = o, .scratch_rows = 128}};
    size_t n = (size_t)lm->p.n_layers;
    int rc;
    assert(ek_team_size(lm->team) <= 256);
    ek_rope_init(&lm->rope, &lm->p.rope);
    ek_rope_init(&lm->rope_local, &lm->p.rope_local);
    lm->layers = ek_calloc(n, sizeof *lm->layers);
    z.p.jobs = ek_calloc(EK_LM_COPIES * (n * N_LAYER_PLACES + N_MODEL_PLACES),
                         sizeof *z.p.jobs);
    z.is_used = ek_calloc(m->tensors->n, 1);
    if (!lm->layers || !z.p.jobs || !z.is_used) {
        rc = ek_err_set(err, EK_ENOMEM, "%s: no memory for the list of weights",
                        m->path);
        goto out;
    }
    if ((rc = find_all(&z, err)) != 0 || (rc = read_rope_factors(lm, m, err)) != 0)
        goto out;
    rc = ek_lm_pack_all(&z.p, err);
out:
    ek_free(z.is_used);
    ek_free(z.p.jobs);
    return rc;
}
