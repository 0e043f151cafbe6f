/* testkit.h - what the C tests share: cmocka with its own needs, and the machines that
 * drive failure paths. Include it first.
 *
 *   static void parse_survives_any_failed_allocation(void **state)
 *   {
 *       (void)state;
 *       EK_EACH_FAILURE(k)
 *       {
 *           struct thing *t = NULL;
 *           int rc = thing_new(&t);
 *           ek_assert_rc(rc);          0, or EK_ENOMEM when allocation k failed
 *           thing_free(t);
 *       }
 *   }
 */
#ifndef EVENKEEL_TESTKIT_H
#define EVENKEEL_TESTKIT_H

#include "base/mem.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* cmocka.h wants these before it. */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* Runs the block once for each k with allocation k failing, and ends after the first
 * run in which nothing failed. EK_EACH_FAILURE_BY takes every step-th k, for bodies
 * with thousands of allocations. */
#define EK_EACH_FAILURE(k) EK_EACH_FAILURE_BY(k, 1)
#define EK_EACH_FAILURE_BY(k, step)                                                    \
    for (uint64_t k = 0; ek_next_failure(&k, step);)
/* clang-format on */

static inline bool ek_next_failure(uint64_t *k, uint64_t step)
{
    bool is_over = *k > 0 && !ek_mem_failed();
    *k = *k == 0 ? 1 : *k + step;
    ek_mem_fail_at(is_over ? 0 : *k);
    return !is_over;
}

/* The outcome fits the drive: success when no allocation failed, EK_ENOMEM else. */
#define ek_assert_rc(rc)                                                               \
    do {                                                                               \
        int rc_of_drive = (rc); /* evaluated before the drive is asked */              \
        assert_int_equal(rc_of_drive, ek_mem_failed() ? EK_ENOMEM : 0);                \
    } while (0)

/* A copy of p[0,n) that ends where the heap block ends, so that AddressSanitizer sees
 * one byte read too many. Outside of the failure drive; free() it. */
static inline char *ek_exact_copy(const void *p, size_t n)
{
    char *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    if (n)
        memcpy(copy, p, n);
    return copy;
}

/* Calls fn(arg, prefix, length) with every prefix of p[0,n), each an exact copy. */
static inline void ek_each_prefix(const void *p, size_t n,
                                  void (*fn)(void *arg, const char *text, size_t n),
                                  void *arg)
{
    for (size_t len = 0; len <= n; len++) {
        char *text = ek_exact_copy(p, len);
        fn(arg, text, len);
        free(text);
    }
}

#endif
