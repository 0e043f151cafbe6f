/* weight.c - sizes and layout of packed weights, and the way back to f32.
 *
 * A panel is 16 rows of the weight = 16 outputs = the lanes of one 512-bit register of
 * f32. Panels follow each other; in a panel the groups of 32 columns follow each other.
 * One group, from its first byte (r: row in panel, k: column in group):
 *
 *   F32   [k 32][r 16] f32                       2048 B   one column = one register
 *   BF16  [k/2 16][r 16][k%2] bf16               1024 B   pairs, for vdpbf16ps
 *   E4M3  [k/4 8][r/4 4][k/2%2][r%4 4][k%2] u8    512 B   such that interleaving
 *                                                        two table look-ups by bytes
 *                                                        in 128-bit lanes gives pairs
 *   I4    [r 16] f16 d | [r 16] f16 m | [k%16/4 4][r 16][k%4] bytes      320 B
 *                low nibble column k < 16, high nibble column k + 16; w = d q + m
 *
 *   I8    two groups together, so that all stays 64-byte aligned in one stream (the
 *         second is padding where G is odd):
 *         [2][r 16] f16 d | [2][k/4 8][r 16][k%4] u8 (q + 128)         1088 B
 *         quads along k, as vpdpbusd takes them, unsigned operand first
 *   I6    eight groups together (those behind K are padding):
 *         [r 16] f32 d | [k/16 16][r 16] i8 s | [k/32 8] of
 *             [k%16/4 4][r 16][k%4] bytes, nibbles as in I4: bits 0..3 of q
 *             [k%32/16 2][r 16][k%4] bytes: bits 4 and 5 of q, of columns with
 *             k%16/4 = j at bits 2j and 2j+1                             3392 B
 *         w = d s (q - 32); a line of scales for each twelve of codes or less
 *   I4S   two groups together likewise:
 *         [2][r 16] f16 d | [2][k%16/4 4][r 16][k%4] bytes, nibbles as in I4   576 B
 *         w = d (q - 8)
 *
 * Behind the last panel of an E4M3 weight: f32 scales [ceil(N/128)][ceil(K/128)].
 * Padding rows and columns hold zeros (I8: code 128 with d = 0; I6: s = 0; I4S: d = 0).
 */
#include "kernel/weight.h"

#include "kernel/weight_int.h"
#include "num/float.h"

#include <assert.h>

static const char *const names[EK_WEIGHT_COUNT] = {"f32",  "bf16", "fp8",  "int8",
                                                   "int6", "int4", "int4s"};

const char *ek_weight_name(enum ek_weight_format f)
{
    return (unsigned)f < EK_WEIGHT_COUNT ? names[f] : "?";
}

size_t ek_weight_bytes(enum ek_weight_format f, int64_t N, int64_t K)
{
    /* Far above any model and far below what the products could overflow. */
    const int64_t max = (int64_t)1 << 40;
    if (N < 1 || K < 1 || N > max || K > max)
        return 0;
    int64_t bytes, panels = ek_ceil_div(N, EK_PANEL);
    if (__builtin_mul_overflow(panels, ek_panel_bytes(f, ek_weight_groups(K)), &bytes))
        return 0;
    if (f == EK_WEIGHT_E4M3 &&
        __builtin_add_overflow(
            bytes, ek_ceil_div(N, EK_E4M3_BLOCK) * 4 * ek_ceil_div(K, EK_E4M3_BLOCK),
            &bytes))
        return 0;
    return (size_t)bytes;
}

enum ek_weight_format ek_weight_keep(enum ek_dtype t)
{
    switch (t) {
    case EK_DTYPE_Q4_0:
    case EK_DTYPE_TQ1_0:
    case EK_DTYPE_TQ2_0:
        return EK_WEIGHT_I4S;
    case EK_DTYPE_Q4_1:
    case EK_DTYPE_Q4_K:
        return EK_WEIGHT_I4;
    case EK_DTYPE_Q3_K:
    case EK_DTYPE_Q6_K:
        return EK_WEIGHT_I6;
    case EK_DTYPE_Q5_0:
    case EK_DTYPE_Q5_1:
    case EK_DTYPE_Q5_K:
    case EK_DTYPE_Q2_K:
    case EK_DTYPE_IQ4_NL:
    case EK_DTYPE_IQ4_XS:
    case EK_DTYPE_MXFP4:
    case EK_DTYPE_NVFP4:
    case EK_DTYPE_Q8_0:
        return EK_WEIGHT_I8;
    case EK_DTYPE_E4M3:
        return EK_WEIGHT_E4M3;
    default:
        return EK_WEIGHT_BF16;
    }
}

