/* weight_pack.c - rows of a file into the panels drawn in weight.c.
 *
 * Where the file's codes are the format's codes they are moved unchanged: q4_0 to I4S,
 * q4_0, q4_1, q4_k to I4, q3_k and q6_k to I6 (weight_i6.c), q8_0 and q5_0 to I8, bf16
 * to BF16, e4m3 to E4M3. Everything else goes through f32 and is rounded to nearest, by
 * group of 32 (I6: of 16; E4M3: by block of 128x128).
 */
#include "kernel/weight_int.h"
#include "num/float.h"
#include "num/quant.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* One row of the source and the place of one row in a panel. */
struct row {
    const unsigned char *src; /* in format t */
    const float *f32;         /* the same as f32; NULL where codes are moved */
    unsigned char *panel;
    int64_t K, G;
    enum ek_dtype t;
    int r; /* row in the panel */
};

static uint16_t load_u16(const unsigned char *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

/* To f16 without leaving its range: a scale must stay finite. */
static uint16_t scale_f16(float x)
{
    return ek_f32_to_f16(x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x);
}

/* v[32] = group g of the row, zeros behind its end. */
static void group_f32(float v[EK_GROUP], const struct row *a, int64_t g)
{
    for (int k = 0; k < EK_GROUP; k++) {
        int64_t c = g * EK_GROUP + k;
        v[k] = c < a->K ? a->f32[c] : 0.0f;
    }
}

static void put_f32(const struct row *a, int64_t g)
{
    float v[EK_GROUP], *out = (float *)(void *)a->panel + g * EK_GROUP * EK_PANEL;
    group_f32(v, a, g);
    for (int k = 0; k < EK_GROUP; k++)
        out[ek_at_f32(a->r, k)] = v[k];
}

static void put_bf16(const struct row *a, int64_t g)
{
    uint16_t *out = (uint16_t *)(void *)a->panel + g * EK_GROUP * EK_PANEL;
    uint16_t x[EK_GROUP] = {0};
    float v[EK_GROUP];
    if (a->f32)
        group_f32(v, a, g);
    for (int k = 0; a->f32 && k < EK_GROUP; k++)
        x[k] = ek_f32_to_bf16(v[k]);
    int64_t n = a->K - g * EK_GROUP;
    if (!a->f32)
        memcpy(x, a->src + g * EK_GROUP * 2, 2 * (size_t)(n < EK_GROUP ? n : EK_GROUP));
    for (int k = 0; k < EK_GROUP; k += 2)
        memcpy(out + ek_at_bf16(a->r, k), x + k, 4);
}

static void i8_store(const struct row *a, int64_t g, const int8_t q[EK_GROUP],
                     uint16_t d)
{
    unsigned char *codes = ek_i8_codes(a->panel, g), u[EK_GROUP];
    ((uint16_t *)(void *)ek_i8_scales(a->panel, g))[a->r] = d;
    for (int k = 0; k < EK_GROUP; k++)
        u[k] = (unsigned char)(q[k] + 128);
    for (int k = 0; k < EK_GROUP; k += 4)
        memcpy(codes + ek_at_i8(a->r, k), u + k, 4);
}

/* The scale with which an mxfp4 group's codes, 0 to +-12, stay; else the next best. */
static uint16_t mxfp4_scale(const struct row *a, int64_t g, uint16_t other)
{
    float d = 0.5f * ek_e8m0_to_f32(a->src[g * 17]);
    return d >= 0x1p-24f && d <= 0x1p15f ? ek_f32_to_f16(d) : other;
}

static void put_i8(const struct row *a, int64_t g)
{
    int8_t q[EK_GROUP];
    if (a->t == EK_DTYPE_Q8_0) {
        const unsigned char *block = a->src + g * 34;
        memcpy(q, block + 2, EK_GROUP);
        i8_store(a, g, q, load_u16(block));
        return;
    }
    float v[EK_GROUP], amax = 0;
    group_f32(v, a, g);
    for (int k = 0; k < EK_GROUP; k++)
        amax = fabsf(v[k]) > amax ? fabsf(v[k]) : amax;
    uint16_t d = scale_f16(amax / 127.0f);
    if (a->t == EK_DTYPE_Q5_0)
        d = load_u16(a->src + g * 22); /* its codes -16..15 fit */
    if (a->t == EK_DTYPE_IQ4_NL)
        d = load_u16(a->src + g * 18); /* its codes -127..113 fit */
    if (a->t == EK_DTYPE_MXFP4)
        d = mxfp4_scale(a, g, d);
    float scale = ek_f16_to_f32(d), inv = scale != 0 ? 1.0f / scale : 0.0f;
    for (int k = 0; k < EK_GROUP; k++) {
        float x = rintf(v[k] * inv);
        q[k] = (int8_t)(x > 127 ? 127 : x < -127 ? -127 : x);
    }
    i8_store(a, g, q, d);
}

/* The bytes q[k] | q[k + 16] << 4 of a row, as q4_0 and q4_1 hold them, into place. */
static void i4_place(unsigned char *codes, int r, const unsigned char bytes[16])
{
    for (int k = 0; k < 16; k += 4)
        memcpy(codes + ek_at_i4(r, k), bytes + k, 4);
}

static void i4_join(unsigned char bytes[16], const uint8_t q[EK_GROUP])
{
    for (int k = 0; k < 16; k++)
        bytes[k] = (unsigned char)(q[k] | q[k + 16] << 4);
}

static void i4_store_bytes(const struct row *a, int64_t g, const unsigned char *bytes,
                           uint16_t d, uint16_t m)
{
    unsigned char *cell = a->panel + g * EK_I4_CELL;
    uint16_t *dm = (uint16_t *)(void *)cell;
    dm[a->r] = d;
    dm[EK_PANEL + a->r] = m;
    i4_place(cell + 64, a->r, bytes);
}

static void i4_store(const struct row *a, int64_t g, const uint8_t q[EK_GROUP],
                     uint16_t d, uint16_t m)
{
    unsigned char bytes[16];
    i4_join(bytes, q);
    i4_store_bytes(a, g, bytes, d, m);
}

/* d and m of group g of a q4_k row, and its codes. */
static void i4_from_q4_k(const struct row *a, int64_t g)
{
    const unsigned char *block = a->src + g / 8 * 144, *s = block + 4;
    int j = (int)(g % 8), scale, min;
    if (j < 4) {
        scale = s[j] & 63;
        min = s[j + 4] & 63;
    } else {
        scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        min = s[j + 4] >> 4 | (s[j] >> 6) << 4;
    }
    uint8_t q[EK_GROUP];
    for (int k = 0; k < EK_GROUP; k++)
        q[k] = block[16 + j / 2 * 32 + k] >> 4 * (j % 2) & 15;
    i4_store(a, g, q, scale_f16(ek_f16_to_f32(load_u16(block)) * (float)scale),
             scale_f16(-ek_f16_to_f32(load_u16(block + 2)) * (float)min));
}

static void i4_from_f32(const struct row *a, int64_t g)
{
    float v[EK_GROUP];
    group_f32(v, a, g);
    /* The range of the real columns; padding behind K must not widen it. */
    int64_t n = a->K - g * EK_GROUP < EK_GROUP ? a->K - g * EK_GROUP : EK_GROUP;
    float lo = v[0], hi = v[0];
    for (int64_t k = 1; k < n; k++) {
        lo = v[k] < lo ? v[k] : lo;
        hi = v[k] > hi ? v[k] : hi;
    }
    uint16_t d = scale_f16((hi - lo) / 15.0f), m = scale_f16(lo);
    float scale = ek_f16_to_f32(d), min = ek_f16_to_f32(m);
    float inv = scale != 0 ? 1.0f / scale : 0.0f;
    uint8_t q[EK_GROUP];
    for (int k = 0; k < EK_GROUP; k++) {
        float x = rintf((v[k] - min) * inv);
        q[k] = (uint8_t)(x > 15 ? 15 : x < 0 ? 0 : x);
    }
    i4_store(a, g, q, d, m);
}

static void put_i4(const struct row *a, int64_t g)
{
    if (a->t == EK_DTYPE_Q4_K) {
        i4_from_q4_k(a, g);
    } else if (a->t == EK_DTYPE_Q4_1) {
        const unsigned char *block = a->src + g * 20;
        i4_store_bytes(a, g, block + 4, load_u16(block), load_u16(block + 2));
    } else if (a->t == EK_DTYPE_Q4_0) {
        /* symmetric: d (q - 8) = d q + m with m = -8 d, exact but for overflow */
        const unsigned char *block = a->src + g * 18;
        uint16_t d = load_u16(block);
        i4_store_bytes(a, g, block + 2, d, scale_f16(-8.0f * ek_f16_to_f32(d)));
    } else {
        i4_from_f32(a, g);
    }
}

/* The largest magnitude becomes code 0 or 16 cut to 15, as in q4_0: a step finer than
 * with codes of -7..7. */
static uint16_t i4s_from_f32(uint8_t q[EK_GROUP], const struct row *a, int64_t g)
{
    float v[EK_GROUP], top = 0;
    group_f32(v, a, g);
    for (int k = 0; k < EK_GROUP; k++)
        top = fabsf(v[k]) > fabsf(top) ? v[k] : top;
    uint16_t d = scale_f16(top / -8.0f);
    float scale = ek_f16_to_f32(d), inv = scale != 0 ? 1.0f / scale : 0.0f;
    for (int k = 0; k < EK_GROUP; k++) {
        float x = rintf(v[k] * inv) + 8.0f;
        q[k] = (uint8_t)(x > 15 ? 15 : x < 0 ? 0 : x);
    }
    return d;
}

/* tq1_0, tq2_0: -1, 0, 1 (tq2_0 could say 2) times the block's scale, which stays. */
static uint16_t i4s_from_ternary(uint8_t q[EK_GROUP], const struct row *a, int64_t g)
{
    int64_t size = (int64_t)ek_dtype_block_bytes(a->t);
    uint16_t d = load_u16(a->src + g / 8 * size + size - 2);
    float v[EK_GROUP], scale = ek_f16_to_f32(d);
    group_f32(v, a, g);
    for (int k = 0; k < EK_GROUP; k++)
        q[k] = (uint8_t)(8 + (scale != 0 ? (int)(v[k] / scale) : 0));
    return d;
}

static void put_i4s(const struct row *a, int64_t g)
{
    unsigned char bytes[16];
    const unsigned char *codes = bytes;
    uint16_t d;
    if (a->t == EK_DTYPE_Q4_0) {
        const unsigned char *block = a->src + g * 18;
        d = load_u16(block);
        codes = block + 2;
    } else {
        bool is_ternary = a->t == EK_DTYPE_TQ1_0 || a->t == EK_DTYPE_TQ2_0;
        uint8_t q[EK_GROUP];
        d = is_ternary ? i4s_from_ternary(q, a, g) : i4s_from_f32(q, a, g);
        i4_join(bytes, q);
    }
    ((uint16_t *)(void *)ek_i4s_scales(a->panel, g))[a->r] = d;
    i4_place(ek_i4s_codes(a->panel, g), a->r, codes);
}

/* Whether codes of type t go into format f without passing f32. */
static bool is_moved(enum ek_weight_format f, enum ek_dtype t)
{
    switch (f) {
    case EK_WEIGHT_BF16:
        return t == EK_DTYPE_BF16;
    case EK_WEIGHT_E4M3:
        return t == EK_DTYPE_E4M3;
    case EK_WEIGHT_I8:
        return t == EK_DTYPE_Q8_0;
    case EK_WEIGHT_I6:
        return t == EK_DTYPE_Q3_K || t == EK_DTYPE_Q6_K;
    case EK_WEIGHT_I4:
        return t == EK_DTYPE_Q4_0 || t == EK_DTYPE_Q4_1 || t == EK_DTYPE_Q4_K;
    case EK_WEIGHT_I4S:
        return t == EK_DTYPE_Q4_0;
    default:
        return false;
    }
}

typedef void put_fn(const struct row *a, int64_t g);

static put_fn *const puts_of[EK_WEIGHT_COUNT] = {
    [EK_WEIGHT_F32] = put_f32, [EK_WEIGHT_BF16] = put_bf16, [EK_WEIGHT_I8] = put_i8,
    [EK_WEIGHT_I4] = put_i4,   [EK_WEIGHT_I4S] = put_i4s,
};

/* The panel that begins at row n0: n_rows <= 16 rows from `rows`, zeros below. */
static void pack_panel(struct ek_weight *w, int64_t n0, int n_rows, enum ek_dtype t,
                       const unsigned char *rows, size_t row_bytes, float *scratch)
{
    int64_t G = ek_weight_groups(w->K);
    struct row a = {
        .panel = ek_weight_panel(w, n0 / EK_PANEL), .K = w->K, .G = G, .t = t};
    assert((unsigned)w->format < EK_WEIGHT_COUNT);
    put_fn *put = puts_of[w->format];
    assert(put || w->format == EK_WEIGHT_I6); /* E4M3 goes by blocks, not by panels */
    memset(a.panel, 0, (size_t)ek_panel_bytes(w->format, G));
    for (int64_t g = 0; w->format == EK_WEIGHT_I8 && g < (G + 1) / 2 * 2; g++)
        memset(ek_i8_codes(a.panel, g), 128, 512);
    for (a.r = 0; a.r < n_rows; a.r++) {
        a.src = rows + (size_t)a.r * row_bytes;
        bool moves = is_moved(w->format, t);
        if (!moves) {
            assert(scratch);
            ek_quant_to_f32(scratch, t, a.src, (size_t)w->K);
            a.f32 = scratch;
        }
        if (w->format == EK_WEIGHT_I6) {
            ek_i6_put_row(a.panel, a.r, moves ? t : EK_DTYPE_F32,
                          moves ? (const void *)a.src : scratch, w->K);
            continue;
        }
        for (int64_t g = 0; g < G; g++)
            put(&a, g);
    }
}

/* Codes [k0,k1) of row n, k0 a multiple of 32. */
static void store_e4m3(struct ek_weight *w, int64_t n, int64_t k0, int64_t k1,
                       const uint8_t *codes)
{
    unsigned char *panel = ek_weight_panel(w, n / EK_PANEL);
    int r = (int)(n % EK_PANEL);
    for (int64_t k = k0; k < k1; k += 2) {
        unsigned char *group = panel + k / EK_GROUP * EK_GROUP * EK_PANEL;
        memcpy(group + ek_at_e4m3(r, (int)(k % EK_GROUP)), codes + (k - k0),
               k1 - k < 2 ? 1 : 2);
    }
}

/* Block (n0, k0) of at most 128x128 from x (n_rows,K): one scale, then the codes. */
static void round_e4m3_block(struct ek_weight *w, int64_t n0, int64_t n_rows,
                             int64_t k0, const float *x)
{
    int64_t K = w->K, k1 = k0 + EK_E4M3_BLOCK < K ? k0 + EK_E4M3_BLOCK : K;
    float amax = 0;
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t k = k0; k < k1; k++)
            amax = fabsf(x[r * K + k]) > amax ? fabsf(x[r * K + k]) : amax;
    float scale = amax / EK_E4M3_MAX;
    if (scale < 0x1p-120f) /* its inverse must stay finite; such a block is zero */
        scale = 1.0f;
    int64_t at =
        n0 / EK_E4M3_BLOCK * ek_ceil_div(K, EK_E4M3_BLOCK) + k0 / EK_E4M3_BLOCK;
    ek_weight_block_scales(w)[at] = scale;
    for (int64_t r = 0; r < n_rows; r++) {
        uint8_t codes[EK_E4M3_BLOCK];
        for (int64_t k = k0; k < k1; k++)
            codes[k - k0] = ek_f32_to_e4m3(x[r * K + k] / scale);
        store_e4m3(w, n0 + r, k0, k1, codes);
    }
}

