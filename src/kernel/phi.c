/* phi.c - the activations, plainly. */
#include "kernel/phi.h"

#include <assert.h>
#include <math.h>

const char *ek_phi_name(enum ek_phi phi)
{
    static const char *const names[] = {
#define X(suffix, name) name,
        EK_PHI_TABLE(X)
#undef X
    };
    assert((unsigned)phi < EK_PHI_COUNT);
    return names[phi];
}

static float gelu(float x, float *grad)
{
    float cdf = 0.5f + 0.5f * erff(x * 0.70710678f);
    *grad = cdf + x * 0.39894228f * expf(-0.5f * x * x);
    return x * cdf;
}

static float gelu_tanh(float x, float *grad)
{
    const float a = 0.79788456f, b = 0.044715f;
    float t = tanhf(a * (x + b * x * x * x));
    *grad = 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * a * (1 + 3 * b * x * x);
    return 0.5f * x * (1 + t);
}

static float gelu_poly(float x, float *grad)
{
    const float c2 = EK_PHI_POLY_C2, c4 = EK_PHI_POLY_C4, c6 = EK_PHI_POLY_C6;
    float z = x * x;
    if (fabsf(x) > EK_PHI_POLY_RANGE)
        return gelu(x, grad);
    *grad = 0.5f + x * (2 * c2 + z * (4 * c4 + z * 6 * c6));
    return 0.5f * x + z * (c2 + z * (c4 + z * c6));
}

static float silu(float x, float *grad)
{
    float s = 1 / (1 + expf(-x));
    *grad = s * (1 + x * (1 - s));
    return x * s;
}

static float hardswish(float x, float *grad)
{
    if (x <= -3) {
        *grad = 0;
        return 0;
    }
    *grad = x >= 3 ? 1 : (2 * x + 3) / 6;
    return x >= 3 ? x : x * (x + 3) / 6;
}

float ek_phi_value(enum ek_phi phi, float x, float *grad)
{
    const float positive = x > 0 ? x : 0;
    switch (phi) {
    case EK_PHI_GELU:
        return gelu(x, grad);
    case EK_PHI_GELU_TANH:
        return gelu_tanh(x, grad);
    case EK_PHI_GELU_POLY:
        return gelu_poly(x, grad);
    case EK_PHI_SILU:
        return silu(x, grad);
    case EK_PHI_HARDSWISH:
        return hardswish(x, grad);
    case EK_PHI_LEAKY_RELU:
        *grad = x > 0 ? 1 : 0.01f;
        return x * *grad;
    case EK_PHI_RELU:
        *grad = x > 0;
        return positive;
    case EK_PHI_RELU2:
        *grad = 2 * positive;
        return positive * positive;
    case EK_PHI_RAW:
    case EK_PHI_COUNT:
        break;
    }
    *grad = 1;
    return x;
}
