/* quantize_plan.c - what each tensor of a model becomes, and where it will lie.
 *
 * Order of the output: in GGUF that of the input, a scale behind its matrix. A folder's
 * tensors must be aligned to their elements for readers that map them, and the format
 * allows no gaps: the i64 shapes come first, then all whose bytes are a multiple of 8,
 * then the rest.
 */
#include "base/mem.h"
#include "lm/quantize_int.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const made_names[EK_MADE_COUNT] = {
    "copy", "bf16", "q8_0", "q4_0", "q4_1", "fp8", "int4", "int4 + zero"};

const char *ek_made_name(enum ek_made made)
{
    return made_names[made];
}

const char *ek_source_name(const struct ek_source *s)
{
    if (s->kind == EK_SOURCE_PLAIN || s->kind == EK_SOURCE_SCALED)
        return ek_dtype_name(s->part[EK_SOURCE_CODES]->dtype);
    if (s->kind == EK_SOURCE_FP8)
        return made_names[EK_MADE_FP8];
    return made_names[s->part[EK_SOURCE_ZERO] ? EK_MADE_ZERO : EK_MADE_SYM];
}

static const struct {
    const char *gguf, *hf;
    enum ek_calibration_input input;
} matrices[] = {
    {"attn_q.weight", "self_attn.q_proj.weight", EK_CALIBRATION_QKV},
    {"attn_k.weight", "self_attn.k_proj.weight", EK_CALIBRATION_QKV},
    {"attn_v.weight", "self_attn.v_proj.weight", EK_CALIBRATION_QKV},
    {"attn_output.weight", "self_attn.o_proj.weight", EK_CALIBRATION_O},
    {"ffn_gate.weight", "mlp.gate_proj.weight", EK_CALIBRATION_GLU},
    {"ffn_up.weight", "mlp.up_proj.weight", EK_CALIBRATION_GLU},
    {"ffn_down.weight", "mlp.down_proj.weight", EK_CALIBRATION_DOWN},
};
#define N_MATRICES (sizeof matrices / sizeof matrices[0])

/* Where a folder keeps its decoder: a vision tower has layers too. */
static const char *const decoders[] = {"model.language_model.", "language_model.model.",
                                       "model.", ""};
#define N_DECODERS (sizeof decoders / sizeof decoders[0])

static bool skip_word(const char **s, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(*s, word, n) != 0)
        return false;
    *s += n;
    return true;
}

static void find_role(struct ek_quantize_item *it, const struct ek_quantize *job)
{
    bool is_gguf = job->m->gguf != NULL;
    const char *s = it->name;
    it->role = EK_ROLE_OTHER;
    if (it->src.rows < 1 || it->src.cols < 1 ||
        (it->src.kind == EK_SOURCE_PLAIN && it->src.part[0]->n_dims != 2))
        return;
    if (!strcmp(s, is_gguf ? "output.weight" : "lm_head.weight") ||
        (!is_gguf && !strcmp(s, "language_model.lm_head.weight")))
        it->role = EK_ROLE_HEAD;
    for (size_t i = 0; !is_gguf && i < N_DECODERS; i++) {
        if (skip_word(&s, decoders[i]))
            break;
    }
    if (!strcmp(s, is_gguf ? "token_embd.weight" : "embed_tokens.weight"))
        it->role = EK_ROLE_EMBED;
    if (!skip_word(&s, is_gguf ? "blk." : "layers."))
        return;
    char *end;
    long layer = strtol(s, &end, 10);
    if (end == s || *end != '.' || layer < 0 || layer >= job->p->n_layers)
        return;
    for (size_t i = 0; i < N_MATRICES; i++) {
        if (!strcmp(end + 1, is_gguf ? matrices[i].gguf : matrices[i].hf)) {
            it->role = EK_ROLE_MATRIX;
            it->layer = (int32_t)layer;
            it->input = matrices[i].input;
        }
    }
}

static bool is_plain_of(const struct ek_source *s, enum ek_dtype t)
{
    return s->kind == EK_SOURCE_PLAIN && s->part[EK_SOURCE_CODES]->dtype == t;
}