/* Rows [n0, n0+n_rows), at most 128 and beginning a block. */
static void pack_e4m3(struct ek_weight *w, int64_t n0, int64_t n_rows, enum ek_dtype t,
                      const unsigned char *rows, size_t row_bytes, float *scratch)
{
    int64_t K = w->K, panel_bytes = ek_panel_bytes(w->format, ek_weight_groups(K));
    memset(ek_weight_panel(w, n0 / EK_PANEL), 0,
           (size_t)(ek_ceil_div(n_rows, EK_PANEL) * panel_bytes));
    if (t == EK_DTYPE_E4M3) {
        int64_t n_blocks = ek_ceil_div(K, EK_E4M3_BLOCK);
        float *scales = ek_weight_block_scales(w) + n0 / EK_E4M3_BLOCK * n_blocks;
        for (int64_t b = 0; b < n_blocks; b++)
            scales[b] = 1.0f;
        for (int64_t r = 0; r < n_rows; r++)
            store_e4m3(w, n0 + r, 0, K, rows + (size_t)r * row_bytes);
        return;
    }
    assert(scratch);
    for (int64_t r = 0; r < n_rows; r++)
        ek_quant_to_f32(scratch + r * K, t, rows + (size_t)r * row_bytes, (size_t)K);
    for (int64_t k0 = 0; k0 < K; k0 += EK_E4M3_BLOCK)
        round_e4m3_block(w, n0, n_rows, k0, scratch);
}

void ek_weight_pack(struct ek_weight *w, int64_t n0, int64_t n1, enum ek_dtype t,
                    const void *rows, size_t row_bytes, float *scratch)
{
    const unsigned char *src = rows;
    bool is_e4m3 = w->format == EK_WEIGHT_E4M3;
    int64_t step = is_e4m3 ? EK_E4M3_BLOCK : EK_PANEL;
    assert(n0 % step == 0 && (n1 % step == 0 || n1 == w->N));
    for (int64_t n = n0; n < n1; n += step, src += (size_t)step * row_bytes) {
        int64_t n_rows = n1 - n < step ? n1 - n : step;
        if (is_e4m3)
            pack_e4m3(w, n, n_rows, t, src, row_bytes, scratch);
        else
            pack_panel(w, n, (int)n_rows, t, src, row_bytes, scratch);
    }
}
