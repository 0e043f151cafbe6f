/* attn.c - the inner steps of attention (attn_int.h), plain. */
#include "kernel/attn_int.h"
#include "kernel/ref/ref.h"
#include "num/float.h"
#include "num/quant.h"

#include <math.h>

/* The forms: q, keys and values in f32, a token's columns together; p, m in the units
 * of the formula; columns in their order. */

static void query(const struct ek_attn_block *b, int64_t r, const float *q)
{
    for (int64_t c = 0; c < b->D; c++)
        b->q[r * EK_ATTN_Q * b->Dp + c] =
            b->t == EK_DTYPE_E4M3 ? ek_bf16_to_f32(ek_f32_to_bf16(q[c])) : q[c];
}

/* Tokens [j0,j1) of the block. */
static void load(const struct ek_attn_block *b, const unsigned char *const strips[])
{
    size_t bytes = (size_t)b->D * ek_dtype_block_bytes(b->t);
    for (int64_t j = b->j0; j < b->j1; j++)
        ek_quant_to_f32(b->x + j * b->Dp, b->t,
                        strips[j / EK_ATTN_STRIP] + (size_t)(j % EK_ATTN_STRIP) * bytes,
                        (size_t)b->D);
}

static void keys(const struct ek_attn_block *b)
{
    load(b, b->k);
}

static void values(const struct ek_attn_block *b)
{
    load(b, b->v);
}

static float score_of(const struct ek_attn_block *b, int64_t r, int64_t j)
{
    float dot = 0;
    for (int64_t c = 0; c < b->D; c++)
        dot += b->q[r * EK_ATTN_Q * b->Dp + c] * b->x[j * b->Dp + c];
    dot *= b->scale;
    return b->softcap > 0 ? b->softcap * tanhf(dot / b->softcap) : dot;
}

static void score(const struct ek_attn_block *b, const struct ek_attn_rows *g)
{
    for (int64_t r = g->r; r < g->r + g->R; r++) {
        float *p = b->p + r * EK_ATTN_BLOCK, m = b->m[r], sum = 0;
        for (int64_t j = g->j0; j < g->j1; j++) {
            p[j] = score_of(b, r, j);
            m = p[j] > m ? p[j] : m;
        }
        for (int64_t j = g->j0; j < g->j1; j++) {
            p[j] = expf(p[j] - m);
            sum += p[j];
        }
        b->old[r] = expf(b->m[r] - m); /* 0 for the first block */
        b->l[r * EK_ATTN_LANES] = b->l[r * EK_ATTN_LANES] * b->old[r] + sum;
        b->m[r] = m;
    }
}

static void value(const struct ek_attn_block *b, const struct ek_attn_rows *g)
{
    for (int64_t r = g->r; r < g->r + g->R; r++) {
        float *acc = b->acc + r * b->Dp;
        for (int64_t c = 0; c < b->D; c++)
            acc[c] *= b->old[r];
        for (int64_t j = g->j0; j < g->j1; j++)
            for (int64_t c = 0; c < b->D; c++)
                acc[c] += b->p[r * EK_ATTN_BLOCK + j] * b->x[j * b->Dp + c];
    }
}

static float total(const float *l)
{
    return l[0];
}

static void merge(float *sum, const float *acc, float m, float l, int64_t Dp)
{
    float top = sum[0] > m ? sum[0] : m;
    float old = expf(sum[0] - top), new = expf(m - top);
    for (int64_t c = 0; c < Dp; c++)
        sum[EK_ATTN_HEAD + c] = sum[EK_ATTN_HEAD + c] * old + acc[c] * new;
    sum[0] = top;
    sum[1] = sum[1] * old + l * new;
}

static void finish(float *out, const float *acc, int64_t D, enum ek_dtype t,
                   float factor)
{
    (void)t;
    for (int64_t c = 0; c < D; c++)
        out[c] = acc[c] * factor;
}

static const struct ek_attn_steps steps = {.query = query,
                                           .keys = keys,
                                           .score = score,
                                           .values = values,
                                           .value = value,
                                           .total = total,
                                           .merge = merge,
                                           .finish = finish};

void ek_ref_attn(const struct ek_attn_args *a, int64_t i0, int64_t i1, int64_t step,
                 void *scratch)
{
    ek_attn_run(a, i0, i1, step, scratch, &steps);
}

void ek_ref_attn_merge(const struct ek_attn_args *a, int64_t t0, int64_t t1,
                       void *scratch)
{
    ek_attn_join(a, t0, t1, scratch, &steps);
}
