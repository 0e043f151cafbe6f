/* weight.h - matrices repacked once at load for the matmul kernels.
 *
 * A weight is (N,K) row-major in a file; here N is cut into panels of EK_PANEL rows and
 * K into groups of EK_GROUP columns, both zero-padded, so that a kernel streams a panel
 * front to back. The layout is one for all ISAs: any variant reads any packed weight.
 * Layouts are drawn in kernel/weight.c.
 *
 *   format  a group of 32 columns of one row holds            from files
 *   F32     32 f32                                            exact from all
 *   BF16    32 bf16 (paired along K for the dot product)      exact from bf16
 *   E4M3    32 e4m3, f32 scale a 128x128 block                exact from FP8 files
 *   I8      32 i8, f16 scale                                  exact from q8_0
 *   I6      32 codes of 6 bits, i8 scale a 16, f32 a 256      exact from q6_k, q3_k
 *   I4      32 nibbles, f16 scale and f16 minimum             exact from q4_0, q4_1
 *   I4S     32 nibbles, f16 scale; symmetric, d (q - 8)       exact from q4_0, tq*
 */
#ifndef EVENKEEL_KERNEL_WEIGHT_H
#define EVENKEEL_KERNEL_WEIGHT_H

#include "num/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EK_PANEL 16 /* rows */
#define EK_GROUP 32 /* columns */

enum ek_weight_format {
    EK_WEIGHT_F32,
    EK_WEIGHT_BF16,
    EK_WEIGHT_E4M3,
    EK_WEIGHT_I8,
    EK_WEIGHT_I6,
    EK_WEIGHT_I4,
    EK_WEIGHT_I4S,
    EK_WEIGHT_COUNT
};

struct ek_weight {
    enum ek_weight_format format;
    int64_t N, K; /* output rows, input columns, without padding */
    void *data;   /* ek_weight_bytes bytes, 64-byte aligned, borrowed */
};

/* "f32", "bf16", "fp8", "int8", "int6", "int4", "int4s". */
const char *ek_weight_name(enum ek_weight_format f);

/* Bytes of the packed matrix, padding included; 0 on overflow. */
size_t ek_weight_bytes(enum ek_weight_format f, int64_t N, int64_t K);

/* The format that keeps `t` with the least loss and no waste: q4_0, tq1_0, tq2_0 -> I4S;
 * q4_1, q4_k -> I4; q3_k, q6_k -> I6; q2_k, q5_*, q8_0, iq4_*, mxfp4, nvfp4 -> I8; e4m3
 * -> E4M3; f16, bf16, f32 -> BF16. */
enum ek_weight_format ek_weight_keep(enum ek_dtype t);

/* Packs rows [n0,n1) of the (N,K) matrix whose row n0 begins at `rows` in format t
 * (row_bytes apart) into w->data. n0 a multiple of EK_PANEL; n1 too, or N. Threads may
 * pack disjoint ranges at once (E4M3: ranges of whole 128 rows).
 *
 *   scratch  128*K floats; NULL where codes move unchanged: q4_0 to I4S; q4_0, q4_1,
 *            q4_k to I4; q3_k, q6_k to I6; q8_0 to I8, bf16 to BF16, e4m3 to E4M3
 * Cost: O((n1-n0) K), no allocation. Cannot fail for a type ek_quant_can_read. */
void ek_weight_pack(struct ek_weight *w, int64_t n0, int64_t n1, enum ek_dtype t,
                    const void *rows, size_t row_bytes, float *scratch);

/* The f32 scales of an E4M3 weight, [ceil(N/128)][ceil(K/128)] in w->data. Packing
 * e4m3 rows sets them to 1; the loader of a checkpoint writes its own
 * (weight_scale_inv) over them afterwards. Packing anything else sets them to the
 * block's amax/448. */
float *ek_weight_block_scales(const struct ek_weight *w);

/* out[K] = row n of w as f32: what matmul multiplies by. For embeddings and tests. */
void ek_weight_row(float *out, const struct ek_weight *w, int64_t n);

#endif
