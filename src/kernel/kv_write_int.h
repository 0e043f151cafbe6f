/* kv_write_int.h - the course of the KV write, shared by all variants: which row goes
 * where, and which keys are rounded side by side. A variant brings the arithmetic. */
#ifndef EVENKEEL_KERNEL_KV_WRITE_INT_H
#define EVENKEEL_KERNEL_KV_WRITE_INT_H

#include "kernel/kv_write.h"

#define EK_KEY_LANES 16

/* Up to 16 keys side by side: coordinate c of key i is [c][i]. Lanes from n on hold
 * nothing. */
struct ek_key_lanes {
    float k[EK_HEAD_DIM_MAX][EK_KEY_LANES];      /* over the scale */
    float q[EK_HEAD_DIM_MAX][EK_KEY_LANES];      /* sum of the queries */
    float weight[EK_HEAD_DIM_MAX][EK_KEY_LANES]; /* the variant's: sums of q^2 behind */
    uint8_t code[EK_HEAD_DIM_MAX][EK_KEY_LANES]; /* out */
    uint8_t *dst[EK_KEY_LANES];
    int n;
};

struct ek_kv_steps {
    /* One head of one token to the nearest, at element `at` of the pool; returns the
     * e4m3 values beyond the range. */
    int64_t (*head)(void *pool, int64_t at, const float *x, int64_t D, enum ek_dtype t,
                    float scale);
    /* The codes of all lanes; returns the same. */
    int64_t (*keys)(struct ek_key_lanes *b, int64_t D);
};

int64_t ek_kv_write_run(void *k_pool, void *v_pool, const struct ek_kv_rows *r,
                        int64_t t0, int64_t t1, const struct ek_attn_dims *d,
                        const struct ek_kv_steps *steps);

#endif
