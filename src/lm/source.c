/* source.c - finds the tensors a matrix is kept in, checks that they fit together, and
 * turns rows of them into f32 or q4_1. */
#include "lm/source.h"

#include "num/float.h"
#include "num/quant.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define BLOCK 128 /* rows and columns of an fp8 block */
#define GROUP 32  /* columns of a q4_1 block */

static int64_t ceil_div(int64_t n, int64_t d)
{
    return (n + d - 1) / d;
}

static bool is_real(const struct ek_tensor *t)
{
    return ek_quant_can_read(t->dtype) && ek_dtype_block(t->dtype) == 1;
}

static bool has_shape(const struct ek_tensor *t, int64_t rows, int64_t cols)
{
    return t->n_dims == 2 && t->shape[0] == rows && t->shape[1] == cols;
}

static float element(const struct ek_tensor *t, int64_t i)
{
    float x;
    const unsigned char *p = t->data;
    ek_quant_to_f32(&x, t->dtype, p + (size_t)i * ek_dtype_block_bytes(t->dtype), 1);
    return x;
}

static const struct ek_tensor *sibling(const struct ek_modelfile *m, const char *name,
                                       const char *suffix)
{
    char full[256];
    int n = snprintf(full, sizeof full, "%s%s", name, suffix);
    return n > 0 && (size_t)n < sizeof full ? ek_modelfile_tensor(m, full) : NULL;
}

static int wrong_shape(const struct ek_modelfile *m, const struct ek_tensor *t,
                       const char *expected, struct ek_err *err)
{
    char got[96];
    return ek_err_set(err, EK_EFORMAT, "%s: tensor '%s': shape %s of %s: expected %s",
                      m->path, t->name, ek_tensor_shape_text(got, t),
                      ek_dtype_name(t->dtype), expected);
}

/* Which rows and columns a scale covers, by the shape of t. */
static bool group_scales(struct ek_source *s, const struct ek_tensor *t)
{
    int64_t n = ek_tensor_elems(t), blocks = ceil_div(s->cols, BLOCK);
    s->scale_stride = 1;
    s->col_group = s->cols;
    if (n == 1) {
        s->row_group = s->rows;
    } else if (has_shape(t, s->rows, 1) || (t->n_dims == 1 && n == s->rows)) {
        s->row_group = 1;
    } else if (has_shape(t, ceil_div(s->rows, BLOCK), blocks)) {
        s->row_group = s->col_group = BLOCK;
        s->scale_stride = blocks;
    } else {
        return false;
    }
    return true;
}

static bool is_quantized(const struct ek_modelfile *m)
{
    const json_t *text = json_object_get(m->config, "text_config");
    return json_object_get(m->config, "quantization_config") ||
           json_object_get(text, "quantization_config");
}

static int find_fp8(struct ek_source *s, const struct ek_modelfile *m, const char *name,
                    struct ek_err *err)
{
    char expected[128];
    const struct ek_tensor *t = sibling(m, name, "_scale_inv");
    if (!t)
        t = sibling(m, name, "_scale");
    if (!t && !is_quantized(m))
        return 0; /* plain e4m3: its scale is 1 */
    if (!t)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: tensor '%s' is e4m3 without a scale: expected '%s_"
                          "scale_inv' or '%s_scale' beside it",
                          m->path, name, name, name);
    s->kind = EK_SOURCE_FP8;
    s->part[EK_SOURCE_SCALE] = t;
    if (is_real(t) && group_scales(s, t))
        return 0;
    snprintf(expected, sizeof expected,
             "real numbers, one for each block of 128x128 (%lld, %lld), row or matrix",
             (long long)ceil_div(s->rows, BLOCK), (long long)ceil_div(s->cols, BLOCK));
    return wrong_shape(m, t, expected, err);
}

/* llama.cpp's converter keeps what a checkpoint multiplies a whole nvfp4 matrix by in a
 * tensor of its own, NAME with ".scale" for ".weight". */
