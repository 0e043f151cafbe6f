/* prefix.h - the index of shared pages by their content, and which to give up first.
 *
 * Knows page numbers, keys and the tree, not who holds a page: serve/pages says when a
 * page has its first holder (hold) and none any more (idle). An idle page without
 * children in the index is a leaf and may be evicted, the least recently used first.
 *
 *   index  buckets by hash, pages chained through `next`; a hit compares salt, parent
 *          and all 16 tokens: a hash is never trusted alone
 *   LRU    binary heap by `used` over the idle leaves
 *
 * Invariants (ek_prefix_is_sane): a page is in the heap exactly when it is in the
 * index, idle and without children; no two pages in the index are equal.
 */
#ifndef EVENKEEL_SERVE_PREFIX_H
#define EVENKEEL_SERVE_PREFIX_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Tenant: 128 bits of a cryptographic hash, so that equality is identity. {0,0}: nobody
 * in particular. */
struct ek_salt {
    uint64_t lo, hi;
};

struct ek_prefix_key {
    uint64_t hash; /* over all of the below and everything before the page */
    struct ek_salt salt;
    int32_t parent;        /* page before it; -1: first */
    const int32_t *tokens; /* (16) */
};

struct ek_prefix_node {
    uint64_t hash;
    struct ek_salt salt;
    uint64_t used;  /* clock when it became idle; 0: held */
    int32_t parent; /* page before it; -1: first */
    int32_t next;   /* in the bucket; -1: last */
    int32_t place;  /* in the heap; EK_PREFIX_OUT_OF_HEAP, EK_PREFIX_ABSENT */
    int32_t n_kids; /* pages of the index whose parent it is */
};

struct ek_prefix {
    const int32_t *tokens;        /* (n_pages,16) borrowed, by page number */
    struct ek_prefix_node *nodes; /* (n_pages) heap, owned */
    int32_t *buckets;             /* (n_buckets) first page or -1, owned */
    int32_t *heap;                /* (n_pages) page numbers, owned */
    int32_t n_pages;
    uint32_t n_buckets; /* power of two */
    int32_t n_indexed;
    int32_t n_heap;
    uint64_t clock;
};

enum { EK_PREFIX_OUT_OF_HEAP = -1, EK_PREFIX_ABSENT = -2 };

/* Errors: EK_ENOMEM. Borrows tokens until release. */
int ek_prefix_init(struct ek_prefix *x, int32_t n_pages,
                   const int32_t *tokens) EK_MUST_USE;
void ek_prefix_release(struct ek_prefix *x);

/* The page equal to the key, or -1. Cost: O(1) expected. */
int32_t ek_prefix_find(const struct ek_prefix *x, const struct ek_prefix_key *key);

/* Adds a held page under the key; no page equal to it is there, and key->tokens are
 * those of the page. */
void ek_prefix_add(struct ek_prefix *x, int32_t page, const struct ek_prefix_key *key);

/* Takes a page out; does nothing when it is not in. Pages below it stay, and nobody
 * finds them any more unless the page number comes back: only for leaves and for pages
 * that never come back. */
void ek_prefix_remove(struct ek_prefix *x, int32_t page);

bool ek_prefix_has(const struct ek_prefix *x, int32_t page);

/* The page has its first holder, or lost its last. Cost: O(log n_pages). */
void ek_prefix_hold(struct ek_prefix *x, int32_t page);
void ek_prefix_idle(struct ek_prefix *x, int32_t page);
bool ek_prefix_is_idle(const struct ek_prefix *x, int32_t page);

/* The leaf to evict next, or -1. */
int32_t ek_prefix_oldest(const struct ek_prefix *x);

/* For tests. Cost: O(n_pages). */
bool ek_prefix_is_sane(const struct ek_prefix *x);

#endif
