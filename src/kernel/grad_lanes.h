/* grad_lanes.h - 16 lanes of f32 in plain C, for grad_body.h: what an ISA lacks in
 * width its compiler makes of several registers, with the same bits. */
#ifndef EVENKEEL_KERNEL_GRAD_LANES_H
#define EVENKEEL_KERNEL_GRAD_LANES_H

#include <math.h>
#include <stdint.h>

/* Vectors go by value only to what is compiled in place: no ABI is concerned. */
#define EK_LANES_INLINE static inline __attribute__((always_inline))
#pragma GCC diagnostic ignored "-Wpsabi"

typedef float ek_lanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef float ek_half __attribute__((vector_size(32), aligned(4), may_alias));
typedef double ek_sums __attribute__((vector_size(64)));

#define LANES       16
#define LOAD(p)     (*(const ek_lanes *)(const void *)(p))
#define STORE(p, v) (*(ek_lanes *)(void *)(p) = (v))

/* The n < 16 floats at x, then `fill`. */
EK_LANES_INLINE ek_lanes load_part(const float *x, int64_t n, float fill)
{
    float lane[LANES];
    for (int64_t j = 0; j < LANES; j++)
        lane[j] = j < n ? x[j] : fill;
    return LOAD(lane);
}

EK_LANES_INLINE void store_part(float *y, int64_t n, ek_lanes v)
{
    float lane[LANES];
    STORE(lane, v);
    for (int64_t j = 0; j < n; j++)
        y[j] = lane[j];
}

/* Lane k and lane k + 8 in f64, then halves onto each other. */
EK_LANES_INLINE double join(ek_lanes v)
{
    ek_half low = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
    ek_half high = __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
    ek_sums s =
        __builtin_convertvector(low, ek_sums) + __builtin_convertvector(high, ek_sums);
    s += __builtin_shufflevector(s, s, 4, 5, 6, 7, 0, 1, 2, 3);
    s += __builtin_shufflevector(s, s, 2, 3, 0, 1, 6, 7, 4, 5);
    return s[0] + s[1];
}

/* The sums of four vectors, in f32, halves onto each other: v[k]'s in lanes
 * 4k..4k+3. */
EK_LANES_INLINE ek_lanes join_four(const ek_lanes v[4])
{
    ek_lanes a = __builtin_shufflevector(v[0], v[1], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18,
                                         19, 20, 21, 22, 23) +
                 __builtin_shufflevector(v[0], v[1], 8, 9, 10, 11, 12, 13, 14, 15, 24,
                                         25, 26, 27, 28, 29, 30, 31);
    ek_lanes b = __builtin_shufflevector(v[2], v[3], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18,
                                         19, 20, 21, 22, 23) +
                 __builtin_shufflevector(v[2], v[3], 8, 9, 10, 11, 12, 13, 14, 15, 24,
                                         25, 26, 27, 28, 29, 30, 31);
    ek_lanes c = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19,
                                         24, 25, 26, 27) +
                 __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22,
                                         23, 28, 29, 30, 31);
    c += __builtin_shufflevector(c, c, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12,
                                 13);
    return c + __builtin_shufflevector(c, c, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13,
                                       12, 15, 14);
}

#endif