static int find_scale(struct ek_source *s, const struct ek_modelfile *m,
                      const char *name, struct ek_err *err)
{
    static const char end[] = ".weight";
    size_t n = strlen(name), cut = sizeof end - 1;
    char stem[256];
    if (n < cut || n - cut >= sizeof stem || strcmp(name + n - cut, end) != 0 ||
        s->cols % (int64_t)ek_dtype_block(EK_DTYPE_NVFP4))
        return 0;
    memcpy(stem, name, n - cut);
    stem[n - cut] = 0;
    const struct ek_tensor *t = sibling(m, stem, ".scale");
    if (!t)
        return 0; /* it is 1 */
    if (!is_real(t) || ek_tensor_elems(t) != 1)
        return wrong_shape(m, t, "one real number, by which the matrix is multiplied",
                           err);
    s->kind = EK_SOURCE_SCALED;
    s->part[EK_SOURCE_SCALE] = t;
    s->row_group = s->rows;
    s->col_group = s->cols;
    s->scale_stride = 1;
    return 0;
}

static int find_plain(struct ek_source *s, const struct ek_modelfile *m,
                      const char *name, struct ek_err *err)
{
    const struct ek_tensor *t = s->part[EK_SOURCE_CODES];
    s->rows = t->n_dims > 0 ? t->shape[0] : 1;
    s->cols = t->n_dims > 1 ? t->shape[1] : 0;
    if (t->n_dims != 2 || s->rows < 1 || s->cols < 1)
        return 0;
    if (m->gguf)
        return t->dtype == EK_DTYPE_NVFP4 ? find_scale(s, m, name, err) : 0;
    return t->dtype == EK_DTYPE_E4M3 ? find_fp8(s, m, name, err) : 0;
}

/* NAME_shape's two numbers. */
static int read_shape(struct ek_source *s, const struct ek_modelfile *m,
                      struct ek_err *err)
{
    const struct ek_tensor *t = s->part[EK_SOURCE_SHAPE];
    int64_t v[2] = {0};
    if (t->n_dims != 1 || t->shape[0] != 2 ||
        (t->dtype != EK_DTYPE_I64 && t->dtype != EK_DTYPE_I32))
        return wrong_shape(m, t, "(2) of i64: rows and columns", err);
    for (int i = 0; i < 2; i++) {
        int32_t narrow;
        const unsigned char *p = t->data;
        if (t->dtype == EK_DTYPE_I64) {
            memcpy(&v[i], p + 8 * i, 8);
        } else {
            memcpy(&narrow, p + 4 * i, 4);
            v[i] = narrow;
        }
        if (v[i] < 1 || v[i] > (int64_t)1 << 40)
            return ek_err_set(err, EK_EFORMAT,
                              "%s: tensor '%s': element %d is %lld: expected 1 to 2^40",
                              m->path, t->name, i, (long long)v[i]);
    }
    s->rows = v[0];
    s->cols = v[1];
    return 0;
}

/* Codes, scales and zeros against rows and cols. */
static int check_packed(struct ek_source *s, const struct ek_modelfile *m,
                        struct ek_err *err)
{
    const struct ek_tensor *codes = s->part[EK_SOURCE_CODES];
    const struct ek_tensor *scale = s->part[EK_SOURCE_SCALE];
    const struct ek_tensor *zero = s->part[EK_SOURCE_ZERO];
    char expected[128];
    int64_t n = scale->n_dims == 2 ? scale->shape[1] : 0;
    if (s->cols % GROUP)
        return ek_err_set(err, EK_EUNSUP,
                          "%s: tensor '%s': rows of %lld codes of 4 bits: expected a "
                          "multiple of 32",
                          m->path, codes->name, (long long)s->cols);
    snprintf(expected, sizeof expected, "(%lld, %lld) of i32: 8 codes of 4 bits a word",
             (long long)s->rows, (long long)s->cols / 8);
    if (codes->dtype != EK_DTYPE_I32 || !has_shape(codes, s->rows, s->cols / 8))
        return wrong_shape(m, codes, expected, err);
    snprintf(expected, sizeof expected, "(%lld, groups) of real numbers",
             (long long)s->rows);
    if (!is_real(scale) || n < 1 || n > s->cols || s->cols % n ||
        !has_shape(scale, s->rows, n))
        return wrong_shape(m, scale, expected, err);
    s->row_group = 1;
    s->col_group = s->cols / n;
    s->scale_stride = n;
    if (s->col_group % GROUP)
        return ek_err_set(err, EK_EUNSUP,
                          "%s: tensor '%s': groups of %lld columns are not supported: "
                          "expected a multiple of 32",
                          m->path, scale->name, (long long)s->col_group);
    snprintf(expected, sizeof expected, "(%lld, %lld) of i32: 8 zeros of 4 bits a word",
             (long long)ceil_div(s->rows, 8), (long long)n);
    if (zero &&
        (zero->dtype != EK_DTYPE_I32 || !has_shape(zero, ceil_div(s->rows, 8), n)))
        return wrong_shape(m, zero, expected, err);
    return 0;
}

