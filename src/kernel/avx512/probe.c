/* probe.c - streaming loads, and ten chains each of FMA, vdpbf16ps and vpdpbusd. */
#include "kernel/avx512/avx512.h"
#include "kernel/avx512/simd.h"

#define CHAINS 10

/* How far ahead of its loads a stream asks for its lines, into L2: measured best of 0
 * to 8192 by a little; four streams or prefetching into L1 lose up to a fifth. */
#define AHEAD 2048
#define STEP  256

uint64_t ek_avx512_probe_read(const void *p, size_t n)
{
    const unsigned char *at = p;
    __m512i sum[4];
    for (int s = 0; s < 4; s++)
        sum[s] = _mm512_setzero_si512();
    for (size_t i = 0; i < n; i += 2 * STEP)
        for (size_t j = 0; j < 2 * STEP; j += 64) {
            const unsigned char *line = at + i / 2 + (j < STEP ? j : n / 2 + j - STEP);
            _mm_prefetch((const char *)line + AHEAD, _MM_HINT_T1);
            sum[j / 64 % 4] =
                _mm512_add_epi64(sum[j / 64 % 4], _mm512_load_si512(line));
        }
    __m512i all = _mm512_add_epi64(_mm512_add_epi64(sum[0], sum[1]),
                                   _mm512_add_epi64(sum[2], sum[3]));
    uint64_t lanes[8], total = 0;
    _mm512_storeu_si512(lanes, all);
    for (int i = 0; i < 8; i++) /* wraps, which a reduction of signed words may not */
        total += lanes[i];
    return total;
}

/* n times `step` on each chain; the asm keeps the values from being known. */
#define RUN(type, zero, value, step)                                                   \
    do {                                                                               \
        type acc[CHAINS], x = value;                                                   \
        __asm__ volatile("" : "+v"(x));                                                \
        for (int j = 0; j < CHAINS; j++)                                               \
            acc[j] = zero;                                                             \
        for (int64_t i = 0; i < n; i++) {                                              \
            for (int j = 0; j < CHAINS; j++)                                           \
                acc[j] = step;                                                         \
        }                                                                              \
        for (int j = 0; j < CHAINS; j++)                                               \
            __asm__ volatile("" : "+v"(acc[j]));                                       \
    } while (0)

int64_t ek_avx512_probe_dot(enum ek_weight_format f, int64_t n)
{
    if (f == EK_WEIGHT_F32) {
        RUN(__m512, _mm512_setzero_ps(), _mm512_set1_ps(1.0f),
            _mm512_fmadd_ps(x, x, acc[j]));
        return n * CHAINS * 16;
    }
    if (f == EK_WEIGHT_BF16 || f == EK_WEIGHT_E4M3) {
        RUN(__m512, _mm512_setzero_ps(), _mm512_set1_ps(1.0f),
            _mm512_dpbf16_ps(acc[j], (__m512bh)x, (__m512bh)x));
        return n * CHAINS * 32;
    }
    RUN(__m512i, _mm512_setzero_si512(), _mm512_set1_epi8(1),
        _mm512_dpbusd_epi32(acc[j], x, x));
    return n * CHAINS * 64;
}
