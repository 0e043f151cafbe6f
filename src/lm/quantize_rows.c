/* quantize_rows.c - rows of a matrix rounded to a format, with what that cost.
 *
 * The codes are read back from the bytes that were made of them, so that the error told
 * is that of what a loader will see. A member works on rows of its own; the sums are
 * kept a row and added in order, so that no figure depends on the team.
 */
#include "base/mem.h"
#include "lm/quantize_int.h"
#include "num/float.h"
#include "num/int4.h"
#include "num/quant.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define BLOCK 128

/* A member's scratch. */
struct work {
    float *x, *w; /* (K) a row, and what it was rounded to */
    float *peak;  /* (ceil(K/128)) fp8: of a block */
};

static int64_t blocks_of(int64_t K)
{
    return (K + BLOCK - 1) / BLOCK;
}

size_t ek_slab_scratch(int64_t K)
{
    return ((size_t)(2 * K + blocks_of(K)) + 15) & ~(size_t)15;
}

static unsigned char *codes_of(const struct ek_slab *z, int64_t r)
{
    const struct ek_tensor *t = &z->item->part[EK_PART_CODES];
    return z->codes + (size_t)(r - z->r0) * (t->bytes / (size_t)z->item->src.rows);
}

static void add_error(const struct ek_slab *z, int64_t r, const struct work *k)
{
    double *s = z->sums + (r - z->r0) * 4;
    memset(s, 0, 4 * sizeof *s);
    for (int64_t i = 0; i < z->item->src.cols; i++) {
        double x = (double)k->x[i], e = x - (double)k->w[i];
        double v = z->weights ? (double)z->weights[i] : 1.0;
        s[0] += e * e;
        s[1] += x * x;
        s[2] += v * e * e;
        s[3] += v * x * x;
    }
}

/* GGUF's 4-bit blocks: the scale, the minimum if it has one, then pairs (j, j+16). */
static void put_q4(unsigned char *out, const struct ek_int4 *g, bool has_min)
{
    uint16_t d = ek_f32_to_f16(g->d), m = ek_f32_to_f16(g->m);
    memcpy(out, &d, 2);
    if (has_min)
        memcpy(out + 2, &m, 2);
    out += has_min ? 4 : 2;
    for (int j = 0; j < 16; j++)
        out[j] = (unsigned char)(g->q[j] | g->q[j + 16] << 4);
}

static void round_q4(const struct ek_slab *z, int64_t r, const struct work *k)
{
    bool has_min = z->item->made == EK_MADE_Q4_1;
    unsigned char *out = codes_of(z, r);
    struct ek_int4 g;
    for (int64_t c = 0; c < z->item->src.cols; c += 32, out += has_min ? 20 : 18) {
        ek_int4_fit(&g, has_min ? EK_INT4_Q4_1 : EK_INT4_Q4_0, k->x + c,
                    z->weights ? z->weights + c : NULL);
        put_q4(out, &g, has_min);
    }
    ek_quant_to_f32(k->w, has_min ? EK_DTYPE_Q4_1 : EK_DTYPE_Q4_0, codes_of(z, r),
                    (size_t)z->item->src.cols);
}

/* compressed-tensors: 8 codes a word, low nibble first; zeros alike, along the rows. */
static void round_packed(const struct ek_slab *z, int64_t r, const struct work *k)
{
    bool has_zero = z->item->made == EK_MADE_ZERO;
    unsigned char *out = codes_of(z, r);
    int64_t K = z->item->src.cols, n = K / 32;
    struct ek_int4 g;
    for (int64_t c = 0; c < K; c += 32, out += 16) {
        ek_int4_fit(&g, has_zero ? EK_INT4_ZERO : EK_INT4_SYM, k->x + c,
                    z->weights ? z->weights + c : NULL);
        uint16_t d = ek_f32_to_bf16(g.d);
        memcpy(z->scale + 2 * (r * n + c / 32), &d, 2);
        if (has_zero) {
            unsigned char *word = z->zero + 4 * (r / 8 * n + c / 32) + r % 8 / 2;
            *word = (unsigned char)(*word | g.zero << 4 * (r % 2));
        }
        for (int j = 0; j < 16; j++)
            out[j] = (unsigned char)(g.q[2 * j] | g.q[2 * j + 1] << 4);
        for (int j = 0; j < 32; j++)
            k->w[c + j] = g.d * (float)(g.q[j] - g.zero);
    }
}

