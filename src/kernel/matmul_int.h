/* matmul_int.h - the form of prepared activations, shared by all matmul variants.
 *
 *   F32         row = [Kp] f32
 *   BF16, E4M3  row = [Kp] bf16
 *   I8, I6, I4, I4S  row = [G] struct ek_act_cell
 *               x ~ scale v,  v = base + 16 top,  top only in two quads of columns
 * Kp = K rounded up to whole groups, zeros behind K; rows begin at multiples of 64 B.
 * All variants prepare the same bits (tests/kernel/test_matmul.c).
 */
#ifndef EVENKEEL_KERNEL_MATMUL_INT_H
#define EVENKEEL_KERNEL_MATMUL_INT_H

#include "kernel/matmul.h"
#include "kernel/weight_int.h"

#include <float.h>
#include <math.h>

/* Groups whose largest magnitude lies below this are all zeros: the inverse of their
 * scale would overflow. */
#define EK_ACT_TINY 1e-30f

#define EK_ACT_BASE 127.0f  /* |base| and |top| at most */
#define EK_ACT_TOP  2159.0f /* |v| at most: 127 + 16 * 127 */
#define EK_QUADS    8       /* of columns in a group */

/* A group of 32 in a cache line: all that a kernel needs of it in one stream.
 * 8 bits for all columns, 12 for the two quads with the largest magnitudes, so that the
 * other six set the scale: 16 top times a nibble is top times the nibble's byte moved
 * up by 4, one more product into the same sum (docs/design/kernel.md). */
struct ek_act_cell {
    _Alignas(64) int8_t base[EK_GROUP];
    int8_t top[2][4];   /* of the quads `at` */
    uint8_t at[2];      /* which quads, never the same: ek_act_at */
    float scale;        /* NaN where x held an infinity or NaN */
    float sum;          /* of v; exact, below 2^15 */
    int32_t less_8;     /* -8 sum: what a nibble's offset takes away */
    int32_t less_32[2]; /* -32 sum of columns 0..15 and of 16..31: of six bits */
};

/* Quad q of 0..7 as stored: bits 5..7; below them by how much bits of a nibble's byte
 * move left to stand in its upper half. */
static inline uint8_t ek_act_at(int q)
{
    return (uint8_t)(q << 5 | (q < 4 ? 4 : 0));
}

/* Where the codes of top i begin among a group's, a quad each 64 bytes. */
static inline int ek_act_code(const struct ek_act_cell *x, int i)
{
    return 2 * (x->at[i] & 0xe0);
}

/* The top of v in such a quad; base is v - 16 top. */
static inline int ek_act_top_of(int v)
{
    int top = (v + 8) >> 4;
    return top > 127 ? 127 : top < -127 ? -127 : top;
}

static inline int64_t ek_act_stride(enum ek_weight_format f, int64_t K)
{
    int64_t G = ek_weight_groups(K), Kp = G * EK_GROUP;
    if (f == EK_WEIGHT_F32)
        return Kp * 4;
    if (f == EK_WEIGHT_BF16 || f == EK_WEIGHT_E4M3)
        return Kp * 2;
    /* An odd number of lines: rows a multiple of 4096 apart would share L1's sets. */
    return (G | 1) * (int64_t)sizeof(struct ek_act_cell);
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

/* For the largest magnitude of a group, and of the quads without top. False where all
 * is zero; *scale is then NaN for an infinity or NaN. */
static inline bool ek_act_scale(float *scale, float *inv, float amax, float rest)
{
    bool is_finite = amax <= FLT_MAX;
    *scale = is_finite ? 0.0f : NAN;
    if (!is_finite || amax < EK_ACT_TINY)
        return false;
    /* v of both may reach its limit; the larger scale keeps the other below. */
    float wide = amax / EK_ACT_TOP, narrow = rest / EK_ACT_BASE;
    *scale = wide > narrow ? wide : narrow;
    *inv = wide > narrow ? EK_ACT_TOP / amax : EK_ACT_BASE / rest;
    return true;
}

/* The fields that follow from the scale and the sums of v[0..15] and of v[16..31]. */
static inline void ek_act_finish(struct ek_act_cell *cell, float scale, int32_t sum_0,
                                 int32_t sum_16)
{
    int32_t sum = sum_0 + sum_16;
    cell->scale = scale;
    cell->sum = (float)sum;
    cell->less_8 = -8 * sum;
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

/* EK_UNROLL before a loop over rows: unrolled early enough that an array of sums
 * becomes registers; left alone, gcc may store them all in every step (f32 in AVX2: 45
 * against 97 GFLOP/s). EK_UNROLL_GCC: where clang does so by itself and loses a quarter
 * by being told (integers in AVX-512).
 * EK_ROLLED before a loop over columns: kept a loop, where 16 registers would spill
 * otherwise. */
#ifdef __clang__
#define EK_UNROLL _Pragma("unroll")
#define EK_UNROLL_GCC
#define EK_ROLLED _Pragma("nounroll")
#else
#define EK_UNROLL     _Pragma("GCC unroll 8")
#define EK_UNROLL_GCC EK_UNROLL
#define EK_ROLLED     _Pragma("GCC unroll 1")
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
