/* arena.h - memory that is freed whole: one arena a request, one a loaded model.
 *
 * Blocks are chained; nothing moves, so pointers stay good until reset or release.
 */
#ifndef EVENKEEL_BASE_ARENA_H
#define EVENKEEL_BASE_ARENA_H

#include "base/status.h"

#include <stddef.h>

struct ek_arena_block;

struct ek_arena {
    struct ek_arena_block *head; /* the block in use, then the full ones; owned */
    size_t used_bytes;           /* handed out, padding included */
    size_t max_bytes;            /* ceiling of used_bytes */
};

void ek_arena_init(struct ek_arena *a, size_t max_bytes);
void ek_arena_release(struct ek_arena *a);
void ek_arena_reset(struct ek_arena *a); /* keeps the block in use */

/* Aligned to 16 bytes; NULL over the ceiling or without memory. */
void *ek_arena_alloc(struct ek_arena *a, size_t size) EK_MUST_USE;
void *ek_arena_calloc(struct ek_arena *a, size_t n, size_t size) EK_MUST_USE;
char *ek_arena_strndup(struct ek_arena *a, const char *s, size_t n) EK_MUST_USE;

#endif
