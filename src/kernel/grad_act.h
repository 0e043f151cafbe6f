/* grad_act.h - activations and their slopes, for grad_body.h; plain C without a
 * library's functions, so that the bits are the same everywhere. */
#ifndef EVENKEEL_KERNEL_GRAD_ACT_H
#define EVENKEEL_KERNEL_GRAD_ACT_H

#include "kernel/grad.h"
#include "num/float.h"

/* e^x: r = x - n ln 2, its series to r^7, times 2^n from the bits of the rounded n.
 * exp(0) is 1; below -87 it is 0; NaN stays. */
static inline float exp_of(float x)
{
    float c = x > 88.0f ? 88.0f : x;
    c = c < -87.0f ? -87.0f : c;
    float shifted = c * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: n in the low bits */
    float n = shifted - 12582912.0f;
    float r = (c - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    float scale = ek_f32_of_bits((ek_f32_bits(shifted) - 0x4b400000u + 127u) << 23);
    return x < -87.0f ? 0.0f : p * scale;
}

/* Beyond +-limit an activation is its limit; NaN stays. */
static inline float within(float x, float limit)
{
    float c = x > limit ? limit : x;
    return c < -limit ? -limit : c;
}

static inline float sigmoid_of(float x)
{
    return 1.0f / (1.0f + exp_of(-x));
}

static inline float tanh_of(float x)
{
    return 2.0f / (1.0f + exp_of(-2.0f * x)) - 1.0f;
}

#define GELU_C 0.7978845608f /* sqrt(2/pi) */
#define GELU_A 0.044715f

/* Both are 0 at -inf, where the formula is inf * 0. */
static inline float silu_of(float x)
{
    return x < -87.0f ? 0.0f : x * sigmoid_of(x);
}

static inline float gelu_of(float x)
{
    return x < -20.0f ? 0.0f
                      : 0.5f * x * (1.0f + tanh_of(GELU_C * (x + GELU_A * x * x * x)));
}

static inline float gelu_slope(float v)
{
    float x = within(v, 20.0f);
    float t = tanh_of(GELU_C * (x + GELU_A * x * x * x));
    float inner = GELU_C * (1.0f + 3.0f * GELU_A * x * x);
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * inner;
}

static inline float silu_slope(float v)
{
    float x = within(v, 87.0f);
    float s = sigmoid_of(x);
    return s * (1.0f + x * (1.0f - s));
}

#define EACH(formula)                                                                  \
    for (int64_t i = 0; i < n; i++)                                                    \
        formula;                                                                       \
    break

static void act(float *y, const float *x, int64_t n, enum ek_act kind)
{
    switch (kind) {
    case EK_ACT_NONE:
        EACH(y[i] = x[i]);
    case EK_ACT_RELU:
        EACH(y[i] = x[i] <= 0.0f ? 0.0f : x[i]); /* NaN stays */
    case EK_ACT_SILU:
        EACH(y[i] = silu_of(x[i]));
    case EK_ACT_GELU:
        EACH(y[i] = gelu_of(x[i]));
    case EK_ACT_SIGMOID:
        EACH(y[i] = sigmoid_of(x[i]));
    case EK_ACT_TANH:
        EACH(y[i] = tanh_of(x[i]));
    }
}

static void act_grad(float *dx, const float *s, const float *dy, int64_t n,
                     enum ek_act kind)
{
    switch (kind) {
    case EK_ACT_NONE:
        EACH(dx[i] = dy[i]);
    case EK_ACT_RELU:
        EACH(dx[i] = s[i] > 0.0f ? dy[i] : 0.0f);
    case EK_ACT_SILU:
        EACH(dx[i] = dy[i] * silu_slope(s[i]));
    case EK_ACT_GELU:
        EACH(dx[i] = dy[i] * gelu_slope(s[i]));
    case EK_ACT_SIGMOID:
        EACH(dx[i] = dy[i] * s[i] * (1.0f - s[i]));
    case EK_ACT_TANH:
        EACH(dx[i] = dy[i] * (1.0f - s[i] * s[i]));
    }
}

static void silu(float *y, float *s, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float v = x[i], share = v < -87.0f ? 0.0f : sigmoid_of(v);
        y[i] = v < -87.0f ? 0.0f : v * share;
        s[i] = share;
    }
}

static void silu_grad(float *dx, const float *y, const float *s, const float *dy,
                      int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dx[i] = dy[i] * (s[i] + y[i] * (1.0f - s[i]));
}

#endif
