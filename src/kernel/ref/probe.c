/* probe.c - the probes in plain C: what the compiler makes of a sum and of products. */
#include "kernel/ref/ref.h"

uint64_t ek_ref_probe_read(const void *p, size_t n)
{
    uint64_t sum[4] = {0};
    const unsigned char *at = p;
    for (size_t i = 0; i < n / 2; i += 16)
        for (size_t s = 0; s < 4; s++) {
            uint64_t x;
            __builtin_memcpy(&x, at + s / 2 * (n / 2) + s % 2 * 8 + i, sizeof x);
            sum[s] += x;
        }
    return sum[0] + sum[1] + sum[2] + sum[3];
}

int64_t ek_ref_probe_dot(enum ek_weight_format f, int64_t n)
{
    enum { LANES = 16 };
    volatile float seed = 1.0f; /* what the compiler cannot know */
    float acc[LANES] = {0}, x = seed, w = seed;
    (void)f;
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < LANES; j++)
            acc[j] += x * w;
    for (int j = 0; j < LANES; j++)
        seed = acc[j];
    return n * LANES;
}
