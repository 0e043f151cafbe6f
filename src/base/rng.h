/* rng.h - seeded random numbers; the state is always passed in, never hidden.
 *
 * xoshiro256** seeded through splitmix64 (Blackman & Vigna, "Scrambled linear
 * pseudorandom number generators", 2018). Not for secrets: those come from the kernel
 * (ek_rng_secret).
 */
#ifndef EVENKEEL_BASE_RNG_H
#define EVENKEEL_BASE_RNG_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct ek_rng {
    uint64_t s[4]; /* never all zero */
};

void ek_rng_init(struct ek_rng *r, uint64_t seed);
uint64_t ek_rng_u64(struct ek_rng *r);
double ek_rng_uniform(struct ek_rng *r);             /* [0,1), 53 bits */
uint64_t ek_rng_below(struct ek_rng *r, uint64_t n); /* [0,n), unbiased; n >= 1 */
double ek_rng_normal(struct ek_rng *r);              /* mean 0, deviation 1 */

/* The finaliser of splitmix64 (Steele, Lea & Flood, "Fast splittable pseudorandom number
 * generators", 2014), a bijection: neighbours in, strangers out. */
static inline uint64_t ek_mix64(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Fills p[0,n) from the kernel's generator. Errors: EK_EIO. */
int ek_rng_secret(void *p, size_t n) EK_MUST_USE;

#endif
