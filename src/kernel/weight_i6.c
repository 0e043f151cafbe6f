/* weight_i6.c - rows into I6 panels and back: codes of six bits, a scale of i8 for each
 * 16 columns and one of f32 for each 256, as drawn in weight.c. q6_k and q3_k are made
 * so and move unchanged; f32 is rounded. */
#include "kernel/weight_int.h"
#include "num/float.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define COLUMNS 256 /* of a cell */

/* One row of a cell. */
struct cell {
    float d;
    int8_t s[COLUMNS / 16];
    uint8_t q[COLUMNS]; /* 0..63 */
};

static float load_f16(const unsigned char *p)
{
    return ek_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

/* Blocks of 256 elements as num/quant_block.c describes them. */
static void of_q6_k(struct cell *c, const unsigned char *in)
{
    c->d = load_f16(in + 208);
    memcpy(c->s, in + 192, sizeof c->s);
    for (int g = 0; g < 8; g++) {
        const unsigned char *low = in + g / 4 * 64 + g % 2 * 32;
        const unsigned char *high = in + 128 + g / 4 * 32;
        int low_at = g / 2 % 2 * 4, high_at = g % 4 * 2;
        for (int k = 0; k < 32; k++)
            c->q[32 * g + k] =
                (uint8_t)((low[k] >> low_at & 15) | (high[k] >> high_at & 3) << 4);
    }
}

static void of_q3_k(struct cell *c, const unsigned char *in)
{
    const unsigned char *s = in + 96;
    c->d = load_f16(in + 108);
    for (int i = 0; i < 16; i++) {
        int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4;
        c->s[i] = (int8_t)((low | (s[8 + i % 4] >> i / 4 * 2 & 3) << 4) - 32);
    }
    for (int g = 0; g < 8; g++) {
        const unsigned char *low = in + 32 + g / 4 * 32;
        for (int k = 0; k < 32; k++)
            c->q[32 * g + k] =
                (uint8_t)((low[k] >> g % 4 * 2 & 3) + (in[k] >> g & 1) * 4 + 32 - 4);
    }
}

/* The one of n values with the largest magnitude. */
static float top_of(const float *v, int n)
{
    float top = 0;
    for (int k = 0; k < n; k++)
        top = fabsf(v[k]) > fabsf(top) ? v[k] : top;
    return top;
}

/* The largest magnitude of 16 columns becomes code 0 or 64 cut to 63, as in q6_k; the
 * largest scale 127 or -127. */
static void of_f32(struct cell *c, const float *x, int n)
{
    float v[COLUMNS] = {0};
    memcpy(v, x, (size_t)n * sizeof *v);
    float d = fabsf(top_of(v, COLUMNS)) / 32 / 127;
    memset(c->s, 0, sizeof c->s);
    c->d = d < 0x1p-120f ? 0 : d; /* its inverse must stay finite */
    for (int i = 0; i < COLUMNS / 16 && c->d > 0; i++)
        c->s[i] = (int8_t)rintf(top_of(v + 16 * i, 16) / -32 / d);
    for (int k = 0; k < COLUMNS; k++) {
        int8_t s = c->s[k / 16];
        float step = c->d * (float)s;
        float q = step != 0 ? rintf(v[k] / step) + 32 : 32;
        c->q[k] = (uint8_t)(q > 63 ? 63 : q < 0 ? 0 : q);
    }
}

static void put(unsigned char *panel, int64_t g, int r, const struct cell *c)
{
    float *d = (float *)(void *)ek_i6_cell(panel, g);
    d[r] = c->d;
    for (int i = 0; i < COLUMNS / 16; i++)
        ek_i6_scales(panel, g + i / 2, i % 2)[r] = (unsigned char)c->s[i];
    for (int i = 0; i < COLUMNS / EK_GROUP; i++) {
        unsigned char *codes = ek_i6_codes(panel, g + i);
        const uint8_t *q = c->q + i * EK_GROUP;
        unsigned char low[16], high[2][4] = {{0}};
        for (int k = 0; k < 16; k++)
            low[k] = (unsigned char)((q[k] & 15) | (q[k + 16] & 15) << 4);
        for (int k = 0; k < EK_GROUP; k++)
            high[k / 16][k % 4] |= (unsigned char)(q[k] >> 4 << ek_i6_shift(k));
        for (int k = 0; k < 16; k += 4)
            memcpy(codes + ek_at_i4(r, k), low + k, 4);
        for (int k = 0; k < EK_GROUP; k += 16)
            memcpy(codes + ek_at_i6(r, k), high[k / 16], 4);
    }
}

void ek_i6_put_row(unsigned char *panel, int r, enum ek_dtype t, const void *src,
                   int64_t K)
{
    const unsigned char *in = src;
    for (int64_t k = 0; k < K; k += COLUMNS) {
        struct cell c;
        if (t == EK_DTYPE_Q6_K) {
            of_q6_k(&c, in + k / COLUMNS * 210);
        } else if (t == EK_DTYPE_Q3_K) {
            of_q3_k(&c, in + k / COLUMNS * 110);
        } else {
            assert(t == EK_DTYPE_F32);
            of_f32(&c, (const float *)src + k,
                   (int)(K - k < COLUMNS ? K - k : COLUMNS));
        }
        put(panel, k / EK_GROUP, r, &c);
    }
}

void ek_i6_get(float *v, const unsigned char *panel, int64_t g, int r)
{
    const unsigned char *q = ek_i6_codes(panel, g);
    float d = ((const float *)(const void *)ek_i6_cell(panel, g))[r];
    for (int k = 0; k < EK_GROUP; k++) {
        int low = q[ek_at_i4(r, k)] >> (k < 16 ? 0 : 4) & 15;
        int high = q[ek_at_i6(r, k)] >> ek_i6_shift(k) & 3;
        float scale = d * (float)(int8_t)ek_i6_scales(panel, g, k / 16)[r];
        v[k] = scale * (float)((low | high << 4) - 32);
    }
}
