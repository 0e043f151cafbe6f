/* map.h - hash map from byte strings to one 64-bit value each.
 *
 * Open addressing, linear probing, load <= 3/4. The seed is the caller's, so a map
 * that peers can fill is seeded at random and one filled from a file is reproducible.
 * Owns: its slots. Keys are borrowed and must outlive the map.
 */
#ifndef EVENKEEL_BASE_MAP_H
#define EVENKEEL_BASE_MAP_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ek_map_slot {
    const char *key; /* NULL: empty */
    size_t len;
    uint64_t hash;
    uint64_t value;
};

struct ek_map {
    struct ek_map_slot *slots; /* heap, owned; cap entries */
    size_t cap;                /* 0 or a power of two */
    size_t n;                  /* keys held */
    size_t max;                /* ceiling of n */
    uint64_t seed;
};

void ek_map_init(struct ek_map *m, size_t max, uint64_t seed);
void ek_map_release(struct ek_map *m);

/* Grows once so that n keys fit. Errors: EK_ELIMIT n > max, EK_ENOMEM; unchanged. */
int ek_map_reserve(struct ek_map *m, size_t n) EK_MUST_USE;

/* Adds or replaces; *was_there (may be NULL) tells which. Errors: EK_ELIMIT when n ==
 * max, EK_ENOMEM; the map is unchanged. */
int ek_map_put(struct ek_map *m, const char *key, size_t len, uint64_t value,
               bool *was_there) EK_MUST_USE;

/* True and *value when the key is there; value may be NULL. */
bool ek_map_get(const struct ek_map *m, const char *key, size_t len, uint64_t *value);

/* 64-bit hash of bytes; also used to key caches. Not cryptographic. */
uint64_t ek_hash(const void *p, size_t n, uint64_t seed);

#endif