/* The scale of each block of rows [r0,r1), at most 128: amax / 448. */
static void scale_blocks(const struct ek_slab *z, int64_t r0, int64_t r1,
                         const struct work *k)
{
    int64_t K = z->item->src.cols, n = blocks_of(K);
    for (int64_t b = 0; b < n; b++)
        k->peak[b] = 0;
    for (int64_t r = r0; r < r1; r++) {
        ek_source_read(k->x, &z->item->src, r, r + 1);
        for (int64_t i = 0; i < K; i++)
            k->peak[i / BLOCK] = fmaxf(k->peak[i / BLOCK], fabsf(k->x[i]));
    }
    for (int64_t b = 0; b < n; b++) {
        float scale = k->peak[b] / EK_E4M3_MAX;
        if (scale < 0x1p-120f) /* its inverse must stay finite; such a block is zero */
            scale = 1.0f;
        k->peak[b] = scale;
        memcpy(z->scale + 4 * (r0 / BLOCK * n + b), &scale, 4);
    }
}

static void round_fp8(const struct ek_slab *z, int64_t r, const struct work *k)
{
    unsigned char *out = codes_of(z, r);
    for (int64_t i = 0; i < z->item->src.cols; i++) {
        float scale = k->peak[i / BLOCK];
        out[i] = ek_f32_to_e4m3(k->x[i] / scale);
        k->w[i] = scale * ek_e4m3_to_f32(out[i]);
    }
}

static void round_plain(const struct ek_slab *z, int64_t r, const struct work *k)
{
    enum ek_dtype t = z->item->part[EK_PART_CODES].dtype;
    size_t K = (size_t)z->item->src.cols;
    ek_quant_from_f32(codes_of(z, r), t, k->x, K);
    ek_quant_to_f32(k->w, t, codes_of(z, r), K);
}

static void round_rows(const struct ek_slab *z, int64_t r0, int64_t r1,
                       const struct work *k)
{
    enum ek_made made = z->item->made;
    if (made == EK_MADE_FP8)
        scale_blocks(z, r0, r1, k);
    for (int64_t r = r0; r < r1; r++) {
        ek_source_read(k->x, &z->item->src, r, r + 1);
        if (made == EK_MADE_FP8)
            round_fp8(z, r, k);
        else if (made == EK_MADE_Q4_0 || made == EK_MADE_Q4_1)
            round_q4(z, r, k);
        else if (made == EK_MADE_SYM || made == EK_MADE_ZERO)
            round_packed(z, r, k);
        else
            round_plain(z, r, k);
        add_error(z, r, k);
    }
}

struct crew {
    struct ek_slab *z;
    struct {
        const struct ek_tensor *t;
        size_t at;
    } bad[256]; /* what a member found that is no number */
};

static void round_member(void *arg, int member, int n_members)
{
    struct crew *c = arg;
    const struct ek_slab *z = c->z;
    int64_t K = z->item->src.cols, lo, hi;
    /* Zero points of 8 rows share a word, scales of 128 rows an fp8 block. */
    int64_t grain = z->item->made == EK_MADE_FP8 ? BLOCK : 8;
    float *scratch = z->scratch + (size_t)member * ek_slab_scratch(K);
    struct work k = {scratch, scratch + K, scratch + 2 * K};
    ek_team_share(&lo, &hi, z->r1 - z->r0, grain, member, n_members);
    c->bad[member].t = NULL;
    for (int64_t r = z->r0 + lo; r < z->r0 + hi; r += grain) {
        int64_t end = r + grain < z->r0 + hi ? r + grain : z->r0 + hi;
        if (!ek_source_check(&z->item->src, r, end, &c->bad[member].t,
                             &c->bad[member].at))
            return;
        round_rows(z, r, end, &k);
    }
}

void ek_slab_round(struct ek_slab *z, struct ek_team *team)
{
    struct crew c = {.z = z};
    assert(ek_team_size(team) <= 256 && z->r0 % EK_SLAB_GRAIN == 0);
    ek_team_run(team, round_member, &c);
    z->bad = NULL;
    for (int i = 0; i < ek_team_size(team) && !z->bad; i++) {
        z->bad = c.bad[i].t;
        z->bad_at = c.bad[i].at;
    }
}
