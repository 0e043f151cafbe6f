/* matmul_int.h - the form of prepared activations, shared by all matmul variants.
 *
 *   F32         row = [Kp] f32
 *   BF16, E4M3  row = [Kp] bf16
 *   I8, I4      row = [Kp] i8 q | [G] f32 scale | [G] f32 sum of the group's q
 *               x ~ scale q, scale = amax/127, |q| <= 127
 * Kp = K rounded up to whole groups, zeros behind K; rows begin at multiples of 64 B.
 * All variants prepare the same bits (tests/kernel/test_matmul.c).
 */
#ifndef EVENKEEL_KERNEL_MATMUL_INT_H
#define EVENKEEL_KERNEL_MATMUL_INT_H

#include "kernel/matmul.h"
#include "kernel/weight_int.h"

/* Groups whose largest magnitude lies below this are all zeros: the inverse of their
 * scale would overflow. */
#define EK_ACT_TINY 1e-30f

static inline int64_t ek_act_stride(enum ek_weight_format f, int64_t K)
{
    int64_t G = ek_weight_groups(K), Kp = G * EK_GROUP;
    if (f == EK_WEIGHT_F32)
        return Kp * 4;
    if (f == EK_WEIGHT_BF16 || f == EK_WEIGHT_E4M3)
        return Kp * 2;
    return (Kp + G * 8 + 63) / 64 * 64;
}

static inline unsigned char *ek_act_row(const void *act, enum ek_weight_format f,
                                        int64_t K, int64_t t)
{
    return (unsigned char *)(uintptr_t)act + t * ek_act_stride(f, K);
}

static inline float *ek_act_scales(const unsigned char *row, int64_t G)
{
    return (float *)(uintptr_t)(row + G * EK_GROUP);
}

static inline float *ek_act_sums(const unsigned char *row, int64_t G)
{
    return ek_act_scales(row, G) + G;
}

#endif