static int find_int4(struct ek_source *s, const struct ek_modelfile *m,
                     const char *name, struct ek_err *err)
{
    s->kind = EK_SOURCE_INT4;
    s->part[EK_SOURCE_SCALE] = sibling(m, name, "_scale");
    s->part[EK_SOURCE_SHAPE] = sibling(m, name, "_shape");
    s->part[EK_SOURCE_ZERO] = sibling(m, name, "_zero_point");
    for (int i = EK_SOURCE_SCALE; i < EK_SOURCE_PARTS; i++) {
        static const char *const suffix[] = {"", "_scale", "", "_shape"};
        if (!s->part[i] && i != EK_SOURCE_ZERO)
            return ek_err_set(err, EK_EFORMAT,
                              "%s: tensor '%s_packed': expected '%s%s' beside it",
                              m->path, name, name, suffix[i]);
    }
    if (sibling(m, name, "_g_idx"))
        return ek_err_set(err, EK_EUNSUP,
                          "%s: tensor '%s_g_idx': columns in another order than their "
                          "groups are not supported",
                          m->path, name);
    int rc = read_shape(s, m, err);
    return rc ? rc : check_packed(s, m, err);
}

int ek_source_find(struct ek_source *s, const struct ek_modelfile *m, const char *name,
                   struct ek_err *err)
{
    struct ek_source found = {.kind = EK_SOURCE_PLAIN};
    int rc;
    found.part[EK_SOURCE_CODES] = ek_modelfile_tensor(m, name);
    if (found.part[EK_SOURCE_CODES]) {
        rc = find_plain(&found, m, name, err);
    } else {
        found.part[EK_SOURCE_CODES] = m->gguf ? NULL : sibling(m, name, "_packed");
        rc = found.part[EK_SOURCE_CODES] ? find_int4(&found, m, name, err) : EK_ENOENT;
    }
    if (!rc)
        *s = found;
    return rc;
}

size_t ek_source_bytes(const struct ek_source *s)
{
    size_t total = 0;
    for (int i = 0; i < EK_SOURCE_PARTS; i++)
        total += s->part[i] ? s->part[i]->bytes : 0;
    return total;
}

float ek_source_scale(const struct ek_source *s, int64_t r, int64_t c)
{
    return element(s->part[EK_SOURCE_SCALE],
                   r / s->row_group * s->scale_stride + c / s->col_group);
}

/* The codes of row r: bytes of the plain type, or of packed nibbles. */
static const unsigned char *row_of(const struct ek_source *s, int64_t r)
{
    const struct ek_tensor *t = s->part[EK_SOURCE_CODES];
    return (const unsigned char *)t->data + (size_t)r * (t->bytes / (size_t)s->rows);
}

static bool check_scales(const struct ek_source *s, int64_t r0, int64_t r1,
                         const struct ek_tensor **which, size_t *at)
{
    const struct ek_tensor *t = s->part[EK_SOURCE_SCALE];
    float most =
        s->kind == EK_SOURCE_INT4 ? EK_SOURCE_SCALE_MAX : EK_SOURCE_FP8_SCALE_MAX;
    int64_t end = ((r1 - 1) / s->row_group + 1) * s->scale_stride;
    for (int64_t i = r0 / s->row_group * s->scale_stride; i < end; i++) {
        float x = element(t, i);
        if (!(fabsf(x) <= most)) {
            *which = t;
            *at = (size_t)i;
            return false;
        }
    }
    return true;
}

