/* quant.c - rows of any real format to f32 and back: a table of one converter a format.
 *
 * Block formats are converted a block at a time by num/quant_block.c, which also draws
 * their layouts. What is written in a block format rounds as its usual writers do.
 */
#include "num/quant.h"

#include "num/quant_int.h"

#include <assert.h>
#include <math.h>

/* `in` has no alignment, so elements are copied out. */
static void from_f64(float *out, const uint8_t *in)
{
    double x;
    memcpy(&x, in, sizeof x);
    *out = (float)x;
}

static void from_f32(float *out, const uint8_t *in)
{
    memcpy(out, in, sizeof *out);
}

static void from_f16(float *out, const uint8_t *in)
{
    *out = ek_load_f16(in);
}

static void from_bf16(float *out, const uint8_t *in)
{
    *out = ek_bf16_to_f32((uint16_t)(in[0] | in[1] << 8));
}

static void from_e4m3(float *out, const uint8_t *in)
{
    *out = ek_e4m3_to_f32(*in);
}

static void from_e5m2(float *out, const uint8_t *in)
{
    *out = ek_e5m2_to_f32(*in);
}

static void from_e8m0(float *out, const uint8_t *in)
{
    *out = ek_e8m0_to_f32(*in);
}

static void to_f64(uint8_t *out, const float *x)
{
    double d = (double)*x;
    memcpy(out, &d, sizeof d);
}

static void to_f32(uint8_t *out, const float *x)
{
    memcpy(out, x, sizeof *x);
}

static void to_f16(uint8_t *out, const float *x)
{
    ek_store_f16(out, *x);
}

static void to_bf16(uint8_t *out, const float *x)
{
    uint16_t h = ek_f32_to_bf16(*x);
    out[0] = (uint8_t)h;
    out[1] = (uint8_t)(h >> 8);
}

static void to_e4m3(uint8_t *out, const float *x)
{
    *out = ek_f32_to_e4m3(*x);
}

static void to_e5m2(uint8_t *out, const float *x)
{
    *out = ek_f32_to_e5m2(*x);
}

static void to_e8m0(uint8_t *out, const float *x)
{
    *out = ek_f32_to_e8m0(*x);
}

static const struct {
    void (*read)(float *out, const uint8_t *in);  /* one block; NULL: cannot */
    void (*write)(uint8_t *out, const float *in); /* one block; NULL: cannot */
    uint8_t n_scales; /* block formats: f16 scales of a block ... */
    uint8_t scale_at; /* ... that begin at this byte */
} table[EK_DTYPE_COUNT] = {
    [EK_DTYPE_F32] = {from_f32, to_f32, 0, 0},
    [EK_DTYPE_F64] = {from_f64, to_f64, 0, 0},
    [EK_DTYPE_F16] = {from_f16, to_f16, 0, 0},
    [EK_DTYPE_BF16] = {from_bf16, to_bf16, 0, 0},
    [EK_DTYPE_E4M3] = {from_e4m3, to_e4m3, 0, 0},
    [EK_DTYPE_E5M2] = {from_e5m2, to_e5m2, 0, 0},
    [EK_DTYPE_E8M0] = {from_e8m0, to_e8m0, 0, 0},
    [EK_DTYPE_Q4_0] = {ek_block_q4_0, ek_block_to_q4_0, 1, 0},
    [EK_DTYPE_Q4_1] = {ek_block_q4_1, ek_block_to_q4_1, 2, 0},
    [EK_DTYPE_Q5_0] = {ek_block_q5_0, NULL, 1, 0},
    [EK_DTYPE_Q5_1] = {ek_block_q5_1, NULL, 2, 0},
    [EK_DTYPE_Q8_0] = {ek_block_q8_0, ek_block_to_q8_0, 1, 0},
    [EK_DTYPE_Q4_K] = {ek_block_q4_k, NULL, 2, 0},
    [EK_DTYPE_Q5_K] = {ek_block_q5_k, NULL, 2, 0},
    [EK_DTYPE_Q6_K] = {ek_block_q6_k, NULL, 1, 208},
    [EK_DTYPE_Q2_K] = {ek_block_q2_k, NULL, 2, 80},
    [EK_DTYPE_Q3_K] = {ek_block_q3_k, NULL, 1, 108},
    [EK_DTYPE_IQ4_NL] = {ek_block_iq4_nl, NULL, 1, 0},
    [EK_DTYPE_IQ4_XS] = {ek_block_iq4_xs, NULL, 1, 0},
    [EK_DTYPE_MXFP4] = {ek_block_mxfp4, NULL, 0, 0},
    [EK_DTYPE_NVFP4] = {ek_block_nvfp4, NULL, 0, 0},
    [EK_DTYPE_TQ1_0] = {ek_block_tq1_0, NULL, 1, 52},
    [EK_DTYPE_TQ2_0] = {ek_block_tq2_0, NULL, 1, 64},
};

bool ek_quant_can_read(enum ek_dtype t)
{
    return (unsigned)t < EK_DTYPE_COUNT && table[t].read;
}

bool ek_quant_can_write(enum ek_dtype t)
{
    return (unsigned)t < EK_DTYPE_COUNT && table[t].write;
}

void ek_quant_to_f32(float *out, enum ek_dtype t, const void *in, size_t n)
{
    assert(ek_quant_can_read(t));
    size_t block = ek_dtype_block(t), bytes = ek_dtype_block_bytes(t);
    const uint8_t *p = in;
    assert(n % block == 0);
    for (size_t i = 0; i < n; i += block, p += bytes)
        table[t].read(out + i, p);
}

void ek_quant_from_f32(void *out, enum ek_dtype t, const float *in, size_t n)
{
    assert(ek_quant_can_write(t));
    size_t block = ek_dtype_block(t), bytes = ek_dtype_block_bytes(t);
    uint8_t *p = out;
    assert(n % block == 0);
    for (size_t i = 0; i < n; i += block, p += bytes)
        table[t].write(p, in + i);
}

/* The scales of the blocks of e2m1 are bytes: none is NaN, nor 6 times it, the largest
 * element there may be, beyond f32. */
static bool has_finite_bytes(enum ek_dtype t, const uint8_t *p)
{
    bool is_good = t != EK_DTYPE_MXFP4 || isfinite(6.0f * ek_e8m0_to_f32(p[0]));
    for (int i = 0; t == EK_DTYPE_NVFP4 && i < 4; i++)
        is_good = is_good && isfinite(ek_e4m3_to_f32(p[i]));
    return is_good;
}

/* Whether the block at p has only finite scales, or the plain element is finite. A
 * double beyond f32's range counts as not finite: no kernel could use it. */
static bool block_is_finite(enum ek_dtype t, const uint8_t *p)
{
    if (ek_dtype_block(t) == 1) {
        float x;
        table[t].read(&x, p);
        return isfinite(x);
    }
    for (int i = 0; i < table[t].n_scales; i++)
        if (!isfinite(ek_load_f16(p + table[t].scale_at + 2 * i)))
            return false;
    return has_finite_bytes(t, p);
}

bool ek_quant_is_finite(enum ek_dtype t, const void *in, size_t n, size_t *at)
{
    assert(ek_quant_can_read(t));
    size_t block = ek_dtype_block(t), bytes = ek_dtype_block_bytes(t);
    const uint8_t *p = in;
    for (size_t i = 0; i < n; i += block, p += bytes)
        if (!block_is_finite(t, p)) {
            *at = i;
            return false;
        }
    return true;
}
