/* gemm.c - gemm in plain C: sums in f32 in the order of k. */
#include "kernel/gemm_int.h"
#include "num/float.h"

static float start_of(const struct ek_gemm *g, int64_t m, int64_t n)
{
    if (g->is_added)
        return g->c[m * g->ldc + n];
    return g->start ? g->start[n] : 0.0f;
}

void ek_ref_gemm_f32(const struct ek_gemm *g)
{
    const float *b = g->b;
    for (int64_t m = 0; m < g->M; m++)
        for (int64_t n = 0; n < g->N; n++) {
            float sum = start_of(g, m, n);
            for (int64_t k = 0; k < g->K; k++)
                sum += g->a[m * g->am + k * g->ak] * b[k * g->ldb + n];
            g->c[m * g->ldc + n] = sum;
        }
}

void ek_ref_gemm_bf16(const struct ek_gemm *g)
{
    const uint32_t *b = g->b;
    for (int64_t m = 0; m < g->M; m++)
        for (int64_t n = 0; n < g->N; n++) {
            float sum = start_of(g, m, n);
            for (int64_t k = 0; k < g->K; k++) {
                uint32_t pair = b[k / 2 * g->ldb + n];
                float w = ek_bf16_to_f32((uint16_t)(k & 1 ? pair >> 16 : pair));
                float x = g->a[m * g->am + k * g->ak];
                sum += ek_bf16_to_f32(ek_f32_to_bf16(x)) * w;
            }
            g->c[m * g->ldc + n] = sum;
        }
}

void ek_ref_gemm_pack_f32(void *dst, int64_t ldd, const float *src, int64_t sk,
                          int64_t sn, int64_t K, int64_t N)
{
    float *d = dst;
    for (int64_t k = 0; k < K; k++)
        for (int64_t n = 0; n < N; n++)
            d[k * ldd + n] = src[k * sk + n * sn];
}

void ek_ref_gemm_pack_bf16(void *dst, int64_t ldd, const float *src, int64_t sk,
                           int64_t sn, int64_t K, int64_t N)
{
    uint32_t *d = dst;
    for (int64_t k = 0; k < K; k += 2)
        for (int64_t n = 0; n < N; n++) {
            uint32_t low = ek_f32_to_bf16(src[k * sk + n * sn]);
            uint32_t high = k + 1 < K ? ek_f32_to_bf16(src[(k + 1) * sk + n * sn]) : 0;
            d[k / 2 * ldd + n] = low | high << 16;
        }
}
