/* quantize.h - a model file rewritten with its matrices in a smaller format.
 *
 * The container stays: a GGUF file becomes a GGUF file, a Hugging Face folder a folder.
 *
 *   to     in GGUF             in a folder
 *   INT4   Q4_1, or Q4_0 when  compressed-tensors pack-quantized: groups of 32 with
 *          symmetric           zero points, or symmetric; bf16 scales
 *   FP8    (no such type)      e4m3, weight_scale_inv (f32) a block of 128x128
 *   BF16   BF16                BF16
 *
 * Matrices of blocks change; vectors, keys and everything else is carried over byte for
 * byte. The embedding and the head keep a wider type unless told otherwise: Q8_0 in
 * GGUF, BF16 in a folder (no loader knows another there). The rows of the one are
 * looked up, the other's errors go into the logits undiluted, and together they are a
 * small part of any model but the smallest.
 *
 * Memory: one slab of rows and one matrix' scales; the input is mapped and the output
 * written as it is made, so a file may be larger than memory.
 */
#ifndef EVENKEEL_LM_QUANTIZE_H
#define EVENKEEL_LM_QUANTIZE_H

#include "base/arena.h"
#include "lm/calibrate.h"

enum ek_quantize_to { EK_QUANTIZE_INT4, EK_QUANTIZE_FP8, EK_QUANTIZE_BF16 };

/* For the embedding and the head. */
enum ek_quantize_wide {
    EK_QUANTIZE_AUTO, /* as above; a block type narrower than Q8_0 is kept */
    EK_QUANTIZE_KEEP,
    EK_QUANTIZE_WIDE_INT4, /* GGUF alone, as is INT8 */
    EK_QUANTIZE_WIDE_INT8,
    EK_QUANTIZE_WIDE_BF16,
};

struct ek_quantize {
    const struct ek_modelfile *m;
    const struct ek_lm_params *p; /* m's */
    const char *path;             /* of the output: FILE.gguf, or a folder */
    enum ek_quantize_to to;
    bool is_symmetric;                 /* INT4: without minimum or zero point */
    enum ek_quantize_wide embed, head; /* head: of a model that has its own */
    const struct ek_calibration
        *calibration; /* weighs INT4's errors; NULL: all alike */
    struct ek_team *team;
    bool overwrites; /* an output that is there: replaced when the new one is whole */
    bool (*on_progress)(void *arg, int64_t done_bytes, int64_t total_bytes);
    void *arg; /* on_progress may be NULL; false stops */
};

/* What became of one matrix. */
struct ek_quantize_row {
    const char *name;      /* owned by the report */
    const char *from, *to; /* "bf16", "q4_1", "int4 + zero", ... */
    const char *why;       /* it is not in the format asked for, or NULL */
    int64_t bytes_in, bytes_out;
    double error, norm; /* sum (x - w)^2 and sum x^2, both 0 when carried over */
    double weighted, weighted_norm; /* the same under the calibration's weights */
};

struct ek_quantize_report {
    struct ek_quantize_row *rows; /* matrices in the file's order, owned by arena */
    size_t n;
    int64_t bytes_in, bytes_out; /* of all tensors */
    struct ek_arena arena;
};

/* Writes job->path and fills *r (release it, also after an error). The output appears
 * whole or not at all. Errors: EK_EINVAL path is the input, is there already, or does
 * not fit the container; EK_EUNSUP a format the container has not; EK_EFORMAT numbers
 * that are not finite; EK_ECANCELED; EK_EIO, EK_EPERM, EK_ENOENT of writing; EK_ENOMEM.
 * The same file with any team. */
int ek_quantize_run(struct ek_quantize_report *r, const struct ek_quantize *job,
                    struct ek_err *err) EK_MUST_USE;
void ek_quantize_report_release(struct ek_quantize_report *r);

/* Relative root mean square error of a row or of all; 0 when nothing was rounded. */
double ek_quantize_rms(double error, double norm);

#endif
