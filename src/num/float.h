/* float.h - scalar conversions between f32 and the short floating formats.
 *
 *   format  sign exp mantissa bias   largest  least normal, subnormal  specials
 *   bf16       1   8        7  127   3.39e38  2^-126, 2^-133           inf, NaN
 *   f16        1   5       10   15   65504    2^-14,  2^-24            inf, NaN
 *   e4m3       1   4        3    7   448      2^-6,   2^-9             NaN 0x7f, 0xff
 *   e5m2       1   5        2   15   57344    2^-14,  2^-16            inf, NaN
 *   e8m0       0   8        0  127   2^127    2^-127 (code 0), no 0    NaN 0xff
 *
 * To f32 every conversion is exact. From f32 all round to nearest, ties to even:
 * bf16 and f16 overflow to infinity; e4m3 and e5m2 saturate, infinities included; a NaN
 * stays a quiet NaN of the same sign. The subnormal paths rely on f32 subnormals being
 * kept, so nothing in this program may set FTZ or DAZ.
 * Every code, tie and neighbour is checked in tests/num/test_float.c.
 * Source: IEEE 754-2019; OCP 8-bit Floating Point Specification 1.0; OCP Microscaling
 * Formats Specification 1.0 (e8m0).
 */
#ifndef EVENKEEL_NUM_FLOAT_H
#define EVENKEEL_NUM_FLOAT_H

#include <stdint.h>
#include <string.h>

#define EK_E4M3_MAX 448.0f
#define EK_E5M2_MAX 57344.0f

static inline uint32_t ek_f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float ek_f32_of_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline float ek_bf16_to_f32(uint16_t h)
{
    return ek_f32_of_bits((uint32_t)h << 16);
}

static inline uint16_t ek_f32_to_bf16(float x)
{
    uint32_t u = ek_f32_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

static inline float ek_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, em = h & 0x7fffu;
    if (em >= 0x7c00)
        return ek_f32_of_bits(sign | 0x7f800000u | (em & 0x3ff) << 13);
    if (em >= 0x0400)
        return ek_f32_of_bits(sign | ((em << 13) + (112u << 23)));
    return ek_f32_of_bits(sign | ek_f32_bits((float)em * 0x1p-24f));
}

static inline uint16_t ek_f32_to_f16(float x)
{
    uint32_t u = ek_f32_bits(x), sign = u >> 16 & 0x8000, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff));
    if (a >= 0x477ff000u) /* 65520, half way to the next power: to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (a < 0x38800000u) /* 0.5 has ulp 2^-24: the addition rounds to the subnormals */
        return (uint16_t)(sign | (ek_f32_bits(ek_f32_of_bits(a) + 0.5f) - 0x3f000000u));
    a += 0xfffu + (a >> 13 & 1);
    return (uint16_t)(sign | ((a >> 13) - (112u << 10)));
}

static inline float ek_e4m3_to_f32(uint8_t c)
{
    uint32_t sign = (uint32_t)(c & 0x80) << 24, em = c & 0x7fu;
    if (em == 0x7f)
        return ek_f32_of_bits(sign | 0x7fc00000u);
    if (em >= 8)
        return ek_f32_of_bits(sign | ((em << 20) + (120u << 23)));
    return ek_f32_of_bits(sign | ek_f32_bits((float)em * 0x1p-9f));
}

static inline uint8_t ek_f32_to_e4m3(float x)
{
    uint32_t u = ek_f32_bits(x), sign = u >> 24 & 0x80, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return (uint8_t)(sign | 0x7f);
    if (a > 0x43e00000u)
        a = 0x43e00000u; /* 448 */
    if (a < 0x3c800000u) /* 2^14 has ulp 2^-9 */
        return (uint8_t)(sign |
                         (ek_f32_bits(ek_f32_of_bits(a) + 16384.0f) - 0x46800000u));
    a += 0x7ffffu + (a >> 20 & 1);
    return (uint8_t)(sign | ((a >> 20) - (120u << 3)));
}

static inline float ek_e5m2_to_f32(uint8_t c)
{
    return ek_f16_to_f32((uint16_t)(c << 8)); /* e5m2 is the upper half of f16 */
}

static inline uint8_t ek_f32_to_e5m2(float x)
{
    uint32_t u = ek_f32_bits(x), sign = u >> 24 & 0x80, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return (uint8_t)(sign | 0x7e);
    if (a > 0x47600000u)
        a = 0x47600000u; /* 57344 */
    if (a < 0x38800000u) /* 2^7 has ulp 2^-16 */
        return (uint8_t)(sign |
                         (ek_f32_bits(ek_f32_of_bits(a) + 128.0f) - 0x43000000u));
    a += 0xfffffu + (a >> 21 & 1);
    return (uint8_t)(sign | ((a >> 21) - (112u << 2)));
}

static inline float ek_e8m0_to_f32(uint8_t c)
{
    if (c == 0xff)
        return ek_f32_of_bits(0x7fc00000u);
    return c ? ek_f32_of_bits((uint32_t)c << 23) : 0x1p-127f;
}

/* The nearest power of two, at a tie (1.5 * 2^e) the even code. Zero and everything
 * below 2^-127 give 2^-127, above 2^127 gives 2^127; negatives, infinity and NaN give
 * NaN. */
static inline uint8_t ek_f32_to_e8m0(float x)
{
    uint32_t u = ek_f32_bits(x);
    if (u == 0x80000000u)
        u = 0;
    if (u >= 0x7f800000u)
        return 0xff;
    if (u < 0x00800000u) /* below 2^-126: the tie of codes 0 and 1 is at 1.5 * 2^-127 */
        return u > 0x00600000u;
    uint32_t code = u >> 23, m = u & 0x7fffffu;
    code += m > 0x400000u || (m == 0x400000u && (code & 1));
    return (uint8_t)(code > 254 ? 254 : code);
}

#endif
