/* weights.c - finds every tensor by the name its container gives it, checks it and
 * packs it for the matmul kernels.
 *
 * Two passes: the first only looks (names, shapes, types, sizes), so that a wrong file
 * is refused before memory is taken; the second checks every number and packs, all
 * members of the team together. A tensor inside a block that the architecture has no
 * place for is refused, not ignored: it would have changed the result.
 */
#include "base/file.h"
#include "base/mem.h"
#include "lm/model_int.h"
#include "lm/source.h"
#include "num/quant.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Pages of the file that may be in memory beside what was packed of them. */
#define FORGET_BYTES ((int64_t)16 << 20)

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

/* One matrix or vector to be packed: exactly one of w and vec is set. */
struct job {
    struct ek_source src;
    struct ek_weight *w;
    const float **vec;
    size_t at; /* offset in lm->packed */
    /* Of a matrix: it is with[i], and forward deals out the panels of all n together. */
    const struct ek_weight *with;
    int n, i;
};

/* The first element a member found that is no number; t NULL: none. */
struct bad {
    const struct ek_tensor *t;
    size_t at;
};

struct loader {
    struct ek_lm *lm;
    const struct ek_modelfile *m;
    const struct ek_lm_options *o;
    size_t prefix;    /* index into prefixes */
    struct job *jobs; /* owned */
    size_t n_jobs;
    unsigned char *is_used; /* a byte a tensor of m, owned */
    size_t bytes;           /* packed so far */
    int64_t max_k;          /* longest row of a matrix */
    int64_t total_bytes;    /* of the file's tensors that are used */
    const struct job *job;  /* while packing: the tensor at hand */
    float *scratch;         /* members * scratch_rows * max_k, owned */
    size_t scratch_rows;    /* 128, or 256 where a matrix is no plain tensor */
    struct bad bad[256];    /* a member's first element that is not finite */
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
        return EK_WEIGHT_I4;
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
    if (!ek_add_size(&end, z->bytes, bytes) || !ek_add_size(&end, end, 63))
        return false;
    z->bytes = end & ~(size_t)63;
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
static bool add_copy(struct loader *z, const struct job *like, struct ek_weight *w,
                     enum ek_weight_format format)
{
    const struct ek_source *src = &like->src;
    size_t bytes = ek_weight_bytes(format, src->rows, src->cols);
    *w = (struct ek_weight){format, src->rows, src->cols, NULL};
    struct job *j = &z->jobs[z->n_jobs++];
    *j = *like;
    j->w = w;
    j->at = z->bytes;
    z->max_k = src->cols > z->max_k ? src->cols : z->max_k;
    z->total_bytes += (int64_t)ek_source_bytes(src);
    if (src->kind != EK_SOURCE_PLAIN)
        z->scratch_rows = 256;
    return bytes > 0 && add_bytes(z, bytes);
}

/* The decode copy of a matrix and, of a block's, the prefill copy where it differs.
 * block: NULL for the model's own. */
static bool add_matrix(struct loader *z, const struct ek_source *src,
                       struct ek_weight *w, const struct ek_lm_layer *block)
{
    enum ek_weight_format format = format_of(z->o->weights, src);
    enum ek_weight_format other = format_of(z->o->prefill_weights, src);
    struct job like = {.src = *src, .with = w, .n = 1};
    if (block && w <= &block->w[EK_LM_DECODE][EK_LM_V]) {
        like.with = &block->w[EK_LM_DECODE][EK_LM_Q];
        like.n = 3;
        like.i = (int)(w - like.with);
    }
    if (!add_copy(z, &like, w, format))
        return false;
    if (!block || !z->o->has_prefill_weights || other == format)
        return true;
    size_t before = z->bytes;
    if (!add_copy(z, &like, w + EK_LM_MATRICES, other))
        return false;
    z->lm->prefill_bytes += z->bytes - before;
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
        z->jobs[z->n_jobs++] = (struct job){
            .src = src, .vec = (void *)((char *)object + at->offset), .at = z->bytes};
        z->total_bytes += (int64_t)ek_source_bytes(&src);
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

/* Scales of the blocks of rows [r0, r0+128) of an fp8 matrix. */
static void pack_scales(const struct job *j, int64_t r0)
{
    int64_t n = (j->w->K + 127) / 128;
    float *scales = ek_weight_block_scales(j->w) + r0 / 128 * n;
    for (int64_t b = 0; b < n; b++)
        scales[b] = ek_source_scale(&j->src, r0, 128 * b);
}

/* Rows [r0,r1), at most 128, into the matrix at hand; scratch: scratch_rows * K. */
static void pack_source(const struct job *j, int64_t r0, int64_t r1, float *scratch)
{
    const struct ek_source *s = &j->src;
    const struct ek_tensor *t = s->part[EK_SOURCE_CODES];
    size_t K = (size_t)j->w->K, row_bytes = t->bytes / (size_t)s->rows;
    const unsigned char *rows = (const unsigned char *)t->data + (size_t)r0 * row_bytes;
    if (s->kind == EK_SOURCE_PLAIN) {
        ek_weight_pack(j->w, r0, r1, t->dtype, rows, row_bytes, scratch);
    } else if (ek_source_has_blocks(s) && j->w->format == EK_WEIGHT_E4M3) {
        ek_weight_pack(j->w, r0, r1, EK_DTYPE_E4M3, rows, row_bytes, NULL);
        pack_scales(j, r0);
    } else if (s->kind == EK_SOURCE_INT4 && j->w->format == EK_WEIGHT_I4) {
        ek_source_q4_1(scratch, s, r0, r1);
        ek_weight_pack(j->w, r0, r1, EK_DTYPE_Q4_1, scratch, K / 32 * 20, NULL);
    } else {
        ek_source_read(scratch, s, r0, r1);
        ek_weight_pack(j->w, r0, r1, EK_DTYPE_F32, scratch, K * sizeof *scratch,
                       scratch + 128 * K);
    }
}

/* Rows [r0,r1) of the matrix at hand: checked, then packed. */
static bool pack_rows(struct loader *z, int member, int64_t r0, int64_t r1)
{
    const struct job *j = z->job;
    struct bad *bad = &z->bad[member];
    if (!ek_source_check(&j->src, r0, r1, &bad->t, &bad->at))
        return false;
    pack_source(j, r0, r1,
                z->scratch + (size_t)member * z->scratch_rows * (size_t)z->max_k);
    return true;
}

/* E4M3's blocks are packed whole: a border inside one moves to its end. */
static int64_t end_of_block(int64_t row, int64_t N)
{
    int64_t end = (row + 127) / 128 * 128;
    return end < N ? end : N;
}

static void pack_member(void *arg, int member, int n_members)
{
    struct loader *z = arg;
    const struct job *j = z->job;
    int64_t lo, hi, N = j->w->N;
    ek_lm_columns(&lo, &hi, j->with, j->n, j->i, member, n_members);
    if (j->w->format == EK_WEIGHT_E4M3) {
        lo = end_of_block(lo, N);
        hi = end_of_block(hi, N);
    }
    /* 128 rows at a time: few enough to stay in cache between check and packing. */
    z->bad[member].t = NULL;
    for (int64_t r = lo; r < hi; r += 128) {
        if (!pack_rows(z, member, r, r + 128 < hi ? r + 128 : hi))
            return;
    }
}

/* What a member found that no member of lower rows did; t NULL: nothing. */
static struct bad first_bad(const struct loader *z)
{
    for (int i = 0; i < ek_team_size(z->lm->team); i++) {
        if (z->bad[i].t)
            return z->bad[i];
    }
    return (struct bad){NULL, 0};
}

static struct bad pack_vector(struct loader *z)
{
    const struct job *j = z->job;
    float *out = (void *)((unsigned char *)z->lm->packed + j->at);
    struct bad bad = {NULL, 0};
    if (ek_source_check(&j->src, 0, j->src.rows, &bad.t, &bad.at)) {
        ek_source_read(out, &j->src, 0, j->src.rows);
        *j->vec = out;
    }
    return bad;
}

/* A prefill copy that was not packed is the decode copy. */
static void share_copies(struct ek_lm *lm)
{
    for (int32_t l = 0; l < lm->p.n_layers; l++) {
        struct ek_lm_layer *y = &lm->layers[l];
        for (int i = 0; i < EK_LM_MATRICES; i++) {
            if (!y->w[EK_LM_PREFILL][i].data)
                y->w[EK_LM_PREFILL][i] = y->w[EK_LM_DECODE][i];
        }
    }
}

static int pack_all(struct loader *z, struct ek_err *err)
{
    struct ek_lm *lm = z->lm;
    int64_t done = 0, kept = 0;
    for (size_t i = 0; i < z->n_jobs; i++) {
        struct job *j = &z->jobs[i];
        struct bad bad;
        z->job = j;
        if (j->vec) {
            bad = pack_vector(z);
        } else {
            j->w->data = (unsigned char *)lm->packed + j->at;
            ek_team_run(lm->team, pack_member, z);
            bad = first_bad(z);
        }
        if (bad.t)
            return ek_err_set(err, EK_EFORMAT,
                              "%s: tensor '%s': element %zu or the scale of its block "
                              "is not finite%s",
                              z->m->path, bad.t->name, bad.at,
                              bad.t == j->src.part[EK_SOURCE_SCALE] ? ", or too large"
                                                                    : "");
        done += (int64_t)ek_source_bytes(&j->src);
        if (done - kept > FORGET_BYTES) { /* or the file would stay in memory too */
            ek_modelfile_forget(z->m);
            kept = done;
        }
        if (z->o->on_progress)
            z->o->on_progress(z->o->progress_arg, done, z->total_bytes);
    }
    if (lm->p.is_tied)
        lm->head = lm->embed;
    share_copies(lm);
    ek_modelfile_forget(z->m);
    return 0;
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

static int take_memory(struct loader *z, struct ek_err *err)
{
    struct ek_lm *lm = z->lm;
    size_t n;
    char text[32];
    lm->packed_bytes = z->bytes;
    lm->packed = ek_alloc_huge(z->bytes);
    if (ek_mul_size(&n, (size_t)z->max_k,
                    z->scratch_rows * (size_t)ek_team_size(lm->team)))
        z->scratch = ek_alloc_array(n, sizeof(float));
    if (!lm->packed || !z->scratch)
        return ek_err_set(err, EK_ENOMEM, "%s: no memory for %s of weights", z->m->path,
                          ek_format_bytes(text, z->bytes));
    return 0;
}

int ek_lm_weights_load(struct ek_lm *lm, const struct ek_modelfile *m,
                       const struct ek_lm_options *o, struct ek_err *err)
{
    struct loader z = {.lm = lm, .m = m, .o = o, .scratch_rows = 128};
    size_t n = (size_t)lm->p.n_layers;
    int rc;
    assert(ek_team_size(lm->team) <= 256);
    ek_rope_init(&lm->rope, &lm->p.rope);
    ek_rope_init(&lm->rope_local, &lm->p.rope_local);
    lm->layers = ek_calloc(n, sizeof *lm->layers);
    z.jobs =
        ek_calloc(EK_LM_COPIES * (n * N_LAYER_PLACES + N_MODEL_PLACES), sizeof *z.jobs);
    z.is_used = ek_calloc(m->tensors->n, 1);
    if (!lm->layers || !z.jobs || !z.is_used) {
        rc = ek_err_set(err, EK_ENOMEM, "%s: no memory for the list of weights",
                        m->path);
        goto out;
    }
    if ((rc = find_all(&z, err)) != 0 || (rc = read_rope_factors(lm, m, err)) != 0 ||
        (rc = take_memory(&z, err)) != 0)
        goto out;
    rc = pack_all(&z, err);
out:
    ek_free(z.scratch);
    ek_free(z.is_used);
    ek_free(z.jobs);
    return rc;
}
