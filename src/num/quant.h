/* quant.h - any format to f32 and back, row by row.
 *
 * Every format of num/dtype.h that holds real numbers converts to f32. The plain ones,
 * Q4_0, Q4_1 and Q8_0 convert from f32. Scalar, portable: the reference that kernels
 * are tested against.
 */
#ifndef EVENKEEL_NUM_QUANT_H
#define EVENKEEL_NUM_QUANT_H

#include "num/dtype.h"

#include <stdbool.h>

bool ek_quant_can_read(enum ek_dtype t);  /* ek_quant_to_f32 knows it */
bool ek_quant_can_write(enum ek_dtype t); /* ek_quant_from_f32 knows it */

/* out[n] = in as f32; n a multiple of the block; `in` needs no alignment.
 * Cannot fail for a type ek_quant_can_read. */
void ek_quant_to_f32(float *out, enum ek_dtype t, const void *in, size_t n);

/* Rounds to nearest even; e4m3 and e5m2 saturate; block scales as spec'd in quant.c. */
void ek_quant_from_f32(void *out, enum ek_dtype t, const float *in, size_t n);

/* Whether every scale in `in` (d, m of block formats) and every plain element is
 * finite; *at gets the index of the first element whose block is not. */
bool ek_quant_is_finite(enum ek_dtype t, const void *in, size_t n, size_t *at);

#endif
