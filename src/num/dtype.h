/* dtype.h - the number formats, their names and sizes.
 *
 * Plain formats have blocks of one element. The block formats are GGUF's; their layouts
 * stand beside their conversions in num/quant.h.
 */
#ifndef EVENKEEL_NUM_DTYPE_H
#define EVENKEEL_NUM_DTYPE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* X(enum suffix, name, elements a block, bytes a block) */
#define EK_DTYPE_TABLE(X)                                                              \
    X(F32, "f32", 1, 4)                                                                \
    X(F64, "f64", 1, 8)                                                                \
    X(F16, "f16", 1, 2)                                                                \
    X(BF16, "bf16", 1, 2)                                                              \
    X(E4M3, "e4m3", 1, 1)                                                              \
    X(E5M2, "e5m2", 1, 1)                                                              \
    X(E8M0, "e8m0", 1, 1)                                                              \
    X(I8, "i8", 1, 1)                                                                  \
    X(I16, "i16", 1, 2)                                                                \
    X(I32, "i32", 1, 4)                                                                \
    X(I64, "i64", 1, 8)                                                                \
    X(U8, "u8", 1, 1)                                                                  \
    X(BOOL, "bool", 1, 1)                                                              \
    X(Q4_0, "q4_0", 32, 18)                                                            \
    X(Q4_1, "q4_1", 32, 20)                                                            \
    X(Q5_0, "q5_0", 32, 22)                                                            \
    X(Q5_1, "q5_1", 32, 24)                                                            \
    X(Q8_0, "q8_0", 32, 34)                                                            \
    X(Q4_K, "q4_k", 256, 144)                                                          \
    X(Q5_K, "q5_k", 256, 176)                                                          \
    X(Q6_K, "q6_k", 256, 210)                                                          \
    X(Q2_K, "q2_k", 256, 84)                                                           \
    X(Q3_K, "q3_k", 256, 110)                                                          \
    X(IQ4_NL, "iq4_nl", 32, 18)                                                        \
    X(IQ4_XS, "iq4_xs", 256, 136)                                                      \
    X(MXFP4, "mxfp4", 32, 17)                                                          \
    X(NVFP4, "nvfp4", 64, 36)                                                          \
    X(TQ1_0, "tq1_0", 256, 54)                                                         \
    X(TQ2_0, "tq2_0", 256, 66)

enum ek_dtype {
#define X(suffix, name, elems, bytes) EK_DTYPE_##suffix,
    EK_DTYPE_TABLE(X)
#undef X
        EK_DTYPE_COUNT
};

const char *ek_dtype_name(enum ek_dtype t);
size_t ek_dtype_block(enum ek_dtype t);       /* elements a block */
size_t ek_dtype_block_bytes(enum ek_dtype t); /* bytes a block */

/* Bytes of n elements in whole blocks. Errors: EK_EINVAL n is no multiple of the
 * block, EK_ELIMIT overflow. */
int ek_dtype_bytes(size_t *out, enum ek_dtype t, uint64_t n) EK_MUST_USE;

#endif