bool ek_source_check(const struct ek_source *s, int64_t r0, int64_t r1,
                     const struct ek_tensor **which, size_t *at)
{
    const struct ek_tensor *codes = s->part[EK_SOURCE_CODES];
    size_t width = (size_t)(s->cols ? s->cols : 1);
    if (s->kind != EK_SOURCE_INT4 &&
        !ek_quant_is_finite(codes->dtype, row_of(s, r0), (size_t)(r1 - r0) * width,
                            at)) {
        *which = codes;
        *at += (size_t)r0 * width;
        return false;
    }
    return s->kind == EK_SOURCE_PLAIN || check_scales(s, r0, r1, which, at);
}

bool ek_source_has_blocks(const struct ek_source *s)
{
    return s->kind == EK_SOURCE_FP8 && s->row_group != 1;
}

/* The zero point of row r's group, as the code that means 0. */
static int zero_of(const struct ek_source *s, int64_t r, int64_t group)
{
    const struct ek_tensor *t = s->part[EK_SOURCE_ZERO];
    if (!t)
        return 8;
    const unsigned char *word =
        (const unsigned char *)t->data + 4 * (r / 8 * s->scale_stride + group);
    return word[r % 8 / 2] >> 4 * (r % 2) & 15;
}

static void read_int4_row(float *out, const struct ek_source *s, int64_t r)
{
    const unsigned char *codes = row_of(s, r);
    for (int64_t g = 0; g < s->scale_stride; g++) {
        float scale = ek_source_scale(s, r, g * s->col_group);
        int zero = zero_of(s, r, g);
        for (int64_t c = g * s->col_group; c < (g + 1) * s->col_group; c++)
            out[c] = scale * (float)((codes[c / 2] >> 4 * (c % 2) & 15) - zero);
    }
}

static void read_fp8_row(float *out, const struct ek_source *s, int64_t r)
{
    const unsigned char *codes = row_of(s, r);
    for (int64_t c = 0; c < s->cols; c += s->col_group) {
        int64_t end = c + s->col_group < s->cols ? c + s->col_group : s->cols;
        float scale = ek_source_scale(s, r, c);
        for (int64_t i = c; i < end; i++)
            out[i] = scale * ek_e4m3_to_f32(codes[i]);
    }
}

void ek_source_read(float *out, const struct ek_source *s, int64_t r0, int64_t r1)
{
    int64_t width = s->cols ? s->cols : 1;
    if (s->kind == EK_SOURCE_PLAIN || s->kind == EK_SOURCE_SCALED) {
        float scale = s->kind == EK_SOURCE_SCALED ? ek_source_scale(s, r0, 0) : 1.0f;
        ek_quant_to_f32(out, s->part[EK_SOURCE_CODES]->dtype, row_of(s, r0),
                        (size_t)((r1 - r0) * width));
        for (int64_t i = 0; scale != 1.0f && i < (r1 - r0) * width; i++)
            out[i] *= scale;
        return;
    }
    for (int64_t r = r0; r < r1; r++) {
        if (s->kind == EK_SOURCE_FP8)
            read_fp8_row(out + (r - r0) * width, s, r);
        else
            read_int4_row(out + (r - r0) * width, s, r);
    }
}

void ek_source_q4(void *out, enum ek_dtype t, const struct ek_source *s, int64_t r0,
                  int64_t r1)
{
    unsigned char *block = out;
    bool has_min = t == EK_DTYPE_Q4_1;
    assert(s->kind == EK_SOURCE_INT4 && (has_min || !s->part[EK_SOURCE_ZERO]));
    for (int64_t r = r0; r < r1; r++) {
        const unsigned char *codes = row_of(s, r);
        for (int64_t c = 0; c < s->cols; c += GROUP) {
            float scale = ek_source_scale(s, r, c);
            int zero = zero_of(s, r, c / s->col_group);
            uint16_t d = ek_f32_to_f16(scale), m = ek_f32_to_f16(-scale * (float)zero);
            memcpy(block, &d, 2);
            if (has_min)
                memcpy(block + 2, &m, 2);
            block += has_min ? 4 : 2;
            for (int j = 0; j < 16; j++) {
                int low = codes[(c + j) / 2] >> 4 * (j % 2) & 15;
                int high = codes[(c + j + 16) / 2] >> 4 * (j % 2) & 15;
                *block++ = (unsigned char)(low | high << 4);
            }
        }
    }
}
