/* kv_write.c - the course of the KV write (kv_write_int.h). */
#include "kernel/kv_write.h"

#include "kernel/kv_write_int.h"

#include <stdbool.h>

static void add_key(struct ek_key_lanes *b, uint8_t *dst, const float *k,
                    const float *q, int64_t g, int64_t D, float scale)
{
    for (int64_t c = 0; c < D; c++) {
        float sum = q[c];
        for (int64_t h = 1; h < g; h++)
            sum += q[h * D + c];
        b->q[c][b->n] = sum;
        b->k[c][b->n] = k[c] / scale;
    }
    b->dst[b->n++] = dst;
}

static int64_t write_keys(struct ek_key_lanes *b, int64_t D,
                          const struct ek_kv_steps *steps)
{
    int64_t n_over = b->n > 0 ? steps->keys(b, D) : 0;
    for (int i = 0; i < b->n; i++)
        for (int64_t c = 0; c < D; c++)
            b->dst[i][c] = b->code[c][i];
    b->n = 0;
    return n_over;
}

int64_t ek_kv_write_run(void *k_pool, void *v_pool, const struct ek_kv_rows *r,
                        int64_t t0, int64_t t1, const struct ek_attn_dims *d,
                        const struct ek_kv_steps *steps)
{
    int64_t D = d->D, P = d->page_tokens, g = d->H / d->K, n_over = 0;
    bool is_shaped = d->kv_dtype == EK_DTYPE_E4M3 && r->q;
    struct ek_key_lanes lanes;
    lanes.n = 0;
    for (int64_t t = t0; t < t1; t++) {
        int64_t page = r->slot[t] / P, token = r->slot[t] % P;
        for (int64_t h = 0; h < d->K; h++) {
            int64_t at = ((page * d->K + h) * P + token) * D;
            const float *k = r->k + t * r->ldk + h * D;
            const float *v = r->v + t * r->ldv + h * D;
            float k_scale = d->k_scale ? d->k_scale[h] : 1.0f;
            float v_scale = d->v_scale ? d->v_scale[h] : 1.0f;
            n_over += steps->head(v_pool, at, v, D, d->kv_dtype, v_scale);
            if (!is_shaped) {
                n_over += steps->head(k_pool, at, k, D, d->kv_dtype, k_scale);
                continue;
            }
            add_key(&lanes, (uint8_t *)k_pool + at, k, r->q + t * r->ldq + h * g * D, g,
                    D, k_scale);
            if (lanes.n == EK_KEY_LANES)
                n_over += write_keys(&lanes, D, steps);
        }
    }
    return n_over + write_keys(&lanes, D, steps);
}
