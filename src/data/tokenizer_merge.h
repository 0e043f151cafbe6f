/* tokenizer_merge.h - merging one piece: the pair with the lowest rank first, leftmost
 * among equals, until no pair can merge. A heap over a linked list: O(n log n) for a
 * piece of n symbols, however long. */
#ifndef EVENKEEL_DATA_TOKENIZER_MERGE_H
#define EVENKEEL_DATA_TOKENIZER_MERGE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ek_tok_merge {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX: empty slot */
    uint32_t rank;
    int32_t id; /* what the pair becomes */
};

/* Open addressing, load <= 1/2; filled at load, read only after. */
struct ek_tok_merges {
    struct ek_tok_merge *slots; /* heap, owned */
    size_t cap;                 /* 0 or a power of two */
    size_t n;
};

int ek_tok_merges_init(struct ek_tok_merges *m, size_t n) EK_MUST_USE; /* room for n */
void ek_tok_merges_release(struct ek_tok_merges *m);

/* False when the pair is already there (the first rank stays). */
bool ek_tok_merges_put(struct ek_tok_merges *m, int32_t left, int32_t right,
                       uint32_t rank, int32_t id);
const struct ek_tok_merge *ek_tok_merges_get(const struct ek_tok_merges *m,
                                             int32_t left, int32_t right);

struct ek_tok_symbol {
    uint32_t start, n; /* bytes of the piece; n == 0: merged away */
    int32_t id;        /* -1: no token has this text */
    int32_t prev, next;
};

struct ek_tok_pair {
    uint32_t rank;
    int32_t left; /* index of the left symbol */
    uint32_t n;   /* bytes of both: a different sum says that the pair is stale */
    int32_t id;
};

/* Grows with the longest piece of a call, reused between pieces. */
struct ek_tok_merger {
    struct ek_tok_symbol *symbols; /* heap, owned; the live ones from index 0 by next */
    size_t n_symbols, cap_symbols;
    struct ek_tok_pair *heap; /* heap, owned; min first by (rank, left) */
    size_t n_heap, cap_heap;
};

struct ek_tokenizer;

void ek_tok_merger_release(struct ek_tok_merger *m);

/* Leaves the merged symbols of p[0,n) in m (n >= 1, < 2^31). *steps grows by the work
 * done. Errors: EK_ENOMEM. */
int ek_tok_merger_run(struct ek_tok_merger *m, const struct ek_tokenizer *t,
                      const char *p, size_t n, uint64_t *steps) EK_MUST_USE;

#endif
