/* phi.h - the activations that generalized attention puts in softmax's place.
 *
 *   name        phi(x)                                phi'(x)
 *   raw         x                                     1
 *   gelu        x Phi(x), Phi by erf                  Phi(x) + x exp(-x^2/2)/sqrt(2 pi)
 *   gelu_tanh   x (1+t)/2, t = tanh(a (x + b x^3))
 *               (1+t)/2 + x (1-t^2)/2 a (1 + 3b x^2)
 *               a = sqrt(2/pi), b = 0.044715
 *   gelu_poly   |x| <= EK_PHI_POLY_RANGE: x/2 + x^2 (c2 + x^2 (c4 + x^2 c6)), series
 *               of gelu (6.1e-3 off at the end of the range); beyond it gelu
 *   leaky_relu  x > 0 ? x : 0.01 x                    x > 0 ? 1 : 0.01
 *   relu        max(x, 0)                             x > 0
 *   relu2       max(x, 0)^2                           2 max(x, 0)
 *   silu        x s, s = 1/(1+exp(-x))                s (1 + x (1-s))
 *   hardswish   x clip(x+3, 0, 6)/6                   (2x+3)/6; 0 below, 1 above
 *
 * Every phi(0) is 0, so what a mask hides adds nothing. The "fast" forms of gelu and
 * silu that GPU code lists beside these name cheaper instructions for gelu_tanh and
 * silu, not other functions.
 * Accuracy: f32, tested through jagged attention (tests/kernel/test_jagged.c). Variants
 * whose P becomes bf16 may be 2^-13 off.
 * Source: Hendrycks and Gimpel 2016 (gelu); Howard et al. 2019 (hardswish); So et al.
 * 2021 (relu2).
 */
#ifndef EVENKEEL_KERNEL_PHI_H
#define EVENKEEL_KERNEL_PHI_H

/* X(enum suffix, name) */
#define EK_PHI_TABLE(X)                                                                \
    X(RAW, "raw")                                                                      \
    X(GELU, "gelu")                                                                    \
    X(GELU_TANH, "gelu_tanh")                                                          \
    X(GELU_POLY, "gelu_poly")                                                          \
    X(LEAKY_RELU, "leaky_relu")                                                        \
    X(RELU, "relu")                                                                    \
    X(RELU2, "relu2")                                                                  \
    X(SILU, "silu")                                                                    \
    X(HARDSWISH, "hardswish")

enum ek_phi {
#define X(suffix, name) EK_PHI_##suffix,
    EK_PHI_TABLE(X)
#undef X
        EK_PHI_COUNT
};

#define EK_PHI_POLY_RANGE 1.25f
#define EK_PHI_POLY_C2    0.3989422804014327f
#define EK_PHI_POLY_C4    (-0.06649038006690543f)
#define EK_PHI_POLY_C6    0.00997355701003582f

const char *ek_phi_name(enum ek_phi phi);

/* phi(x), and phi'(x) into *grad. Plain C: the definition. */
float ek_phi_value(enum ek_phi phi, float x, float *grad);

#endif
