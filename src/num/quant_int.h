/* quant_int.h - the block formats, one block at a time; for num/quant.c alone. */
#ifndef EVENKEEL_NUM_QUANT_INT_H
#define EVENKEEL_NUM_QUANT_INT_H

#include "num/float.h"

/* Little-endian f16 at any address, as f32. */
static inline float ek_load_f16(const uint8_t *p)
{
    return ek_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

static inline void ek_store_f16(uint8_t *p, float x)
{
    uint16_t h = ek_f32_to_f16(x);
    p[0] = (uint8_t)h;
    p[1] = (uint8_t)(h >> 8);
}

/* out[block] = the block at `in`. */
void ek_block_q4_0(float *out, const uint8_t *in);
void ek_block_q4_1(float *out, const uint8_t *in);
void ek_block_q5_0(float *out, const uint8_t *in);
void ek_block_q5_1(float *out, const uint8_t *in);
void ek_block_q8_0(float *out, const uint8_t *in);
void ek_block_q4_k(float *out, const uint8_t *in);
void ek_block_q5_k(float *out, const uint8_t *in);
void ek_block_q6_k(float *out, const uint8_t *in);
void ek_block_q2_k(float *out, const uint8_t *in);
void ek_block_q3_k(float *out, const uint8_t *in);
void ek_block_iq4_nl(float *out, const uint8_t *in);
void ek_block_iq4_xs(float *out, const uint8_t *in);
void ek_block_mxfp4(float *out, const uint8_t *in);
void ek_block_nvfp4(float *out, const uint8_t *in);
void ek_block_tq1_0(float *out, const uint8_t *in);
void ek_block_tq2_0(float *out, const uint8_t *in);

/* The block at `out` = x[32], rounded. */
void ek_block_to_q4_0(uint8_t *out, const float *x);
void ek_block_to_q4_1(uint8_t *out, const float *x);
void ek_block_to_q8_0(uint8_t *out, const float *x);

#endif
