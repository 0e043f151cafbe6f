/* norm.c - rmsnorm in plain C: 16 f32 partial sums, joined in f64. */
#include "kernel/ref/ref.h"

#include <math.h>

#define LANES 16 /* f32 partial sums, as the vector variants have them */

static float row_rstd(const float *x, int64_t C, float eps)
{
    float part[LANES] = {0};
    for (int64_t c = 0; c < C; c++)
        part[c % LANES] += x[c] * x[c];
    double sum = 0;
    for (int i = 0; i < LANES; i++)
        sum += (double)part[i];
    return (float)(1.0 / sqrt(sum / (double)C + (double)eps));
}

void ek_ref_rmsnorm(float *y, int64_t ldy, const float *x, int64_t ldx,
                    const float *gain, float gain_offset, float eps, int64_t N,
                    int64_t C)
{
    for (int64_t n = 0; n < N; n++) {
        const float *in = x + n * ldx;
        float *out = y + n * ldy, rstd = row_rstd(in, C, eps);
        for (int64_t c = 0; c < C; c++)
            out[c] = in[c] * rstd * (gain[c] + gain_offset);
    }
}
