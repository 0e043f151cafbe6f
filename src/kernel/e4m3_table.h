/* e4m3_table.h - the 128 magnitudes of e4m3 as bf16, upper and lower bytes apart, for
 * byte look-ups (vpermi2b takes its index from the low 7 bits, so the sign falls away).
 * Every code against num/float.h: tests/kernel/test_attn.c, test_matmul.c. */
#ifndef EVENKEEL_KERNEL_E4M3_TABLE_H
#define EVENKEEL_KERNEL_E4M3_TABLE_H

#include <stdint.h>

/* Normal codes: exponent and mantissa moved, bias 7 -> 127. Subnormals c * 2^-9 are
 * normal in bf16. 0x7f is NaN. */
#define EK_E4M3_BF16(c)                                                                \
    ((c) == 0      ? 0                                                                 \
     : (c) == 1    ? 0x3b00                                                            \
     : (c) == 2    ? 0x3b80                                                            \
     : (c) == 3    ? 0x3bc0                                                            \
     : (c) < 8     ? 0x3c00 + ((c)-4) * 0x20                                           \
     : (c) == 0x7f ? 0x7fc0                                                            \
                   : (c)*16 + 0x3c00)
#define EK_E4M3_HI(c) EK_E4M3_BF16(c) >> 8
#define EK_E4M3_LO(c) EK_E4M3_BF16(c) & 0xff
#define EK_E4M3_X8(f, c)                                                               \
    f(c), f(c + 1), f(c + 2), f(c + 3), f(c + 4), f(c + 5), f(c + 6), f(c + 7)
#define EK_E4M3_X64(f, c)                                                              \
    EK_E4M3_X8(f, c), EK_E4M3_X8(f, c + 8), EK_E4M3_X8(f, c + 16),                     \
        EK_E4M3_X8(f, c + 24), EK_E4M3_X8(f, c + 32), EK_E4M3_X8(f, c + 40),           \
        EK_E4M3_X8(f, c + 48), EK_E4M3_X8(f, c + 56)

static const uint8_t ek_e4m3_hi[128] = {EK_E4M3_X64(EK_E4M3_HI, 0),
                                        EK_E4M3_X64(EK_E4M3_HI, 64)};
static const uint8_t ek_e4m3_lo[128] = {EK_E4M3_X64(EK_E4M3_LO, 0),
                                        EK_E4M3_X64(EK_E4M3_LO, 64)};

#endif
