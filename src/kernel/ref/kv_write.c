/* kv_write.c - the rotation, and new keys and values into their pages, in plain C. */
#include "kernel/ref/ref.h"
#include "num/float.h"
#include "num/quant.h"

#include <math.h>

static void rotate_block(float *x, int64_t n)
{
    for (int64_t step = 1; step < n; step *= 2)
        for (int64_t i = 0; i < n; i += 2 * step)
            for (int64_t j = i; j < i + step; j++) {
                float a = x[j], b = x[j + step];
                x[j] = a + b;
                x[j + step] = a - b;
            }
    float scale = 1.0f / sqrtf((float)n);
    for (int64_t i = 0; i < n; i++)
        x[i] *= scale;
}

void ek_ref_rotate(float *x, int64_t ldx, int64_t T, int64_t heads, int64_t D)
{
    int64_t n = D & -D;
    for (int64_t t = 0; t < T; t++)
        for (int64_t i = 0; i < heads * D; i += n)
            rotate_block(x + t * ldx + i, n);
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

/* One e4m3 key against the sum of its g queries. */
static int64_t write_key(uint8_t *dst, const float *k, const float *q, int64_t g,
                         int64_t D, float scale)
{
    float sum[EK_HEAD_DIM_MAX], weight[EK_HEAD_DIM_MAX] = {0}, r = 0, rest = 0;
    int64_t n_over = 0;
    for (int64_t c = 0; c < D; c++) {
        sum[c] = q[c];
        for (int64_t h = 1; h < g; h++)
            sum[c] += q[h * D + c];
    }
    for (int64_t c = D - 1; c >= 0; c--) {
        rest += sum[c] * sum[c];
        weight[c] = rest;
    }
    float lambda = EK_KV_LAMBDA / (float)D * rest + EK_KV_TINY;
    for (int64_t c = 0; c < D; c++) {
        float y = k[c] / scale;
        float x = y + r * (sum[c] / (lambda + weight[c]));
        dst[c] = ek_f32_to_e4m3(x);
        n_over += fabsf(x) > EK_E4M3_MAX;
        r += sum[c] * (y - ek_e4m3_to_f32(dst[c]));
    }
    return n_over;
}

int64_t ek_ref_kv_write(void *k_pool, void *v_pool, const struct ek_kv_rows *r,
                        int64_t t0, int64_t t1, const struct ek_attn_dims *d)
{
    int64_t D = d->D, P = d->page_tokens, g = d->H / d->K, n_over = 0;
    bool is_shaped = d->kv_dtype == EK_DTYPE_E4M3 && r->q;
    for (int64_t t = t0; t < t1; t++) {
        int64_t page = r->slot[t] / P, token = r->slot[t] % P;
        for (int64_t h = 0; h < d->K; h++) {
            int64_t at = (page * d->K + h) * P + token;
            const float *k = r->k + t * r->ldk + h * D;
            float k_scale = d->k_scale ? d->k_scale[h] : 1.0f;
            float v_scale = d->v_scale ? d->v_scale[h] : 1.0f;
            n_over += is_shaped
                          ? write_key((uint8_t *)k_pool + at * D, k,
                                      r->q + t * r->ldq + h * g * D, g, D, k_scale)
                          : write_head(k_pool, at, k, D, d->kv_dtype, k_scale);
            n_over += write_head(v_pool, at, r->v + t * r->ldv + h * D, D, d->kv_dtype,
                                 v_scale);
        }
    }
    return n_over;
}
