#include "base/rng.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <sys/random.h>

static uint64_t rotl(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

void ek_rng_init(struct ek_rng *r, uint64_t seed)
{
    for (int i = 0; i < 4; i++)
        r->s[i] = ek_mix64(seed += 0x9e3779b97f4a7c15u);
}

uint64_t ek_rng_u64(struct ek_rng *r)
{
    uint64_t *s = r->s;
    uint64_t out = rotl(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return out;
}

double ek_rng_uniform(struct ek_rng *r)
{
    return (double)(ek_rng_u64(r) >> 11) * 0x1p-53;
}

uint64_t ek_rng_below(struct ek_rng *r, uint64_t n)
{
    assert(n >= 1);
    uint64_t skip = (0 - n) % n; /* 2^64 mod n values would be drawn once too often */
    uint64_t x;
    do
        x = ek_rng_u64(r);
    while (x < skip);
    return x % n;
}

double ek_rng_normal(struct ek_rng *r)
{
    /* Box-Muller; 1 - u lies in (0,1], so the logarithm is finite. */
    double u = 1.0 - ek_rng_uniform(r), v = ek_rng_uniform(r);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

int ek_rng_secret(void *p, size_t n)
{
    unsigned char *at = p;
    while (n) {
        ssize_t got = getrandom(at, n, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return EK_EIO;
        at += got;
        n -= (size_t)got;
    }
    return 0;
}
