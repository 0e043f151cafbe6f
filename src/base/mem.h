/* mem.h - the one door to the heap.
 *
 * Sizes are checked products; a request of 0 bytes yields a unique pointer. Tests make
 * the k-th allocation fail (ek_mem_fail_at), which is how every failure path is driven.
 * Threads: any; the failure counter is per thread.
 */
#ifndef EVENKEEL_BASE_MEM_H
#define EVENKEEL_BASE_MEM_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All return NULL on overflow or exhaustion and never abort. */
void *ek_alloc(size_t size) EK_MUST_USE;
void *ek_alloc_array(size_t n, size_t size) EK_MUST_USE;
void *ek_calloc(size_t n, size_t size) EK_MUST_USE;                 /* zeroed */
void *ek_realloc_array(void *p, size_t n, size_t size) EK_MUST_USE; /* p kept on NULL */
void *ek_alloc_aligned(size_t align, size_t size) EK_MUST_USE; /* align: power of two */
void ek_free(void *p);                                         /* p may be NULL */

/* 64-byte aligned, on pages of 2 MiB where the system gives them: for large memory that
 * lives long and is read over and over (weights, KV), where looking up pages of 4 KiB
 * costs up to a third of the time (docs/design/serving-speed.md). What is touched takes
 * 2 MiB at a time. */
void *ek_alloc_huge(size_t size) EK_MUST_USE;

/* Arrays that are taken one behind the other, or, dry, only counted: so that one function
 * lists what an object holds for both. Zeroed but for is_dry; behind the last array
 * status is 0, EK_ENOMEM or EK_ELIMIT (the sum overflows), and `bytes` the sum. */
struct ek_taker {
    bool is_dry;
    int status;
    size_t bytes;
};

/* n elements of `size`: NULL when dry, and once status is not 0. */
void *ek_take_array(struct ek_taker *t, int64_t n, size_t size);
void *ek_take_zeroed(struct ek_taker *t, int64_t n, size_t size);
void *ek_take_aligned(struct ek_taker *t, int64_t n, size_t size); /* to 64 bytes */

/* Copy of s[0,n) with a NUL behind it. */
char *ek_strndup(const char *s, size_t n) EK_MUST_USE;

/* *out = a*b or a+b; false on overflow (*out untouched). */
bool ek_mul_size(size_t *out, size_t a, size_t b);
bool ek_add_size(size_t *out, size_t a, size_t b);

/* Tests only: the k-th allocation of this thread from now (k = 1 is the next) returns
 * NULL, once; 0 turns it off. ek_mem_failed tells whether that has happened. */
void ek_mem_fail_at(uint64_t k);
bool ek_mem_failed(void);

#endif
