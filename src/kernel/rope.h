/* rope.h - rotary position embedding on rows of heads, in place.
 *
 *   a = pos * inv_freq[i];  (u,v) -> mscale * (u cos a - v sin a, u sin a + v cos a)
 *   half-split:  (u,v) = x[i], x[i + R/2]        Hugging Face Llama, Qwen, Gemma ("NEOX")
 *   interleaved: (u,v) = x[2i], x[2i+1]          GGUF files of architecture llama
 * for i in [0, R/2), R = rotary dims <= D; the rest of a head is left alone.
 * Source: Su et al. 2021, "RoFormer"; scalings: see ek_rope_init.
 */
#ifndef EVENKEEL_KERNEL_ROPE_H
#define EVENKEEL_KERNEL_ROPE_H

#include <stdbool.h>
#include <stdint.h>

#define EK_ROPE_MAX 512 /* rotary dims */

enum ek_rope_scaling {
    EK_ROPE_NONE,
    EK_ROPE_LINEAR, /* inv_freq / factor */
    EK_ROPE_LLAMA3, /* long wavelengths / factor, short ones kept, smooth between */
    EK_ROPE_YARN,   /* NTK by parts, mscale 0.1 ln(factor) + 1 unless given */
};

struct ek_rope_options {
    int n_dims; /* R, even, <= EK_ROPE_MAX */
    bool is_interleaved;
    double base; /* theta: 10000, 500000, 1e6 ... */
    enum ek_rope_scaling scaling;
    double factor;       /* of the scaling; >= 1 */
    double original_ctx; /* LLAMA3, YARN: context before extension */
    double low_freq_factor, high_freq_factor; /* LLAMA3 */
    double beta_fast, beta_slow;              /* YARN: 32, 1 by default */
    double mscale; /* YARN: attention factor; 0: 0.1 ln(factor) + 1 */
};

struct ek_rope {
    int n_dims;
    bool is_interleaved;
    float mscale;
    double inv_freq[EK_ROPE_MAX / 2];
};

/* Fills the frequencies in f64. Cannot fail: options were checked at load. */
void ek_rope_init(struct ek_rope *r, const struct ek_rope_options *o);

/* cs[t][i] = (cos, sin) of pos[t]*inv_freq[i] times mscale: R floats a row, computed
 * once a step and layer kind in f64 and shared by q and k of every layer. */
void ek_rope_table(float *cs, const struct ek_rope *r, const int32_t *pos, int64_t T);

/* x (T,H,D) in place, rows ldx apart; cs (T,R) from ek_rope_table. */
typedef void ek_rope_fn(float *x, int64_t ldx, const float *cs, const struct ek_rope *r,
                        int64_t T, int64_t H, int64_t D);

#endif
