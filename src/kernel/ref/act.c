/* act.c - elementwise operations in plain C, exp and tanh from libm. */
#include "kernel/ref/ref.h"

#include <math.h>

static float silu(float x)
{
    return x / (1.0f + expf(-x));
}

static float gelu_tanh(float x)
{
    const float c = 0.7978845608f; /* sqrt(2/pi) */
    return 0.5f * x * (1.0f + tanhf(c * (x + 0.044715f * x * x * x)));
}

void ek_ref_glu(float *y, const float *gate, const float *up, int64_t n,
                enum ek_glu_kind kind)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = (kind == EK_GLU_SILU ? silu(gate[i]) : gelu_tanh(gate[i])) * up[i];
}

void ek_ref_add(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}
