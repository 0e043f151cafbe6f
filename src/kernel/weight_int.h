/* weight_int.h - where an element lies in a packed weight; for kernel/ alone.
 * Drawn in weight.c. Every function takes sizes that ek_weight_bytes accepted. */
#ifndef EVENKEEL_KERNEL_WEIGHT_INT_H
#define EVENKEEL_KERNEL_WEIGHT_INT_H

#include "kernel/weight.h"

#define EK_E4M3_BLOCK 128 /* rows and columns that share an f32 scale */

static inline int64_t ek_ceil_div(int64_t n, int64_t d)
{
    return (n + d - 1) / d;
}

static inline int64_t ek_weight_groups(int64_t K)
{
    return ek_ceil_div(K, EK_GROUP);
}

#define EK_I8_CELL  1088 /* bytes of two groups of a panel: d, d, codes, codes */
#define EK_I6_CELL  3392 /* bytes of eight groups of a panel: d, s, codes */
#define EK_I4_CELL  320  /* bytes of one group of a panel: d, m, nibbles */
#define EK_I4S_CELL 576  /* bytes of two groups of a panel: d, d, nibbles, nibbles */

/* Bytes of one panel of G groups; a multiple of 64. */
static inline int64_t ek_panel_bytes(enum ek_weight_format f, int64_t G)
{
    switch (f) {
    case EK_WEIGHT_F32:
        return G * EK_GROUP * EK_PANEL * 4;
    case EK_WEIGHT_BF16:
        return G * EK_GROUP * EK_PANEL * 2;
    case EK_WEIGHT_E4M3:
        return G * EK_GROUP * EK_PANEL;
    case EK_WEIGHT_I8:
        return ek_ceil_div(G, 2) * EK_I8_CELL;
    case EK_WEIGHT_I6:
        return ek_ceil_div(G, 8) * EK_I6_CELL;
    case EK_WEIGHT_I4:
        return G * EK_I4_CELL;
    case EK_WEIGHT_I4S:
        return ek_ceil_div(G, 2) * EK_I4S_CELL;
    case EK_WEIGHT_COUNT:
        break;
    }
    return 0;
}

static inline unsigned char *ek_weight_panel(const struct ek_weight *w, int64_t p)
{
    return (unsigned char *)w->data +
           p * ek_panel_bytes(w->format, ek_weight_groups(w->K));
}

/* The codes and the 16 f16 scales of group g of an I8 panel. */
static inline unsigned char *ek_i8_codes(const unsigned char *panel, int64_t g)
{
    return (unsigned char *)(uintptr_t)panel + g / 2 * EK_I8_CELL + 64 + g % 2 * 512;
}

static inline unsigned char *ek_i8_scales(const unsigned char *panel, int64_t g)
{
    return (unsigned char *)(uintptr_t)panel + g / 2 * EK_I8_CELL + g % 2 * 32;
}

/* The cell of group g of an I6 panel, in which 16 f32 d and 16 times 16 i8 s come
 * first; the s of group g's 16 columns from 16 half on; and its codes: 256 bytes of low
 * nibbles, 128 of high bits. */
static inline unsigned char *ek_i6_cell(const unsigned char *panel, int64_t g)
{
    return (unsigned char *)(uintptr_t)panel + g / 8 * EK_I6_CELL;
}

static inline unsigned char *ek_i6_scales(const unsigned char *panel, int64_t g,
                                          int half)
{
    return ek_i6_cell(panel, g) + 64 + (g % 8 * 2 + half) * 16;
}

static inline unsigned char *ek_i6_codes(const unsigned char *panel, int64_t g)
{
    return ek_i6_cell(panel, g) + 320 + g % 8 * 384;
}

/* Row r of an I6 panel, in weight_i6.c: packed from K columns at src in format t (F32,
 * Q3_K, Q6_K; these at any address), and its group g back as v[32]. */
void ek_i6_put_row(unsigned char *panel, int r, enum ek_dtype t, const void *src,
                   int64_t K);
void ek_i6_get(float *v, const unsigned char *panel, int64_t g, int r);

/* The nibbles and the 16 f16 scales of group g of an I4S panel. */
static inline unsigned char *ek_i4s_codes(const unsigned char *panel, int64_t g)
{
    return (unsigned char *)(uintptr_t)panel + g / 2 * EK_I4S_CELL + 64 + g % 2 * 256;
}

static inline unsigned char *ek_i4s_scales(const unsigned char *panel, int64_t g)
{
    return (unsigned char *)(uintptr_t)panel + g / 2 * EK_I4S_CELL + g % 2 * 32;
}

/* Element (row r, column k) of a group: index into the group's elements. */
static inline int ek_at_f32(int r, int k)
{
    return k * EK_PANEL + r;
}

static inline int ek_at_bf16(int r, int k)
{
    return (k / 2 * EK_PANEL + r) * 2 + k % 2;
}

static inline int ek_at_e4m3(int r, int k)
{
    return k / 4 * 64 + r / 4 * 16 + k / 2 % 2 * 8 + r % 4 * 2 + k % 2;
}

static inline int ek_at_i8(int r, int k)
{
    return k / 4 * 64 + r * 4 + k % 4;
}

/* Byte of the nibble, I4, I4S and I6; columns 16..31 are the high nibbles. */
static inline int ek_at_i4(int r, int k)
{
    return k % 16 / 4 * 64 + r * 4 + k % 4;
}

/* Byte of the high bits in I6, which stand at bits ek_i6_shift and one above. */
static inline int ek_at_i6(int r, int k)
{
    return 256 + k / 16 * 64 + r * 4 + k % 4;
}

static inline int ek_i6_shift(int k)
{
    return k % 16 / 4 * 2;
}

#endif
