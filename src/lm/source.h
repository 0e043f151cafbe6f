/* source.h - one matrix of a model file as numbers, whatever tensors it is kept in.
 *
 *   plain   NAME, of any type of num/quant.h
 *   fp8     NAME (e4m3) and NAME_scale_inv, or compressed-tensors' NAME_scale:
 *           w = code * scale; a scale a block of 128x128, a row, or the whole matrix
 *   scaled  NAME (nvfp4, in GGUF) and NAME with ".scale" for ".weight", one number:
 *           w = element * scale
 *   int4    NAME_packed (i32), NAME_scale, NAME_shape, NAME_zero_point, which is
 *           compressed-tensors' pack-quantized with 4 bits: w = (code - zero) * scale,
 *           zero 8 where the file has none; a scale a row and group of columns, a
 *           multiple of 32, or a row
 *
 * NAME ends in ".weight". Codes of a row lie in its 32-bit words low nibble first;
 * zeros are packed the same way along the rows. Nothing is copied: a source borrows the
 * file. Source: vllm-project/compressed-tensors, deepseek-ai/DeepSeek-V3
 * README_WEIGHTS.md, ggml-org/llama.cpp's conversion.
 */
#ifndef EVENKEEL_LM_SOURCE_H
#define EVENKEEL_LM_SOURCE_H

#include "base/err.h"
#include "data/modelfile.h"

#include <stdbool.h>
#include <stdint.h>

enum ek_source_kind {
    EK_SOURCE_PLAIN,
    EK_SOURCE_FP8,
    EK_SOURCE_INT4,
    EK_SOURCE_SCALED
};

enum ek_source_part {
    EK_SOURCE_CODES, /* plain: the numbers themselves */
    EK_SOURCE_SCALE,
    EK_SOURCE_ZERO,
    EK_SOURCE_SHAPE,
    EK_SOURCE_PARTS
};

struct ek_source {
    enum ek_source_kind kind;
    const struct ek_tensor *part[EK_SOURCE_PARTS]; /* NULL: it has none such */
    int64_t rows, cols;   /* of the matrix; a vector of n is (n, 0) */
    int64_t row_group;    /* rows that share a scale */
    int64_t col_group;    /* columns that do */
    int64_t scale_stride; /* scales a row of groups */
};

/* Largest magnitude of an int4 scale: 16 of it are within f16, where packed weights
 * keep scale and minimum. */
#define EK_SOURCE_SCALE_MAX 4094.0f

/* Of an fp8 or nvfp4 scale, in magnitude: 448 times 6 of it is far from f32's end. */
#define EK_SOURCE_FP8_SCALE_MAX 0x1p64f

/* The matrix or vector `name` of m. Shapes, types and sizes are checked against each
 * other. Errors: EK_ENOENT m has none, without a sentence; EK_EFORMAT parts that
 * contradict each other; EK_EUNSUP a type, or groups that are no multiple of 32. */
int ek_source_find(struct ek_source *s, const struct ek_modelfile *m, const char *name,
                   struct ek_err *err) EK_MUST_USE;

/* Bytes of all parts in the file. */
size_t ek_source_bytes(const struct ek_source *s);

/* Whether rows [r0,r1) are numbers: every plain element and block scale, every e4m3
 * code and every scale of theirs finite and within the two bounds above.
 * Otherwise *which is the part and *at the element in it. */
bool ek_source_check(const struct ek_source *s, int64_t r0, int64_t r1,
                     const struct ek_tensor **which, size_t *at);

/* out (r1-r0, cols) = rows [r0,r1) as f32. */
void ek_source_read(float *out, const struct ek_source *s, int64_t r0, int64_t r1);

/* fp8: whether every scale covers whole blocks of 128x128, so that codes and scales
 * move into a packed E4M3 weight unchanged. */
bool ek_source_has_blocks(const struct ek_source *s);

/* The scale of element (r,c). */
float ek_source_scale(const struct ek_source *s, int64_t r, int64_t c);

/* int4 rows [r0,r1) as GGUF blocks. q4_1, 20 bytes for 32 columns: the codes, d = scale
 * and m = -zero * scale, both rounded to f16; q4_0, 18 bytes: the same without m, for
 * what has no zeros. A bf16 scale of 2^-17 or more is exact there,
 * and so is m without zeros in the file; with them m is off by 2^-11 of itself at most.
 * */
void ek_source_q4(void *out, enum ek_dtype t, const struct ek_source *s, int64_t r0,
                  int64_t r1);

#endif
