/* shared.h - single figures that several threads read and write.
 *
 * Each figure stands for itself: counters, gauges, the room of a backend. Whoever reads
 * two of them may see one before and one after a change, and must be right either way.
 * So every access is relaxed, which on a load is a plain move; the exceptions say so.
 * Threads: any.
 */
#ifndef EVENKEEL_BASE_SHARED_H
#define EVENKEEL_BASE_SHARED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ek_shared_i32 {
    _Atomic int32_t v;
};
struct ek_shared_i64 {
    _Atomic int64_t v;
};
struct ek_shared_f32 {
    _Atomic float v;
};
struct ek_shared_f64 {
    _Atomic double v;
};

/* get, set, and swap: x becomes `to` if it is *from, else *from becomes what it is. */
#define EK_SHARED_FUNCTIONS(type, name)                                                \
    static inline type ek_shared_##name##_get(const struct ek_shared_##name *x)        \
    {                                                                                  \
        return atomic_load_explicit(&x->v, memory_order_relaxed);                      \
    }                                                                                  \
    static inline void ek_shared_##name##_set(struct ek_shared_##name *x, type v)      \
    {                                                                                  \
        atomic_store_explicit(&x->v, v, memory_order_relaxed);                         \
    }                                                                                  \
    static inline bool ek_shared_##name##_swap(struct ek_shared_##name *x, type *from, \
                                               type to)                                \
    {                                                                                  \
        return atomic_compare_exchange_weak_explicit(                                  \
            &x->v, from, to, memory_order_relaxed, memory_order_relaxed);              \
    }

EK_SHARED_FUNCTIONS(int32_t, i32)
EK_SHARED_FUNCTIONS(int64_t, i64)
EK_SHARED_FUNCTIONS(float, f32)
EK_SHARED_FUNCTIONS(double, f64)

/* The value before. Wraps around as unsigned numbers do. */
static inline int32_t ek_shared_i32_add(struct ek_shared_i32 *x, int32_t n)
{
    return atomic_fetch_add_explicit(&x->v, n, memory_order_relaxed);
}

static inline int64_t ek_shared_i64_add(struct ek_shared_i64 *x, int64_t n)
{
    return atomic_fetch_add_explicit(&x->v, n, memory_order_relaxed);
}

/* A figure whose first value says that what lies behind it is written: the writer's
 * last act (release), the reader's first (acquire). */
static inline void ek_shared_i32_publish(struct ek_shared_i32 *x, int32_t v)
{
    atomic_store_explicit(&x->v, v, memory_order_release);
}

static inline int32_t ek_shared_i32_observe(const struct ek_shared_i32 *x)
{
    return atomic_load_explicit(&x->v, memory_order_acquire);
}

/* One more, unless `limit` (0: none) is reached; whether it was counted. Exact, however
 * many threads count at once. */
static inline bool ek_shared_i32_add_below(struct ek_shared_i32 *x, int32_t limit)
{
    int32_t v = ek_shared_i32_get(x);
    do {
        if (limit > 0 && v >= limit)
            return false;
    } while (!ek_shared_i32_swap(x, &v, v + 1));
    return true;
}

/* Points at what is written before it is set (release), and so is seen whole by whoever
 * gets it (acquire). NULL until it is set. */
struct ek_shared_ptr {
    _Atomic(void *) v;
};

static inline void *ek_shared_ptr_get(const struct ek_shared_ptr *x)
{
    return atomic_load_explicit(&x->v, memory_order_acquire);
}

static inline void ek_shared_ptr_set(struct ek_shared_ptr *x, void *p)
{
    atomic_store_explicit(&x->v, p, memory_order_release);
}

/* How many hold a thing. What each did with it is done before the last one, who is told
 * so, frees it: release by each, acquire by the last. */
struct ek_shared_refs {
    _Atomic int32_t v;
};

static inline void ek_shared_refs_init(struct ek_shared_refs *x)
{
    atomic_store_explicit(&x->v, 1, memory_order_relaxed);
}

static inline void ek_shared_refs_take(struct ek_shared_refs *x)
{
    atomic_fetch_add_explicit(&x->v, 1, memory_order_relaxed);
}

static inline bool ek_shared_refs_drop(struct ek_shared_refs *x)
{
    return atomic_fetch_sub_explicit(&x->v, 1, memory_order_acq_rel) == 1;
}

/* A flag that one thread at a time holds; nobody waits for it. What its holder wrote is
 * seen by the next: acquire when taken, release when given. */
struct ek_shared_flag {
    atomic_bool v;
};

static inline bool ek_shared_flag_take(struct ek_shared_flag *f)
{
    return !atomic_exchange_explicit(&f->v, true, memory_order_acquire);
}

static inline void ek_shared_flag_give(struct ek_shared_flag *f)
{
    atomic_store_explicit(&f->v, false, memory_order_release);
}

#endif
