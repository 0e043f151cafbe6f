/* pages_int.h - what pages.c (the book) and pages_check.c (the checks) share: the
 * chain.
 *
 * chain(page, k) is a hash over everything that decides the KV of the page's first k
 * tokens: the anchor, then for each page from the first on the salt and its
 * (token, position) pairs. One step is a bijection of the chain so far, so a single
 * other token always gives another chain; any other difference does but for 2^-64.
 */
#ifndef EVENKEEL_SERVE_PAGES_INT_H
#define EVENKEEL_SERVE_PAGES_INT_H

#include "base/rng.h"
#include "serve/pages.h"

/* splitmix64's step. */
static inline uint64_t ek_pages_mix(uint64_t x)
{
    return ek_mix64(x + 0x9e3779b97f4a7c15u);
}

/* The chain before a page's first token; `before` is that of the page before it, or the
 * anchor. */
static inline uint64_t ek_pages_chain_start(const struct ek_pages *p,
                                            struct ek_salt salt, uint64_t before)
{
    return ek_pages_mix(ek_pages_mix(before ^ salt.lo) ^ salt.hi) & p->chain_mask;
}

static inline uint64_t ek_pages_chain_next(const struct ek_pages *p, uint64_t chain,
                                           int32_t token, int32_t position)
{
    uint64_t pair = (uint64_t)(uint32_t)position << 32 | (uint32_t)token;
    return ek_pages_mix(chain ^ pair) & p->chain_mask;
}

static inline bool ek_salt_is_equal(struct ek_salt a, struct ek_salt b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

/* The page number is on the free list. */
bool ek_pages_is_listed(const struct ek_pages *p, int32_t page);

/* The book of this page does not contradict itself; of a SHARED one, the chain is
 * recomputed from the page before it and its tokens. A quarantined page's does. */
bool ek_pages_book_is_right(const struct ek_pages *p, int32_t page);

#endif