/* 16 bits: what there is if it is that already. */
static enum ek_made wide(const struct ek_source *s)
{
    return is_plain_of(s, EK_DTYPE_BF16) || is_plain_of(s, EK_DTYPE_F16) ? EK_MADE_COPY
                                                                         : EK_MADE_BF16;
}

/* Whether the source is in this format already, part for part. */
static bool is_made(const struct ek_source *s, enum ek_made made)
{
    switch (made) {
    case EK_MADE_BF16:
        return is_plain_of(s, EK_DTYPE_BF16);
    case EK_MADE_Q8_0:
        return is_plain_of(s, EK_DTYPE_Q8_0);
    case EK_MADE_Q4_0:
        return is_plain_of(s, EK_DTYPE_Q4_0);
    case EK_MADE_Q4_1:
        return is_plain_of(s, EK_DTYPE_Q4_1);
    case EK_MADE_FP8: {
        const struct ek_tensor *scale = s->part[EK_SOURCE_SCALE];
        const char *name = scale ? strrchr(scale->name, '_') : NULL;
        return s->kind == EK_SOURCE_FP8 && s->row_group == 128 && name &&
               !strcmp(name, "_inv");
    }
    case EK_MADE_SYM:
    case EK_MADE_ZERO:
        return s->kind == EK_SOURCE_INT4 && s->col_group == 32 &&
               (s->part[EK_SOURCE_ZERO] != NULL) == (made == EK_MADE_ZERO);
    case EK_MADE_COPY:
    case EK_MADE_COUNT:
        break;
    }
    return true;
}

static bool needs_groups(enum ek_made made)
{
    return made == EK_MADE_Q8_0 || made == EK_MADE_Q4_0 || made == EK_MADE_Q4_1 ||
           made == EK_MADE_SYM || made == EK_MADE_ZERO;
}

static enum ek_made int4_of(const struct ek_quantize *job)
{
    if (job->m->gguf)
        return job->is_symmetric ? EK_MADE_Q4_0 : EK_MADE_Q4_1;
    return job->is_symmetric ? EK_MADE_SYM : EK_MADE_ZERO;
}

/* The embedding or the head. */
static enum ek_made made_wide(const struct ek_quantize *job,
                              const struct ek_quantize_item *it)
{
    const struct ek_source *s = &it->src;
    switch (it->role == EK_ROLE_EMBED ? job->embed : job->head) {
    case EK_QUANTIZE_KEEP:
        return s->kind == EK_SOURCE_PLAIN || s->kind == EK_SOURCE_SCALED ? EK_MADE_COPY
                                                                         : EK_MADE_BF16;
    case EK_QUANTIZE_WIDE_INT4:
        return int4_of(job);
    case EK_QUANTIZE_WIDE_INT8:
        return EK_MADE_Q8_0;
    case EK_QUANTIZE_WIDE_BF16:
        return EK_MADE_BF16;
    case EK_QUANTIZE_AUTO:
        break;
    }
    if (job->to == EK_QUANTIZE_BF16)
        return EK_MADE_BF16;
    if (!job->m->gguf || job->to != EK_QUANTIZE_INT4)
        return wide(s);
    bool is_block = s->kind == EK_SOURCE_PLAIN &&
                    ek_dtype_block(s->part[EK_SOURCE_CODES]->dtype) > 1;
    return is_block ? EK_MADE_COPY : EK_MADE_Q8_0;
}

static void choose(struct ek_quantize_item *it, const struct ek_quantize *job)
{
    it->made = EK_MADE_COPY;
    if (it->role == EK_ROLE_OTHER)
        return;
    if (it->role == EK_ROLE_EMBED || it->role == EK_ROLE_HEAD) {
        bool is_embed = it->role == EK_ROLE_EMBED;
        it->made = made_wide(job, it);
        if ((is_embed ? job->embed : job->head) == EK_QUANTIZE_AUTO)
            it->why = is_embed ? "the embedding" : "the head";
    } else if (job->to == EK_QUANTIZE_INT4) {
        it->made = int4_of(job);
    } else {
        it->made = job->to == EK_QUANTIZE_FP8 ? EK_MADE_FP8 : EK_MADE_BF16;
    }
    if (needs_groups(it->made) && it->src.cols % 32) {
        it->made = wide(&it->src);
        it->why = "its rows are no multiple of 32";
    }
    if (is_made(&it->src, it->made))
        it->made = EK_MADE_COPY;
}

