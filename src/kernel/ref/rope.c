/* rope.c - the rotation of both pairings in plain C. */
#include "kernel/ref/ref.h"

void ek_ref_rope(float *x, int64_t ldx, const float *cs, const struct ek_rope *r,
                 int64_t T, int64_t H, int64_t D)
{
    int64_t half = r->n_dims / 2;
    int64_t step = r->is_interleaved ? 2 : 1, pair = r->is_interleaved ? 1 : half;
    for (int64_t t = 0; t < T; t++)
        for (int64_t h = 0; h < H; h++) {
            float *head = x + t * ldx + h * D;
            const float *a = cs + t * r->n_dims;
            for (int64_t i = 0; i < half; i++) {
                float u = head[i * step], v = head[i * step + pair];
                head[i * step] = u * a[2 * i] - v * a[2 * i + 1];
                head[i * step + pair] = u * a[2 * i + 1] + v * a[2 * i];
            }
        }
}
