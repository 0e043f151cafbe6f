/* kv_write.c - the rotation, and new keys and values into their pages, in plain C. */
#include "kernel/kv_write_int.h"
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
        char *dst = (char *)pool + (size_t)at * ek_dtype_block_bytes(t);
        ek_quant_from_f32(dst, t, x, (size_t)D);
        return 0;
    }
    unsigned char *dst = (unsigned char *)pool + at;
    for (int64_t c = 0; c < D; c++) {
        float y = x[c] / scale;
        dst[c] = ek_f32_to_e4m3(y);
        n_over += fabsf(y) > EK_E4M3_MAX;
    }
    return n_over;
}

/* One e4m3 key, lane i. */
static int64_t write_key(struct ek_key_lanes *b, int i, int64_t D)
{
    float r = 0, rest = 0;
    int64_t n_over = 0;
    for (int64_t c = D - 1; c >= 0; c--) {
        rest += b->q[c][i] * b->q[c][i];
        b->weight[c][i] = rest;
    }
    float lambda = EK_KV_LAMBDA / (float)D * rest + EK_KV_TINY;
    for (int64_t c = 0; c < D; c++) {
        float q = b->q[c][i], y = b->k[c][i];
        float x = y + r * (q / (lambda + b->weight[c][i]));
        b->code[c][i] = ek_f32_to_e4m3(x);
        n_over += fabsf(x) > EK_E4M3_MAX;
        r += q * (y - ek_e4m3_to_f32(b->code[c][i]));
    }
    return n_over;
}

static int64_t write_keys(struct ek_key_lanes *b, int64_t D)
{
    int64_t n_over = 0;
    for (int i = 0; i < b->n; i++)
        n_over += write_key(b, i, D);
    return n_over;
}

int64_t ek_ref_kv_write(void *k_pool, void *v_pool, const struct ek_kv_rows *r,
                        int64_t t0, int64_t t1, const struct ek_attn_dims *d)
{
    static const struct ek_kv_steps steps = {write_head, write_keys};
    return ek_kv_write_run(k_pool, v_pool, r, t0, t1, d, &steps);
}
