/* quant_block.c - GGUF's block formats. All little-endian, nibbles low first.
 *
 *   q4_0   f16 d | qs[16]                    w = d (q-8); byte j: elements j, j+16
 *   q4_1   f16 d, m | qs[16]                 w = d q + m
 *   q5_0   f16 d | u32 h | qs[16]            w = d (q-16); bit e of h: bit 4 of e
 *   q5_1   f16 d, m | u32 h | qs[16]         w = d q + m
 *   q8_0   f16 d | i8 q[32]                  w = d q
 *   q4_k   f16 d, dmin | s[12] | qs[128]     8 groups of 32, each a 6-bit scale and
 *   q5_k   ... | s[12] | h[32] | qs[128]     minimum in s: w = d s q - dmin m
 *   q6_k   ql[128] | qh[64] | i8 s[16] | f16 d   16 groups of 16: w = d s (q-32)
 *   q2_k   s[16] | qs[64] | f16 d, dmin      16 groups of 16, a scale and a minimum of
 *                                            4 bits each: w = d s q - dmin m
 *   q3_k   h[32] | qs[64] | s[12] | f16 d    16 groups of 16: w = d (s-32) (q-4),
 *                                            bit 2 of q in h
 *   iq4_nl f16 d | qs[16]                    w = d code[q]; order as in q4_0
 *   iq4_xs f16 d | u16 sh | sl[4] | qs[128]  8 groups of 32: w = d (s-32) code[q]
 *   mxfp4  e8m0 d | qs[16]                   w = d e2m1(q); order as in q4_0
 *   nvfp4  e4m3 d[4] | qs[32]                4 groups of 16: w = d e2m1(q); byte j of a
 *                                            group: elements j, j+8; d's sign is none
 *   tq1_0  qs[48] | qh[4] | f16 d            w = d (q-1); digits of base 3, first the
 *                                            highest, five a byte, four in qh
 *   tq2_0  qs[64] | f16 d                    w = d (q-1); 2 bits each, halves of 128
 *
 * Source: the GGUF format's reference quantisation (element order and rounding), tested
 * against the PyPI package gguf by tests/num/check_quant_gguf.py.
 */
#include "num/quant_int.h"

#include <math.h>

void ek_block_q4_0(float *out, const uint8_t *in)
{
    float d = ek_load_f16(in);
    for (int j = 0; j < 16; j++) {
        out[j] = d * (float)((in[2 + j] & 15) - 8);
        out[j + 16] = d * (float)((in[2 + j] >> 4) - 8);
    }
}

void ek_block_q4_1(float *out, const uint8_t *in)
{
    float d = ek_load_f16(in), m = ek_load_f16(in + 2);
    for (int j = 0; j < 16; j++) {
        out[j] = d * (float)(in[4 + j] & 15) + m;
        out[j + 16] = d * (float)(in[4 + j] >> 4) + m;
    }
}

/* Element e of a 5-bit block: high bits h[4], low nibbles qs[16]. */
static int q5(const uint8_t *h, const uint8_t *qs, int e)
{
    int low = e < 16 ? qs[e] & 15 : qs[e - 16] >> 4;
    return low | (h[e / 8] >> e % 8 & 1) << 4;
}

void ek_block_q5_0(float *out, const uint8_t *in)
{
    float d = ek_load_f16(in);
    for (int e = 0; e < 32; e++)
        out[e] = d * (float)(q5(in + 2, in + 6, e) - 16);
}

void ek_block_q5_1(float *out, const uint8_t *in)
{
    float d = ek_load_f16(in), m = ek_load_f16(in + 2);
    for (int e = 0; e < 32; e++)
        out[e] = d * (float)q5(in + 4, in + 8, e) + m;
}

void ek_block_q8_0(float *out, const uint8_t *in)
{
    float d = ek_load_f16(in);
    for (int e = 0; e < 32; e++)
        out[e] = d * (float)(int8_t)in[2 + e];
}

/* The 6-bit scale and minimum of group j in [0,8) of a K block. */
static void scale_min(int *scale, int *min, const uint8_t *s, int j)
{
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *min = s[j + 4] >> 4 | (s[j] >> 6) << 4;
    }
}

