/* ring.h - bounded ring of pointers between exactly one producer thread and exactly
 * one consumer thread; never blocks, never allocates after init. */
#ifndef EVENKEEL_BASE_RING_H
#define EVENKEEL_BASE_RING_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct ek_ring;

/* cap is rounded up to a power of two. Errors: EK_ENOMEM. */
int ek_ring_new(struct ek_ring **ring, size_t cap) EK_MUST_USE;
void ek_ring_free(struct ek_ring *ring); /* NULL is fine; entries are not freed */

/* False when full. Producer thread only. What the producer wrote before is visible to
 * the consumer that pops the pointer. */
bool ek_ring_push(struct ek_ring *ring, void *p);

/* NULL when empty. Consumer thread only. */
void *ek_ring_pop(struct ek_ring *ring);

/* Entries in the ring; exact for either end when the other rests. Threads: any. */
size_t ek_ring_count(const struct ek_ring *ring);

#endif
