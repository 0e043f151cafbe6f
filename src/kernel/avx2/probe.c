/* probe.c - streaming loads, and ten chains each of FMA and of vpmaddubsw with the
 * addition that it needs. */
#include "kernel/avx2/avx2.h"
#include "kernel/avx2/simd.h"

#define CHAINS 10
#define AHEAD  2048 /* these two as in avx512 */
#define STEP   256

uint64_t ek_avx2_probe_read(const void *p, size_t n)
{
    const unsigned char *at = p;
    __m256i sum[4];
    for (int s = 0; s < 4; s++)
        sum[s] = _mm256_setzero_si256();
    for (size_t i = 0; i < n; i += 2 * STEP)
        for (size_t j = 0; j < 2 * STEP; j += 64) {
            const unsigned char *line = at + i / 2 + (j < STEP ? j : n / 2 + j - STEP);
            _mm_prefetch((const char *)line + AHEAD, _MM_HINT_T1);
            __m256i a = _mm256_load_si256((const void *)line);
            __m256i b = _mm256_load_si256((const void *)(line + 32));
            sum[j / 64 % 4] = _mm256_add_epi64(sum[j / 64 % 4], _mm256_add_epi64(a, b));
        }
    __m256i all = _mm256_add_epi64(_mm256_add_epi64(sum[0], sum[1]),
                                   _mm256_add_epi64(sum[2], sum[3]));
    uint64_t lanes[4];
    _mm256_storeu_si256((__m256i *)(void *)lanes, all);
    return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}

int64_t ek_avx2_probe_dot(enum ek_weight_format f, int64_t n)
{
    if (f != EK_WEIGHT_F32 && f != EK_WEIGHT_BF16 && f != EK_WEIGHT_E4M3) {
        __m256i acc[CHAINS], x = _mm256_set1_epi8(1);
        __asm__ volatile("" : "+x"(x));
        for (int j = 0; j < CHAINS; j++)
            acc[j] = _mm256_setzero_si256();
        for (int64_t i = 0; i < n; i++)
            for (int j = 0; j < CHAINS; j++) {
                __asm__ volatile("" : "+x"(x)); /* or a product is done once for all */
                acc[j] = _mm256_add_epi16(acc[j], _mm256_maddubs_epi16(x, x));
            }
        for (int j = 0; j < CHAINS; j++)
            __asm__ volatile("" : "+x"(acc[j]));
        return n * CHAINS * 32;
    }
    __m256 acc[CHAINS], x = _mm256_set1_ps(1.0f);
    __asm__ volatile("" : "+x"(x));
    for (int j = 0; j < CHAINS; j++)
        acc[j] = _mm256_setzero_ps();
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < CHAINS; j++)
            acc[j] = _mm256_fmadd_ps(x, x, acc[j]);
    for (int j = 0; j < CHAINS; j++)
        __asm__ volatile("" : "+x"(acc[j]));
    return n * CHAINS * 8;
}