void ek_block_q4_k(float *out, const uint8_t *in)
{
    float d = ek_load_f16(in), dmin = ek_load_f16(in + 2);
    for (int j = 0; j < 8; j++) {
        const uint8_t *qs = in + 16 + j / 2 * 32;
        int scale, min;
        scale_min(&scale, &min, in + 4, j);
        float a = d * (float)scale, b = dmin * (float)min;
        for (int l = 0; l < 32; l++)
            out[32 * j + l] = a * (float)(qs[l] >> 4 * (j % 2) & 15) - b;
    }
}

void ek_block_q5_k(float *out, const uint8_t *in)
{
    const uint8_t *h = in + 16;
    float d = ek_load_f16(in), dmin = ek_load_f16(in + 2);
    for (int j = 0; j < 8; j++) {
        const uint8_t *qs = in + 48 + j / 2 * 32;
        int scale, min;
        scale_min(&scale, &min, in + 4, j);
        float a = d * (float)scale, b = dmin * (float)min;
        for (int l = 0; l < 32; l++) {
            int q = (qs[l] >> 4 * (j % 2) & 15) | (h[l] >> j & 1) << 4;
            out[32 * j + l] = a * (float)q - b;
        }
    }
}

void ek_block_q6_k(float *out, const uint8_t *in)
{
    const uint8_t *sc = in + 192;
    float d = ek_load_f16(in + 208);
    for (int e = 0; e < 256; e++) {
        /* halves of 128; in a half, quarter p of 32 */
        int half = e / 128, p = e % 128 / 32, l = e % 32;
        int low = in[64 * half + 32 * (p % 2) + l] >> 4 * (p / 2) & 15;
        int high = in[128 + 32 * half + l] >> 2 * p & 3;
        float scale = d * (float)(int8_t)sc[e / 16];
        out[e] = scale * (float)((low | high << 4) - 32);
    }
}

void ek_block_q2_k(float *out, const uint8_t *in)
{
    const uint8_t *qs = in + 16;
    float d = ek_load_f16(in + 80), dmin = ek_load_f16(in + 82);
    for (int e = 0; e < 256; e++) {
        /* halves of 128; in a half, quarter p of 32 */
        int half = e / 128, p = e % 128 / 32, l = e % 32, s = in[e / 16];
        int q = qs[32 * half + l] >> 2 * p & 3;
        out[e] = d * (float)(s & 15) * (float)q - dmin * (float)(s >> 4);
    }
}

/* The 6-bit scale, less 32, of group g in [0,16) of a q3_k block. */
static int q3_scale(const uint8_t *s, int g)
{
    int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4;
    return (low | (s[8 + g % 4] >> 2 * (g / 4) & 3) << 4) - 32;
}

void ek_block_q3_k(float *out, const uint8_t *in)
{
    const uint8_t *qs = in + 32, *s = in + 96;
    float d = ek_load_f16(in + 108);
    for (int e = 0; e < 256; e++) {
        int half = e / 128, p = e % 128 / 32, l = e % 32;
        int low = qs[32 * half + l] >> 2 * p & 3;
        int high = in[l] >> (4 * half + p) & 1;
        out[e] = d * (float)q3_scale(s, e / 16) * (float)(low + 4 * high - 4);
    }
}

/* iq4's codebook: denser near zero, as weights are. */
static const int8_t iq4_codes[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};

void ek_block_iq4_nl(float *out, const uint8_t *in)
{
    float d = ek_load_f16(in);
    for (int j = 0; j < 16; j++) {
        out[j] = d * (float)iq4_codes[in[2 + j] & 15];
        out[j + 16] = d * (float)iq4_codes[in[2 + j] >> 4];
    }
}

void ek_block_iq4_xs(float *out, const uint8_t *in)
{
    float d = ek_load_f16(in);
    int sh = in[2] | in[3] << 8;
    for (int g = 0; g < 8; g++) {
        int s = (in[4 + g / 2] >> 4 * (g % 2) & 15) | (sh >> 2 * g & 3) << 4;
        const uint8_t *qs = in + 8 + 16 * g;
        for (int j = 0; j < 16; j++) {
            out[32 * g + j] = d * (float)(s - 32) * (float)iq4_codes[qs[j] & 15];
            out[32 * g + 16 + j] = d * (float)(s - 32) * (float)iq4_codes[qs[j] >> 4];
        }
    }
}

