/* matmul.c - one row of activations by one panel of weights, in plain C.
 *
 * 16 f32 sums, one an output, over ascending k. Weights are read where they lie, so the
 * loops follow the layouts of weight.c. */
#include "kernel/matmul_int.h"
#include "kernel/ref/ref.h"
#include "num/float.h"

#include <string.h>

static void panel_f32(float acc[EK_PANEL], const unsigned char *panel,
                      const unsigned char *row, int64_t G)
{
    const float *w = (const float *)(const void *)panel;
    const float *x = (const float *)(const void *)row;
    for (int64_t k = 0; k < G * EK_GROUP; k++)
        for (int r = 0; r < EK_PANEL; r++)
            acc[r] += w[k * EK_PANEL + r] * x[k];
}

static void panel_bf16(float acc[EK_PANEL], const unsigned char *panel,
                       const unsigned char *row, int64_t G)
{
    const uint16_t *w = (const uint16_t *)(const void *)panel;
    const uint16_t *x = (const uint16_t *)(const void *)row;
    for (int64_t k = 0; k < G * EK_GROUP; k += 2) {
        float x0 = ek_bf16_to_f32(x[k]), x1 = ek_bf16_to_f32(x[k + 1]);
        const uint16_t *pair = w + k * EK_PANEL;
        for (int r = 0; r < EK_PANEL; r++) {
            acc[r] += ek_bf16_to_f32(pair[2 * r]) * x0;
            acc[r] += ek_bf16_to_f32(pair[2 * r + 1]) * x1;
        }
    }
}

/* scales: those of the panel's 128 rows, one per 128 columns; applied to the sum over
 * these columns. */
static void panel_e4m3(float acc[EK_PANEL], const unsigned char *panel,
                       const unsigned char *row, int64_t G, const float *scales)
{
    const uint16_t *x = (const uint16_t *)(const void *)row;
    const int64_t step = EK_E4M3_BLOCK / EK_GROUP;
    for (int64_t g0 = 0; g0 < G; g0 += step) {
        float part[EK_PANEL] = {0};
        for (int64_t g = g0; g < G && g < g0 + step; g++)
            for (int k = 0; k < EK_GROUP; k++) {
                float xk = ek_bf16_to_f32(x[g * EK_GROUP + k]);
                const unsigned char *w = panel + g * EK_GROUP * EK_PANEL;
                for (int r = 0; r < EK_PANEL; r++)
                    part[r] += ek_e4m3_to_f32(w[ek_at_e4m3(r, k)]) * xk;
            }
        for (int r = 0; r < EK_PANEL; r++)
            acc[r] += scales[g0 / step] * part[r];
    }
}

/* The 32 activations of a group as integers. */
static void group_act(int v[EK_GROUP], const struct ek_act_cell *x)
{
    for (int k = 0; k < EK_GROUP; k++)
        v[k] = (int)x->base[k];
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 4; k++)
            v[(x->at[i] >> 5) * 4 + k] += 16 * x->top[i][k];
}

static void panel_i8(float acc[EK_PANEL], const unsigned char *panel,
                     const struct ek_act_cell *cells, int64_t G)
{
    for (int64_t g = 0; g < G; g++) {
        int x[EK_GROUP];
        group_act(x, &cells[g]);
        const unsigned char *q = ek_i8_codes(panel, g);
        const uint16_t *d = (const uint16_t *)(const void *)ek_i8_scales(panel, g);
        for (int r = 0; r < EK_PANEL; r++) {
            int dot = 0;
            for (int k = 0; k < EK_GROUP; k++)
                dot += (q[ek_at_i8(r, k)] - 128) * x[k];
            acc[r] += ek_f16_to_f32(d[r]) * cells[g].scale * (float)dot;
        }
    }
}

static void panel_i6(float acc[EK_PANEL], const unsigned char *panel,
                     const struct ek_act_cell *cells, int64_t G)
{
    for (int64_t g = 0; g < G; g++) {
        int x[EK_GROUP];
        group_act(x, &cells[g]);
        const unsigned char *q = ek_i6_codes(panel, g);
        const float *d = (const float *)(const void *)ek_i6_cell(panel, g);
        for (int r = 0; r < EK_PANEL; r++) {
            int dot[2] = {0, 0};
            for (int k = 0; k < EK_GROUP; k++) {
                int low = q[ek_at_i4(r, k)] >> (k < 16 ? 0 : 4) & 15;
                int high = q[ek_at_i6(r, k)] >> ek_i6_shift(k) & 3;
                dot[k / 16] += ((low | high << 4) - 32) * x[k];
            }
            float sum = 0;
            for (int h = 0; h < 2; h++)
                sum += (float)(int8_t)ek_i6_scales(panel, g, h)[r] * (float)dot[h];
            acc[r] += sum * (d[r] * cells[g].scale);
        }
    }
}

