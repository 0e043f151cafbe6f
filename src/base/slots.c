/* The free slots are a stack whose top, together with what is counted, is one word:
 *
 *   head    | takes mod 2^28 : 28 | open : 18 | top : 18 |  top: index of a free slot
 *   state   | generation : 46 | link : 18 |  LIVE: open; else free, link: index + 1
 *                             of the next free slot, or 0: the next one in memory,
 *                             so that zeroed memory is a stack
 *   id      | generation : 46 | index + 1 : 18 |
 *   due     | deadline, us : 50 | generation mod 2^14 |  35 years, over them: never
 *
 * Memory order:
 *   head    acquire when a slot is taken, release when it is given back: what its last
 *           owner wrote into the slot is visible to the next
 *   state   stored LIVE with release after the times, loaded with acquire by a sweep:
 *           the times it reads are of that generation, or later and then its CAS fails
 *   limit   relaxed: a new limit holds soon
 * ABA: a take must not put a link that is outdated into head; meanwhile the slot would
 * have to be taken and given back, and each take changes the tag. A thread would have
 * to sleep through exactly k * 2^28 takes and find top and count as they were. */
#include "base/slots.h"

#include "base/mem.h"

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>

#define LINE       64
#define BITS       18
#define MASK       ((UINT64_C(1) << BITS) - 1)
#define LIVE       MASK
#define ONE_OPEN   (UINT64_C(1) << BITS)
#define ONE_TAKE   (UINT64_C(1) << (2 * BITS))
#define GENERATION (UINT64_C(1) << BITS)
#define DUE_BITS   14 /* of a generation, so that a deadline is of one owner alone */
#define DUE_MASK   ((UINT64_C(1) << DUE_BITS) - 1)
#define NEVER      (UINT64_MAX >> DUE_BITS)

struct slot {
    _Atomic uint64_t state;
    _Atomic int64_t begun_us;
    _Atomic uint64_t due;
};

struct ek_slots {
    alignas(LINE) _Atomic uint64_t head;
    alignas(LINE) atomic_int limit; /* of open slots, 0..cap */
    atomic_uint n_used;             /* slots ever taken: none beyond is open */
    _Atomic uint64_t n_refused;     /* relaxed: it orders nothing */
    uint32_t cap;                   /* never written after init */
    struct slot *slots;             /* (cap) owned; likewise */
};

int ek_slots_new(struct ek_slots **out, int32_t cap)
{
    assert(cap >= 1 && cap <= EK_SLOTS_MAX);
    struct ek_slots *s = ek_alloc_aligned(LINE, sizeof *s);
    struct slot *slots = ek_calloc((size_t)cap, sizeof *slots);
    if (!s || !slots) {
        ek_free(s);
        ek_free(slots);
        return EK_ENOMEM;
    }
    atomic_init(&s->head, 0);
    atomic_init(&s->limit, cap);
    atomic_init(&s->n_used, 0);
    atomic_init(&s->n_refused, 0);
    s->cap = (uint32_t)cap;
    s->slots = slots;
    *out = s;
    return 0;
}

void ek_slots_free(struct ek_slots *s)
{
    if (!s)
        return;
    ek_free(s->slots);
    ek_free(s);
}

void ek_slots_set_limit(struct ek_slots *s, int32_t limit)
{
    assert(limit >= 0);
    int cap = (int)s->cap;
    atomic_store_explicit(&s->limit, limit < cap ? limit : cap, memory_order_relaxed);
}

static uint32_t open_of(uint64_t head)
{
    return (uint32_t)(head >> BITS & MASK);
}

static void note_used(struct ek_slots *s, uint32_t i)
{
    unsigned n = atomic_load_explicit(&s->n_used, memory_order_relaxed);
    while (n <= i && !atomic_compare_exchange_weak_explicit(&s->n_used, &n, i + 1,
                                                            memory_order_relaxed,
                                                            memory_order_relaxed)) {
    }
}

/* A deadline of the owner whose state or id this is. */
static uint64_t due_of(uint64_t generation, int64_t deadline_us)
{
    uint64_t us = deadline_us < 0 ? 0 : (uint64_t)deadline_us;
    return (us < NEVER ? us : NEVER) << DUE_BITS | (generation >> BITS & DUE_MASK);
}

static bool is_due(uint64_t due, int64_t now_us)
{
    uint64_t us = due >> DUE_BITS;
    return us < NEVER && (int64_t)us <= now_us;
}