static char *join(struct ek_quantize_plan *p, const char *a, const char *b)
{
    size_t size = strlen(a) + strlen(b) + 1;
    char *s = ek_arena_alloc(p->arena, size);
    if (s)
        snprintf(s, size, "%s%s", a, b);
    return s;
}

static int add_part(struct ek_quantize_plan *p, struct ek_quantize_item *it,
                    enum ek_made_part which, const char *suffix, enum ek_dtype dtype,
                    int64_t rows, int64_t cols)
{
    struct ek_tensor *t = &it->part[which];
    *t = (struct ek_tensor){.name = join(p, it->name, suffix),
                            .dtype = dtype,
                            .n_dims = cols ? 2 : 1,
                            .shape = {rows, cols}};
    if (!t->name)
        return EK_ENOMEM;
    return ek_tensor_bytes(&t->bytes, dtype, t->shape, t->n_dims);
}

static int add_packed(struct ek_quantize_plan *p, struct ek_quantize_item *it)
{
    int64_t N = it->src.rows, K = it->src.cols;
    int64_t *shape = ek_arena_alloc(p->arena, 2 * sizeof *shape);
    if (!shape)
        return EK_ENOMEM;
    shape[0] = N;
    shape[1] = K;
    int rc = add_part(p, it, EK_PART_CODES, "_packed", EK_DTYPE_I32, N, K / 8);
    if (!rc && it->made == EK_MADE_ZERO)
        rc = add_part(p, it, EK_PART_ZERO, "_zero_point", EK_DTYPE_I32, (N + 7) / 8,
                      K / 32);
    if (!rc)
        rc = add_part(p, it, EK_PART_SCALE, "_scale", EK_DTYPE_BF16, N, K / 32);
    if (!rc)
        rc = add_part(p, it, EK_PART_SHAPE, "_shape", EK_DTYPE_I64, 2, 0);
    it->part[EK_PART_SHAPE].data = shape;
    return rc;
}

static int add_parts(struct ek_quantize_plan *p, struct ek_quantize_item *it)
{
    static const enum ek_dtype types[EK_MADE_COUNT] = {[EK_MADE_BF16] = EK_DTYPE_BF16,
                                                       [EK_MADE_Q8_0] = EK_DTYPE_Q8_0,
                                                       [EK_MADE_Q4_0] = EK_DTYPE_Q4_0,
                                                       [EK_MADE_Q4_1] = EK_DTYPE_Q4_1,
                                                       [EK_MADE_FP8] = EK_DTYPE_E4M3};
    static const enum ek_made_part places[EK_SOURCE_PARTS] = {
        [EK_SOURCE_CODES] = EK_PART_CODES,
        [EK_SOURCE_SCALE] = EK_PART_SCALE,
        [EK_SOURCE_ZERO] = EK_PART_ZERO,
        [EK_SOURCE_SHAPE] = EK_PART_SHAPE};
    int64_t N = it->src.rows, K = it->src.cols;
    if (it->made == EK_MADE_SYM || it->made == EK_MADE_ZERO)
        return add_packed(p, it);
    if (it->made == EK_MADE_COPY) {
        for (int i = 0; i < EK_SOURCE_PARTS; i++) {
            if (it->src.part[i])
                it->part[places[i]] = *it->src.part[i];
        }
        return 0;
    }
    int rc = add_part(p, it, EK_PART_CODES, "", types[it->made], N, K);
    if (!rc && it->made == EK_MADE_FP8)
        rc = add_part(p, it, EK_PART_SCALE, "_scale_inv", EK_DTYPE_F32, (N + 127) / 128,
                      (K + 127) / 128);
    return rc;
}

/* t's matrix as an item; *is_part: t is part of one, and not the part that stands for
 * it. */
