/* int4.h - the 4-bit codes, the scale and the minimum or zero of a group of 32 numbers
 * that cost least.
 *
 *   Q4_0   w = d (q - 8)    d f16, of either sign       GGUF
 *   Q4_1   w = d q + m      d, m f16                    GGUF
 *   SYM    w = d (q - 8)    d bf16, not negative        compressed-tensors, symmetric
 *   ZERO   w = d (q - z)    d bf16, z in [0,15]         compressed-tensors, asymmetric
 *
 * Cost is sum_k v[k] (x[k] - w[k])^2. Scales around those that span the group's range
 * are tried; for each the codes are rounded, the scale (and minimum) that fit these
 * codes best are solved for and rounded as they will be stored, and the codes rounded
 * again to it. The usual writers take the first of these candidates, so the cost is
 * theirs at most, but for rounding.
 */
#ifndef EVENKEEL_NUM_INT4_H
#define EVENKEEL_NUM_INT4_H

#include <stdint.h>

#define EK_INT4_GROUP 32

enum ek_int4_kind { EK_INT4_Q4_0, EK_INT4_Q4_1, EK_INT4_SYM, EK_INT4_ZERO };

struct ek_int4 {
    uint8_t q[EK_INT4_GROUP]; /* 0..15 */
    float d;                  /* exactly as stored: an f16 or a bf16 */
    float m;                  /* Q4_1: likewise; others: -zero * d, as f32 */
    int zero;                 /* code that means 0; Q4_1: not used */
};

/* x: 32 finite numbers; v: 32 weights, finite and not negative, or NULL for all 1 (also
 * meant where all are 0). Returns the cost. Cost: some 30 passes over the group, no
 * allocation. Cannot fail. Threads: any. */
float ek_int4_fit(struct ek_int4 *out, enum ek_int4_kind kind, const float *x,
                  const float *v);

#endif
