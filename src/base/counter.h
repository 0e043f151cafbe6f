/* counter.h - figures that one thread keeps and others read: counts, gauges, flags.
 *
 * A reader of a value sees what its writer did before it (release, acquire: plain loads
 * and stores on x86), so that a flag may say "I am done with this". add is for the one
 * thread that owns the counter; share for any (one locked instruction, relaxed: its
 * value says nothing about other memory).
 */
#ifndef EVENKEEL_BASE_COUNTER_H
#define EVENKEEL_BASE_COUNTER_H

#include <stdatomic.h>
#include <stdint.h>

struct ek_counter {
    _Atomic int64_t v;
};

static inline int64_t ek_counter_get(const struct ek_counter *c)
{
    return atomic_load_explicit(&c->v, memory_order_acquire);
}

static inline void ek_counter_set(struct ek_counter *c, int64_t v)
{
    atomic_store_explicit(&c->v, v, memory_order_release);
}

static inline void ek_counter_add(struct ek_counter *c, int64_t n)
{
    ek_counter_set(c, ek_counter_get(c) + n);
}

/* Returns the value after it. */
static inline int64_t ek_counter_share(struct ek_counter *c, int64_t n)
{
    return atomic_fetch_add_explicit(&c->v, n, memory_order_relaxed) + n;
}

#endif
