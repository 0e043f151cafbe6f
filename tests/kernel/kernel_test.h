/* kernel_test.h - what the kernel tests share: seeded values, aligned memory, and a run
 * of a check over every variant this CPU can execute. */
#ifndef EVENKEEL_TESTS_KERNEL_KERNEL_TEST_H
#define EVENKEEL_TESTS_KERNEL_KERNEL_TEST_H

#include "base/mem.h"
#include "base/rng.h"
#include "kernel/ops.h"

#include <math.h>
#include <stdint.h>
#include <string.h>
/* cmocka.h needs the ones before it */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
/* clang-format on */

#define EPS      0x1p-24 /* half an ulp of 1 in f32 */
#define COUNT(a) (sizeof(a) / sizeof *(a))

/* Zeroed, 64-byte aligned; a test that cannot allocate fails. */
static inline void *new_bytes(size_t n)
{
    size_t size = (n + 127) / 64 * 64;
    void *p = ek_alloc_aligned(64, size);
    assert_non_null(p);
    memset(p, 0, size);
    return p;
}

static inline float *new_floats(int64_t n)
{
    return new_bytes((size_t)n * sizeof(float));
}

/* Uniform in [-1,1). */
static inline float random_float(struct ek_rng *rng)
{
    return (float)(ek_rng_uniform(rng) * 2 - 1);
}

static inline void fill_random(float *x, int64_t n, struct ek_rng *rng)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = random_float(rng);
}

static inline void expect_near(double got, double want, double bound)
{
    if (!(fabs(got - want) <= bound))
        fail_msg("%.9g, expected %.9g +- %.2g", got, want, bound);
}

/* Calls check(ops) for each variant up to the best of this CPU. */
static inline void for_each_isa(void (*check)(const struct ek_ops *ops))
{
    for (int isa = EK_ISA_REF; isa <= (int)ek_isa_best(); isa++)
        check(ek_ops_get((enum ek_isa)isa));
}

#endif
