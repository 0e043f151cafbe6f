/* grad.h - the row and elementwise operations of training, forward and backward.
 *
 * Written once in plain C over 16 lanes (grad_body.h) and compiled for each ISA without
 * contraction, so that every ISA gives the same bits. Rows are ld apart; `is_added`
 * adds to the output instead of writing it. Outputs may alias inputs element by
 * element. Activations of -inf and +inf are their limits; NaN stays NaN.
 * Accuracy: exp, sigmoid, tanh within 4e-7 absolute of max(1, |value|)
 * (tests/kernel/test_grad.c). Threads: any. Cost: one pass, no allocation.
 */
#ifndef EVENKEEL_KERNEL_GRAD_H
#define EVENKEEL_KERNEL_GRAD_H

#include "num/cpu.h"

#include <stdbool.h>
#include <stdint.h>

enum ek_act {
    EK_ACT_NONE,
    EK_ACT_RELU,
    EK_ACT_SILU, /* x sigmoid(x) */
    EK_ACT_GELU, /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    EK_ACT_SIGMOID,
    EK_ACT_TANH,
};

/* Does the derivative read the argument (else the result)? */
static inline bool ek_act_reads_x(enum ek_act act)
{
    return act == EK_ACT_SILU || act == EK_ACT_GELU;
}

/* One normalisation: stat (N,2) holds mean and 1/deviation of each row. */
struct ek_norm {
    int64_t N, C;
    const float *x;
    int64_t ldx;
    float *stat;
    const float *gain, *bias; /* (C), NULL: 1 and 0 */
    float eps;
    bool is_rms; /* mean 0 */
};

struct ek_adamw {
    float lr, beta1, beta2, eps, decay; /* decay is decoupled: w -= lr decay w */
    float correct1, correct2;           /* 1 - beta^t */
    float grad_scale;                   /* of clipping */
};

/* Row-wise adagrad of one row: one sum of squares for all of its columns.
 *   g' = g + l2 w;  m += mean_d g'_d^2;  mult = lr / (sqrt(m) + eps)
 *   w = c w - mult g,  c = 1 - mult l2, or 1 - lr decay;  |w| cut to max_norm
 * (l2 enters the step through c only, so it is w - mult (g + l2 w)). */
struct ek_adagrad {
    float lr, eps;
    float l2, decay; /* at most one is not 0 */
    float max_norm;  /* 0: none */
};

struct ek_grad_ops {
    /* y = act(x); dx = dy act'(s), s the argument or the result (ek_act_reads_x) */
    void (*act)(float *y, const float *x, int64_t n, enum ek_act act);
    void (*act_grad)(float *dx, const float *s, const float *dy, int64_t n,
                     enum ek_act act);
    /* s = sigmoid(x), y = x s; dx = dy (s + y (1 - s)): no exponential in backward */
    void (*silu)(float *y, float *s, const float *x, int64_t n);
    void (*silu_grad)(float *dx, const float *y, const float *s, const float *dy,
                      int64_t n);
    /* y [+]= s a b; b NULL: s a */
    void (*mul)(float *y, const float *a, const float *b, float s, int64_t n,
                bool is_added);
    /* y = a + s b */
    void (*add)(float *y, const float *a, const float *b, float s, int64_t n);
    /* y = t (a + s b) */
    void (*mix)(float *y, const float *a, const float *b, float s, float t, int64_t n);
    /* y [+]= mask(key, first + i) x / (1-p); first >= 0 */
    void (*dropout)(float *y, const float *x, int64_t n, uint64_t key, int64_t first,
                    float p, bool is_added);
    double (*dot)(const float *a, const float *b,
                  int64_t n); /* lanes f32, joined f64 */
    /* out[n] = sum over c of a[n,c] b[n,c]; lanes and their sum f32 */
    void (*row_dots)(float *out, const float *a, int64_t lda, const float *b,
                     int64_t ldb, int64_t N, int64_t C);
    /* sum[c] += sum over rows of x[n,c], in the order of n */
    void (*col_sum)(float *sum, const float *x, int64_t ld, int64_t N, int64_t C);
    void (*norm)(float *y, int64_t ldy, const struct ek_norm *o);
    void (*norm_grad)(float *dx, int64_t lddx, const float *dy, int64_t lddy,
                      const struct ek_norm *o, bool is_added);
    /* dgain[c] += sum dy xhat, dbias[c] += sum dy; either may be NULL */
    void (*norm_grad_w)(float *dgain, float *dbias, const float *dy, int64_t lddy,
                        const struct ek_norm *o);
    /* x = s x, -inf where ids[j] == id (ids NULL: nowhere); the greatest, NaN passed
     * over; n >= 1 */
    float (*scores)(float *x, float s, const int32_t *ids, int32_t id, int64_t n);
    /* e[i] = exp(x[i] - top), its sum */
    double (*exp_sum)(float *e, const float *x, float top, int64_t n);
    /* g NULL: zeros */
    void (*adamw)(float *w, float *m, float *v, const float *g, int64_t n,
                  const struct ek_adamw *o);
    void (*adagrad)(float *w, float *m, const float *g, int64_t n,
                    const struct ek_adagrad *o);
};

const struct ek_grad_ops *ek_grad_ops_get(enum ek_isa isa);

#endif
