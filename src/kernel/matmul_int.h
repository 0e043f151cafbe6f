/* matmul_int.h - the form of prepared activations, shared by all matmul variants.
 *
 *   F32         row = [Kp] f32
 *   BF16, E4M3  row = [Kp] bf16
 *   I8, I6, I4, I4S  row = [G] struct ek_act_cell
 *               x ~ scale v,  v = 256 high + low,  scale = amax / 32512
 *               -32512 <= v <= 32512, so -127 <= high <= 127, -128 <= low <= 127
 * Kp = K rounded up to whole groups, zeros behind K; rows begin at multiples of 64 B.
 * All variants prepare the same bits (tests/kernel/test_matmul.c).
 */
#ifndef EVENKEEL_KERNEL_MATMUL_INT_H
#define EVENKEEL_KERNEL_MATMUL_INT_H

#include "kernel/matmul.h"
#include "kernel/weight_int.h"

#define EK_ACT_TOP 32512.0f /* 127 * 256 */

/* Groups whose largest magnitude lies below this are all zeros: the inverse of their
 * scale would overflow. */
#define EK_ACT_TINY 1e-30f

/* A group of 32: all that a kernel needs of it in one stream. */
struct ek_act_cell {
    int8_t high[EK_GROUP], low[EK_GROUP];
    float scale;        /* NaN where x held an infinity or NaN */
    float sum;          /* of v; exact, below 2^21 */
    int32_t less_8;     /* -8 sum: what a nibble's offset takes away */
    int32_t less_128;   /* -128 sum: a byte's */
    int32_t less_32[2]; /* -32 sum of columns 0..15 and of 16..31: of six bits */
};

static inline int64_t ek_act_stride(enum ek_weight_format f, int64_t K)
{
    int64_t G = ek_weight_groups(K), Kp = G * EK_GROUP;
    if (f == EK_WEIGHT_F32)
        return Kp * 4;
    if (f == EK_WEIGHT_BF16 || f == EK_WEIGHT_E4M3)
        return Kp * 2;
    return (G * (int64_t)sizeof(struct ek_act_cell) + 63) / 64 * 64;
}

static inline unsigned char *ek_act_row(const void *act, enum ek_weight_format f,
                                        int64_t K, int64_t t)
{
    return (unsigned char *)(uintptr_t)act + t * ek_act_stride(f, K);
}

static inline struct ek_act_cell *ek_act_cells(const void *row)
{
    return (struct ek_act_cell *)(uintptr_t)row;
}

/* The fields that follow from the scale and the sums of v[0..15] and of v[16..31]. */
static inline void ek_act_finish(struct ek_act_cell *cell, float scale, int32_t sum_0,
                                 int32_t sum_16)
{
    int32_t sum = sum_0 + sum_16;
    cell->scale = scale;
    cell->sum = (float)sum;
    cell->less_8 = -8 * sum;
    cell->less_128 = -128 * sum;
    cell->less_32[0] = -32 * sum_0;
    cell->less_32[1] = -32 * sum_16;
}

/* One panel times R rows of activations: what a vector variant brings. Every row goes
 * through the same operations in the same order whatever R is. */
struct ek_tile {
    const unsigned char *act;   /* the first row, prepared */
    const unsigned char *panel; /* of the weight */
    const float *scales;        /* E4M3: of the panel's 128 rows, one per 128 columns */
    float *y;                   /* the first row's output of the panel's first column */
    int64_t stride, ldy, G;     /* bytes between rows of act, floats of y; groups */
    int n_cols;                 /* columns of y to write, 1..16 */
    bool is_batch;              /* 4 rows or more in all */
    enum ek_matmul_mode mode;
};

typedef void ek_tile_fn(const struct ek_tile *c, int R); /* R: 8, 4, 2 or 1 */

/* Columns [n0,n1) panel by panel, rows in tiles of max_rows (2, 4 or 8), then of its
 * halves; all panels by as many rows as the L2 cache holds, then by the next. */
void ek_matmul_run(const struct ek_tile *first, const struct ek_weight *w, int64_t T,
                   int64_t n0, int64_t n1, ek_tile_fn *fn, int max_rows);

/* For inner tiles: R must be a constant there, so that sums live in registers. */
#define EK_INLINE static inline __attribute__((always_inline))

/* Asks for n lines of the weight as much further on, into L2, in a batch, whose
 * products keep the core busy meanwhile: batches of 8 to 32 rows lost a quarter and
 * more on weights from memory. For 1 or 2 rows the hardware's prefetcher is faster
 * alone (30 against 18 to 27 GB/s). */
#define EK_AHEAD 8192
EK_INLINE void ek_fetch_ahead(const unsigned char *w, int n)
{
    for (int i = 0; i < n; i++)
        __builtin_prefetch(w + EK_AHEAD + (ptrdiff_t)64 * i, 0, 2);
}

EK_INLINE void ek_tile_fetch(const struct ek_tile *c, const unsigned char *w, int n)
{
    if (c->is_batch)
        ek_fetch_ahead(w, n);
}

/* Before a loop over rows: unrolled early enough that an array of sums becomes
 * registers; left alone, gcc may store them all in every step (f32 in AVX2: 45 against
 * 97 GFLOP/s).
 * Before a loop over columns: kept a loop, where 16 registers would spill otherwise. */
#ifdef __clang__
#define EK_UNROLL _Pragma("unroll")
#define EK_ROLLED _Pragma("nounroll")
#else
#define EK_UNROLL _Pragma("GCC unroll 8")
#define EK_ROLLED _Pragma("GCC unroll 1")
#endif

/* Calls tile(c, R) with R as a constant, R at most 4 or 8. */
#define EK_TILE_TO_4(tile, c, R)                                                       \
    do {                                                                               \
        if ((R) == 4)                                                                  \
            tile(c, 4);                                                                \
        else if ((R) == 2)                                                             \
            tile(c, 2);                                                                \
        else                                                                           \
            tile(c, 1);                                                                \
    } while (0)
#define EK_TILE_TO_8(tile, c, R)                                                       \
    do {                                                                               \
        if ((R) == 8)                                                                  \
            tile(c, 8);                                                                \
        else                                                                           \
            EK_TILE_TO_4(tile, c, R);                                                  \
    } while (0)

#endif
