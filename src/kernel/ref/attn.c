/* attn.c - the three inner steps of attention (attn_int.h) and the KV write, plain. */
#include "kernel/attn_int.h"
#include "kernel/ref/ref.h"
#include "num/float.h"
#include "num/quant.h"

#include <math.h>

static void load(float *dst, const void *src, enum ek_dtype t, int64_t n, int64_t D,
                 int64_t Dp)
{
    size_t bytes = (size_t)D * ek_dtype_block_bytes(t);
    for (int64_t j = 0; j < n; j++)
        ek_quant_to_f32(dst + j * Dp, t, (const char *)src + (size_t)j * bytes,
                        (size_t)D);
}

static void score(float *s, const float *q, const float *k, int64_t Pp, int64_t Dp)
{
    for (int64_t j = 0; j < Pp; j++) {
        float dot = 0;
        for (int64_t c = 0; c < Dp; c++)
            dot += q[c] * k[j * Dp + c];
        s[j] = dot;
    }
}

static void update(struct ek_attn_row *row, float *s, const float *v, int64_t j0,
                   int64_t j1, int64_t Pp, int64_t Dp, float scale, float softcap)
{
    (void)Pp;
    float m = *row->m, sum = 0;
    for (int64_t j = j0; j < j1; j++) {
        s[j] *= scale;
        if (softcap > 0)
            s[j] = softcap * tanhf(s[j] / softcap);
        m = s[j] > m ? s[j] : m;
    }
    float old = expf(*row->m - m); /* 0 for the first block */
    for (int64_t j = j0; j < j1; j++) {
        s[j] = expf(s[j] - m);
        sum += s[j];
    }
    *row->m = m;
    *row->l = *row->l * old + sum;
    for (int64_t c = 0; c < Dp; c++)
        row->acc[c] *= old;
    for (int64_t j = j0; j < j1; j++)
        for (int64_t c = 0; c < Dp; c++)
            row->acc[c] += s[j] * v[j * Dp + c];
}

void ek_ref_attn(float *out, int64_t ldo, const float *q, int64_t ldq,
                 const void *k_pool, const void *v_pool, const struct ek_attn_dims *d,
                 const struct ek_attn_seq *seqs, int64_t n_seqs, int64_t i0, int64_t i1,
                 void *scratch)
{
    static const struct ek_attn_steps steps = {
        .pad = 16, .load = load, .score = score, .update = update};
    struct ek_attn_args a = {out, q, k_pool, v_pool, d, seqs, ldo, ldq, n_seqs};
    ek_attn_run(&a, i0, i1, scratch, &steps);
}

/* One head of one token; returns the e4m3 values beyond the range. */
static int64_t write_head(void *pool, int64_t at, const float *x, int64_t D,
                          enum ek_dtype t, float scale)
{
    int64_t n_over = 0;
    if (t != EK_DTYPE_E4M3) {
        char *dst = (char *)pool + (size_t)(at * D) * ek_dtype_block_bytes(t);
        ek_quant_from_f32(dst, t, x, (size_t)D);
        return 0;
    }
    unsigned char *dst = (unsigned char *)pool + at * D;
    for (int64_t c = 0; c < D; c++) {
        float y = x[c] / scale;
        dst[c] = ek_f32_to_e4m3(y);
        n_over += fabsf(y) > EK_E4M3_MAX;
    }
    return n_over;
}

int64_t ek_ref_kv_write(void *k_pool, void *v_pool, const float *k, int64_t ldk,
                        const float *v, int64_t ldv, const int64_t *slot, int64_t t0,
                        int64_t t1, const struct ek_attn_dims *d)
{
    int64_t D = d->D, P = d->page_tokens, n_over = 0;
    for (int64_t t = t0; t < t1; t++) {
        int64_t page = slot[t] / P, token = slot[t] % P;
        for (int64_t h = 0; h < d->K; h++) {
            int64_t at = (page * d->K + h) * P + token;
            n_over += write_head(k_pool, at, k + t * ldk + h * D, D, d->kv_dtype,
                                 d->k_scale ? d->k_scale[h] : 1.0f);
            n_over += write_head(v_pool, at, v + t * ldv + h * D, D, d->kv_dtype,
                                 d->v_scale ? d->v_scale[h] : 1.0f);
        }
    }
    return n_over;
}
