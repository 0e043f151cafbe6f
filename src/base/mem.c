#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static _Thread_local uint64_t fail_countdown;
static _Thread_local bool has_failed;

/* True when this allocation is to fail: the test asked for it, or no pointer difference
 * could span it (malloc refuses that too, but sanitizers end the process). */
static bool must_fail(size_t bytes)
{
    if (bytes > PTRDIFF_MAX)
        return true;
    if (fail_countdown == 0 || --fail_countdown > 0)
        return false;
    has_failed = true;
    return true;
}

void ek_mem_fail_at(uint64_t k)
{
    fail_countdown = k;
    has_failed = false;
}

bool ek_mem_failed(void)
{
    return has_failed;
}

bool ek_mul_size(size_t *out, size_t a, size_t b)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

bool ek_add_size(size_t *out, size_t a, size_t b)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

void *ek_alloc(size_t size)
{
    return must_fail(size) ? NULL : malloc(size ? size : 1);
}

void *ek_alloc_array(size_t n, size_t size)
{
    size_t bytes;
    return ek_mul_size(&bytes, n, size) ? ek_alloc(bytes) : NULL;
}

void *ek_calloc(size_t n, size_t size)
{
    size_t bytes;
    if (!ek_mul_size(&bytes, n, size) || must_fail(bytes))
        return NULL;
    return calloc(1, bytes ? bytes : 1);
}

void *ek_realloc_array(void *p, size_t n, size_t size)
{
    size_t bytes;
    if (!ek_mul_size(&bytes, n, size) || must_fail(bytes))
        return NULL;
    return realloc(p, bytes ? bytes : 1);
}

void *ek_alloc_aligned(size_t align, size_t size)
{
    assert(align >= sizeof(void *) && (align & (align - 1)) == 0);
    size_t rounded;
    if (!ek_add_size(&rounded, size ? size : 1, align - 1) || must_fail(rounded))
        return NULL;
    return aligned_alloc(align, rounded & ~(align - 1));
}

void *ek_alloc_huge(size_t size)
{
    const size_t huge = (size_t)2 << 20;
    if (size < huge)
        return ek_alloc_aligned(64, size);
    void *p = ek_alloc_aligned(huge, size);
    if (p)
        madvise(p, size, MADV_HUGEPAGE); /* refused: small pages do as well */
    return p;
}

/* Counts n elements. False: they are not to be taken. */
static bool count(struct ek_taker *t, size_t *bytes, int64_t n, size_t size)
{
    assert(n >= 0);
    if (t->status)
        return false;
    if (!ek_mul_size(bytes, (size_t)n, size) ||
        !ek_add_size(&t->bytes, t->bytes, *bytes))
        t->status = EK_ELIMIT;
    return !t->status && !t->is_dry;
}

static void *taken(struct ek_taker *t, void *p)
{
    t->status = p ? 0 : EK_ENOMEM;
    return p;
}

void *ek_take_array(struct ek_taker *t, int64_t n, size_t size)
{
    size_t bytes;
    return count(t, &bytes, n, size) ? taken(t, ek_alloc(bytes)) : NULL;
}

void *ek_take_zeroed(struct ek_taker *t, int64_t n, size_t size)
{
    size_t bytes;
    return count(t, &bytes, n, size) ? taken(t, ek_calloc(1, bytes)) : NULL;
}

void *ek_take_aligned(struct ek_taker *t, int64_t n, size_t size)
{
    size_t bytes;
    return count(t, &bytes, n, size) ? taken(t, ek_alloc_aligned(64, bytes)) : NULL;
}

void ek_free(void *p)
{
    free(p);
}

char *ek_strndup(const char *s, size_t n)
{
    size_t bytes;
    char *p = ek_add_size(&bytes, n, 1) ? ek_alloc(bytes) : NULL;
    if (!p)
        return NULL;
    if (n)
        memcpy(p, s, n);
    p[n] = 0;
    return p;
}
