/* intern.h - names to indices 0, 1, 2 ... in the order of their first appearance;
 * private to data/. What a log's ids go through.
 *
 * Open addressing, linear probing, load <= 1/2; a slot is 32 bits of the hash and the
 * index, so most comparisons touch no name. The hash has a random key of each table's
 * own: whoever writes a log cannot choose ids that meet in one place. Indices do not
 * depend on it.
 */
#ifndef EVENKEEL_DATA_INTERN_H
#define EVENKEEL_DATA_INTERN_H

#include "data/events.h"

#include <stddef.h>
#include <stdint.h>

struct ek_intern_slot {
    uint32_t hash;
    int32_t id; /* -1: empty */
};

struct ek_intern {
    struct ek_intern_slot *slots; /* owned; cap of them, 0 or a power of two */
    size_t cap;
    int64_t n, max;
    int64_t *offsets; /* owned; (n+1) once there is a name */
    int64_t cap_offsets;
    char *bytes; /* owned */
    size_t n_bytes, cap_bytes;
    uint64_t key; /* of the hash */
};

void ek_intern_init(struct ek_intern *t, int64_t max); /* max <= INT32_MAX */
void ek_intern_release(struct ek_intern *t);           /* may be zeroed */

/* The index of s[0,n), a new one if it is new: then *id == the former t->n. Errors:
 * EK_ELIMIT max names are there, EK_ENOMEM; t is unchanged. */
int ek_intern_put(struct ek_intern *t, const char *s, size_t n,
                  int32_t *id) EK_MUST_USE;

/* Its index, or -1. */
int32_t ek_intern_get(const struct ek_intern *t, const char *s, size_t n);

struct ek_names ek_intern_names(const struct ek_intern *t); /* borrows */

/* Whether two of names are equal: *twin is an index whose name an earlier one has, or
 * names->n when all differ. Errors: EK_ENOMEM. Memory: 16 to 32 bytes a name. */
int ek_names_twin(int64_t *twin, const struct ek_names *names) EK_MUST_USE;

#endif