float *ek_weight_block_scales(const struct ek_weight *w)
{
    assert(w->format == EK_WEIGHT_E4M3);
    return (float *)(void *)ek_weight_panel(w, ek_ceil_div(w->N, EK_PANEL));
}

/* v[32] = group g of row r of a panel. */
static void get_f32(float *v, const unsigned char *panel, int64_t g, int r)
{
    const float *in = (const float *)(const void *)panel + g * EK_GROUP * EK_PANEL;
    for (int k = 0; k < EK_GROUP; k++)
        v[k] = in[ek_at_f32(r, k)];
}

static void get_bf16(float *v, const unsigned char *panel, int64_t g, int r)
{
    const uint16_t *in =
        (const uint16_t *)(const void *)panel + g * EK_GROUP * EK_PANEL;
    for (int k = 0; k < EK_GROUP; k++)
        v[k] = ek_bf16_to_f32(in[ek_at_bf16(r, k)]);
}

static void get_e4m3(float *v, const unsigned char *panel, int64_t g, int r,
                     float scale)
{
    for (int k = 0; k < EK_GROUP; k++)
        v[k] =
            scale * ek_e4m3_to_f32(panel[g * EK_GROUP * EK_PANEL + ek_at_e4m3(r, k)]);
}

static void get_i8(float *v, const unsigned char *panel, int64_t g, int r)
{
    const unsigned char *q = ek_i8_codes(panel, g);
    const uint16_t *d = (const uint16_t *)(const void *)ek_i8_scales(panel, g);
    float scale = ek_f16_to_f32(d[r]);
    for (int k = 0; k < EK_GROUP; k++)
        v[k] = scale * (float)(q[ek_at_i8(r, k)] - 128);
}

static void get_i4(float *v, const unsigned char *panel, int64_t g, int r)
{
    const unsigned char *cell = panel + g * EK_I4_CELL, *q = cell + 64;
    const uint16_t *dm = (const uint16_t *)(const void *)cell;
    float d = ek_f16_to_f32(dm[r]), m = ek_f16_to_f32(dm[EK_PANEL + r]);
    for (int k = 0; k < EK_GROUP; k++)
        v[k] = d * (float)(q[ek_at_i4(r, k)] >> (k < 16 ? 0 : 4) & 15) + m;
}

static void get_i4s(float *v, const unsigned char *panel, int64_t g, int r)
{
    const unsigned char *q = ek_i4s_codes(panel, g);
    float d =
        ek_f16_to_f32(((const uint16_t *)(const void *)ek_i4s_scales(panel, g))[r]);
    for (int k = 0; k < EK_GROUP; k++)
        v[k] = d * (float)((q[ek_at_i4(r, k)] >> (k < 16 ? 0 : 4) & 15) - 8);
}

void ek_weight_row(float *out, const struct ek_weight *w, int64_t n)
{
    int64_t G = ek_weight_groups(w->K);
    const unsigned char *panel = ek_weight_panel(w, n / EK_PANEL);
    const float *scales = NULL;
    int r = (int)(n % EK_PANEL);
    if (w->format == EK_WEIGHT_E4M3)
        scales = ek_weight_block_scales(w) +
                 n / EK_E4M3_BLOCK * ek_ceil_div(w->K, EK_E4M3_BLOCK);
    for (int64_t g = 0; g < G; g++) {
        float v[EK_GROUP] = {0};
        switch (w->format) {
        case EK_WEIGHT_F32:
            get_f32(v, panel, g, r);
            break;
        case EK_WEIGHT_BF16:
            get_bf16(v, panel, g, r);
            break;
        case EK_WEIGHT_E4M3:
            get_e4m3(v, panel, g, r, scales[g * EK_GROUP / EK_E4M3_BLOCK]);
            break;
        case EK_WEIGHT_I8:
            get_i8(v, panel, g, r);
            break;
        case EK_WEIGHT_I6:
            ek_i6_get(v, panel, g, r);
            break;
        case EK_WEIGHT_I4:
            get_i4(v, panel, g, r);
            break;
        case EK_WEIGHT_I4S:
            get_i4s(v, panel, g, r);
            break;
        case EK_WEIGHT_COUNT:
            break;
        }
        for (int64_t k = g * EK_GROUP; k < w->K && k < (g + 1) * EK_GROUP; k++)
            out[k] = v[k - g * EK_GROUP];
    }
}
