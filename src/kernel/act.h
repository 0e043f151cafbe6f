/* act.h - elementwise operations of a decoder block.
 *
 *   glu   y[i] = f(gate[i]) * up[i]
 *           silu: f(x) = x / (1 + exp(-x))
 *           gelu (tanh form): f(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
 *   add   y[i] += x[i]                                    (residual, bias)
 * y may alias any input. Accuracy of exp and tanh: 2 ulp of f32 for ref,
 * 4e-7 relative for the vector forms; tests/kernel/test_act.c.
 * Source: Shazeer 2020, "GLU Variants Improve Transformer".
 */
#ifndef EVENKEEL_KERNEL_ACT_H
#define EVENKEEL_KERNEL_ACT_H

#include <stdint.h>

enum ek_glu_kind { EK_GLU_SILU, EK_GLU_GELU_TANH };

typedef void ek_glu_fn(float *y, const float *gate, const float *up, int64_t n,
                       enum ek_glu_kind kind);
typedef void ek_add_fn(float *y, const float *x, int64_t n);

#endif