/* sum_k (d q + m) s x = s (d sum q x + m sum x) */
static void panel_i4(float acc[EK_PANEL], const unsigned char *panel,
                     const struct ek_act_cell *cells, int64_t G)
{
    for (int64_t g = 0; g < G; g++) {
        int x[EK_GROUP];
        group_act(x, &cells[g]);
        const unsigned char *cell = panel + g * EK_I4_CELL, *q = cell + 64;
        const uint16_t *dm = (const uint16_t *)(const void *)cell;
        for (int r = 0; r < EK_PANEL; r++) {
            int dot = 0;
            for (int k = 0; k < 16; k++) {
                int byte = q[ek_at_i4(r, k)];
                dot += (byte & 15) * x[k] + (byte >> 4) * x[k + 16];
            }
            float d = ek_f16_to_f32(dm[r]), m = ek_f16_to_f32(dm[EK_PANEL + r]);
            acc[r] += cells[g].scale * (d * (float)dot + m * cells[g].sum);
        }
    }
}

static void panel_i4s(float acc[EK_PANEL], const unsigned char *panel,
                      const struct ek_act_cell *cells, int64_t G)
{
    for (int64_t g = 0; g < G; g++) {
        int x[EK_GROUP];
        group_act(x, &cells[g]);
        const unsigned char *q = ek_i4s_codes(panel, g);
        const uint16_t *d = (const uint16_t *)(const void *)ek_i4s_scales(panel, g);
        for (int r = 0; r < EK_PANEL; r++) {
            int dot = 0;
            for (int k = 0; k < 16; k++) {
                int byte = q[ek_at_i4(r, k)];
                dot += ((byte & 15) - 8) * x[k] + ((byte >> 4) - 8) * x[k + 16];
            }
            acc[r] += ek_f16_to_f32(d[r]) * cells[g].scale * (float)dot;
        }
    }
}

static void panel_row(float acc[EK_PANEL], const struct ek_weight *w, int64_t p,
                      const unsigned char *row)
{
    int64_t G = ek_weight_groups(w->K);
    const unsigned char *panel = ek_weight_panel(w, p);
    memset(acc, 0, EK_PANEL * sizeof *acc);
    switch (w->format) {
    case EK_WEIGHT_F32:
        panel_f32(acc, panel, row, G);
        break;
    case EK_WEIGHT_BF16:
        panel_bf16(acc, panel, row, G);
        break;
    case EK_WEIGHT_E4M3:
        panel_e4m3(acc, panel, row, G,
                   ek_weight_block_scales(w) +
                       p * EK_PANEL / EK_E4M3_BLOCK * ek_ceil_div(w->K, EK_E4M3_BLOCK));
        break;
    case EK_WEIGHT_I8:
        panel_i8(acc, panel, ek_act_cells(row), G);
        break;
    case EK_WEIGHT_I6:
        panel_i6(acc, panel, ek_act_cells(row), G);
        break;
    case EK_WEIGHT_I4:
        panel_i4(acc, panel, ek_act_cells(row), G);
        break;
    case EK_WEIGHT_I4S:
        panel_i4s(acc, panel, ek_act_cells(row), G);
        break;
    case EK_WEIGHT_COUNT:
        break;
    }
}

void ek_ref_matmul(float *y, int64_t ldy, const void *act, const struct ek_weight *w,
                   int64_t T, int64_t n0, int64_t n1, enum ek_matmul_mode mode)
{
    for (int64_t n = n0; n < n1; n += EK_PANEL) {
        int64_t n_rows = n1 - n < EK_PANEL ? n1 - n : EK_PANEL;
        for (int64_t t = 0; t < T; t++) {
            float acc[EK_PANEL], *out = y + t * ldy + n;
            panel_row(acc, w, n / EK_PANEL, ek_act_row(act, w->format, w->K, t));
            for (int64_t r = 0; r < n_rows; r++)
                out[r] = mode == EK_MATMUL_ADD ? out[r] + acc[r] : acc[r];
        }
    }
}
