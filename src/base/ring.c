/* The two counters only grow; a slot's index is counter & mask, so full and empty need
 * no spare slot. Each counter has one writer:
 *   tail  producer   stored with release after the slot was written, loaded with
 *                    acquire by the consumer: the entry and what it points to are
 *                    visible
 *   head  consumer   stored with release after the slot was read, loaded with acquire
 *                    by the producer: a slot is not overwritten before it was read
 * Invariant: 0 <= tail - head <= mask + 1. */
#include "base/ring.h"

#include "base/mem.h"

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>

#define LINE 64 /* bytes of a cache line: the ends must not share one */

struct ek_ring {
    alignas(LINE) atomic_size_t tail; /* entries ever pushed; producer writes */
    size_t head_seen;                 /* producer's last look at head */
    alignas(LINE) atomic_size_t head; /* entries ever popped; consumer writes */
    size_t tail_seen;                 /* consumer's last look at tail */
    alignas(LINE) size_t mask;        /* slots - 1; never written after init */
    void *slots[];
};

int ek_ring_new(struct ek_ring **ring, size_t cap)
{
    size_t n = 1, bytes;
    while (n < cap) {
        if (!ek_mul_size(&n, n, 2))
            return EK_ENOMEM;
    }
    if (!ek_mul_size(&bytes, n, sizeof(void *)) ||
        !ek_add_size(&bytes, bytes, sizeof(struct ek_ring)))
        return EK_ENOMEM;
    struct ek_ring *r = ek_alloc_aligned(LINE, bytes);
    if (!r)
        return EK_ENOMEM;
    atomic_init(&r->tail, 0);
    atomic_init(&r->head, 0);
    r->head_seen = r->tail_seen = 0;
    r->mask = n - 1;
    *ring = r;
    return 0;
}

void ek_ring_free(struct ek_ring *ring)
{
    ek_free(ring);
}

bool ek_ring_push(struct ek_ring *ring, void *p)
{
    assert(p); /* NULL is how pop says "empty" */
    size_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed); /* ours */
    if (tail - ring->head_seen > ring->mask) {
        ring->head_seen = atomic_load_explicit(&ring->head, memory_order_acquire);
        if (tail - ring->head_seen > ring->mask)
            return false;
    }
    ring->slots[tail & ring->mask] = p;
    atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
    return true;
}

void *ek_ring_pop(struct ek_ring *ring)
{
    size_t head = atomic_load_explicit(&ring->head, memory_order_relaxed); /* ours */
    if (head == ring->tail_seen) {
        ring->tail_seen = atomic_load_explicit(&ring->tail, memory_order_acquire);
        if (head == ring->tail_seen)
            return NULL;
    }
    void *p = ring->slots[head & ring->mask];
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
    return p;
}

size_t ek_ring_count(const struct ek_ring *ring)
{
    /* head first: what it counts was pushed before, so tail cannot be seen smaller. */
    size_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
    size_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
    size_t n = tail - head;
    return n <= ring->mask ? n : ring->mask + 1;
}
