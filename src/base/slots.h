/* slots.h - a lock-free table of things that are open, each counted exactly once.
 *
 * take gives a slot and an id, give ends it: of all calls with one id, from any
 * threads, one succeeds. The number of open slots, and the limit at which take refuses,
 * are exact at every moment. Each open slot carries two times that its owner sets.
 *
 * Invariant: an id is never given twice; 0 is none.
 * Threads: any, except init and release.
 */
#ifndef EVENKEEL_BASE_SLOTS_H
#define EVENKEEL_BASE_SLOTS_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define EK_SLOTS_MAX 262141 /* 18 bits, less what has a meaning */

struct ek_slots;

/* cap: 1..EK_SLOTS_MAX, which is also the limit until one is set; 24 bytes each,
 * untouched until they are used. Errors: EK_ENOMEM. */
int ek_slots_new(struct ek_slots **s, int32_t cap) EK_MUST_USE;
void ek_slots_free(struct ek_slots *s); /* NULL is fine */

/* 0: nothing may be taken; over cap: cap. What is open stays open. */
void ek_slots_set_limit(struct ek_slots *s, int32_t limit);

/* The id, or 0 when the limit is reached. Cost: one compare-and-swap. */
uint64_t ek_slots_take(struct ek_slots *s, int64_t begun_us, int64_t deadline_us);

/* True for the one call that ended `id`. Cost: two compare-and-swaps. */
bool ek_slots_give(struct ek_slots *s, uint64_t id);

bool ek_slots_is_open(const struct ek_slots *s, uint64_t id);

/* False when it is not open. One that expires at the same moment may be lost in spite
 * of true. */
bool ek_slots_set_deadline(struct ek_slots *s, uint64_t id, int64_t deadline_us);

/* Open now, and takes ever modulo 2^28, of one moment. */
#define EK_SLOTS_TAKES_MASK ((UINT32_C(1) << 28) - 1)
void ek_slots_count(const struct ek_slots *s, int32_t *n_open, uint32_t *n_takes);

/* What a caller turned away, counted here with the rest. */
void ek_slots_note_refusal(struct ek_slots *s);
uint64_t ek_slots_refusals(const struct ek_slots *s);

/* Ends all whose deadline is <= now_us, and returns how many. *n_young: slots begun
 * after young_us that are open. Cost: O(slots ever in use at once). */
int32_t ek_slots_sweep(struct ek_slots *s, int64_t now_us, int64_t young_us,
                       int32_t *n_young);

#endif