uint64_t ek_slots_take(struct ek_slots *s, int64_t begun_us, int64_t deadline_us)
{
    uint64_t head = atomic_load_explicit(&s->head, memory_order_acquire);
    uint64_t state, i;
    for (;;) {
        if ((int)open_of(head) >= atomic_load_explicit(&s->limit, memory_order_relaxed))
            return 0;
        i = head & MASK;
        assert(i < s->cap);
        state = atomic_load_explicit(&s->slots[i].state, memory_order_relaxed);
        uint64_t link = state & MASK, next = link ? link - 1 : i + 1;
        uint64_t taken = ((head & ~MASK) + ONE_TAKE + ONE_OPEN) | (next & MASK);
        if (atomic_compare_exchange_weak_explicit(
                &s->head, &head, taken, memory_order_acq_rel, memory_order_acquire))
            break;
    }
    struct slot *slot = &s->slots[i];
    uint64_t generation = state & ~MASK;
    atomic_store_explicit(&slot->begun_us, begun_us, memory_order_relaxed);
    atomic_store_explicit(&slot->due, due_of(generation, deadline_us),
                          memory_order_relaxed);
    atomic_store_explicit(&slot->state, generation | LIVE, memory_order_release);
    if (i >= atomic_load_explicit(&s->n_used, memory_order_relaxed))
        note_used(s, (uint32_t)i);
    return generation | (i + 1);
}

/* The slot of an id that may come from anywhere; NULL: there is none. */
static struct slot *find(const struct ek_slots *s, uint64_t id)
{
    uint64_t i = id & MASK;
    return i >= 1 && i <= s->cap ? &s->slots[i - 1] : NULL;
}

bool ek_slots_give(struct ek_slots *s, uint64_t id)
{
    struct slot *slot = find(s, id);
    uint64_t live = (id & ~MASK) | LIVE, next = (id & ~MASK) + GENERATION;
    /* Link 0 meanwhile: ours alone until it is in head. */
    if (!slot || !atomic_compare_exchange_strong_explicit(&slot->state, &live, next,
                                                          memory_order_acq_rel,
                                                          memory_order_relaxed))
        return false;
    uint64_t i = (id & MASK) - 1;
    uint64_t head = atomic_load_explicit(&s->head, memory_order_relaxed), given;
    do {
        assert(open_of(head) > 0);
        atomic_store_explicit(&slot->state, next | ((head & MASK) + 1),
                              memory_order_relaxed);
        given = ((head & ~MASK) - ONE_OPEN) | i;
    } while (!atomic_compare_exchange_weak_explicit(
        &s->head, &head, given, memory_order_release, memory_order_relaxed));
    return true;
}

bool ek_slots_is_open(const struct ek_slots *s, uint64_t id)
{
    struct slot *slot = find(s, id);
    return slot && atomic_load_explicit(&slot->state, memory_order_acquire) ==
                       ((id & ~MASK) | LIVE);
}

bool ek_slots_set_deadline(struct ek_slots *s, uint64_t id, int64_t deadline_us)
{
    struct slot *slot = find(s, id);
    if (!slot)
        return false;
    /* The exchange fails on a deadline that is the next owner's: it carries another
     * generation, until the slot was taken 2^14 times in between. */
    uint64_t due = atomic_load_explicit(&slot->due, memory_order_relaxed);
    uint64_t mine = due_of(id, deadline_us);
    do {
        if (((due ^ mine) & DUE_MASK) != 0 || !ek_slots_is_open(s, id))
            return false;
    } while (!atomic_compare_exchange_weak_explicit(
        &slot->due, &due, mine, memory_order_relaxed, memory_order_relaxed));
    return ek_slots_is_open(s, id);
}

void ek_slots_count(const struct ek_slots *s, int32_t *n_open, uint32_t *n_takes)
{
    uint64_t head = atomic_load_explicit(&s->head, memory_order_relaxed);
    *n_open = (int32_t)open_of(head);
    *n_takes = (uint32_t)(head >> (2 * BITS));
}

void ek_slots_note_refusal(struct ek_slots *s)
{
    atomic_fetch_add_explicit(&s->n_refused, 1, memory_order_relaxed);
}

uint64_t ek_slots_refusals(const struct ek_slots *s)
{
    return atomic_load_explicit(&s->n_refused, memory_order_relaxed);
}

int32_t ek_slots_sweep(struct ek_slots *s, int64_t now_us, int64_t young_us,
                       int32_t *n_young)
{
    uint32_t n = atomic_load_explicit(&s->n_used, memory_order_relaxed);
    int32_t n_ended = 0;
    *n_young = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct slot *slot = &s->slots[i];
        uint64_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
        if ((state & MASK) != LIVE)
            continue;
        int64_t begun = atomic_load_explicit(&slot->begun_us, memory_order_relaxed);
        uint64_t due = atomic_load_explicit(&slot->due, memory_order_relaxed);
        if (is_due(due, now_us))
            n_ended += ek_slots_give(s, (state & ~MASK) | (i + 1));
        else if (begun > young_us)
            ++*n_young;
    }
    return n_ended;
}