static int add_item(struct ek_quantize_plan *p, const struct ek_tensor *t,
                    unsigned char *is_used, struct ek_err *err)
{
    const struct ek_tensors *all = p->job->m->tensors;
    struct ek_quantize_item *it = &p->items[p->n_items];
    size_t n = strlen(t->name), cut = strlen("_packed");
    bool is_packed =
        !p->job->m->gguf && n > cut && !strcmp(t->name + n - cut, "_packed");
    it->name = ek_arena_strndup(p->arena, t->name, is_packed ? n - cut : n);
    if (!it->name)
        return ek_err_set(err, EK_ENOMEM, "out of memory");
    int rc = ek_source_find(&it->src, p->job->m, it->name, err);
    if (rc)
        return rc;
    for (int i = 0; i < EK_SOURCE_PARTS; i++) {
        if (it->src.part[i])
            is_used[it->src.part[i] - all->items] = 1;
    }
    /* One item a tensor at most, or items would run out. */
    if (!is_used[t - all->items])
        return ek_err_set(err, EK_EFORMAT,
                          "%s: tensors '%s' and '%s' are both there: expected one of "
                          "them",
                          p->job->m->path, it->name, t->name);
    find_role(it, p->job);
    choose(it, p->job);
    rc = add_parts(p, it);
    if (rc)
        return ek_err_set(err, rc, "%s: tensor '%s': %s", p->job->m->path, t->name,
                          ek_status_text(rc));
    p->n_items++;
    return 0;
}

/* Scales, zeros and shapes belong to the matrix they stand beside, wherever that is in
 * the file: matrices are taken first. */
static int find_items(struct ek_quantize_plan *p, unsigned char *is_used,
                      struct ek_err *err)
{
    const struct ek_tensors *all = p->job->m->tensors;
    int rc = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < all->n && !rc; i++) {
            const struct ek_tensor *t = &all->items[i];
            const char *end = strrchr(t->name, '.');
            bool is_matrix = p->job->m->gguf ? !end || strcmp(end, ".scale") != 0
                                             : t->dtype == EK_DTYPE_E4M3 ||
                                                   strstr(t->name, "_packed");
            if (!is_used[i] && (pass || is_matrix))
                rc = add_item(p, t, is_used, err);
        }
    }
    return rc;
}

static size_t item_bytes(const struct ek_quantize_item *it, bool is_first)
{
    size_t n = 0;
    for (int i = 0; i < EK_MADE_PARTS; i++) {
        bool is_i64 = it->part[i].dtype == EK_DTYPE_I64;
        if (it->part[i].name && is_i64 == is_first)
            n += it->part[i].bytes;
    }
    return n;
}

/* The tensors of it that are i64, or the others, behind what is there. */
static void place_parts(struct ek_quantize_plan *p, const struct ek_quantize_item *it,
                        bool is_first)
{
    for (int i = 0; i < EK_MADE_PARTS; i++) {
        bool is_i64 = it->part[i].dtype == EK_DTYPE_I64;
        if (!it->part[i].name || is_i64 != is_first)
            continue;
        p->tensors[p->n_tensors++] = it->part[i];
        p->total_out += (int64_t)it->part[i].bytes;
    }
}

static void place_all(struct ek_quantize_plan *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_items; i++) {
        place_parts(p, &p->items[i], true);
        p->total_in += (int64_t)ek_source_bytes(&p->items[i].src);
    }
    p->n_first = p->n_tensors;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < p->n_items; i++) {
            bool is_odd = !p->job->m->gguf && item_bytes(&p->items[i], false) % 8;
            if (is_odd == pass) {
                p->order[n++] = i;
                place_parts(p, &p->items[i], false);
            }
        }
    }
}

int ek_quantize_plan(struct ek_quantize_plan *p, struct ek_err *err)
{
    size_t n = p->job->m->tensors->n;
    unsigned char *is_used = ek_calloc(n, 1);
    p->items = ek_arena_calloc(p->arena, n, sizeof *p->items);
    p->order = ek_arena_calloc(p->arena, n, sizeof *p->order);
    p->tensors = ek_arena_calloc(p->arena, n * EK_MADE_PARTS, sizeof *p->tensors);
    int rc = is_used && p->items && p->order && p->tensors ? 0 : EK_ENOMEM;
    if (rc)
        ek_err_set(err, rc, "%s: no memory for the list of tensors", p->job->m->path);
    if (!rc)
        rc = find_items(p, is_used, err);
    if (!rc)
        place_all(p);
    ek_free(is_used);
    return rc;
}