/* Twice what an e2m1 code stands for. */
static const int8_t e2m1_codes[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                      0, -1, -2, -3, -4, -6, -8, -12};

void ek_block_mxfp4(float *out, const uint8_t *in)
{
    float d = 0.5f * ek_e8m0_to_f32(in[0]);
    for (int j = 0; j < 16; j++) {
        out[j] = d * (float)e2m1_codes[in[1 + j] & 15];
        out[j + 16] = d * (float)e2m1_codes[in[1 + j] >> 4];
    }
}

void ek_block_nvfp4(float *out, const uint8_t *in)
{
    for (int e = 0; e < 64; e++) {
        int g = e / 16, j = e % 16, q = in[4 + 8 * g + j % 8] >> 4 * (j / 8) & 15;
        out[e] = 0.5f * ek_e4m3_to_f32(in[g] & 0x7f) * (float)e2m1_codes[q];
    }
}

/* Digit n in [0,5) of a byte, which is ceil(number * 256 / 243), less 1. */
static float trit(uint8_t byte, int n)
{
    static const uint8_t powers[5] = {1, 3, 9, 27, 81};
    uint8_t rest = (uint8_t)(byte * powers[n]);
    return (float)((rest * 3 >> 8) - 1);
}

void ek_block_tq1_0(float *out, const uint8_t *in)
{
    float d = ek_load_f16(in + 52);
    for (int e = 0; e < 160; e++)
        out[e] = d * trit(in[e % 32], e / 32);
    for (int e = 0; e < 80; e++)
        out[160 + e] = d * trit(in[32 + e % 16], e / 16);
    for (int e = 0; e < 16; e++)
        out[240 + e] = d * trit(in[48 + e % 4], e / 4);
}

void ek_block_tq2_0(float *out, const uint8_t *in)
{
    float d = ek_load_f16(in + 64);
    for (int e = 0; e < 256; e++) {
        /* halves of 128; in a half, quarter p of 32 */
        int half = e / 128, p = e % 128 / 32, l = e % 32;
        out[e] = d * (float)((in[32 * half + l] >> 2 * p & 3) - 1);
    }
}

static int clip15(float q)
{
    return q < 0 ? 0 : q > 15 ? 15 : (int)q;
}

void ek_block_to_q4_0(uint8_t *out, const float *x)
{
    float m = 0; /* the signed value of the largest magnitude becomes -8 */
    for (int e = 0; e < 32; e++)
        if (fabsf(x[e]) > fabsf(m))
            m = x[e];
    float d = m / -8.0f, id = d != 0 ? 1.0f / d : 0.0f;
    ek_store_f16(out, d);
    for (int j = 0; j < 16; j++)
        out[2 + j] =
            (uint8_t)(clip15(x[j] * id + 8.5f) | clip15(x[j + 16] * id + 8.5f) << 4);
}

void ek_block_to_q4_1(uint8_t *out, const float *x)
{
    float lo = x[0], hi = x[0];
    for (int e = 1; e < 32; e++) {
        lo = x[e] < lo ? x[e] : lo;
        hi = x[e] > hi ? x[e] : hi;
    }
    float d = (hi - lo) / 15.0f, id = d != 0 ? 1.0f / d : 0.0f;
    ek_store_f16(out, d);
    ek_store_f16(out + 2, lo);
    for (int j = 0; j < 16; j++)
        out[4 + j] = (uint8_t)(clip15((x[j] - lo) * id + 0.5f) |
                               clip15((x[j + 16] - lo) * id + 0.5f) << 4);
}

void ek_block_to_q8_0(uint8_t *out, const float *x)
{
    float amax = 0;
    for (int e = 0; e < 32; e++)
        amax = fabsf(x[e]) > amax ? fabsf(x[e]) : amax;
    float d = amax / 127.0f, id = d != 0 ? 1.0f / d : 0.0f;
    ek_store_f16(out, d);
    for (int e = 0; e < 32; e++) {
        float q = roundf(x[e] * id); /* ties away from zero, as the format's writers */
        out[2 + e] = (uint8_t)(int8_t)(q < -127 ? -127 : q > 127 ? 127 : (int)q);
    }
}
