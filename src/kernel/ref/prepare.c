/* prepare.c - activations into the form of matmul_int.h. */
#include "kernel/matmul_int.h"
#include "kernel/ref/ref.h"
#include "num/float.h"

#include <math.h>
#include <string.h>

/* x[n], n <= 32. A group with an infinity or NaN gets scale NaN, so that it is seen in
 * every output instead of vanishing. */
static void quantize_group(struct ek_act_cell *cell, const float *x, int n)
{
    uint32_t top = 0; /* bits of |x| order as numbers do, infinity and NaN above all */
    for (int k = 0; k < n; k++) {
        uint32_t a = ek_f32_bits(x[k]) & 0x7fffffffu;
        top = a > top ? a : top;
    }
    float amax = ek_f32_of_bits(top);
    memset(cell, 0, sizeof *cell);
    if (top >= 0x7f800000u)
        cell->scale = NAN;
    if (top >= 0x7f800000u || amax < EK_ACT_TINY)
        return;
    float inv = EK_ACT_TOP / amax;
    int sum[2] = {0, 0};
    for (int k = 0; k < n; k++) {
        int v = (int)rintf(x[k] * inv), high = (v + 128) >> 8;
        cell->high[k] = (int8_t)high;
        cell->low[k] = (int8_t)(v - high * 256);
        sum[k / 16] += v;
    }
    ek_act_finish(cell, amax / EK_ACT_TOP, sum[0], sum[1]);
}

static void quantize_row(struct ek_act_cell *cells, const float *x, int64_t K)
{
    for (int64_t k = 0; k < K; k += EK_GROUP)
        quantize_group(cells + k / EK_GROUP, x + k,
                       (int)(K - k < EK_GROUP ? K - k : EK_GROUP));
}

void ek_ref_matmul_prepare(void *act, enum ek_weight_format f, const float *x,
                           int64_t ldx, int64_t T, int64_t K, int64_t t0, int64_t t1)
{
    (void)T;
    int64_t Kp = ek_weight_groups(K) * EK_GROUP;
    for (int64_t t = t0; t < t1; t++) {
        unsigned char *row = ek_act_row(act, f, K, t);
        const float *in = x + t * ldx;
        if (f == EK_WEIGHT_F32) {
            float *out = (float *)(void *)row;
            memcpy(out, in, (size_t)K * sizeof *out);
            memset(out + K, 0, (size_t)(Kp - K) * sizeof *out);
        } else if (f == EK_WEIGHT_BF16 || f == EK_WEIGHT_E4M3) {
            uint16_t *out = (uint16_t *)(void *)row;
            for (int64_t k = 0; k < K; k++)
                out[k] = ek_f32_to_bf16(in[k]);
            memset(out + K, 0, (size_t)(Kp - K) * sizeof *out);
        } else {
            quantize_row(ek_act_cells(row), in, K);
        }
    }
}
