/* prepare.c - activations into the form of matmul_int.h. */
#include "kernel/matmul_int.h"
#include "kernel/ref/ref.h"
#include "num/float.h"

#include <math.h>
#include <string.h>

/* The quad whose largest magnitude is the largest, the first of equals, but for quad
 * `other`. Bits of |x| order as numbers do, infinity and NaN above all. */
static int largest_quad(const uint32_t most[EK_QUADS], int other)
{
    int best = -1;
    for (int q = 0; q < EK_QUADS; q++)
        if (q != other && (best < 0 || most[q] > most[best]))
            best = q;
    return best;
}

/* Base of all columns of v, and tops of the two quads. */
static void split(struct ek_act_cell *cell, const int at[2], int v[EK_GROUP])
{
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 4; k++) {
            int *x = &v[4 * at[i] + k], top = ek_act_top_of(*x);
            cell->top[i][k] = (int8_t)top;
            *x -= 16 * top;
        }
    for (int k = 0; k < EK_GROUP; k++)
        cell->base[k] = (int8_t)v[k];
}

/* x[n], n <= 32. A group with an infinity or NaN gets scale NaN, so that it is seen in
 * every output instead of vanishing. */
static void quantize_group(struct ek_act_cell *cell, const float *x, int n)
{
    uint32_t most[EK_QUADS] = {0}, rest = 0;
    for (int k = 0; k < n; k++) {
        uint32_t a = ek_f32_bits(x[k]) & 0x7fffffffu;
        most[k / 4] = a > most[k / 4] ? a : most[k / 4];
    }
    int at[2] = {largest_quad(most, -1)};
    at[1] = largest_quad(most, at[0]);
    for (int q = 0; q < EK_QUADS; q++)
        if (q != at[0] && q != at[1] && most[q] > rest)
            rest = most[q];
    memset(cell, 0, sizeof *cell);
    cell->at[0] = ek_act_at(at[0]);
    cell->at[1] = ek_act_at(at[1]);
    float scale, inv, amax = ek_f32_of_bits(most[at[0]]);
    if (!ek_act_scale(&scale, &inv, amax, ek_f32_of_bits(rest))) {
        cell->scale = scale;
        return;
    }
    int v[EK_GROUP] = {0}, sum[2] = {0, 0};
    for (int k = 0; k < n; k++)
        sum[k / 16] += v[k] = (int)rintf(x[k] * inv);
    split(cell, at, v);
    ek_act_finish(cell, scale, sum[0], sum[1]);
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
