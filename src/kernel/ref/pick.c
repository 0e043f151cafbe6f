/* pick.c - one pass over a row of logits in plain C. */
#include "kernel/ref/ref.h"

#include <math.h>

static int64_t end_of(int64_t b, int64_t n)
{
    int64_t end = (b + 1) * EK_PICK_BLOCK;
    return end < n ? end : n;
}

bool ek_ref_peaks(float *max, const float *x, int64_t n)
{
    bool is_finite = true;
    for (int64_t b = 0; b < ek_pick_blocks(n); b++) {
        float m = -INFINITY;
        for (int64_t i = b * EK_PICK_BLOCK; i < end_of(b, n); i++) {
            m = x[i] > m ? x[i] : m;
            is_finite = is_finite && isfinite(x[i]);
        }
        max[b] = m;
    }
    return is_finite;
}

void ek_ref_weigh(float *e, float *max, double *sum, const float *x, int64_t n,
                  float top, float temperature)
{
    float inv = 1.0f / temperature;
    for (int64_t b = 0; b < ek_pick_blocks(n); b++) {
        float m = 0;
        double s = 0;
        for (int64_t i = b * EK_PICK_BLOCK; i < end_of(b, n); i++) {
            e[i] = expf((x[i] - top) * inv);
            m = e[i] > m ? e[i] : m;
            s += (double)e[i];
        }
        max[b] = m;
        sum[b] = s;
    }
}
